//! An admission review: from the API server's bytes to the answer. Pure.
//!
//! The answer is always *allowed*: whatever is wrong with a review, a pod without a sidecar is better than no pod. What
//! was done, or why not, stands in the audit annotations and, where somebody should know, in a warning, which kubectl
//! shows.
//!
//! The bytes are strangers' as far as this module is concerned. The envelope is read first, its object left unread: so
//! the `uid`, without which there is no answer, is known also where the object cannot be used. The object is refused
//! before it is taken apart where it has more values than any pod ([`MOST_VALUES`]), and by serde_json where it is
//! deeper than 128.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::inject::{ChangeNote, Outcome, SkipReason};

/// The most values and members that an object may have. Pods have hundreds; one that fills etcd's 1.5 MiB with environment
/// variables of 100 bytes each has 45,000.
pub const MOST_VALUES: usize = 50_000;

/// A warning is cut to this: the API server drops warnings that are longer than 256 in a list that is long.
const LONGEST_WARNING: usize = 256;

/// The API server takes 4 KiB of warnings in all.
const MOST_WARNINGS: usize = 12;

/// A UUID has 36.
const LONGEST_UID: usize = 128;

/// A group, a version and a kind have at most 63 to 253 each.
const LONGEST_KIND: usize = 1_024;

/// Namespaces of the cluster itself. They are left alone whatever their labels say: a cluster whose DNS waits for an
/// injector does not start.
const SYSTEM: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// What became of a review.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ReviewOutcome {
    Injected,
    /// There was nothing to do.
    Skipped,
    /// It was asked for and cannot be done as it was asked for.
    Refused,
    /// The review itself cannot be used.
    Failed,
}

impl ReviewOutcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Injected => "injected",
            Self::Skipped => "skipped",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// RenewalReason a review was not given to `inject`, or has no answer of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BypassReason {
    #[error("the request is no AdmissionReview of admission.k8s.io")]
    NotAReview,
    #[error("this webhook is for pods")]
    NotAPod,
    #[error("this webhook is for pods that are created")]
    NotCreated,
    #[error("the cluster's own namespaces are left alone")]
    SystemNamespace,
    #[error("the review has no object that can be read")]
    Unreadable,
    #[error("the object has more than {MOST_VALUES} values")]
    TooComplex,
    #[error("the injector failed; its log says more")]
    Panicked,
}

impl BypassReason {
    const fn outcome(self) -> ReviewOutcome {
        match self {
            Self::NotAPod | Self::NotCreated | Self::SystemNamespace => ReviewOutcome::Skipped,
            Self::NotAReview | Self::Unreadable | Self::TooComplex | Self::Panicked => {
                ReviewOutcome::Failed
            }
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotAReview => "not_a_review",
            Self::NotAPod => "not_a_pod",
            Self::NotCreated => "not_created",
            Self::SystemNamespace => "system_namespace",
            Self::Unreadable => "unreadable",
            Self::TooComplex => "too_complex",
            Self::Panicked => "panicked",
        }
    }
}

/// A review that has no `uid` cannot be answered.
#[derive(Debug, thiserror::Error)]
#[error("no AdmissionReview with a request.uid: {0}")]
pub struct InvalidReview(String);

/// The envelope. Keys that are not named here are the API server's business; a key that comes twice is an error.
#[derive(Debug, Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "apiVersion", default, borrow)]
    api_version: Option<&'a RawValue>,
    #[serde(default, borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    request: Request<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: String,
    #[serde(default, borrow)]
    kind: Option<&'a RawValue>,
    #[serde(default, borrow)]
    sub_resource: Option<&'a RawValue>,
    #[serde(default, borrow)]
    operation: Option<&'a RawValue>,
    #[serde(default, borrow)]
    namespace: Option<&'a RawValue>,
    #[serde(default, borrow)]
    object: Option<&'a RawValue>,
    #[serde(default, borrow)]
    dry_run: Option<&'a RawValue>,
}

/// A review whose `uid` is known.
#[derive(Debug)]
pub struct Review<'a>(Envelope<'a>);

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
    audit_annotations: Audit,
}

/// The API server puts the webhook's name before the keys.
#[derive(Debug, Serialize)]
struct Audit {
    outcome: &'static str,
    reason: &'static str,
}

/// What is to be told of a pod, to its owner.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OwnerEvent {
    pub namespace: String,
    /// `apiVersion`, `kind`, `name` and, where it is known, `uid`.
    pub on: Value,
    pub outcome: ReviewOutcome,
    pub reason: &'static str,
    pub message: String,
}

/// What becomes of the pod.
#[derive(Debug)]
pub struct Decision {
    pub outcome: ReviewOutcome,
    /// Of a closed set.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    patch: Option<String>,
    warnings: Vec<String>,
    /// Absent where nobody is to be told: a dry run, or something that is no pod.
    pub told: Option<OwnerEvent>,
}

impl<'a> Review<'a> {
    /// # Errors
    /// Where there is no JSON with a `request.uid`.
    pub fn read(body: &'a [u8]) -> Result<Self, InvalidReview> {
        let envelope: Result<Envelope<'a>, _> = serde_json::from_slice(body);
        let envelope = envelope.map_err(|error| InvalidReview(error.to_string()))?;
        if envelope.request.uid.len() > LONGEST_UID {
            return Err(InvalidReview(format!("it is longer than {LONGEST_UID} bytes")));
        }
        Ok(Self(envelope))
    }

    /// Gives the pod to `inject`, if it is one that is created.
    pub fn decide(&self, inject: impl FnOnce(&Value) -> Outcome) -> Decision {
        let pod = match self.pod() {
            Ok(pod) => pod,
            Err(unasked) => return Decision::unasked(unasked),
        };
        let outcome = inject(&pod);
        // Another webhook has changed the pod, so that it is asked about once more: no news.
        let is_known = outcome == Outcome::Skipped(SkipReason::AlreadyInjected);
        let mut decision = Decision::of(outcome);
        // The name goes into the path of a request: what is no name may lead anywhere.
        if !is_known && !self.is_dry_run() && is_label(&self.namespace()) {
            let (outcome, reason) = (decision.outcome, decision.reason);
            decision.told = Some(OwnerEvent {
                namespace: self.namespace(),
                on: owner(&pod),
                outcome,
                reason,
                message: decision.message.clone(),
            });
        }
        decision
    }

    /// The AdmissionReview that answers.
    pub fn answer(&self, decision: &Decision) -> Value {
        let patch = decision.patch.as_ref().map(|patch| STANDARD.encode(patch));
        let response = Response {
            uid: &self.0.request.uid,
            allowed: true,
            patch_type: patch.as_ref().map(|_| "JSONPatch"),
            patch,
            warnings: &decision.warnings,
            audit_annotations: Audit {
                outcome: decision.outcome.as_str(),
                reason: decision.reason,
            },
        };
        json!({"apiVersion": self.api_version(), "kind": "AdmissionReview", "response": response})
    }

    fn pod(&self) -> Result<Value, BypassReason> {
        let Request { kind, sub_resource, operation, object, .. } = &self.0.request;
        let is_review = text(self.0.kind).as_deref() == Some("AdmissionReview")
            && text(self.0.api_version).is_some_and(|it| it.starts_with("admission.k8s.io/"));
        if !is_review {
            return Err(BypassReason::NotAReview);
        }
        if !is_pod(*kind) || text(*sub_resource).is_some_and(|it| !it.is_empty()) {
            return Err(BypassReason::NotAPod);
        }
        if text(*operation).as_deref() != Some("CREATE") {
            return Err(BypassReason::NotCreated);
        }
        if SYSTEM.contains(&self.namespace().as_str()) {
            return Err(BypassReason::SystemNamespace);
        }
        let object = object.ok_or(BypassReason::Unreadable)?.get();
        if values(object) > MOST_VALUES {
            return Err(BypassReason::TooComplex);
        }
        let pod: Value = serde_json::from_str(object).map_err(|_| BypassReason::Unreadable)?;
        if pod.is_object() { Ok(pod) } else { Err(BypassReason::Unreadable) }
    }

    /// The request's: a pod's own may be left out.
    fn namespace(&self) -> String {
        text(self.0.request.namespace).unwrap_or_default()
    }

    fn is_dry_run(&self) -> bool {
        self.0.request.dry_run.is_some_and(|it| it.get() == "true")
    }

    /// The one that was asked in, so that it is understood.
    fn api_version(&self) -> &'static str {
        match text(self.0.api_version).as_deref() {
            Some("admission.k8s.io/v1beta1") => "admission.k8s.io/v1beta1",
            _ => "admission.k8s.io/v1",
        }
    }
}

impl Decision {
    /// Nothing was asked of `inject`, or it broke off.
    pub fn unasked(why: BypassReason) -> Self {
        let outcome = why.outcome();
        let message = why.to_string();
        let warnings = match outcome {
            ReviewOutcome::Failed => vec![warning(&message)],
            ReviewOutcome::Injected | ReviewOutcome::Skipped | ReviewOutcome::Refused => Vec::new(),
        };
        Self { outcome, reason: why.as_str(), message, patch: None, warnings, told: None }
    }

    fn of(outcome: Outcome) -> Self {
        let (outcome, reason, message, patch, warnings) = match outcome {
            Outcome::Changed { patch, notes } => {
                let message = changed(&notes);
                let warnings = notes.iter().filter(|note| concerns(note));
                let warnings = warnings.map(|note| warning(&note.to_string()));
                let warnings = warnings.take(MOST_WARNINGS).collect();
                let patch = serde_json::to_string(&patch).ok();
                (ReviewOutcome::Injected, "injected", message, patch, warnings)
            }
            // Nobody is warned of what was asked for, or is in order; it is an event and an audit annotation.
            Outcome::Skipped(reason) => {
                let message = format!("not injected: {reason}");
                (ReviewOutcome::Skipped, reason.as_str(), message, None, Vec::new())
            }
            Outcome::Refused(problem) => {
                let message = format!("not injected: {problem}");
                let warnings = vec![warning(&message)];
                (ReviewOutcome::Refused, problem.as_str(), message, None, warnings)
            }
        };
        Self { outcome, reason, message, patch, warnings, told: None }
    }
}

fn changed(notes: &[ChangeNote]) -> String {
    let notes: Vec<_> = notes.iter().map(ChangeNote::to_string).collect();
    notes.join("; ")
}

/// Whether traffic may go past the sidecar, so that somebody should look. The others say what was done; controllers log
/// each warning of each pod.
const fn concerns(note: &ChangeNote) -> bool {
    match note {
        ChangeNote::VariableKept { .. }
        | ChangeNote::PoolByNumber { .. }
        | ChangeNote::AzureOpenAi { .. }
        | ChangeNote::UnknownEnvFrom { .. }
        | ChangeNote::HttpProxy { .. }
        | ChangeNote::NoVariable { .. }
        | ChangeNote::HeadlessService { .. }
        | ChangeNote::PolicyByNumber { .. }
        | ChangeNote::KeptModified { .. }
        | ChangeNote::AlreadyRemoved { .. } => true,
        ChangeNote::SidecarAdded { .. }
        | ChangeNote::NamedPortTakenOver { .. }
        | ChangeNote::NumberedPortTakenOver { .. }
        | ChangeNote::HandlerPortFixed { .. }
        | ChangeNote::ProviderDetected { .. }
        | ChangeNote::PreStopSet { .. }
        | ChangeNote::PreStopKept { .. }
        | ChangeNote::GracePeriodRaised { .. }
        | ChangeNote::VariablesSet { .. }
        | ChangeNote::ConfigMapRouting { .. }
        | ChangeNote::ServiceRedirected { .. }
        | ChangeNote::SidecarReplaced
        | ChangeNote::SidecarRemoved => false,
    }
}

fn warning(text: &str) -> String {
    let text = text.replace(['\n', '\r'], " ");
    cut(format!("tokengauge: {text}"), LONGEST_WARNING)
}

/// At most `limit` bytes of a text, with a sign where something is missing.
pub fn cut(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let mut end = limit - '…'.len_utf8();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Whose pods these are, as far as the pod says: its controller, or itself.
fn owner(pod: &Value) -> Value {
    let references = pod.pointer("/metadata/ownerReferences");
    let references = references.and_then(Value::as_array).into_iter().flatten();
    let is_controller = |it: &&Value| it.get("controller") == Some(&Value::Bool(true));
    let mut controllers = references.filter(is_controller);
    let keys = ["apiVersion", "kind", "name", "uid"];
    if let Some(controller) = controllers.next() {
        let known = keys.iter().filter_map(|key| {
            let value = controller.get(key)?.as_str()?;
            Some(((*key).to_owned(), Value::from(value)))
        });
        let known: serde_json::Map<_, _> = known.collect();
        if known.contains_key("kind") && known.contains_key("name") {
            return Value::Object(known);
        }
    }
    // A pod that is being created has no uid yet, and one that is to be named by the API server no name.
    let name = ["name", "generateName"].iter().find_map(|key| {
        let name = pod.get("metadata")?.get(key)?.as_str()?;
        (!name.is_empty()).then_some(name)
    });
    json!({"apiVersion": "v1", "kind": "Pod", "name": name.unwrap_or_default()})
}

/// A label of DNS, as namespaces are named (RFC 1123).
fn is_label(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(fits)
}

fn is_pod(kind: Option<&RawValue>) -> bool {
    let kind = kind.filter(|kind| kind.get().len() <= LONGEST_KIND);
    let kind: Option<Value> = kind.and_then(|kind| serde_json::from_str(kind.get()).ok());
    let has = |key: &str, expected: &str| {
        let value = kind.as_ref().and_then(|kind| kind.get(key));
        value.and_then(Value::as_str).unwrap_or_default() == expected
    };
    has("kind", "Pod") && has("version", "v1") && has("group", "")
}

fn text(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

/// At least as many as the values of a JSON text: each stands behind one of these, outside of strings.
fn values(json: &str) -> usize {
    let (mut values, mut in_string, mut escaped) = (1, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inject::{InjectError, Mode};

    const REVIEW: &str = include_str!("../../../../tests/fixtures/kube/reviews/outbound.json");

    fn decided(text: &str, outcome: Outcome) -> (Decision, Value) {
        let review = Review::read(text.as_bytes()).unwrap();
        let decision = review.decide(|_| outcome);
        let answer = review.answer(&decision);
        (decision, answer["response"].clone())
    }

    fn sidecar() -> ChangeNote {
        ChangeNote::SidecarAdded {
            mode: Mode::Outbound,
            native: true,
            image: "an/image:1".to_owned(),
        }
    }

    #[test]
    fn a_patch_is_sent_as_base64_and_its_owner_told() {
        let patch = json!([{"op": "add", "path": "/spec/initContainers", "value": []}]);
        let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
        let outcome = Outcome::Changed { patch: patch.clone(), notes: vec![sidecar()] };
        let (decision, response) = decided(REVIEW, outcome);
        let sent = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
        let sent: json_patch::Patch = serde_json::from_slice(&sent).unwrap();
        assert_eq!(sent, patch);
        assert_eq!(response["patchType"], "JSONPatch");
        // A pod that got what it asked for is no reason for a warning in a controller's log.
        assert_eq!(response.get("warnings"), None);
        let told = decision.told.unwrap();
        assert_eq!((told.namespace.as_str(), told.outcome), ("shop", ReviewOutcome::Injected));
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "chat-6c9f7d5b8d",
            "uid": "0f6f3c1e-9d42-4c2e-8f51-6b6d2d1f1a11",
        });
        assert_eq!(told.on, owner);
        assert_eq!(told.message, sidecar().to_string());
    }

    #[test]
    fn a_skip_is_told_and_a_refusal_is_a_warning_too() {
        let (skipped, response) = decided(REVIEW, Outcome::Skipped(SkipReason::OptedOut));
        assert_eq!((skipped.outcome, skipped.reason), (ReviewOutcome::Skipped, "opted_out"));
        assert_eq!((response.get("patch"), response.get("warnings")), (None, None));
        let (again, _) = decided(REVIEW, Outcome::Skipped(SkipReason::AlreadyInjected));
        assert_eq!((again.reason, again.told), ("already_injected", None));
        let problem = InjectError::InvalidAnnotation { name: "port", message: "no\n".repeat(500) };
        let (refused, response) = decided(REVIEW, Outcome::Refused(problem));
        assert_eq!(refused.outcome, ReviewOutcome::Refused);
        assert_eq!(response["auditAnnotations"]["outcome"], "refused");
        let warning = response["warnings"][0].as_str().unwrap();
        assert!(warning.len() <= LONGEST_WARNING && !warning.contains('\n'), "{warning}");
    }

    #[test]
    fn nobody_is_told_of_a_dry_run_or_in_what_is_no_namespace() {
        let from = "\"namespace\": \"shop\",\n    \"operation\"";
        assert!(REVIEW.contains(from));
        for (from, to) in [
            ("\"dryRun\": false", "\"dryRun\": true"),
            (from, "\"namespace\": \"a/../b\", \"operation\""),
            (from, "\"namespace\": \"\", \"operation\""),
            (from, "\"namespace\": null, \"operation\""),
        ] {
            let text = REVIEW.replace(from, to);
            let (decision, _) = decided(&text, Outcome::Skipped(SkipReason::OptedOut));
            assert_eq!(decision.told, None, "{to}");
        }
    }

    #[test]
    fn a_pod_without_a_controller_is_told_itself() {
        for (metadata, name) in [
            (json!({"name": "a"}), "a"),
            (json!({"generateName": "a-"}), "a-"),
            (json!({"name": "", "generateName": "b-"}), "b-"),
            (json!({"name": 7}), ""),
            (json!({"name": "a", "ownerReferences": [{"kind": "X", "name": "x"}]}), "a"),
            (
                json!({"name": "a", "ownerReferences": [{"controller": true, "kind": 7, "name": "x"}]}),
                "a",
            ),
        ] {
            let expected = json!({"apiVersion": "v1", "kind": "Pod", "name": name});
            assert_eq!(owner(&json!({"metadata": metadata})), expected);
        }
    }

    #[test]
    fn values_are_never_counted_too_low() {
        for text in
            ["1", "[]", "{}", "[1,2,3]", "{\"a\":1,\"b\":[2,{\"c\":\"x,[{\"}]}", "\"\\\",,\\\\\""]
        {
            fn count(value: &Value) -> usize {
                1 + match value {
                    Value::Array(items) => items.iter().map(count).sum(),
                    Value::Object(members) => members.values().map(count).sum(),
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
                }
            }
            let value: Value = serde_json::from_str(text).unwrap();
            assert!(values(text) >= count(&value), "{text}");
            assert!(values(text) <= 2 * count(&value), "{text}");
        }
    }
}
