//! Random manifests in a random hand: what `inject` and `uninject` promise, held to for each of them.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json_patch::Patch;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};
use tokengauge::cli::inject::Changed;
use tokengauge_kubernetes::inject::{Around, Outcome, Settings, inject, name, objects, within};
use tokengauge_kubernetes::webhook::review::Review;
use tokengauge_kubernetes::yaml::documents;

use super::choices::Choices;
use super::pen::stream;
use super::shape::{Shape, shape};
use super::{again, settings, starts, taken_back};

/// So many inputs each test makes, always the same ones. With `PROPTEST_CASES=20000` it makes as many, others each time.
const CASES: u32 = 40;

type Checked = Result<(), TestCaseError>;

/// An input: what it is, how it is written, and what `inject` made of it.
struct Case {
    shape: Shape,
    text: String,
    made: Changed,
}

fn case(what: &[u8], how: &[u8]) -> Result<Case, TestCaseError> {
    let shape = shape(&mut Choices::new(what));
    let text = stream(&mut Choices::new(how), &shape.documents);
    let source = super::Source { name: "x.yaml".to_owned(), text: text.clone() };
    let made = super::changed(&[source], Some(&settings(shape.flags)));
    let made = made.map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
    Ok(Case { shape, text, made })
}

/// Runs a check on random inputs, and holds it to have seen so many in a hundred that were changed.
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
    let run = runner.run(&(bytes(600), bytes(3000)), |(what, how)| {
        let case = case(&what, &how)?;
        if case.made.changes && case.made.refused == 0 {
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
        documents(text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
    Ok(documents.iter().map(|it| it.value().clone()).collect())
}

/// What the patches make of the documents, without any text, and how many changes they are.
fn patched(shape: &Shape) -> (Vec<Value>, usize) {
    let settings = settings(shape.flags);
    let all: Vec<&Value> = shape.documents.iter().flat_map(objects).map(|(_, it)| it).collect();
    let around = Around::of(&all, &settings);
    let mut documents = shape.documents.clone();
    let mut changes = 0;
    for document in &mut documents {
        let mut whole = Patch(Vec::new());
        for (at, object) in objects(document) {
            if let Outcome::Changed { patch, .. } = inject(object, &around, &settings) {
                whole.0.extend(within(patch, &at).0);
            }
        }
        json_patch::patch(document, &whole).unwrap();
        changes += whole.0.len();
    }
    (documents, changes)
}

fn is_lossless(told: &[String]) -> bool {
    !told.iter().any(|line| line.contains(": lost: "))
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

/// Each workload is told of, and no refusal is one of this program's own doing.
#[test]
fn each_workload_is_told_of_with_a_reason() {
    check(10, |case| {
        let all = case.shape.documents.iter().flat_map(objects);
        for (_, object) in all.filter(|(_, object)| pod_of(object).is_some()) {
            let called = format!(": {}: ", name(object));
            prop_assert!(
                case.made.told.iter().any(|line| line.contains(&called)),
                "{called} {:#?}\n{}",
                case.made.told,
                case.text
            );
        }
        for line in &case.made.told {
            let (_, what) = line.split_once(": ").unwrap_or_default();
            prop_assert!(what.len() > 20, "{line}");
            for internal in
                ["no YAML was found", "the patch does not fit", "a place that its kind has"]
            {
                prop_assert!(!line.contains(internal), "{line}\n{}", case.text);
            }
        }
        prop_assert_eq!(
            case.made.refused,
            case.made.told.iter().filter(|line| line.contains(": refused: ")).count()
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
        let twice = again(&case.made.text, case.shape.flags);
        prop_assert_eq!(twice.refused, 0, "{:#?}\n{}", twice.told, case.made.text);
        prop_assert_eq!(&twice.text, &case.made.text);
        prop_assert!(!twice.changes, "{:#?}", twice.told);
        // What got a sidecar is known for it, and left out for no other reason. Of Services that were led there it is said, too.
        let known = |told: &[String]| {
            let known = |line: &&String| {
                !line.contains(": service/")
                    && line.ends_with(": skipped: it has this sidecar already")
            };
            told.iter().filter(known).count()
        };
        let injected = |line: &&String| line.contains(": adds ");
        let injected = case.made.told.iter().filter(injected).count();
        prop_assert_eq!(known(&twice.told), injected, "{:#?}", twice.told);
        Ok(())
    });
}

#[test]
fn what_was_injected_is_taken_back() {
    check(10, |case| {
        if case.made.refused > 0 {
            return Ok(());
        }
        let back = taken_back(&case.made.text);
        prop_assert_eq!(back.refused, 0, "{:#?}\n{}", back.told, case.made.text);
        prop_assert_eq!(
            values(&back.text)?,
            values(&case.text)?,
            "{}\n{}",
            case.text,
            case.made.text
        );
        if is_lossless(&case.made.told) && is_lossless(&back.told) {
            prop_assert_eq!(&back.text, &case.text, "\n{}", case.made.text);
        }
        let told = |line: &&String| line.contains("was changed") || line.contains("lost");
        prop_assert_eq!(back.told.iter().find(told), None, "{}", case.made.text);
        Ok(())
    });
}

/// The comments of a text, which are all called by number.
fn comments(text: &str) -> Vec<&str> {
    let comment = |line: &'_ str| line.find("# c").map(|at| line.len() - at);
    text.lines().filter_map(|line| line.get(line.len() - comment(line)?..)).collect()
}

#[test]
fn comments_and_lines_stay_where_they_were() {
    check(10, |case| {
        if case.made.refused > 0 {
            return Ok(());
        }
        let lost = |comment: &str| {
            let quoted = format!("the comment {comment:?}");
            case.made.told.iter().any(|line| line.contains(&quoted))
        };
        let kept: Vec<&str> = comments(&case.text).into_iter().filter(|it| !lost(it)).collect();
        prop_assert_eq!(comments(&case.made.text), kept, "{}\n{}", case.text, case.made.text);
        if is_lossless(&case.made.told) {
            let touched = gone(&case.text, &case.made.text);
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

/// How many lines of a text do not stand in another, in this order.
fn gone(before: &str, after: &str) -> usize {
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

/// The pod that an object describes: its metadata and its specification.
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

/// The number of the TCP port that a name or number leads to in these containers.
fn resolved(containers: &[&Value], port: &Value) -> Option<u64> {
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

/// Where the probes and hooks of a container lead.
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
                all.insert(format!("{place}/{action}"), resolved(&[container], port));
            }
        }
    }
    all
}

fn once(what: &str, all: &[String]) -> Checked {
    let different: BTreeSet<&String> = all.iter().collect();
    prop_assert_eq!(different.len(), all.len(), "{}: {:?}", what, all);
    Ok(())
}

fn names(values: &[&Value]) -> Vec<String> {
    values.iter().filter_map(|it| Some(it.get("name")?.as_str()?.to_owned())).collect()
}

fn is_ours(container: &Value) -> bool {
    container["name"] == "tokengauge" && container["args"] == json!(["run"])
}

/// The value of a variable that a container sets.
fn variable<'v>(container: &'v Value, name: &str) -> Option<&'v str> {
    list(container, "env").into_iter().find(|it| it["name"] == name)?.get("value")?.as_str()
}

/// Whether a pod holds what Kubernetes and this program's promises ask of it.
fn holds(before: &Value, after: &Value) -> Checked {
    let all = containers(after);
    once("containers", &names(&all))?;
    once("volumes", &names(&list(&after["spec"], "volumes")))?;
    let ports: Vec<&Value> = all.iter().flat_map(|it| list(it, "ports")).collect();
    let numbers = ports.iter().map(|it| format!("{}/{}", it["containerPort"], it["protocol"]));
    once("ports", &numbers.collect::<Vec<_>>())?;
    once("port names", &names(&ports))?;
    for container in &all {
        once("env", &names(&list(container, "env")))?;
        once("mounts", &names(&list(container, "volumeMounts")))?;
    }
    let sidecar = all.iter().find(|it| is_ours(it)).unwrap();
    if sidecar["restartPolicy"] == "Always" {
        prop_assert!(is_ours(&after["spec"]["initContainers"][0]));
    } else {
        prop_assert!(list(&after["spec"], "containers").last().is_some_and(|it| is_ours(it)));
    }
    for old in containers(before) {
        let new = all.iter().find(|it| it["name"] == old["name"]).unwrap();
        let mut now = handlers(new);
        // The hook that waits for the sidecar is the only one that is added.
        let added =
            now.keys().filter(|it| !handlers(old).contains_key(*it)).cloned().collect::<Vec<_>>();
        prop_assert!(added.is_empty() || added == ["/lifecycle/preStop/httpGet"], "{added:?}");
        now.retain(|it, _| !added.contains(it));
        prop_assert_eq!(now, handlers(old), "{}", new);
    }
    Ok(())
}

/// Where a Service led to the engine's port it leads to the proxy now, which leads to the engine.
fn is_led(services: [&Value; 2], pods: [&Value; 2]) -> Checked {
    let [before, after] = pods.map(containers);
    let sidecar = after.iter().find(|it| is_ours(it)).unwrap();
    if variable(sidecar, "TOKENGAUGE_VANTAGE") != Some("inbound") {
        return Ok(());
    }
    let upstream = variable(sidecar, "TOKENGAUGE_UPSTREAM").unwrap_or_default();
    if !upstream.starts_with("http://127.0.0.1:") {
        // Where a file or a flag names another, the engine's port is not told.
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
        if resolved(&before, &target(old)) == engine {
            let to = resolved(&after, &target(new));
            prop_assert!(to == proxy, "{to:?} is not {proxy:?}");
        } else {
            prop_assert_eq!(resolved(&before, &target(old)), resolved(&after, &target(new)));
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

/// Whether an object, before and after, is what it should be among all of them.
fn fits([before, after]: [&Value; 2], all: &[[&Value; 2]], flags: &str) -> Checked {
    let (Some(old), Some(new)) = (pod_of(before), pod_of(after)) else {
        return Ok(());
    };
    if !containers(new).into_iter().any(is_ours) {
        prop_assert_eq!(old, new);
        return Ok(());
    }
    holds(old, new)?;
    starts(after);
    let chosen = new.pointer("/metadata/annotations/tokengauge.dev~1listen-port");
    if flags.contains("listen-port") || chosen.is_some() {
        // Somebody who chooses the port has seen to the Services that lead there by number.
        return Ok(());
    }
    all.iter()
        .filter(|it| selects(it[0], before, old))
        .try_for_each(|services| is_led(*services, [old, new]))
}

#[test]
fn what_comes_out_holds_together() {
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
                objects(before).into_iter().zip(objects(after)).map(|(a, b)| [a.1, b.1])
            })
            .collect();
        for pair in &pairs {
            fits(*pair, &pairs, case.shape.flags).map_err(|error| {
                TestCaseError::fail(format!("{error}\n{}\n{}", case.text, case.made.text))
            })?;
        }
        Ok(())
    });
}

/// What the webhook answers for a pod, applied to it.
fn reviewed(pod: &Value, settings: &Settings) -> Value {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": "CREATE", "namespace": "prod",
            "kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": pod,
        },
    })
    .to_string();
    let review = Review::read(review.as_bytes()).unwrap();
    let decision = review.decide(|pod| inject(pod, &Around::alone(), settings));
    let answer = review.answer(&decision);
    let mut pod = pod.clone();
    if let Some(patch) = answer.pointer("/response/patch") {
        let patch = STANDARD.decode(patch.as_str().unwrap()).unwrap();
        let patch: Patch = serde_json::from_slice(&patch).unwrap();
        json_patch::patch(&mut pod, &patch).unwrap();
    }
    pod
}

#[test]
fn the_webhook_makes_what_the_command_makes() {
    check(10, |case| {
        let settings = settings(case.shape.flags);
        for (_, object) in case.shape.documents.iter().flat_map(objects) {
            let Some(template) = pod_of(object) else {
                continue;
            };
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"],
            });
            let made = again(&pod.to_string(), case.shape.flags);
            let wanted = if made.refused > 0 { vec![pod.clone()] } else { values(&made.text)? };
            prop_assert_eq!(vec![reviewed(&pod, &settings)], wanted);
        }
        Ok(())
    });
}
