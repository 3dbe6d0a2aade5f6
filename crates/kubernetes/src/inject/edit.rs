//! Edits a copy of a Kubernetes object. Each change becomes a part of the JSON Patch. Each change is also recorded, so
//! that `uninject` can undo it.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::{Value, json};

use super::outcome::{Change, ChangeNote, InjectError};
use super::record::{self, RECORD_ANNOTATION, RECORD_POINTER, Record, Step};
use super::settings::Mode;

/// An object with its changes: the changed copy, the patch, the record for `uninject` and the notes for the user.
#[derive(Debug)]
pub(super) struct Edit {
    value: Value,
    /// JSON pointer to the pod template. Pointers in method arguments are relative to the pod template.
    base: &'static str,
    operations: Vec<PatchOperation>,
    steps: Vec<Step>,
    notes: Vec<ChangeNote>,
}

impl Edit {
    pub(super) fn new(object: &Value, base: &'static str) -> Self {
        let value = object.clone();
        Self { value, base, operations: Vec::new(), steps: Vec::new(), notes: Vec::new() }
    }

    pub(super) fn value(&self) -> &Value {
        &self.value
    }

    pub(super) fn template(&self) -> &Value {
        self.value.pointer(self.base).unwrap_or(&Value::Null)
    }

    pub(super) fn get(&self, pointer: &str) -> Option<&Value> {
        self.template().pointer(pointer)
    }

    /// Returns the items of a list, or an empty slice if the list is absent.
    pub(super) fn list(&self, pointer: &str) -> &[Value] {
        super::kind::items(self.template(), pointer)
    }

    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(ChangeNote { text: text.into(), is_warning: false });
    }

    /// Adds a note about a problem that the user should check.
    pub(super) fn warn(&mut self, text: impl Into<String>) {
        self.notes.push(ChangeNote { text: text.into(), is_warning: true });
    }

    /// Inserts items into a list. Creates the list if it is absent or null. `position` is the JSON pointer to the
    /// list, followed by `/0` (start of the list) or `/-` (end of the list).
    pub(super) fn insert(&mut self, position: &str, items: Vec<Value>) -> Result<(), InjectError> {
        let (list, _) = position.rsplit_once('/').unwrap_or_default();
        let added: Vec<(String, Value)> =
            items.iter().map(|item| (record::item_id(item), record::item_fields(item))).collect();
        if self.get(list).is_some_and(Value::is_array) {
            for item in items {
                self.add(position, item)?;
            }
        } else {
            self.record_creation(list);
            self.set(list, Value::Array(items))?;
        }
        let parent = record::named_path(self.template(), list);
        for (id, fields) in added {
            let path = format!("{parent}/{}", record::escape(&id));
            // A container is identified by its name. Storing its fields would make the record as long as the
            // container.
            let value = if fields.get("image").is_some() { Value::Null } else { fields };
            self.steps.push(Step::Added { path, value });
        }
        Ok(())
    }

    /// Sets a field of the object at `parent`. If the field exists, replaces its value.
    pub(super) fn put(&mut self, parent: &str, key: &str, value: Value) -> Result<(), InjectError> {
        let pointer = format!("{parent}/{key}");
        if self.get(&pointer).is_some() {
            return self.replace(&pointer, value);
        }
        let path = record::named_path(self.template(), &pointer);
        self.steps.push(Step::Added { path, value: value.clone() });
        self.set(&pointer, value)
    }

    /// Sets a field of the object `child` in `parent`. Creates `child` if it is absent or null.
    pub(super) fn put_in(
        &mut self,
        parent: &str,
        child: &str,
        key: &str,
        value: Value,
    ) -> Result<(), InjectError> {
        let pointer = format!("{parent}/{child}");
        if self.is_object(&pointer) {
            return self.put(&pointer, key, value);
        }
        let path = format!("{}/{key}", record::named_path(self.template(), &pointer));
        self.record_creation(&pointer);
        self.steps.push(Step::Added { path, value: value.clone() });
        self.set(&pointer, json!({ key: value }))
    }

    /// Replaces the value of an existing field.
    pub(super) fn replace(&mut self, pointer: &str, value: Value) -> Result<(), InjectError> {
        let before = self.get(pointer).cloned().unwrap_or_default();
        self.set(pointer, value.clone())?;
        // A port without a name is identified by its number, so the recorded path must contain the new number.
        let path = record::named_path(self.template(), pointer);
        self.steps.push(Step::Changed { path, before, after: value });
        Ok(())
    }

    /// Writes the record of all changes into the annotations.
    pub(super) fn finish(
        mut self,
        mode: Option<Mode>,
        listen: Option<u16>,
    ) -> Result<Change, InjectError> {
        let steps = std::mem::take(&mut self.steps);
        for pointer in ["/metadata", "/metadata/annotations"] {
            if !self.is_object(pointer) {
                self.record_creation(pointer);
            }
        }
        self.steps.extend(steps);
        let record = Record::new(mode, listen, std::mem::take(&mut self.steps)).to_json();
        let (pointer, value) = if !self.is_object("/metadata") {
            ("/metadata", json!({ "annotations": { RECORD_ANNOTATION: record } }))
        } else if !self.is_object("/metadata/annotations") {
            ("/metadata/annotations", json!({ RECORD_ANNOTATION: record }))
        } else {
            (RECORD_POINTER, Value::String(record))
        };
        self.set(pointer, value)?;
        Ok(self.into_change())
    }

    pub(super) fn into_change(self) -> Change {
        Change { value: self.value, patch: Patch(self.operations), notes: self.notes }
    }

    /// Undoes all changes of an earlier injection and removes the record. A value that was modified after the
    /// injection stays, with a warning.
    pub(super) fn undo(&mut self, record: &Record) -> Result<(), InjectError> {
        // The parents of the record are removed last, after the record.
        let (parents, others): (Vec<&Step>, Vec<&Step>) =
            record.steps.iter().partition(|step| step.creates_record_parent());
        for step in others.into_iter().rev() {
            self.undo_step(step)?;
        }
        self.remove(RECORD_POINTER)?;
        for step in parents.into_iter().rev() {
            self.undo_step(step)?;
        }
        Ok(())
    }

    fn undo_step(&mut self, step: &Step) -> Result<(), InjectError> {
        let find = |path, recorded| record::find(self.template(), path, recorded);
        let (path, found) = match step {
            Step::Created { path, was_null } => {
                return match find(path, &Value::Null) {
                    Some((at, value)) if record::is_empty(value) && *was_null => {
                        self.set(&at, Value::Null)
                    }
                    Some((at, value)) if record::is_empty(value) => self.remove(&at),
                    Some(_) | None => Ok(()),
                };
            }
            Step::Added { path, value: added } => match find(path, added) {
                Some((at, value)) if record::contains(value, added) => return self.remove(&at),
                found => (path, found),
            },
            Step::Changed { path, before, after } => match find(path, &Value::Null) {
                Some((at, value)) if value == after => return self.set(&at, before.clone()),
                found => (path, found),
            },
        };
        let change = if found.is_some() {
            "was modified after injection and is left unchanged"
        } else {
            "was removed after injection"
        };
        self.warn(format!("{path} {change}"));
        Ok(())
    }

    fn is_object(&self, pointer: &str) -> bool {
        self.get(pointer).is_some_and(Value::is_object)
    }

    /// Records that the injection creates a list or an object that was absent or null.
    fn record_creation(&mut self, pointer: &str) {
        let path = record::named_path(self.template(), pointer);
        let was_null = self.get(pointer).is_some_and(Value::is_null);
        self.steps.push(Step::Created { path, was_null });
    }

    /// Adds or replaces a value without recording the change.
    fn set(&mut self, pointer: &str, value: Value) -> Result<(), InjectError> {
        if self.get(pointer).is_none() {
            return self.add(pointer, value);
        }
        let path = self.absolute(pointer)?;
        self.apply(PatchOperation::Replace(ReplaceOperation { path, value }))
    }

    fn add(&mut self, pointer: &str, value: Value) -> Result<(), InjectError> {
        let path = self.absolute(pointer)?;
        self.apply(PatchOperation::Add(AddOperation { path, value }))
    }

    /// Removes a value without recording the change.
    fn remove(&mut self, pointer: &str) -> Result<(), InjectError> {
        let path = self.absolute(pointer)?;
        self.apply(PatchOperation::Remove(RemoveOperation { path }))
    }

    fn absolute(&self, pointer: &str) -> Result<PointerBuf, InjectError> {
        PointerBuf::parse(format!("{}{pointer}", self.base)).map_err(|_| InjectError::Malformed {
            at: pointer.to_owned(),
            expected: "a JSON pointer",
        })
    }

    /// Applies one operation of the patch. Fails if the object does not have the structure of its kind.
    fn apply(&mut self, operation: PatchOperation) -> Result<(), InjectError> {
        json_patch::patch(&mut self.value, std::slice::from_ref(&operation)).map_err(|_| {
            let at = operation.path().to_string();
            InjectError::Malformed { at, expected: "a field of this kind" }
        })?;
        if matches!(operation, PatchOperation::Remove(_) | PatchOperation::Replace(_)) {
            self.drop_removals_inside(&format!("{}/", operation.path()));
        }
        self.operations.push(operation);
        Ok(())
    }

    /// Drops the last removals from the patch if they are inside a value that is now removed or replaced as a whole.
    /// Removing the text in parts could leave remains, such as an empty list.
    fn drop_removals_inside(&mut self, parent: &str) {
        let is_inside = |last: &PatchOperation| {
            matches!(last, PatchOperation::Remove(_)) && last.path().as_str().starts_with(parent)
        };
        while self.operations.last().is_some_and(is_inside) {
            self.operations.pop();
        }
    }
}

/// Converts the patch of an object into a patch of its document. `pointer` is the location of the object, such as
/// `/items/0`.
pub fn prefix_patch(mut patch: Patch, pointer: &str) -> Patch {
    let Ok(base) = PointerBuf::parse(pointer) else { return patch };
    for operation in &mut patch.0 {
        match operation {
            PatchOperation::Add(AddOperation { path, .. })
            | PatchOperation::Replace(ReplaceOperation { path, .. })
            | PatchOperation::Remove(RemoveOperation { path }) => *path = base.concat(path),
            // An `Edit` creates no test, move or copy operations.
            PatchOperation::Test(_) | PatchOperation::Move(_) | PatchOperation::Copy(_) => {}
        }
    }
    patch
}
