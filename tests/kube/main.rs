//! Tests `inject` and `uninject` on manifests. The output must equal the files in `tests/fixtures/kube/injected`, and
//! `uninject` must restore the input.
//!
//! `UPDATE_FIXTURES=1 cargo test --test kube` rewrites these files. Review the difference before you commit it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use serde_json::{Value, json};
use tokengauge::config::RunArgs;
use tokengauge_kubernetes::inject::{
    Change, ChangeNote, InjectError, InjectionContext, NoChange, Outcome, Settings, SkipReason,
    document_objects, inject, uninject,
};
use tokengauge_kubernetes::manifests::{
    ChangedManifests, ManifestFile, Operation, change_manifests,
};
use tokengauge_kubernetes::yaml::parse_documents;

mod choices;
mod cluster;
mod generated;
mod invalid;
mod manifests;
mod writer;

/// An input file, its flags, and the base name of the expected output.
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

/// Each kind in each mode, native and plain, then special inputs.
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

/// The image in the expected output.
const IMAGE: &str = "ghcr.io/example/tokengauge:0.1.0";

fn settings(flags: &str) -> Settings {
    let image = (!flags.contains("--image")).then_some(["--image", IMAGE]).into_iter().flatten();
    let words = ["inject"].into_iter().chain(image).chain(flags.split_whitespace());
    Flags::try_parse_from(words).unwrap_or_else(|error| panic!("{flags}: {error}")).settings
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kube").join(name)
}

fn file(text: impl Into<String>) -> ManifestFile {
    ManifestFile { name: "x.yaml".to_owned(), text: text.into() }
}

fn input(name: &str) -> ManifestFile {
    let text = fs::read_to_string(folder("input").join(name)).unwrap();
    ManifestFile { name: name.to_owned(), text }
}

fn inject_files(files: &[ManifestFile], flags: &str) -> Result<ChangedManifests, String> {
    change_manifests(files, Operation::Inject { settings: &settings(flags), only: &[] })
}

fn injected(input_name: &str, flags: &str) -> ChangedManifests {
    inject_files(&[input(input_name)], flags).unwrap()
}

fn injected_text(text: &str, flags: &str) -> ChangedManifests {
    inject_files(&[file(text)], flags).unwrap()
}

fn uninjected(text: &str) -> ChangedManifests {
    change_manifests(&[file(text)], Operation::Uninject).unwrap()
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
    assert_eq!(text, expected, "{} differs (UPDATE_FIXTURES=1 rewrites it)", path.display());
}

#[test]
fn output_equals_the_fixtures() {
    for case in CASES {
        let suffix = if case.input.ends_with("json") { "json" } else { "yaml" };
        let made = injected(case.input, case.flags);
        assert_eq!(made.refused, 0, "{}: {:#?}", case.name, made.messages);
        check(&format!("{}.out.{suffix}", case.name), &made.text);
        check(&format!("{}.messages.txt", case.name), &(made.messages.join("\n") + "\n"));
    }
}

#[test]
fn every_fixture_has_a_case() {
    for entry in fs::read_dir(folder("injected")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let stem = name.split('.').next().unwrap_or_default();
        assert!(CASES.iter().any(|case| case.name == stem), "injected/{name}: no case writes it");
    }
    for entry in fs::read_dir(folder("input")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(CASES.iter().any(|case| case.input == name), "input/{name}: no case reads it");
    }
}

/// The examples in `deploy/kubernetes` are the output of `inject`.
#[test]
fn deploy_manifests_are_the_output_of_inject() {
    for mode in ["inbound", "outbound"] {
        for (to, flags) in [("", ""), ("no-native-sidecar/", "--native false")] {
            let deploy = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("deploy/kubernetes");
            let text = fs::read_to_string(deploy.join(mode).join("workload.yaml")).unwrap();
            let made = injected_text(&text, flags);
            assert_eq!(made.refused, 0, "{:#?}", made.messages);
            assert_eq!(uninjected(&made.text).text, text);
            check_file(&deploy.join(format!("{to}{mode}/injected.yaml")), &made.text);
        }
    }
}

/// Returns the variables with literal values of the sidecar in `object`, which may be of any workload kind.
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

/// Checks that `tokengauge run` accepts the environment of the sidecar in `object`. Returns whether it has a sidecar.
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

/// If a sidecar does not start, its pod does not start either.
#[test]
fn run_accepts_the_configuration_of_every_sidecar() {
    let mut texts: Vec<String> =
        CASES.iter().map(|case| injected(case.input, case.flags).text).collect();
    // A file defines the upstreams, and `run` rejects flags that describe them.
    let with_file = annotated("config: mine\nprovider: vllm\nengine-metrics: \"true\"\nslos: chat");
    texts.extend([IN, OUT].map(|flags| injected_text(&with_file, flags).text));
    let mut sidecars = 0;
    for text in &texts {
        for document in parse_documents(text).unwrap() {
            for (_, object) in document_objects(document.value()) {
                sidecars += usize::from(starts(object));
            }
        }
    }
    assert!(sidecars >= 28, "{sidecars}");
}

#[test]
fn injecting_twice_changes_nothing() {
    for case in CASES {
        let once = injected(case.input, case.flags);
        let twice = injected_text(&once.text, case.flags);
        assert!(!twice.has_changes, "{}: {:#?}", case.name, twice.messages);
        assert_eq!(twice.text, once.text, "{}", case.name);
        // Without flags, existing sidecars stay.
        let without_flags = injected_text(&once.text, "");
        assert_eq!(without_flags.refused, 0, "{}: {:#?}", case.name, without_flags.messages);
    }
}

#[test]
fn uninject_restores_the_input_byte_for_byte() {
    for case in CASES {
        let before = input(case.input).text;
        let made = injected(case.input, case.flags);
        let back = uninjected(&made.text);
        if made.messages.iter().any(|line| line.contains(": lost: ")) {
            let values = |text: &str| {
                parse_documents(text)
                    .unwrap()
                    .iter()
                    .map(|it| it.value().clone())
                    .collect::<Vec<_>>()
            };
            assert_eq!(values(&back.text), values(&before), "{}", case.name);
        } else {
            assert_eq!(back.text, before, "{}", case.name);
        }
        assert!(
            !back.messages.iter().any(|line| line.contains("lost")),
            "{}: {:#?}",
            case.name,
            back.messages
        );
    }
}

/// Regression test from random manifests: `volumes:` without a value was removed instead of restored.
#[test]
fn uninject_restores_null_values() {
    let text = pod(
        "  annotations:\n",
        "  initContainers: # none\n  volumes:\n  terminationGracePeriodSeconds:\n",
    );
    for flags in [IN, "--mode inbound --config mine", OUT] {
        let made = injected_text(&text, flags);
        assert!(made.has_changes && made.refused == 0, "{:#?}", made.messages);
        assert_eq!(uninjected(&made.text).text, text);
    }
}

/// Injection with other settings removes the old sidecar first, so the result equals that of a first injection.
#[test]
fn other_settings_replace_the_sidecar() {
    for case in CASES {
        let flags =
            format!("{} --image registry.example/tokengauge:9.9.9 --slos voice", case.flags);
        let before = injected(case.input, case.flags);
        let renewed = injected_text(&before.text, &flags);
        let direct = injected(case.input, &flags);
        let values = |text: &str| {
            parse_documents(text).unwrap().iter().map(|it| it.value().clone()).collect::<Vec<_>>()
        };
        assert_eq!(values(&renewed.text), values(&direct.text), "{}", case.name);
    }
}

fn value(text: &str) -> Value {
    parse_documents(text).unwrap().first().unwrap().value().clone()
}

fn outcome(text: &str, flags: &str) -> Outcome {
    let settings = settings(flags);
    let texts = parse_documents(text).unwrap();
    let all: Vec<&Value> = texts
        .iter()
        .flat_map(|it| document_objects(it.value()))
        .map(|(_, object)| object)
        .collect();
    inject(all.first().unwrap(), &InjectionContext::new(&all, &settings, &[]), &settings)
}

/// Returns a pod with one engine on a named port. `metadata` and `spec` are additional lines.
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
fn pinned_annotations_are_refused() {
    for (annotation, is_refused) in [("image: evil/image:1", true), ("cpu-request: \"1\"", false)] {
        let outcome = outcome(&annotated(annotation), "--mode inbound --pin image,config");
        let error = "tokengauge.dev/image: the injector does not allow this annotation (--pin)";
        match outcome {
            Err(NoChange::Refused(refused)) if is_refused => {
                assert!(refused.to_string().starts_with(error), "{refused}");
            }
            Ok(_) if !is_refused => {}
            other => panic!("{annotation}: {other:?}"),
        }
    }
}

fn sidecar(change: &Change) -> &Value {
    change.value.pointer("/spec/initContainers/0").unwrap()
}

#[test]
fn openshift_assigns_the_user_of_the_sidecar() {
    let scc = "  annotations:\n    openshift.io/scc: restricted-v2\n";
    let ranged = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: llm\n  annotations:\n    \
                  openshift.io/sa.scc.uid-range: 1000650000/10000\n";
    let other = ranged.replace("name: llm", "name: prod");
    let root = "  securityContext: {runAsUser: 0}\n";
    let user = |text: &str, flags: &str| {
        let change = outcome(text, flags).unwrap();
        let context = &sidecar(&change)["securityContext"];
        assert_eq!(context["runAsNonRoot"], true, "{text}");
        assert_eq!(context["runAsUser"], context["runAsGroup"], "{text}");
        context["runAsUser"].as_i64()
    };
    let namespaced = pod("  namespace: llm\n", "");
    for (text, flags, expected) in [
        (pod("", ""), IN.to_owned(), Some(65_532)),
        (pod(scc, ""), IN.to_owned(), None),
        (pod("", ""), format!("{IN} --run-as-user none"), None),
        (pod(scc, ""), format!("{IN} --run-as-user 1000650000"), Some(1_000_650_000)),
        (annotated("run-as-user: none"), IN.to_owned(), None),
        (annotated("run-as-user: \"2000\""), format!("{IN} --run-as-user none"), Some(2_000)),
        // The sidecar would inherit the pod's user and could not start.
        (pod(scc, root), IN.to_owned(), Some(65_532)),
        (format!("{namespaced}---\n{ranged}"), IN.to_owned(), None),
        (format!("{namespaced}---\n{other}"), IN.to_owned(), Some(65_532)),
    ] {
        assert_eq!(user(&text, &flags), expected, "{flags}\n{text}");
    }
}

#[test]
fn a_guaranteed_pod_stays_guaranteed_or_a_warning_says_how() {
    let engine = |resources: &str| format!("{}    resources: {resources}\n", pod("", ""));
    let guaranteed =
        engine("{limits: {cpu: 2, memory: 8Gi}, requests: {cpu: 2000m, memory: 8192Mi}}");
    let warnings = |text: &str, flags: &str| {
        let change = outcome(text, &format!("{IN} {flags}")).unwrap();
        let notes = change.notes.iter().filter(|note| note.is_warning);
        (
            notes.map(|note| note.text.clone()).collect::<Vec<_>>(),
            sidecar(&change)["resources"].clone(),
        )
    };
    let (found, resources) = warnings(&guaranteed, "");
    assert_eq!(
        found,
        [
            "the sidecar changes the quality-of-service class of the pod from Guaranteed to Burstable; to keep the class, \
          set cpu-limit and cpu-request to 100m, and memory-request and memory-limit to 256Mi"
        ]
    );
    assert_eq!(resources["limits"], json!({ "memory": "256Mi" }), "no CPU limit by default");
    let (found, resources) = warnings(&guaranteed, "--cpu-limit 100m --memory-request 256Mi");
    assert_eq!(found, Vec::<String>::new());
    assert_eq!(resources["limits"], resources["requests"], "{resources}");
    let burstable = engine("{limits: {memory: 8Gi}, requests: {cpu: 2}}");
    for text in
        [burstable, pod("", ""), engine("{limits: {cpu: 2, memory: 8Gi}, requests: {cpu: 1}}")]
    {
        assert_eq!(warnings(&text, "").0, Vec::<String>::new(), "{text}");
    }
}

#[test]
fn errors_name_the_value_the_place_and_the_fix() {
    let cases = [
        (
            "mdoe: inbound",
            "tokengauge.dev/mdoe: unknown annotation; did you mean tokengauge.dev/mode?",
        ),
        ("mode: sideways", "tokengauge.dev/mode: \"sideways\" is not one of inbound, outbound"),
        (
            "port: \"70000\"",
            "tokengauge.dev/port: \"70000\" is not a port; write a number from 1 to 65535",
        ),
        (
            "port: grpc",
            "no container declares TCP port grpc; choose one of http (8000, container a)",
        ),
        ("upstream: ftp://x", "tokengauge.dev/upstream: the URL is neither http:// nor https://"),
        (
            "slos: fast",
            "tokengauge.dev/slos: \"fast\" is not one of chat, voice, code, batch, agent",
        ),
        (
            "memory-limit: 1 GB",
            "tokengauge.dev/memory-limit: \"1 GB\" is not a quantity above zero",
        ),
        (
            "shutdown-grace-period: \"30\"",
            "tokengauge.dev/shutdown-grace-period: \"30\" is missing a time unit",
        ),
        ("native: yes", "tokengauge.dev/native: "),
        ("provider: A B", "tokengauge.dev/provider: \"A B\" is not a provider name"),
        ("image: \"a b\"", "tokengauge.dev/image: \"a b\" is not an image reference"),
        ("listen-port: \"4001\"", "listen-port and admin-port are both 4001"),
        ("listen-port: \"8000\"", "container a already uses port 8000"),
        ("otlp-endpoint: node:4317", "tokengauge.dev/otlp-endpoint: "),
        ("config: Big", "tokengauge.dev/config: \"Big\" is not a ConfigMap name"),
        (
            "run-as-user: \"0\"",
            "tokengauge.dev/run-as-user: \"0\" is not a user id; write a number",
        ),
        ("cpu-limit: 1 core", "tokengauge.dev/cpu-limit: \"1 core\" is not a quantity above zero"),
        ("memory-limit: 32Mi", "the sidecar's memory request exceeds its memory limit; lower"),
    ];
    for (annotation, expected) in cases {
        match outcome(&annotated(annotation), IN) {
            Err(NoChange::Refused(error)) => {
                let message = error.to_string();
                assert!(message.starts_with(expected), "{annotation}: {message}");
            }
            other => panic!("{annotation}: {other:?}"),
        }
    }
    match outcome(&annotated("containers: b"), OUT) {
        Err(NoChange::Refused(InjectError::NoSuchContainer { name, .. })) => assert_eq!(name, "b"),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        outcome(&annotated("inject: enabled"), ""),
        Err(NoChange::Refused(InjectError::MissingMode))
    );
}

#[test]
fn without_an_image_the_error_says_what_to_pass() {
    let without = Settings { image: None, ..settings(OUT) };
    let inject = |annotations: &str| {
        let text = annotated(annotations);
        let texts = parse_documents(&text).unwrap();
        inject(texts[0].value(), &InjectionContext::standalone(), &without)
    };
    match inject("") {
        Err(NoChange::Refused(error @ InjectError::MissingImage)) => {
            assert!(error.to_string().contains("pass --image "), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let change = inject("image: registry.example/own:1").unwrap();
    assert!(change.value.to_string().contains("registry.example/own:1"), "{}", change.value);
    let skipped = inject("inject: disabled");
    assert!(matches!(skipped, Err(NoChange::Skipped(_))), "needs no image: {skipped:?}");
}

#[test]
fn errors_never_repeat_a_url_with_a_password() {
    for annotation in ["upstream: https://me:s3cret@host", "otlp-endpoint: https://me:s3cret@host"]
    {
        match outcome(&annotated(annotation), IN) {
            Err(NoChange::Refused(error)) => {
                assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn skips_objects_that_cannot_have_a_sidecar() {
    let cases = [
        (pod("", ""), "", SkipReason::NotRequested),
        (annotated("inject: disabled"), IN, SkipReason::OptedOut),
        (pod("  labels: {tokengauge.dev/inject: disabled}\n", ""), IN, SkipReason::OptedOut),
        (pod("", "  hostNetwork: true\n"), IN, SkipReason::HostNetwork),
        (pod("", "  nodeSelector: {kubernetes.io/os: windows}\n"), IN, SkipReason::Windows),
        (pod("", "  initContainers: [{name: tokengauge}]\n"), IN, SkipReason::ForeignContainer),
        (
            "apiVersion: v1\nkind: Pod\nspec: {containers: []}\n".to_owned(),
            IN,
            SkipReason::NoContainers,
        ),
        (
            "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nspec: {leaderWorkerTemplate: {leaderTemplate: {spec: \
             {containers: [{name: a}]}}}}\n"
                .to_owned(),
            IN,
            SkipReason::CustomKind { kind: "LeaderWorkerSet.leaderworkerset.x-k8s.io".to_owned() },
        ),
        (
            // Knative's Service is not the Kubernetes kind.
            "apiVersion: serving.knative.dev/v1\nkind: Service\nspec: {template: {spec: {containers: [{name: a}]}}}\n".to_owned(),
            IN,
            SkipReason::CustomKind { kind: "Service.serving.knative.dev".to_owned() },
        ),
        (
            "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nspec: {predictor: {model: {}}}\n".to_owned(),
            IN,
            SkipReason::CustomKind { kind: "InferenceService.serving.kserve.io".to_owned() },
        ),
        (
            "apiVersion: extensions/v1beta1\nkind: Deployment\nspec: {template: {spec: {containers: [{name: a}]}}}\n".to_owned(),
            IN,
            SkipReason::RemovedApi { kind: "Deployment in extensions/v1beta1".to_owned() },
        ),
        (
            // A schema with a field named `containers` does not describe a pod.
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec: {versions: [{schema: {properties: \
             {containers: {items: {}}}}}]}\n"
                .to_owned(),
            IN,
            SkipReason::NotAWorkload,
        ),
        (
            // Another object describes its pods.
            "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nspec: {workloadRef: {name: a}}\n".to_owned(),
            IN,
            SkipReason::NotAWorkload,
        ),
        ("apiVersion: v1\nkind: ConfigMap\n".to_owned(), IN, SkipReason::NotAWorkload),
        (
            "apiVersion: batch/v1\nkind: Job\nspec: {template: {spec: {containers: [{name: a}]}}}\n".to_owned(),
            OUT_PLAIN,
            SkipReason::JobNeedsNative,
        ),
    ];
    for (text, flags, reason) in cases {
        assert_eq!(outcome(&text, flags), Err(NoChange::Skipped(reason)), "{text}");
    }
}

#[test]
fn a_port_without_a_name_requires_its_service() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {app: a}}\nspec:\n  containers:\n  - name: a\n    \
               ports: [{containerPort: 8000}]\n";
    let service = |more: &str| {
        format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: s}}\nspec: {{selector: {{app: a}}, {more}}}\n"
        )
    };
    let refused = Err(NoChange::Refused(InjectError::UnnamedPort { port: 8000, headless: None }));
    assert_eq!(outcome(pod, IN), refused);
    assert_eq!(outcome(&format!("{pod}{}", service("ports: [{port: 80}]")), IN), refused);
    let headless = service("clusterIP: None, ports: [{port: 8000}]");
    let bypassed = Err(NoChange::Refused(InjectError::UnnamedPort {
        port: 8000,
        headless: Some("s".to_owned()),
    }));
    assert_eq!(outcome(&format!("{pod}{headless}"), IN), bypassed);
    let fits = service("ports: [{port: 80, targetPort: 8000}]");
    assert!(outcome(&format!("{pod}{fits}"), IN).is_ok());
    let elsewhere = fits.replace("name: s}", "name: s, namespace: other}");
    let here = pod.replace("name: p,", "name: p, namespace: here,");
    assert_eq!(outcome(&format!("{here}{elsewhere}"), IN), refused);
    let seen_to = format!("{IN} --listen-port 4000");
    assert!(outcome(pod, &seen_to).is_ok());
}

/// A pod without a sidecar has no port with the sidecar's number, so a Service that targets the number would not reach
/// it.
#[test]
fn redirects_a_service_of_two_workloads_only_if_both_get_a_sidecar() {
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {selector: {app: a}, ports: [{port: 8000}]}\n";
    let pod = |name: &str, more: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: a}}{more}}}\nspec:\n  containers:\n  \
             - name: a\n    image: vllm\n    ports: [{{containerPort: 8000}}]\n"
        )
    };
    let both = format!("{service}{}{}", pod("p", ""), pod("q", ""));
    assert!(outcome(&both, IN).is_ok());
    let out = ", annotations: {tokengauge.dev/inject: disabled}";
    let one = format!("{service}{}{}", pod("p", ""), pod("q", out));
    let refused = InjectError::SharedService { workload: "pod/q".to_owned(), port: 8000 };
    assert_eq!(outcome(&one, IN), Err(NoChange::Refused(refused)));
}

#[test]
fn reports_a_network_policy_that_blocks_the_sidecar() {
    let policy = |port: &str| {
        format!(
            "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: only-http}}\nspec: {{podSelector: {{}}, \
             ingress: [{{ports: [{{port: {port}}}]}}]}}\n"
        )
    };
    let is_reported = |port: &str| {
        let made = injected_text(&format!("{}{}", pod("", ""), policy(port)), IN);
        let says = "NetworkPolicy only-http allows port 8000 by number; allow 4000 too";
        made.messages.iter().any(|line| line.contains(says))
    };
    assert!(is_reported("8000"));
    assert!(!is_reported("http"), "a port name needs no change");
}

/// A Service without a selector selects no pods.
#[test]
fn ignores_a_service_without_a_selector() {
    for selector in ["", "selector: {}, "] {
        let text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: s}}\nspec: {{{selector}ports: [{{port: 8000}}]}}\n---\n{}",
            pod("", "")
        );
        assert_eq!(outcome(&text, IN), Err(NoChange::Skipped(SkipReason::NotAWorkload)));
    }
}

#[test]
fn reports_the_place_of_a_refused_object() {
    let text = format!("{}---\n# a comment\n{}", pod("", ""), annotated("mode: sideways"));
    let made = injected_text(&text, IN);
    assert_eq!(made.refused, 1);
    let line = made.messages.last().unwrap();
    assert!(line.starts_with("x.yaml:13: pod/p: refused: tokengauge.dev/mode: "), "{line}");
}

#[test]
fn joins_files_into_one_stream() {
    let files = [input("app-pod.yaml"), input("engine-pod.yaml")];
    let made = inject_files(&files, OUT).unwrap();
    let kinds: Vec<Value> =
        parse_documents(&made.text).unwrap().iter().map(|it| it.value()["kind"].clone()).collect();
    assert_eq!(kinds, ["Pod", "Pod"]);
}

/// The webhook may receive a pod that was injected by hand.
#[test]
fn the_webhook_never_replaces_a_sidecar() {
    let made = injected_text(&pod("", ""), IN);
    let other = settings("--mode inbound --image registry.example/tokengauge:9.9.9");
    let outcome = inject(&value(&made.text), &InjectionContext::standalone(), &other);
    assert_eq!(outcome, Err(NoChange::Skipped(SkipReason::AlreadyInjected)));
}

#[test]
fn uninject_keeps_and_reports_modified_fields() {
    let made = injected_text(&pod("", ""), IN).text;
    let grace =
        made.replace("terminationGracePeriodSeconds: 330", "terminationGracePeriodSeconds: 900");
    let back = uninjected(&grace);
    let text = &back.text;
    assert!(
        text.contains("terminationGracePeriodSeconds: 900") && !text.contains("tokengauge"),
        "{text}"
    );
    let message =
        "/spec/terminationGracePeriodSeconds was modified after injection and is left unchanged";
    assert!(back.messages.iter().any(|line| line.ends_with(message)), "{:#?}", back.messages);
    // Defaults that an API server adds do not count as modifications.
    let mut defaulted = value(&made);
    defaulted["spec"]["containers"][0]["lifecycle"]["preStop"]["httpGet"]["scheme"] = "HTTP".into();
    defaulted["spec"]["containers"][0]["ports"][1]["protocol"] = "TCP".into();
    match uninject(&defaulted) {
        Ok(Change { patch, notes, .. }) => {
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
        Err(NoChange::Refused(error)) => assert_eq!(error.as_str(), "broken_record"),
        other => panic!("{other:?}"),
    }
}

/// Real manifests have keys without values, CRLF line ends, and last lines without a line end.
#[test]
fn uninject_restores_the_layout_of_templates() {
    let head = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n";
    let spec = "spec:\n  containers:\n    - name: a\n      ports:\n        - {name: http, containerPort: 8000}\n";
    let texts = [
        // A key without a value, as `{{- with }}` leaves it.
        format!("{head}  annotations:\n{spec}      env:\n"),
        format!(
            "{head}  labels:\nspec:\n  initContainers:\n  containers:\n    - name: a\n      env: # none\n      lifecycle:\n      ports:\n        - {{name: http, containerPort: 8000}}\n  volumes:\n"
        ),
        // The last line has no line end.
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
            let there = injected_text(&text, &flags);
            assert_eq!(there.text.ends_with('\n'), text.ends_with('\n'), "{text}");
            let back = uninjected(&there.text);
            assert_eq!(back.text, text, "{flags}: {:?}", back.messages);
        }
    }
}

/// `--mode inbound` must not put an HTTP proxy in front of a database in the same input.
#[test]
fn the_inbound_flag_selects_only_engines() {
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
    let made = injected_text(&text, IN);
    let is_injected = |name: &str| {
        let says = format!("pod/{name}: adds ");
        made.messages.iter().any(|line| line.contains(&says))
    };
    assert!(
        is_injected("chat") && is_injected("own") && !is_injected("redis"),
        "{:?}",
        made.messages
    );
    assert!(made.messages.iter().any(|line| {
        line.contains("pod/redis: skipped: its image and command match no known engine")
    }));

    // The only workload is selected even if its program is unknown. A workload that --only names is selected, too.
    let documents = parse_documents(&text).unwrap();
    let all: Vec<&Value> =
        documents.iter().flat_map(|it| document_objects(it.value())).map(|(_, it)| it).collect();
    let wanted = settings(IN);
    let redis = *all.get(1).unwrap();
    let changes = |around: &InjectionContext, object| inject(object, around, &wanted).is_ok();
    assert!(changes(&InjectionContext::new(&[redis], &wanted, &[]), redis));
    let named = InjectionContext::new(&all, &wanted, &["pod/redis".to_owned()]);
    assert!(changes(&named, redis));
    for other in [0, 2] {
        assert_eq!(
            inject(all.get(other).unwrap(), &named, &wanted),
            Err(NoChange::Skipped(SkipReason::NotSelected))
        );
    }
    // --mode outbound selects every workload.
    let wanted = settings(OUT);
    let around = InjectionContext::new(&all, &wanted, &[]);
    assert!(inject(redis, &around, &wanted).is_ok());
}

/// kubectl uses the namespace of its command for objects without a namespace, and rejects objects with another
/// namespace.
#[test]
fn finds_a_service_if_only_one_object_has_a_namespace() {
    let is_injected = |pods: &str, service: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, {pods}labels: {{app: a}}}}\nspec:\n  containers: [{{name: a, ports: \
             [{{containerPort: 8000}}]}}]\n---\napiVersion: v1\nkind: Service\nmetadata: {{{service}name: s}}\nspec: \
             {{selector: {{app: a}}, ports: [{{port: 8000}}]}}\n"
        );
        outcome(&text, IN).is_ok()
    };
    assert!(is_injected("", ""));
    assert!(is_injected("namespace: a, ", "") && is_injected("", "namespace: a, "));
    assert!(!is_injected("namespace: a, ", "namespace: b, "));
}

#[test]
fn reports_clients_that_use_the_port_number() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {app: a}}\nspec:\n  containers:\n  - {name: a, ports: \
               [{name: http, containerPort: 8000}]}\n---\n";
    let is_reported = |kind: &str, spec: &str| {
        let text = format!("{pod}apiVersion: {kind}\nmetadata: {{name: it}}\nspec: {spec}\n");
        let made = injected_text(&text, IN);
        let says = "InferencePool it connects to port 8000 of the pod directly and bypasses the sidecar; change its port to 4000";
        made.messages.iter().any(|line| line.contains(says))
    };
    let former = "inference.networking.x-k8s.io/v1alpha2\nkind: InferencePool";
    assert!(is_reported(former, "{selector: {app: a}, targetPortNumber: 8000}"));
    assert!(!is_reported(former, "{selector: {app: b}, targetPortNumber: 8000}"));
    assert!(!is_reported(former, "{targetPortNumber: 8000}"));
    let pool = "inference.networking.k8s.io/v1\nkind: InferencePool";
    assert!(is_reported(
        pool,
        "{selector: {matchLabels: {app: a}}, targetPorts: [{number: 8000}]}"
    ));
    assert!(!is_reported(
        pool,
        "{selector: {matchLabels: {app: a}}, targetPorts: [{number: 4000}]}"
    ));

    let headless = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {clusterIP: None, selector: {app: a}, ports: \
                    [{port: 8000}]}\n";
    let text = format!("{}{headless}", pod.replace("name: http, ", ""));
    let refused = InjectError::UnnamedPort { port: 8000, headless: Some("s".to_owned()) };
    assert!(refused.to_string().contains("Service s is headless"));
    assert_eq!(outcome(&text, IN), Err(NoChange::Refused(refused)));
}

/// The suggested route keeps the URL and path of the variable that it replaces.
#[test]
fn reports_a_kept_variable_with_the_route_that_replaces_it() {
    let pod = |env: &str, upstream: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, annotations: {{{upstream}}}}}\nspec:\n  containers:\n  - {{name: a, \
             env: [{env}]}}\n"
        )
    };
    let url = "http://gateway.ai/openai/v1";
    let made = |text: String| injected_text(&text, OUT);
    let kept = made(pod(&format!("{{name: OPENAI_BASE_URL, value: '{url}'}}"), ""));
    let says = format!("set tokengauge.dev/upstream: /openai={url}");
    assert!(kept.messages.iter().any(|line| line.ends_with(&says)), "{:?}", kept.messages);
    let routed = made(pod("", &format!("'tokengauge.dev/upstream': '/openai={url}'")));
    assert!(
        routed.text.contains("\"http://127.0.0.1:4000/openai\"")
            || routed.text.contains("http://127.0.0.1:4000/openai\n"),
        "{}",
        routed.text
    );
}

/// Log shippers and network proxies call no LLM, unless the annotation names them.
#[test]
fn agents_get_no_variables() {
    let pod = |annotations: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, annotations: {{{annotations}}}}}\nspec:\n  containers:\n  \
             - {{name: app, image: registry.example/app:1}}\n  \
             - {{name: log, image: 'cr.fluentbit.io/fluent/fluent-bit:4.1'}}\n"
        )
    };
    let containers = |text: String| {
        let change = outcome(&text, OUT).unwrap();
        let list = change.value["spec"]["containers"].as_array().unwrap().clone();
        let with_variables = list.iter().filter(|container| container.get("env").is_some());
        let names = with_variables.map(|container| container["name"].as_str().unwrap().to_owned());
        (names.collect::<Vec<_>>(), change)
    };
    let (names, change) = containers(pod(""));
    assert_eq!(names, ["app"]);
    let note = "container log runs fluent-bit, so it gets no variables; if it calls an LLM, name it in \
                tokengauge.dev/containers";
    assert!(change.notes.iter().any(|it| it.text == note && !it.is_warning), "{:?}", change.notes);
    assert!(!change.has_unused_sidecar());
    let (names, _) = containers(pod("tokengauge.dev/containers: 'app,log'"));
    assert_eq!(names, ["app", "log"]);
}

#[test]
fn the_last_line_says_that_a_sidecar_gets_no_calls() {
    let pod = |container: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  containers:\n  - {{name: a, {container}}}\n"
        )
    };
    let last = "no container sends calls to the sidecar of pod/p; the messages above say why";
    let unused = [
        "envFrom: [{secretRef: {name: s}}]",
        "image: fluent/fluentd",
        "env: [{name: OPENAI_BASE_URL, value: 'http://other/v1'}, {name: ANTHROPIC_BASE_URL, value: x}, {name: CO_API_URL}, \
         {name: GROQ_BASE_URL}, {name: CEREBRAS_BASE_URL}]",
    ];
    for container in unused {
        let made = injected_text(&pod(container), OUT);
        assert_eq!(made.messages.last().map(String::as_str), Some(last), "{:?}", made.messages);
        assert_eq!(made.unused, ["pod/p"]);
        let change = outcome(&pod(container), OUT).unwrap();
        let is_warning =
            |note: &ChangeNote| note.is_warning && note.text.starts_with("no container sends");
        assert!(change.notes.iter().any(is_warning), "the webhook warns, too: {:?}", change.notes);
    }
    let own = "env: [{name: OPENAI_BASE_URL, value: 'http://127.0.0.1:4000/openai/v1'}], envFrom: [{secretRef: {name: s}}]";
    for container in ["image: app", own] {
        let made = injected_text(&pod(container), OUT);
        assert!(made.unused.is_empty(), "{:?}", made.messages);
    }
    for (flags, code, has_output) in [("", 0, true), ("--strict", 1, false)] {
        let input = tempfile::NamedTempFile::new().unwrap();
        fs::write(input.path(), pod(unused[0])).unwrap();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_tokengauge"))
            .args(["inject", "--mode", "outbound", "--image", IMAGE])
            .args(flags.split_whitespace())
            .arg(input.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code));
        assert_eq!(!output.stdout.is_empty(), has_output);
        let messages = String::from_utf8(output.stderr).unwrap();
        assert_eq!(messages.lines().last(), Some(last), "{messages}");
    }
}

#[test]
fn reports_templates_and_inputs_without_pods() {
    let template = file("metadata:\n  name: {{ .Release.Name }}\n");
    let error = change_manifests(&[template], Operation::Uninject).unwrap_err();
    assert!(error.ends_with("pass the output of `helm template` instead"), "{error}");
    let made = injected_text("apiVersion: v1\nkind: ConfigMap\n", IN);
    assert_eq!(made.messages, ["nothing to change: no object in the input runs pods"]);
}
