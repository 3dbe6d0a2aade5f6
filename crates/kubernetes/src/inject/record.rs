//! The record of an injection, which an annotation of the object stores. `uninject` reads the record to restore the
//! object.
//!
//! A path in the record contains names of list items instead of indexes, as in
//! `/spec/containers/vllm/env/OPENAI_BASE_URL`. The path therefore stays valid if other items are inserted later.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::kind::text;
use super::outcome::InjectError;
use super::settings::{Mode, choice_name};

/// The annotation that holds the record.
pub const RECORD_ANNOTATION: &str = "tokengauge.dev/injected";

/// The JSON pointer to [`RECORD_ANNOTATION`], relative to the pod template or the Service.
pub(super) const RECORD_POINTER: &str = "/metadata/annotations/tokengauge.dev~1injected";

/// Version of the record's format. Records of other versions cannot be undone.
const VERSION: u32 = 1;

/// The steps of an injection, in order.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Record {
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    /// Listen port of the sidecar. Absent if the sidecar did not take over an engine's port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) listen: Option<u16>,
    pub(super) steps: Vec<Step>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub(super) enum Step {
    /// The injection created a list or an object. Later steps add values to it.
    Created {
        #[serde(rename = "made")]
        path: String,
        /// Whether the key existed with the value null. `uninject` then restores the null.
        #[serde(rename = "null", default, skip_serializing_if = "is_false")]
        was_null: bool,
    },
    /// The injection added a value. `value` is null if the record does not store the value, as for a container.
    Added {
        #[serde(rename = "added")]
        path: String,
        #[serde(rename = "as", default, skip_serializing_if = "Value::is_null")]
        value: Value,
    },
    Changed {
        #[serde(rename = "changed")]
        path: String,
        #[serde(rename = "was")]
        before: Value,
        #[serde(rename = "now")]
        after: Value,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Record {
    pub(super) fn new(mode: Option<Mode>, listen: Option<u16>, steps: Vec<Step>) -> Self {
        Self { version: VERSION, mode: mode.map(choice_name), listen, steps }
    }

    /// Returns the record as compact JSON.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the record of a pod template or a Service. Returns `None` if the object was not injected.
    pub(super) fn from_template(template: &Value) -> Result<Option<Self>, InjectError> {
        let annotations = template.pointer("/metadata/annotations");
        let Some(text) = annotations.and_then(|all| all.get(RECORD_ANNOTATION)) else {
            return Ok(None);
        };
        let unreadable = |message: String| InjectError::UnreadableRecord { message };
        let text = text.as_str().ok_or_else(|| unreadable("not a string".to_owned()))?;
        let record: Self =
            serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
        if record.version != VERSION {
            let version = record.version;
            return Err(unreadable(format!("version {version}, expected {VERSION}")));
        }
        Ok(Some(record))
    }
}

impl Step {
    /// Returns whether the step created `metadata` or `annotations`, which contain the record itself.
    pub(super) fn creates_record_parent(&self) -> bool {
        match self {
            Self::Created { path, .. } => path == "/metadata" || path == "/metadata/annotations",
            Self::Added { .. } | Self::Changed { .. } => false,
        }
    }
}

pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns whether a value still has all recorded fields. The value may have more fields, because an API server adds
/// defaults.
pub(super) fn contains(value: &Value, recorded: &Value) -> bool {
    match (value, recorded) {
        (_, Value::Null) => true,
        (Value::Object(fields), Value::Object(recorded)) => recorded
            .iter()
            .all(|(key, recorded)| fields.get(key).is_some_and(|value| contains(value, recorded))),
        _ => value == recorded,
    }
}

/// Returns the text that identifies a list item in a path: the item's name, or the number of a port without a name.
pub(super) fn item_id(item: &Value) -> String {
    if let Some(name) = text(item, "/name") {
        return name.to_owned();
    }
    let number = item.get("containerPort").or_else(|| item.get("port"));
    number.and_then(Value::as_u64).map(|number| number.to_string()).unwrap_or_default()
}

/// Returns the fields of a list item, without the name or port number that identifies the item. Returns null if no
/// field is left.
pub(super) fn item_fields(item: &Value) -> Value {
    let mut fields = item.as_object().cloned().unwrap_or_default();
    fields.remove("name");
    fields.remove("containerPort");
    if fields.is_empty() { Value::Null } else { Value::Object(fields) }
}

pub(super) fn escape(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}

fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// Converts a JSON pointer to a path of the record, with names of list items instead of indexes.
pub(super) fn named_path(root: &Value, pointer: &str) -> String {
    let mut at = Some(root);
    let mut path = String::new();
    for token in pointer.split('/').skip(1) {
        path.push('/');
        match at {
            Some(Value::Array(items)) => {
                let item = token.parse::<usize>().ok().and_then(|index| items.get(index));
                path.push_str(&item.map(|item| escape(&item_id(item))).unwrap_or_default());
                at = item;
            }
            Some(value) => {
                path.push_str(token);
                at = value.get(unescape(token));
            }
            None => path.push_str(token),
        }
    }
    path
}

/// Finds the value at a path of the record. Returns the JSON pointer of the value, and the value. If several items
/// have the same name, returns the last item that contains the recorded fields.
pub(super) fn find<'a>(
    root: &'a Value,
    path: &str,
    recorded: &Value,
) -> Option<(String, &'a Value)> {
    let mut at = root;
    let mut pointer = String::new();
    let mut tokens = path.split('/').skip(1).peekable();
    while let Some(token) = tokens.next() {
        let token = unescape(token);
        if let Value::Array(items) = at {
            let is_last = tokens.peek().is_none();
            let is_named = |item: &Value| item_id(item) == token;
            let is_match = |item: &Value| is_named(item) && (!is_last || contains(item, recorded));
            let index =
                items.iter().rposition(is_match).or_else(|| items.iter().rposition(is_named))?;
            at = items.get(index)?;
            pointer.push_str(&format!("/{index}"));
        } else {
            at = at.get(&token)?;
            pointer.push_str(&format!("/{}", escape(&token)));
        }
    }
    Some((pointer, at))
}
