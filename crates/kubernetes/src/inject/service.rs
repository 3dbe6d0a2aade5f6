//! Points Services to the sidecars of the pods that they select.

use json_patch::Patch;
use serde_json::{Value, json};

use super::context::{self, InjectionContext, Takeover};
use super::edit::Edit;
use super::note::ChangeNote;
use super::outcome::{InjectError, Outcome, SkipReason};
use super::record::{Record, Undone};

/// Changes a Service that targets a port that was taken over by number.
pub(super) fn inject(service: &Value, context: &InjectionContext) -> Outcome {
    match redirect(service, context) {
        Ok(Some(redirected)) if redirected.value == *service => {
            Outcome::Skipped(SkipReason::AlreadyInjected)
        }
        Ok(Some(_)) | Err(_) if context.skips_controlled(service) => {
            Outcome::Skipped(SkipReason::Controlled)
        }
        Ok(Some(Redirected { patch, notes, .. })) => Outcome::Changed { patch, notes },
        Ok(None) => Outcome::Skipped(SkipReason::NotAWorkload),
        Err(error) => Outcome::Refused(error),
    }
}

struct Redirected {
    value: Value,
    patch: Patch,
    notes: Vec<ChangeNote>,
}

/// Returns `None` if no port of the Service changes.
fn redirect(
    service: &Value,
    context: &InjectionContext,
) -> Result<Option<Redirected>, InjectError> {
    let undone = match Record::of(service)? {
        None => Undone { value: service.clone(), patch: Patch(Vec::new()), notes: Vec::new() },
        Some(_) if !context.updates_sidecars() => return Ok(None),
        Some(record) => record.undo(service, "")?,
    };
    let Undone { value: original, mut patch, mut notes } = undone;
    if context::is_headless(&original) {
        return Ok(None);
    }
    let workloads = context.workloads_behind(&original);
    let mut takeovers: Vec<Takeover> = Vec::new();
    for takeover in workloads.iter().filter_map(|workload| workload.takeover) {
        if takeover.updates_services && !takeovers.contains(&takeover) {
            takeovers.push(takeover);
        }
    }
    let mut edit = Edit::new(&original, "");
    let mut is_changed = false;
    for takeover in takeovers {
        for port in context::ports_targeting(&original, takeover.old) {
            // All workloads of the port need the same takeover. Otherwise, requests to the other workloads would fail.
            let other = workloads.iter().find(|workload| workload.takeover != Some(takeover));
            if let Some(other) = other {
                let workload = other.name.clone();
                return Err(InjectError::SharedService { workload, port: takeover.old });
            }
            let pointer = format!("/spec/ports/{}", port.index);
            edit.put(&pointer, "targetPort", json!(takeover.new))?;
            let Takeover { old, new, .. } = takeover;
            notes.push(ChangeNote::ServiceRedirected { port: port.id, old, new });
            is_changed = true;
        }
    }
    if !is_changed {
        return Ok(None);
    }
    let (value, changes) = edit.finish(None, None)?;
    patch.0.extend(changes.0);
    Ok(Some(Redirected { value, patch, notes }))
}
