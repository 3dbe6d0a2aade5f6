//! A working copy of an object: every change extends the patch and the record from which `uninject` undoes it.

use json_patch::{Patch, PatchOperation};
use serde_json::{Value, json};

use super::outcome::InjectError;
use super::patch;
use super::record::{self, RECORD_ANNOTATION, RECORD_POINTER, Record, Step};

/// Position of new items in a list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Position {
    First,
    Last,
}

/// The changed object, its patch, and the steps to undo it.
#[derive(Debug)]
pub(super) struct Edit {
    value: Value,
    /// Pointer to the pod template. The pointers of all methods are relative to it.
    base: &'static str,
    operations: Vec<PatchOperation>,
    steps: Vec<Step>,
}

impl Edit {
    pub(super) fn new(object: &Value, base: &'static str) -> Self {
        Self { value: object.clone(), base, operations: Vec::new(), steps: Vec::new() }
    }

    pub(super) fn get(&self, pointer: &str) -> Option<&Value> {
        self.value.pointer(&format!("{}{pointer}", self.base))
    }

    /// Returns the items of a list, or an empty slice if the list is absent.
    pub(super) fn list(&self, pointer: &str) -> &[Value] {
        self.get(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Inserts items into a list, and creates the list if it is absent or null.
    pub(super) fn insert(
        &mut self,
        list: &str,
        position: Position,
        items: Vec<Value>,
    ) -> Result<(), InjectError> {
        if items.is_empty() {
            return Ok(());
        }
        let added: Vec<(String, Value)> =
            items.iter().map(|item| (record::item_id(item), record::item_fields(item))).collect();
        if self.get(list).is_some_and(Value::is_array) {
            for (index, item) in items.into_iter().enumerate() {
                let index = match position {
                    Position::First => index.to_string(),
                    Position::Last => "-".to_owned(),
                };
                self.apply(patch::add(self.base, &format!("{list}/{index}"), item)?)?;
            }
        } else {
            self.record_creation(list);
            self.apply(self.set_operation(list, Value::Array(items))?)?;
        }
        let parent = record::named_path(self.template(), list);
        for (id, fields) in added {
            let path = format!("{parent}/{}", record::escape(&id));
            // The name identifies a container. Its fields would make the record as long as the container.
            let value = if fields.get("image").is_some() { Value::Null } else { fields };
            self.steps.push(Step::Added { path, value });
        }
        Ok(())
    }

    /// Sets a field, whether it exists or not.
    pub(super) fn put(&mut self, parent: &str, key: &str, value: Value) -> Result<(), InjectError> {
        let pointer = format!("{parent}/{key}");
        if self.get(&pointer).is_some() {
            return self.replace(&pointer, value);
        }
        let path = record::named_path(self.template(), &pointer);
        self.steps.push(Step::Added { path, value: value.clone() });
        self.apply(patch::add(self.base, &pointer, value)?)
    }

    /// Sets a field of a child object, and creates the child if it is absent or null.
    pub(super) fn put_in(
        &mut self,
        parent: &str,
        child: &str,
        key: &str,
        value: Value,
    ) -> Result<(), InjectError> {
        let pointer = format!("{parent}/{child}");
        if self.get(&pointer).is_some_and(Value::is_object) {
            return self.put(&pointer, key, value);
        }
        let path = format!("{}/{key}", record::named_path(self.template(), &pointer));
        self.record_creation(&pointer);
        self.steps.push(Step::Added { path, value: value.clone() });
        self.apply(self.set_operation(&pointer, json!({ key: value }))?)
    }

    /// Replaces the value of an existing field.
    pub(super) fn replace(&mut self, pointer: &str, value: Value) -> Result<(), InjectError> {
        let before = self.get(pointer).cloned().unwrap_or_default();
        self.apply(patch::replace(self.base, pointer, value.clone())?)?;
        // A port without a name is identified by its number, so the path has to hold the new number.
        let path = record::named_path(self.template(), pointer);
        self.steps.push(Step::Changed { path, before, after: value });
        Ok(())
    }

    /// Writes the record into the annotations, and returns the changed object and its patch.
    pub(super) fn finish(
        mut self,
        mode: Option<&str>,
        listen: Option<u16>,
    ) -> Result<(Value, Patch), InjectError> {
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
        self.apply(self.set_operation(pointer, value)?)?;
        Ok((self.value, Patch(self.operations)))
    }

    fn is_object(&self, pointer: &str) -> bool {
        self.get(pointer).is_some_and(Value::is_object)
    }

    /// Records the creation of a list or an object that is absent or null.
    fn record_creation(&mut self, pointer: &str) {
        let path = record::named_path(self.template(), pointer);
        let was_null = self.get(pointer).is_some_and(Value::is_null);
        self.steps.push(Step::Created { path, was_null });
    }

    fn set_operation(&self, pointer: &str, value: Value) -> Result<PatchOperation, InjectError> {
        match self.get(pointer) {
            Some(_) => patch::replace(self.base, pointer, value),
            None => patch::add(self.base, pointer, value),
        }
    }

    fn template(&self) -> &Value {
        self.value.pointer(self.base).unwrap_or(&Value::Null)
    }

    fn apply(&mut self, operation: PatchOperation) -> Result<(), InjectError> {
        patch::apply(&mut self.value, &operation)?;
        self.operations.push(operation);
        Ok(())
    }
}
