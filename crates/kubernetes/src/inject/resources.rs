//! Resource requests and limits of the sidecar, and their effect on the quality-of-service class of the pod.

use serde_json::{Value, json};

use super::edit::Edit;
use super::kind::text;
use super::quantity::amount;
use super::settings::Settings;

const DEFAULT_CPU_REQUEST: &str = "50m";
const DEFAULT_MEMORY_REQUEST: &str = "64Mi";
const DEFAULT_MEMORY_LIMIT: &str = "256Mi";

/// Returns the `resources` of the sidecar's container. There is no CPU limit by default, because throttling would be
/// measured as latency of the model. If the settings contain a CPU limit but no request, the request equals the limit,
/// as in Kubernetes.
pub(super) fn resources(settings: &Settings) -> Value {
    let Settings { cpu_request, cpu_limit, memory_request, memory_limit, .. } = settings;
    let or = |quantity: &Option<String>, default: &str| {
        quantity.clone().unwrap_or_else(|| default.to_owned())
    };
    let cpu_request = cpu_request.as_ref().or(cpu_limit.as_ref()).cloned();
    let mut limits = json!({ "memory": or(memory_limit, DEFAULT_MEMORY_LIMIT) });
    if let (Some(limits), Some(cpu)) = (limits.as_object_mut(), cpu_limit) {
        limits.insert("cpu".to_owned(), json!(cpu));
    }
    json!({
        "requests": {
            "cpu": or(&cpu_request, DEFAULT_CPU_REQUEST),
            "memory": or(memory_request, DEFAULT_MEMORY_REQUEST),
        },
        "limits": limits,
    })
}

/// Returns the name of a resource whose request is greater than its limit. The API server rejects such a pod.
pub(super) fn request_above_limit(settings: &Settings) -> Option<&'static str> {
    let resources = resources(settings);
    ["cpu", "memory"].into_iter().find(|name| {
        let amount = |list: &str| text(&resources, &format!("/{list}/{name}")).and_then(amount);
        matches!((amount("requests"), amount("limits")), (Some(request), Some(limit)) if request > limit)
    })
}

/// Adds a warning if the sidecar takes the pod out of the class `Guaranteed`. In this class, every container has equal
/// requests and limits of CPU and memory, and the kernel kills its processes last.
pub(super) fn warn_of_lost_guarantee(edit: &mut Edit, settings: &Settings) {
    let lists = ["/spec/containers", "/spec/initContainers"];
    let is_guaranteed_pod = lists.iter().all(|list| edit.list(list).iter().all(is_guaranteed));
    if !is_guaranteed_pod || is_guaranteed(&json!({ "resources": resources(settings) })) {
        return;
    }
    let cpu = settings.cpu_limit.as_ref().or(settings.cpu_request.as_ref());
    let cpu = cpu.map_or("100m", String::as_str);
    let memory = settings.memory_limit.as_deref().unwrap_or(DEFAULT_MEMORY_LIMIT);
    edit.warn(format!(
        "the sidecar changes the quality-of-service class of the pod from Guaranteed to Burstable; to keep the class, set \
         cpu-limit and cpu-request to {cpu}, and memory-request and memory-limit to {memory}"
    ));
}

/// Returns whether a container has equal requests and limits of CPU and memory. A request that is absent equals the
/// limit.
fn is_guaranteed(container: &Value) -> bool {
    ["cpu", "memory"].into_iter().all(|name| {
        let field = |list: &str| container.pointer(&format!("/resources/{list}/{name}"));
        let Some(limit) = field("limits").and_then(quantity) else { return false };
        field("requests").is_none_or(|request| quantity(request) == Some(limit))
    })
}

/// Returns the amount of a quantity, which a manifest writes as a string or a number.
fn quantity(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| amount(value.as_str()?)).filter(|amount| *amount > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_guaranteed_if_requests_equal_limits() {
        for (resources, expected) in [
            (json!({ "limits": { "cpu": 1, "memory": "1Gi" } }), true),
            (
                json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "1000m", "memory": "1024Mi" } }),
                true,
            ),
            (json!({ "limits": { "memory": "1Gi" } }), false),
            (
                json!({ "limits": { "cpu": 1, "memory": "1Gi" }, "requests": { "cpu": "500m" } }),
                false,
            ),
            (json!({ "limits": { "cpu": 0, "memory": "1Gi" } }), false),
            (json!({}), false),
        ] {
            assert_eq!(is_guaranteed(&json!({ "resources": resources })), expected, "{resources}");
        }
    }

    #[test]
    fn a_request_must_not_exceed_its_limit() {
        let settings = |cpu_request: &str, cpu_limit: &str, memory_limit: &str| Settings {
            cpu_request: Some(cpu_request.to_owned()),
            cpu_limit: Some(cpu_limit.to_owned()),
            memory_limit: Some(memory_limit.to_owned()),
            ..Settings::default()
        };
        assert_eq!(request_above_limit(&settings("200m", "0.2", "64Mi")), None);
        assert_eq!(request_above_limit(&settings("201m", "0.2", "64Mi")), Some("cpu"));
        assert_eq!(request_above_limit(&settings("1m", "1", "63Mi")), Some("memory"));
    }
}
