//! Tests `inject` with objects that were read from a cluster. `fixtures/kube/live/all.yaml` is the output of `kubectl
//! get` with a kube-apiserver and its controllers. Two of the objects were created with `kubectl apply`, and the others
//! with `kubectl create`.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tokengauge_kubernetes::inject::{
    InjectionContext, RECORD_ANNOTATION, document_objects, inject,
};
use tokengauge_kubernetes::manifests::ChangedManifests;
use tokengauge_kubernetes::webhook::review::Review;
use tokengauge_kubernetes::yaml::parse_documents;

use super::{folder, injected, injected_text, input, settings, uninjected};

fn all() -> String {
    fs::read_to_string(folder("live").join("all.yaml")).unwrap()
}

fn objects_of(text: &str) -> Vec<Value> {
    let documents = parse_documents(text).unwrap();
    let all = documents.iter().flat_map(|it| document_objects(it.value()));
    all.map(|(_, object)| object.clone()).collect()
}

/// Returns the objects that are reported, with the instructions for each of them.
fn instructions(changed: &ChangedManifests) -> Vec<(&str, &str)> {
    let messages = changed.messages.iter();
    messages.filter_map(|line| line.strip_prefix("from a cluster: ")?.split_once(": ")).collect()
}

/// Checks which objects are reported, and how their instructions begin.
fn assert_instructions(changed: &ChangedManifests, expected: &[(&str, &str)]) {
    let found = instructions(changed);
    assert_eq!(found.len(), expected.len(), "{:#?}", changed.messages);
    for ((names, instruction), (expected_names, begins)) in found.iter().zip(expected) {
        assert_eq!(names, expected_names);
        assert!(instruction.starts_with(begins), "{names}: {instruction}");
    }
}

const OWNED: &str = "pod/chat-b54f787b4-4t68c (of replicaset/chat-b54f787b4), \
                     replicaset/chat-b54f787b4 (of deployment/chat)";

#[test]
fn explains_how_to_reapply_objects() {
    let made = injected_text(&all(), "");
    assert_eq!(made.refused, 0, "{:#?}", made.messages);
    assert_instructions(
        &made,
        &[
            ("deployment/chat", "apply with `kubectl replace -f -`"),
            ("service/vllm, deployment/vllm", "created by `kubectl apply`: inject the manifest"),
            ("pod/alone", "the containers of a running pod are immutable"),
            ("job/once", "the template of a Job is immutable"),
            (OWNED, "unchanged, because their controllers would overwrite"),
        ],
    );
    // The applied manifests contain no sidecar, so it cannot be removed from them.
    assert_instructions(
        &uninjected(&made.text),
        &[
            ("service/vllm, deployment/chat, deployment/vllm", "apply with `kubectl replace -f -`"),
            ("pod/alone", "the containers of a running pod are immutable"),
            ("job/once", "the template of a Job is immutable"),
        ],
    );
}

/// Only the API server and controllers write the status and most of the metadata.
#[test]
fn keeps_the_status_and_metadata_of_objects() {
    let before = all();
    let made = injected_text(&before, "");
    assert!(!made.messages.iter().any(|line| line.contains("lost")), "{:#?}", made.messages);
    let (old, new) = (objects_of(&before), objects_of(&made.text));
    assert_eq!(old.len(), new.len());
    for (old, new) in old.iter().zip(&new) {
        let owned = old["metadata"].get("ownerReferences").is_some();
        assert_eq!(old == new, owned, "{old}");
        assert_eq!(old["status"], new["status"]);
        let mut metadata = new["metadata"].clone();
        let annotations = metadata.get_mut("annotations");
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            annotations.remove(RECORD_ANNOTATION);
        }
        assert_eq!(old["metadata"], metadata);
    }
    assert_eq!(uninjected(&made.text).text, before);
}

/// If no pod gets a sidecar, a Service that targets sidecars would reach nothing.
#[test]
fn skips_objects_with_a_controller() {
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
    let made = injected_text(&owned, super::IN);
    assert_eq!((made.text.as_str(), made.has_changes), (owned.as_str(), false));
    assert_instructions(&made, &[("pod/chat-0 (of statefulset/chat)", "unchanged, because")]);
    // This object does not count as a workload. Another workload is therefore still selected as the only one.
    let other = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "other"},
        "spec": {"template": {"spec": {"containers": [
            {"name": "other", "image": "example.com/other", "ports": [{"name": "http", "containerPort": 8080}]},
        ]}}},
    })
    .to_string();
    assert!(injected_text(&other, super::IN).has_changes);
    let both = injected_text(&format!("{other}\n---\n{owned}"), super::IN);
    assert!(both.has_changes && both.text.contains(&owned), "{:#?}", both.messages);

    let alone = injected_text(&with(&json!([])), super::IN);
    assert!(alone.text.contains("tokengauge.dev/injected"), "{:#?}", alone.messages);
    assert_instructions(
        &alone,
        &[("service/chat", "apply with"), ("pod/chat-0", "the containers of a running pod")],
    );
    // A sidecar that was added by hand cannot be removed from this object either.
    let mut sidecar = objects_of(&alone.text).remove(0);
    sidecar["metadata"]["ownerReferences"] =
        json!([{"kind": "StatefulSet", "name": "chat", "controller": true}]);
    let back = uninjected(&sidecar.to_string());
    assert!(!back.has_changes, "{:#?}", back.messages);
    assert_instructions(&back, &[("pod/chat-0 (of statefulset/chat)", "unchanged, because")]);
}

/// The operator would reset its Service to the engine, and a pod with a controller need not qualify for a sidecar.
#[test]
fn objects_with_a_controller_do_not_affect_others() {
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
    let made = injected_text(&format!("{named}\n---\n{service}"), super::IN);
    assert!(made.has_changes && made.text.contains(&service), "{:#?}", made.messages);
    assert_instructions(&made, &[("service/chat (of engine/chat)", "unchanged, because")]);
    // Without a port name, no Service targets the sidecar.
    let numbered = workload(json!({"containerPort": 8000}));
    let made = injected_text(&format!("{numbered}\n---\n{service}"), super::IN);
    assert_eq!(made.refused, 1, "{:#?}", made.messages);

    let without_ports = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "chat-0", "uid": "u", "ownerReferences": owners},
        "spec": {"containers": [{"name": "chat", "image": "vllm/vllm-openai"}]},
    });
    let made = injected_text(&without_ports.to_string(), super::IN);
    assert_eq!((made.refused, made.has_changes), (0, false), "{:#?}", made.messages);
    assert_instructions(&made, &[("pod/chat-0 (of engine/chat)", "unchanged, because")]);
}

#[test]
fn reports_no_instructions_for_manifests() {
    let generated = input("engine-deployment.yaml").text.replacen(
        "metadata:\n",
        "status: {replicas: 0, conditions: [], loadBalancer: {}}\nmetadata:\n  creationTimestamp: null\n",
        1,
    );
    let made = injected_text(&generated, super::IN);
    assert!(made.has_changes, "{:#?}", made.messages);
    assert_instructions(&made, &[]);
    for case in super::CASES {
        assert_instructions(&injected(case.input, case.flags), &[]);
    }
}

#[test]
fn reports_no_instructions_for_unchanged_or_refused_objects() {
    let text = all();
    let unannotated = text.replace("tokengauge.dev/mode:", "example.com/mode:");
    let made = injected_text(&unannotated, "");
    assert!(!made.has_changes, "{:#?}", made.messages);
    assert_instructions(&made, &[]);

    let refused = injected_text(&text.replace("mode: inbound", "mode: sideways"), "");
    assert!(refused.refused > 0, "{:#?}", refused.messages);
    assert_instructions(&refused, &[]);
}

/// One field suffices to detect an exported object, because users often remove some of the fields.
#[test]
fn each_server_field_identifies_an_object_from_a_cluster() {
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
        let made = injected_text(&object.to_string(), super::OUT);
        assert_eq!(instructions(&made).len(), 1, "{key}: {:#?}", made.messages);
    }
}

/// The webhook changes objects for the cluster itself, so it must not reject objects of a cluster.
#[test]
fn the_webhook_reports_no_instructions() {
    let text = all();
    let pods = objects_of(&text);
    let pods = pods.iter().filter(|object| object["kind"] == "Pod");
    let mut reviewed = 0;
    for pod in pods {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u", "operation": "CREATE", "namespace": "prod",
                "kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": pod,
            },
        })
        .to_string();
        let review = Review::parse(review.as_bytes()).unwrap();
        let settings = settings("");
        let decision = review.decide(|pod| inject(pod, &InjectionContext::standalone(), &settings));
        assert!(decision.event.is_some(), "{decision:?}");
        assert!(!decision.message.contains("cluster"), "{decision:?}");
        assert!(!decision.message.contains("kubectl"), "{decision:?}");
        let answer: Value = review.response(&decision);
        assert_eq!(answer["response"].get("warnings"), None, "{answer}");
        reviewed += 1;
    }
    assert_eq!(reviewed, 2);
}

/// Runs the program and returns its standard output and standard error.
fn piped(command: &str, text: &str) -> (String, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tokengauge"))
        .args([command, "-"])
        .env("TOKENGAUGE_IMAGE", super::IMAGE)
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
fn prints_each_instruction_once_on_standard_error() {
    let before = all();
    let (made, messages) = piped("inject", &before);
    assert_eq!(made, injected_text(&before, "").text);
    for text in ["`kubectl replace -f -`", "view-last-applied"] {
        assert_eq!(messages.matches(text).count(), 1, "{messages}");
        assert!(!made.contains(text));
    }
    let (back, messages) = piped("uninject", &made);
    assert_eq!(back, before);
    assert_eq!(messages.matches("`kubectl replace -f -`").count(), 1, "{messages}");

    let (_, messages) = piped("inject", &input("annotated.yaml").text);
    assert!(!messages.contains("kubectl"), "{messages}");
}

/// If the applied manifest contains the sidecar, the sidecar is removed there.
#[test]
fn uninject_refers_to_an_applied_manifest_with_a_sidecar() {
    let made = injected_text(&all(), "");
    let mut deployment = objects_of(&made.text)
        .into_iter()
        .find(|it| it["kind"] == "Deployment" && it["metadata"]["name"] == "vllm")
        .unwrap();
    let mut applied = deployment.clone();
    applied["status"] = Value::Null;
    applied["metadata"] = json!({"name": "vllm", "namespace": "prod"});
    let mut assert_instruction = |applied: &Value, begins: &str| {
        let key = "kubectl.kubernetes.io/last-applied-configuration";
        deployment["metadata"]["annotations"][key] = json!(applied.to_string());
        assert_instructions(&uninjected(&deployment.to_string()), &[("deployment/vllm", begins)]);
    };
    assert_instruction(&applied, "created by `kubectl apply`: uninject the manifest");
    // After kubectl replace, the manifest has an old version, which the API server rejects.
    applied["metadata"]["resourceVersion"] = json!("41");
    assert_instruction(&applied, "apply with `kubectl replace -f -`");
    assert_instruction(&json!("not an object"), "apply with `kubectl replace -f -`");
}
