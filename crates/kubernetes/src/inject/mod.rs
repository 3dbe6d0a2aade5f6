//! Adds the sidecar to Kubernetes objects, and removes it.
//!
//! [`inject`] returns the changes to a workload as a JSON Patch. In inbound mode, the sidecar takes over the port of
//! an inference engine. In outbound mode, environment variables point the SDKs of an application to the sidecar. The
//! annotation [`RECORD_ANNOTATION`] records the changes, so that [`uninject`] can undo them. This module does no I/O:
//! the webhook and the command line provide the objects and apply the patches.

use serde_json::{Value, json};

pub use cluster_object::{ClusterObject, reapply_instructions};
pub use context::InjectionContext;
pub use edit::prefix_patch;
pub(crate) use kind::controller;
pub use kind::{document_objects, object_name};
pub use outcome::{Change, ChangeNote, InjectError, NoChange, Outcome, SkipReason};
pub use record::RECORD_ANNOTATION;
pub use settings::{Mode, OtlpProtocol, RunAsUser, Settings};

use annotations::SidecarConfig;
use context::{PodSet, Takeover};
use edit::Edit;
use kind::WorkloadKind;
use record::Record;
use settings::choice_name;
use sidecar::SidecarPod;

mod annotations;
mod cluster_object;
mod context;
mod edit;
mod inbound;
mod kind;
mod outbound;
mod outcome;
mod pod;
mod providers;
mod quantity;
mod record;
mod resources;
mod settings;
mod sidecar;

/// Plans the injection of a sidecar into one object. For a `List`, call this function for each item (see
/// [`document_objects`]).
pub fn inject(object: &Value, context: &InjectionContext, settings: &Settings) -> Outcome {
    let planned = if kind::is_service(object) {
        context::redirect_service(object, context)
    } else {
        let kind = WorkloadKind::from_object(object).ok_or_else(|| kind::unsupported(object))?;
        if !context.selects(object) {
            return Err(SkipReason::NotSelected.into());
        }
        plan(object, kind, context, settings).map(|(change, _)| change)
    };
    match planned {
        Ok(change) if change.value == *object => Err(SkipReason::AlreadyInjected.into()),
        Ok(_) | Err(NoChange::Refused(_)) if context.skips_controlled(object) => {
            Err(SkipReason::Controlled.into())
        }
        planned => planned,
    }
}

/// Plans the removal of the changes that [`inject`] made to an object.
pub fn uninject(object: &Value) -> Outcome {
    let kind = WorkloadKind::from_object(object);
    let mut edit = Edit::new(object, kind.map_or("", |kind| kind.template));
    edit.note("removes the sidecar and undoes all of its changes");
    let record = Record::from_template(edit.template())
        .transpose()
        .ok_or_else(|| kind.map_or(SkipReason::NotAWorkload, |_| SkipReason::NotInjected))?;
    if cluster_object::is_controlled(object) {
        return Err(SkipReason::Controlled.into());
    }
    edit.undo(&record?)?;
    Ok(edit.into_change())
}

/// Returns the engine's port that the sidecar of a workload takes over. Returns `None` if there is no such port.
fn takeover(
    object: &Value,
    kind: &WorkloadKind,
    context: &InjectionContext,
    settings: &Settings,
) -> Option<Takeover> {
    if !context.selects(object) || context.skips_controlled(object) {
        return None;
    }
    plan(object, kind, context, settings).ok().and_then(|(_, takeover)| takeover)
}

/// Plans the injection. First undoes an earlier injection, if there is one. Returns the change and, in inbound mode,
/// the engine's port that the sidecar takes over.
fn plan(
    object: &Value,
    kind: &WorkloadKind,
    context: &InjectionContext,
    settings: &Settings,
) -> Result<(Change, Option<Takeover>), NoChange> {
    let mut edit = Edit::new(object, kind.template);
    let Some(record) = Record::from_template(edit.template())? else {
        return add_sidecar(edit, kind, context, settings);
    };
    if !context.updates_sidecars {
        return Err(SkipReason::AlreadyInjected.into());
    }
    edit.note("removes the existing sidecar, which has other settings");
    edit.undo(&record)?;
    let mut settings = settings.clone();
    // Keep the port of the earlier injection. A Service may already target this port and may be missing from
    // the input.
    settings.listen_port = settings.listen_port.or(record.listen.filter(|port| *port != 0));
    match add_sidecar(edit, kind, context, &settings) {
        Err(NoChange::Skipped(SkipReason::NotRequested)) => Err(SkipReason::AlreadyInjected.into()),
        planned => planned,
    }
}

/// Adds a sidecar to an object that has none.
fn add_sidecar(
    mut edit: Edit,
    kind: &WorkloadKind,
    context: &InjectionContext,
    settings: &Settings,
) -> Result<(Change, Option<Takeover>), NoChange> {
    if !edit.template().is_object() {
        return Err(malformed(kind.template, "a pod template").into());
    }
    let config = SidecarConfig::resolve(edit.value(), edit.template(), settings)?;
    check_pod(&edit, kind, &config)?;
    if config.mode == Mode::Inbound
        && !config.has_annotations
        && context.has_several_workloads
        && !pod::runs_engine(&edit)
    {
        return Err(SkipReason::NoEngine.into());
    }
    let pods = PodSet::from_object(edit.value(), edit.template());
    let owner = sidecar::owner_attributes(edit.value(), kind);
    let image = &config.image;
    let sidecar_kind = if config.native { "native sidecar" } else { "plain container" };
    edit.note(format!("adds {image} as a {sidecar_kind} ({})", choice_name(config.mode)));
    let (pod_context, takeover) = match config.mode {
        Mode::Inbound => inbound::take_over_port(&mut edit, &config, &pods, context)?,
        Mode::Outbound => (outbound::set_base_urls(&mut edit, &config, &pods, context)?, None),
    };
    if let Some(config_map) = &config.settings.config {
        let source = json!({ "name": config_map });
        let volume = json!({ "name": sidecar::VOLUME_NAME, "configMap": source });
        edit.insert("/spec/volumes/-", vec![volume])?;
    }
    resources::warn_of_lost_guarantee(&mut edit, &config.settings);
    let user = sidecar_user(&mut edit, &config, context.is_on_openshift(&pods));
    let pod = SidecarPod { user, grace_period: pod::grace_period(&edit), owner };
    let container = sidecar::container(&config, &pod_context, &pod);
    let position = if config.native { "/spec/initContainers/0" } else { "/spec/containers/-" };
    edit.insert(position, vec![container])?;
    let change = edit.finish(Some(config.mode), takeover.map(|takeover| takeover.new))?;
    Ok((change, takeover))
}

/// Returns the user of the sidecar. On OpenShift, the sidecar sets no user id, because the security context
/// constraint restricted-v2 accepts only ids of the namespace's range. In a pod that runs as root, the sidecar always has
/// one, because it would inherit root.
fn sidecar_user(edit: &mut Edit, config: &SidecarConfig, is_on_openshift: bool) -> RunAsUser {
    let is_assigned = match config.settings.run_as_user {
        Some(user @ RunAsUser::Id(_)) => return user,
        Some(RunAsUser::Assigned) => true,
        None => is_on_openshift || pod::has_openshift_constraint(edit),
    };
    let user = edit.get("/spec/securityContext/runAsUser").and_then(Value::as_i64);
    match (is_assigned, user) {
        (false, _) => RunAsUser::IMAGE,
        (true, Some(0)) => {
            edit.note("the pod runs as root, so the sidecar keeps its own user id, 65532");
            RunAsUser::IMAGE
        }
        (true, _) => {
            edit.note("the platform assigns the sidecar's user");
            RunAsUser::Assigned
        }
    }
}

/// JSON pointers to the container lists of a pod. All containers of a pod share its ports with the sidecar.
const CONTAINER_LISTS: [&str; 2] = ["/spec/containers", "/spec/initContainers"];

/// Checks that a sidecar can be added to the pod.
fn check_pod(edit: &Edit, kind: &WorkloadKind, config: &SidecarConfig) -> Result<(), NoChange> {
    let base = kind.template;
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
    Ok(check_ports(edit, config)?)
}

/// Checks that no container of the pod declares one of the sidecar's ports.
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
