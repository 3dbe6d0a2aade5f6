//! Which objects run pods, and where in them the pod is described.

use serde_json::Value;

/// The kinds that `inject` knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Pod,
    Deployment,
    StatefulSet,
    DaemonSet,
    ReplicaSet,
    ReplicationController,
    /// Argo's Deployment, whose pods are described in the same place.
    Rollout,
    Job,
    CronJob,
}

impl Kind {
    /// By `apiVersion` and `kind`: another group may have a kind of the same name.
    pub(super) fn of(object: &Value) -> Option<Self> {
        let group = group(object)?;
        match (group, object.get("kind")?.as_str()?) {
            ("", "Pod") => Some(Self::Pod),
            ("apps", "Deployment") => Some(Self::Deployment),
            ("apps", "StatefulSet") => Some(Self::StatefulSet),
            ("apps", "DaemonSet") => Some(Self::DaemonSet),
            ("apps", "ReplicaSet") => Some(Self::ReplicaSet),
            ("", "ReplicationController") => Some(Self::ReplicationController),
            ("argoproj.io", "Rollout") if object.pointer("/spec/template").is_some() => {
                Some(Self::Rollout)
            }
            ("batch", "Job") => Some(Self::Job),
            ("batch", "CronJob") => Some(Self::CronJob),
            _ => None,
        }
    }

    /// Where the pod's `metadata` and `spec` are.
    pub(super) const fn template(self) -> &'static str {
        match self {
            Self::Pod => "",
            Self::Deployment
            | Self::StatefulSet
            | Self::DaemonSet
            | Self::ReplicaSet
            | Self::ReplicationController
            | Self::Rollout
            | Self::Job => "/spec/template",
            Self::CronJob => "/spec/jobTemplate/spec/template",
        }
    }

    /// The resource attribute that names the owner of the pod.
    pub(super) const fn attribute(self) -> Option<&'static str> {
        match self {
            // OpenTelemetry has no name for a Rollout.
            Self::Pod | Self::Rollout => None,
            Self::Deployment => Some("k8s.deployment.name"),
            Self::StatefulSet => Some("k8s.statefulset.name"),
            Self::DaemonSet => Some("k8s.daemonset.name"),
            Self::ReplicaSet => Some("k8s.replicaset.name"),
            Self::ReplicationController => Some("k8s.replicationcontroller.name"),
            Self::Job => Some("k8s.job.name"),
            Self::CronJob => Some("k8s.cronjob.name"),
        }
    }

    /// Whether its pods are meant to end by themselves.
    pub(super) const fn completes(self) -> bool {
        match self {
            Self::Job | Self::CronJob => true,
            Self::Pod
            | Self::Deployment
            | Self::StatefulSet
            | Self::DaemonSet
            | Self::ReplicaSet
            | Self::ReplicationController
            | Self::Rollout => false,
        }
    }
}

/// The API group: what stands before the `/` of `apiVersion`, empty for the core.
fn group(object: &Value) -> Option<&str> {
    let version = object.get("apiVersion")?.as_str()?;
    Some(version.split_once('/').map_or("", |(group, _)| group))
}

pub(super) fn is_service(object: &Value) -> bool {
    group(object) == Some("") && object.get("kind").and_then(Value::as_str) == Some("Service")
}

/// A kind that runs pods and is none of those above.
pub(super) enum Unknown {
    /// `KIND.GROUP`, as kubectl writes it: a LeaderWorkerSet, a RayService, an InferenceService.
    Custom(String),
    /// A kind of Kubernetes' own in a group that no API server has any more: `extensions/v1beta1`.
    Former(String),
}

/// Groups of Kubernetes' own in which workloads once were.
const FORMER: [&str; 1] = ["extensions"];

/// Kinds that run an engine also where they name no container: they have one from elsewhere.
const SERVING: [&str; 2] = ["InferenceService", "LLMInferenceService"];

/// How deep a pod is looked for in kinds of others. RayService has it 7 levels deep.
const DEEPEST: usize = 12;

/// Whether an object of a kind that `inject` does not know describes pods: by a list of containers, wherever it is.
pub(super) fn unknown(object: &Value) -> Option<Unknown> {
    let kind = object.get("kind")?.as_str()?;
    let group = group(object)?;
    let spec = object.get("spec")?;
    if !SERVING.contains(&kind) && !has_containers(spec, DEEPEST) {
        return None;
    }
    Some(if FORMER.contains(&group) {
        let version = object.get("apiVersion")?.as_str()?;
        Unknown::Former(format!("{kind} in {version}"))
    } else if group.is_empty() {
        Unknown::Custom(kind.to_owned())
    } else {
        Unknown::Custom(format!("{kind}.{group}"))
    })
}

fn has_containers(value: &Value, levels: usize) -> bool {
    let Some(deeper) = levels.checked_sub(1) else {
        return false;
    };
    match value {
        Value::Object(fields) => fields.iter().any(|(key, value)| {
            let named = |item: &Value| item.get("name").is_some_and(Value::is_string);
            let containers = key == "containers"
                && value.as_array().is_some_and(|items| items.iter().any(named));
            containers || has_containers(value, deeper)
        }),
        Value::Array(items) => items.iter().any(|item| has_containers(item, deeper)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The objects of a document: itself, or a `List`'s items, each with the pointer to it.
pub fn objects(document: &Value) -> Vec<(String, &Value)> {
    let is_list =
        document.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    match document.get("items").and_then(Value::as_array) {
        Some(items) if is_list => items
            .iter()
            .enumerate()
            .map(|(index, item)| (format!("/items/{index}"), item))
            .collect(),
        Some(_) | None => vec![(String::new(), document)],
    }
}

/// `kind/name`, as people and kubectl write it.
pub fn name(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").unwrap_or("object").to_ascii_lowercase();
    match text("/metadata/name").or_else(|| text("/metadata/generateName")) {
        Some(name) => format!("{kind}/{name}"),
        None => kind,
    }
}
