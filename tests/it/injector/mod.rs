//! Tests the webhook as a process.
//!
//! The tests cover reviews over real TLS, hostile reviews, certificates that change under load, and two replicas with
//! one API server.

mod api;
mod tls;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};
use tokengauge_kubernetes::inject::{
    Change, InjectionContext, NoChange, Outcome, Settings, inject,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use self::api::Api;
use self::tls::{Answered, Authority, Client, Mounted, SERVICE};
use crate::support::process::Process;
use crate::support::{Raw, within};

const IMAGE: &str = "registry.example/tokengauge:test";

/// An injector that uses a certificate from the test.
struct Injector {
    process: Process,
    mounted: Mounted,
    authority: Authority,
}

impl Injector {
    async fn start(more: &[String]) -> Self {
        let authority = Authority::new("one");
        let mounted = Mounted::new(&authority.sign(SERVICE));
        let mut arguments = mounted.arguments();
        arguments.extend_from_slice(more);
        let process = injector(&arguments).await;
        process.logged(&["certificate in use"]).await;
        Self { process, mounted, authority }
    }

    fn client(&self, http2: bool) -> Client {
        Client::trusting(&self.authority.pem, http2)
    }

    async fn post(&self, review: impl Into<Bytes>) -> Answered {
        let client = self.client(true);
        client.post(self.process.address, review).await
    }

    /// Asserts that the process is alive and injects.
    async fn works(&self) {
        let answer = self.post(review("outbound")).await;
        let response = response(&answer);
        assert!(response["patch"].is_string(), "{response}");
    }
}

async fn injector(arguments: &[String]) -> Process {
    let arguments = arguments.iter().map(String::as_str);
    let arguments: Vec<&str> = ["--image", IMAGE].into_iter().chain(arguments).collect();
    Process::injector(&arguments).await
}

fn review(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kube/reviews");
    std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap()
}

/// Returns the certificate of a pair in DER format, as a TLS server sends it.
fn shown((certificate, _): &(String, String)) -> Vec<u8> {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes());
    der.unwrap().to_vec()
}

/// Returns the response of an `AdmissionReview` that allows the pod. Every response must allow it.
fn response(answer: &Answered) -> Value {
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    let review: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(review["kind"], "AdmissionReview");
    assert_eq!(review["response"]["allowed"], true);
    review["response"].clone()
}

fn reason(response: &Value) -> &str {
    response["auditAnnotations"]["reason"].as_str().unwrap()
}

/// Asserts that the response changes the pod in the same way as the outcome.
fn agrees(outcome: &Outcome, pod: &Value, response: &Value) {
    let (why, warns) = match outcome {
        Ok(Change { patch, .. }) => {
            assert_eq!(response["patchType"], "JSONPatch");
            let bytes = STANDARD.decode(response["patch"].as_str().unwrap());
            let sent: json_patch::Patch = serde_json::from_slice(&bytes.unwrap()).unwrap();
            let (mut by_webhook, mut by_inject) = (pod.clone(), pod.clone());
            json_patch::patch(&mut by_webhook, &sent).unwrap();
            json_patch::patch(&mut by_inject, patch).unwrap();
            assert_eq!(by_webhook, by_inject);
            assert_ne!(by_webhook, *pod);
            return;
        }
        Err(NoChange::Skipped(why)) => (why.as_str(), false),
        Err(NoChange::Refused(why)) => (why.as_str(), true),
    };
    assert_eq!((reason(response), response.get("patch")), (why, None));
    let warning = response["warnings"][0].as_str().unwrap_or_default();
    assert_eq!(warning.starts_with("tokengauge: not injected: "), warns);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_the_same_sidecar_as_from_inject() {
    let injector = Injector::start(&["--no-events".to_owned()]).await;
    for name in ["outbound", "inbound", "bare", "disabled", "misspelt", "dry-run", "v1beta1"] {
        let text = review(name);
        let sent: Value = serde_json::from_str(&text).unwrap();
        let pod = &sent["request"]["object"];
        let settings = Settings { image: Some(IMAGE.to_owned()), ..Settings::default() };
        let outcome = inject(pod, &InjectionContext::standalone(), &settings);
        for http2 in [false, true] {
            let client = injector.client(http2);
            let answer = client.post(injector.process.address, text.clone()).await;
            let whole: Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(whole["apiVersion"], sent["apiVersion"], "{name}");
            let response = response(&answer);
            assert_eq!(response["uid"], sent["request"]["uid"], "{name}");
            agrees(&outcome, &sent["request"]["object"], &response);
        }
    }
    for (name, why) in [
        ("update", "not_created"),
        ("deployment", "not_a_pod"),
        ("kube-system", "system_namespace"),
    ] {
        let response = response(&injector.post(review(name)).await);
        assert_eq!((reason(&response), response.get("patch")), (why, None));
        assert_eq!(response["auditAnnotations"]["outcome"], "skipped");
    }
    let injected = ["reviews_total", "outcome=\"injected\""];
    assert_eq!(injector.process.count(&injected).await, 10);
    assert_eq!(injector.process.count(&["review_duration_seconds_count"]).await, 17);
}

#[tokio::test(flavor = "multi_thread")]
async fn allows_every_pod_or_returns_an_error_status() {
    let injector = Injector::start(&["--no-events".to_owned()]).await;
    let good = review("outbound");
    let with = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replacen(from, to, 1)
    };
    let object = |text: &str| {
        let mut review: Value = serde_json::from_str(&good).unwrap();
        review["request"]["object"] = json!("OBJECT");
        review.to_string().replace("\"OBJECT\"", text)
    };
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(40_000), "]".repeat(40_000));
    let many = format!("{{\"a\":[{}0]}}", "0,".repeat(60_000));
    let allowed = [
        (object("null"), "unreadable"),
        (object("7"), "unreadable"),
        (object("[]"), "unreadable"),
        (object(&deep), "unreadable"),
        (object(&many), "too_complex"),
        (object("{\"a\": 1e999}"), "unreadable"),
        (with("\"Pod\"", "[\"Pod\"]"), "not_a_pod"),
        (with("\"Pod\"", "7"), "not_a_pod"),
        (with("\"CREATE\"", "{}"), "not_created"),
        (with("AdmissionReview", "ConversionReview"), "not_a_review"),
        (with("admission.k8s.io", "evil.example"), "not_a_review"),
        (with("\"namespace\": \"shop\"", "\"namespace\": 7"), "injected"),
    ];
    for (body, why) in allowed {
        let response = response(&injector.post(body.clone()).await);
        assert_eq!(reason(&response), why, "{:.200}", body);
        assert_eq!(response["uid"], "705ab4f5-6393-11e8-b7cc-42010a800001");
        if response["auditAnnotations"]["outcome"] == "failed" {
            assert!(response["warnings"][0].is_string(), "{response}");
        }
    }
    injector.works().await;
    assert_eq!(injector.process.count(&["reason=\"panicked\""]).await, 0);
    let peak = injector.process.peak_memory() >> 20;
    assert!(peak < 256, "{peak} MiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_reviews_with_values_of_wrong_types() {
    let injector = Injector::start(&["--no-events".to_owned()]).await;
    let good = review("outbound");
    // Parts of these objects have other types than a pod's. The process must survive every result of `inject`.
    let pod: Value = serde_json::from_str(&good).unwrap();
    for path in [
        "/metadata",
        "/metadata/annotations",
        "/metadata/labels",
        "/metadata/ownerReferences",
        "/spec",
        "/spec/containers",
        "/spec/containers/0",
        "/spec/containers/0/env",
        "/spec/containers/0/name",
        "/spec/volumes",
    ] {
        for wrong in [
            json!(null),
            json!(7),
            json!("text"),
            json!([]),
            json!({}),
            json!([[]]),
            json!({"": {"": null}}),
        ] {
            let mut hostile = pod.clone();
            if let Some(part) = hostile.pointer_mut(&format!("/request/object{path}")) {
                *part = wrong.clone();
            }
            let response = response(&injector.post(hostile.to_string()).await);
            assert_ne!(reason(&response), "panicked", "{path}: {wrong}");
        }
    }
    // The pod has as many containers as an object's value limit allows. Any response is accepted.
    let mut crowded = pod.clone();
    let container = json!({"name": "a", "image": "b", "ports": [{"containerPort": 4_000}]});
    crowded["request"]["object"]["spec"]["containers"] = Value::Array(vec![container; 7_000]);
    let crowded = response(&injector.post(crowded.to_string()).await);
    assert_ne!(crowded["auditAnnotations"]["outcome"], "failed", "{crowded}");
    injector.works().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn explains_why_a_review_without_uid_is_rejected() {
    let injector = Injector::start(&["--no-events".to_owned()]).await;
    let good = review("outbound");
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(40_000), "]".repeat(40_000));
    let twice = good.replacen("\"uid\": \"705ab", "\"uid\": \"x\", \"uid\": \"705ab", 1);
    for (body, status) in [
        (String::new(), 400),
        ("{}".to_owned(), 400),
        ("null".to_owned(), 400),
        ("[]".to_owned(), 400),
        ("{\"request\":{\"uid\":7}}".to_owned(), 400),
        (good.get(..good.len() / 2).unwrap().to_owned(), 400),
        (deep, 400),
        ("[".repeat(1_000_000), 400),
        (twice, 400),
        (good.replacen("705ab4f5", &"7".repeat(5_000), 1), 400),
        (" ".repeat((8 << 20) + 1), 413),
    ] {
        let answer = injector.post(body.clone()).await;
        assert_eq!(answer.status.as_u16(), status, "{:.100}", body);
        assert!(!answer.body.is_empty());
    }
    injector.works().await;
    let failed = ["reviews_total", "reason=\"no_review\""];
    assert_eq!(injector.process.count(&failed).await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn explains_why_other_requests_are_rejected() {
    let injector = Injector::start(&["--no-events".to_owned()]).await;
    let request = |method: Method, path: &str, kind: &str| {
        Request::builder()
            .method(method)
            .uri(format!("https://{SERVICE}{path}"))
            .header("host", SERVICE)
            .header("content-type", kind)
            .body(Full::new(Bytes::from(review("outbound"))))
            .unwrap()
    };
    for (method, path, kind, status) in [
        (Method::GET, "/inject", "application/json", 405),
        (Method::PUT, "/inject", "application/json", 405),
        (Method::POST, "/", "application/json", 404),
        (Method::POST, "/inject", "text/plain", 415),
        (Method::POST, "/inject", "application/json; charset=utf-8", 200),
    ] {
        for http2 in [false, true] {
            let client = injector.client(http2);
            let request = request(method.clone(), path, kind);
            let answer = client.send(injector.process.address, request).await.unwrap();
            assert_eq!(answer.status.as_u16(), status, "{method} {path} {kind}");
        }
    }
    // One body never arrives, one is cut off, and one connection sends bytes that are not HTTP.
    let head = "POST /inject HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    let mut slow = injector.client(false).connect(injector.process.address).await.unwrap();
    slow.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 12];
    within("a response to a slow body", slow.read_exact(&mut answer)).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 408");
    let mut broken = injector.client(false).connect(injector.process.address).await.unwrap();
    broken.write_all(head.as_bytes()).await.unwrap();
    drop(broken);
    let mut nonsense = injector.client(true).connect(injector.process.address).await.unwrap();
    nonsense.write_all(&[0xff; 4_096]).await.unwrap();
    drop(nonsense);
    injector.works().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_review_fails_while_certificates_change_under_load() {
    let injector = Injector::start(&["--no-events".to_owned()]).await;
    let other = Authority::new("two");
    let both = format!("{}{}", injector.authority.pem, other.pem);
    let going = Arc::new(AtomicBool::new(true));
    let address = injector.process.address;
    let clients: Vec<_> = (0..4)
        .map(|n| {
            let client = Client::trusting(&both, n % 2 == 0);
            let (going, review) = (Arc::clone(&going), review("outbound"));
            tokio::spawn(async move {
                let mut answered = 0;
                while going.load(Ordering::Relaxed) {
                    let answer = client.post(address, review.clone()).await;
                    assert!(response(&answer)["patch"].is_string());
                    answered += 1;
                }
                answered
            })
        })
        .collect();
    let until_shown = |certificate: Vec<u8>| {
        let client = Client::trusting(&both, true);
        async move {
            while client.post(address, review("outbound")).await.shown != certificate {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    };
    let second = other.sign(SERVICE);
    injector.mounted.swap(&second);
    within("the second certificate", until_shown(shown(&second))).await;
    // This certificate and this key do not belong together. The injector rejects them and keeps the second certificate.
    let broken = (injector.authority.sign(SERVICE).0, second.1.clone());
    injector.mounted.swap(&broken);
    injector.process.logged(&["new certificate rejected, the old one stays in use"]).await;
    let client = Client::trusting(&both, true);
    assert_eq!(client.post(address, review("outbound")).await.shown, shown(&second));
    let third = injector.authority.sign(SERVICE);
    injector.mounted.swap(&third);
    within("the third certificate", until_shown(shown(&third))).await;
    going.store(false, Ordering::Relaxed);
    for client in clients {
        assert!(client.await.unwrap() > 0);
    }
    for (outcome, expected) in [("shown", 3), ("refused", 1)] {
        let outcome = format!("outcome=\"{outcome}\"");
        let count = injector.process.count(&["certificate_changes_total", &outcome]).await;
        assert_eq!(count, expected, "{outcome}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn is_not_ready_without_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| tls::text(&folder.path().join(name));
    let arguments = ["--no-events", "--cert", &path("tls.crt"), "--key", &path("tls.key")];
    let process = injector(&arguments.map(str::to_owned)).await;
    let (head, body) = process.page("/readyz").await;
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    assert_eq!(body, "no certificate yet\n");
    process.logged(&["no usable certificate, cannot serve reviews"]).await;
    let authority = Authority::new("one");
    let (certificate, key) = authority.sign(SERVICE);
    tls::file(&folder, "tls.key", &key);
    tls::file(&folder, "tls.crt", &certificate);
    process.logged(&["certificate in use"]).await;
    let (head, _) = process.page("/readyz").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_one_secret_and_repair_the_bundle() {
    let api = Api::start(2).await;
    let mut arguments = api.arguments();
    let own =
        ["--self-signed", "--namespace", "tokengauge", "--check-interval", "1s", "--no-events"];
    arguments.extend(own.map(str::to_owned));
    let (one, two) = tokio::join!(injector(&arguments), injector(&arguments));
    for process in [&one, &two] {
        process.logged(&["certificate in use"]).await;
        let (head, _) = process.page("/readyz").await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    }
    let state = api.state.borrow().clone();
    let created = |status: &str| {
        let line = format!("POST /api/v1/namespaces/tokengauge/secrets {status}");
        state.log.iter().filter(|it| **it == line).count()
    };
    assert_eq!((created("201"), created("409")), (1, 1), "{:?}", state.log);
    let untouched = json!({"url": "https://a"});
    assert_eq!(state.webhooks["webhooks"][0]["clientConfig"], untouched);
    // Both replicas use the certificate in the Secret, and the bundle trusts it.
    let client = Client::trusting(&state.bundle().unwrap(), true);
    let first = client.post(one.address, review("outbound")).await;
    let second = client.post(two.address, review("outbound")).await;
    assert_eq!(first.shown, second.shown);
    // The test empties the bundle, as another client of the API server could.
    api.state.send_modify(|state| {
        state.webhooks["webhooks"][1]["clientConfig"]["caBundle"] = "".into();
    });
    let right = state.bundle();
    api.until("the bundle", |state| state.bundle() == right).await;
    // The test deletes the Secret. A replica creates a new one, and both replicas use it after the bundle trusts it.
    api.state.send_modify(|state| state.secret = None);
    let state =
        api.until("a new bundle", |now| now.bundle().is_some_and(|it| Some(it) != right)).await;
    let client = Client::trusting(&state.bundle().unwrap(), true);
    for process in [&one, &two] {
        let shows = async {
            while client.connect(process.address).await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        within("the new certificate", shows).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn creates_an_event_on_the_owner_of_a_pod() {
    let api = Api::start(0).await;
    let injector = Injector::start(&api.arguments()).await;
    for name in ["dry-run", "outbound", "outbound", "misspelt", "bare"] {
        injector.post(review(name)).await;
    }
    let state = api.until("three events", |state| state.events.len() == 3).await;
    let said: Vec<_> = state
        .events
        .iter()
        .map(|event| {
            let on = &event["involvedObject"];
            let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            (word(&event["reason"]), word(&on["kind"]), word(&on["name"]))
        })
        .collect();
    let expected = [
        ("Injected", "ReplicaSet", "chat-6c9f7d5b8d"),
        ("InjectionRefused", "ReplicaSet", "chat-6c9f7d5b8d"),
        ("Injected", "Pod", "try"),
    ];
    let expected = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
    assert_eq!(said, expected);
    let uid = &state.events[0]["involvedObject"]["uid"];
    assert_eq!(uid, "0f6f3c1e-9d42-4c2e-8f51-6b6d2d1f1a11");
    let limited = ["events_total", "outcome=\"limited\""];
    assert_eq!(injector.process.count(&limited).await, 1);
    // A namespace that would change the API path is not valid.
    let text = review("bare").replace("\"name\": \"try\"", "\"name\": \"other\"");
    let text = text.replacen(
        "\"namespace\": \"shop\",\n    \"operation\"",
        "\"namespace\": \"a/secrets?b=\",\n    \"operation\"",
        1,
    );
    assert!(text.contains("secrets?b="));
    response(&injector.post(text).await);
    injector.post(review("outbound")).await;
    let namespaces = api.namespace_of_events.lock().unwrap().clone();
    assert!(namespaces.iter().all(|it| it == "/api/v1/namespaces/shop"), "{namespaces:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_sigterm_it_is_unready_and_serves_during_the_delay() {
    let delay = ["--no-events", "--shutdown-delay", "2s"];
    let mut injector = Injector::start(&delay.map(str::to_owned)).await;
    injector.process.signal("TERM");
    injector.process.logged(&["\"stopping\""]).await;
    let (head, _) = injector.process.page("/readyz").await;
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    injector.works().await;
    assert!(injector.process.ended().await.success());
}

/// Connections that are not used must not keep the API server out.
#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_delay_reviews() {
    let injector = Injector::start(&["--no-events".to_owned()]).await;
    let mut idle = Vec::new();
    for _ in 0..256 {
        let stream = injector.client(true).connect(injector.process.address).await.unwrap();
        let handshake =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await.unwrap();
        let sender: hyper::client::conn::http2::SendRequest<Full<Bytes>> = sender;
        idle.push((sender, tokio::spawn(connection)));
    }
    injector.works().await;
    let open = idle.iter().filter(|(_, connection)| !connection.is_finished()).count();
    assert!(open > 250, "{open} of the idle connections are still open");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_do_not_delay_health_checks() {
    let injector = Injector::start(&["--no-events".to_owned()]).await;
    let mut slow = Vec::new();
    for _ in 0..400 {
        let mut client = Raw::connect(injector.process.admin).await;
        client.write("GET /livez HTTP/1.1\r\nHo").await;
        slow.push(client);
    }
    assert!(injector.process.page("/livez").await.0.starts_with("HTTP/1.1 200 "));
    let mut newest = slow.pop().unwrap();
    newest.write("st: a\r\n\r\n").await;
    let head = newest.read_head().await;
    assert!(head.starts_with("HTTP/1.1 200 "), "its header timeout has not expired: {head}");
}
