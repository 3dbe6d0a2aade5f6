//! Inbound mode: the sidecar takes over the engine's port. Probes and hooks keep calling the engine.

use serde_json::{Value, json};

use super::annotations::SidecarConfig;
use super::context::{InjectionContext, PodSet, Takeover};
use super::edit::{Edit, Position};
use super::note::ChangeNote;
use super::outcome::InjectError;
use super::pod::{self, DeclaredPort};
use super::providers;
use super::sidecar::{GRACE_AFTER_DRAIN, PodContext, drain_seconds};
use super::value::PortName;

const CONTAINERS: &str = "/spec/containers";

/// The engine's container and port.
struct Engine {
    /// Pointer to the container.
    pointer: String,
    container: String,
    port: u16,
    declared: Option<DeclaredPort>,
}

impl Engine {
    /// Returns whether the declaration of the port stays and gets the sidecar's number. True for a port with a name or
    /// a host port.
    fn keeps_declaration(&self) -> bool {
        self.declared.as_ref().is_some_and(|port| port.name.is_some() || port.has_host_port)
    }
}

/// Changes the engine's container, and returns the facts about the pod that the sidecar needs.
pub(super) fn take_over_port(
    edit: &mut Edit,
    config: &SidecarConfig,
    pods: &PodSet<'_>,
    context: &InjectionContext,
    notes: &mut Vec<ChangeNote>,
) -> Result<(PodContext, Takeover), InjectError> {
    let engine = find_engine(edit, config)?;
    for (port, annotation) in config.ports() {
        if engine.port == port {
            let container = engine.container;
            return Err(InjectError::PortInUse { port, container, annotation });
        }
    }
    note_clients_by_number(&engine, config.listen, pods, context, notes);
    let takeover = if engine.keeps_declaration() {
        take_over_declaration(edit, config, &engine, notes)?
    } else {
        take_over_number(config, &engine, pods, context, notes)?
    };
    add_pre_stop_hook(edit, config, &engine, notes)?;
    raise_grace_period(edit, config, notes)?;
    let pod_context = pod_context(edit, config, &engine, notes);
    Ok((pod_context, takeover))
}

fn find_engine(edit: &Edit, config: &SidecarConfig) -> Result<Engine, InjectError> {
    let ports = pod::declared_ports(edit, CONTAINERS);
    let choices = || ports.iter().map(DeclaredPort::description).collect::<Vec<_>>();
    let is_match = |port: &&DeclaredPort| match &config.settings.port {
        None => true,
        Some(PortName::Name(name)) => port.name.as_ref() == Some(name),
        Some(PortName::Number(number)) => port.number == *number,
    };
    let matches: Vec<&DeclaredPort> = ports.iter().filter(is_match).collect();
    match (matches.as_slice(), &config.settings.port, edit.list(CONTAINERS)) {
        ([port], _, _) => Ok(Engine {
            pointer: format!("{CONTAINERS}/{}", port.container),
            container: port.container_name.clone(),
            port: port.number,
            declared: Some((*port).clone()),
        }),
        // Containers may listen on ports that they do not declare.
        ([], Some(PortName::Number(number)), [only]) => Ok(Engine {
            pointer: format!("{CONTAINERS}/0"),
            container: pod::name(only),
            port: *number,
            declared: None,
        }),
        ([], Some(port), _) => {
            Err(InjectError::NoSuchPort { port: port.to_string(), choices: choices() })
        }
        (_, _, _) => Err(InjectError::AmbiguousPort { choices: choices() }),
    }
}

/// Reports objects of the input that use the engine's port by number.
fn note_clients_by_number(
    engine: &Engine,
    new: u16,
    pods: &PodSet<'_>,
    context: &InjectionContext,
    notes: &mut Vec<ChangeNote>,
) {
    let old = engine.port;
    let services = context.headless_services(pods, engine.declared.as_ref(), old);
    let headless = |service| ChangeNote::HeadlessService { service, port: old };
    notes.extend(services.into_iter().map(headless));
    let pools = context.pools_by_number(pods, old).into_iter();
    notes.extend(pools.map(|pool| ChangeNote::PoolByNumber { pool, old, new }));
    let policies = context.policies_by_number(pods, old).into_iter();
    notes.extend(policies.map(|policy| ChangeNote::PolicyByNumber { policy, old, new }));
}

/// Gives the port's declaration the sidecar's number, and declares the engine's port without a name.
fn take_over_declaration(
    edit: &mut Edit,
    config: &SidecarConfig,
    engine: &Engine,
    notes: &mut Vec<ChangeNote>,
) -> Result<Takeover, InjectError> {
    let (old, new) = (engine.port, config.listen);
    let ports = format!("{}/ports", engine.pointer);
    let declared = engine.declared.as_ref();
    let index = declared.map_or(0, |port| port.index);
    edit.replace(&format!("{ports}/{index}/containerPort"), json!(new))?;
    edit.insert(&ports, Position::Last, vec![json!({ "containerPort": old })])?;
    let name = declared.and_then(|port| port.name.clone());
    if let Some(name) = &name {
        fix_handler_ports(edit, engine, name, notes)?;
    }
    let name = name.unwrap_or_else(|| format!("{old} (a hostPort)"));
    let container = engine.container.clone();
    notes.push(ChangeNote::NamedPortTakenOver { container, name, old, new });
    Ok(Takeover { old, new, updates_services: true })
}

/// Takes over a port without a name. Its Service has to target the sidecar's number.
fn take_over_number(
    config: &SidecarConfig,
    engine: &Engine,
    pods: &PodSet<'_>,
    context: &InjectionContext,
    notes: &mut Vec<ChangeNote>,
) -> Result<Takeover, InjectError> {
    let (old, new) = (engine.port, config.listen);
    let service_updated = context.has_service_by_number(pods, old);
    if !service_updated && !config.listen_is_explicit {
        let headless = context.headless_services(pods, engine.declared.as_ref(), old);
        let headless = headless.into_iter().next();
        return Err(InjectError::UnnamedPort { port: old, headless });
    }
    let container = engine.container.clone();
    notes.push(ChangeNote::NumberedPortTakenOver { container, old, new, service_updated });
    Ok(Takeover { old, new, updates_services: service_updated })
}

/// Replaces the port's name in the engine's probes and hooks with the engine's number, so that they bypass the sidecar.
fn fix_handler_ports(
    edit: &mut Edit,
    engine: &Engine,
    name: &str,
    notes: &mut Vec<ChangeNote>,
) -> Result<(), InjectError> {
    let handlers = [
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle/postStart",
        "lifecycle/preStop",
    ];
    for handler in handlers {
        // gRPC probes support only numbers.
        for action in ["httpGet", "tcpSocket"] {
            let pointer = format!("{}/{handler}/{action}/port", engine.pointer);
            if edit.get(&pointer).and_then(Value::as_str) == Some(name) {
                edit.replace(&pointer, json!(engine.port))?;
                notes.push(ChangeNote::HandlerPortFixed {
                    container: engine.container.clone(),
                    handler: handler.replace('/', "."),
                    name: name.to_owned(),
                    number: engine.port,
                });
            }
        }
    }
    Ok(())
}

/// Adds a preStop hook that waits for the sidecar's last stream, because the kubelet sends SIGTERM to the engine when
/// the hook ends.
fn add_pre_stop_hook(
    edit: &mut Edit,
    config: &SidecarConfig,
    engine: &Engine,
    notes: &mut Vec<ChangeNote>,
) -> Result<(), InjectError> {
    let container = engine.container.clone();
    let hook = edit.get(&format!("{}/lifecycle/preStop", engine.pointer));
    if hook.is_some_and(|hook| !hook.is_null()) {
        notes.push(ChangeNote::PreStopKept { container });
        return Ok(());
    }
    let hook = json!({ "httpGet": { "path": "/drained", "port": config.admin } });
    edit.put_in(&engine.pointer, "lifecycle", "preStop", hook)?;
    notes.push(ChangeNote::PreStopSet { container });
    Ok(())
}

fn raise_grace_period(
    edit: &mut Edit,
    config: &SidecarConfig,
    notes: &mut Vec<ChangeNote>,
) -> Result<(), InjectError> {
    let to = drain_seconds(config).saturating_add(GRACE_AFTER_DRAIN);
    let from = edit.get("/spec/terminationGracePeriodSeconds").and_then(Value::as_u64);
    if from.is_none_or(|from| from < to) {
        edit.put("/spec", "terminationGracePeriodSeconds", json!(to))?;
        notes.push(ChangeNote::GracePeriodRaised { from, to });
    }
    Ok(())
}

fn pod_context(
    edit: &Edit,
    config: &SidecarConfig,
    engine: &Engine,
    notes: &mut Vec<ChangeNote>,
) -> PodContext {
    let mut provider = config.settings.provider.as_ref().map(|name| name.as_str().to_owned());
    if provider.is_none() && config.settings.config.is_none() {
        let detected = edit.get(&engine.pointer).and_then(pod::engine_provider);
        if let Some(detected) = detected {
            let container = engine.container.clone();
            notes.push(ChangeNote::ProviderDetected { provider: detected, container });
        }
        provider = detected.map(str::to_owned);
    }
    let url = format!("http://127.0.0.1:{}", engine.port);
    let upstream = if !config.settings.upstream.is_empty() {
        Some(providers::upstream_flag(&config.settings.upstream))
    } else if let Some(name) = &config.settings.config {
        let config = name.to_string();
        notes.push(ChangeNote::ConfigMapRouting { config, upstream: Some(url) });
        None
    } else {
        Some(url)
    };
    PodContext {
        upstream,
        provider,
        declares_listen_port: !engine.keeps_declaration(),
        grace_period: pod::grace_period(edit),
        owner: Vec::new(),
    }
}
