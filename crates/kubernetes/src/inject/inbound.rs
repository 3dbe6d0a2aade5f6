//! Beside an engine: its port is taken over, its probes and hooks stay its own.

use serde_json::{Value, json};

use super::annotations::Wanted;
use super::edit::Edit;
use super::engine;
use super::note::Note;
use super::outcome::Problem;
use super::pod::{self, Declared};
use super::services::{Around, Selected};
use super::sidecar::{AFTER_DRAIN, Place, drain};
use super::value::PortName;
use super::vendors::routes;

const CONTAINERS: &str = "/spec/containers";

/// A port that was taken over: what Services must know.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Takeover {
    pub(super) old: u16,
    pub(super) new: u16,
    /// Whether Services in the input may have to be led to the new number: not where somebody has seen to it.
    pub(super) leads: bool,
}

/// The engine: its container, and its port as that declares it.
struct Engine {
    container: usize,
    name: String,
    port: u16,
    declared: Option<Declared>,
}

/// Changes the engine's container, and says what the sidecar is to do.
pub(super) fn take_over(
    edit: &mut Edit,
    wanted: &Wanted,
    (pods, around): (&Selected<'_>, &Around),
    notes: &mut Vec<Note>,
) -> Result<(Place, Takeover), Problem> {
    let engine = engine(edit, wanted)?;
    for (port, annotation) in [(wanted.listen, "listen-port"), (wanted.admin, "admin-port")] {
        if engine.port == port {
            return Err(Problem::PortDeclared { port, container: engine.name, annotation });
        }
    }
    let takeover = renumber(edit, wanted, &engine, (pods, around), notes)?;
    hold(edit, wanted, &engine, notes)?;
    let needed = drain(wanted).saturating_add(AFTER_DRAIN);
    let said = edit.get("/spec/terminationGracePeriodSeconds").and_then(Value::as_u64);
    if said.is_none_or(|said| said < needed) {
        edit.put("/spec", "terminationGracePeriodSeconds", json!(needed))?;
        notes.push(Note::GraceRaised { from: said, to: needed });
    }
    let container = edit.get(&format!("{CONTAINERS}/{}", engine.container)).unwrap_or(&Value::Null);
    let guessed = engine::provider(container)
        .filter(|_| wanted.provider.is_none() && wanted.config.is_none());
    if let Some(provider) = guessed {
        notes.push(Note::ProviderGuessed { provider, container: engine.name.clone() });
    }
    let said = wanted.provider.as_ref().map(|name| name.as_str().to_owned());
    let url = format!("http://127.0.0.1:{}", engine.port);
    let upstream = match &wanted.config {
        _ if !wanted.upstream.is_empty() => Some(routes(&wanted.upstream)),
        None => Some(url),
        Some(config) => {
            notes.push(Note::ConfigRules { config: config.to_string(), upstream: Some(url) });
            None
        }
    };
    let place = Place {
        upstream,
        provider: said.or_else(|| guessed.map(str::to_owned)),
        declares_listen: !renames(&engine),
        grace: pod::grace(edit),
        owner: Vec::new(),
    };
    Ok((place, takeover))
}

/// Whether the name (or the node's port) of the declaration is kept, and its number changed.
fn renames(engine: &Engine) -> bool {
    engine.declared.as_ref().is_some_and(|port| port.name.is_some() || port.on_host)
}

fn engine(edit: &Edit, wanted: &Wanted) -> Result<Engine, Problem> {
    let ports = pod::ports(edit, CONTAINERS);
    let choices = || ports.iter().map(Declared::choice).collect::<Vec<_>>();
    let fits: Vec<&Declared> = match &wanted.port {
        None => ports.iter().collect(),
        Some(PortName::Name(name)) => {
            ports.iter().filter(|port| port.name.as_ref() == Some(name)).collect()
        }
        Some(PortName::Number(number)) => {
            ports.iter().filter(|port| port.number == *number).collect()
        }
    };
    match (fits.as_slice(), &wanted.port, edit.list(CONTAINERS)) {
        ([port], _, _) => Ok(Engine {
            container: port.container,
            name: port.container_name.clone(),
            port: port.number,
            declared: Some((*port).clone()),
        }),
        // A container need not declare where it listens.
        ([], Some(PortName::Number(number)), [only]) => {
            Ok(Engine { container: 0, name: pod::name(only), port: *number, declared: None })
        }
        ([], Some(port), _) => {
            Err(Problem::NoSuchPort { port: port.to_string(), choices: choices() })
        }
        (_, _, _) => Err(Problem::PortUnclear { choices: choices() }),
    }
}

fn renumber(
    edit: &mut Edit,
    wanted: &Wanted,
    engine: &Engine,
    (pods, around): (&Selected<'_>, &Around),
    notes: &mut Vec<Note>,
) -> Result<Takeover, Problem> {
    let (old, new) = (engine.port, wanted.listen);
    let container = engine.name.clone();
    let headless = around.headless(pods, engine.declared.as_ref(), old);
    let one_headless = headless.first().cloned();
    for service in headless {
        notes.push(Note::Headless { service, port: old });
    }
    for pool in around.pools(pods, old) {
        notes.push(Note::PoolByNumber { pool, old, new });
    }
    for policy in around.policies(pods, old) {
        notes.push(Note::PolicyByNumber { policy, old, new });
    }
    if let Some(port) = engine.declared.as_ref().filter(|_| renames(engine)) {
        let ports = format!("{CONTAINERS}/{}/ports", engine.container);
        edit.replace(&format!("{ports}/{}/containerPort", port.index), json!(new))?;
        edit.insert(&ports, false, vec![json!({ "containerPort": old })])?;
        if let Some(name) = &port.name {
            move_handlers(edit, engine, name, notes)?;
        }
        let name = port.name.clone().unwrap_or_else(|| format!("{old} (a hostPort)"));
        notes.push(Note::TookNamedPort { container, name, old, new });
        return Ok(Takeover { old, new, leads: true });
    }
    let led = around.leads_by_number(pods, old);
    if !led && !wanted.listen_said {
        return Err(Problem::NumberedPort { port: old, headless: one_headless });
    }
    notes.push(Note::TookNumberedPort { container, old, new, seen_to: !led });
    Ok(Takeover { old, new, leads: led })
}

/// Probes and hooks of the engine name its port: they get its number, so that they still ask the engine.
fn move_handlers(
    edit: &mut Edit,
    engine: &Engine,
    name: &str,
    notes: &mut Vec<Note>,
) -> Result<(), Problem> {
    let handlers = [
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle/postStart",
        "lifecycle/preStop",
    ];
    for handler in handlers {
        // A gRPC probe knows no names.
        for action in ["httpGet", "tcpSocket"] {
            let pointer = format!("{CONTAINERS}/{}/{handler}/{action}/port", engine.container);
            if edit.get(&pointer).and_then(Value::as_str) == Some(name) {
                edit.replace(&pointer, json!(engine.port))?;
                notes.push(Note::HandlerMoved {
                    container: engine.name.clone(),
                    handler: handler.replace('/', "."),
                    name: name.to_owned(),
                    number: engine.port,
                });
            }
        }
    }
    Ok(())
}

/// The kubelet sends the engine SIGTERM when its preStop has ended: when the sidecar has no stream left.
fn hold(
    edit: &mut Edit,
    wanted: &Wanted,
    engine: &Engine,
    notes: &mut Vec<Note>,
) -> Result<(), Problem> {
    let container = format!("{CONTAINERS}/{}", engine.container);
    let name = engine.name.clone();
    let lifecycle = format!("{container}/lifecycle");
    if edit.get(&format!("{lifecycle}/preStop")).is_some_and(|hook| !hook.is_null()) {
        notes.push(Note::PreStopKept { container: name });
        return Ok(());
    }
    edit.put_in(
        &container,
        "lifecycle",
        "preStop",
        json!({ "httpGet": { "path": "/drained", "port": wanted.admin } }),
    )?;
    notes.push(Note::PreStopSet { container: name });
    Ok(())
}
