//! The other objects of the input: Services, ConfigMaps and the like that depend on an injected workload.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::PlanError;
use super::annotations::SidecarConfig;
use super::cluster_object;
use super::kind::{self, Kind};
use super::pod::{self, DeclaredPort};
use super::record::Record;
use super::settings::Settings;

/// The objects of the input, and which of them get a sidecar.
#[derive(Debug, Default)]
pub struct InjectionContext {
    /// Services as they were before any injection.
    services: Vec<Value>,
    /// ConfigMaps and Secrets of the input.
    variable_sources: Vec<Value>,
    network_policies: Vec<Value>,
    inference_pools: Vec<Value>,
    workloads: Vec<Workload>,
    /// `kind/name` of the objects that get a sidecar. Empty selects all.
    only: Vec<String>,
    has_several_workloads: bool,
    updates_sidecars: bool,
}

/// A workload, and the port that its sidecar takes over.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) name: String,
    namespace: Option<String>,
    labels: Map<String, Value>,
    pub(super) takeover: Option<Takeover>,
}

/// A port that the sidecar takes over from an engine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Takeover {
    pub(super) old: u16,
    pub(super) new: u16,
    /// Whether Services of the input have to target the new number. False if the user has configured them.
    pub(super) updates_services: bool,
}

/// The pods of one workload, with the properties that selectors match.
#[derive(Clone, Copy, Debug)]
pub(super) struct PodSet<'a> {
    pub(super) namespace: Option<&'a str>,
    pub(super) labels: Option<&'a Map<String, Value>>,
}

impl<'a> PodSet<'a> {
    pub(super) fn of(object: &'a Value, template: &'a Value) -> Self {
        Self {
            namespace: kind::namespace(object),
            labels: template.pointer("/metadata/labels").and_then(Value::as_object),
        }
    }
}

impl InjectionContext {
    /// Returns a context without other objects, as in the webhook. Existing sidecars stay as they are.
    pub fn standalone() -> Self {
        Self::default()
    }

    /// Collects all objects of the input.
    pub fn new(objects: &[&Value], settings: &Settings) -> Self {
        Self::with_filter(objects, settings, &[])
    }

    /// Collects all objects of the input. Only the objects named in `only` (`deployment/vllm`) get a sidecar. If `only`
    /// is empty, all objects get one.
    pub fn with_filter(objects: &[&Value], settings: &Settings, only: &[String]) -> Self {
        let of_kind = |name: &str| -> Vec<Value> {
            let has_kind =
                |object: &&&Value| object.get("kind").and_then(Value::as_str) == Some(name);
            objects.iter().filter(has_kind).map(|&object| object.clone()).collect()
        };
        let services = objects
            .iter()
            .filter(|object| kind::is_service(object) && !cluster_object::is_controlled(object))
            .map(|service| before_injection(service));
        let requested = objects.iter().filter(|object| requests_sidecar(object, settings)).count();
        let mut context = Self {
            services: services.collect(),
            variable_sources: [of_kind("ConfigMap"), of_kind("Secret")].concat(),
            network_policies: of_kind("NetworkPolicy"),
            inference_pools: of_kind("InferencePool"),
            workloads: Vec::new(),
            only: only.to_vec(),
            has_several_workloads: only.is_empty() && requested > 1,
            updates_sidecars: true,
        };
        let workloads = objects.iter().filter_map(|object| context.workload(object, settings));
        context.workloads = workloads.collect();
        context
    }

    fn workload(&self, object: &Value, settings: &Settings) -> Option<Workload> {
        let kind = Kind::of(object)?;
        let template = object.pointer(kind.template())?;
        let pods = PodSet::of(object, template);
        Some(Workload {
            name: kind::object_name(object),
            namespace: pods.namespace.map(str::to_owned),
            labels: pods.labels.cloned().unwrap_or_default(),
            takeover: super::takeover(object, kind, self, settings),
        })
    }

    /// Returns whether `--only` selects the object.
    pub(super) fn selects(&self, object: &Value) -> bool {
        self.only.is_empty() || self.only.contains(&kind::object_name(object))
    }

    /// Returns whether the object stays unchanged because its controller would overwrite the change. Always false in
    /// the webhook, which receives pods before they exist.
    pub(super) fn skips_controlled(&self, object: &Value) -> bool {
        self.updates_sidecars && cluster_object::is_controlled(object)
    }

    /// Returns whether a flag for one workload would apply to several.
    pub(super) fn has_several_workloads(&self) -> bool {
        self.has_several_workloads
    }

    /// Returns whether an existing sidecar is replaced if its settings differ.
    pub(super) fn updates_sidecars(&self) -> bool {
        self.updates_sidecars
    }

    /// Returns the workloads that a Service selects.
    pub(super) fn workloads_behind(&self, service: &Value) -> Vec<&Workload> {
        let is_behind = |workload: &&Workload| {
            let namespace = workload.namespace.as_deref();
            selects_pods(service, &PodSet { namespace, labels: Some(&workload.labels) })
        };
        self.workloads.iter().filter(is_behind).collect()
    }

    /// Returns whether a Service with a cluster IP targets the pods' port by number.
    pub(super) fn has_service_by_number(&self, pods: &PodSet<'_>, port: u16) -> bool {
        self.services
            .iter()
            .filter(|service| !is_headless(service) && selects_pods(service, pods))
            .any(|service| !ports_targeting(service, port).is_empty())
    }

    /// Returns the headless Services of a port, whose clients connect to the pods directly.
    pub(super) fn headless_services(
        &self,
        pods: &PodSet<'_>,
        port: Option<&DeclaredPort>,
        number: u16,
    ) -> Vec<String> {
        let name = port.and_then(|port| port.name.as_deref());
        let targets_port = |service: &&Value| {
            let by_name = tcp_ports(service)
                .any(|port| name.is_some() && port.target.and_then(Value::as_str) == name);
            by_name || !ports_targeting(service, number).is_empty()
        };
        self.services
            .iter()
            .filter(|service| is_headless(service) && selects_pods(service, pods))
            .filter(targets_port)
            .map(pod::metadata_name)
            .collect()
    }

    /// Returns the NetworkPolicies that allow the pods' port by number. Those that use its name need no change.
    pub(super) fn policies_by_number(&self, pods: &PodSet<'_>, port: u16) -> Vec<String> {
        let allows_port = |policy: &&Value| {
            let rules = policy.pointer("/spec/ingress").and_then(Value::as_array);
            let ports =
                rules.into_iter().flatten().filter_map(|rule| rule.get("ports")?.as_array());
            ports.flatten().any(|entry| is_number(entry.get("port"), port))
        };
        self.network_policies
            .iter()
            .filter(|policy| may_share_namespace(kind::namespace(policy), pods.namespace))
            .filter(|policy| has_labels(pods, policy.pointer("/spec/podSelector/matchLabels")))
            .filter(allows_port)
            .map(pod::metadata_name)
            .collect()
    }

    /// Returns the InferencePools (Gateway API Inference Extension) of the pods' port. They support only numbers.
    pub(super) fn pools_by_number(&self, pods: &PodSet<'_>, port: u16) -> Vec<String> {
        let targets_port = |pool: &&Value| {
            let ports = pool.pointer("/spec/targetPorts").and_then(Value::as_array);
            let numbers = ports.into_iter().flatten().map(|entry| entry.get("number"));
            // The field name in v1alpha2.
            let single = pool.pointer("/spec/targetPortNumber");
            numbers.chain([single]).any(|number| is_number(number, port))
        };
        let selects = |pool: &&Value| {
            let selector = pool.pointer("/spec/selector");
            let labels = selector.and_then(|selector| selector.get("matchLabels")).or(selector);
            labels.is_some() && has_labels(pods, labels)
        };
        self.inference_pools
            .iter()
            .filter(|pool| may_share_namespace(kind::namespace(pool), pods.namespace))
            .filter(selects)
            .filter(targets_port)
            .map(pod::metadata_name)
            .collect()
    }

    /// Returns the keys of a ConfigMap or Secret, or `None` if it is not in the input.
    pub(super) fn variables(
        &self,
        kind: &str,
        name: &str,
        namespace: Option<&str>,
    ) -> Option<BTreeSet<String>> {
        let source = self.variable_sources.iter().find(|object| {
            object.get("kind").and_then(Value::as_str) == Some(kind)
                && object.pointer("/metadata/name").and_then(Value::as_str) == Some(name)
                && may_share_namespace(kind::namespace(object), namespace)
        })?;
        let fields =
            ["data", "stringData"].into_iter().filter_map(|data| source.get(data)?.as_object());
        Some(fields.flat_map(|data| data.keys().cloned()).collect())
    }
}

/// Returns whether the object is a workload that requests a sidecar, even if the request is invalid.
fn requests_sidecar(object: &Value, settings: &Settings) -> bool {
    let template = Kind::of(object).and_then(|kind| object.pointer(kind.template()));
    let config = template.map(|template| SidecarConfig::of(object, template, settings));
    config.is_some_and(|config| !matches!(config, Err(PlanError::Skip(_))))
        && !cluster_object::is_controlled(object)
}

/// Returns the Service as it was before injection, or unchanged if its record cannot be undone.
fn before_injection(service: &Value) -> Value {
    let undone = match Record::of(service) {
        Ok(Some(record)) => record.undo(service, "").ok(),
        Ok(None) | Err(_) => None,
    };
    undone.map_or_else(|| service.clone(), |undone| undone.value)
}

/// Returns whether two objects of one input may be in the same namespace. An object without a namespace gets the
/// namespace of the kubectl command, and kubectl rejects an input with any other namespace.
fn may_share_namespace(one: Option<&str>, other: Option<&str>) -> bool {
    one.is_none() || other.is_none() || one == other
}

pub(super) fn is_headless(service: &Value) -> bool {
    service.pointer("/spec/clusterIP").and_then(Value::as_str) == Some("None")
}

/// Returns whether the Service selects the pods. A Service without a selector selects none.
fn selects_pods(service: &Value, pods: &PodSet<'_>) -> bool {
    let selector = service.pointer("/spec/selector");
    selector.and_then(Value::as_object).is_some_and(|labels| !labels.is_empty())
        && may_share_namespace(kind::namespace(service), pods.namespace)
        && has_labels(pods, selector)
}

fn has_labels(pods: &PodSet<'_>, labels: Option<&Value>) -> bool {
    let mut labels = labels.and_then(Value::as_object).into_iter().flatten();
    labels.all(|(key, value)| pods.labels.and_then(|labels| labels.get(key)) == Some(value))
}

fn is_number(value: Option<&Value>, number: u16) -> bool {
    value.and_then(Value::as_u64) == Some(number.into())
}

/// A port of a Service.
pub(super) struct ServicePort<'a> {
    pub(super) index: usize,
    /// The name of the port, or its number if the port has no name.
    pub(super) id: String,
    target: Option<&'a Value>,
    /// The number of the Service port, which is the default for `target`.
    port: Option<&'a Value>,
}

fn tcp_ports(service: &Value) -> impl Iterator<Item = ServicePort<'_>> {
    let ports = service.pointer("/spec/ports").and_then(Value::as_array);
    let ports = ports.into_iter().flatten().enumerate();
    ports.filter(|(_, port)| pod::is_tcp(port)).map(|(index, port)| ServicePort {
        index,
        id: super::record::item_id(port),
        target: port.get("targetPort").filter(|target| !target.is_null()),
        port: port.get("port"),
    })
}

/// Returns the ports of a Service that target a port of the pod by number.
pub(super) fn ports_targeting(service: &Value, number: u16) -> Vec<ServicePort<'_>> {
    tcp_ports(service).filter(|port| is_number(port.target.or(port.port), number)).collect()
}
