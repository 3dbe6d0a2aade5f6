//! What was changed in an object, kept in one of its annotations, and how it is taken back.
//!
//! Places are named, not counted: `/spec/containers/vllm/env/OPENAI_BASE_URL`, so that they are found again whatever
//! was put before them in the meantime.

use json_patch::{Patch, PatchOperation};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::edit::{applied, remove, replace};
use super::note::Note;
use super::outcome::Problem;

/// The annotation that holds the record.
pub const RECORD: &str = "tokengauge.dev/injected";

/// The form of the record. Another number is another form, which this program cannot take back.
const VERSION: u32 = 1;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls it in")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// The steps in the order in which they were taken.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Record {
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    /// The sidecar's port, where it took over one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) listen: Option<u16>,
    steps: Vec<Step>,
}

/// One step.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub(super) enum Step {
    /// A list or an object was made to hold what the next steps add.
    Made {
        made: String,
        /// Whether its key stood there without a value, as templates write it.
        #[serde(rename = "null", default, skip_serializing_if = "is_false")]
        was_null: bool,
    },
    /// Something is there that was not; what is known of it, to see whether it was changed since.
    Added {
        added: String,
        #[serde(rename = "as", default, skip_serializing_if = "Value::is_null")]
        known: Value,
    },
    Changed {
        changed: String,
        was: Value,
        now: Value,
    },
}

impl Record {
    pub(super) fn new(mode: Option<&str>, listen: Option<u16>, steps: Vec<Step>) -> Self {
        Self { version: VERSION, mode: mode.map(str::to_owned), listen, steps }
    }

    /// Compact JSON.
    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The record in a pod template or a Service; `None` where `inject` has not been.
    pub(super) fn of(template: &Value) -> Result<Option<Self>, Problem> {
        let annotations = template.pointer("/metadata/annotations");
        let Some(text) = annotations.and_then(|them| them.get(RECORD)) else {
            return Ok(None);
        };
        let broken = |wrong: String| Problem::BrokenRecord { wrong };
        let text = text.as_str().ok_or_else(|| broken("it is no text".to_owned()))?;
        let record: Self = serde_json::from_str(text).map_err(|error| broken(error.to_string()))?;
        if record.version != VERSION {
            return Err(broken(format!("version {}, known is {VERSION}", record.version)));
        }
        Ok(Some(record))
    }

    /// Takes everything back that is still as `inject` left it: the object without, the patch, and what was not as left.
    pub(super) fn undo(
        &self,
        object: &Value,
        base: &str,
    ) -> Result<(Value, Patch, Vec<Note>), Problem> {
        let mut undo =
            Undo { value: object.clone(), base, operations: Vec::new(), notes: Vec::new() };
        let (made, rest): (Vec<&Step>, Vec<&Step>) =
            self.steps.iter().partition(|step| is_metadata(step));
        for step in rest.into_iter().rev() {
            undo.take_back(step)?;
        }
        undo.remove(super::edit::RECORD_POINTER)?;
        for step in made.into_iter().rev() {
            undo.take_back(step)?;
        }
        Ok((undo.value, Patch(shortened(undo.operations)), undo.notes))
    }
}

/// Whether it made what holds the record itself.
fn is_metadata(step: &Step) -> bool {
    match step {
        Step::Made { made, .. } => made == "/metadata" || made == "/metadata/annotations",
        Step::Added { .. } | Step::Changed { .. } => false,
    }
}

struct Undo<'a> {
    value: Value,
    base: &'a str,
    operations: Vec<PatchOperation>,
    notes: Vec<Note>,
}

impl Undo<'_> {
    fn take_back(&mut self, step: &Step) -> Result<(), Problem> {
        let template = self.value.pointer(self.base).unwrap_or(&Value::Null);
        match step {
            Step::Made { made, was_null } => match found(template, made, &Value::Null) {
                Some((at, value)) if is_empty(value) && *was_null => {
                    self.replace(&at, &Value::Null)
                }
                Some((at, value)) if is_empty(value) => self.remove(&at),
                Some(_) | None => Ok(()),
            },
            Step::Added { added, known } => match found(template, added, known) {
                Some((at, value)) if holds(value, known) => self.remove(&at),
                Some(_) => self.note(Note::LeftChanged { at: added.clone() }),
                None => self.note(Note::Gone { at: added.clone() }),
            },
            Step::Changed { changed, was, now } => match found(template, changed, &Value::Null) {
                Some((at, value)) if value == now => self.replace(&at, was),
                Some(_) => self.note(Note::LeftChanged { at: changed.clone() }),
                None => self.note(Note::Gone { at: changed.clone() }),
            },
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "an arm of a match whose other arms can fail")]
    fn note(&mut self, note: Note) -> Result<(), Problem> {
        self.notes.push(note);
        Ok(())
    }

    fn remove(&mut self, at: &str) -> Result<(), Problem> {
        let operation = remove(self.base, at)?;
        applied(&mut self.value, &operation)?;
        self.operations.push(operation);
        Ok(())
    }

    fn replace(&mut self, at: &str, value: &Value) -> Result<(), Problem> {
        let operation = replace(self.base, at, value.clone())?;
        applied(&mut self.value, &operation)?;
        self.operations.push(operation);
        Ok(())
    }
}

/// Leaves out removals from what is removed or replaced as a whole right after: text that is taken out in one piece leaves no trace.
fn shortened(operations: Vec<PatchOperation>) -> Vec<PatchOperation> {
    let mut kept: Vec<PatchOperation> = Vec::with_capacity(operations.len());
    for operation in operations {
        if matches!(operation, PatchOperation::Remove(_) | PatchOperation::Replace(_)) {
            let whole = format!("{}/", operation.path());
            while kept.last().is_some_and(|last| {
                matches!(last, PatchOperation::Remove(_))
                    && last.path().as_str().starts_with(&whole)
            }) {
                kept.pop();
            }
        }
        kept.push(operation);
    }
    kept
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Whether a value still says what is known of it. An API server adds fields with their defaults.
fn holds(value: &Value, known: &Value) -> bool {
    match (value, known) {
        (_, Value::Null) => true,
        (Value::Object(value), Value::Object(known)) => {
            known.iter().all(|(key, known)| value.get(key).is_some_and(|value| holds(value, known)))
        }
        _ => value == known,
    }
}

/// How an item of a list is called: by its name, or a port by its number.
pub(super) fn id(item: &Value) -> String {
    if let Some(name) = item.get("name").and_then(Value::as_str) {
        return name.to_owned();
    }
    let number = item.get("containerPort").or_else(|| item.get("port"));
    number.and_then(Value::as_u64).map(|number| number.to_string()).unwrap_or_default()
}

/// The item's fields but its name, which its place says.
pub(super) fn without_name(item: &Value) -> Value {
    let mut fields = item.as_object().cloned().unwrap_or_default();
    fields.remove("name");
    fields.remove("containerPort");
    if fields.is_empty() { Value::Null } else { Value::Object(fields) }
}

/// A container is ours by its name; its record would be as long as itself.
pub(super) fn is_container(fields: &Value) -> bool {
    fields.get("image").is_some()
}

pub(super) fn escaped(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}

fn unescaped(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// A pointer with the names of list items instead of their numbers.
pub(super) fn named(root: &Value, pointer: &str) -> String {
    let mut at = Some(root);
    let mut named = String::new();
    for token in pointer.split('/').skip(1) {
        named.push('/');
        match at {
            Some(Value::Array(items)) => {
                let item = token.parse::<usize>().ok().and_then(|index| items.get(index));
                named.push_str(&item.map(|item| escaped(&id(item))).unwrap_or_default());
                at = item;
            }
            Some(other) => {
                named.push_str(token);
                at = other.get(unescaped(token));
            }
            None => named.push_str(token),
        }
    }
    named
}

/// The place that a named pointer leads to now, and what is there. Of several items called the same, the last one that
/// holds what is known.
fn found<'a>(root: &'a Value, named: &str, known: &Value) -> Option<(String, &'a Value)> {
    let mut at = root;
    let mut pointer = String::new();
    let mut tokens = named.split('/').skip(1).peekable();
    while let Some(token) = tokens.next() {
        let token = unescaped(token);
        if let Value::Array(items) = at {
            let called = |item: &&Value| id(item) == token;
            let last = tokens.peek().is_none();
            let fits = |item: &&Value| called(item) && (!last || holds(item, known));
            let index = items
                .iter()
                .rposition(|item| fits(&item))
                .or_else(|| items.iter().rposition(|item| called(&item)))?;
            at = items.get(index)?;
            pointer.push_str(&format!("/{index}"));
        } else {
            at = at.get(&token)?;
            pointer.push_str(&format!("/{}", escaped(&token)));
        }
    }
    Some((pointer, at))
}
