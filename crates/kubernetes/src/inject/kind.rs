//! The kinds of Kubernetes objects that run pods, such as Deployment, and where each kind stores its pod template.

use serde_json::Value;

use super::outcome::SkipReason;

/// A workload kind that `inject` supports.
#[derive(Debug)]
pub(super) struct WorkloadKind {
    group: &'static str,
    pub(super) name: &'static str,
    /// JSON pointer to the pod template, which contains the `metadata` and `spec` of the pods.
    pub(super) template: &'static str,
    /// OpenTelemetry resource attribute with the name of the object, such as `k8s.deployment.name`. Empty if
    /// OpenTelemetry defines no attribute for the kind.
    pub(super) resource_attribute: &'static str,
}

const fn kind(
    group: &'static str,
    name: &'static str,
    template: &'static str,
    resource_attribute: &'static str,
) -> WorkloadKind {
    WorkloadKind { group, name, template, resource_attribute }
}

const KINDS: [WorkloadKind; 9] = [
    kind("", "Pod", "", ""),
    kind("apps", "Deployment", "/spec/template", "k8s.deployment.name"),
    kind("apps", "StatefulSet", "/spec/template", "k8s.statefulset.name"),
    kind("apps", "DaemonSet", "/spec/template", "k8s.daemonset.name"),
    kind("apps", "ReplicaSet", "/spec/template", "k8s.replicaset.name"),
    kind("", "ReplicationController", "/spec/template", "k8s.replicationcontroller.name"),
    // A Rollout is Argo's alternative to a Deployment. OpenTelemetry defines no resource attribute for it.
    kind("argoproj.io", "Rollout", "/spec/template", ""),
    kind("batch", "Job", "/spec/template", "k8s.job.name"),
    kind("batch", "CronJob", "/spec/jobTemplate/spec/template", "k8s.cronjob.name"),
];

impl WorkloadKind {
    /// Returns the kind of an object. Compares the API group, too, because two groups may define kinds with the same
    /// name.
    pub(super) fn from_object(object: &Value) -> Option<&'static Self> {
        let (group, name) = (group(object)?, text(object, "/kind")?);
        let kind = KINDS.iter().find(|kind| kind.group == group && kind.name == name)?;
        // A Rollout may refer to a Deployment instead of containing a pod template.
        (name != "Rollout" || object.pointer(kind.template).is_some()).then_some(kind)
    }

    /// Returns whether the pods of the workload run to completion.
    pub(super) fn completes(&self) -> bool {
        matches!(self.name, "Job" | "CronJob")
    }
}

pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer)?.as_str()
}

/// Returns the items of the list at a JSON pointer, or an empty slice if there is no list.
pub(super) fn items<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the API group, which is the part of `apiVersion` before the `/`. The name of the core group is
/// empty.
fn group(object: &Value) -> Option<&str> {
    let version = text(object, "/apiVersion")?;
    Some(version.split_once('/').map_or("", |(group, _)| group))
}

pub(super) fn is_service(object: &Value) -> bool {
    group(object) == Some("") && text(object, "/kind") == Some("Service")
}

/// Former API group of workloads such as Deployments, until Kubernetes 1.16.
const REMOVED_GROUP: &str = "extensions";

/// Kinds that run an inference engine even if the object itself lists no containers.
const SERVING_KINDS: [&str; 2] = ["InferenceService", "LLMInferenceService"];

/// Maximum nesting depth of the search for containers in an object of an unsupported kind. The containers of a
/// RayService are at depth 7.
const MAX_SEARCH_DEPTH: usize = 12;

/// Returns the reason for skipping an object of an unsupported kind.
///
/// The reason depends on whether the object describes pods: its `spec` contains a list of named containers at any
/// depth, as in a LeaderWorkerSet, or its kind is in [`SERVING_KINDS`].
pub(super) fn unsupported(object: &Value) -> SkipReason {
    custom_workload(object).unwrap_or(SkipReason::NotAWorkload)
}

fn custom_workload(object: &Value) -> Option<SkipReason> {
    let (kind, group) = (text(object, "/kind")?, group(object)?);
    let spec = object.get("spec")?;
    if !SERVING_KINDS.contains(&kind) && !has_containers(spec, MAX_SEARCH_DEPTH) {
        return None;
    }
    Some(match group {
        REMOVED_GROUP => {
            let version = text(object, "/apiVersion")?;
            SkipReason::RemovedApi { kind: format!("{kind} in {version}") }
        }
        "" => SkipReason::CustomKind { kind: kind.to_owned() },
        // `KIND.GROUP`, the notation of kubectl.
        group => SkipReason::CustomKind { kind: format!("{kind}.{group}") },
    })
}

fn has_containers(value: &Value, levels: usize) -> bool {
    let Some(deeper) = levels.checked_sub(1) else { return false };
    match value {
        Value::Object(fields) => {
            items(value, "/containers").iter().any(|item| text(item, "/name").is_some())
                || fields.values().any(|value| has_containers(value, deeper))
        }
        Value::Array(items) => items.iter().any(|item| has_containers(item, deeper)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns the Kubernetes objects of a YAML document, each with its JSON pointer. A `List` contains several objects.
/// Any other document is a single object.
pub fn document_objects(document: &Value) -> Vec<(String, &Value)> {
    let is_list = text(document, "/kind").is_some_and(|kind| kind.ends_with("List"));
    match document.get("items").and_then(Value::as_array) {
        Some(items) if is_list => {
            let pointers = (0..).map(|index| format!("/items/{index}"));
            pointers.zip(items).collect()
        }
        Some(_) | None => vec![(String::new(), document)],
    }
}

/// Returns `kind/name` of an object, the notation of kubectl.
pub fn object_name(object: &Value) -> String {
    let kind = text(object, "/kind").unwrap_or("object").to_ascii_lowercase();
    let name = text(object, "/metadata/name").or_else(|| text(object, "/metadata/generateName"));
    name.map_or_else(|| kind.clone(), |name| format!("{kind}/{name}"))
}

/// Returns the owner reference of the object's controller.
pub(crate) fn controller(object: &Value) -> Option<&Value> {
    let mut references = items(object, "/metadata/ownerReferences").iter();
    references.find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true))
}
