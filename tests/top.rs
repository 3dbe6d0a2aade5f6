//! Runs `tokengauge top` against admin ports that send documents of the test.

#![cfg(feature = "top")]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::thread;

use serde_json::{Value, json};

/// Starts an admin port on a free port. It answers each request with the document, and returns the request's headers.
fn serve(status: &'static str, document: &Value) -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let document = document.to_string();
    let (sender, received) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let head = read_head(&mut stream);
            let is_live = head.starts_with("GET /api/v1/live ");
            let body = match is_live {
                true => format!("event: snapshot\ndata: {document}\n\n"),
                false => document.clone(),
            };
            let answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\n\r\n{body}");
            if stream.write_all(answer.as_bytes()).is_err() || sender.send(head).is_err() {
                return;
            }
            if is_live {
                // Keeps the stream of events open.
                thread::spawn(move || stream.read(&mut [0; 1]));
            }
        }
    });
    (address, received)
}

fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).unwrap() == 0 {
            break;
        }
        head.extend_from_slice(&byte);
    }
    String::from_utf8(head).unwrap()
}

fn document(name: &str) -> Value {
    json!({
        "schema": 1, "sequence": 1, "at_unix_ms": 45_000_000,
        "process": {"name": name, "version": "0.1.0", "uptime_seconds": 600.0},
        "settings": {"interval_seconds": 5},
        "now": {"requests_per_second": 1.5, "output_tokens_per_second": 100.0, "in_flight": 2},
        "conditions": [{"id": "x", "severity": "critical", "text": "openai · gpt-4o: TTFT p95 4.2 s, objective 2 s",
            "since_unix_ms": 44_700_000, "runbook": "LLMTTFTDegraded"}],
        "history": {"first_interval": 8821, "last_interval": 9000, "groups": [{"id": 1, "provider": "openai", "model": "gpt-4o\u{1b}[31m",
            "intervals": [[9000, {"finished": 3, "output_tokens": 60,
                "ttft": {"scale": 3, "count": 3, "sum": 3.0, "zero": 0, "buckets": [[-1, 3]]}}]]}]},
    })
}

fn top(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.arg("top").args(arguments);
    command.env_remove("TOKENGAUGE_ADMIN").env_remove("TOKENGAUGE_ADMIN_TOKEN");
    command
}

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn once_prints_one_screen() {
    let (address, _requests) = serve("200 OK", &document("gateway"));
    let (status, out, _) = run(&mut top(&["--once", "--admin", &address]));
    assert_eq!(status, Some(0), "{out}");
    assert!(out.contains("CRITICAL    openai · gpt-4o: TTFT p95 4.2 s, objective 2 s"), "{out}");
    assert!(out.contains("runbook LLMTTFTDegraded") && out.contains("1.5 /s"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    let (_, out, _) = run(&mut top(&["--once", "--view", "models", "--admin", &address]));
    assert!(out.contains("gpt-4o�[31m") && !out.contains('\u{1b}'), "{out}");
}

#[test]
fn json_prints_one_merged_document() {
    let (a, _requests) = serve("200 OK", &document("pod-1"));
    let (b, _requests_b) = serve("200 OK", &document("pod-2"));
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (status, out, _) = run(&mut top(&[
        "--json",
        "--admin",
        &a,
        "--admin",
        &format!("http://{b}/"),
        "--admin",
        &gone,
    ]));
    assert_eq!(status, Some(0), "{out}");
    let merged: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(merged["now"]["output_tokens_per_second"], 200.0);
    let mut names: Vec<&str> = (merged["conditions"][0]["processes"].as_array().unwrap().iter())
        .filter_map(Value::as_str)
        .collect();
    // The order is that of the addresses, whose ports are random.
    names.sort_unstable();
    assert_eq!(names, ["pod-1", "pod-2"]);
    let processes = merged["processes"].as_array().unwrap();
    let failed: Vec<&Value> = processes.iter().filter(|it| !it["failure"].is_null()).collect();
    let [failed] = failed.as_slice() else { panic!("{out}") };
    assert_eq!((&failed["address"], &failed["requests_per_second"]), (&json!(gone), &Value::Null));
    assert!(failed["failure"]["since_unix_ms"].as_u64().unwrap() > 1_000_000_000_000);
}

#[test]
fn without_a_process_it_says_what_to_do() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for mode in ["--once", "--json"] {
        let (status, out, errors) = run(&mut top(&[mode, "--admin", &gone]));
        assert_eq!(status, Some(1), "{out}");
        assert!(
            errors.contains(&format!("{gone}: cannot connect: connection refused")),
            "{errors}"
        );
        assert!(errors.contains("start one with `tokengauge run`"), "{errors}");
    }
}

#[test]
fn sends_the_token_and_says_when_it_is_wrong() {
    let (address, requests) = serve("401 Unauthorized", &json!("no"));
    let mut command = top(&["--once"]);
    command.env("TOKENGAUGE_ADMIN", &address).env("TOKENGAUGE_ADMIN_TOKEN", "s3cret");
    let (status, out, errors) = run(&mut command);
    assert_eq!(status, Some(1));
    assert!(errors.contains("status 401: set TOKENGAUGE_ADMIN_TOKEN"), "{errors}");
    assert!(!format!("{out}{errors}").contains("s3cret"));
    let head = requests.recv().unwrap().to_ascii_lowercase();
    assert!(head.contains("\r\nauthorization: bearer s3cret\r\n"), "{head}");
}

#[test]
fn without_a_terminal_it_prints_lines() {
    let (address, _requests) = serve("200 OK", &document("gateway"));
    let mut process = top(&["--admin", &address]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
    let block: Vec<String> = lines.take(3).collect();
    process.kill().unwrap();
    process.wait().unwrap();
    let [first, second, third] = block.as_slice() else { panic!("{block:?}") };
    assert!(first.contains(" process=gateway state=up tps=100 "), "{first}");
    assert!(
        second.contains(" condition=critical since=12:25:00Z runbook=LLMTTFTDegraded "),
        "{second}"
    );
    assert!(third.contains("model=gpt-4o�[31m provider=openai tps=1.0 "), "{third}");
}

#[test]
fn rejects_addresses_that_are_no_admin_port() {
    for address in ["localhost", "https://a:4001", "a:b"] {
        let (status, _, errors) = run(&mut top(&["--once", "--admin", address]));
        assert_eq!(status, Some(2));
        assert!(errors.contains("write HOST:PORT or http://HOST:PORT"), "{errors}");
    }
}
