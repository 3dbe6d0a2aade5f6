//! The result of an injection for one object: a patch, a reason to skip the object, or an error that the user must
//! fix.

use json_patch::Patch;
use serde_json::Value;

/// Warning about a pod whose sidecar probably gets no requests.
pub(super) const NO_CALLER: &str = "no container sends calls to the sidecar";

/// The result of [`inject`](super::inject) or [`uninject`](super::uninject) for one object.
pub type Outcome = Result<Change, NoChange>;

/// A message for the user about a change to an object, or about a problem with the object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChangeNote {
    pub text: String,
    /// Whether the user should check the object, for example because requests may bypass the sidecar.
    pub is_warning: bool,
}

/// A changed object, with the patch and notes on the changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub value: Value,
    /// Patch from the original object to `value`. Never empty, and contains only add, replace and remove operations.
    pub patch: Patch,
    pub notes: Vec<ChangeNote>,
}

impl Change {
    /// Returns whether the sidecar of the object probably gets no requests, because no container has its address.
    pub fn has_unused_sidecar(&self) -> bool {
        self.notes.iter().any(|note| note.text == NO_CALLER)
    }
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
    /// The object runs no pods, and it is not a Service that must be changed to target the sidecar.
    #[error("it is not a workload")]
    NotAWorkload,
    /// The object describes pods, but `inject` does not support its kind.
    #[error(
        "inject does not support {kind}, whose pods another controller creates; set the annotation tokengauge.dev/mode \
         on its pod template and run the webhook (`tokengauge injector`)"
    )]
    CustomKind { kind: String },
    #[error("Kubernetes 1.16 removed {kind}; use apiVersion: apps/v1")]
    RemovedApi { kind: String },
    #[error("--only does not select it")]
    NotSelected,
    /// The workload runs no known inference engine. The flag `--mode inbound` then skips the workload if the input
    /// contains other workloads.
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
    /// The object was read from a cluster, and another object manages it. [`ClusterObject`](super::ClusterObject)
    /// reports all such objects in one message.
    #[error("another object manages it and would overwrite the change")]
    Controlled,
}

impl SkipReason {
    /// Returns the name of this reason in metrics, events and audit annotations, such as `opted_out`.
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

    /// Returns whether the command line prints this reason. A message for every ConfigMap, for example, would be
    /// noise.
    pub const fn is_reported(&self) -> bool {
        !matches!(self, Self::NotAWorkload | Self::NotSelected | Self::Controlled)
    }
}

/// An error in an object. The message names the place of the error and how to fix the error.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InjectError {
    #[error("{name}: unknown annotation; did you mean tokengauge.dev/{nearest}?")]
    UnknownAnnotation { name: String, nearest: &'static str },
    #[error("tokengauge.dev/{name}: {message}")]
    InvalidAnnotation { name: &'static str, message: String },
    #[error(
        "the sidecar's {resource} request exceeds its {resource} limit; lower {resource}-request or raise \
         {resource}-limit"
    )]
    RequestAboveLimit { resource: &'static str },
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
    /// The user gives no port, and the pod declares no port or several ports.
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
    /// The engine's port has no name, and no Service of the input targets the port by number.
    #[error("{}", unnamed_port(*port, headless.as_deref()))]
    UnnamedPort {
        port: u16,
        /// Name of a headless Service of the input that targets the port.
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
    /// The structure of the object is invalid. An API server would reject the object, too.
    #[error(
        "{at}: expected {expected}; if this is a kustomize patch, pass the output of `kubectl kustomize` instead"
    )]
    Malformed { at: String, expected: &'static str },
}

impl InjectError {
    /// Returns the name of this error in metrics, events and audit annotations, such as `unknown_annotation`.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::UnknownAnnotation { .. } => "unknown_annotation",
            Self::InvalidAnnotation { .. } => "wrong_annotation",
            Self::RequestAboveLimit { .. } => "request_above_limit",
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
