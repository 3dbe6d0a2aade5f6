//! Builds the sidecar container, which runs `tokengauge run`. Environment variables configure it.

use serde_json::{Value, json};

use super::annotations::{DEFAULT_ADMIN_PORT, SidecarConfig};
use super::kind::{self, WorkloadKind, text};
use super::resources;
use super::settings::{Mode, RunAsUser, choice_name};

/// Name of the sidecar container. The container's port for health checks and metrics has the same name.
pub(super) const CONTAINER_NAME: &str = "tokengauge";

/// Name of the volume that contains `tokengauge.yaml`.
pub(super) const VOLUME_NAME: &str = "tokengauge-config";

/// Default time for which open streams may continue after the pod is deleted, in seconds.
const DEFAULT_DRAIN: u64 = 300;

/// Additional termination grace period of the pod, after the time for open streams, in seconds. It covers the removal
/// of endpoints before the drain (5 s), the flush of telemetry and the shutdown of the engine.
pub(super) const GRACE_AFTER_DRAIN: u64 = 30;

/// Time for which a plain (not native) sidecar keeps serving while the engine ends its streams, in seconds. This time
/// is part of [`GRACE_AFTER_DRAIN`]. A native sidecar does not need it, because the kubelet stops a native sidecar
/// after the engine.
const LINGER: u64 = 20;

/// Facts about the pod that the sidecar needs.
#[derive(Debug)]
pub(super) struct PodContext {
    /// Value of the variable `TOKENGAUGE_UPSTREAM`. `None` if a configuration file in a ConfigMap defines the
    /// upstreams.
    pub(super) upstream: Option<String>,
    pub(super) provider: Option<String>,
    /// Whether the sidecar declares the listen port. False in outbound mode, and if the engine's container declares it.
    pub(super) declares_listen_port: bool,
}

/// Settings of the container that follow from the pod.
#[derive(Debug)]
pub(super) struct SidecarPod {
    pub(super) user: RunAsUser,
    /// Termination grace period of the pod, in seconds.
    pub(super) grace_period: u64,
    /// Resource attributes that name the workload of the pod.
    pub(super) owner: Attributes,
}

/// Names of resource attributes with their values.
type Attributes = Vec<(&'static str, String)>;

/// Returns the sidecar container.
pub(super) fn container(config: &SidecarConfig, context: &PodContext, pod: &SidecarPod) -> Value {
    let listen = context.declares_listen_port.then(|| json!({ "containerPort": config.listen }));
    let admin = json!({ "name": CONTAINER_NAME, "containerPort": config.admin });
    let ports: Vec<Value> = listen.into_iter().chain([admin]).collect();
    let probe = |path: &str| json!({ "path": path, "port": config.admin });
    let mut container = json!({
        "name": CONTAINER_NAME,
        "image": config.image,
        "args": ["run"],
        "env": environment(config, context, &pod.owner),
        "ports": ports,
        "startupProbe": { "httpGet": probe("/readyz"), "periodSeconds": 1, "failureThreshold": 120 },
        "livenessProbe": { "httpGet": probe("/livez") },
        // With the Kubernetes defaults (10 s, three failures), new calls would reach a draining pod for 30 s.
        "readinessProbe": { "httpGet": probe("/readyz"), "periodSeconds": 2, "failureThreshold": 2 },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": security_context(pod.user),
        "resources": resources::resources(&config.settings),
    });
    let hook = pre_stop_command(config, pod.grace_period);
    let optional = [
        ("restartPolicy", config.native.then(|| json!("Always"))),
        ("lifecycle", hook.map(|hook| json!({ "preStop": { "exec": { "command": hook } } }))),
        ("volumeMounts", config.settings.config.as_ref().map(|_| config_mounts())),
    ];
    if let Some(fields) = container.as_object_mut() {
        let present =
            optional.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        fields.extend(present);
    }
    container
}

/// Returns the security context of the container, which meets the Pod Security Standard *restricted*.
fn security_context(user: RunAsUser) -> Value {
    let mut context = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
        "readOnlyRootFilesystem": true,
        "runAsNonRoot": true,
        "seccompProfile": { "type": "RuntimeDefault" },
    });
    if let (RunAsUser::Id(id), Some(fields)) = (user, context.as_object_mut()) {
        fields.insert("runAsUser".to_owned(), json!(id));
        fields.insert("runAsGroup".to_owned(), json!(id));
    }
    context
}

fn config_mounts() -> Value {
    json!([{ "name": VOLUME_NAME, "mountPath": "/etc/tokengauge", "readOnly": true }])
}

/// Returns the command of the sidecar's preStop hook. In inbound mode, the hook waits for the last stream. In outbound
/// mode, a plain container waits for the application. A native sidecar needs no hook then, because the kubelet stops
/// it after the application.
fn pre_stop_command(config: &SidecarConfig, grace_period: u64) -> Option<Vec<String>> {
    let mut command = vec!["/tokengauge".to_owned(), "drain".to_owned()];
    if config.admin != DEFAULT_ADMIN_PORT {
        command.extend(["--admin".to_owned(), format!("127.0.0.1:{}", config.admin)]);
    }
    match (config.mode, config.native) {
        (Mode::Inbound, native) => {
            command.extend(["--timeout".to_owned(), format!("{}s", drain_seconds(config))]);
            if !native {
                command.extend(["--linger".to_owned(), format!("{LINGER}s")]);
            }
        }
        (Mode::Outbound, true) => return None,
        (Mode::Outbound, false) => {
            let timeout = grace_period.saturating_sub(10).max(5);
            let flags = ["--delay", "0s", "--quiet", "5s", "--timeout"];
            command.extend(flags.map(str::to_owned));
            command.push(format!("{timeout}s"));
        }
    }
    Some(command)
}

/// Returns the drain time in seconds, at least 1.
pub(super) fn drain_seconds(config: &SidecarConfig) -> u64 {
    config.settings.shutdown_grace_period.map_or(DEFAULT_DRAIN, |period| period.0.as_secs().max(1))
}

fn environment(config: &SidecarConfig, pod: &PodContext, owner: &Attributes) -> Vec<Value> {
    let field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    let mut env = vec![
        field("K8S_POD_NAME", "metadata.name"),
        field("K8S_POD_UID", "metadata.uid"),
        field("K8S_NAMESPACE_NAME", "metadata.namespace"),
        field("K8S_NODE_NAME", "spec.nodeName"),
        field("K8S_NODE_IP", "status.hostIP"),
    ];
    let SidecarConfig { mode, listen, admin, settings, .. } = config;
    let (listen_host, default_engine_metrics) = match mode {
        Mode::Inbound => ("[::]", Some(true)),
        Mode::Outbound => ("127.0.0.1", None),
    };
    // `tokengauge run` rejects a provider and engine metrics without `TOKENGAUGE_UPSTREAM`. If a configuration
    // file defines the upstreams, the file also defines the provider and engine metrics.
    let has_upstream = pod.upstream.is_some();
    let provider = pod.provider.clone().filter(|_| has_upstream);
    let engine_metrics =
        settings.engine_metrics.or(default_engine_metrics).filter(|_| has_upstream);
    let config_file = settings.config.as_ref().map(|_| "/etc/tokengauge/tokengauge.yaml");
    let values = [
        ("OTEL_RESOURCE_ATTRIBUTES", Some(resource_attributes(config, owner))),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", settings.otlp_endpoint.clone()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", settings.otlp_protocol.map(choice_name)),
        ("TOKENGAUGE_CONFIG", config_file.map(str::to_owned)),
        ("TOKENGAUGE_LISTEN", Some(format!("{listen_host}:{listen}"))),
        ("TOKENGAUGE_ADMIN", Some(format!("[::]:{admin}"))),
        ("TOKENGAUGE_UPSTREAM", pod.upstream.clone()),
        ("TOKENGAUGE_POSITION", Some(choice_name(*mode))),
        ("TOKENGAUGE_PROVIDER", provider),
        ("TOKENGAUGE_SLOS", settings.slos.map(choice_name)),
        ("TOKENGAUGE_ENGINE_METRICS", engine_metrics.map(|enabled| enabled.to_string())),
        // The preStop hook already waited before SIGTERM. After SIGTERM, only the 2 s for the flush of
        // telemetry may be left. The short drain is for connections that are about to end. It does not wait for
        // streams that an application leaves open when it exits.
        ("TOKENGAUGE_SHUTDOWN_GRACE_PERIOD", Some("200ms".to_owned())),
        ("TOKENGAUGE_LOG_FORMAT", Some("json".to_owned())),
    ];
    let present = values.into_iter().filter_map(|(name, value)| Some((name, value?)));
    env.extend(present.map(|(name, value)| json!({ "name": name, "value": value })));
    env
}

/// Returns the value of the variable `OTEL_RESOURCE_ATTRIBUTES`. The instance id has the form
/// `namespace.pod.container`, as OpenTelemetry requires for Kubernetes.
fn resource_attributes(config: &SidecarConfig, owner: &Attributes) -> String {
    let mut text = "service.instance.id=$(K8S_NAMESPACE_NAME).$(K8S_POD_NAME).tokengauge,\
                    k8s.namespace.name=$(K8S_NAMESPACE_NAME),k8s.pod.name=$(K8S_POD_NAME),k8s.pod.uid=$(K8S_POD_UID),\
                    k8s.node.name=$(K8S_NODE_NAME),k8s.container.name=tokengauge"
        .to_owned();
    let cluster = config.settings.cluster.clone().map(|name| ("k8s.cluster.name", name));
    for (name, value) in owner.iter().cloned().chain(cluster) {
        text.push_str(&format!(",{name}={value}"));
    }
    text
}

/// Returns the resource attributes that name the workload of the pod, such as `k8s.deployment.name`.
pub(super) fn owner_attributes(object: &Value, kind: &WorkloadKind) -> Attributes {
    if !kind.resource_attribute.is_empty() {
        let name = text(object, "/metadata/name").map(str::to_owned);
        return name.map(|name| (kind.resource_attribute, name)).into_iter().collect();
    }
    let owner = kind::controller(object)
        .and_then(|owner| Some((text(owner, "/kind")?, text(owner, "/name")?.to_owned())));
    match owner {
        Some(("ReplicaSet", name)) => {
            // A Deployment names its ReplicaSets `NAME-HASH`, and the pods have the hash as a label.
            let hash = text(object, "/metadata/labels/pod-template-hash");
            let deployment =
                hash.and_then(|hash| name.strip_suffix(&format!("-{hash}")).map(str::to_owned));
            let deployment = deployment.map(|name| ("k8s.deployment.name", name));
            deployment.into_iter().chain([("k8s.replicaset.name", name)]).collect()
        }
        Some(("StatefulSet", name)) => vec![("k8s.statefulset.name", name)],
        Some(("DaemonSet", name)) => vec![("k8s.daemonset.name", name)],
        Some(("Job", name)) => vec![("k8s.job.name", name)],
        Some(_) | None => Vec::new(),
    }
}
