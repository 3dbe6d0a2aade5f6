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
            | Self::Job => "/spec/template",
            Self::CronJob => "/spec/jobTemplate/spec/template",
        }
    }

    /// The resource attribute that names the owner of the pod.
    pub(super) const fn attribute(self) -> Option<&'static str> {
        match self {
            Self::Pod => None,
            Self::Deployment => Some("k8s.deployment.name"),
            Self::StatefulSet => Some("k8s.statefulset.name"),
            Self::DaemonSet => Some("k8s.daemonset.name"),
            Self::ReplicaSet => Some("k8s.replicaset.name"),
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
            | Self::ReplicaSet => false,
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

/// A kind of somebody else's that describes pods as the built-in ones do: an Argo Rollout, a CloneSet.
pub(super) fn custom(object: &Value) -> Option<&str> {
    let kind = object.get("kind")?.as_str()?;
    let containers = object.pointer("/spec/template/spec/containers");
    containers
        .filter(|_| Kind::of(object).is_none())
        .map(|_| kind)
}

/// The objects of a document: itself, or a `List`'s items, each with the pointer to it.
pub fn objects(document: &Value) -> Vec<(String, &Value)> {
    let is_list = document
        .get("kind")
        .and_then(Value::as_str)
        .is_some_and(|kind| kind.ends_with("List"));
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
