//! The result for one object: a patch, a reason to skip the object, or an error that the owner of the object
//! must fix.

use json_patch::Patch;
use serde_json::Value;

/// The result of [`inject`](super::inject) or [`uninject`](super::uninject) for one object.
pub type Outcome = Result<Change, NoChange>;

/// A note on a change to an object, or on a problem of the object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChangeNote {
    pub text: String,
    /// Whether the user should check the object. For example, requests may bypass the sidecar, or a change was
    /// not undone.
    pub is_warning: bool,
}

/// A changed object, with the patch and notes on the changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub value: Value,
    /// Patch that was applied. Never empty, and contains only add, replace and remove operations.
    pub patch: Patch,
    pub notes: Vec<ChangeNote>,
}

/// Reason why an object is not changed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(transparent)]
pub enum NoChange {
    /// The object has no error and needs no change.
    Skipped(#[from] SkipReason),
    /// The object has an error.
    Refused(#[from] InjectError),
}

/// Reason why an object is left unchanged.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SkipReason {
    /// The object is neither of a kind that runs pods nor a Service that targets a taken-over port.
    #[error("it is not a workload")]
    NotAWorkload,
    /// The kind is not supported but contains a pod template.
    #[error(
        "inject does not support {kind}, whose pods another controller creates; set the annotation tokengauge.dev/mode \
         on its pod template and run the webhook (`tokengauge injector`)"
    )]
    CustomKind { kind: String },
    #[error("Kubernetes 1.16 removed {kind}; use apiVersion: apps/v1")]
    RemovedApi { kind: String },
    #[error("--only does not select it")]
    NotSelected,
    /// The flag `--mode inbound` applies to all workloads, but this workload runs no known inference engine.
    #[error(
        "its image and command match no known engine, and the input has other workloads; if it is an engine, select it \
         with --only or set the annotation tokengauge.dev/mode: inbound on its pod template"
    )]
    NoEngine,
    #[error(
        "no sidecar is requested; set --mode, or the annotation tokengauge.dev/mode on the pod template"
    )]
    NotRequested,
    #[error("tokengauge.dev/inject: disabled")]
    OptedOut,
    #[error("it already has this sidecar")]
    AlreadyInjected,
    #[error("it has no sidecar to remove")]
    NotInjected,
    #[error("it has no containers")]
    NoContainers,
    #[error(
        "hostNetwork is set, so the sidecar's ports would conflict with those of the node; run tokengauge as a gateway \
         instead"
    )]
    HostNetwork,
    #[error("the pod runs on Windows, and tokengauge has no Windows image")]
    Windows,
    #[error(
        "it has a container named tokengauge that inject did not add; rename or remove that container"
    )]
    ForeignContainer,
    #[error(
        "a plain sidecar container would keep the Job from completing; remove native: false (native sidecars need \
         Kubernetes 1.29)"
    )]
    JobNeedsNative,
    /// The object was read from a cluster, and another object manages it.
    /// [`ClusterObject`](super::ClusterObject) reports all such objects together.
    #[error("another object manages it and would overwrite the change")]
    Controlled,
}

impl SkipReason {
    /// Returns the identifier of this reason in metrics, events and audit annotations.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::NotAWorkload => "not_a_workload",
            Self::CustomKind { .. } => "custom_kind",
            Self::RemovedApi { .. } => "former_kind",
            Self::NotSelected => "not_named",
            Self::NoEngine => "no_engine",
            Self::NotRequested => "not_asked",
            Self::OptedOut => "opted_out",
            Self::AlreadyInjected => "already_injected",
            Self::NotInjected => "not_injected",
            Self::NoContainers => "no_containers",
            Self::HostNetwork => "host_network",
            Self::Windows => "windows",
            Self::ForeignContainer => "foreign_container",
            Self::JobNeedsNative => "job_needs_native",
            Self::Controlled => "owned",
        }
    }

    /// Returns whether the command line reports this reason. For example, a message for every ConfigMap would
    /// be noise.
    pub const fn is_reported(&self) -> bool {
        !matches!(self, Self::NotAWorkload | Self::NotSelected | Self::Controlled)
    }
}

/// An error in an object. The message names the location of the error and the fix.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InjectError {
    #[error("{name}: unknown annotation; did you mean tokengauge.dev/{nearest}?")]
    UnknownAnnotation { name: String, nearest: &'static str },
    #[error("tokengauge.dev/{name}: {message}")]
    InvalidAnnotation { name: &'static str, message: String },
    #[error(
        "tokengauge.dev/{name}: the injector does not allow this annotation (--pin); remove it"
    )]
    PinnedAnnotation { name: &'static str },
    #[error(
        "{name} is set on the object itself, where it has no effect; move it to the metadata of the pod template"
    )]
    MisplacedAnnotation { name: String },
    #[error(
        "tokengauge.dev/inject: enabled needs a mode; add tokengauge.dev/mode: inbound (in front of an engine) or \
         outbound (next to an application)"
    )]
    MissingMode,
    #[error(
        "no image for the sidecar; build one with deploy/docker/Dockerfile, and pass --image \
         registry.example.com/tokengauge:VERSION, or set TOKENGAUGE_IMAGE or the annotation tokengauge.dev/image"
    )]
    MissingImage,
    /// The user gives no port, and the pod declares either no port or several.
    #[error("{}", ambiguous_port(choices))]
    AmbiguousPort { choices: Vec<String> },
    #[error("no container declares TCP port {port}; {}", choose_one(choices))]
    NoSuchPort { port: String, choices: Vec<String> },
    #[error("tokengauge.dev/containers: no container is named {name}; {}", choose_one(choices))]
    NoSuchContainer { name: String, choices: Vec<String> },
    #[error(
        "container {container} already uses port {port}; choose another port for the sidecar with the annotation \
         tokengauge.dev/{annotation} (or --{annotation})"
    )]
    PortInUse { port: u16, container: String, annotation: &'static str },
    #[error("listen-port and admin-port are both {port}; choose two different ports")]
    PortConflict { port: u16 },
    /// The engine's port has no name, so a Service can target the port only by number.
    #[error("{}", unnamed_port(*port, headless.as_deref()))]
    UnnamedPort {
        port: u16,
        /// The headless Service of the input that targets the port.
        headless: Option<String>,
    },
    #[error(
        "the Service also targets port {port} of {workload}, which gets no sidecar; narrow its selector or inject both"
    )]
    SharedService { workload: String, port: u16 },
    #[error("the pod already has a volume named {name}; rename it")]
    VolumeExists { name: &'static str },
    #[error(
        "the annotation tokengauge.dev/injected cannot be read ({message}); start from the original manifest"
    )]
    UnreadableRecord { message: String },
    /// The structure of the object is invalid, so an API server would reject it.
    #[error(
        "{at}: expected {expected}; if this is a kustomize patch, pass the output of `kubectl kustomize` instead"
    )]
    Malformed { at: String, expected: &'static str },
}

impl InjectError {
    /// Returns the identifier of this error in metrics, events and audit annotations.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::UnknownAnnotation { .. } => "unknown_annotation",
            Self::InvalidAnnotation { .. } => "wrong_annotation",
            Self::PinnedAnnotation { .. } => "pinned_annotation",
            Self::MisplacedAnnotation { .. } => "misplaced_annotation",
            Self::MissingMode => "mode_unknown",
            Self::MissingImage => "image_unknown",
            Self::AmbiguousPort { .. } => "port_unclear",
            Self::NoSuchPort { .. } => "no_such_port",
            Self::NoSuchContainer { .. } => "no_such_container",
            Self::PortInUse { .. } => "port_declared",
            Self::PortConflict { .. } => "same_ports",
            Self::UnnamedPort { .. } => "numbered_port",
            Self::SharedService { .. } => "shared_service",
            Self::VolumeExists { .. } => "volume_exists",
            Self::UnreadableRecord { .. } => "broken_record",
            Self::Malformed { .. } => "malformed",
        }
    }
}

fn ambiguous_port(choices: &[String]) -> String {
    if choices.is_empty() {
        return "no container declares a TCP port; set the engine's port with the annotation tokengauge.dev/port (or \
                --port), or exclude this workload with tokengauge.dev/inject: disabled or --only"
            .to_owned();
    }
    format!(
        "several TCP ports are declared; choose the engine's with the annotation tokengauge.dev/port (or --port): {}",
        choices.join(", ")
    )
}

fn unnamed_port(port: u16, headless: Option<&str>) -> String {
    match headless {
        Some(service) => format!(
            "the engine's port {port} has no name, and Service {service} is headless: its clients connect to port \
             {port} of the pod directly and bypass the sidecar; use a Service with a cluster IP, or point its clients \
             to the sidecar's port and set the annotation tokengauge.dev/listen-port"
        ),
        None => format!(
            "the engine's port {port} has no name, and no Service in this input targets it by number; add the Service \
             to the input, name the port, or point the Service to the sidecar yourself and set the annotation \
             tokengauge.dev/listen-port"
        ),
    }
}

fn choose_one(choices: &[String]) -> String {
    if choices.is_empty() {
        "the pod declares none".to_owned()
    } else {
        format!("choose one of {}", choices.join(", "))
    }
}
