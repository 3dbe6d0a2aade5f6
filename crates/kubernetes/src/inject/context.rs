//! Objects of the input that an injection reads or changes in addition to the workload, such as Services. A Service
//! that targets the engine's port by number is changed to target the sidecar's port.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::annotations::SidecarConfig;
use super::cluster_object;
use super::edit::Edit;
use super::kind::{self, WorkloadKind, items, text};
use super::outcome::{Change, InjectError, NoChange, SkipReason};
use super::pod::{self, DeclaredPort};
use super::record::{self, Record};
use super::settings::Settings;

/// All objects of the input, and the names of the objects that get a sidecar.
#[derive(Debug, Default)]
pub struct InjectionContext {
    /// All objects of the input. Services are stored as they were before an earlier injection. Services that a
    /// controller manages are left out.
    objects: Vec<Value>,
    workloads: Vec<Workload>,
    /// `kind/name` of the objects that get a sidecar. An empty list selects all objects.
    only: Vec<String>,
    /// Whether several workloads of the input request a sidecar, and `--only` is not used. The flag `--mode inbound`
    /// then applies only to workloads that run a known engine.
    pub(super) has_several_workloads: bool,
    /// Whether `inject` replaces an existing sidecar that has other settings.
    pub(super) updates_sidecars: bool,
}

/// A workload, and the engine port that its sidecar takes over.
#[derive(Debug)]
struct Workload {
    name: String,
    pods: PodSet,
    takeover: Option<Takeover>,
}

/// A port that the sidecar takes over: `old` is the engine's port, and `new` is the sidecar's port.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Takeover {
    pub(super) old: u16,
    pub(super) new: u16,
    /// Whether Services in the input that target `old` by number are changed to target `new`. False if the user must
    /// change the Service.
    pub(super) updates_services: bool,
}

/// The pods of one workload: the namespace and the labels by which other objects select these pods.
#[derive(Debug)]
pub(super) struct PodSet {
    namespace: Option<String>,
    labels: Map<String, Value>,
}

impl PodSet {
    pub(super) fn from_object(object: &Value, template: &Value) -> Self {
        let labels = template.pointer("/metadata/labels").and_then(Value::as_object);
        Self {
            namespace: text(object, "/metadata/namespace").map(str::to_owned),
            labels: labels.cloned().unwrap_or_default(),
        }
    }

    /// Returns whether the object may be in the same namespace as the pods. True if one of them has no namespace,
    /// because kubectl sets the namespace when it applies the input.
    fn may_share_namespace(&self, object: &Value) -> bool {
        let namespace = text(object, "/metadata/namespace");
        let own = self.namespace.as_deref();
        namespace.is_none() || own.is_none() || namespace == own
    }

    fn has_labels(&self, labels: Option<&Value>) -> bool {
        let mut labels = labels.and_then(Value::as_object).into_iter().flatten();
        labels.all(|(key, value)| self.labels.get(key) == Some(value))
    }

    /// Returns whether a Service selects these pods. A Service without a selector selects no pods.
    fn is_behind(&self, service: &Value) -> bool {
        let selector = service.pointer("/spec/selector");
        selector.and_then(Value::as_object).is_some_and(|labels| !labels.is_empty())
            && self.may_share_namespace(service)
            && self.has_labels(selector)
    }
}

impl InjectionContext {
    /// Returns a context for the webhook, which injects one object at a time. Existing sidecars stay unchanged.
    pub fn standalone() -> Self {
        Self::default()
    }

    /// Returns a context with all objects of the input. `only` names the objects that may get a sidecar, such as
    /// `deployment/vllm`. If `only` is empty, every object may get one.
    pub fn new(objects: &[&Value], settings: &Settings, only: &[String]) -> Self {
        let requested = objects.iter().filter(|object| requests_sidecar(object, settings)).count();
        let mut context = Self {
            objects: objects.iter().filter_map(|object| before_injection(object)).collect(),
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
        let kind = WorkloadKind::from_object(object)?;
        Some(Workload {
            name: kind::object_name(object),
            pods: PodSet::from_object(object, object.pointer(kind.template)?),
            takeover: super::takeover(object, kind, self, settings),
        })
    }

    /// Returns whether a Namespace of the input shows that the pods run on OpenShift, which annotates each namespace with
    /// a range of user ids.
    pub(super) fn is_on_openshift(&self, pods: &PodSet) -> bool {
        self.objects.iter().any(|object| {
            let name = text(object, "/metadata/name");
            text(object, "/kind") == Some("Namespace")
                && (name == pods.namespace.as_deref() || pods.namespace.is_none())
                && object.pointer("/metadata/annotations/openshift.io~1sa.scc.uid-range").is_some()
        })
    }

    /// Returns whether `--only` selects the object.
    pub(super) fn selects(&self, object: &Value) -> bool {
        self.only.is_empty() || self.only.contains(&kind::object_name(object))
    }

    /// Returns whether `inject` skips the object because its controller would overwrite the change. Always false in
    /// the webhook, which receives each pod before the pod exists.
    pub(super) fn skips_controlled(&self, object: &Value) -> bool {
        self.updates_sidecars && cluster_object::is_controlled(object)
    }

    fn workloads_behind(&self, service: &Value) -> Vec<&Workload> {
        self.workloads.iter().filter(|workload| workload.pods.is_behind(service)).collect()
    }

    /// Returns whether a Service of the input targets this port of the pods by number. Headless Services do not count.
    pub(super) fn has_service_by_number(&self, pods: &PodSet, port: u16) -> bool {
        let mut services = self.objects.iter().filter(|object| kind::is_service(object));
        services.any(|service| {
            !is_headless(service)
                && pods.is_behind(service)
                && ports_targeting(service, port).next().is_some()
        })
    }

    /// Returns the headless Services that target the port. Their clients connect to the pods directly and bypass the
    /// sidecar.
    pub(super) fn headless_services(
        &self,
        pods: &PodSet,
        port: Option<&DeclaredPort>,
        number: u16,
    ) -> Vec<String> {
        let name = port.and_then(|port| port.name.as_deref());
        self.names("Service", |service| {
            let is_target = |target: Option<&Value>| {
                is_number(target, number)
                    || name.is_some_and(|name| target.and_then(Value::as_str) == Some(name))
            };
            kind::is_service(service)
                && is_headless(service)
                && pods.is_behind(service)
                && tcp_ports(service).any(|(_, port)| is_target(target(port)))
        })
    }

    /// Returns the NetworkPolicies that allow traffic to this port of the pods by number. A policy that uses the name
    /// of the port needs no change.
    pub(super) fn policies_by_number(&self, pods: &PodSet, port: u16) -> Vec<String> {
        self.names("NetworkPolicy", |policy| {
            let rules = items(policy, "/spec/ingress").iter();
            let mut ports = rules.flat_map(|rule| items(rule, "/ports"));
            pods.may_share_namespace(policy)
                && pods.has_labels(policy.pointer("/spec/podSelector/matchLabels"))
                && ports.any(|entry| is_number(entry.get("port"), port))
        })
    }

    /// Returns the InferencePools (Gateway API Inference Extension) that target this port of the pods. An
    /// InferencePool can name a port only by number.
    pub(super) fn pools_by_number(&self, pods: &PodSet, port: u16) -> Vec<String> {
        self.names("InferencePool", |pool| {
            let numbers = items(pool, "/spec/targetPorts").iter().map(|entry| entry.get("number"));
            // Name of the field in version v1alpha2 of the InferencePool API.
            let single = pool.pointer("/spec/targetPortNumber");
            let selector = pool.pointer("/spec/selector");
            let labels = selector.and_then(|selector| selector.get("matchLabels")).or(selector);
            pods.may_share_namespace(pool)
                && labels.is_some()
                && pods.has_labels(labels)
                && numbers.chain([single]).any(|number| is_number(number, port))
        })
    }

    fn names(&self, kind: &str, is_match: impl Fn(&Value) -> bool) -> Vec<String> {
        let objects = self.objects.iter().filter(|object| text(object, "/kind") == Some(kind));
        let matches = objects.filter(|object| is_match(object));
        matches
            .map(|object| text(object, "/metadata/name").unwrap_or_default().to_owned())
            .collect()
    }

    /// Returns the keys of a ConfigMap or Secret, which become environment variables. Returns `None` if the input does
    /// not contain the object.
    pub(super) fn variables(
        &self,
        kind: &str,
        name: &str,
        pods: &PodSet,
    ) -> Option<BTreeSet<String>> {
        let source = self.objects.iter().find(|object| {
            text(object, "/kind") == Some(kind)
                && text(object, "/metadata/name") == Some(name)
                && pods.may_share_namespace(object)
        })?;
        let fields =
            ["data", "stringData"].into_iter().filter_map(|data| source.get(data)?.as_object());
        Some(fields.flat_map(|data| data.keys().cloned()).collect())
    }
}

/// Changes the ports of a Service that target the engine's port by number to target the sidecar's port.
pub(super) fn redirect_service(
    service: &Value,
    context: &InjectionContext,
) -> Result<Change, NoChange> {
    let mut edit = Edit::new(service, "");
    if let Some(record) = Record::from_template(service)? {
        if !context.updates_sidecars {
            return Err(SkipReason::NotAWorkload.into());
        }
        edit.undo(&record)?;
    }
    let original = edit.value().clone();
    if is_headless(&original) {
        return Err(SkipReason::NotAWorkload.into());
    }
    let workloads = context.workloads_behind(&original);
    let mut takeovers: Vec<Takeover> = Vec::new();
    for takeover in workloads.iter().filter_map(|workload| workload.takeover) {
        if takeover.updates_services && !takeovers.contains(&takeover) {
            takeovers.push(takeover);
        }
    }
    let mut is_changed = false;
    for takeover in takeovers {
        let Takeover { old, new, .. } = takeover;
        for (index, port) in ports_targeting(&original, old) {
            // All workloads behind the Service port need the same takeover. Otherwise, requests to the other
            // workloads would fail.
            let other = workloads.iter().find(|workload| workload.takeover != Some(takeover));
            if let Some(other) = other {
                let workload = other.name.clone();
                return Err(InjectError::SharedService { workload, port: old }.into());
            }
            edit.put(&format!("/spec/ports/{index}"), "targetPort", json!(new))?;
            let id = record::item_id(port);
            edit.note(format!("port {id} now targets the sidecar ({new}) instead of {old}"));
            is_changed = true;
        }
    }
    if !is_changed {
        return Err(SkipReason::NotAWorkload.into());
    }
    Ok(edit.finish(None, None)?)
}

/// Returns whether the object is a workload that requests a sidecar. True even if the requested configuration is
/// invalid.
fn requests_sidecar(object: &Value, settings: &Settings) -> bool {
    let template = WorkloadKind::from_object(object).and_then(|kind| object.pointer(kind.template));
    let config = template.map(|template| SidecarConfig::resolve(object, template, settings));
    config.is_some_and(|config| !matches!(config, Err(NoChange::Skipped(_))))
        && !cluster_object::is_controlled(object)
}

/// Returns the object, with an earlier injection undone if the object is a Service. If the injection cannot be undone,
/// returns the Service unchanged. Returns `None` for a Service that a controller manages.
fn before_injection(object: &Value) -> Option<Value> {
    if !kind::is_service(object) {
        return Some(object.clone());
    }
    if cluster_object::is_controlled(object) {
        return None;
    }
    let mut edit = Edit::new(object, "");
    match Record::from_template(object) {
        Ok(Some(record)) if edit.undo(&record).is_ok() => Some(edit.value().clone()),
        Ok(_) | Err(_) => Some(object.clone()),
    }
}

fn is_headless(service: &Value) -> bool {
    text(service, "/spec/clusterIP") == Some("None")
}

fn is_number(value: Option<&Value>, number: u16) -> bool {
    value.and_then(Value::as_u64) == Some(number.into())
}

fn tcp_ports(service: &Value) -> impl Iterator<Item = (usize, &Value)> {
    let ports = items(service, "/spec/ports").iter().enumerate();
    ports.filter(|(_, port)| pod::is_tcp(port))
}

/// Returns the target port of a Service port. If `targetPort` is absent, Kubernetes uses the number of the Service
/// port.
fn target(port: &Value) -> Option<&Value> {
    port.get("targetPort").filter(|target| !target.is_null()).or(port.get("port"))
}

/// Returns the ports of a Service that target this port number of the pods.
fn ports_targeting(service: &Value, number: u16) -> impl Iterator<Item = (usize, &Value)> {
    tcp_ports(service).filter(move |(_, port)| is_number(target(port), number))
}
