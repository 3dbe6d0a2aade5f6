//! Inbound mode: the sidecar takes over the port of the inference engine. Probes and lifecycle hooks keep
//! calling the engine directly.

use serde_json::{Value, json};

use super::annotations::SidecarConfig;
use super::context::{InjectionContext, PodSet, Takeover};
use super::edit::Edit;
use super::kind::text;
use super::outcome::InjectError;
use super::pod::{self, DeclaredPort};
use super::providers;
use super::sidecar::{GRACE_AFTER_DRAIN, PodContext, drain_seconds};

const CONTAINERS: &str = "/spec/containers";

/// Container of the inference engine, and the port on which the engine listens.
struct Engine {
    /// Pointer to the container.
    pointer: String,
    container: String,
    port: u16,
    declared: Option<DeclaredPort>,
}

impl Engine {
    /// Returns whether the existing port declaration stays and is changed to the sidecar's number. True for a
    /// port with a name or a host port.
    fn keeps_declaration(&self) -> bool {
        self.declared.as_ref().is_some_and(|port| port.name.is_some() || port.has_host_port)
    }
}

/// Changes the engine's container so that the sidecar takes over its port. Returns the facts about the pod that
/// the sidecar needs, and the port.
pub(super) fn take_over_port(
    edit: &mut Edit,
    config: &SidecarConfig,
    pods: &PodSet,
    context: &InjectionContext,
) -> Result<(PodContext, Option<Takeover>), InjectError> {
    let engine = find_engine(edit, config)?;
    for (port, annotation) in config.ports() {
        if engine.port == port {
            let container = engine.container;
            return Err(InjectError::PortInUse { port, container, annotation });
        }
    }
    warn_of_clients_by_number(edit, &engine, config.listen, pods, context);
    let updates_services = if engine.keeps_declaration() {
        take_over_declaration(edit, config, &engine)?;
        true
    } else {
        take_over_number(edit, config, &engine, pods, context)?
    };
    add_pre_stop_hook(edit, config, &engine)?;
    raise_grace_period(edit, config)?;
    let takeover = Takeover { old: engine.port, new: config.listen, updates_services };
    Ok((pod_context(edit, config, &engine), Some(takeover)))
}

fn find_engine(edit: &Edit, config: &SidecarConfig) -> Result<Engine, InjectError> {
    let ports = pod::declared_ports(edit, CONTAINERS);
    let choices = || ports.iter().map(DeclaredPort::description).collect::<Vec<_>>();
    let port = config.settings.port.as_deref();
    let number = port.and_then(|port| port.parse().ok());
    let is_match = |declared: &&DeclaredPort| {
        port.is_none() || Some(declared.number) == number || declared.name.as_deref() == port
    };
    let matches: Vec<&DeclaredPort> = ports.iter().filter(is_match).collect();
    match (matches.as_slice(), port, edit.list(CONTAINERS)) {
        ([declared], _, _) => Ok(Engine {
            pointer: format!("{CONTAINERS}/{}", declared.container),
            container: declared.container_name.clone(),
            port: declared.number,
            declared: Some((*declared).clone()),
        }),
        ([], Some(port), containers) => match (number, containers) {
            // A container may listen on ports that it does not declare.
            (Some(port), [only]) => Ok(Engine {
                pointer: format!("{CONTAINERS}/0"),
                container: pod::name(only),
                port,
                declared: None,
            }),
            _ => Err(InjectError::NoSuchPort { port: port.to_owned(), choices: choices() }),
        },
        (_, _, _) => Err(InjectError::AmbiguousPort { choices: choices() }),
    }
}

/// Adds warnings about objects of the input that refer to the engine's port by number.
fn warn_of_clients_by_number(
    edit: &mut Edit,
    engine: &Engine,
    new: u16,
    pods: &PodSet,
    context: &InjectionContext,
) {
    let old = engine.port;
    for service in context.headless_services(pods, engine.declared.as_ref(), old) {
        edit.warn(format!(
            "Service {service} is headless: its clients connect to port {old} of the pod directly and bypass the sidecar"
        ));
    }
    for pool in context.pools_by_number(pods, old) {
        edit.warn(format!(
            "InferencePool {pool} connects to port {old} of the pod directly and bypasses the sidecar; change its port \
             to {new}"
        ));
    }
    for policy in context.policies_by_number(pods, old) {
        edit.warn(format!(
            "NetworkPolicy {policy} allows port {old} by number; allow {new} too, or no client reaches the sidecar"
        ));
    }
}

/// Changes the port's declaration to the sidecar's number, and declares the engine's own port without a name.
fn take_over_declaration(
    edit: &mut Edit,
    config: &SidecarConfig,
    engine: &Engine,
) -> Result<(), InjectError> {
    let (old, new) = (engine.port, config.listen);
    let ports = format!("{}/ports", engine.pointer);
    let declared = engine.declared.as_ref();
    let index = declared.map_or(0, |port| port.index);
    edit.replace(&format!("{ports}/{index}/containerPort"), json!(new))?;
    edit.insert(&format!("{ports}/-"), vec![json!({ "containerPort": old })])?;
    let name = declared.and_then(|port| port.name.clone());
    if let Some(name) = &name {
        fix_handler_ports(edit, engine, name)?;
    }
    let name = name.unwrap_or_else(|| format!("{old} (a hostPort)"));
    edit.note(format!(
        "port {name} of container {} now points to the sidecar ({new}), which forwards to {old}; a Service outside \
         this input that targets {old} by number bypasses the sidecar",
        engine.container
    ));
    Ok(())
}

/// Takes over a port without a name. The Service must target the number of the sidecar's port. Returns whether
/// a Service of the input is changed. If false, the user must change the Service.
fn take_over_number(
    edit: &mut Edit,
    config: &SidecarConfig,
    engine: &Engine,
    pods: &PodSet,
    context: &InjectionContext,
) -> Result<bool, InjectError> {
    let (old, new) = (engine.port, config.listen);
    let updates_services = context.has_service_by_number(pods, old);
    if !updates_services && !config.listen_is_explicit {
        let headless = context.headless_services(pods, engine.declared.as_ref(), old);
        let headless = headless.into_iter().next();
        return Err(InjectError::UnnamedPort { port: old, headless });
    }
    let service = if updates_services {
        format!("the Service in this input now targets {new}")
    } else {
        format!("make sure that its Service targets {new}")
    };
    edit.note(format!(
        "the sidecar listens on {new} and forwards to port {old} of container {}; {service}",
        engine.container
    ));
    Ok(updates_services)
}

/// Replaces the port name in the engine's probes and hooks with the engine's port number. Probes and hooks then
/// bypass the sidecar.
fn fix_handler_ports(edit: &mut Edit, engine: &Engine, name: &str) -> Result<(), InjectError> {
    let Engine { pointer, container, port, .. } = engine;
    let handlers = [
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle/postStart",
        "lifecycle/preStop",
    ];
    for handler in handlers {
        // gRPC probes support only port numbers, not names.
        for action in ["httpGet", "tcpSocket"] {
            let pointer = format!("{pointer}/{handler}/{action}/port");
            if text(edit.template(), &pointer) == Some(name) {
                edit.replace(&pointer, json!(port))?;
                edit.note(format!(
                    "{} of container {container} still calls the engine: its port is {port} instead of {name}",
                    handler.replace('/', ".")
                ));
            }
        }
    }
    Ok(())
}

/// Adds a preStop hook that waits until the sidecar's last stream ends. The kubelet sends SIGTERM to the engine
/// when the hook ends.
fn add_pre_stop_hook(
    edit: &mut Edit,
    config: &SidecarConfig,
    engine: &Engine,
) -> Result<(), InjectError> {
    let Engine { pointer, container, .. } = engine;
    let hook = edit.get(&format!("{pointer}/lifecycle/preStop"));
    if hook.is_some_and(|hook| !hook.is_null()) {
        edit.note(format!(
            "container {container} keeps its own preStop hook, and the engine stops when that hook ends; let the hook \
             wait for GET /drained on the sidecar's admin port, or open streams may be cut off"
        ));
        return Ok(());
    }
    let hook = json!({ "httpGet": { "path": "/drained", "port": config.admin } });
    edit.put_in(pointer, "lifecycle", "preStop", hook)?;
    edit.note(format!(
        "container {container} gets a preStop hook that waits until the sidecar has no requests in flight"
    ));
    Ok(())
}

fn raise_grace_period(edit: &mut Edit, config: &SidecarConfig) -> Result<(), InjectError> {
    let to = drain_seconds(config).saturating_add(GRACE_AFTER_DRAIN);
    let from = edit.get("/spec/terminationGracePeriodSeconds").and_then(Value::as_u64);
    if from.is_none_or(|from| from < to) {
        edit.put("/spec", "terminationGracePeriodSeconds", json!(to))?;
        let from = from.map_or_else(|| "the default of 30".to_owned(), |from| from.to_string());
        edit.note(format!("terminationGracePeriodSeconds is raised to {to}, from {from}"));
    }
    Ok(())
}

fn pod_context(edit: &mut Edit, config: &SidecarConfig, engine: &Engine) -> PodContext {
    let settings = &config.settings;
    let mut provider = settings.provider.clone();
    if provider.is_none() && settings.config.is_none() {
        let detected = edit.get(&engine.pointer).and_then(pod::engine_provider);
        if let Some(detected) = detected {
            edit.note(format!(
                "container {} looks like {detected}; if it is another engine, set the annotation \
                 tokengauge.dev/provider",
                engine.container
            ));
        }
        provider = detected.map(str::to_owned);
    }
    let url = format!("http://127.0.0.1:{}", engine.port);
    let upstream = if !settings.upstream.is_empty() {
        Some(providers::upstream_flag(&settings.upstream))
    } else if let Some(name) = &settings.config {
        edit.note(format!(
            "tokengauge.yaml in ConfigMap {name} defines the upstreams, their provider and the engine metrics; its \
             upstream must be {url}"
        ));
        None
    } else {
        Some(url)
    };
    PodContext { upstream, provider, declares_listen_port: !engine.keeps_declaration() }
}
