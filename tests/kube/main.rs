//! `inject` and `uninject` on manifests: what they write is what the files under `tests/fixtures/kube/injected` say, and
//! what they take back is what was there before.
//!
//! `UPDATE_FIXTURES=1 cargo test --test kube` writes the files anew; read the difference before you commit it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    clippy::wildcard_enum_match_arm,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "this is a test: what is not as expected shall end it"
)]

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use serde_json::{Value, json};
use tokengauge::cli::inject::{Changed, Source, changed};
use tokengauge::config::RunArgs;
use tokengauge_kubernetes::inject::{
    Around, Outcome, Problem, Reason, Settings, inject, objects, uninject,
};
use tokengauge_kubernetes::yaml::documents;

mod choices;
mod generated;
mod hostile;
mod live;
mod pen;
mod shape;

/// An input, the flags that it gets, and how the result is called.
struct Case {
    name: &'static str,
    input: &'static str,
    flags: &'static str,
}

const fn case(name: &'static str, input: &'static str, flags: &'static str) -> Case {
    Case { name, input, flags }
}

const IN: &str = "--mode inbound";
const IN_PLAIN: &str = "--mode inbound --native false";
const OUT: &str = "--mode outbound";
const OUT_PLAIN: &str = "--mode outbound --native false";

/// Each kind in each mode, native and plain; then what is special.
const CASES: &[Case] = &[
    case("engine-deployment", "engine-deployment.yaml", IN),
    case("engine-deployment-plain", "engine-deployment.yaml", IN_PLAIN),
    case("engine-statefulset", "engine-statefulset.yaml", IN),
    case("engine-statefulset-plain", "engine-statefulset.yaml", IN_PLAIN),
    case("engine-daemonset", "engine-daemonset.yaml", ""),
    case("engine-daemonset-plain", "engine-daemonset.yaml", "--native false"),
    case("engine-replicaset", "engine-replicaset.yaml", IN),
    case("engine-replicaset-plain", "engine-replicaset.yaml", IN_PLAIN),
    case("engine-pod", "engine-pod.yaml", IN),
    case("engine-pod-plain", "engine-pod.yaml", IN_PLAIN),
    case("engine-job", "engine-job.yaml", IN),
    case("engine-job-plain", "engine-job.yaml", IN_PLAIN),
    case("engine-cronjob", "engine-cronjob.yaml", IN),
    case("engine-cronjob-plain", "engine-cronjob.yaml", IN_PLAIN),
    case("app-deployment", "app-deployment.yaml", OUT),
    case("app-deployment-plain", "app-deployment.yaml", OUT_PLAIN),
    case("app-statefulset", "app-statefulset.yaml", OUT),
    case("app-statefulset-plain", "app-statefulset.yaml", OUT_PLAIN),
    case("app-daemonset", "app-daemonset.yaml", OUT),
    case("app-daemonset-plain", "app-daemonset.yaml", OUT_PLAIN),
    case("app-replicaset", "app-replicaset.yaml", OUT),
    case("app-replicaset-plain", "app-replicaset.yaml", OUT_PLAIN),
    case("app-pod", "app-pod.yaml", OUT),
    case("app-pod-plain", "app-pod.yaml", OUT_PLAIN),
    case("app-job", "app-job.yaml", OUT),
    case("app-job-plain", "app-job.yaml", OUT_PLAIN),
    case("app-cronjob", "app-cronjob.yaml", ""),
    case("app-cronjob-plain", "app-cronjob.yaml", "--native false"),
    case("list", "list.json", "--mode inbound --cluster prod-1"),
    case("stream", "stream.yaml", OUT),
    case("annotated", "annotated.yaml", ""),
];

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    settings: Settings,
}

fn settings(flags: &str) -> Settings {
    let words = ["inject"].into_iter().chain(flags.split_whitespace());
    Flags::try_parse_from(words).unwrap_or_else(|error| panic!("{flags}: {error}")).settings
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kube").join(name)
}

fn input(name: &str) -> Source {
    Source { name: name.to_owned(), text: fs::read_to_string(folder("input").join(name)).unwrap() }
}

fn injected(source: Source, flags: &str) -> Changed {
    changed(&[source], Some(&settings(flags))).unwrap()
}

fn again(text: &str, flags: &str) -> Changed {
    injected(Source { name: "again".to_owned(), text: text.to_owned() }, flags)
}

fn taken_back(text: &str) -> Changed {
    let source = Source { name: "injected".to_owned(), text: text.to_owned() };
    changed(&[source], None).unwrap()
}

fn check(file: &str, text: &str) {
    check_file(&folder("injected").join(file), text);
}

fn check_file(path: &Path, text: &str) {
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        fs::write(path, text).unwrap();
        return;
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    assert_eq!(text, expected, "{} (UPDATE_FIXTURES=1 writes it anew)", path.display());
}

#[test]
fn what_is_injected_is_as_the_files_say() {
    for case in CASES {
        let suffix = if case.input.ends_with("json") { "json" } else { "yaml" };
        let made = injected(input(case.input), case.flags);
        assert_eq!(made.refused, 0, "{}: {:#?}", case.name, made.told);
        check(&format!("{}.out.{suffix}", case.name), &made.text);
        check(&format!("{}.told.txt", case.name), &(made.told.join("\n") + "\n"));
    }
}

#[test]
fn every_file_belongs_to_a_case() {
    for entry in fs::read_dir(folder("injected")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let stem = name.split('.').next().unwrap_or_default();
        assert!(CASES.iter().any(|case| case.name == stem), "injected/{name}: no case makes it");
    }
    for entry in fs::read_dir(folder("input")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(CASES.iter().any(|case| case.input == name), "input/{name}: no case reads it");
    }
}

/// `deploy/kubernetes` shows manifests with their sidecars: those that `inject` writes.
#[test]
fn the_manifests_of_deploy_are_what_inject_writes() {
    for mode in ["inbound", "outbound"] {
        for (to, flags) in [("", ""), ("no-native-sidecar/", "--native false")] {
            let deploy = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("deploy/kubernetes");
            let text = fs::read_to_string(deploy.join(mode).join("workload.yaml")).unwrap();
            let made = again(&text, flags);
            assert_eq!(made.refused, 0, "{:#?}", made.told);
            assert_eq!(taken_back(&made.text).text, text);
            check_file(&deploy.join(format!("{to}{mode}/injected.yaml")), &made.text);
        }
    }
}

/// The environment of the sidecar in `object`, wherever that keeps its pod, as far as it is written out.
fn sidecar_environment(object: &Value) -> Vec<(String, String)> {
    let pods = ["/spec", "/spec/template/spec", "/spec/jobTemplate/spec/template/spec"];
    let containers = pods
        .iter()
        .filter_map(|pod| object.pointer(pod))
        .flat_map(|pod| [pod.get("initContainers"), pod.get("containers")])
        .flatten()
        .filter_map(Value::as_array)
        .flatten();
    containers
        .filter(|container| {
            container["name"] == "tokengauge" && container["args"] == json!(["run"])
        })
        .flat_map(|container| container["env"].as_array().unwrap())
        .filter_map(|entry| {
            let text = |key: &str| Some(entry.get(key)?.as_str()?.to_owned());
            Some((text("name")?, text("value")?))
        })
        .collect()
}

#[derive(Parser)]
struct Run {
    #[command(flatten)]
    args: RunArgs,
}

/// `tokengauge run` starts with whatever the sidecar of `object` is told, if it has one.
fn starts(object: &Value) -> bool {
    let mut config = None;
    let flags: Vec<String> = sidecar_environment(object)
        .iter()
        .filter_map(|(name, value)| {
            let name = name.strip_prefix("TOKENGAUGE_")?.to_lowercase().replace('_', "-");
            let value = match name.as_str() {
                "config" => config.insert(config_file()).path().to_str().unwrap(),
                _ => value,
            };
            Some(format!("--{name}={value}"))
        })
        .collect();
    if flags.is_empty() {
        return false;
    }
    let line = ["run".to_owned()].into_iter().chain(flags);
    let run = Run::try_parse_from(line).unwrap_or_else(|problem| panic!("{object}{problem}"));
    tokengauge::config::load(&run.args, &|_| None)
        .unwrap_or_else(|problem| panic!("{object}{problem}"));
    true
}

fn config_file() -> tempfile::NamedTempFile {
    let config = tempfile::NamedTempFile::new().unwrap();
    fs::write(&config, "version: 1\nupstreams: {engine: {url: \"http://127.0.0.1:8000\"}}\n")
        .unwrap();
    config
}

/// A sidecar that does not start would keep its pod from starting.
#[test]
fn what_a_sidecar_is_told_is_taken() {
    let mut texts: Vec<String> =
        CASES.iter().map(|case| injected(input(case.input), case.flags).text).collect();
    // A file has the upstreams, and flags that speak of them would be refused.
    let said =
        annotated("config: mine\nprovider: vllm\nengine-metrics: \"true\"\nobjectives: chat");
    texts.extend([IN, OUT].map(|flags| again(&said, flags).text));
    let mut sidecars = 0;
    for text in &texts {
        for document in documents(text).unwrap() {
            for (_, object) in objects(document.value()) {
                sidecars += usize::from(starts(object));
            }
        }
    }
    assert!(sidecars >= 28, "{sidecars}");
}

#[test]
fn injecting_twice_is_injecting_once() {
    for case in CASES {
        let once = injected(input(case.input), case.flags);
        let twice = again(&once.text, case.flags);
        assert!(!twice.changes, "{}: {:#?}", case.name, twice.told);
        assert_eq!(twice.text, once.text, "{}", case.name);
        // Nor does it take anything away to be asked with nothing.
        let unasked = again(&once.text, "");
        assert_eq!(unasked.refused, 0, "{}: {:#?}", case.name, unasked.told);
    }
}

#[test]
fn uninject_takes_it_all_back_byte_for_byte() {
    for case in CASES {
        let before = input(case.input).text;
        let made = injected(input(case.input), case.flags);
        let back = taken_back(&made.text);
        if made.told.iter().any(|line| line.contains(": lost: ")) {
            let values = |text: &str| {
                documents(text).unwrap().iter().map(|it| it.value().clone()).collect::<Vec<_>>()
            };
            assert_eq!(values(&back.text), values(&before), "{}", case.name);
        } else {
            assert_eq!(back.text, before, "{}", case.name);
        }
        assert!(
            !back.told.iter().any(|line| line.contains("lost")),
            "{}: {:#?}",
            case.name,
            back.told
        );
    }
}

/// Found by random manifests: `volumes:` with nothing behind it was taken back as no `volumes` at all.
#[test]
fn a_null_comes_back_as_a_null() {
    let text = pod(
        "  annotations:\n",
        "  initContainers: # none\n  volumes:\n  terminationGracePeriodSeconds:\n",
    );
    for flags in [IN, "--mode inbound --config mine", OUT] {
        let made = again(&text, flags);
        assert!(made.changes && made.refused == 0, "{:#?}", made.told);
        assert_eq!(taken_back(&made.text).text, text);
    }
}

/// Another image is another sidecar: what was is taken back first, so the result is that of the first time.
#[test]
fn other_settings_are_as_if_they_had_been_the_first() {
    for case in CASES {
        let flags =
            format!("{} --image registry.example/tokengauge:9.9.9 --objectives voice", case.flags);
        let before = injected(input(case.input), case.flags);
        let renewed = again(&before.text, &flags);
        let direct = injected(input(case.input), &flags);
        let values = |text: &str| {
            documents(text).unwrap().iter().map(|it| it.value().clone()).collect::<Vec<_>>()
        };
        assert_eq!(values(&renewed.text), values(&direct.text), "{}", case.name);
    }
}

fn value(text: &str) -> Value {
    documents(text).unwrap().first().unwrap().value().clone()
}

fn outcome(text: &str, flags: &str) -> Outcome {
    let settings = settings(flags);
    let texts = documents(text).unwrap();
    let all: Vec<&Value> =
        texts.iter().flat_map(|it| objects(it.value())).map(|(_, object)| object).collect();
    inject(all.first().unwrap(), &Around::of(&all, &settings), &settings)
}

/// A pod with one engine on a named port; `metadata` and `spec` are put into its lines.
fn pod(metadata: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n{metadata}spec:\n{spec}  containers:\n  - name: a\n    \
         image: vllm\n    ports:\n    - {{name: http, containerPort: 8000}}\n"
    )
}

fn annotated(lines: &str) -> String {
    let lines: String = lines.lines().map(|line| format!("    tokengauge.dev/{line}\n")).collect();
    pod(&format!("  annotations:\n{lines}"), "")
}

#[test]
fn what_is_wrong_is_refused_with_what_where_and_what_to_do() {
    let cases = [
        ("mdoe: inbound", "tokengauge.dev/mdoe: there is no such annotation; the nearest is mode"),
        ("mode: sideways", "tokengauge.dev/mode: \"sideways\" is none of inbound, outbound"),
        (
            "port: \"70000\"",
            "tokengauge.dev/port: \"70000\" is no port; write a number from 1 to 65535",
        ),
        (
            "port: grpc",
            "no container declares the TCP port grpc; choose one of http (8000, container a)",
        ),
        ("upstream: ftp://x", "tokengauge.dev/upstream: the URL is neither http:// nor https://"),
        (
            "objectives: fast",
            "tokengauge.dev/objectives: \"fast\" is none of chat, voice, code, batch, agent",
        ),
        ("memory-limit: 1 GB", "tokengauge.dev/memory-limit: \"1 GB\" is no quantity above zero"),
        ("drain: \"30\"", "tokengauge.dev/drain: \"30\" has no unit of time"),
        ("native: yes", "tokengauge.dev/native: "),
        ("provider: A B", "tokengauge.dev/provider: \"A B\" is no provider's name"),
        ("image: \"a b\"", "tokengauge.dev/image: \"a b\" is no image"),
        ("listen-port: \"4001\"", "listen-port and admin-port are both 4001"),
        ("listen-port: \"8000\"", "container a uses port 8000 itself"),
        ("otlp-endpoint: node:4317", "tokengauge.dev/otlp-endpoint: "),
        ("config: Big", "tokengauge.dev/config: \"Big\" is no name of a ConfigMap"),
    ];
    for (annotation, expected) in cases {
        match outcome(&annotated(annotation), IN) {
            Outcome::Refused(problem) => {
                let told = problem.to_string();
                assert!(told.starts_with(expected), "{annotation}: {told}");
            }
            other => panic!("{annotation}: {other:?}"),
        }
    }
    match outcome(&annotated("containers: b"), OUT) {
        Outcome::Refused(Problem::NoSuchContainer { name, .. }) => assert_eq!(name, "b"),
        other => panic!("{other:?}"),
    }
    assert_eq!(outcome(&annotated("inject: enabled"), ""), Outcome::Refused(Problem::ModeUnknown));
}

#[test]
fn a_url_with_a_password_is_never_echoed() {
    for annotation in ["upstream: https://me:s3cret@host", "otlp-endpoint: https://me:s3cret@host"]
    {
        match outcome(&annotated(annotation), IN) {
            Outcome::Refused(problem) => {
                assert!(!format!("{problem} {problem:?}").contains("s3cret"), "{problem:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_cannot_have_a_sidecar_is_skipped_for_a_reason() {
    let cases = [
        (pod("", ""), "", Reason::NotAsked),
        (annotated("inject: disabled"), IN, Reason::OptedOut),
        (pod("  labels: {tokengauge.dev/inject: disabled}\n", ""), IN, Reason::OptedOut),
        (pod("", "  hostNetwork: true\n"), IN, Reason::HostNetwork),
        (pod("", "  nodeSelector: {kubernetes.io/os: windows}\n"), IN, Reason::Windows),
        (pod("", "  initContainers: [{name: tokengauge}]\n"), IN, Reason::ForeignContainer),
        (
            "apiVersion: v1\nkind: Pod\nspec: {containers: []}\n".to_owned(),
            IN,
            Reason::NoContainers,
        ),
        (
            "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nspec: {leaderWorkerTemplate: {leaderTemplate: {spec: \
             {containers: [{name: a}]}}}}\n"
                .to_owned(),
            IN,
            Reason::CustomKind { kind: "LeaderWorkerSet.leaderworkerset.x-k8s.io".to_owned() },
        ),
        (
            // Knative's Service is not the one of Kubernetes.
            "apiVersion: serving.knative.dev/v1\nkind: Service\nspec: {template: {spec: {containers: [{name: a}]}}}\n".to_owned(),
            IN,
            Reason::CustomKind { kind: "Service.serving.knative.dev".to_owned() },
        ),
        (
            "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nspec: {predictor: {model: {}}}\n".to_owned(),
            IN,
            Reason::CustomKind { kind: "InferenceService.serving.kserve.io".to_owned() },
        ),
        (
            "apiVersion: extensions/v1beta1\nkind: Deployment\nspec: {template: {spec: {containers: [{name: a}]}}}\n".to_owned(),
            IN,
            Reason::FormerKind { kind: "Deployment in extensions/v1beta1".to_owned() },
        ),
        (
            // A schema is no pod, whatever its fields are called.
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec: {versions: [{schema: {properties: \
             {containers: {items: {}}}}}]}\n"
                .to_owned(),
            IN,
            Reason::NotAWorkload,
        ),
        (
            // It runs what another object describes.
            "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nspec: {workloadRef: {name: a}}\n".to_owned(),
            IN,
            Reason::NotAWorkload,
        ),
        ("apiVersion: v1\nkind: ConfigMap\n".to_owned(), IN, Reason::NotAWorkload),
        (
            "apiVersion: batch/v1\nkind: Job\nspec: {template: {spec: {containers: [{name: a}]}}}\n".to_owned(),
            OUT_PLAIN,
            Reason::JobNeedsNative,
        ),
    ];
    for (text, flags, reason) in cases {
        assert_eq!(outcome(&text, flags), Outcome::Skipped(reason), "{text}");
    }
}

#[test]
fn a_port_without_a_name_wants_its_service_in_sight() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {app: a}}\nspec:\n  containers:\n  - name: a\n    \
               ports: [{containerPort: 8000}]\n";
    let service = |more: &str| {
        format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: s}}\nspec: {{selector: {{app: a}}, {more}}}\n"
        )
    };
    let refused = Outcome::Refused(Problem::NumberedPort { port: 8000, headless: None });
    assert_eq!(outcome(pod, IN), refused);
    assert_eq!(outcome(&format!("{pod}{}", service("ports: [{port: 80}]")), IN), refused);
    let headless = service("clusterIP: None, ports: [{port: 8000}]");
    let by_clients =
        Outcome::Refused(Problem::NumberedPort { port: 8000, headless: Some("s".to_owned()) });
    assert_eq!(outcome(&format!("{pod}{headless}"), IN), by_clients);
    let fits = service("ports: [{port: 80, targetPort: 8000}]");
    assert!(matches!(outcome(&format!("{pod}{fits}"), IN), Outcome::Changed { .. }));
    let elsewhere = fits.replace("name: s}", "name: s, namespace: other}");
    let here = pod.replace("name: p,", "name: p, namespace: here,");
    assert_eq!(outcome(&format!("{here}{elsewhere}"), IN), refused);
    let seen_to = format!("{IN} --listen-port 4000");
    assert!(matches!(outcome(pod, &seen_to), Outcome::Changed { .. }));
}

/// Led to the sidecar's number, such a Service would cut off the pods that have none.
#[test]
fn a_service_of_two_workloads_is_led_only_where_both_are_taken_over() {
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {selector: {app: a}, ports: [{port: 8000}]}\n";
    let pod = |name: &str, more: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: a}}{more}}}\nspec:\n  containers:\n  \
             - name: a\n    image: vllm\n    ports: [{{containerPort: 8000}}]\n"
        )
    };
    let both = format!("{service}{}{}", pod("p", ""), pod("q", ""));
    assert!(matches!(outcome(&both, IN), Outcome::Changed { .. }));
    let out = ", annotations: {tokengauge.dev/inject: disabled}";
    let one = format!("{service}{}{}", pod("p", ""), pod("q", out));
    let refused = Problem::SharedService { workload: "pod/q".to_owned(), port: 8000 };
    assert_eq!(outcome(&one, IN), Outcome::Refused(refused));
}

#[test]
fn a_network_policy_that_would_shut_the_sidecar_out_is_told() {
    let policy = |port: &str| {
        format!(
            "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: only-http}}\nspec: {{podSelector: {{}}, \
             ingress: [{{ports: [{{port: {port}}}]}}]}}\n"
        )
    };
    let told = |port: &str| {
        let made = again(&format!("{}{}", pod("", ""), policy(port)), IN);
        let says = "NetworkPolicy only-http lets in port 8000 by number: let in 4000";
        made.told.iter().any(|line| line.contains(says))
    };
    assert!(told("8000"));
    assert!(!told("http"), "a name is followed");
}

/// Without a selector a Service has no pods of its own, and leads nowhere that could be taken over.
#[test]
fn a_service_without_a_selector_is_left_alone() {
    for selector in ["", "selector: {}, "] {
        let text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: s}}\nspec: {{{selector}ports: [{{port: 8000}}]}}\n---\n{}",
            pod("", "")
        );
        assert_eq!(outcome(&text, IN), Outcome::Skipped(Reason::NotAWorkload));
    }
}

#[test]
fn one_refusal_is_that_of_the_whole_and_is_told_with_its_place() {
    let text = format!("{}---\n# a comment\n{}", pod("", ""), annotated("mode: sideways"));
    let made = again(&text, IN);
    assert_eq!(made.refused, 1);
    let line = made.told.last().unwrap();
    assert!(line.starts_with("again:13: pod/p: refused: tokengauge.dev/mode: "), "{line}");
}

#[test]
fn several_files_are_one_stream() {
    let sources = [input("app-pod.yaml"), input("engine-pod.yaml")];
    let made = changed(&sources, Some(&settings(OUT))).unwrap();
    let kinds: Vec<Value> =
        documents(&made.text).unwrap().iter().map(|it| it.value()["kind"].clone()).collect();
    assert_eq!(kinds, ["Pod", "Pod"]);
}

/// What the webhook sees first may have been injected by hand: it keeps what it has.
#[test]
fn alone_a_sidecar_is_never_renewed() {
    let made = again(&pod("", ""), IN);
    let other = settings("--mode inbound --image registry.example/tokengauge:9.9.9");
    let outcome = inject(&value(&made.text), &Around::alone(), &other);
    assert_eq!(outcome, Outcome::Skipped(Reason::AlreadyInjected));
}

#[test]
fn uninject_leaves_and_tells_what_was_changed_since() {
    let made = again(&pod("", ""), IN).text;
    let grace =
        made.replace("terminationGracePeriodSeconds: 330", "terminationGracePeriodSeconds: 900");
    let back = taken_back(&grace);
    let text = &back.text;
    assert!(
        text.contains("terminationGracePeriodSeconds: 900") && !text.contains("tokengauge"),
        "{text}"
    );
    let told =
        "/spec/terminationGracePeriodSeconds was changed since `inject`, so it is left as it is";
    assert!(back.told.iter().any(|line| line.ends_with(told)), "{:#?}", back.told);
    // An API server fills in defaults; they are no change.
    let mut defaulted = value(&made);
    defaulted["spec"]["containers"][0]["lifecycle"]["preStop"]["httpGet"]["scheme"] = "HTTP".into();
    defaulted["spec"]["containers"][0]["ports"][1]["protocol"] = "TCP".into();
    match uninject(&defaulted) {
        Outcome::Changed { patch, notes } => {
            assert_eq!(notes.len(), 1, "{notes:?}");
            json_patch::patch(&mut defaulted, &patch).unwrap();
            assert_eq!(defaulted, value(&pod("", "")));
        }
        other => panic!("{other:?}"),
    }
    let broken = made
        .replace("\"version\":1", "\"version\":7")
        .replace("\\\"version\\\":1", "\\\"version\\\":7");
    match uninject(&value(&broken)) {
        Outcome::Refused(problem) => assert_eq!(problem.as_str(), "broken_record"),
        other => panic!("{other:?}"),
    }
}

/// What real manifests look like, and what becomes of them: byte for byte the same when all is taken back.
#[test]
fn what_templates_leave_behind_comes_back_byte_for_byte() {
    let head = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n";
    let spec = "spec:\n  containers:\n    - name: a\n      ports:\n        - {name: http, containerPort: 8000}\n";
    let texts = [
        // A key without a value, as `{{- with }}` leaves it.
        format!("{head}  annotations:\n{spec}      env:\n"),
        format!(
            "{head}  labels:\nspec:\n  initContainers:\n  containers:\n    - name: a\n      env: # none\n      lifecycle:\n      ports:\n        - {{name: http, containerPort: 8000}}\n  volumes:\n"
        ),
        // No line end at the end.
        format!("{head}{spec}      env:"),
        format!("{head}{}", spec.trim_end()),
        format!("{head}{spec}  restartPolicy: Always"),
        format!("{head}{spec}  restartPolicy: Always").replace('\n', "\r\n"),
        format!("{head}  annotations:\n    note: |\n      text{}", &""),
        format!("{head}{spec}---\n{head}{spec}  # the end"),
    ];
    for text in texts {
        for flags in [IN, OUT] {
            if flags == IN && !text.contains("8000") {
                continue;
            }
            let flags = format!("{flags} --config settings");
            let source = |text: &str| Source { name: "a".to_owned(), text: text.to_owned() };
            let there = changed(&[source(&text)], Some(&settings(&flags))).unwrap();
            assert_eq!(there.text.ends_with('\n'), text.ends_with('\n'), "{text}");
            let back = changed(&[source(&there.text)], None).unwrap();
            assert_eq!(back.text, text, "{flags}: {:?}", back.told);
        }
    }
}

/// A flag that is meant for the engine must not put a proxy for HTTP before the database beside it.
#[test]
fn inbound_by_a_flag_takes_the_engine_and_leaves_its_neighbours() {
    let workload = |name: &str, image: &str, annotation: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  annotations: {{{annotation}}}\nspec:\n  \
             containers:\n    - name: it\n      image: {image}\n      ports: [{{name: it, containerPort: 6379}}]\n"
        )
    };
    let engine = workload("chat", "vllm/vllm-openai:1", "");
    let redis = workload("redis", "redis:8", "");
    let own = workload("own", "registry.example/own:1", "'tokengauge.dev/mode': inbound");
    let text = format!("{engine}{redis}{own}");
    let source = Source { name: "a".to_owned(), text: text.clone() };
    let made = changed(&[source], Some(&settings(IN))).unwrap();
    let took = |name: &str| {
        let says = format!("pod/{name}: adds ");
        made.told.iter().any(|line| line.contains(&says))
    };
    assert!(took("chat") && took("own") && !took("redis"), "{:?}", made.told);
    assert!(made.told.iter().any(|line| line.contains("pod/redis: skipped: no engine is known")));

    // The only one is meant, whatever it is; so is one that is named.
    let documents = documents(&text).unwrap();
    let all: Vec<&Value> =
        documents.iter().flat_map(|it| objects(it.value())).map(|(_, it)| it).collect();
    let wanted = settings(IN);
    let redis = *all.get(1).unwrap();
    let changes = |around: &Around, object| {
        matches!(inject(object, around, &wanted), Outcome::Changed { .. })
    };
    assert!(changes(&Around::of(&[redis], &wanted), redis));
    let named = Around::of_some(&all, &wanted, &["pod/redis".to_owned()]);
    assert!(changes(&named, redis));
    for other in [0, 2] {
        assert_eq!(
            inject(all.get(other).unwrap(), &named, &wanted),
            Outcome::Skipped(Reason::NotNamed)
        );
    }
    // What is for applications is for all of them.
    let wanted = settings(OUT);
    let around = Around::of(&all, &wanted);
    assert!(matches!(inject(redis, &around, &wanted), Outcome::Changed { .. }));
}

/// kubectl puts an object without a namespace where it is told to, and refuses what says another.
#[test]
fn a_service_is_found_though_only_one_of_the_two_says_its_namespace() {
    let led = |pods: &str, service: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, {pods}labels: {{app: a}}}}\nspec:\n  containers: [{{name: a, ports: \
             [{{containerPort: 8000}}]}}]\n---\napiVersion: v1\nkind: Service\nmetadata: {{{service}name: s}}\nspec: \
             {{selector: {{app: a}}, ports: [{{port: 8000}}]}}\n"
        );
        matches!(outcome(&text, IN), Outcome::Changed { .. })
    };
    assert!(led("", "") && led("namespace: a, ", "") && led("", "namespace: a, "));
    assert!(!led("namespace: a, ", "namespace: b, "));
}

#[test]
fn who_dials_the_pod_by_number_is_told() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {app: a}}\nspec:\n  containers:\n  - {name: a, ports: \
               [{name: http, containerPort: 8000}]}\n---\n";
    let told = |kind: &str, spec: &str| {
        let text = format!("{pod}apiVersion: {kind}\nmetadata: {{name: it}}\nspec: {spec}\n");
        let source = Source { name: "a".to_owned(), text };
        let made = changed(&[source], Some(&settings(IN))).unwrap();
        let says =
            "InferencePool it dials port 8000 of the pod itself, past the sidecar: give it 4000";
        made.told.iter().any(|line| line.contains(says))
    };
    let former = "inference.networking.x-k8s.io/v1alpha2\nkind: InferencePool";
    assert!(told(former, "{selector: {app: a}, targetPortNumber: 8000}"));
    assert!(!told(former, "{selector: {app: b}, targetPortNumber: 8000}"));
    assert!(!told(former, "{targetPortNumber: 8000}"));
    let pool = "inference.networking.k8s.io/v1\nkind: InferencePool";
    assert!(told(pool, "{selector: {matchLabels: {app: a}}, targetPorts: [{number: 8000}]}"));
    assert!(!told(pool, "{selector: {matchLabels: {app: a}}, targetPorts: [{number: 4000}]}"));

    let headless = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {clusterIP: None, selector: {app: a}, ports: \
                    [{port: 8000}]}\n";
    let text = format!("{}{headless}", pod.replace("name: http, ", ""));
    let refused = Problem::NumberedPort { port: 8000, headless: Some("s".to_owned()) };
    assert!(refused.to_string().contains("Service s, which leads there, is headless"));
    assert_eq!(outcome(&text, IN), Outcome::Refused(refused));
}

/// What takes a variable's place is what the variable said: its URL, with the path of it.
#[test]
fn a_variable_that_is_kept_is_told_with_the_route_that_would_replace_it() {
    let pod = |env: &str, upstream: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, annotations: {{{upstream}}}}}\nspec:\n  containers:\n  - {{name: a, \
             env: [{env}]}}\n"
        )
    };
    let url = "http://gateway.ai/openai/v1";
    let made = |text: String| {
        let source = Source { name: "a".to_owned(), text };
        changed(&[source], Some(&settings(OUT))).unwrap()
    };
    let kept = made(pod(&format!("{{name: OPENAI_BASE_URL, value: '{url}'}}"), ""));
    let says = format!("say tokengauge.dev/upstream: /openai={url}");
    assert!(kept.told.iter().any(|line| line.ends_with(&says)), "{:?}", kept.told);
    let routed = made(pod("", &format!("'tokengauge.dev/upstream': '/openai={url}'")));
    assert!(
        routed.text.contains("\"http://127.0.0.1:4000/openai\"")
            || routed.text.contains("http://127.0.0.1:4000/openai\n"),
        "{}",
        routed.text
    );
}

#[test]
fn a_template_and_an_input_without_pods_are_told_as_such() {
    let source = |text: &str| [Source { name: "a".to_owned(), text: text.to_owned() }];
    let wrong = changed(&source("metadata:\n  name: {{ .Release.Name }}\n"), None).unwrap_err();
    assert!(wrong.ends_with("give inject what `helm template` makes of it"), "{wrong}");
    let made = changed(&source("apiVersion: v1\nkind: ConfigMap\n"), Some(&settings(IN))).unwrap();
    assert_eq!(made.told, ["nothing is changed: no object in the input runs pods"]);
}
