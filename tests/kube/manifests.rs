//! Generates random manifests as values: workloads of each kind, with Services and other objects as in real inputs.

use serde_json::{Map, Value, json};

use super::choices::Choices;

const WORKLOADS: [(&str, &str); 7] = [
    ("apps/v1", "Deployment"),
    ("v1", "Pod"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "ReplicaSet"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
];

const IMAGES: [&str; 6] = [
    "vllm/vllm-openai:v0.11.0",
    "registry.example/app:1",
    "lmsysorg/sglang:latest",
    "nginx",
    "registry.example:5000/team/llama-server@sha256:0000000000000000000000000000000000000000000000000000000000000000",
    "ollama/ollama",
];

/// Texts of real manifests, and texts that YAML parsers may read as another type.
const TEXTS: [&str; 18] = [
    "app",
    "yes",
    "1",
    "",
    "a: b",
    "é ü 日本",
    "set -e\nexec serve --port 8000\n",
    "one\n\ntwo",
    " before and after ",
    "x # y",
    "{\"a\": 1, \"b\": [\"'\"]}",
    "one two three four five six",
    "012",
    "2026-01-01",
    "- x",
    "kept\n\n",
    "\ttab",
    "*x",
];

const FLAGS: [&str; 11] = [
    "--mode inbound",
    "--mode outbound",
    "--mode inbound --native false",
    "--mode outbound --native false",
    "",
    "--mode inbound --listen-port 4100 --admin-port 4101",
    "--mode inbound --port 8000",
    "--mode inbound --port http --slos chat",
    "--mode outbound --upstream https://api.openai.com,/anthropic=https://api.anthropic.com",
    "--mode inbound --run-as-user none --cpu-limit 100m --memory-request 256Mi",
    "--mode inbound --config mine --cluster c-1 --otlp-endpoint http://$(K8S_NODE_IP):4317",
];

/// The documents of an input, and its flags. An empty document is null.
#[derive(Debug)]
pub struct Shape {
    pub documents: Vec<Value>,
    pub flags: &'static str,
}

pub fn shape(choices: &mut Choices<'_>) -> Shape {
    let flags = choices.pick(&FLAGS);
    let mut builder = ManifestBuilder { choices };
    let mut objects = Vec::new();
    for index in 0..=builder.choices.below(3) {
        objects.extend(builder.application(index));
    }
    if builder.choices.once_in(4) {
        objects = vec![json!({"apiVersion": "v1", "kind": "List", "items": objects})];
    }
    if builder.choices.once_in(6) {
        objects.push(Value::Null);
    }
    Shape { documents: objects, flags }
}

/// Unused port numbers and names of a pod.
struct UnusedPorts {
    numbers: Vec<u16>,
    names: Vec<&'static str>,
}

struct ManifestBuilder<'c, 'b> {
    choices: &'c mut Choices<'b>,
}

impl ManifestBuilder<'_, '_> {
    /// Returns a workload and its other objects, in random order.
    fn application(&mut self, index: usize) -> Vec<Value> {
        let name = format!("app-{index}");
        let labels =
            json!({"app": name, "app.kubernetes.io/part-of": self.choices.pick(&TEXTS[..3])});
        let namespace = self.choices.once_in(3).then_some("prod");
        let mut objects = vec![self.workload(&name, namespace, &labels)];
        for _ in 0..self.choices.below(3) {
            objects.push(self.service(&name, namespace, &labels));
        }
        if self.choices.once_in(3) {
            objects.push(self.config_map(namespace));
        }
        if self.choices.once_in(6) {
            objects.push(json!({
                "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name},
                "spec": {"template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}},
            }));
        }
        if self.choices.once_in(2) {
            objects.reverse();
        }
        objects
    }

    fn metadata(&mut self, name: &str, namespace: Option<&str>) -> Value {
        let mut metadata = json!({"name": name});
        if let Some(namespace) = namespace {
            metadata["namespace"] = json!(namespace);
        }
        if self.choices.once_in(4) {
            metadata["annotations"] = self.annotations(false);
        }
        if self.choices.once_in(8) {
            metadata["creationTimestamp"] = Value::Null;
        }
        metadata
    }

    fn annotations(&mut self, ours: bool) -> Value {
        let mut annotations = Map::new();
        for _ in 0..self.choices.below(3) {
            let key = self.choices.pick(&["example.com/note", "checksum/config", "a", "z/z"]);
            annotations.insert(key.to_owned(), json!(self.choices.pick(&TEXTS)));
        }
        let mut set = |key: &str, value: &str| {
            annotations.insert(format!("tokengauge.dev/{key}"), json!(value));
        };
        match self.choices.below(if ours { 12 } else { 1 }) {
            1 => set("mode", "inbound"),
            2 => set("mode", "outbound"),
            3 => set("inject", "disabled"),
            4 => set("shutdown-grace-period", "60s"),
            5 => set("port", "http"),
            6 => set("listen-port", "4200"),
            7 => set("native", "false"),
            8 => set("inject", "enabled"),
            9 => set("modus", "inbound"),
            _ => {}
        }
        if annotations.is_empty() && self.choices.once_in(2) {
            return Value::Null;
        }
        Value::Object(annotations)
    }

    fn workload(&mut self, name: &str, namespace: Option<&str>, labels: &Value) -> Value {
        let (version, kind) = self.choices.pick(&WORKLOADS);
        let mut metadata = self.metadata(name, namespace);
        let mut inner = json!({});
        match self.choices.below(8) {
            6 => {}
            7 => inner = Value::Null,
            _ => inner["labels"] = labels.clone(),
        }
        if inner.is_object() && self.choices.once_in(2) {
            inner["annotations"] = self.annotations(true);
        }
        let pod = self.pod();
        let spec = match kind {
            "Pod" => {
                if let (Some(metadata), Some(inner)) = (metadata.as_object_mut(), inner.as_object())
                {
                    metadata.extend(inner.clone());
                }
                pod
            }
            "CronJob" => json!({"schedule": "*/5 * * * *", "jobTemplate":
                {"spec": {"template": {"metadata": inner, "spec": pod}}}}),
            "Job" => json!({"backoffLimit": 3, "template": {"metadata": inner, "spec": pod}}),
            _ => {
                json!({"selector": {"matchLabels": labels}, "template": {"metadata": inner, "spec": pod}})
            }
        };
        let mut object =
            json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
        if self.choices.once_in(8) {
            object["status"] = json!({});
        }
        object
    }

    fn pod(&mut self) -> Value {
        let mut unused = UnusedPorts {
            numbers: vec![8000, 8001, 8080, 9090, 50051, 80, 5000, 5001],
            names: vec!["http", "metrics", "grpc", "api", "debug", "admin", "peer"],
        };
        if self.choices.once_in(24) {
            unused.numbers.insert(0, 4000);
        }
        let mut names = vec!["main", "logger", "exporter", "mesh"];
        if self.choices.once_in(24) {
            names[0] = "tokengauge";
        }
        let mut spec = Map::new();
        let count = if self.choices.once_in(40) { 0 } else { 1 + self.choices.below(2) };
        let mut containers = Vec::new();
        for _ in 0..count {
            containers.push(self.container(names.remove(0), &mut unused));
        }
        spec.insert("containers".to_owned(), Value::Array(containers));
        match self.choices.below(6) {
            1 => {
                let mut init = self.container(names.remove(0), &mut unused);
                if self.choices.once_in(2) {
                    init["restartPolicy"] = json!("Always");
                }
                spec.insert("initContainers".to_owned(), json!([init]));
            }
            2 => {
                spec.insert("initContainers".to_owned(), json!([]));
            }
            3 => {
                spec.insert("initContainers".to_owned(), Value::Null);
            }
            _ => {}
        }
        self.add_pod_fields(&mut spec);
        Value::Object(spec)
    }

    /// Adds other fields of a pod.
    fn add_pod_fields(&mut self, spec: &mut Map<String, Value>) {
        let mut set = |key: &str, value: Value| {
            spec.insert(key.to_owned(), value);
        };
        match self.choices.below(6) {
            1 => set(
                "volumes",
                json!([{"name": "data", "emptyDir": {}}, {"name": "c", "configMap": {"name": "mine"}}]),
            ),
            2 => set("volumes", json!([])),
            3 => set("volumes", Value::Null),
            4 if self.choices.once_in(4) => {
                set("volumes", json!([{"name": "tokengauge-config", "emptyDir": {}}]))
            }
            _ => {}
        }
        match self.choices.below(6) {
            1 => set("terminationGracePeriodSeconds", json!(30)),
            2 => set("terminationGracePeriodSeconds", json!(3600)),
            3 => set("terminationGracePeriodSeconds", Value::Null),
            _ => {}
        }
        if self.choices.once_in(24) {
            set("hostNetwork", json!(true));
        }
        if self.choices.once_in(6) {
            let system = if self.choices.once_in(4) { "windows" } else { "linux" };
            set("nodeSelector", json!({"kubernetes.io/os": system}));
        }
        if self.choices.once_in(4) {
            set(
                "affinity",
                json!({"nodeAffinity": {"required": [{"key": "gpu", "operator": "In", "values": ["a", "b"]}]}}),
            );
            set("tolerations", json!([{"key": "nvidia.com/gpu", "operator": "Exists"}]));
        }
        if self.choices.once_in(6) {
            set(
                "x-other",
                json!({"deep": [[1, [2.5, null]], {"": true}], "name": self.choices.pick(&TEXTS)}),
            );
        }
    }

    fn container(&mut self, name: &str, unused: &mut UnusedPorts) -> Value {
        let mut container = json!({"name": name, "image": self.choices.pick(&IMAGES)});
        let ports = self.ports(unused);
        if !ports.is_null() {
            container["ports"] = ports.clone();
        }
        match self.choices.below(4) {
            1 => container["args"] = json!(["--model", self.choices.pick(&TEXTS)]),
            2 => container["command"] = json!(["sh", "-c", self.choices.pick(&TEXTS)]),
            _ => {}
        }
        match self.choices.below(8) {
            1 => container["env"] = json!([]),
            2 => container["env"] = Value::Null,
            3..=5 => container["env"] = self.env(),
            _ => {}
        }
        if self.choices.once_in(8) {
            container["envFrom"] = json!([{"configMapRef": {"name": "mine"}}]);
        }
        let targets: Vec<Value> = ports
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|port| {
                [port.get("name").cloned(), port.get("containerPort").cloned()]
                    .into_iter()
                    .flatten()
            })
            .collect();
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            if self.choices.once_in(3) {
                container[probe] = self.handler(&targets);
            }
        }
        match self.choices.below(8) {
            4 => container["lifecycle"] = Value::Null,
            5 => container["lifecycle"] = json!({}),
            6 => container["lifecycle"] = json!({"postStart": self.hook(&targets)}),
            7 => {
                container["lifecycle"] = json!({"preStop": self.hook(&targets), "postStart": null})
            }
            _ => {}
        }
        if self.choices.once_in(4) {
            container["resources"] = json!({"limits": {"nvidia.com/gpu": 1, "memory": "80Gi"}, "requests": {"cpu": "4"}});
        }
        container
    }

    fn ports(&mut self, unused: &mut UnusedPorts) -> Value {
        let count = match self.choices.below(8) {
            5 => return Value::Null,
            6 => return json!([]),
            7 => 2,
            _ => 1,
        };
        let mut ports = Vec::new();
        for _ in 0..count {
            let mut port = json!({"containerPort": self.choices.take(&mut unused.numbers)});
            if !self.choices.once_in(4) {
                port["name"] = json!(self.choices.take(&mut unused.names));
            }
            match self.choices.below(12) {
                9 => port["hostPort"] = json!(18000),
                10 => port["protocol"] = json!("UDP"),
                11 => port["protocol"] = json!("TCP"),
                _ => {}
            }
            ports.push(port);
        }
        Value::Array(ports)
    }

    fn env(&mut self) -> Value {
        let mut names = vec![
            "A",
            "OPENAI_API_KEY",
            "OPENAI_BASE_URL",
            "HTTP_PROXY",
            "AZURE_OPENAI_ENDPOINT",
            "POD",
        ];
        let mut env = Vec::new();
        for _ in 0..=self.choices.below(3) {
            let name = self.choices.take(&mut names);
            env.push(match self.choices.below(4) {
                1 => json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
                2 => json!({"name": name, "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}}),
                3 => json!({"name": name}),
                _ => json!({"name": name, "value": self.choices.pick(&TEXTS)}),
            });
        }
        Value::Array(env)
    }

    /// Returns a probe or a hook on a port that the container declares, or on another port.
    fn handler(&mut self, targets: &[Value]) -> Value {
        let port = if targets.is_empty() || self.choices.once_in(8) {
            json!(7777)
        } else {
            targets[self.choices.below(targets.len())].clone()
        };
        match self.choices.below(5) {
            1 => json!({"tcpSocket": {"port": port}}),
            2 if port.is_number() => json!({"grpc": {"port": port}}),
            3 => json!({"exec": {"command": ["sh", "-c", "sleep 5"]}}),
            _ => json!({"httpGet": {"path": "/health", "port": port}, "periodSeconds": 5}),
        }
    }

    fn hook(&mut self, targets: &[Value]) -> Value {
        let mut hook = self.handler(targets);
        if let Some(hook) = hook.as_object_mut() {
            hook.retain(|key, _| key != "grpc" && key != "periodSeconds");
        }
        hook
    }

    fn service(&mut self, name: &str, namespace: Option<&str>, labels: &Value) -> Value {
        let mut ports = Vec::new();
        for index in 0..=self.choices.below(2) {
            let mut port = json!({"port": 8000 + index});
            match self.choices.below(6) {
                1 => port["targetPort"] = json!("metrics"),
                2 => port["targetPort"] = json!(8000),
                3 => port["targetPort"] = json!(8080),
                4 => {}
                5 => port["targetPort"] = Value::Null,
                _ => port["targetPort"] = json!("http"),
            }
            port["name"] = json!(["http", "metrics"][index]);
            ports.push(port);
        }
        let mut spec = json!({"ports": ports, "selector": {"app": labels["app"]}});
        match self.choices.below(8) {
            6 => spec["clusterIP"] = json!("None"),
            7 => spec["selector"] = json!({"app.kubernetes.io/part-of": "app"}),
            _ => {}
        }
        let name = format!("{name}-{}", self.choices.pick(&["a", "b"]));
        let metadata = self.metadata(&name, namespace);
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    }

    fn config_map(&mut self, namespace: Option<&str>) -> Value {
        let metadata = self.metadata("mine", namespace);
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
            "data": {"run.sh": self.choices.pick(&TEXTS), "OPENAI_BASE_URL": self.choices.pick(&TEXTS)}})
    }
}
