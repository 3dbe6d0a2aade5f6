//! What a pod template says, as far as `inject` must know it.

use serde_json::Value;

use super::edit::Edit;
use super::engine;

/// A TCP port that a container declares.
#[derive(Clone, Debug)]
pub(super) struct Declared {
    /// The container's place in `/spec/containers`, and its name.
    pub(super) container: usize,
    pub(super) container_name: String,
    /// The port's place in the container's list.
    pub(super) index: usize,
    pub(super) name: Option<String>,
    pub(super) number: u16,
    /// Whether a port of the node leads to it.
    pub(super) on_host: bool,
}

impl Declared {
    /// As a person chooses it: `http (8000, container vllm)`.
    pub(super) fn choice(&self) -> String {
        match &self.name {
            Some(name) => format!("{name} ({}, container {})", self.number, self.container_name),
            None => format!("{} (container {})", self.number, self.container_name),
        }
    }
}

/// The TCP ports of a list of containers.
pub(super) fn ports(edit: &Edit, list: &str) -> Vec<Declared> {
    let mut ports = Vec::new();
    for (container, value) in edit.list(list).iter().enumerate() {
        let declared = value.get("ports").and_then(Value::as_array);
        for (index, port) in declared.into_iter().flatten().enumerate() {
            let tcp = port.get("protocol").and_then(Value::as_str).is_none_or(|name| name == "TCP");
            let number = port.get("containerPort").and_then(Value::as_u64);
            let Some(number) = number.and_then(|number| u16::try_from(number).ok()).filter(|_| tcp)
            else {
                continue;
            };
            ports.push(Declared {
                container,
                container_name: name(value),
                index,
                name: port.get("name").and_then(Value::as_str).map(str::to_owned),
                number,
                on_host: port.get("hostPort").is_some_and(|port| !port.is_null()),
            });
        }
    }
    ports
}

pub(super) fn name(value: &Value) -> String {
    value.get("name").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Whether one of the containers is known for an engine.
pub(super) fn runs_engine(edit: &Edit) -> bool {
    let containers = edit.list("/spec/containers");
    containers.iter().any(|it| engine::provider(it).is_some())
}

/// Whether the pod runs on Windows, by what it says itself.
pub(super) fn is_windows(edit: &Edit) -> bool {
    [
        "/spec/os/name",
        "/spec/nodeSelector/kubernetes.io~1os",
        "/spec/nodeSelector/beta.kubernetes.io~1os",
    ]
    .into_iter()
    .any(|pointer| edit.get(pointer).and_then(Value::as_str) == Some("windows"))
}

/// Seconds: what the pod says, or Kubernetes' default.
pub(super) fn grace(edit: &Edit) -> u64 {
    edit.get("/spec/terminationGracePeriodSeconds").and_then(Value::as_u64).unwrap_or(30)
}

/// The name in an object's metadata.
pub(super) fn of_metadata(object: &Value) -> String {
    object.get("metadata").map(name).unwrap_or_default()
}
