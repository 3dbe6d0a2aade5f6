//! Objects that were read from a cluster, and instructions for applying their changes to the cluster.
//!
//! The output of `kubectl get` cannot be edited and applied like a manifest. For example, `kubectl apply` does not
//! remove a field that was deleted from this output. Pods and Jobs are immutable, and controllers overwrite the
//! objects that they manage. All statements about kubectl and the API server were tested with kubectl 1.32 and
//! kube-apiserver 1.34.

use std::collections::BTreeMap;

use serde_json::Value;

use super::kind::{self, WorkloadKind, text};
use super::record::RECORD_POINTER;

/// JSON pointer to the annotation in which `kubectl apply` stores the applied manifest.
const LAST_APPLIED: &str =
    "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";

/// Maximum number of objects that one message names. If there are more objects, the message ends with the number of
/// the other objects.
const MAX_NAMES: usize = 5;

/// An object that was read from a cluster. The object was changed, or it was skipped because another object manages
/// it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClusterObject {
    /// Name of the object, such as `pod/vllm-0`. With a controller: `pod/vllm-0 (of statefulset/vllm)`.
    name: String,
    method: ReapplyMethod,
}

/// How to apply a changed object to its cluster. The instructions for the user have the order of these variants.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum ReapplyMethod {
    /// Run `kubectl replace` with the whole object.
    Replace,
    /// Change the manifest that was applied with `kubectl apply`, then apply the manifest again. `kubectl replace`
    /// would record all fields of the object as applied. The next `kubectl apply` would then remove the fields that
    /// only the API server and controllers have set.
    Manifest,
    /// Delete the pod and create it again, because the containers of a pod are immutable.
    Pod,
    /// Delete the Job and apply its changed manifest, because the pod template of a Job is immutable. This copy cannot
    /// be created again, because it selects pods by the old `uid` of the Job.
    Job,
    /// Change the object that manages this object. For example, change the Deployment of a ReplicaSet.
    Owner,
}

impl ClusterObject {
    /// Returns the object if it was read from a cluster. Returns `None` for a manifest, which has no fields from an
    /// API server.
    pub fn from_object(object: &Value) -> Option<Self> {
        if !is_from_cluster(object) {
            return None;
        }
        let name = kind::object_name(object);
        if let Some(owner) = controller(object) {
            let name = format!("{name} (of {owner})");
            return Some(Self { name, method: ReapplyMethod::Owner });
        }
        let method = match WorkloadKind::from_object(object).map(|kind| kind.name) {
            Some("Pod") => ReapplyMethod::Pod,
            Some("Job") => ReapplyMethod::Job,
            _ if has_manifest(object) => ReapplyMethod::Manifest,
            _ => ReapplyMethod::Replace,
        };
        Some(Self { name, method })
    }
}

/// Returns whether the object was read from a cluster and has a controller, which would overwrite any change.
pub(super) fn is_controlled(object: &Value) -> bool {
    is_from_cluster(object) && controller(object).is_some()
}

/// Returns one line of instructions for each method, with the names of the objects that need this method. `command` is
/// `inject` or `uninject`.
pub fn reapply_instructions(objects: &[ClusterObject], command: &str) -> Vec<String> {
    let mut names = BTreeMap::<ReapplyMethod, Vec<&str>>::new();
    for object in objects {
        names.entry(object.method).or_default().push(&object.name);
    }
    let line = |(method, names): (ReapplyMethod, Vec<&str>)| {
        format!("from a cluster: {}: {}", list_names(&names), method.instruction(command))
    };
    names.into_iter().map(line).collect()
}

impl ReapplyMethod {
    fn instruction(self, command: &str) -> String {
        match self {
            Self::Replace => format!(
                "apply with `kubectl replace -f -`, because `kubectl apply` removes only fields that it has set itself; if \
                 you have the manifests, {command} those instead: their next apply or upgrade may undo this change or fail"
            ),
            Self::Manifest => format!(
                "created by `kubectl apply`: {command} the manifest (`kubectl apply view-last-applied KIND/NAME -o yaml` \
                 prints it) and apply that instead; if you apply this output, even with `kubectl replace`, the next apply \
                 of the manifest removes every field that is not in it, such as an autoscaler's replicas"
            ),
            Self::Pod => "the containers of a running pod are immutable, so `kubectl replace` fails; `kubectl replace \
                          --force` deletes the pod, with its running work, and creates it again"
                .to_owned(),
            Self::Job => format!(
                "the template of a Job is immutable, so `kubectl replace` fails, and with --force it deletes the Job and \
                 cannot create it again; {command} the Job's manifest, delete the Job and apply the manifest"
            ),
            Self::Owner => format!(
                "unchanged, because their controllers would overwrite the change; {command} the object that manages them, \
                 or its owner in turn (the Deployment of a ReplicaSet, the CronJob of a Job)"
            ),
        }
    }
}

fn list_names(names: &[&str]) -> String {
    match names.split_at_checked(MAX_NAMES) {
        Some((shown, more)) if !more.is_empty() => {
            format!("{} and {} more", shown.join(", "), more.len())
        }
        _ => names.join(", "),
    }
}

/// Returns whether an API server has set fields of the object. An empty `creationTimestamp` or `status` does not
/// count, because tools that generate manifests write such fields, too.
fn is_from_cluster(object: &Value) -> bool {
    let metadata = object.get("metadata");
    ["uid", "resourceVersion", "managedFields", "creationTimestamp"]
        .iter()
        .filter_map(|key| metadata?.get(key))
        .any(is_set)
        || object.get("status").is_some_and(is_set)
}

/// Returns whether the value contains more than nulls, empty values, zeros and `false`.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => items.iter().any(is_set),
        Value::Object(fields) => fields.values().any(is_set),
    }
}

/// Returns `kind/name` of the object's controller.
fn controller(object: &Value) -> Option<String> {
    let owner = kind::controller(object)?;
    Some(format!("{}/{}", text(owner, "/kind")?.to_ascii_lowercase(), text(owner, "/name")?))
}

/// Returns whether the annotation of `kubectl apply` contains a manifest that the user can change and apply again.
fn has_manifest(object: &Value) -> bool {
    let last_applied =
        text(object, LAST_APPLIED).and_then(|text| serde_json::from_str::<Value>(text).ok());
    // If someone applied the output of `kubectl get`, the manifest contains an old `resourceVersion`. The API
    // server rejects it.
    let Some(manifest) = last_applied.filter(|manifest| !is_from_cluster(manifest)) else {
        return false;
    };
    // If the manifest has no sidecar but the object has one, changing the manifest can neither update nor
    // remove the sidecar.
    let record = WorkloadKind::from_object(object).map_or("", |kind| kind.template).to_owned()
        + RECORD_POINTER;
    manifest.pointer(&record).is_some() == object.pointer(&record).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster_object(number: usize, method: ReapplyMethod) -> ClusterObject {
        let name = format!("deployment/d{number}");
        ClusterObject { name, method }
    }

    #[test]
    fn reports_each_method_once_with_the_first_names() {
        let mut objects: Vec<ClusterObject> =
            (1..=5).map(|number| cluster_object(number, ReapplyMethod::Replace)).collect();
        let begins = "from a cluster: deployment/d1, deployment/d2, deployment/d3, deployment/d4, deployment/d5";
        let [line] = reapply_instructions(&objects, "inject").try_into().unwrap();
        assert!(line.starts_with(&format!("{begins}: apply with")), "{line}");
        objects.extend([
            cluster_object(6, ReapplyMethod::Replace),
            cluster_object(7, ReapplyMethod::Job),
        ]);
        let [line, other] = reapply_instructions(&objects, "inject").try_into().unwrap();
        assert!(line.starts_with(&format!("{begins} and 1 more: apply with")), "{line}");
        assert!(other.starts_with("from a cluster: deployment/d7: the template"), "{other}");
        assert!(reapply_instructions(&[], "inject").is_empty());
    }

    #[test]
    fn only_a_controlling_owner_counts() {
        let pod = |controller: bool| {
            serde_json::json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": "p", "uid": "u",
                    "ownerReferences": [{"kind": "StatefulSet", "name": "s", "controller": controller}],
                },
            })
        };
        let method = |pod: &Value| {
            ClusterObject::from_object(pod).map(|object| (object.name, object.method))
        };
        let owned = ("pod/p (of statefulset/s)".to_owned(), ReapplyMethod::Owner);
        assert_eq!(method(&pod(true)), Some(owned));
        assert_eq!(method(&pod(false)), Some(("pod/p".to_owned(), ReapplyMethod::Pod)));
    }
}
