//! Tests error budgets of the real program: the events that reduce them, and their state after a restart.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tokengauge_simulator::{Ledger, Profile, tokens};
use tokio::net::TcpListener;

use crate::support::process::{CALL, Process};
use crate::support::{Backend, within};

/// Simulated models. The first one decodes ten tokens per second without a defect. Each of the others has one defect.
///
/// A response of 25 tokens needs 2.4 s of decoding. Without the prefill, the output rate would be no higher than the
/// total rate. The stall of 5 s begins after one second of decoding, and the route allows 2 s.
const MODELS: [&str; 4] = [
    "steady:prefill-ms=500,step-ms=100,batch-ms=0,jitter=0,tokens=25",
    "half:prefill-ms=500,step-ms=200,batch-ms=0,jitter=0,tokens=25",
    "stalling:prefill-ms=500,step-ms=100,batch-ms=0,jitter=0,tokens=25,stall=1,stall-after=10,stall-ms=5000",
    "failing:fail=1,status=500",
];

/// Number of good and bad events of each model, for the SLIs availability, output rate, stall-free and tokens above the
/// rate.
///
/// A stream that starts 1.3 s late but is steady still meets the minimum of 6.5 tokens per second. A stream at half the
/// speed whose first token is 1 s late does not.
const EXPECTED: [(&str, [[u64; 2]; 4]); 4] = [
    ("steady", [[1, 0], [1, 0], [1, 0], [25, 0]]),
    ("half", [[1, 0], [0, 1], [1, 0], [0, 25]]),
    ("stalling", [[1, 0], [0, 1], [0, 1], [0, 25]]),
    ("failing", [[0, 1], [0, 0], [0, 0], [0, 0]]),
];

/// The model whose stream the client leaves at the first token.
const LEFT: &str = "left";

const INDICATORS: [&str; 4] = [
    "sli: availability",
    "sli: output_rate, threshold: 6.5",
    "sli: stall_free",
    "sli: tokens_above_rate, threshold: 6.5",
];

/// Starts a simulated backend that ends with the runtime of the test.
async fn simulated() -> std::net::SocketAddr {
    tokio::task::spawn_blocking(tokens::load).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let config = tokengauge_simulator::Config {
        models: MODELS.map(|model| model.parse::<Profile>().unwrap()).into(),
        seed: 1,
    };
    let ledger = Arc::new(Ledger::default());
    tokio::spawn(tokengauge_simulator::serve(listener, config, ledger, std::future::pending()));
    address
}

async fn started(folder: &Path, upstream: std::net::SocketAddr, rest: &str) -> Process {
    let file = folder.join("tokengauge.yaml");
    let text = format!(
        "version: 1\nupstreams: {{a: {{url: \"http://{upstream}\"}}}}\n\
         routes: [{{upstream: a, stall: {{inter_token_after: 2s}}}}]\n{rest}\n"
    );
    fs::write(&file, text).unwrap();
    Process::start(&["--config", file.to_str().unwrap()], &[]).await
}

fn request(model: &str) -> String {
    let body = format!(
        "{{\"model\":\"{model}\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}"
    );
    format!(
        "POST {CALL} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn events(process: &Process, objective: &str, result: &str) -> u64 {
    let name = format!("tokengauge_slo=\"{objective}\"");
    let result = format!("tokengauge_result=\"{result}\"");
    process.count(&["tokengauge_slo_events_total{", &name, &result]).await
}

async fn finished(process: &Process, count: u64) {
    let wait = async {
        let counter = ["tokengauge_requests_finished_total{"];
        while process.count(&counter).await < count {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within("the exchanges' ends", wait).await;
}

#[tokio::test]
async fn each_failure_burns_the_budget_of_its_slo_and_a_client_disconnect_burns_none() {
    let backend = simulated().await;
    let folder = tempfile::tempdir().unwrap();
    let models = || EXPECTED.iter().map(|(model, _)| *model).chain([LEFT]);
    let objectives: String = models()
        .flat_map(|model| {
            INDICATORS.iter().enumerate().map(move |(index, indicator)| {
                format!(
                    "  - {{name: {model}-{index}, {indicator}, target: 95%, scope: {{model: {model}}}}}\n"
                )
            })
        })
        .collect();
    let process = started(folder.path(), backend, &format!("slos:\n{objectives}")).await;
    let mut clients = Vec::new();
    for model in models() {
        let mut client = process.client().await;
        client.write(request(model)).await;
        clients.push((model, client));
    }
    let (_, mut left) = clients.pop().unwrap();
    left.read_until("\"content\":").await;
    drop(left);
    for (model, mut client) in clients {
        let answer = String::from_utf8(client.read_to_end().await).unwrap();
        assert_eq!(answer.contains("[DONE]"), model != "failing", "{answer}");
    }
    finished(&process, EXPECTED.len() as u64 + 1).await;
    for (model, expected) in EXPECTED {
        for (index, [good, bad]) in expected.into_iter().enumerate() {
            let objective = format!("{model}-{index}");
            let told = [
                events(&process, &objective, "good").await,
                events(&process, &objective, "bad").await,
            ];
            assert_eq!(told, [good, bad], "{objective}");
            let name = format!("tokengauge_slo=\"{objective}\"");
            let budget = process.seconds(&["tokengauge_slo_error_budget_remaining", &name]).await;
            if good + bad == 0 {
                assert!(budget.abs() < 1e-9, "{objective} has no series: {budget}");
            } else {
                assert_eq!(bad > 0, budget < 1.0, "{objective}: {budget}");
            }
        }
    }
    for index in 0..INDICATORS.len() {
        let objective = format!("{LEFT}-{index}");
        assert_eq!(events(&process, &objective, "bad").await, 0, "{objective}");
    }
}

/// Returns the remaining ratio of the only budget, or `None` if it is unknown.
async fn budget(process: &Process) -> Option<f64> {
    let (_, metrics) = process.page("/metrics").await;
    let mut lines = metrics.lines();
    let line = lines.find(|line| line.starts_with("tokengauge_slo_error_budget_remaining"))?;
    Some(line.rsplit_once(' ')?.1.parse().unwrap())
}

async fn keeping(folder: &Path, backend: &Backend) -> Process {
    let rest = format!(
        "slo_state: {{path: {}}}\nslos: [{{name: a, sli: availability, target: 50%}}]",
        folder.join("slo").display()
    );
    started(folder, backend.address, &rest).await
}

async fn ended(mut process: Process) {
    process.signal("TERM");
    assert!(process.ended().await.success());
}

#[tokio::test]
async fn a_budget_survives_a_restart_and_a_damaged_file_is_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slo");
    let backend = Backend::start().await;
    let process = keeping(folder.path(), &backend).await;
    assert!(file.exists(), "the file is written at the start");
    assert_eq!(budget(&process).await, None);
    let mut client = process.client().await;
    client.write(request("m")).await;
    let mut upstream = backend.accept().await;
    upstream.read_until("Hello\"}]}").await;
    upstream.write("HTTP/1.1 500 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
    client.read_to_end().await;
    finished(&process, 1).await;
    assert!(budget(&process).await.is_some_and(|left| (0.9..1.0).contains(&left)));
    ended(process).await;

    let process = keeping(folder.path(), &backend).await;
    process.logged(&["error budgets restored", "\"objectives\":1"]).await;
    assert!(budget(&process).await.is_some_and(|left| (0.9..1.0).contains(&left)));
    assert_eq!(events(&process, "a", "bad").await, 0, "counters start at 0 in each process");
    ended(process).await;

    let mut bytes = fs::read(&file).unwrap();
    bytes.truncate(bytes.len() - 1);
    fs::write(&file, &bytes).unwrap();
    let process = keeping(folder.path(), &backend).await;
    process.logged(&["rejected and renamed", "wrong checksum", "slo.refused.1"]).await;
    assert_eq!(budget(&process).await, None);
    assert_eq!(fs::read(folder.path().join("slo.refused.1")).unwrap(), bytes);
    assert_ne!(fs::read(&file).unwrap(), bytes);
}

#[tokio::test]
async fn reports_an_unwritable_state_file_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    let start = |path: &str| {
        let text = format!(
            "version: 1\nupstreams: {{a: {{url: \"http://127.0.0.1:9\"}}}}\nslo_state: {{path: {path}}}\n"
        );
        fs::write(&config, text).unwrap();
        let free = ["run", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let ended = std::process::Command::new(env!("CARGO_BIN_EXE_tokengauge"))
            .args(free)
            .arg("--config")
            .arg(&config)
            .output()
            .unwrap();
        assert!(!ended.status.success());
        String::from_utf8(ended.stderr).unwrap()
    };
    let told = start("/no/folder/slo");
    assert!(told.contains("slo_state: cannot write /no/folder/slo"), "{told}");
    let told = start(folder.path().to_str().unwrap());
    assert!(told.contains("is not a regular file"), "{told}");
    // This folder takes no files, not even from root.
    let told = start("/proc/sys/slo");
    assert!(told.contains("slo_state: cannot write /proc/sys/slo: "), "{told}");
}
