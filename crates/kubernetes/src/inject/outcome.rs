//! What came of an object: a patch with what it does, a reason to leave it alone, or a problem that its owner must solve.

use std::fmt;

use json_patch::Patch;

use super::note::Note;

/// What [`inject`](super::inject) and [`uninject`](super::uninject) make of one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The patch is never empty; it adds, replaces and removes, nothing else.
    Changed { patch: Patch, notes: Vec<Note> },
    /// Nothing is to be done, and nothing is wrong.
    Skipped(Reason),
    /// Nothing is done because something is wrong.
    Refused(Problem),
}

/// Why an object was left as it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reason {
    /// No kind that runs pods, and no Service that leads to a port that was taken over.
    NotAWorkload,
    /// A kind that this program does not know, with a pod template in it.
    CustomKind {
        kind: String,
    },
    /// A kind in a group that Kubernetes has given up.
    FormerKind {
        kind: String,
    },
    /// `--only` names others.
    NotNamed,
    /// Inbound for all by a flag, and this one is no engine that is known.
    NoEngine,
    /// Neither the command line nor an annotation asks for a sidecar.
    NotAsked,
    /// `tokengauge.dev/inject: disabled`.
    OptedOut,
    /// It has just the sidecar that it should have.
    AlreadyInjected,
    /// There is nothing to take back.
    NotInjected,
    NoContainers,
    /// The pod's ports are its node's ports.
    HostNetwork,
    /// There is no image for Windows.
    Windows,
    /// A container called `tokengauge` that was not written by `inject`.
    ForeignContainer,
    /// A plain container would keep the Job from completing.
    JobNeedsNative,
    /// A cluster runs it, and another object makes it: see [`Live`](super::Live), which tells it of all of them together.
    Owned,
}

impl Reason {
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::NotAWorkload => "not_a_workload",
            Self::CustomKind { .. } => "custom_kind",
            Self::FormerKind { .. } => "former_kind",
            Self::NotNamed => "not_named",
            Self::NoEngine => "no_engine",
            Self::NotAsked => "not_asked",
            Self::OptedOut => "opted_out",
            Self::AlreadyInjected => "already_injected",
            Self::NotInjected => "not_injected",
            Self::NoContainers => "no_containers",
            Self::HostNetwork => "host_network",
            Self::Windows => "windows",
            Self::ForeignContainer => "foreign_container",
            Self::JobNeedsNative => "job_needs_native",
            Self::Owned => "owned",
        }
    }
}

impl Reason {
    /// Whether a person wants to hear of it: not of each ConfigMap that runs no pods.
    pub const fn is_told(&self) -> bool {
        !matches!(self, Self::NotAWorkload | Self::NotNamed | Self::Owned)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAWorkload => f.write_str("it runs no pods"),
            Self::CustomKind { kind } => write!(
                f,
                "its pods are made by another controller, whose kind {kind} inject does not know; put the annotation \
                 tokengauge.dev/mode on its pod template and let the webhook (`tokengauge injector`) see the pods"
            ),
            Self::FormerKind { kind } => write!(
                f,
                "no cluster since Kubernetes 1.16 has {kind}; write apiVersion: apps/v1"
            ),
            Self::NotNamed => f.write_str("--only names others"),
            Self::NoEngine => f.write_str(
                "no engine is known by its image or command, and it is not alone in this input; if it is one, name it by \
                 --only, or put the annotation tokengauge.dev/mode: inbound on its pod template",
            ),
            Self::NotAsked => f.write_str(
                "nothing asks for a sidecar; give --mode, or the annotation tokengauge.dev/mode on the pod template",
            ),
            Self::OptedOut => f.write_str("tokengauge.dev/inject: disabled"),
            Self::AlreadyInjected => f.write_str("it has this sidecar already"),
            Self::NotInjected => f.write_str("it has no sidecar of ours"),
            Self::NoContainers => f.write_str("it has no containers"),
            Self::HostNetwork => f.write_str(
                "hostNetwork: the sidecar's ports would be the node's, and collide; run tokengauge as a gateway instead",
            ),
            Self::Windows => f.write_str("the pod runs on Windows, for which there is no image"),
            Self::ForeignContainer => f.write_str(
                "it has a container called tokengauge that `inject` has not written; rename or remove that one",
            ),
            Self::JobNeedsNative => f.write_str(
                "as a plain container the sidecar would keep the Job from completing; leave out native: false \
                 (Kubernetes 1.29 and later)",
            ),
            Self::Owned => f.write_str("another object makes it, and anew without this"),
        }
    }
}

/// What is wrong with an object, where, and what to do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Problem {
    UnknownAnnotation {
        name: String,
        nearest: &'static str,
    },
    WrongAnnotation {
        name: &'static str,
        wrong: String,
    },
    /// On the Deployment (or the like) instead of on its pods.
    MisplacedAnnotation {
        name: String,
    },
    /// `inject: enabled` without a word on which side.
    ModeUnknown,
    /// No port is given, and the pod declares none or several.
    PortUnclear {
        choices: Vec<String>,
    },
    NoSuchPort {
        port: String,
        choices: Vec<String>,
    },
    NoSuchContainer {
        name: String,
        choices: Vec<String>,
    },
    /// A container declares the port that the sidecar wants.
    PortDeclared {
        port: u16,
        container: String,
        annotation: &'static str,
    },
    SamePorts {
        port: u16,
    },
    /// The engine's port has no name, so a Service can only lead to it by its number.
    NumberedPort {
        port: u16,
        /// The Service that does, where its clients dial the pod itself.
        headless: Option<String>,
    },
    /// A Service also leads to pods whose port was not taken over.
    SharedService {
        workload: String,
        port: u16,
    },
    VolumeExists {
        name: &'static str,
    },
    /// The annotation that says what to take back cannot be read.
    BrokenRecord {
        wrong: String,
    },
    /// The object is none that an API server would accept.
    Malformed {
        at: String,
        expected: &'static str,
    },
}

impl Problem {
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::UnknownAnnotation { .. } => "unknown_annotation",
            Self::WrongAnnotation { .. } => "wrong_annotation",
            Self::MisplacedAnnotation { .. } => "misplaced_annotation",
            Self::ModeUnknown => "mode_unknown",
            Self::PortUnclear { .. } => "port_unclear",
            Self::NoSuchPort { .. } => "no_such_port",
            Self::NoSuchContainer { .. } => "no_such_container",
            Self::PortDeclared { .. } => "port_declared",
            Self::SamePorts { .. } => "same_ports",
            Self::NumberedPort { .. } => "numbered_port",
            Self::SharedService { .. } => "shared_service",
            Self::VolumeExists { .. } => "volume_exists",
            Self::BrokenRecord { .. } => "broken_record",
            Self::Malformed { .. } => "malformed",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownAnnotation { name, nearest } => {
                write!(f, "{name}: there is no such annotation; the nearest is {nearest}")
            }
            Self::WrongAnnotation { name, wrong } => write!(f, "tokengauge.dev/{name}: {wrong}"),
            Self::MisplacedAnnotation { name } => write!(
                f,
                "{name} is on the object itself, where it is without effect; put it into the metadata of the pod template"
            ),
            Self::ModeUnknown => f.write_str(
                "tokengauge.dev/inject: enabled does not say where the sidecar stands; add tokengauge.dev/mode: inbound \
                 (beside an engine) or outbound (beside an application)",
            ),
            Self::PortUnclear { choices } if choices.is_empty() => f.write_str(
                "no container declares a TCP port; say by the annotation tokengauge.dev/port (or --port) where the \
                 engine listens, or, if it is no engine, leave it out by tokengauge.dev/inject: disabled or by --only",
            ),
            Self::PortUnclear { choices } => write!(
                f,
                "there are several TCP ports; choose the engine's by the annotation tokengauge.dev/port (or --port): {}",
                choices.join(", ")
            ),
            Self::NoSuchPort { port, choices } => {
                write!(f, "no container declares the TCP port {port}; {}", one_of(choices))
            }
            Self::NoSuchContainer { name, choices } => {
                write!(f, "tokengauge.dev/containers: there is no container {name}; {}", one_of(choices))
            }
            Self::PortDeclared { port, container, annotation } => write!(
                f,
                "container {container} uses port {port} itself; choose another for the sidecar by the annotation \
                 tokengauge.dev/{annotation} (or --{annotation})"
            ),
            Self::SamePorts { port } => write!(
                f,
                "listen-port and admin-port are both {port}; give the sidecar two ports"
            ),
            Self::NumberedPort { port, headless } => numbered_port(f, *port, headless.as_deref()),
            Self::SharedService { workload, port } => write!(
                f,
                "it leads to port {port} of {workload} too, which gets no sidecar; narrow its selector, or inject both"
            ),
            Self::VolumeExists { name } => {
                write!(f, "the pod has a volume {name} already; rename it")
            }
            Self::BrokenRecord { wrong } => write!(
                f,
                "the annotation tokengauge.dev/injected cannot be read ({wrong}); start from the manifest as it was \
                 before"
            ),
            Self::Malformed { at, expected } => write!(
                f,
                "{at}: expected {expected}; if this is a patch, give inject what `kubectl kustomize` builds"
            ),
        }
    }
}

fn numbered_port(f: &mut fmt::Formatter<'_>, port: u16, headless: Option<&str>) -> fmt::Result {
    match headless {
        Some(service) => write!(
            f,
            "the engine's port {port} has no name, and Service {service}, which leads there, is headless: its clients \
             dial {port} of the pod itself, past any sidecar; give it a Service without clusterIP: None, or lead its \
             clients to the sidecar's port yourself and say so by the annotation tokengauge.dev/listen-port"
        ),
        None => write!(
            f,
            "the engine's port {port} has no name, so its Service leads there by number, and none in this input does; \
             give the Service in the same input, or name the port, or lead the Service to the sidecar yourself and \
             say so by the annotation tokengauge.dev/listen-port"
        ),
    }
}

fn one_of(choices: &[String]) -> String {
    if choices.is_empty() {
        "there is none to choose from".to_owned()
    } else {
        format!("choose one of {}", choices.join(", "))
    }
}
