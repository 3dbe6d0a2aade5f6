//! Runs a pod from a manifest that `inject` wrote: its commands, environment, probes and hooks, in the kubelet's order.
//!
//! The container images are not available, so the command `/tokengauge` runs the binary of this build, which the
//! sidecar's image also contains. Everything else comes unmodified from the manifest.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::Value;
use tokengauge_kubernetes::yaml::parse_documents;
use tokio::net::TcpStream;

use crate::support::collector::Collector;
use crate::support::{Backend, Raw, within};

/// Returns a port below the system's ephemeral range, so that no other process gets the port before the test uses it.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = 20_000 + u16::try_from(std::process::id() % 400).unwrap() * 25;
    loop {
        let port = begin + NEXT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// Returns the value that the downward API or the node would provide for a field.
fn field(path: &str) -> &'static str {
    match path {
        "metadata.name" => "vllm-7d4b9-xk2lp",
        "metadata.uid" => "0b1e2d3c",
        "metadata.namespace" => "models",
        "spec.nodeName" => "node-1",
        "status.hostIP" => "127.0.0.1",
        other => panic!("no such field: {other}"),
    }
}

/// A running container.
struct Running {
    spec: Value,
    environment: BTreeMap<String, String>,
    child: Child,
}

impl Running {
    fn name(&self) -> &str {
        self.spec["name"].as_str().unwrap()
    }

    fn signal(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("/bin/kill").args(["-TERM", &id]).status().unwrap().success());
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    async fn ended(&mut self) -> ExitStatus {
        let what = format!("the end of {}", self.name());
        within(&what, async {
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The pod of the first `Deployment` in a manifest.
struct Pod {
    spec: Value,
    sidecars: Vec<Running>,
    containers: Vec<Running>,
}

impl Pod {
    /// Starts the containers in the kubelet's order, and waits for the same probes as the kubelet.
    async fn start(manifest: &str) -> Self {
        let texts = parse_documents(manifest).unwrap();
        let workload = texts.iter().find(|it| it.value()["kind"] == "Deployment").unwrap();
        let spec = workload.value()["spec"]["template"]["spec"].clone();
        let mut pod = Self { spec, sidecars: Vec::new(), containers: Vec::new() };
        for container in list(&pod.spec["initContainers"]) {
            assert_eq!(container["restartPolicy"], "Always", "a native sidecar");
            pod.sidecars.push(started(&container).await);
        }
        for container in list(&pod.spec["containers"]) {
            let running = started(&container).await;
            if container["ports"]
                .as_array()
                .is_some_and(|ports| ports.iter().any(|port| port["name"] == "tokengauge"))
            {
                pod.sidecars.push(running);
            } else {
                pod.containers.push(running);
            }
        }
        for running in pod.sidecars.iter().chain(&pod.containers) {
            probed(&running.spec["readinessProbe"]).await;
            probed(&running.spec["livenessProbe"]).await;
        }
        pod
    }

    /// Resolves the named `targetPort` of a Service to a port number.
    fn port(&self, name: &str) -> u16 {
        let ports = ["initContainers", "containers"].map(|key| list(&self.spec[key]));
        let ports = ports.iter().flatten().flat_map(|container| list(&container["ports"]));
        let named: Vec<Value> = ports.filter(|port| port["name"] == name).collect();
        assert_eq!(named.len(), 1, "{named:?}");
        u16::try_from(named[0]["containerPort"].as_u64().unwrap()).unwrap()
    }

    /// Deletes the pod and returns the exit statuses of the sidecars.
    ///
    /// Every container runs its preStop hook and then receives SIGTERM. Sidecars receive SIGTERM after all other
    /// containers have ended. `meanwhile` runs at the same time as the hooks.
    async fn delete(mut self, meanwhile: impl Future<Output = ()>) -> Vec<ExitStatus> {
        let sidecar_hooks: Vec<_> = self.sidecars.iter().map(|it| tokio::spawn(hook(it))).collect();
        let hooks: Vec<_> = self.containers.iter().map(|it| tokio::spawn(hook(it))).collect();
        meanwhile.await;
        for (hook, container) in hooks.into_iter().zip(&mut self.containers) {
            assert!(!container.has_ended(), "{} was stopped too early", container.name());
            within("a container's hook", hook).await.unwrap();
            container.signal();
            container.ended().await;
        }
        let mut ended = Vec::new();
        for (hook, sidecar) in sidecar_hooks.into_iter().zip(&mut self.sidecars).rev() {
            within("the sidecar's hook", hook).await.unwrap();
            assert!(!sidecar.has_ended(), "the sidecar runs until SIGTERM");
            sidecar.signal();
            ended.push(sidecar.ended().await);
        }
        ended
    }
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// Expands `$(NAME)` references to earlier variables, as the kubelet does.
fn expanded(text: &str, environment: &BTreeMap<String, String>) -> String {
    let mut text = text.to_owned();
    for (name, value) in environment {
        text = text.replace(&format!("$({name})"), value);
    }
    text
}

fn environment(container: &Value) -> BTreeMap<String, String> {
    let mut environment = BTreeMap::new();
    for item in list(&container["env"]) {
        let value = match item["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
            Some(path) => field(path).to_owned(),
            None => expanded(item["value"].as_str().unwrap(), &environment),
        };
        environment.insert(item["name"].as_str().unwrap().to_owned(), value);
    }
    environment
}

/// Builds a command from `words`. The binary of this build replaces the image's binary.
fn command(words: &[Value], environment: &BTreeMap<String, String>) -> Command {
    let words: Vec<String> =
        words.iter().map(|word| expanded(word.as_str().unwrap(), environment)).collect();
    let (program, arguments) = words.split_first().unwrap();
    let program = if program == "/tokengauge" { env!("CARGO_BIN_EXE_tokengauge") } else { program };
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(environment).stdin(Stdio::null());
    command
}

async fn started(container: &Value) -> Running {
    let environment = environment(container);
    let mut words = list(&container["command"]);
    if words.is_empty() {
        // The entry point of the image.
        words.push("/tokengauge".into());
    }
    words.extend(list(&container["args"]));
    let mut command = command(&words, &environment);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let running = Running { spec: container.clone(), environment, child };
    probed(&running.spec["startupProbe"]).await;
    running
}

/// Repeats the probe until it succeeds.
async fn probed(probe: &Value) {
    let get = &probe["httpGet"];
    let (Some(path), Some(port)) = (get["path"].as_str(), get["port"].as_u64()) else {
        return;
    };
    let what = format!("a good answer to the probe of {path} on {port}");
    within(&what, async {
        while !answers(path, u16::try_from(port).unwrap()).await.starts_with("HTTP/1.1 200") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Returns the complete response to a GET request, or an empty string if nothing listens on the port.
async fn answers(path: &str, port: u16) -> String {
    let Ok(stream) = TcpStream::connect(("127.0.0.1", port)).await else {
        return String::new();
    };
    let mut client = Raw(stream);
    client.write(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")).await;
    String::from_utf8_lossy(&client.read_to_end().await).into_owned()
}

/// Runs the container's preStop hook to completion.
fn hook(running: &Running) -> impl Future<Output = ()> + Send + use<> {
    let hook = running.spec["lifecycle"]["preStop"].clone();
    let environment = running.environment.clone();
    async move {
        if let Some(words) = hook["exec"]["command"].as_array() {
            let mut command = command(words, &environment);
            let run = tokio::task::spawn_blocking(move || command.output().unwrap());
            let output = run.await.unwrap();
            assert!(output.status.success(), "{output:?}");
        } else if let Some(port) = hook["httpGet"]["port"].as_u64() {
            let path = hook["httpGet"]["path"].as_str().unwrap();
            let answer = answers(path, u16::try_from(port).unwrap()).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
    }
}

/// Returns the output of `tokengauge inject` for a manifest.
fn injected(folder: &Path, manifest: &str) -> String {
    let file = folder.join("in.yaml");
    fs::write(&file, manifest).unwrap();
    let image = ["--image", "registry.example/tokengauge:test"];
    let output = Command::new(env!("CARGO_BIN_EXE_tokengauge"))
        .arg("inject")
        .args(image)
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the sum over all series of one of the sidecar's counters.
async fn count(admin: u16, name: &str) -> f64 {
    let page = answers("/metrics", admin).await;
    let lines = page.lines().filter(|line| line.starts_with(name));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

/// Sends a chat request whose response is a stream of `tokens` tokens.
async fn chat(port: u16, path: &str, tokens: u32) -> Raw<TcpStream> {
    const BODY: &str = "{\"model\":\"sim-fast\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}";
    let mut client = Raw(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    let length = BODY.len();
    client
        .write(format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nConnection: close\r\n\
             x-simulate-tokens: {tokens}\r\nx-simulate-gap-us: 20000\r\nContent-Length: {length}\r\n\r\n{BODY}"
        ))
        .await;
    client
}

fn engine(listen: u16, admin: u16, engine: u16, collector: &Collector, native: bool) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: vllm, namespace: models}}
spec:
  selector: {{matchLabels: {{app: vllm}}}}
  template:
    metadata:
      labels: {{app: vllm}}
      annotations:
        tokengauge.dev/mode: inbound
        tokengauge.dev/listen-port: \"{listen}\"
        tokengauge.dev/admin-port: \"{admin}\"
        tokengauge.dev/native: \"{native}\"
        tokengauge.dev/otlp-endpoint: http://$(K8S_NODE_IP):{}
        tokengauge.dev/otlp-protocol: http/protobuf
    spec:
      containers:
      - name: engine
        image: simulated
        command: [/tokengauge, simulate]
        args: [--listen, \"127.0.0.1:$(PORT)\"]
        env:
        - {{name: PORT, value: \"{engine}\"}}
        ports:
        - {{name: http, containerPort: {engine}}}
        readinessProbe:
          httpGet: {{path: /v1/models, port: http}}
",
        collector.address.port()
    )
}

/// Tests that a stream through the sidecar continues to its end after the pod was deleted.
///
/// The request uses the port name of the Service. The engine stops only after its stream has ended.
async fn an_engine_lives_and_dies(native: bool) {
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start().await;
    let (listen, admin, port) = (free_port(), free_port(), free_port());
    let manifest = injected(folder.path(), &engine(listen, admin, port, &collector, native));
    let pod = Pod::start(&manifest).await;
    assert_eq!(pod.port("http"), listen, "the named port refers to the sidecar");
    assert_eq!(pod.port("tokengauge"), admin);
    assert_eq!(list(&pod.spec["containers"])[0]["readinessProbe"]["httpGet"]["port"], port);
    let answer = chat(listen, "/v1/chat/completions", 3).await.read_to_end().await;
    assert!(String::from_utf8_lossy(&answer).contains("[DONE]"));
    within("the call to be counted", async {
        while count(admin, "gen_ai_client_operation_duration_seconds_count").await
            + count(admin, "gen_ai_server_request_duration_seconds_count").await
            < 1.0
        {}
    })
    .await;
    let mut client = chat(listen, "/v1/chat/completions", 100).await;
    client.read_until("data: ").await;
    let statuses = pod
        .delete(async move {
            let rest = String::from_utf8_lossy(&client.read_to_end().await).into_owned();
            assert!(rest.contains("[DONE]"), "the engine ends the stream: {rest}");
        })
        .await;
    assert!(statuses.iter().all(|status| status.code() == Some(0)), "{statuses:?}");
    let told = String::from_utf8_lossy(&collector.bytes()).into_owned();
    assert!(collector.spans().len() >= 2, "the spans of both calls arrive");
    for attribute in ["models.vllm-7d4b9-xk2lp.tokengauge", "k8s.deployment.name", "node-1"] {
        assert!(told.contains(attribute), "{attribute}");
    }
}

#[tokio::test]
async fn an_injected_engine_serves_through_its_native_sidecar() {
    an_engine_lives_and_dies(true).await;
}

#[tokio::test]
async fn an_injected_engine_serves_through_its_plain_sidecar() {
    an_engine_lives_and_dies(false).await;
}

fn application(
    listen: u16,
    admin: u16,
    vendor: &Backend,
    collector: &Collector,
    native: bool,
) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: app}}
spec:
  selector: {{matchLabels: {{app: app}}}}
  template:
    metadata:
      labels: {{app: app}}
      annotations:
        tokengauge.dev/mode: outbound
        tokengauge.dev/upstream: /openai=http://{}
        tokengauge.dev/listen-port: \"{listen}\"
        tokengauge.dev/admin-port: \"{admin}\"
        tokengauge.dev/native: \"{native}\"
        tokengauge.dev/otlp-endpoint: http://{}
        tokengauge.dev/otlp-protocol: http/protobuf
    spec:
      containers:
      - name: app
        image: app
        command: [/bin/sleep, \"1000\"]
",
        vendor.address, collector.address
    )
}

/// Tests that the application reaches the sidecar through the environment variable that its SDK reads.
async fn an_application_lives_and_dies(native: bool) {
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start().await;
    let vendor = Backend::start().await;
    let (listen, admin) = (free_port(), free_port());
    let manifest = application(listen, admin, &vendor, &collector, native);
    let pod = Pod::start(&injected(folder.path(), &manifest)).await;
    let url = pod.containers[0].environment["OPENAI_BASE_URL"].clone();
    let path = url.strip_prefix(&format!("http://127.0.0.1:{listen}")).unwrap();
    let path = format!("{path}/chat/completions");
    let mut client = chat(listen, &path, 1).await;
    let mut upstream = within("the provider to be called", vendor.accept()).await;
    let head = upstream.read_head().await;
    assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{head}");
    let body = "{\"id\":\"c\",\"object\":\"chat.completion\",\"model\":\"gpt-4o\",\"choices\":[]}";
    upstream
        .write(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
    let answer = client.read_to_end().await;
    assert!(String::from_utf8_lossy(&answer).ends_with(body));
    let statuses = pod.delete(async {}).await;
    assert!(statuses.iter().all(|status| status.code() == Some(0)), "{statuses:?}");
    assert_eq!(collector.spans().len(), 2, "the flush exported both spans in time");
}

#[tokio::test]
async fn an_injected_application_calls_through_its_native_sidecar() {
    an_application_lives_and_dies(true).await;
}

#[tokio::test]
async fn an_injected_application_calls_through_its_plain_sidecar() {
    an_application_lives_and_dies(false).await;
}
