//! The container that is added: `tokengauge run`, set up by its environment.

use clap::ValueEnum;
use serde_json::{Map, Value, json};

use super::annotations::Wanted;
use super::kind::Kind;
use super::settings::Mode;

/// The container's name, and that of its port for health and metrics.
pub(super) const NAME: &str = "tokengauge";

/// The volume that holds `tokengauge.yaml`.
pub(super) const VOLUME: &str = "tokengauge-config";

/// Seconds that streams may take to end when their pod is deleted, where nobody says another length.
pub(super) const DRAIN: u64 = 300;

/// Seconds from the end of the drain to that of the grace period: endpoints are removed before (5), telemetry is flushed
/// after, and an engine may take its time to stop.
pub(super) const AFTER_DRAIN: u64 = 30;

/// Seconds of those in which a plain container serves on, while an engine that got SIGTERM ends its streams; the rest is for its
/// own end. A native sidecar is stopped after the engine anyway.
const LINGER: u64 = 20;

/// What only the pod around it can say.
#[derive(Debug)]
pub(super) struct Place {
    /// Where requests go: what `TOKENGAUGE_UPSTREAM` says; `None` where the file of the ConfigMap does.
    pub(super) upstream: Option<String>,
    pub(super) provider: Option<String>,
    /// Whether the port is to be declared here, since the engine's container does not.
    pub(super) declares_listen: bool,
    /// Seconds, of the pod as it is after the change.
    pub(super) grace: u64,
    /// The owner, as resource attributes.
    pub(super) owner: Vec<(&'static str, String)>,
}

pub(super) fn container(wanted: &Wanted, place: &Place) -> Value {
    let probe = |path: &str, more: Value| {
        let mut probe = json!({ "httpGet": { "path": path, "port": wanted.admin } });
        merge(&mut probe, more);
        probe
    };
    let mut ports = vec![json!({ "name": NAME, "containerPort": wanted.admin })];
    if place.declares_listen {
        ports.insert(0, json!({ "containerPort": wanted.listen }));
    }
    let quantity = |said: &Option<super::value::Quantity>, usual: &str| {
        said.as_ref().map_or(usual, |said| said.as_str()).to_owned()
    };
    let mut container = json!({
        "name": NAME,
        "image": wanted.image.as_str(),
        "args": ["run"],
        "env": environment(wanted, place),
        "ports": ports,
        "startupProbe": probe("/readyz", json!({ "periodSeconds": 1, "failureThreshold": 120 })),
        "livenessProbe": probe("/livez", json!({})),
        // By default Kubernetes asks every 10 s and believes the third answer: so long new calls would come to a pod that
        // drains.
        "readinessProbe": probe("/readyz", json!({ "periodSeconds": 2, "failureThreshold": 2 })),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": { "drop": ["ALL"] },
            "readOnlyRootFilesystem": true,
            "runAsGroup": 65532,
            "runAsNonRoot": true,
            "runAsUser": 65532,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "resources": {
            "requests": {
                "cpu": quantity(&wanted.cpu_request, "50m"),
                "memory": quantity(&wanted.memory_request, "64Mi"),
            },
            "limits": { "memory": quantity(&wanted.memory_limit, "256Mi") },
        },
    });
    if wanted.native {
        merge(&mut container, json!({ "restartPolicy": "Always" }));
    }
    if let Some(command) = pre_stop(wanted, place.grace) {
        merge(
            &mut container,
            json!({ "lifecycle": { "preStop": { "exec": { "command": command } } } }),
        );
    }
    if wanted.config.is_some() {
        let mount = json!([{ "name": VOLUME, "mountPath": "/etc/tokengauge", "readOnly": true }]);
        merge(&mut container, json!({ "volumeMounts": mount }));
    }
    container
}

/// Inbound it holds the engine until its last stream has ended. Outbound a native sidecar is stopped after the application
/// anyway; a plain container must wait for it.
fn pre_stop(wanted: &Wanted, grace: u64) -> Option<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let mut command = words(&["/tokengauge", "drain"]);
    if wanted.admin != 4001 {
        command.extend(["--admin".to_owned(), format!("127.0.0.1:{}", wanted.admin)]);
    }
    match (wanted.mode, wanted.native) {
        (Mode::Inbound, native) => {
            command.extend(["--timeout".to_owned(), format!("{}s", drain(wanted))]);
            if !native {
                command.extend(["--linger".to_owned(), format!("{LINGER}s")]);
            }
            Some(command)
        }
        (Mode::Outbound, true) => None,
        (Mode::Outbound, false) => {
            let timeout = grace.saturating_sub(10).max(5);
            command.extend(words(&["--delay", "0s", "--quiet", "5s", "--timeout"]));
            command.push(format!("{timeout}s"));
            Some(command)
        }
    }
}

/// Seconds.
pub(super) fn drain(wanted: &Wanted) -> u64 {
    wanted.drain.map_or(DRAIN, |drain| drain.0.as_secs().max(1))
}

fn environment(wanted: &Wanted, place: &Place) -> Vec<Value> {
    let field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    let mut env = vec![
        field("K8S_POD_NAME", "metadata.name"),
        field("K8S_POD_UID", "metadata.uid"),
        field("K8S_NAMESPACE_NAME", "metadata.namespace"),
        field("K8S_NODE_NAME", "spec.nodeName"),
        field("K8S_NODE_IP", "status.hostIP"),
    ];
    let mut set = |name: &str, value: String| env.push(json!({ "name": name, "value": value }));
    set("OTEL_RESOURCE_ATTRIBUTES", attributes(wanted, place));
    if let Some(url) = &wanted.otlp_endpoint {
        set("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str().to_owned());
    }
    if let Some(protocol) = wanted.otlp_protocol {
        set("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.as_str().to_owned());
    }
    if wanted.config.is_some() {
        set("TOKENGAUGE_CONFIG", "/etc/tokengauge/tokengauge.yaml".to_owned());
    }
    let from = match wanted.mode {
        Mode::Inbound => "0.0.0.0",
        Mode::Outbound => "127.0.0.1",
    };
    set("TOKENGAUGE_LISTEN", format!("{from}:{}", wanted.listen));
    set("TOKENGAUGE_ADMIN", format!("0.0.0.0:{}", wanted.admin));
    if let Some(upstream) = &place.upstream {
        set("TOKENGAUGE_UPSTREAM", upstream.clone());
    }
    set("TOKENGAUGE_VANTAGE", wanted.mode.as_str().to_owned());
    // Both are said of `TOKENGAUGE_UPSTREAM`, and refused without it: where a file has the upstreams, it says these too.
    let provider = place.provider.as_ref().filter(|_| place.upstream.is_some());
    if let Some(provider) = provider {
        set("TOKENGAUGE_PROVIDER", provider.clone());
    }
    if let Some(preset) = wanted.objectives.and_then(|preset| preset.to_possible_value()) {
        set("TOKENGAUGE_OBJECTIVES", preset.get_name().to_owned());
    }
    let engine_metrics = match wanted.mode {
        Mode::Inbound => Some(wanted.engine_metrics.unwrap_or(true)),
        Mode::Outbound => wanted.engine_metrics,
    };
    if let Some(on) = engine_metrics.filter(|_| place.upstream.is_some()) {
        set("TOKENGAUGE_ENGINE_METRICS", on.to_string());
    }
    // The waiting is done before SIGTERM: by the hook, or by the kubelet's order. When it comes, all that may be left are
    // the 2 s in which telemetry must get out. What is waited then is for the ends of connections to come in: streams of an
    // application that has died are its doing, and not this process's.
    set("TOKENGAUGE_DRAIN", "200ms".to_owned());
    set("TOKENGAUGE_LOG_FORMAT", "json".to_owned());
    env
}

/// Names after OpenTelemetry's conventions; the instance as its rule for Kubernetes has it (namespace.pod.container).
fn attributes(wanted: &Wanted, place: &Place) -> String {
    let mut text = "service.instance.id=$(K8S_NAMESPACE_NAME).$(K8S_POD_NAME).tokengauge,\
                    k8s.namespace.name=$(K8S_NAMESPACE_NAME),k8s.pod.name=$(K8S_POD_NAME),k8s.pod.uid=$(K8S_POD_UID),\
                    k8s.node.name=$(K8S_NODE_NAME),k8s.container.name=tokengauge"
        .to_owned();
    let cluster = wanted.cluster.iter().map(|name| ("k8s.cluster.name", name.as_str().to_owned()));
    for (name, value) in place.owner.iter().cloned().chain(cluster) {
        text.push_str(&format!(",{name}={value}"));
    }
    text
}

/// Who owns the pod, as far as the object says.
pub(super) fn owner(object: &Value, kind: Kind) -> Vec<(&'static str, String)> {
    let name = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    if let Some(attribute) = kind.attribute() {
        return name("/metadata/name").map(|name| (attribute, name)).into_iter().collect();
    }
    let references = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let controller = references
        .into_iter()
        .flatten()
        .find(|reference| reference.get("controller").and_then(Value::as_bool) == Some(true));
    let Some(controller) = controller else {
        return Vec::new();
    };
    let text = |key: &str| controller.get(key).and_then(Value::as_str);
    let (Some(of), Some(owner)) = (text("kind"), text("name")) else {
        return Vec::new();
    };
    match of {
        "ReplicaSet" => {
            // A Deployment's ReplicaSet is called after it and a hash, which its pods have as a label.
            let hash = name("/metadata/labels/pod-template-hash");
            let deployment =
                hash.and_then(|hash| owner.strip_suffix(&format!("-{hash}")).map(str::to_owned));
            let deployment = deployment.map(|name| ("k8s.deployment.name", name));
            deployment.into_iter().chain([("k8s.replicaset.name", owner.to_owned())]).collect()
        }
        "StatefulSet" => vec![("k8s.statefulset.name", owner.to_owned())],
        "DaemonSet" => vec![("k8s.daemonset.name", owner.to_owned())],
        "Job" => vec![("k8s.job.name", owner.to_owned())],
        _ => Vec::new(),
    }
}

fn merge(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        into.extend::<Map<String, Value>>(more);
    }
}
