//! Inbound mode: the sidecar receives the requests for the port of the inference engine. Health probes and lifecycle
//! hooks still call the engine directly.

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

/// Changes the pod so that requests for the engine's port go to the sidecar. Returns the sidecar settings that depend
/// on the pod, and the ports.
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
    PortTakeover { edit, config, pods, context, engine }.run()
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

/// Changes a pod so that requests for the engine's port go to the sidecar.
struct PortTakeover<'a> {
    edit: &'a mut Edit,
    config: &'a SidecarConfig,
    pods: &'a PodSet,
    context: &'a InjectionContext,
    engine: Engine,
}

impl PortTakeover<'_> {
    fn run(mut self) -> Result<(PodContext, Option<Takeover>), InjectError> {
        self.warn_of_clients_by_number();
        // An existing declaration with a name or a host port stays and is changed to the sidecar's number.
        let declared = self.engine.declared.clone();
        let declared = declared.filter(|port| port.name.is_some() || port.has_host_port);
        let updates_services = match &declared {
            Some(port) => self.take_over_declaration(port).map(|()| true)?,
            None => self.take_over_number()?,
        };
        self.add_pre_stop_hook()?;
        self.raise_grace_period()?;
        let takeover =
            Takeover { old: self.engine.port, new: self.config.listen, updates_services };
        let provider = self.provider();
        let upstream = self.upstream();
        let context = PodContext { upstream, provider, declares_listen_port: declared.is_none() };
        Ok((context, Some(takeover)))
    }

    /// Adds warnings about objects whose clients would bypass the sidecar or could not reach it: headless Services,
    /// InferencePools and NetworkPolicies.
    fn warn_of_clients_by_number(&mut self) {
        let Self { edit, config, pods, context, engine } = self;
        let (old, new) = (engine.port, config.listen);
        for service in context.headless_services(pods, engine.declared.as_ref(), old) {
            edit.warn(format!(
                "Service {service} is headless: its clients connect to port {old} of the pod directly and bypass the sidecar"
            ));
        }
        for pool in context.pools_by_number(pods, old) {
            edit.warn(format!(
                "InferencePool {pool} connects to port {old} of the pod directly and bypasses the sidecar; change its \
                 port to {new}"
            ));
        }
        for policy in context.policies_by_number(pods, old) {
            edit.warn(format!(
                "NetworkPolicy {policy} allows port {old} by number; allow {new} too, or no client reaches the sidecar"
            ));
        }
    }

    /// Gives the engine's declared port to the sidecar, so that a Service that uses the port's name reaches the
    /// sidecar. Declares the engine's own port without a name.
    fn take_over_declaration(&mut self, declared: &DeclaredPort) -> Result<(), InjectError> {
        let Engine { pointer, container, port: old, .. } = &self.engine;
        let new = self.config.listen;
        let ports = format!("{pointer}/ports");
        self.edit.replace(&format!("{ports}/{}/containerPort", declared.index), json!(new))?;
        self.edit.insert(&format!("{ports}/-"), vec![json!({ "containerPort": old })])?;
        if let Some(name) = &declared.name {
            fix_handler_ports(self.edit, &self.engine, name)?;
        }
        let name = declared.name.clone().unwrap_or_else(|| format!("{old} (a hostPort)"));
        self.edit.note(format!(
            "port {name} of container {container} now points to the sidecar ({new}), which forwards to {old}; a Service \
             outside this input that targets {old} by number bypasses the sidecar"
        ));
        Ok(())
    }

    /// Handles an engine port without a name, which a Service can target only by number. Returns whether a Service of
    /// the input targets the port and is changed. If false, the user must change the Service.
    fn take_over_number(&mut self) -> Result<bool, InjectError> {
        let Self { edit, config, pods, context, engine } = self;
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

    /// Adds a preStop hook to the engine that waits for the sidecar's last stream. The kubelet stops the engine only
    /// after the hook.
    fn add_pre_stop_hook(&mut self) -> Result<(), InjectError> {
        let Engine { pointer, container, .. } = &self.engine;
        let hook = self.edit.get(&format!("{pointer}/lifecycle/preStop"));
        if hook.is_some_and(|hook| !hook.is_null()) {
            self.edit.note(format!(
                "container {container} keeps its own preStop hook, and the engine stops when that hook ends; let the \
                 hook wait for GET /drained on the sidecar's admin port, or open streams may be cut off"
            ));
            return Ok(());
        }
        let hook = json!({ "httpGet": { "path": "/drained", "port": self.config.admin } });
        self.edit.put_in(pointer, "lifecycle", "preStop", hook)?;
        self.edit.note(format!(
            "container {container} gets a preStop hook that waits until the sidecar has no requests in flight"
        ));
        Ok(())
    }

    fn raise_grace_period(&mut self) -> Result<(), InjectError> {
        let to = drain_seconds(self.config).saturating_add(GRACE_AFTER_DRAIN);
        let from = self.edit.get("/spec/terminationGracePeriodSeconds").and_then(Value::as_u64);
        if from.is_none_or(|from| from < to) {
            self.edit.put("/spec", "terminationGracePeriodSeconds", json!(to))?;
            let from = from.map_or_else(|| "the default of 30".to_owned(), |from| from.to_string());
            self.edit.note(format!("terminationGracePeriodSeconds is raised to {to}, from {from}"));
        }
        Ok(())
    }

    fn provider(&mut self) -> Option<String> {
        let settings = &self.config.settings;
        if settings.provider.is_some() || settings.config.is_some() {
            return settings.provider.clone();
        }
        let detected = self.edit.get(&self.engine.pointer).and_then(pod::engine_provider)?;
        self.edit.note(format!(
            "container {} looks like {detected}; if it is another engine, set the annotation tokengauge.dev/provider",
            self.engine.container
        ));
        Some(detected.to_owned())
    }

    fn upstream(&mut self) -> Option<String> {
        let settings = &self.config.settings;
        if !settings.upstream.is_empty() {
            return Some(providers::upstream_flag(&settings.upstream));
        }
        // An engine can listen on one family only, such as vLLM with `--host ::`.
        let url = format!("http://localhost:{}", self.engine.port);
        let Some(name) = &settings.config else { return Some(url) };
        self.edit.note(format!(
            "tokengauge.yaml in ConfigMap {name} defines the upstreams, their provider and the engine metrics; its \
             upstream must be {url}"
        ));
        None
    }
}

/// Replaces the port name in the engine's probes and hooks with the engine's port number, because the name now refers
/// to the sidecar.
fn fix_handler_ports(edit: &mut Edit, engine: &Engine, name: &str) -> Result<(), InjectError> {
    let Engine { pointer, container, port, .. } = engine;
    let probes = ["livenessProbe", "readinessProbe", "startupProbe"];
    let handlers = probes.into_iter().chain(["lifecycle/postStart", "lifecycle/preStop"]);
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
