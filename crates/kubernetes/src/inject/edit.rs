//! An object being changed: each step goes into the patch and, reversed, into the record from which it is taken back.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::{Value, json};

use super::outcome::Problem;
use super::record::{self, RECORD, Record, Step};

/// The pointer of the record, from the pod template (or the Service).
pub(super) const RECORD_POINTER: &str = "/metadata/annotations/tokengauge.dev~1injected";

/// A working copy, the patch that made it, and how to take it back.
#[derive(Debug)]
pub(super) struct Edit {
    value: Value,
    /// Where in the object the pod template is; the pointers of all methods begin there.
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

    /// The items of a list; none where there is no list.
    pub(super) fn list(&self, pointer: &str) -> &[Value] {
        self.get(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Puts an item into a list, first or last, and makes the list where there is none.
    pub(super) fn insert(
        &mut self,
        list: &str,
        first: bool,
        items: Vec<Value>,
    ) -> Result<(), Problem> {
        if items.is_empty() {
            return Ok(());
        }
        let known: Vec<(String, Value)> =
            items.iter().map(|item| (record::id(item), record::without_name(item))).collect();
        let there = self.get(list).is_some_and(Value::is_array);
        if there {
            for (index, item) in items.into_iter().enumerate() {
                let place = if first { index.to_string() } else { "-".to_owned() };
                self.apply(add(self.base, &format!("{list}/{place}"), item)?)?;
            }
        } else {
            self.make(list);
            // `null` is as good as absent to an API server.
            let operation = match self.get(list) {
                Some(_) => replace(self.base, list, Value::Array(items))?,
                None => add(self.base, list, Value::Array(items))?,
            };
            self.apply(operation)?;
        }
        let parent = record::named(self.template(), list);
        for (id, fields) in known {
            let added = format!("{parent}/{}", record::escaped(&id));
            let known = if record::is_container(&fields) { Value::Null } else { fields };
            self.steps.push(Step::Added { added, known });
        }
        Ok(())
    }

    /// Sets a field, whether it has a value or not.
    pub(super) fn put(&mut self, parent: &str, key: &str, value: Value) -> Result<(), Problem> {
        let pointer = format!("{parent}/{key}");
        if self.get(&pointer).is_some() {
            return self.replace(&pointer, value);
        }
        let added = record::named(self.template(), &pointer);
        self.steps.push(Step::Added { added, known: value.clone() });
        self.apply(add(self.base, &pointer, value)?)
    }

    /// Sets a field of an object, and makes the object where there is none.
    pub(super) fn put_in(
        &mut self,
        parent: &str,
        object: &str,
        key: &str,
        value: Value,
    ) -> Result<(), Problem> {
        let pointer = format!("{parent}/{object}");
        if self.get(&pointer).is_some_and(Value::is_object) {
            return self.put(&pointer, key, value);
        }
        let added = format!("{}/{key}", record::named(self.template(), &pointer));
        self.make(&pointer);
        self.steps.push(Step::Added { added, known: value.clone() });
        let whole = json!({ key: value });
        let operation = match self.get(&pointer) {
            Some(_) => replace(self.base, &pointer, whole)?,
            None => add(self.base, &pointer, whole)?,
        };
        self.apply(operation)
    }

    /// Notes that a list or an object is made where there is none, or `null`.
    fn make(&mut self, pointer: &str) {
        let made = record::named(self.template(), pointer);
        let was_null = self.get(pointer).is_some_and(Value::is_null);
        self.steps.push(Step::Made { made, was_null });
    }

    /// Sets a field that has a value.
    pub(super) fn replace(&mut self, pointer: &str, value: Value) -> Result<(), Problem> {
        let was = self.get(pointer).cloned().unwrap_or_default();
        self.apply(replace(self.base, pointer, value.clone())?)?;
        // A port without a name is called by its number, so its place is named when it has the new one.
        let changed = record::named(self.template(), pointer);
        self.steps.push(Step::Changed { changed, was, now: value });
        Ok(())
    }

    /// Writes the record, and hands over the patch.
    pub(super) fn finish(
        mut self,
        mode: Option<&str>,
        listen: Option<u16>,
    ) -> Result<(Value, Patch), Problem> {
        let mut made = Vec::new();
        let annotations = self.get("/metadata/annotations").cloned();
        let metadata = self.get("/metadata").cloned();
        for (at, there) in [("/metadata", &metadata), ("/metadata/annotations", &annotations)] {
            if !there.as_ref().is_some_and(Value::is_object) {
                made.push(Step::Made {
                    made: at.to_owned(),
                    was_null: there.as_ref().is_some_and(Value::is_null),
                });
            }
        }
        made.append(&mut self.steps);
        let record = Record::new(mode, listen, made).to_text();
        let operation = match (metadata, annotations) {
            (Some(Value::Object(_)), Some(Value::Object(annotations)))
                if annotations.contains_key(RECORD) =>
            {
                replace(self.base, RECORD_POINTER, Value::String(record))
            }
            (Some(Value::Object(_)), Some(Value::Object(_))) => {
                add(self.base, RECORD_POINTER, Value::String(record))
            }
            (Some(Value::Object(_)), Some(_)) => {
                replace(self.base, "/metadata/annotations", json!({ RECORD: record }))
            }
            (Some(Value::Object(_)), None) => {
                add(self.base, "/metadata/annotations", json!({ RECORD: record }))
            }
            (Some(_), _) => {
                replace(self.base, "/metadata", json!({ "annotations": { RECORD: record } }))
            }
            (None, _) => add(self.base, "/metadata", json!({ "annotations": { RECORD: record } })),
        };
        self.apply(operation?)?;
        Ok((self.value, Patch(self.operations)))
    }

    fn template(&self) -> &Value {
        self.value.pointer(self.base).unwrap_or(&Value::Null)
    }

    fn apply(&mut self, operation: PatchOperation) -> Result<(), Problem> {
        applied(&mut self.value, &operation)?;
        self.operations.push(operation);
        Ok(())
    }
}

/// Applies one operation. That it fails says that the object has not the form that its kind says.
pub(super) fn applied(value: &mut Value, operation: &PatchOperation) -> Result<(), Problem> {
    json_patch::patch(value, std::slice::from_ref(operation)).map_err(|_| Problem::Malformed {
        at: operation.path().to_string(),
        expected: "a place that its kind has",
    })
}

fn pointer(base: &str, pointer: &str) -> Result<PointerBuf, Problem> {
    PointerBuf::parse(format!("{base}{pointer}"))
        .map_err(|_| Problem::Malformed { at: pointer.to_owned(), expected: "a JSON pointer" })
}

pub(super) fn add(base: &str, at: &str, value: Value) -> Result<PatchOperation, Problem> {
    let path = pointer(base, at)?;
    Ok(PatchOperation::Add(AddOperation { path, value }))
}

pub(super) fn replace(base: &str, at: &str, value: Value) -> Result<PatchOperation, Problem> {
    let path = pointer(base, at)?;
    Ok(PatchOperation::Replace(ReplaceOperation { path, value }))
}

pub(super) fn remove(base: &str, at: &str) -> Result<PatchOperation, Problem> {
    let path = pointer(base, at)?;
    Ok(PatchOperation::Remove(RemoveOperation { path }))
}

/// The patch of an object as one of the document in which it stands at `pointer`.
pub fn within(patch: Patch, pointer: &str) -> Patch {
    let Ok(base) = PointerBuf::parse(pointer) else {
        return patch;
    };
    let moved = patch.0.into_iter().map(|mut operation| {
        match &mut operation {
            PatchOperation::Add(it) => it.path = base.concat(&it.path),
            PatchOperation::Replace(it) => it.path = base.concat(&it.path),
            PatchOperation::Remove(it) => it.path = base.concat(&it.path),
            PatchOperation::Test(it) => it.path = base.concat(&it.path),
            PatchOperation::Move(it) => {
                it.from = base.concat(&it.from);
                it.path = base.concat(&it.path);
            }
            PatchOperation::Copy(it) => {
                it.from = base.concat(&it.from);
                it.path = base.concat(&it.path);
            }
        }
        operation
    });
    Patch(moved.collect())
}
