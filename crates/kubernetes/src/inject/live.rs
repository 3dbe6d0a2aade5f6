//! Objects as a cluster holds them, and how they go back there.
//!
//! What `kubectl get` prints looks like a manifest and is none: what is taken out of it is not taken out by
//! `kubectl apply`, pods and Jobs cannot be changed as they are, and what another object makes it makes anew. What is
//! said here of kubectl and the API server was asked of kubectl 1.32 and kube-apiserver 1.34.

use serde_json::Value;

use super::RECORD;
use super::kind::{self, Kind};

/// The annotation in which `kubectl apply` keeps the manifest that it was given.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// So many objects are named; of more, their number is told.
const MOST_NAMES: usize = 5;

/// An object that was read from a cluster, and was changed, or would have been if nothing made it anew.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Live {
    /// As people and kubectl write it, with what makes it.
    name: String,
    way: Way,
}

/// How a changed object goes back to the cluster that it was read from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    /// Whole, by `kubectl replace`.
    Replace,
    /// `kubectl apply` made it, from a manifest that is to be changed instead. `kubectl replace` takes the whole object for
    /// what was applied, so that the next `kubectl apply` takes out of it what the API server and controllers have set.
    Manifest,
    /// A pod of its own. Its containers are what they are for as long as it lives.
    Pod,
    /// A Job of its own. Its template is what it is; and as it stands here it cannot be made anew, since it selects pods by
    /// its former `uid`.
    Job,
    /// None: another object makes it, and is to be changed instead. A Deployment answers a change of its ReplicaSet with
    /// another ReplicaSet, which is without it.
    Owner,
}

impl Live {
    /// `None` for a manifest: no API server wrote anything into it.
    pub fn of(object: &Value) -> Option<Self> {
        if !is_live(object) {
            return None;
        }
        let name = kind::name(object);
        if let Some(owner) = owner(object) {
            return Some(Self { name: format!("{name} (of {owner})"), way: Way::Owner });
        }
        let way = match Kind::of(object) {
            Some(Kind::Pod) => Way::Pod,
            Some(Kind::Job) => Way::Job,
            Some(
                Kind::Deployment
                | Kind::StatefulSet
                | Kind::DaemonSet
                | Kind::ReplicaSet
                | Kind::ReplicationController
                | Kind::Rollout
                | Kind::CronJob,
            )
            | None => {
                if has_its_manifest(object) {
                    Way::Manifest
                } else {
                    Way::Replace
                }
            }
        };
        Some(Self { name, way })
    }
}

/// Whether it is one of a cluster's that another object makes: whatever is written into it has no effect, or not for long.
pub(super) fn is_owned(object: &Value) -> bool {
    is_live(object) && owner(object).is_some()
}

/// What is to be done with these objects, now that they are changed: a line for each way back. `command` is `inject` or
/// `uninject`.
pub fn ways_back(live: &[Live], command: &str) -> Vec<String> {
    let ways = [Way::Replace, Way::Manifest, Way::Pod, Way::Job, Way::Owner];
    let line = |way: Way| {
        let these = live.iter().filter(|object| object.way == way);
        let names: Vec<&str> = these.map(|object| object.name.as_str()).collect();
        (!names.is_empty())
            .then(|| format!("from a cluster: {}: {}", listed(&names), way.advice(command)))
    };
    ways.into_iter().filter_map(line).collect()
}

impl Way {
    fn advice(self, command: &str) -> String {
        match self {
            Self::Replace => format!(
                "put back by `kubectl replace -f -`: `kubectl apply` takes out only what it has put in itself; who has the \
                 manifests should {command} those: their next apply or upgrade may undo this, or fail on it"
            ),
            Self::Manifest => format!(
                "made by `kubectl apply`: {command} the manifest instead (`kubectl apply view-last-applied KIND/NAME \
                 -o yaml` prints it) and apply that; once this is put back, by `kubectl replace` too, the next apply of \
                 the manifest takes out all that is not in it, such as an autoscaler's replicas"
            ),
            Self::Pod => "no container can be put into a pod that runs, or taken out, so `kubectl replace` is refused; \
                          `kubectl replace --force` deletes the pod, with what it is doing, and makes it anew"
                .to_owned(),
            Self::Job => format!(
                "the template of a Job cannot be changed, so `kubectl replace` is refused, and with --force it deletes the \
                 Job and cannot make it anew; {command} the manifest that it was made from, delete the Job, and apply that"
            ),
            Self::Owner => format!(
                "left as they are, since what makes these makes them anew, without this: {command} that, or what makes that \
                 in turn (the Deployment of a ReplicaSet, the CronJob of a Job)"
            ),
        }
    }
}

fn listed(names: &[&str]) -> String {
    let shown: Vec<&str> = names.iter().take(MOST_NAMES).copied().collect();
    let shown = shown.join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Whether an API server wrote something into it. Generators of manifests write `creationTimestamp: null` and a `status`
/// that is empty, or full of zeros.
fn is_live(object: &Value) -> bool {
    let metadata = object.get("metadata");
    let written = ["uid", "resourceVersion", "managedFields", "creationTimestamp"];
    let mut written = written.iter().filter_map(|key| metadata?.get(key));
    written.any(says) || object.get("status").is_some_and(says)
}

/// Whether there is a value that is neither empty nor zero.
fn says(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(it) => *it,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => items.iter().any(says),
        Value::Object(fields) => fields.values().any(says),
    }
}

/// What makes the object, as `kind/name`.
fn owner(object: &Value) -> Option<String> {
    let references = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let controls = |it: &&Value| it.get("controller").and_then(Value::as_bool) == Some(true);
    let owner = references.iter().find(controls)?;
    let text = |key: &str| owner.get(key).and_then(Value::as_str);
    Some(format!("{}/{}", text("kind")?.to_ascii_lowercase(), text("name")?))
}

/// Whether the manifest that was applied is known and can be changed in the object's stead.
fn has_its_manifest(object: &Value) -> bool {
    let Some(manifest) = last_applied(object) else {
        return false;
    };
    // What was read from the cluster has been put back before: its version is a former one, and refused.
    if is_live(&manifest) {
        return false;
    }
    // A sidecar that came another way is not in the manifest, and can be neither renewed nor taken out there.
    let base = Kind::of(object).map_or("", Kind::template);
    has_record(&manifest, base) == has_record(object, base)
}

fn last_applied(object: &Value) -> Option<Value> {
    let annotations = object.pointer("/metadata/annotations")?;
    serde_json::from_str(annotations.get(LAST_APPLIED)?.as_str()?).ok()
}

fn has_record(object: &Value, base: &str) -> bool {
    object
        .pointer(base)
        .and_then(|template| template.pointer("/metadata/annotations"))
        .is_some_and(|annotations| annotations.get(RECORD).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(number: usize, way: Way) -> Live {
        let name = format!("deployment/d{number}");
        Live { name, way }
    }

    #[test]
    fn each_way_back_is_told_once_with_the_first_names() {
        let mut objects: Vec<Live> = (1..=5).map(|number| live(number, Way::Replace)).collect();
        let begins = "from a cluster: deployment/d1, deployment/d2, deployment/d3, deployment/d4, deployment/d5";
        let [line] = ways_back(&objects, "inject").try_into().unwrap();
        assert!(line.starts_with(&format!("{begins}: put back")), "{line}");
        objects.extend([live(6, Way::Replace), live(7, Way::Job)]);
        let [line, other] = ways_back(&objects, "inject").try_into().unwrap();
        assert!(line.starts_with(&format!("{begins} and 1 more: put back")), "{line}");
        assert!(other.starts_with("from a cluster: deployment/d7: the template"), "{other}");
        assert!(ways_back(&[], "inject").is_empty());
    }

    #[test]
    fn an_owner_is_one_that_controls() {
        let pod = |controller: bool| {
            serde_json::json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": "p", "uid": "u",
                    "ownerReferences": [{"kind": "StatefulSet", "name": "s", "controller": controller}],
                },
            })
        };
        let way = |pod: &Value| Live::of(pod).map(|live| (live.name, live.way));
        assert_eq!(way(&pod(true)), Some(("pod/p (of statefulset/s)".to_owned(), Way::Owner)));
        assert_eq!(way(&pod(false)), Some(("pod/p".to_owned(), Way::Pod)));
    }
}
