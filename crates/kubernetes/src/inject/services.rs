//! Services, and what else stands in the same input: which of them lead to a port that is taken over.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::Stop;
use super::annotations::Wanted;
use super::edit::Edit;
use super::inbound::Takeover;
use super::kind::{self, Kind};
use super::live;
use super::note::Note;
use super::outcome::{Outcome, Problem, Reason};
use super::pod::Declared;
use super::record::Record;
use super::settings::Settings;

/// The other objects of the input.
#[derive(Debug)]
pub struct Around {
    /// As they were before any `inject`.
    services: Vec<Value>,
    /// ConfigMaps and Secrets.
    variables: Vec<Value>,
    policies: Vec<Value>,
    pools: Vec<Value>,
    workloads: Vec<Workload>,
    /// The only objects that get a sidecar, by their names as people write them; all where it is empty.
    only: Vec<String>,
    /// Whether there are several workloads, none of them named: a flag that is meant for one is then not for each.
    crowded: bool,
    /// Whether an object that has a sidecar may get another.
    pub(super) renews: bool,
}

/// What a Service selects by.
#[derive(Debug)]
struct Workload {
    name: String,
    namespace: Option<String>,
    labels: Map<String, Value>,
    takeover: Option<Takeover>,
}

/// The pods of one workload, as a Service sees them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selected<'a> {
    pub(super) namespace: Option<&'a str>,
    pub(super) labels: Option<&'a Map<String, Value>>,
}

impl<'a> Selected<'a> {
    pub(super) fn of(object: &'a Value, template: &'a Value) -> Self {
        Self {
            namespace: object.pointer("/metadata/namespace").and_then(Value::as_str),
            labels: template.pointer("/metadata/labels").and_then(Value::as_object),
        }
    }
}

impl Around {
    /// Nothing is known of other objects: what the webhook sees. What has a sidecar already keeps it.
    pub fn alone() -> Self {
        Self {
            services: Vec::new(),
            variables: Vec::new(),
            policies: Vec::new(),
            pools: Vec::new(),
            workloads: Vec::new(),
            only: Vec::new(),
            crowded: false,
            renews: false,
        }
    }

    /// All objects of the input.
    pub fn of(objects: &[&Value], settings: &Settings) -> Self {
        Self::of_some(objects, settings, &[])
    }

    /// All objects of the input, of which only these (`deployment/vllm`) get a sidecar; all where none is named.
    pub fn of_some(objects: &[&Value], settings: &Settings, only: &[String]) -> Self {
        let asks = |object: &&&Value| {
            let template = Kind::of(object).and_then(|kind| object.pointer(kind.template()));
            let wanted = template.map(|template| Wanted::of(object, template, settings));
            wanted.is_some_and(|wanted| !matches!(wanted, Err(Stop::Skip(_))))
                && !live::is_owned(object)
        };
        let services = objects
            .iter()
            .filter(|object| kind::is_service(object) && !live::is_owned(object))
            .map(|service| original(service, ""));
        let of_kind = |kinds: &[&str]| {
            let fits = |object: &&&Value| {
                let kind = object.get("kind").and_then(Value::as_str);
                kind.is_some_and(|kind| kinds.contains(&kind))
            };
            objects.iter().filter(fits).map(|&object| object.clone()).collect()
        };
        let mut around = Self {
            services: services.collect(),
            variables: of_kind(&["ConfigMap", "Secret"]),
            policies: of_kind(&["NetworkPolicy"]),
            pools: of_kind(&["InferencePool"]),
            workloads: Vec::new(),
            only: only.to_vec(),
            crowded: only.is_empty() && objects.iter().filter(asks).count() > 1,
            renews: true,
        };
        let workloads =
            objects.iter().filter_map(|object| around.workload(object, settings)).collect();
        around.workloads = workloads;
        around
    }

    fn workload(&self, object: &Value, settings: &Settings) -> Option<Workload> {
        let kind = Kind::of(object)?;
        let template = object.pointer(kind.template())?;
        let labels = template.pointer("/metadata/labels").and_then(Value::as_object);
        Some(Workload {
            name: kind::name(object),
            namespace: namespace(object).map(str::to_owned),
            labels: labels.cloned().unwrap_or_default(),
            takeover: super::takeover(object, kind, self, settings),
        })
    }

    /// Whether an object is among those that get a sidecar.
    pub(super) fn names(&self, object: &Value) -> bool {
        self.only.is_empty() || self.only.contains(&kind::name(object))
    }

    /// Whether it is left as it is, since another object makes it. To the webhook each pod is one of those, and new.
    pub(super) fn leaves(&self, object: &Value) -> bool {
        self.renews && live::is_owned(object)
    }

    pub(super) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Whether a Service that can be led elsewhere leads to the pods' port by its number.
    pub(super) fn leads_by_number(&self, pods: &Selected<'_>, port: u16) -> bool {
        self.services
            .iter()
            .filter(|service| !is_headless(service) && selects(service, pods))
            .any(|service| !ports_to(service, port).is_empty())
    }

    /// The Services whose clients dial the pods' port themselves.
    pub(super) fn headless(
        &self,
        pods: &Selected<'_>,
        port: Option<&Declared>,
        number: u16,
    ) -> Vec<String> {
        let name = port.and_then(|port| port.name.as_deref());
        let leads = |service: &&Value| {
            let by_name = each_port(service)
                .any(|port| name.is_some() && port.target.and_then(Value::as_str) == name);
            by_name || !ports_to(service, number).is_empty()
        };
        self.services
            .iter()
            .filter(|service| is_headless(service) && selects(service, pods))
            .filter(leads)
            .map(super::pod::of_metadata)
            .collect()
    }

    /// The NetworkPolicies that let in the pods' port by its number. (By its name they follow it.)
    pub(super) fn policies(&self, pods: &Selected<'_>, port: u16) -> Vec<String> {
        let lets_in = |policy: &&Value| {
            let rules = policy.pointer("/spec/ingress").and_then(Value::as_array);
            let ports =
                rules.into_iter().flatten().filter_map(|rule| rule.get("ports")?.as_array());
            ports.flatten().any(|it| it.get("port").and_then(Value::as_u64) == Some(port.into()))
        };
        self.policies
            .iter()
            .filter(|policy| shares(namespace(policy), pods.namespace))
            .filter(|policy| fits(policy.pointer("/spec/podSelector/matchLabels"), pods))
            .filter(lets_in)
            .map(super::pod::of_metadata)
            .collect()
    }

    /// The InferencePools (Gateway API Inference Extension) that dial the pods' port by its number; they know no names.
    pub(super) fn pools(&self, pods: &Selected<'_>, port: u16) -> Vec<String> {
        let dials = |pool: &&Value| {
            let ports = pool.pointer("/spec/targetPorts").and_then(Value::as_array);
            let numbers = ports.into_iter().flatten().map(|it| it.get("number"));
            let former = pool.pointer("/spec/targetPortNumber");
            numbers.chain([former]).any(|it| it.and_then(Value::as_u64) == Some(port.into()))
        };
        let chooses = |pool: &&Value| {
            let selector = pool.pointer("/spec/selector");
            let labels = selector.and_then(|it| it.get("matchLabels")).or(selector);
            labels.is_some() && fits(labels, pods)
        };
        self.pools
            .iter()
            .filter(|pool| shares(namespace(pool), pods.namespace))
            .filter(chooses)
            .filter(dials)
            .map(super::pod::of_metadata)
            .collect()
    }

    /// The variables that a ConfigMap or Secret of the input sets; `None` where it is not in the input.
    pub(super) fn variables(
        &self,
        kind: &str,
        name: &str,
        in_namespace: Option<&str>,
    ) -> Option<BTreeSet<String>> {
        let object = self.variables.iter().find(|object| {
            object.get("kind").and_then(Value::as_str) == Some(kind)
                && object.pointer("/metadata/name").and_then(Value::as_str) == Some(name)
                && shares(namespace(object), in_namespace)
        })?;
        let keys =
            ["data", "stringData"].into_iter().filter_map(|data| object.get(data)?.as_object());
        Some(keys.flat_map(|data| data.keys().cloned()).collect())
    }
}

/// A Service is led to where the pods behind it were taken over.
pub(super) fn inject(service: &Value, around: &Around) -> Outcome {
    match lead(service, around) {
        Ok(Some((led, ..))) if led == *service => Outcome::Skipped(Reason::AlreadyInjected),
        Ok(Some(_)) | Err(_) if around.leaves(service) => Outcome::Skipped(Reason::Owned),
        Ok(Some((_, patch, notes))) => Outcome::Changed { patch, notes },
        Ok(None) => Outcome::Skipped(Reason::NotAWorkload),
        Err(problem) => Outcome::Refused(problem),
    }
}

type Led = (Value, json_patch::Patch, Vec<Note>);

fn lead(service: &Value, around: &Around) -> Result<Option<Led>, Problem> {
    let record = Record::of(service)?;
    let (original, mut patch, mut notes) = match &record {
        None => (service.clone(), json_patch::Patch(Vec::new()), Vec::new()),
        Some(_) if !around.renews => return Ok(None),
        Some(record) => record.undo(service, "")?,
    };
    if is_headless(&original) {
        return Ok(None);
    }
    let behind: Vec<&Workload> =
        around.workloads.iter().filter(|workload| workload.is_behind(&original)).collect();
    let mut edit = Edit::new(&original, "");
    let mut led = false;
    let mut takeovers: Vec<Takeover> = Vec::new();
    for takeover in behind.iter().filter_map(|workload| workload.takeover) {
        // Several workloads behind one Service are taken over alike, or it is refused.
        if takeover.leads && !takeovers.contains(&takeover) {
            takeovers.push(takeover);
        }
    }
    for takeover in takeovers {
        for port in ports_to(&original, takeover.old) {
            if let Some(other) = behind.iter().find(|workload| workload.takeover != Some(takeover))
            {
                return Err(Problem::SharedService {
                    workload: other.name.clone(),
                    port: takeover.old,
                });
            }
            edit.put(&format!("/spec/ports/{}", port.index), "targetPort", json!(takeover.new))?;
            notes.push(Note::ServiceLed {
                port: port.called,
                old: takeover.old,
                new: takeover.new,
            });
            led = true;
        }
    }
    if !led {
        return Ok(None);
    }
    let (value, mut new) = edit.finish(None, None)?;
    patch.0.append(&mut new.0);
    Ok(Some((value, patch, notes)))
}

impl Workload {
    fn is_behind(&self, service: &Value) -> bool {
        let pods = Selected { namespace: self.namespace.as_deref(), labels: Some(&self.labels) };
        selects(service, &pods)
    }
}

/// As an object was before `inject`; as it is where that cannot be said.
fn original(object: &Value, base: &str) -> Value {
    let record = object.pointer(base).map(Record::of);
    match record {
        Some(Ok(Some(record))) => {
            record.undo(object, base).map_or_else(|_| object.clone(), |(value, _, _)| value)
        }
        Some(Ok(None) | Err(_)) | None => object.clone(),
    }
}

fn namespace(object: &Value) -> Option<&str> {
    object.pointer("/metadata/namespace").and_then(Value::as_str)
}

/// Whether two objects of one input are in the same namespace. One that says none is put where the other is, or kubectl
/// would refuse the pair.
fn shares(one: Option<&str>, other: Option<&str>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other,
        (None, _) | (_, None) => true,
    }
}

fn is_headless(service: &Value) -> bool {
    service.pointer("/spec/clusterIP").and_then(Value::as_str) == Some("None")
}

/// Whether the Service's selector fits the pods' labels, in the same namespace. One without a selector fits nothing.
fn selects(service: &Value, pods: &Selected<'_>) -> bool {
    let selector = service.pointer("/spec/selector");
    let chooses = selector.and_then(Value::as_object).is_some_and(|them| !them.is_empty());
    chooses && shares(namespace(service), pods.namespace) && fits(selector, pods)
}

/// Whether the pods have all these labels.
fn fits(labels: Option<&Value>, pods: &Selected<'_>) -> bool {
    let mut wanted = labels.and_then(Value::as_object).into_iter().flatten();
    wanted.all(|(key, value)| pods.labels.and_then(|labels| labels.get(key)) == Some(value))
}

/// A port of a Service.
struct ServicePort<'a> {
    index: usize,
    /// Its name, or its number.
    called: String,
    target: Option<&'a Value>,
    /// Its own number, which is the target where none is given.
    port: Option<&'a Value>,
}

fn each_port(service: &Value) -> impl Iterator<Item = ServicePort<'_>> {
    let ports = service.pointer("/spec/ports").and_then(Value::as_array);
    ports.into_iter().flatten().enumerate().filter_map(|(index, port)| {
        let tcp = port.get("protocol").and_then(Value::as_str).is_none_or(|name| name == "TCP");
        tcp.then(|| ServicePort {
            index,
            called: super::record::id(port),
            target: port.get("targetPort").filter(|target| !target.is_null()),
            port: port.get("port"),
        })
    })
}

/// The ports of a Service that lead to a number of the pod.
fn ports_to(service: &Value, number: u16) -> Vec<ServicePort<'_>> {
    each_port(service)
        .filter(|port| port.target.or(port.port).and_then(Value::as_u64) == Some(number.into()))
        .collect()
}
