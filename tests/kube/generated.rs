//! Property tests of `inject` and `uninject` with random manifests in random notations.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json_patch::Patch;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};
use tokengauge_kubernetes::inject::{
    Change, InjectionContext, Settings, document_objects, inject, object_name, prefix_patch,
};
use tokengauge_kubernetes::manifests::ChangedManifests;
use tokengauge_kubernetes::webhook::review::Review;
use tokengauge_kubernetes::yaml::parse_documents;

use super::choices::Choices;
use super::manifests::{Shape, shape};
use super::writer::stream;
use super::{inject_files, injected_text, settings, starts, uninjected};

/// Number of inputs per test. The inputs are the same in every run. `PROPTEST_CASES=20000` sets another number and uses
/// new inputs in each run.
const CASES: u32 = 40;

type Checked = Result<(), TestCaseError>;

/// The objects of an input, its text, and the output of `inject`.
struct Case {
    shape: Shape,
    text: String,
    made: ChangedManifests,
}

fn case(content: &[u8], notation: &[u8]) -> Result<Case, TestCaseError> {
    let shape = shape(&mut Choices::new(content));
    let text = stream(&mut Choices::new(notation), &shape.documents);
    let made = inject_files(&[super::file(text.as_str())], shape.flags);
    let made = made.map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
    Ok(Case { shape, text, made })
}

/// Runs a check on random inputs. At least `least` percent of them must be injected.
fn check(least: u32, check: impl Fn(&Case) -> Checked) {
    let chosen = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = if std::env::var_os("PROPTEST_CASES").is_some() {
        TestRunner::new(chosen)
    } else {
        let few = ProptestConfig { cases: CASES, ..chosen };
        TestRunner::new_with_rng(few, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
    };
    let cases = runner.config().cases;
    let bytes = |most| proptest::collection::vec(any::<u8>(), 0..most);
    let injected = Cell::new(0);
    let run = runner.run(&(bytes(600), bytes(3000)), |(content, notation)| {
        let case = case(&content, &notation)?;
        if case.made.has_changes && case.made.refused == 0 {
            injected.set(injected.get() + 1);
        }
        check(&case)
    });
    if let Err(error) = run {
        panic!("{error}");
    }
    let injected: u32 = injected.get();
    assert!(injected * 100 >= cases * least, "{injected} of {cases}");
}

fn values(text: &str) -> Result<Vec<Value>, TestCaseError> {
    let documents =
        parse_documents(text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
    Ok(documents.iter().map(|it| it.value().clone()).collect())
}

/// Applies the patches to the documents as values. Returns the patched documents and the number of changes.
fn patched(shape: &Shape) -> (Vec<Value>, usize) {
    let settings = settings(shape.flags);
    let all: Vec<&Value> =
        shape.documents.iter().flat_map(document_objects).map(|(_, it)| it).collect();
    let around = InjectionContext::new(&all, &settings, &[]);
    let mut documents = shape.documents.clone();
    let mut changes = 0;
    for document in &mut documents {
        let mut whole = Patch(Vec::new());
        for (at, object) in document_objects(document) {
            if let Ok(Change { patch, .. }) = inject(object, &around, &settings) {
                whole.0.extend(prefix_patch(patch, &at).0);
            }
        }
        json_patch::patch(document, &whole).unwrap();
        changes += whole.0.len();
    }
    (documents, changes)
}

fn is_lossless(messages: &[String]) -> bool {
    !messages.iter().any(|line| line.contains(": lost: "))
}

#[test]
fn the_text_reads_as_the_patched_object() {
    check(10, |case| {
        let Case { shape, text, made } = case;
        prop_assert_eq!(&values(text)?, &shape.documents, "{}", text);
        if made.refused == 0 {
            prop_assert_eq!(values(&made.text)?, patched(shape).0, "{}\n{}", text, made.text);
        }
        Ok(())
    });
}

/// Every workload must be reported, and no refusal may be caused by an internal error.
#[test]
fn reports_every_workload_with_a_reason() {
    check(10, |case| {
        let all = case.shape.documents.iter().flat_map(document_objects);
        for (_, object) in all.filter(|(_, object)| pod_of(object).is_some()) {
            let reported = format!(": {}: ", object_name(object));
            prop_assert!(
                case.made.messages.iter().any(|line| line.contains(&reported)),
                "{reported} {:#?}\n{}",
                case.made.messages,
                case.text
            );
        }
        for line in &case.made.messages {
            let (_, what) = line.split_once(": ").unwrap_or_default();
            prop_assert!(what.len() > 20, "{line}");
            for internal in ["cannot write", "the patch does not fit", "a field of this kind"] {
                prop_assert!(!line.contains(internal), "{line}\n{}", case.text);
            }
        }
        prop_assert_eq!(
            case.made.refused,
            case.made.messages.iter().filter(|line| line.contains(": refused: ")).count()
        );
        Ok(())
    });
}

#[test]
fn injecting_twice_changes_nothing() {
    check(10, |case| {
        if case.made.refused > 0 {
            return Ok(());
        }
        let twice = injected_text(&case.made.text, case.shape.flags);
        prop_assert_eq!(twice.refused, 0, "{:#?}\n{}", twice.messages, case.made.text);
        prop_assert_eq!(&twice.text, &case.made.text);
        prop_assert!(!twice.has_changes, "{:#?}", twice.messages);
        // Every injected workload is skipped as already injected. Services are skipped for the same reason.
        let already_injected = |messages: &[String]| {
            let is_known = |line: &&String| {
                !line.contains(": service/")
                    && line.ends_with(": skipped: it already has this sidecar")
            };
            messages.iter().filter(is_known).count()
        };
        let injected = |line: &&String| line.contains(": adds ");
        let injected = case.made.messages.iter().filter(injected).count();
        prop_assert_eq!(already_injected(&twice.messages), injected, "{:#?}", twice.messages);
        Ok(())
    });
}

#[test]
fn uninject_restores_the_input() {
    check(10, |case| {
        if case.made.refused > 0 {
            return Ok(());
        }
        let back = uninjected(&case.made.text);
        prop_assert_eq!(back.refused, 0, "{:#?}\n{}", back.messages, case.made.text);
        prop_assert_eq!(
            values(&back.text)?,
            values(&case.text)?,
            "{}\n{}",
            case.text,
            case.made.text
        );
        if is_lossless(&case.made.messages) && is_lossless(&back.messages) {
            prop_assert_eq!(&back.text, &case.text, "\n{}", case.made.text);
        }
        let is_loss = |line: &&String| line.contains("was modified") || line.contains("lost");
        prop_assert_eq!(back.messages.iter().find(is_loss), None, "{}", case.made.text);
        Ok(())
    });
}

/// Returns the comments of a text. Each has a unique number.
fn comments(text: &str) -> Vec<&str> {
    let comment = |line: &'_ str| line.find("# c").map(|at| line.len() - at);
    text.lines().filter_map(|line| line.get(line.len() - comment(line)?..)).collect()
}

#[test]
fn keeps_comments_and_lines_in_order() {
    check(10, |case| {
        if case.made.refused > 0 {
            return Ok(());
        }
        let lost = |comment: &str| {
            let quoted = format!("comment {comment:?}");
            case.made.messages.iter().any(|line| line.contains(&quoted))
        };
        let kept: Vec<&str> = comments(&case.text).into_iter().filter(|it| !lost(it)).collect();
        prop_assert_eq!(comments(&case.made.text), kept, "{}\n{}", case.text, case.made.text);
        if is_lossless(&case.made.messages) {
            let touched = missing_lines(&case.text, &case.made.text);
            let changes = patched(&case.shape).1;
            prop_assert!(
                touched <= changes,
                "{touched} of {changes}\n{}\n{}",
                case.text,
                case.made.text
            );
        }
        Ok(())
    });
}

/// Counts the lines of `before` that are missing from `after`, in order.
fn missing_lines(before: &str, after: &str) -> usize {
    let before: Vec<&str> = before.lines().collect();
    let mut best = vec![0_usize; before.len() + 1];
    for line in after.lines() {
        let mut diagonal = 0;
        for (at, other) in before.iter().enumerate() {
            let above = best[at + 1];
            best[at + 1] = if *other == line { diagonal + 1 } else { above.max(best[at]) };
            diagonal = above;
        }
    }
    before.len() - best[before.len()]
}

/// Returns the pod template of an object.
fn pod_of(object: &Value) -> Option<&Value> {
    let kind = object.get("kind")?.as_str()?;
    let base = match kind {
        "Pod" => "",
        "CronJob" => "/spec/jobTemplate/spec/template",
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "Job" => "/spec/template",
        _ => return None,
    };
    object.pointer(base)
}

fn list<'v>(value: &'v Value, key: &str) -> Vec<&'v Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten().collect()
}

fn containers(pod: &Value) -> Vec<&Value> {
    let spec = &pod["spec"];
    [list(spec, "initContainers"), list(spec, "containers")].concat()
}

/// Resolves the name or number of a TCP port in these containers.
fn resolve_port(containers: &[&Value], port: &Value) -> Option<u64> {
    match port {
        Value::String(name) => containers
            .iter()
            .flat_map(|it| list(it, "ports"))
            .find(|it| it["name"] == *name && it.get("protocol").is_none_or(|it| it == "TCP"))?
            .get("containerPort")?
            .as_u64(),
        _ => port.as_u64(),
    }
}

/// Returns the ports that the probes and hooks of a container call.
fn handlers(container: &Value) -> BTreeMap<String, Option<u64>> {
    let mut all = BTreeMap::new();
    for place in [
        "/livenessProbe",
        "/readinessProbe",
        "/startupProbe",
        "/lifecycle/postStart",
        "/lifecycle/preStop",
    ] {
        for action in ["httpGet", "tcpSocket", "grpc"] {
            if let Some(port) = container.pointer(&format!("{place}/{action}/port")) {
                all.insert(format!("{place}/{action}"), resolve_port(&[container], port));
            }
        }
    }
    all
}

fn check_unique(what: &str, all: &[String]) -> Checked {
    let different: BTreeSet<&String> = all.iter().collect();
    prop_assert_eq!(different.len(), all.len(), "{}: {:?}", what, all);
    Ok(())
}

fn names(values: &[&Value]) -> Vec<String> {
    values.iter().filter_map(|it| Some(it.get("name")?.as_str()?.to_owned())).collect()
}

fn is_sidecar(container: &Value) -> bool {
    container["name"] == "tokengauge" && container["args"] == json!(["run"])
}

/// Returns the value of a variable that a container sets.
fn variable<'v>(container: &'v Value, name: &str) -> Option<&'v str> {
    list(container, "env").into_iter().find(|it| it["name"] == name)?.get("value")?.as_str()
}

/// Checks that a changed pod is valid, and that probes and hooks still call the same ports.
fn check_pod(before: &Value, after: &Value) -> Checked {
    let all = containers(after);
    check_unique("containers", &names(&all))?;
    check_unique("volumes", &names(&list(&after["spec"], "volumes")))?;
    let ports: Vec<&Value> = all.iter().flat_map(|it| list(it, "ports")).collect();
    let numbers = ports.iter().map(|it| format!("{}/{}", it["containerPort"], it["protocol"]));
    check_unique("ports", &numbers.collect::<Vec<_>>())?;
    check_unique("port names", &names(&ports))?;
    for container in &all {
        check_unique("env", &names(&list(container, "env")))?;
        check_unique("mounts", &names(&list(container, "volumeMounts")))?;
    }
    let sidecar = all.iter().find(|it| is_sidecar(it)).unwrap();
    if sidecar["restartPolicy"] == "Always" {
        prop_assert!(is_sidecar(&after["spec"]["initContainers"][0]));
    } else {
        prop_assert!(list(&after["spec"], "containers").last().is_some_and(|it| is_sidecar(it)));
    }
    for old in containers(before) {
        let new = all.iter().find(|it| it["name"] == old["name"]).unwrap();
        let mut now = handlers(new);
        // Only the hook that waits for the sidecar is added.
        let added =
            now.keys().filter(|it| !handlers(old).contains_key(*it)).cloned().collect::<Vec<_>>();
        prop_assert!(added.is_empty() || added == ["/lifecycle/preStop/httpGet"], "{added:?}");
        now.retain(|it, _| !added.contains(it));
        prop_assert_eq!(now, handlers(old), "{}", new);
    }
    Ok(())
}

/// Checks that a Service that targeted the engine's port now targets the sidecar, and that the sidecar forwards to the
/// engine.
fn check_service(services: [&Value; 2], pods: [&Value; 2]) -> Checked {
    let [before, after] = pods.map(containers);
    let sidecar = after.iter().find(|it| is_sidecar(it)).unwrap();
    if variable(sidecar, "TOKENGAUGE_POSITION") != Some("inbound") {
        return Ok(());
    }
    let upstream = variable(sidecar, "TOKENGAUGE_UPSTREAM").unwrap_or_default();
    if !upstream.starts_with("http://localhost:") {
        // A file or a flag sets another upstream.
        return Ok(());
    }
    let number = |text: &str| text.rsplit(':').next().and_then(|it| it.parse::<u64>().ok());
    let (engine, proxy) =
        (number(upstream), number(variable(sidecar, "TOKENGAUGE_LISTEN").unwrap()));
    let target = |port: &Value| {
        port.get("targetPort").filter(|it| !it.is_null()).unwrap_or(&port["port"]).clone()
    };
    let ports = services.map(|it| list(&it["spec"], "ports"));
    for (old, new) in ports[0].iter().zip(&ports[1]) {
        if resolve_port(&before, &target(old)) == engine {
            let to = resolve_port(&after, &target(new));
            prop_assert!(to == proxy, "{to:?} is not {proxy:?}");
        } else {
            prop_assert_eq!(
                resolve_port(&before, &target(old)),
                resolve_port(&after, &target(new))
            );
        }
    }
    Ok(())
}

fn selects(service: &Value, object: &Value, pod: &Value) -> bool {
    let labels = |it: &Value| it.as_object().cloned().unwrap_or_default();
    let own = labels(&pod["metadata"]["labels"]);
    service["kind"] == "Service"
        && service["spec"]["clusterIP"] != "None"
        && service["metadata"].get("namespace") == object["metadata"].get("namespace")
        && labels(&service["spec"]["selector"])
            .iter()
            .all(|(key, value)| own.get(key) == Some(value))
}

/// Checks an object before and after injection, with the Services that select it.
fn check_object([before, after]: [&Value; 2], all: &[[&Value; 2]], flags: &str) -> Checked {
    let (Some(old), Some(new)) = (pod_of(before), pod_of(after)) else {
        return Ok(());
    };
    if !containers(new).into_iter().any(is_sidecar) {
        prop_assert_eq!(old, new);
        return Ok(());
    }
    check_pod(old, new)?;
    starts(after);
    let chosen = new.pointer("/metadata/annotations/tokengauge.dev~1listen-port");
    if flags.contains("listen-port") || chosen.is_some() {
        // If the user chooses the port, the user must also change Services that target it by number.
        return Ok(());
    }
    all.iter()
        .filter(|it| selects(it[0], before, old))
        .try_for_each(|services| check_service(*services, [old, new]))
}

#[test]
fn the_output_is_consistent() {
    check(10, |case| {
        if case.made.refused > 0 {
            return Ok(());
        }
        let after = values(&case.made.text)?;
        let pairs: Vec<[&Value; 2]> = case
            .shape
            .documents
            .iter()
            .zip(&after)
            .flat_map(|(before, after)| {
                document_objects(before)
                    .into_iter()
                    .zip(document_objects(after))
                    .map(|(a, b)| [a.1, b.1])
            })
            .collect();
        for pair in &pairs {
            check_object(*pair, &pairs, case.shape.flags).map_err(|error| {
                TestCaseError::fail(format!("{error}\n{}\n{}", case.text, case.made.text))
            })?;
        }
        Ok(())
    });
}

/// Applies the response of the webhook to a pod.
fn reviewed(pod: &Value, settings: &Settings) -> Value {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": "CREATE", "namespace": "prod",
            "kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": pod,
        },
    })
    .to_string();
    let review = Review::parse(review.as_bytes()).unwrap();
    let decision = review.decide(|pod| inject(pod, &InjectionContext::standalone(), settings));
    let answer = review.response(&decision);
    let mut pod = pod.clone();
    if let Some(patch) = answer.pointer("/response/patch") {
        let patch = STANDARD.decode(patch.as_str().unwrap()).unwrap();
        let patch: Patch = serde_json::from_slice(&patch).unwrap();
        json_patch::patch(&mut pod, &patch).unwrap();
    }
    pod
}

#[test]
fn the_webhook_and_the_command_make_the_same_changes() {
    check(10, |case| {
        let settings = settings(case.shape.flags);
        for (_, object) in case.shape.documents.iter().flat_map(document_objects) {
            let Some(template) = pod_of(object) else {
                continue;
            };
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"],
            });
            let made = injected_text(&pod.to_string(), case.shape.flags);
            let wanted = if made.refused > 0 { vec![pod.clone()] } else { values(&made.text)? };
            prop_assert_eq!(vec![reviewed(&pod, &settings)], wanted);
        }
        Ok(())
    });
}
