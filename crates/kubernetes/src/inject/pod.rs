//! Reads the parts of a pod template that the injection needs.

use serde_json::Value;

use super::edit::Edit;
use super::kind::{items, text};

/// Kubernetes' default for the termination grace period of a pod, in seconds.
const DEFAULT_GRACE_PERIOD: u64 = 30;

/// A TCP port that a container declares.
#[derive(Clone, Debug)]
pub(super) struct DeclaredPort {
    /// Index of the container in the list of containers.
    pub(super) container: usize,
    pub(super) container_name: String,
    /// Index of the port in the container's list of ports.
    pub(super) index: usize,
    pub(super) name: Option<String>,
    pub(super) number: u16,
    pub(super) has_host_port: bool,
}

impl DeclaredPort {
    /// Describes the port for a message, such as `http (8000, container vllm)`.
    pub(super) fn description(&self) -> String {
        match &self.name {
            Some(name) => format!("{name} ({}, container {})", self.number, self.container_name),
            None => format!("{} (container {})", self.number, self.container_name),
        }
    }
}

/// Returns the TCP ports that a list of containers declares.
pub(super) fn declared_ports(edit: &Edit, list: &str) -> Vec<DeclaredPort> {
    let containers = edit.list(list).iter().enumerate();
    containers
        .flat_map(|(container, value)| {
            let ports = items(value, "/ports").iter().enumerate();
            ports.filter(|(_, port)| is_tcp(port)).filter_map(move |(index, port)| {
                Some(DeclaredPort {
                    container,
                    container_name: name(value),
                    index,
                    name: text(port, "/name").map(str::to_owned),
                    number: u16::try_from(port.get("containerPort")?.as_u64()?).ok()?,
                    has_host_port: port.get("hostPort").is_some_and(|port| !port.is_null()),
                })
            })
        })
        .collect()
}

/// Returns whether a port of a container or Service uses TCP, which is the default.
pub(super) fn is_tcp(port: &Value) -> bool {
    text(port, "/protocol").is_none_or(|protocol| protocol == "TCP")
}

/// Returns the `name` field of a value. Returns an empty string if the field is absent.
pub(super) fn name(value: &Value) -> String {
    text(value, "/name").unwrap_or_default().to_owned()
}

pub(super) fn runs_engine(edit: &Edit) -> bool {
    edit.list("/spec/containers").iter().any(|container| engine_provider(container).is_some())
}

/// Texts in container images and commands that identify an inference engine. Each text has the provider name of its
/// engine.
///
/// The first match is used. Some engines contain another engine: for example, NIM contains vLLM and names it in its
/// arguments.
const ENGINES: &[(&str, &str)] = &[
    ("nvcr.io/nim/", "nim"),
    ("tensorrt-llm", "tensorrt_llm"),
    ("tensorrt_llm", "tensorrt_llm"),
    ("trtllm-serve", "tensorrt_llm"),
    ("tritonserver", "triton"),
    ("text-generation-inference", "tgi"),
    ("text-generation-launcher", "tgi"),
    ("sglang", "sglang"),
    ("vllm", "vllm"),
    ("llama.cpp", "llama_cpp"),
    ("llama-server", "llama_cpp"),
    ("ollama", "ollama"),
];

/// Guesses the engine of a container from its image, then its command, then its arguments.
pub(super) fn engine_provider(container: &Value) -> Option<&'static str> {
    ["image", "command", "args"].into_iter().find_map(|key| {
        let value = container.get(key)?;
        let texts: Vec<&str> = match value.as_array() {
            Some(items) => items.iter().filter_map(Value::as_str).collect(),
            None => value.as_str().into_iter().collect(),
        };
        let (_, provider) =
            ENGINES.iter().find(|(pattern, _)| texts.iter().any(|text| text.contains(pattern)))?;
        Some(*provider)
    })
}

/// Texts in images of agents that often run beside an application and do not call LLMs: log shippers, collectors and
/// network proxies.
const AGENTS: &[&str] = &[
    "fluent-bit",
    "fluentd",
    "filebeat",
    "promtail",
    "timberio/vector",
    "logstash",
    "telegraf",
    "grafana/alloy",
    "grafana/agent",
    "opentelemetry-collector",
    "datadog/agent",
    "istio/proxyv2",
    "envoyproxy/envoy",
    "linkerd/proxy",
    "cloud-sql-proxy",
    "alloydb-auth-proxy",
    "oauth2-proxy",
    "hashicorp/vault",
    "config-reloader",
];

/// Returns the text in the container's image that identifies an agent. `None` for other containers.
pub(super) fn agent(container: &Value) -> Option<&'static str> {
    let image = text(container, "/image")?;
    AGENTS.iter().find(|agent| image.contains(*agent)).copied()
}

/// Returns whether the pod template requires a Windows node.
pub(super) fn is_windows(edit: &Edit) -> bool {
    [
        "/spec/os/name",
        "/spec/nodeSelector/kubernetes.io~1os",
        "/spec/nodeSelector/beta.kubernetes.io~1os",
    ]
    .into_iter()
    .any(|pointer| text(edit.template(), pointer) == Some("windows"))
}

/// Returns whether OpenShift has assigned a security context constraint to the pod. It does so before it calls webhooks.
pub(super) fn has_openshift_constraint(edit: &Edit) -> bool {
    text(edit.template(), "/metadata/annotations/openshift.io~1scc").is_some()
}

/// Returns the termination grace period in seconds.
pub(super) fn grace_period(edit: &Edit) -> u64 {
    edit.get("/spec/terminationGracePeriodSeconds")
        .and_then(Value::as_u64)
        .unwrap_or(DEFAULT_GRACE_PERIOD)
}
