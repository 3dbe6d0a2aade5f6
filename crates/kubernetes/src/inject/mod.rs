//! Injects the sidecar into Kubernetes objects, and removes it.
//!
//! [`inject`] plans the changes to a workload as a JSON Patch. In inbound mode the sidecar takes over the port of an
//! engine. In outbound mode environment variables point the SDKs of an application to the sidecar. The annotation
//! [`RECORD_ANNOTATION`] records the changes, from which [`uninject`] undoes them. This module does no I/O: the webhook
//! and the command line provide the objects and apply the patches.

use json_patch::Patch;
use serde_json::{Value, json};

pub use cluster_object::{ClusterObject, reapply_instructions};
pub use context::InjectionContext;
pub use kind::{document_objects, object_name};
pub use note::ChangeNote;
pub use outcome::{InjectError, Outcome, SkipReason};
pub use patch::prefix_patch;
pub use record::RECORD_ANNOTATION;
pub use settings::{Mode, OtlpProtocol, Settings};
pub use value::DEFAULT_IMAGE;

use annotations::SidecarConfig;
use context::{PodSet, Takeover};
use edit::{Edit, Position};
use kind::Kind;
use record::Record;

mod annotations;
mod cluster_object;
mod context;
mod edit;
mod inbound;
mod kind;
mod note;
mod outbound;
mod outcome;
mod patch;
mod pod;
mod providers;
mod record;
mod service;
mod settings;
mod sidecar;
mod value;

/// Plans the sidecar of one object. The items of a `List` ([`document_objects`]) are planned one at a time.
pub fn inject(object: &Value, context: &InjectionContext, settings: &Settings) -> Outcome {
    if kind::is_service(object) {
        return service::inject(object, context);
    }
    let Some(kind) = Kind::of(object) else {
        return Outcome::Skipped(kind::unsupported(object));
    };
    if !context.selects(object) {
        return Outcome::Skipped(SkipReason::NotSelected);
    }
    match plan(object, kind, context, settings) {
        Ok(plan) if plan.value == *object => Outcome::Skipped(SkipReason::AlreadyInjected),
        Ok(_) | Err(PlanError::Refuse(_)) if context.skips_controlled(object) => {
            Outcome::Skipped(SkipReason::Controlled)
        }
        Ok(plan) => Outcome::Changed { patch: plan.patch, notes: plan.notes },
        Err(PlanError::Skip(reason)) => Outcome::Skipped(reason),
        Err(PlanError::Refuse(error)) => Outcome::Refused(error),
    }
}

/// Plans the removal of the changes that [`inject`] made to an object.
pub fn uninject(object: &Value) -> Outcome {
    let kind = Kind::of(object);
    let base = kind.map_or("", Kind::template);
    let undone = match object.pointer(base).map(Record::of) {
        None | Some(Ok(None)) => {
            let reason = kind.map_or(SkipReason::NotAWorkload, |_| SkipReason::NotInjected);
            return Outcome::Skipped(reason);
        }
        Some(Ok(Some(record))) => record.undo(object, base),
        Some(Err(error)) => Err(error),
    };
    if cluster_object::is_controlled(object) {
        return Outcome::Skipped(SkipReason::Controlled);
    }
    match undone {
        Ok(undone) => {
            let mut notes = vec![ChangeNote::SidecarRemoved];
            notes.extend(undone.notes);
            Outcome::Changed { patch: undone.patch, notes }
        }
        Err(error) => Outcome::Refused(error),
    }
}

/// Reason why an object cannot be planned.
#[derive(Debug)]
enum PlanError {
    Skip(SkipReason),
    Refuse(InjectError),
}

impl From<SkipReason> for PlanError {
    fn from(reason: SkipReason) -> Self {
        Self::Skip(reason)
    }
}

impl From<InjectError> for PlanError {
    fn from(error: InjectError) -> Self {
        Self::Refuse(error)
    }
}

/// The planned changes to a workload.
struct Plan {
    value: Value,
    patch: Patch,
    notes: Vec<ChangeNote>,
    takeover: Option<Takeover>,
}

/// Returns the port that the sidecar of an object will take over.
fn takeover(
    object: &Value,
    kind: Kind,
    context: &InjectionContext,
    settings: &Settings,
) -> Option<Takeover> {
    if !context.selects(object) || context.skips_controlled(object) {
        return None;
    }
    plan(object, kind, context, settings).ok().and_then(|plan| plan.takeover)
}

/// Plans from the object as it was before any injection.
fn plan(
    object: &Value,
    kind: Kind,
    context: &InjectionContext,
    settings: &Settings,
) -> Result<Plan, PlanError> {
    let base = kind.template();
    let template = object.pointer(base).unwrap_or(&Value::Null);
    let Some(record) = Record::of(template)? else {
        return plan_new_sidecar(object, kind, context, settings);
    };
    if !context.updates_sidecars() {
        return Err(SkipReason::AlreadyInjected.into());
    }
    let undone = record.undo(object, base)?;
    let mut settings = settings.clone();
    // The Service may target this port already, and need not be in this input.
    settings.listen_port = settings.listen_port.or(record.listen.and_then(value::PortNumber::new));
    let plan = match plan_new_sidecar(&undone.value, kind, context, &settings) {
        Err(PlanError::Skip(SkipReason::NotRequested)) => {
            return Err(SkipReason::AlreadyInjected.into());
        }
        plan => plan?,
    };
    let mut notes = vec![ChangeNote::SidecarReplaced];
    notes.extend(undone.notes);
    notes.extend(plan.notes);
    let patch = Patch(undone.patch.0.into_iter().chain(plan.patch.0).collect());
    Ok(Plan { patch, notes, ..plan })
}

/// Plans for an object without a sidecar.
fn plan_new_sidecar(
    object: &Value,
    kind: Kind,
    context: &InjectionContext,
    settings: &Settings,
) -> Result<Plan, PlanError> {
    let base = kind.template();
    let template = object.pointer(base).filter(|template| template.is_object());
    let template = template.ok_or_else(|| malformed(base, "a pod template"))?;
    let config = SidecarConfig::of(object, template, settings)?;
    let mut edit = Edit::new(object, base);
    check_pod(&edit, kind, &config)?;
    if config.mode == Mode::Inbound
        && !config.has_annotations
        && context.has_several_workloads()
        && !pod::runs_engine(&edit)
    {
        return Err(SkipReason::NoEngine.into());
    }
    let pods = PodSet::of(object, template);
    let mut notes = vec![ChangeNote::SidecarAdded {
        mode: config.mode,
        native: config.native,
        image: config.settings.image.to_string(),
    }];
    let (mut pod_context, takeover) = match config.mode {
        Mode::Inbound => {
            let (pod_context, takeover) =
                inbound::take_over_port(&mut edit, &config, &pods, context, &mut notes)?;
            (pod_context, Some(takeover))
        }
        Mode::Outbound => {
            let pod_context =
                outbound::set_base_urls(&mut edit, &config, pods.namespace, context, &mut notes)?;
            (pod_context, None)
        }
    };
    pod_context.owner = sidecar::owner_attributes(object, kind);
    if let Some(config_map) = &config.settings.config {
        let source = json!({ "name": config_map.as_str() });
        let volume = json!({ "name": sidecar::VOLUME_NAME, "configMap": source });
        edit.insert("/spec/volumes", Position::Last, vec![volume])?;
    }
    let container = sidecar::container(&config, &pod_context);
    let (list, position) = if config.native {
        ("/spec/initContainers", Position::First)
    } else {
        ("/spec/containers", Position::Last)
    };
    edit.insert(list, position, vec![container])?;
    let listen = takeover.map(|takeover| takeover.new);
    let (value, patch) = edit.finish(Some(config.mode.as_str()), listen)?;
    Ok(Plan { value, patch, notes, takeover })
}

/// The lists of containers that share the pod's network with the sidecar.
const CONTAINER_LISTS: [&str; 2] = ["/spec/containers", "/spec/initContainers"];

/// Checks that the pod can have a sidecar.
fn check_pod(edit: &Edit, kind: Kind, config: &SidecarConfig) -> Result<(), PlanError> {
    let base = kind.template();
    if !edit.get("/spec").is_some_and(Value::is_object) {
        return Err(malformed(&format!("{base}/spec"), "a pod spec").into());
    }
    for list in CONTAINER_LISTS.into_iter().chain(["/spec/volumes"]) {
        if edit.get(list).is_some_and(|value| !value.is_array() && !value.is_null()) {
            return Err(malformed(&format!("{base}{list}"), "a list").into());
        }
    }
    if edit.list("/spec/containers").is_empty() {
        return Err(SkipReason::NoContainers.into());
    }
    if edit.get("/spec/hostNetwork").and_then(Value::as_bool) == Some(true) {
        return Err(SkipReason::HostNetwork.into());
    }
    if pod::is_windows(edit) {
        return Err(SkipReason::Windows.into());
    }
    let has_item = |list: &str, name: &str| edit.list(list).iter().any(|it| pod::name(it) == name);
    if CONTAINER_LISTS.into_iter().any(|list| has_item(list, sidecar::CONTAINER_NAME)) {
        return Err(SkipReason::ForeignContainer.into());
    }
    if kind.completes() && !config.native {
        return Err(SkipReason::JobNeedsNative.into());
    }
    if config.settings.config.is_some() && has_item("/spec/volumes", sidecar::VOLUME_NAME) {
        return Err(InjectError::VolumeExists { name: sidecar::VOLUME_NAME }.into());
    }
    check_ports(edit, config).map_err(PlanError::from)
}

/// Checks that no container declares the sidecar's ports.
fn check_ports(edit: &Edit, config: &SidecarConfig) -> Result<(), InjectError> {
    for (port, annotation) in config.ports() {
        let declared = CONTAINER_LISTS
            .iter()
            .flat_map(|list| pod::declared_ports(edit, list))
            .find(|declared| declared.number == port);
        if let Some(declared) = declared {
            let container = declared.container_name;
            return Err(InjectError::PortInUse { port, container, annotation });
        }
    }
    Ok(())
}

fn malformed(at: &str, expected: &'static str) -> InjectError {
    let at = if at.is_empty() { "/" } else { at };
    InjectError::Malformed { at: at.to_owned(), expected }
}
