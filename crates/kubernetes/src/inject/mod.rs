//! The sidecar put into objects, and taken out again.
//!
//! [`inject`] plans, as a JSON Patch, what makes a workload's pods run behind tokengauge: inbound it stands before an
//! engine and takes over its port, outbound beside an application whose SDKs it is the base URL of. What was changed is
//! kept in the object, in the annotation [`RECORD`], from which [`uninject`] takes it all back. Nothing here reads or
//! writes: the webhook and the command line bring objects and carry patches away.

use json_patch::Patch;
use serde_json::{Value, json};

pub use edit::within;
pub use kind::{name, objects};
pub use live::{Live, ways_back};
pub use note::Note;
pub use outcome::{Outcome, Problem, Reason};
pub use record::RECORD;
pub use services::Around;
pub use settings::{IMAGE, Mode, OtlpProtocol, Settings};

use annotations::Wanted;
use edit::Edit;
use inbound::Takeover;
use kind::{Kind, Unknown};
use record::Record;
use services::Selected;

mod annotations;
mod edit;
mod engine;
mod inbound;
mod kind;
mod live;
mod note;
mod outbound;
mod outcome;
mod pod;
mod record;
mod services;
mod settings;
mod sidecar;
mod value;
mod vendors;

/// Plans the sidecar of one object: any kind but a list, whose items ([`objects`]) are objects of their own.
pub fn inject(object: &Value, around: &Around, settings: &Settings) -> Outcome {
    if kind::is_service(object) {
        return services::inject(object, around);
    }
    let Some(kind) = Kind::of(object) else {
        return Outcome::Skipped(match kind::unknown(object) {
            Some(Unknown::Custom(kind)) => Reason::CustomKind { kind },
            Some(Unknown::Former(kind)) => Reason::FormerKind { kind },
            None => Reason::NotAWorkload,
        });
    };
    if !around.names(object) {
        return Outcome::Skipped(Reason::NotNamed);
    }
    match planned(object, kind, around, settings) {
        Ok(plan) if plan.value == *object => Outcome::Skipped(Reason::AlreadyInjected),
        Ok(_) | Err(Stop::Refuse(_)) if around.leaves(object) => Outcome::Skipped(Reason::Owned),
        Ok(plan) => Outcome::Changed { patch: plan.patch, notes: plan.notes },
        Err(Stop::Skip(reason)) => Outcome::Skipped(reason),
        Err(Stop::Refuse(problem)) => Outcome::Refused(problem),
    }
}

/// Plans to take back what [`inject`] did to an object.
pub fn uninject(object: &Value) -> Outcome {
    let base = Kind::of(object).map_or("", Kind::template);
    let undone = match object.pointer(base).map(Record::of) {
        None | Some(Ok(None)) if Kind::of(object).is_none() => {
            return Outcome::Skipped(Reason::NotAWorkload);
        }
        None | Some(Ok(None)) => return Outcome::Skipped(Reason::NotInjected),
        Some(Ok(Some(record))) => record.undo(object, base),
        Some(Err(problem)) => Err(problem),
    };
    match undone {
        _ if live::is_owned(object) => Outcome::Skipped(Reason::Owned),
        Ok((_, patch, mut notes)) => {
            notes.insert(0, Note::Removed);
            Outcome::Changed { patch, notes }
        }
        Err(problem) => Outcome::Refused(problem),
    }
}

/// Why a plan came to nothing.
#[derive(Debug)]
enum Stop {
    Skip(Reason),
    Refuse(Problem),
}

impl From<Reason> for Stop {
    fn from(reason: Reason) -> Self {
        Self::Skip(reason)
    }
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Refuse(problem)
    }
}

/// What is to become of an object.
struct Plan {
    value: Value,
    patch: Patch,
    notes: Vec<Note>,
    takeover: Option<Takeover>,
}

/// The port that is taken over in an object's pods, if any.
fn takeover(object: &Value, kind: Kind, around: &Around, settings: &Settings) -> Option<Takeover> {
    if !around.names(object) || around.leaves(object) {
        return None;
    }
    planned(object, kind, around, settings).ok().and_then(|plan| plan.takeover)
}

/// The plan, from the object as it was before any `inject`.
fn planned(object: &Value, kind: Kind, around: &Around, settings: &Settings) -> Result<Plan, Stop> {
    let base = kind.template();
    let template = object.pointer(base).unwrap_or(&Value::Null);
    let Some(record) = Record::of(template)? else {
        return fresh(object, kind, around, settings);
    };
    if !around.renews {
        return Err(Reason::AlreadyInjected.into());
    }
    let (bare, undo, undo_notes) = record.undo(object, base)?;
    let mut settings = settings.clone();
    // Its Service may have been led there long ago, and need not be in this input again.
    settings.listen_port = settings.listen_port.or(record.listen.and_then(value::PortNumber::new));
    let plan = match fresh(&bare, kind, around, &settings) {
        Err(Stop::Skip(Reason::NotAsked)) => return Err(Reason::AlreadyInjected.into()),
        other => other?,
    };
    let mut notes = vec![Note::Renewed];
    notes.extend(undo_notes);
    notes.extend(plan.notes);
    let patch = Patch(undo.0.into_iter().chain(plan.patch.0).collect());
    Ok(Plan { value: plan.value, patch, notes, takeover: plan.takeover })
}

/// The plan for an object without a sidecar of ours.
fn fresh(object: &Value, kind: Kind, around: &Around, settings: &Settings) -> Result<Plan, Stop> {
    let base = kind.template();
    let template = object.pointer(base).filter(|template| template.is_object());
    let template = template.ok_or_else(|| malformed(base, "a pod template"))?;
    let wanted = Wanted::of(object, template, settings)?;
    let mut edit = Edit::new(object, base);
    fits(&edit, kind, &wanted)?;
    if wanted.mode == Mode::Inbound
        && !wanted.asked
        && around.is_crowded()
        && !pod::runs_engine(&edit)
    {
        return Err(Reason::NoEngine.into());
    }
    let selected = Selected::of(object, template);
    let mut notes = vec![Note::Sidecar {
        mode: wanted.mode,
        native: wanted.native,
        image: wanted.image.to_string(),
    }];
    let (mut place, takeover) = match wanted.mode {
        Mode::Inbound => {
            let (place, takeover) =
                inbound::take_over(&mut edit, &wanted, (&selected, around), &mut notes)?;
            (place, Some(takeover))
        }
        Mode::Outbound => {
            let place =
                outbound::point(&mut edit, &wanted, (selected.namespace, around), &mut notes)?;
            (place, None)
        }
    };
    place.owner = sidecar::owner(object, kind);
    if let Some(config) = &wanted.config {
        let volume = json!({ "name": sidecar::VOLUME, "configMap": { "name": config.as_str() } });
        edit.insert("/spec/volumes", false, vec![volume])?;
    }
    let container = sidecar::container(&wanted, &place);
    if wanted.native {
        edit.insert("/spec/initContainers", true, vec![container])?;
    } else {
        edit.insert("/spec/containers", false, vec![container])?;
    }
    let (value, patch) =
        edit.finish(Some(wanted.mode.as_str()), takeover.map(|takeover| takeover.new))?;
    Ok(Plan { value, patch, notes, takeover })
}

/// The lists of containers that a sidecar must get on with.
const CONTAINERS: [&str; 2] = ["/spec/containers", "/spec/initContainers"];

/// Whether the pod is one that can have the sidecar.
fn fits(edit: &Edit, kind: Kind, wanted: &Wanted) -> Result<(), Stop> {
    if !edit.get("/spec").is_some_and(Value::is_object) {
        return Err(malformed(&format!("{}/spec", kind.template()), "a pod's specification").into());
    }
    for list in CONTAINERS.into_iter().chain(["/spec/volumes"]) {
        if edit.get(list).is_some_and(|value| !value.is_array() && !value.is_null()) {
            return Err(malformed(&format!("{}{list}", kind.template()), "a list").into());
        }
    }
    if edit.list("/spec/containers").is_empty() {
        return Err(Reason::NoContainers.into());
    }
    if edit.get("/spec/hostNetwork").and_then(Value::as_bool) == Some(true) {
        return Err(Reason::HostNetwork.into());
    }
    if pod::is_windows(edit) {
        return Err(Reason::Windows.into());
    }
    if CONTAINERS.iter().flat_map(|list| edit.list(list)).any(|it| pod::name(it) == sidecar::NAME) {
        return Err(Reason::ForeignContainer.into());
    }
    if kind.completes() && !wanted.native {
        return Err(Reason::JobNeedsNative.into());
    }
    if wanted.config.is_some()
        && edit.list("/spec/volumes").iter().any(|it| pod::name(it) == sidecar::VOLUME)
    {
        return Err(Problem::VolumeExists { name: sidecar::VOLUME }.into());
    }
    ports_are_free(edit, wanted).map_err(Stop::from)
}

/// Whether no container declares the sidecar's ports.
fn ports_are_free(edit: &Edit, wanted: &Wanted) -> Result<(), Problem> {
    for (port, annotation) in [(wanted.listen, "listen-port"), (wanted.admin, "admin-port")] {
        let declared =
            CONTAINERS.iter().flat_map(|list| pod::ports(edit, list)).find(|it| it.number == port);
        if let Some(declared) = declared {
            return Err(Problem::PortDeclared {
                port,
                container: declared.container_name,
                annotation,
            });
        }
    }
    Ok(())
}

fn malformed(at: &str, expected: &'static str) -> Problem {
    Problem::Malformed { at: if at.is_empty() { "/".to_owned() } else { at.to_owned() }, expected }
}
