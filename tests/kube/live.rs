//! What a cluster holds: `fixtures/kube/live/all.yaml` is what `kubectl get` printed of a kube-apiserver with its
//! controllers. Two objects in it were applied, the others created.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tokengauge::cli::inject::Changed;
use tokengauge_kubernetes::inject::{Around, RECORD, inject, objects};
use tokengauge_kubernetes::webhook::review::Review;
use tokengauge_kubernetes::yaml::documents;

use super::{again, folder, injected, input, settings, taken_back};

fn all() -> String {
    fs::read_to_string(folder("live").join("all.yaml")).unwrap()
}

fn objects_of(text: &str) -> Vec<Value> {
    let documents = documents(text).unwrap();
    let all = documents.iter().flat_map(|it| objects(it.value()));
    all.map(|(_, object)| object.clone()).collect()
}

/// What is told of the ways back: the objects, and what is to be done.
fn ways(changed: &Changed) -> Vec<(&str, &str)> {
    let told = changed.told.iter();
    told.filter_map(|line| line.strip_prefix("from a cluster: ")?.split_once(": ")).collect()
}

/// `ways` has these objects, whose ways begin like this, and no others.
fn assert_ways(changed: &Changed, expected: &[(&str, &str)]) {
    let ways = ways(changed);
    assert_eq!(ways.len(), expected.len(), "{:#?}", changed.told);
    for ((names, way), (expected_names, begins)) in ways.iter().zip(expected) {
        assert_eq!(names, expected_names);
        assert!(way.starts_with(begins), "{names}: {way}");
    }
}

const OWNED: &str = "pod/chat-b54f787b4-4t68c (of replicaset/chat-b54f787b4), \
                     replicaset/chat-b54f787b4 (of deployment/chat)";

#[test]
fn what_a_cluster_holds_is_told_how_it_goes_back() {
    let made = again(&all(), "");
    assert_eq!(made.refused, 0, "{:#?}", made.told);
    assert_ways(
        &made,
        &[
            ("deployment/chat", "put back by `kubectl replace -f -`"),
            ("service/vllm, deployment/vllm", "made by `kubectl apply`: inject the manifest"),
            ("pod/alone", "no container can be put into a pod that runs"),
            ("job/once", "the template of a Job cannot be changed"),
            (OWNED, "left as they are, since what makes these makes them anew"),
        ],
    );
    // What kubectl applied has no sidecar, and these have one: there it cannot be taken out.
    assert_ways(
        &taken_back(&made.text),
        &[
            (
                "service/vllm, deployment/chat, deployment/vllm",
                "put back by `kubectl replace -f -`",
            ),
            ("pod/alone", "no container can be put into a pod that runs"),
            ("job/once", "the template of a Job cannot be changed"),
        ],
    );
}

/// The numbers of an object's status and what the API server keeps in its metadata are nobody else's to write.
#[test]
fn what_a_cluster_says_of_an_object_stays_as_it_is() {
    let before = all();
    let made = again(&before, "");
    assert!(!made.told.iter().any(|line| line.contains("lost")), "{:#?}", made.told);
    let (old, new) = (objects_of(&before), objects_of(&made.text));
    assert_eq!(old.len(), new.len());
    for (old, new) in old.iter().zip(&new) {
        let owned = old["metadata"].get("ownerReferences").is_some();
        assert_eq!(old == new, owned, "{old}");
        assert_eq!(old["status"], new["status"]);
        let mut metadata = new["metadata"].clone();
        let annotations = metadata.get_mut("annotations");
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            annotations.remove(RECORD);
        }
        assert_eq!(old["metadata"], metadata);
    }
    assert_eq!(taken_back(&made.text).text, before);
}

/// A Service led to sidecars that no pod will have would lead nowhere.
#[test]
fn what_another_object_makes_is_left_as_it_is() {
    let with = |owners: &Value| {
        let labels = json!({"app": "chat"});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "chat-0", "uid": "u", "labels": labels, "ownerReferences": owners},
            "spec": {"containers": [{"name": "chat", "image": "vllm/vllm-openai", "ports": [{"containerPort": 8000}]}]},
        });
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "chat", "uid": "v"},
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8000}]},
        });
        json!({"apiVersion": "v1", "kind": "List", "items": [pod, service]}).to_string()
    };
    let owned = with(&json!([{"kind": "StatefulSet", "name": "chat", "controller": true}]));
    let made = again(&owned, super::IN);
    assert_eq!((made.text.as_str(), made.changes), (owned.as_str(), false));
    assert_ways(&made, &[("pod/chat-0 (of statefulset/chat)", "left as they are")]);
    // Beside it a workload is still the only one, which a flag is meant for, whatever it runs.
    let other = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "other"},
        "spec": {"template": {"spec": {"containers": [
            {"name": "other", "image": "example.com/other", "ports": [{"name": "http", "containerPort": 8080}]},
        ]}}},
    })
    .to_string();
    assert!(again(&other, super::IN).changes);
    let both = again(&format!("{other}\n---\n{owned}"), super::IN);
    assert!(both.changes && both.text.contains(&owned), "{:#?}", both.told);

    let alone = again(&with(&json!([])), super::IN);
    assert!(alone.text.contains("tokengauge.dev/injected"), "{:#?}", alone.told);
    assert_ways(
        &alone,
        &[("service/chat", "put back by"), ("pod/chat-0", "no container can be put into")],
    );
    // By hand a sidecar was put into one that is owned: there is no taking it out, either.
    let mut sidecar = objects_of(&alone.text).remove(0);
    sidecar["metadata"]["ownerReferences"] =
        json!([{"kind": "StatefulSet", "name": "chat", "controller": true}]);
    let back = taken_back(&sidecar.to_string());
    assert!(!back.changes, "{:#?}", back.told);
    assert_ways(&back, &[("pod/chat-0 (of statefulset/chat)", "left as they are")]);
}

/// A Service that an operator keeps would lead back to the engine, and a pod that is owned need not be fit for a sidecar.
#[test]
fn what_is_left_neither_changes_nor_stands_in_the_way() {
    let owners = json!([{"kind": "Engine", "name": "chat", "controller": true}]);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "chat", "uid": "v", "ownerReferences": owners},
        "spec": {"selector": {"app": "chat"}, "ports": [{"port": 80, "targetPort": 8000}]},
    })
    .to_string();
    let workload = |port: Value| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat"},
            "spec": {"template": {
                "metadata": {"labels": {"app": "chat"}},
                "spec": {"containers": [{"name": "chat", "image": "vllm/vllm-openai", "ports": [port]}]},
            }},
        })
    };
    let named = workload(json!({"name": "http", "containerPort": 8000}));
    let made = again(&format!("{named}\n---\n{service}"), super::IN);
    assert!(made.changes && made.text.contains(&service), "{:#?}", made.told);
    assert_ways(&made, &[("service/chat (of engine/chat)", "left as they are")]);
    // Without a name nothing leads to the sidecar.
    let numbered = workload(json!({"containerPort": 8000}));
    let made = again(&format!("{numbered}\n---\n{service}"), super::IN);
    assert_eq!(made.refused, 1, "{:#?}", made.told);

    let without_ports = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "chat-0", "uid": "u", "ownerReferences": owners},
        "spec": {"containers": [{"name": "chat", "image": "vllm/vllm-openai"}]},
    });
    let made = again(&without_ports.to_string(), super::IN);
    assert_eq!((made.refused, made.changes), (0, false), "{:#?}", made.told);
    assert_ways(&made, &[("pod/chat-0 (of engine/chat)", "left as they are")]);
}

#[test]
fn manifests_are_told_no_way_back() {
    let generated = input("engine-deployment.yaml").text.replacen(
        "metadata:\n",
        "status: {replicas: 0, conditions: [], loadBalancer: {}}\nmetadata:\n  creationTimestamp: null\n",
        1,
    );
    let made = again(&generated, super::IN);
    assert!(made.changes, "{:#?}", made.told);
    assert_ways(&made, &[]);
    for case in super::CASES {
        assert_ways(&injected(input(case.input), case.flags), &[]);
    }
}

#[test]
fn what_is_not_changed_or_not_written_is_told_no_way_back() {
    let text = all();
    let unasked = text.replace("tokengauge.dev/mode:", "example.com/mode:");
    let made = again(&unasked, "");
    assert!(!made.changes, "{:#?}", made.told);
    assert_ways(&made, &[]);

    let refused = again(&text.replace("mode: inbound", "mode: sideways"), "");
    assert!(refused.refused > 0, "{:#?}", refused.told);
    assert_ways(&refused, &[]);
}

/// One sign is enough: exports are often tidied, and not of everything.
#[test]
fn each_sign_of_a_cluster_is_seen() {
    let manifest = input("app-deployment.yaml").text;
    for (key, value) in [
        ("uid", json!("7ade4fe5-8dea-49cb-9989-677788c4d2a4")),
        ("resourceVersion", json!("41")),
        ("creationTimestamp", json!("2026-11-23T00:51:25Z")),
        ("managedFields", json!([{"manager": "kubectl-create"}])),
        ("status", json!({"readyReplicas": 1})),
    ] {
        let mut object = objects_of(&manifest).remove(0);
        match key {
            "status" => object[key] = value,
            _ => object["metadata"][key] = value,
        }
        let made = again(&object.to_string(), super::OUT);
        assert_eq!(ways(&made).len(), 1, "{key}: {:#?}", made.told);
    }
}

/// To the webhook every object comes from a cluster, and goes back the way it came.
#[test]
fn the_webhook_says_nothing_of_it() {
    let text = all();
    let pods = objects_of(&text);
    let pods = pods.iter().filter(|object| object["kind"] == "Pod");
    let mut asked = 0;
    for pod in pods {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u", "operation": "CREATE", "namespace": "prod",
                "kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": pod,
            },
        })
        .to_string();
        let review = Review::read(review.as_bytes()).unwrap();
        let settings = settings("");
        let decision = review.decide(|pod| inject(pod, &Around::alone(), &settings));
        assert!(decision.told.is_some(), "{decision:?}");
        assert!(!decision.message.contains("cluster"), "{decision:?}");
        assert!(!decision.message.contains("kubectl"), "{decision:?}");
        let answer: Value = review.answer(&decision);
        assert_eq!(answer["response"].get("warnings"), None, "{answer}");
        asked += 1;
    }
    assert_eq!(asked, 2);
}

/// What the program writes to standard output and to standard error, where it succeeds.
fn piped(command: &str, text: &str) -> (String, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tokengauge"))
        .args([command, "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = program.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let output = program.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

#[test]
fn the_program_tells_it_on_standard_error_once() {
    let before = all();
    let (made, told) = piped("inject", &before);
    assert_eq!(made, again(&before, "").text);
    for sign in ["`kubectl replace -f -`", "view-last-applied"] {
        assert_eq!(told.matches(sign).count(), 1, "{told}");
        assert!(!made.contains(sign));
    }
    let (back, told) = piped("uninject", &made);
    assert_eq!(back, before);
    assert_eq!(told.matches("`kubectl replace -f -`").count(), 1, "{told}");

    let (_, told) = piped("inject", &input("annotated.yaml").text);
    assert!(!told.contains("kubectl"), "{told}");
}

/// What was applied with a sidecar in it is taken back there.
#[test]
fn a_sidecar_that_was_applied_is_taken_back_from_the_manifest() {
    let made = again(&all(), "");
    let mut deployment = objects_of(&made.text)
        .into_iter()
        .find(|it| it["kind"] == "Deployment" && it["metadata"]["name"] == "vllm")
        .unwrap();
    let mut applied = deployment.clone();
    applied["status"] = Value::Null;
    applied["metadata"] = json!({"name": "vllm", "namespace": "prod"});
    let mut assert_way = |applied: &Value, begins: &str| {
        let key = "kubectl.kubernetes.io/last-applied-configuration";
        deployment["metadata"]["annotations"][key] = json!(applied.to_string());
        assert_ways(&taken_back(&deployment.to_string()), &[("deployment/vllm", begins)]);
    };
    assert_way(&applied, "made by `kubectl apply`: uninject the manifest");
    // As kubectl replace leaves it: the version in it is a former one, and would be refused.
    applied["metadata"]["resourceVersion"] = json!("41");
    assert_way(&applied, "put back by `kubectl replace -f -`");
    assert_way(&json!("no object"), "put back by `kubectl replace -f -`");
}
