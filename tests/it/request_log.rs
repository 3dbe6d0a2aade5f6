//! Tests the request log of the real program.
//!
//! Every exchange must have its line, regardless of how the exchange ends and what is done to the file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::process::{CALL, Process, open};
use crate::support::{Backend, within};

/// Starts a proxy with one route below `/v1` that logs to `log`.
async fn logging(folder: &Path, upstream: std::net::SocketAddr) -> Process {
    let (config, log) = (folder.join("config.yaml"), folder.join("log"));
    let text = format!(
        "version: 1\nupstreams: {{a: {{url: \"http://{upstream}\"}}}}\nroutes: [{{upstream: a, match: {{prefix: /v1}}}}]\n\
         request_log: {{path: {}}}\n",
        log.display()
    );
    fs::write(&config, text).unwrap();
    Process::start(&["--config", config.to_str().unwrap()], &[]).await
}

fn read(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.lines().map(serde_json::from_str);
    whole.collect::<Result<_, _>>().unwrap_or_default()
}

/// Waits until the log has `count` lines.
async fn lines(path: &Path, count: usize) -> Vec<Value> {
    let wait = async {
        while read(path).len() < count {
            tokio::task::yield_now().await;
        }
    };
    within("lines of the request log", wait).await;
    let lines = read(path);
    assert_eq!(lines.len(), count, "{lines:?}");
    lines
}

/// Performs one exchange that matches no route.
async fn refused(process: &Process) {
    let mut client = process.client().await;
    let request = "GET /elsewhere HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    client.write(request).await;
    assert!(client.read_to_end().await.starts_with(b"HTTP/1.1 404"));
}

#[tokio::test]
async fn a_relative_path_is_in_the_folder_of_the_configuration_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    let text = "version: 1\nupstreams: {a: {url: \"http://127.0.0.1:9\"}}\n\
                routes: [{upstream: a, match: {prefix: /v1}}]\nrequest_log: {path: log}\n";
    fs::write(&config, text).unwrap();
    let process = Process::start(&["--config", config.to_str().unwrap()], &[]).await;
    refused(&process).await;
    lines(&folder.path().join("log"), 1).await;
}

#[tokio::test]
async fn the_flag_takes_precedence_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (config, log) = (folder.path().join("config.yaml"), folder.path().join("flag"));
    let text = "version: 1\nupstreams: {a: {url: \"http://127.0.0.1:9\"}}\n\
                routes: [{upstream: a, match: {prefix: /v1}}]\nrequest_log: {path: file}\n";
    fs::write(&config, text).unwrap();
    let paths = [&config, &log].map(|path| path.to_str().unwrap());
    let process = Process::start(&["--config", paths[0], "--request-log", paths[1]], &[]).await;
    refused(&process).await;
    lines(&log, 1).await;
    assert!(!folder.path().join("file").exists());
}

#[tokio::test]
async fn writes_one_line_per_exchange_in_the_order_of_ends() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let backend = Backend::start().await;
    let mut process = logging(folder.path(), backend.address).await;
    // The exchange that starts first ends last.
    let (client, upstream) = open(&process, &backend, CALL).await;
    let mut plain = process.client().await;
    plain.write("GET /v1/models?key=hidden HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut answer = backend.accept().await;
    answer.read_head().await;
    answer.write("HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno").await;
    plain.read_until("no").await;
    lines(&log, 1).await;
    refused(&process).await;
    lines(&log, 2).await;
    drop(client);
    let told = lines(&log, 3).await;
    drop(upstream);
    let short = |line: &Value| {
        let ending = &line["ending"]["kind"];
        format!(
            "{} {} {} {} {}",
            line["request_number"],
            line["http"]["status"],
            line["outcome"],
            ending,
            line["call"]["complete"]
        )
    };
    assert_eq!(
        told.iter().map(short).collect::<Vec<_>>(),
        [
            r#"2 503 "error" "complete" null"#,
            r#"3 404 "rejected" "rejected" null"#,
            r#"1 200 "cancelled" "client_gone" "cut""#,
        ]
    );
    let points = &told[2]["times"];
    let [token, last, end] =
        ["first_token", "last_token", "end"].map(|point| points[point].as_f64().unwrap());
    assert!(0.0 < token && token <= last && last <= end, "{points}");
    assert_eq!(told[2]["call"]["response"]["finish_reasons"], Value::Array(Vec::new()));
    assert_eq!(told[2]["call"]["choices"]["unfinished"], 1);
    documented(&told);
    // The counters report that nothing was lost.
    assert_eq!(process.count(&["request_log_written_total"]).await, 3);
    assert_eq!(process.count(&["request_log_dropped_total"]).await, 0);
    refused(&process).await;
    process.signal("TERM");
    assert!(process.ended().await.success());
    assert_eq!(read(&log).len(), 4, "the remaining lines are written at the end");
}

/// Asserts that the documentation lists every field of every line, with its type.
fn documented(lines: &[Value]) {
    let page = include_str!("../../docs/reference/request-log.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let fields: BTreeMap<&str, &str> = rows
        .map(|row| {
            let cells: Vec<_> = row.split(" | ").collect();
            (cells[0].trim_matches(['|', '`', ' ']), cells[1])
        })
        .collect();
    fn check(path: &str, value: &Value, fields: &BTreeMap<&str, &str>) {
        match value {
            Value::Object(object) => {
                for (name, value) in object {
                    let below = format!("{path}.{name}");
                    let any = format!("{path}.*");
                    let known = fields.contains_key(any.trim_start_matches('.'));
                    check(if known { &any } else { &below }, value, fields);
                }
            }
            Value::Array(items) => {
                let each = format!("{path}[]");
                items.iter().for_each(|item| check(&each, item, fields));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                let kind = if value.is_f64() {
                    "number"
                } else if value.is_number() {
                    "integer"
                } else if value.is_string() {
                    "string"
                } else if value.is_boolean() {
                    "boolean"
                } else {
                    "null"
                };
                let path = path.trim_start_matches('.');
                assert_eq!(fields.get(path), Some(&kind), "{path}");
            }
        }
    }
    for line in lines {
        check("", line, &fields);
    }
}

#[tokio::test]
async fn opens_a_new_file_after_a_rename_with_or_without_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let [log, one, two] = ["log", "one", "two"].map(|name| folder.path().join(name));
    let backend = Backend::start().await;
    let process = logging(folder.path(), backend.address).await;
    refused(&process).await;
    lines(&log, 1).await;
    fs::rename(&log, &one).unwrap();
    refused(&process).await;
    assert_eq!(lines(&log, 1).await[0]["request_number"], 2);
    fs::rename(&log, &two).unwrap();
    process.signal("HUP");
    process.logged(&["configuration reloaded"]).await;
    assert!(log.exists(), "the file exists before its first line");
    fs::remove_file(&log).unwrap();
    refused(&process).await;
    assert_eq!(lines(&log, 1).await[0]["request_number"], 3);
    assert_eq!((read(&one).len(), read(&two).len()), (1, 1));
}

#[tokio::test]
async fn reports_a_log_that_cannot_be_opened_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    let text = "version: 1\nupstreams: {a: {url: \"http://127.0.0.1:9\"}}\nrequest_log: {path: /no/folder/log}\n";
    fs::write(&config, text).unwrap();
    let ended = std::process::Command::new(env!("CARGO_BIN_EXE_tokengauge"))
        .args(["run", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config"])
        .arg(&config)
        .output()
        .unwrap();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success());
    assert!(told.contains("request_log: cannot open /no/folder/log"), "{told}");
}

#[tokio::test]
async fn a_request_log_that_cannot_be_renamed_loses_no_line() {
    const SIZE: u64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let (config, log) = (folder.path().join("config.yaml"), folder.path().join("log"));
    let text = "version: 1\nupstreams: {a: {url: \"http://127.0.0.1:9\"}}\n\
                routes: [{upstream: a, match: {prefix: /v1}}]\n\
                request_log: {path: log, rotate: {size: 1MiB, max_files: 1}}\n";
    fs::write(&config, text).unwrap();
    // A folder with a file in it has the name of the rotated file.
    fs::create_dir_all(folder.path().join("log.1").join("in the way")).unwrap();
    let process = Process::start(&["--config", config.to_str().unwrap()], &[]).await;
    let mut client = process.client().await;
    let mut requests = 0;
    let size = || fs::metadata(&log).map_or(0, |metadata| metadata.len());
    while size() < SIZE + SIZE / 4 {
        client.write("GET /elsewhere HTTP/1.1\r\nHost: a\r\n\r\n".repeat(50)).await;
        for _ in 0..50 {
            let head = client.read_head().await;
            let length =
                head.split("ontent-length: ").nth(1).or(head.split("ontent-Length: ").nth(1));
            let length = length.unwrap().split("\r\n").next().unwrap().parse().unwrap();
            client.read_exactly(length).await;
        }
        requests += 50;
    }
    let written = "self_request_log_written_total";
    within("all lines", async {
        while process.count(&[written]).await < requests {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(read(&log).len() as u64, requests);
    assert_eq!(process.count(&["self_request_log_dropped_total"]).await, 0);
    assert!(process.count(&["self_request_log_rotation_failures_total"]).await > 0);
    let failed = "request log rotation failed";
    let text = process.logged(&[failed]).await;
    assert_eq!(text.matches(failed).count(), 1, "{text}");
    fs::remove_dir_all(folder.path().join("log.1")).unwrap();
    refused(&process).await;
    process.logged(&["request log rotation recovered"]).await;
    lines(&log, 1).await;
    assert_eq!(read(&folder.path().join("log.1")).len() as u64, requests);
}
