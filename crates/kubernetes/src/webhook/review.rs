//! Admission reviews: parses a review, decides about the pod, and builds the response. This module performs no
//! I/O.
//!
//! The response always allows the pod, because a pod without a sidecar is better than no pod. Audit annotations
//! record the outcome and its reason. Problems that need a fix are reported as warnings, which kubectl shows.
//!
//! The request body is untrusted. The envelope is parsed first and leaves the object unparsed. An unusable
//! object therefore still gets a response with the `uid` of the review. Objects with more than [`MAX_VALUES`]
//! values are refused before they are parsed. serde_json refuses objects with more than 128 nesting levels.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::inject::{Change, NoChange, Outcome, SkipReason, controller};
use tokengauge_types::label_enum;

/// Maximum number of values in a pod object. A usual pod has hundreds. A pod of 1.5 MiB, the limit of etcd, that
/// consists of environment variables of 100 bytes has 45,000.
pub const MAX_VALUES: usize = 50_000;

/// Maximum length of a warning, in bytes. If a response has many warnings, the API server truncates each warning to
/// 256 bytes.
const MAX_WARNING_BYTES: usize = 256;

/// Maximum number of warnings per response. The API server accepts 4 KiB of warnings in total.
const MAX_WARNINGS: usize = 12;

/// Maximum length of the message of an event, in bytes. The API server rejects longer messages.
const MAX_MESSAGE_BYTES: usize = 1_000;

/// Maximum length of a field that identifies an owner, in bytes. The longest field is `apiVersion`: a group of 253
/// bytes, a slash and a version of 63 bytes. Queued events stay in memory, so their size needs a limit.
const MAX_OWNER_FIELD_BYTES: usize = 317;

/// Maximum length of a `uid`. A UUID has 36 bytes.
const MAX_UID_BYTES: usize = 128;

/// Namespaces whose pods never get a sidecar. Without this exception, a cluster whose DNS depends on the webhook could
/// not start.
const SYSTEM_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

label_enum! {
    #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
    pub enum ReviewOutcome {
        Injected = "injected",
        /// The pod needs no sidecar.
        Skipped = "skipped",
        /// The pod requests a sidecar, but its configuration is invalid or cannot be applied to the pod.
        Refused = "refused",
        /// The review cannot be processed.
        Failed = "failed",
    }
}

/// Reason for a decision that was made without a result of `inject`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BypassReason {
    #[error("the request is not an AdmissionReview of admission.k8s.io")]
    NotAReview,
    #[error("the object is not a pod")]
    NotAPod,
    #[error("the operation is not CREATE")]
    NotCreated,
    #[error("system namespaces are not injected")]
    SystemNamespace,
    #[error("the review contains no readable object")]
    Unreadable,
    #[error("the object has more than {MAX_VALUES} values")]
    TooComplex,
    #[error("internal error of the injector, see its log")]
    Panicked,
}

impl BypassReason {
    /// Returns the outcome, and the name of the reason in metrics and audit annotations.
    const fn outcome_and_reason(self) -> (ReviewOutcome, &'static str) {
        match self {
            Self::NotAReview => (ReviewOutcome::Failed, "not_a_review"),
            Self::NotAPod => (ReviewOutcome::Skipped, "not_a_pod"),
            Self::NotCreated => (ReviewOutcome::Skipped, "not_created"),
            Self::SystemNamespace => (ReviewOutcome::Skipped, "system_namespace"),
            Self::Unreadable => (ReviewOutcome::Failed, "unreadable"),
            Self::TooComplex => (ReviewOutcome::Failed, "too_complex"),
            Self::Panicked => (ReviewOutcome::Failed, "panicked"),
        }
    }
}

/// Error for a request body without a usable `request.uid`. Without the uid, no valid response is possible.
#[derive(Debug, thiserror::Error)]
#[error("not an AdmissionReview with a request.uid: {0}")]
pub struct InvalidReview(String);

/// Fields of a review that the webhook reads. All fields except `uid` are parsed later and separately, so that a wrong
/// type does not prevent a response. A duplicate field is an error.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Envelope<'a> {
    api_version: Option<&'a RawValue>,
    kind: Option<&'a RawValue>,
    request: Request<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Request<'a> {
    uid: String,
    kind: Option<&'a RawValue>,
    sub_resource: Option<&'a RawValue>,
    operation: Option<&'a RawValue>,
    namespace: Option<&'a RawValue>,
    object: Option<&'a RawValue>,
    dry_run: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GroupVersionKind {
    group: String,
    version: String,
    kind: String,
}

/// A review with a valid `uid`.
#[derive(Debug)]
pub struct Review<'a>(Envelope<'a>);

/// Kubernetes event for the owner of a pod, such as a ReplicaSet. The event reports whether the pod got a sidecar.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OwnerEvent {
    pub namespace: String,
    /// Reference to the owner: `apiVersion`, `kind`, `name` and, if known, `uid`.
    pub owner: Value,
    pub outcome: ReviewOutcome,
    pub reason: &'static str,
    pub message: String,
}

/// The decision of the webhook about a pod.
#[derive(Debug)]
pub struct Decision {
    pub outcome: ReviewOutcome,
    /// Name of the reason in metrics and audit annotations, such as `opted_out`.
    pub reason: &'static str,
    pub message: String,
    patch: Option<String>,
    warnings: Vec<String>,
    /// Event for the owner of the pod. `None` if no event is sent, for example for a dry run.
    pub event: Option<OwnerEvent>,
}

impl<'a> Review<'a> {
    /// Parses the body of a request.
    ///
    /// # Errors
    /// Fails if the body is not JSON with a `request.uid`.
    pub fn parse(body: &'a [u8]) -> Result<Self, InvalidReview> {
        let envelope: Result<Envelope<'a>, _> = serde_json::from_slice(body);
        let envelope = envelope.map_err(|error| InvalidReview(error.to_string()))?;
        if envelope.request.uid.len() > MAX_UID_BYTES {
            return Err(InvalidReview(format!("the uid exceeds {MAX_UID_BYTES} bytes")));
        }
        Ok(Self(envelope))
    }

    /// Decides whether the pod gets a sidecar. Calls `inject` only if the review is about the creation of a pod.
    pub fn decide(&self, inject: impl FnOnce(&Value) -> Outcome) -> Decision {
        let pod = match self.pod() {
            Ok(pod) => pod,
            Err(reason) => return Decision::bypass(reason),
        };
        let outcome = inject(&pod);
        // The API server sends the pod again after another webhook has changed it. The owner of the pod already
        // has an event.
        let is_repeated = outcome == Err(NoChange::Skipped(SkipReason::AlreadyInjected));
        let mut decision = Decision::from_outcome(outcome);
        let namespace = self.namespace();
        // The namespace becomes part of a request path, so it is checked to be a valid name.
        if !is_repeated && !self.is_dry_run() && is_dns_label(&namespace) {
            let Decision { outcome, reason, message, .. } = &decision;
            decision.event = Some(OwnerEvent {
                namespace,
                owner: owner(&pod),
                outcome: *outcome,
                reason,
                message: truncate(message.clone(), MAX_MESSAGE_BYTES),
            });
        }
        decision
    }

    /// Returns the AdmissionReview that answers this review.
    pub fn response(&self, decision: &Decision) -> Value {
        let Decision { outcome, reason, patch, warnings, .. } = decision;
        // The API server prefixes the keys of audit annotations with the name of the webhook.
        let mut response = json!({
            "uid": self.0.request.uid,
            "allowed": true,
            "auditAnnotations": {"outcome": outcome.as_str(), "reason": reason},
        });
        if let Some(response) = response.as_object_mut() {
            if let Some(patch) = patch {
                response.insert("patchType".to_owned(), "JSONPatch".into());
                response.insert("patch".to_owned(), STANDARD.encode(patch).into());
            }
            if !warnings.is_empty() {
                response.insert("warnings".to_owned(), warnings.clone().into());
            }
        }
        json!({"apiVersion": self.api_version(), "kind": "AdmissionReview", "response": response})
    }

    fn pod(&self) -> Result<Value, BypassReason> {
        let Request { kind, sub_resource, operation, object, .. } = &self.0.request;
        let is_review = string(self.0.kind).as_deref() == Some("AdmissionReview")
            && string(self.0.api_version).is_some_and(|it| it.starts_with("admission.k8s.io/"));
        if !is_review {
            return Err(BypassReason::NotAReview);
        }
        if !is_pod(*kind) || string(*sub_resource).is_some_and(|it| !it.is_empty()) {
            return Err(BypassReason::NotAPod);
        }
        if string(*operation).as_deref() != Some("CREATE") {
            return Err(BypassReason::NotCreated);
        }
        if SYSTEM_NAMESPACES.contains(&self.namespace().as_str()) {
            return Err(BypassReason::SystemNamespace);
        }
        let object = object.ok_or(BypassReason::Unreadable)?.get();
        if count_values(object) > MAX_VALUES {
            return Err(BypassReason::TooComplex);
        }
        let pod: Option<Value> = serde_json::from_str(object).ok();
        pod.filter(Value::is_object).ok_or(BypassReason::Unreadable)
    }

    /// Returns the namespace from the request, because the pod object may lack its namespace.
    fn namespace(&self) -> String {
        string(self.0.request.namespace).unwrap_or_default()
    }

    fn is_dry_run(&self) -> bool {
        self.0.request.dry_run.is_some_and(|it| it.get() == "true")
    }

    /// Returns the API version of the request. The response must have the same version.
    fn api_version(&self) -> &'static str {
        match string(self.0.api_version).as_deref() {
            Some("admission.k8s.io/v1beta1") => "admission.k8s.io/v1beta1",
            _ => "admission.k8s.io/v1",
        }
    }
}

impl Decision {
    /// Returns the decision for a review for which `inject` was not called, or in which `inject` panicked.
    pub fn bypass(bypass: BypassReason) -> Self {
        let (outcome, reason) = bypass.outcome_and_reason();
        let message = bypass.to_string();
        let is_failure = outcome == ReviewOutcome::Failed;
        let warnings = is_failure.then(|| warning(&message)).into_iter().collect();
        Self { outcome, reason, message, patch: None, warnings, event: None }
    }

    fn from_outcome(outcome: Outcome) -> Self {
        let (outcome, reason, message, patch, warnings) = match outcome {
            Ok(Change { patch, notes, .. }) => {
                let texts: Vec<_> = notes.iter().map(|note| note.text.as_str()).collect();
                // Notes on changes are not sent as warnings, because controllers log every warning of every
                // pod.
                let warnings = notes.iter().filter(|note| note.is_warning).take(MAX_WARNINGS);
                let warnings = warnings.map(|note| warning(&note.text)).collect();
                let patch = serde_json::to_string(&patch).ok();
                (ReviewOutcome::Injected, "injected", texts.join("; "), patch, warnings)
            }
            // A skip is intended or harmless. The reason is recorded, but not sent as a warning.
            Err(NoChange::Skipped(reason)) => {
                let message = format!("not injected: {reason}");
                (ReviewOutcome::Skipped, reason.as_str(), message, None, Vec::new())
            }
            Err(NoChange::Refused(problem)) => {
                let message = format!("not injected: {problem}");
                let warnings = vec![warning(&message)];
                (ReviewOutcome::Refused, problem.as_str(), message, None, warnings)
            }
        };
        Self { outcome, reason, message, patch, warnings, event: None }
    }
}

fn warning(text: &str) -> String {
    let text = text.replace(['\n', '\r'], " ");
    truncate(format!("tokengauge: {text}"), MAX_WARNING_BYTES)
}

/// Shortens a text to at most `limit` bytes. A shortened text ends with `…`.
fn truncate(mut text: String, limit: usize) -> String {
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

/// Returns a reference to the controller of the pod. If the pod has no controller, returns a reference to the pod
/// itself.
fn owner(pod: &Value) -> Value {
    if let Some(controller) = controller(pod) {
        let fields = ["apiVersion", "kind", "name", "uid"].iter().filter_map(|key| {
            let value = controller.get(key)?.as_str().filter(|value| is_short(value))?;
            Some(((*key).to_owned(), Value::from(value)))
        });
        let fields: Map<_, _> = fields.collect();
        if fields.contains_key("kind") && fields.contains_key("name") {
            return Value::Object(fields);
        }
    }
    // A new pod has no `uid` yet. A pod with `generateName` has no name either.
    let name = ["name", "generateName"].iter().find_map(|key| {
        let name = pod.get("metadata")?.get(key)?.as_str()?;
        (!name.is_empty() && is_short(name)).then_some(name)
    });
    json!({"apiVersion": "v1", "kind": "Pod", "name": name.unwrap_or_default()})
}

const fn is_short(field: &str) -> bool {
    field.len() <= MAX_OWNER_FIELD_BYTES
}

/// Returns whether a text is a valid namespace name (a DNS label of RFC 1123).
fn is_dns_label(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(is_allowed)
}

fn is_pod(kind: Option<&RawValue>) -> bool {
    let kind = kind.and_then(|it| serde_json::from_str::<GroupVersionKind>(it.get()).ok());
    kind.is_some_and(|it| it.group.is_empty() && it.version == "v1" && it.kind == "Pod")
}

fn string(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

/// Returns an upper bound of the number of values in a JSON text. The text is not parsed.
fn count_values(json: &str) -> usize {
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
    use crate::inject::{ChangeNote, InjectError};

    const REVIEW: &str = include_str!("../../../../tests/fixtures/kube/reviews/outbound.json");

    fn decide(text: &str, outcome: Outcome) -> (Decision, Value) {
        let review = Review::parse(text.as_bytes()).unwrap();
        let decision = review.decide(|_| outcome);
        let response = review.response(&decision);
        (decision, response["response"].clone())
    }

    fn sidecar() -> ChangeNote {
        ChangeNote { text: "adds an/image:1".to_owned(), is_warning: false }
    }

    #[test]
    fn injection_returns_a_patch_and_an_event() {
        let patch = json!([{"op": "add", "path": "/spec/initContainers", "value": []}]);
        let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
        let outcome =
            Ok(Change { value: Value::Null, patch: patch.clone(), notes: vec![sidecar()] });
        let (decision, response) = decide(REVIEW, outcome);
        let sent = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
        let sent: json_patch::Patch = serde_json::from_slice(&sent).unwrap();
        assert_eq!(sent, patch);
        assert_eq!(response["patchType"], "JSONPatch");
        // A successful injection causes no warning, because a controller would log it.
        assert_eq!(response.get("warnings"), None);
        let event = decision.event.unwrap();
        assert_eq!((event.namespace.as_str(), event.outcome), ("shop", ReviewOutcome::Injected));
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "chat-6c9f7d5b8d",
            "uid": "0f6f3c1e-9d42-4c2e-8f51-6b6d2d1f1a11",
        });
        assert_eq!(event.owner, owner);
        assert_eq!(event.message, sidecar().text);
    }

    #[test]
    fn only_refusals_cause_warnings() {
        let (skipped, response) = decide(REVIEW, Err(NoChange::Skipped(SkipReason::OptedOut)));
        assert_eq!((skipped.outcome, skipped.reason), (ReviewOutcome::Skipped, "opted_out"));
        assert_eq!((response.get("patch"), response.get("warnings")), (None, None));
        let (repeated, _) = decide(REVIEW, Err(NoChange::Skipped(SkipReason::AlreadyInjected)));
        assert_eq!((repeated.reason, repeated.event), ("already_injected", None));
        let problem = InjectError::InvalidAnnotation { name: "port", message: "no\n".repeat(500) };
        let (refused, response) = decide(REVIEW, Err(NoChange::Refused(problem)));
        assert_eq!(refused.outcome, ReviewOutcome::Refused);
        assert_eq!(response["auditAnnotations"]["outcome"], "refused");
        let warning = response["warnings"][0].as_str().unwrap();
        assert!(warning.len() <= MAX_WARNING_BYTES && !warning.contains('\n'), "{warning}");
    }

    #[test]
    fn dry_runs_and_invalid_namespaces_cause_no_event() {
        let from = "\"namespace\": \"shop\",\n    \"operation\"";
        assert!(REVIEW.contains(from));
        for (from, to) in [
            ("\"dryRun\": false", "\"dryRun\": true"),
            (from, "\"namespace\": \"a/../b\", \"operation\""),
            (from, "\"namespace\": \"\", \"operation\""),
            (from, "\"namespace\": null, \"operation\""),
        ] {
            let text = REVIEW.replace(from, to);
            let (decision, _) = decide(&text, Err(NoChange::Skipped(SkipReason::OptedOut)));
            assert_eq!(decision.event, None, "{to}");
        }
    }

    #[test]
    fn pod_without_controller_is_its_own_owner() {
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
    fn events_have_a_bounded_size() {
        let long = "x".repeat(1 << 20);
        let reference =
            json!({"apiVersion": "v1", "kind": "ReplicaSet", "name": "a", "controller": true});
        for key in ["apiVersion", "kind", "name", "uid"] {
            let mut reference = reference.clone();
            reference[key] = long.as_str().into();
            let pod = json!({"metadata": {"name": long, "ownerReferences": [reference]}});
            assert!(owner(&pod).to_string().len() < 4 * MAX_OWNER_FIELD_BYTES, "{key}");
        }
        let problem = InjectError::InvalidAnnotation { name: "port", message: long };
        let (decision, _) = decide(REVIEW, Err(NoChange::Refused(problem)));
        assert!(decision.event.unwrap().message.len() <= MAX_MESSAGE_BYTES);
    }

    #[test]
    fn count_values_is_an_upper_bound() {
        fn count(value: &Value) -> usize {
            1 + match value {
                Value::Array(items) => items.iter().map(count).sum(),
                Value::Object(members) => members.values().map(count).sum(),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
            }
        }
        for text in
            ["1", "[]", "{}", "[1,2,3]", "{\"a\":1,\"b\":[2,{\"c\":\"x,[{\"}]}", "\"\\\",,\\\\\""]
        {
            let value: Value = serde_json::from_str(text).unwrap();
            assert!(count_values(text) >= count(&value), "{text}");
            assert!(count_values(text) <= 2 * count(&value), "{text}");
        }
    }

    #[test]
    fn truncates_at_a_character_boundary() {
        assert_eq!(truncate("abc".to_owned(), 3), "abc");
        assert_eq!(truncate("äöü".to_owned(), 5), "ä…");
    }
}
