//! Builds and applies JSON Patch operations.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::Value;

use super::outcome::InjectError;

pub(super) fn add(base: &str, at: &str, value: Value) -> Result<PatchOperation, InjectError> {
    let path = pointer(base, at)?;
    Ok(PatchOperation::Add(AddOperation { path, value }))
}

pub(super) fn replace(base: &str, at: &str, value: Value) -> Result<PatchOperation, InjectError> {
    let path = pointer(base, at)?;
    Ok(PatchOperation::Replace(ReplaceOperation { path, value }))
}

pub(super) fn remove(base: &str, at: &str) -> Result<PatchOperation, InjectError> {
    let path = pointer(base, at)?;
    Ok(PatchOperation::Remove(RemoveOperation { path }))
}

/// Applies one operation. It fails only if the object does not have the structure of its kind.
pub(super) fn apply(value: &mut Value, operation: &PatchOperation) -> Result<(), InjectError> {
    json_patch::patch(value, std::slice::from_ref(operation)).map_err(|_| InjectError::Malformed {
        at: operation.path().to_string(),
        expected: "a field of this kind",
    })
}

fn pointer(base: &str, pointer: &str) -> Result<PointerBuf, InjectError> {
    PointerBuf::parse(format!("{base}{pointer}"))
        .map_err(|_| InjectError::Malformed { at: pointer.to_owned(), expected: "a JSON pointer" })
}

/// Turns the patch of an object into a patch of its document, in which the object is at `pointer`.
pub fn prefix_patch(patch: Patch, pointer: &str) -> Patch {
    let Ok(base) = PointerBuf::parse(pointer) else {
        return patch;
    };
    let prefixed = patch.0.into_iter().map(|mut operation| {
        match &mut operation {
            PatchOperation::Add(operation) => operation.path = base.concat(&operation.path),
            PatchOperation::Replace(operation) => operation.path = base.concat(&operation.path),
            PatchOperation::Remove(operation) => operation.path = base.concat(&operation.path),
            PatchOperation::Test(operation) => operation.path = base.concat(&operation.path),
            PatchOperation::Move(operation) => {
                operation.from = base.concat(&operation.from);
                operation.path = base.concat(&operation.path);
            }
            PatchOperation::Copy(operation) => {
                operation.from = base.concat(&operation.from);
                operation.path = base.concat(&operation.path);
            }
        }
        operation
    });
    Patch(prefixed.collect())
}
