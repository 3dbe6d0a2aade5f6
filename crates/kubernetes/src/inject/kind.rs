//! Kubernetes kinds: which of them run pods, and where their pod template is.

use serde_json::Value;

use super::outcome::SkipReason;

/// Workload kinds that `inject` supports.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Pod,
    Deployment,
    StatefulSet,
    DaemonSet,
    ReplicaSet,
    ReplicationController,
    /// Argo's alternative to a Deployment, with the pod template in the same place.
    Rollout,
    Job,
    CronJob,
}

impl Kind {
    /// Compares the API group too, because another group may have a kind of the same name.
    pub(super) fn of(object: &Value) -> Option<Self> {
        match (group(object)?, object.get("kind")?.as_str()?) {
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

    /// Returns the JSON pointer to the object that holds the pod's `metadata` and `spec`.
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

    /// Returns the OpenTelemetry resource attribute for the name of the pod's owner.
    pub(super) const fn resource_attribute(self) -> Option<&'static str> {
        match self {
            // OpenTelemetry defines no attribute for a Rollout.
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

    /// Returns whether the pods of the workload run to completion.
    pub(super) const fn completes(self) -> bool {
        matches!(self, Self::Job | Self::CronJob)
    }
}

/// Returns the API group: the part of `apiVersion` before the `/`. The core group is empty.
fn group(object: &Value) -> Option<&str> {
    let version = object.get("apiVersion")?.as_str()?;
    Some(version.split_once('/').map_or("", |(group, _)| group))
}

pub(super) fn is_service(object: &Value) -> bool {
    group(object) == Some("") && object.get("kind").and_then(Value::as_str) == Some("Service")
}

/// The API group in which Kubernetes had workloads until 1.16.
const REMOVED_GROUP: &str = "extensions";

/// Kinds that run an engine even if they name no container.
const SERVING_KINDS: [&str; 2] = ["InferenceService", "LLMInferenceService"];

/// Levels searched for containers in unsupported kinds. A RayService has them at level 7.
const MAX_SEARCH_DEPTH: usize = 12;

/// Returns why an object of an unsupported kind is skipped: because it describes pods, or because it does not.
///
/// A list of named containers anywhere in `spec` counts as a pod description. Examples are a LeaderWorkerSet, a
/// RayService and an InferenceService.
pub(super) fn unsupported(object: &Value) -> SkipReason {
    custom_workload(object).unwrap_or(SkipReason::NotAWorkload)
}

fn custom_workload(object: &Value) -> Option<SkipReason> {
    let kind = object.get("kind")?.as_str()?;
    let group = group(object)?;
    let spec = object.get("spec")?;
    if !SERVING_KINDS.contains(&kind) && !has_containers(spec, MAX_SEARCH_DEPTH) {
        return None;
    }
    if group == REMOVED_GROUP {
        let version = object.get("apiVersion")?.as_str()?;
        return Some(SkipReason::RemovedApi { kind: format!("{kind} in {version}") });
    }
    // `KIND.GROUP`, as in kubectl.
    let kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    Some(SkipReason::CustomKind { kind })
}

fn has_containers(value: &Value, levels: usize) -> bool {
    let Some(deeper) = levels.checked_sub(1) else {
        return false;
    };
    match value {
        Value::Object(fields) => fields.iter().any(|(key, value)| {
            let is_named = |item: &Value| item.get("name").is_some_and(Value::is_string);
            let is_container_list = key == "containers"
                && value.as_array().is_some_and(|items| items.iter().any(is_named));
            is_container_list || has_containers(value, deeper)
        }),
        Value::Array(items) => items.iter().any(|item| has_containers(item, deeper)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns the objects of a document with their JSON pointers: the document itself, or the items of a `List`.
pub fn document_objects(document: &Value) -> Vec<(String, &Value)> {
    let is_list =
        document.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    match document.get("items").and_then(Value::as_array) {
        Some(items) if is_list => items
            .iter()
            .enumerate()
            .map(|(index, object)| (format!("/items/{index}"), object))
            .collect(),
        Some(_) | None => vec![(String::new(), document)],
    }
}

/// Returns `kind/name`, as in kubectl.
pub fn object_name(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").unwrap_or("object").to_ascii_lowercase();
    match text("/metadata/name").or_else(|| text("/metadata/generateName")) {
        Some(name) => format!("{kind}/{name}"),
        None => kind,
    }
}

pub(super) fn namespace(object: &Value) -> Option<&str> {
    object.pointer("/metadata/namespace").and_then(Value::as_str)
}

/// Returns the owner reference of the object's controller.
pub(super) fn controller(object: &Value) -> Option<&Value> {
    let references = object.pointer("/metadata/ownerReferences")?.as_array()?;
    references.iter().find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true))
}
