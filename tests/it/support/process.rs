//! Runs the real program as a child process, with access to its log, admin pages, memory and signals.

use std::io::{BufRead, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::{Backend, Raw, within};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_tokengauge");

pub const CALL: &str = "/v1/chat/completions";

/// A chat event with one token.
pub const CHUNK: &str = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"gpt-4o\",\
    \"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\n";
/// The end of the stream.
pub const DONE: &str = "data: [DONE]\n\n";

/// Starts a stream. Returns the connections of the client and of the upstream after the first chunk has arrived.
pub async fn open(
    process: &Process,
    backend: &Backend,
    path: &str,
) -> (Raw<TcpStream>, Raw<TcpStream>) {
    const BODY: &str = "{\"model\":\"gpt-4o\",\"stream\":true}";
    let mut client = process.client().await;
    let length = BODY.len();
    client
        .write(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{BODY}"))
        .await;
    let mut upstream = backend.accept().await;
    upstream.read_until(BODY).await;
    let length = CHUNK.len() + DONE.len();
    upstream
        .write(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {length}\r\n\r\n{CHUNK}"
        ))
        .await;
    client.read_head().await;
    assert_eq!(client.read_exactly(CHUNK.len()).await, CHUNK.as_bytes());
    (client, upstream)
}

/// A process that runs `tokengauge run`. Dropping this value kills the process.
pub struct Process {
    child: Option<Child>,
    id: u32,
    pub address: SocketAddr,
    pub admin: SocketAddr,
    log: watch::Receiver<String>,
    reader: Arc<LogReader>,
}

/// Pauses the thread that reads the log.
#[derive(Default)]
struct LogReader {
    state: Mutex<Reading>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default, Eq, PartialEq)]
enum Reading {
    #[default]
    Running,
    Pausing,
    Paused,
}

impl LogReader {
    /// Called before each line. Waits while the reader is paused.
    fn before_line(&self) {
        let mut state = self.state.lock().unwrap();
        if *state == Reading::Pausing {
            *state = Reading::Paused;
            self.changed.notify_all();
        }
        drop(self.changed.wait_while(state, |state| *state == Reading::Paused).unwrap());
    }
}

impl Process {
    /// Starts the program. Returns when it accepts requests.
    ///
    /// `arguments` are added to the options that select free ports. They can replace the option for the admin port. The
    /// process has no other environment variables than `environment`.
    pub async fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::spawn(Command::new(PROGRAM).arg("run"), arguments, environment).await
    }

    /// Starts `tokengauge injector`. Returns when it listens.
    pub async fn injector(arguments: &[&str]) -> Self {
        Self::spawn(Command::new(PROGRAM).arg("injector"), arguments, &[]).await
    }

    /// Does the same as [`start`](Self::start), in a process that may have only `limit` open files.
    pub async fn with_open_files(limit: u32, arguments: &[&str]) -> Self {
        Self::after(&format!("ulimit -n {limit}"), arguments).await
    }

    /// Does the same as [`start`](Self::start), in a process whose writes can fail because of a limit, as on a full
    /// disk. See [`limit_file_size`](Self::limit_file_size).
    pub async fn with_limited_files(arguments: &[&str]) -> Self {
        // The default action of the signal would kill the process.
        Self::after("trap '' XFSZ", arguments).await
    }

    /// Starts the program in a shell that has executed `command`.
    async fn after(command: &str, arguments: &[&str]) -> Self {
        let script = format!("{command} && exec \"$0\" run \"$@\"");
        Self::spawn(Command::new("/bin/sh").args(["-c", &script, PROGRAM]), arguments, &[]).await
    }

    /// Changes the maximum size in bytes to which the process can write a file. `None` removes the limit.
    pub fn limit_file_size(&self, limit: Option<u64>) {
        let pid = Pid::from_raw(self.id.try_into().unwrap());
        let maximum = getrlimit(Resource::Fsize).maximum;
        prlimit(pid, Resource::Fsize, Rlimit { current: limit.or(maximum), maximum }).unwrap();
    }

    /// Changes the maximum number of descriptors that the process can open. `None` restores the limit.
    pub fn limit_open_files(&self, limit: Option<u64>) {
        let pid = Pid::from_raw(self.id.try_into().unwrap());
        let maximum = getrlimit(Resource::Nofile).maximum;
        prlimit(pid, Resource::Nofile, Rlimit { current: limit.or(maximum), maximum }).unwrap();
    }

    async fn spawn(
        command: &mut Command,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let admin: &[&str] = match arguments.contains(&"--admin") {
            true => &[],
            false => &["--admin", "127.0.0.1:0"],
        };
        let mut child = command
            .args(["--listen", "127.0.0.1:0"])
            .args(admin)
            .args(["--log-format", "json"])
            .args(arguments)
            .env_clear()
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        let (said, log) = watch::channel(String::new());
        let reader = Arc::new(LogReader::default());
        let gate = Arc::clone(&reader);
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                said.send_modify(|log| log.extend([&line, "\n"]));
                gate.before_line();
            }
        });
        let mut process = Self {
            id: child.id(),
            child: Some(child),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            admin: SocketAddr::from(([127, 0, 0, 1], 0)),
            log,
            reader,
        };
        process.address = process.told_address("listening").await;
        process.admin = process.told_address("admin port listening").await;
        process
    }

    /// Starts the program in front of the upstream at `address`.
    pub async fn before(address: SocketAddr) -> Self {
        Self::start(&["--upstream", &format!("http://{address}")], &[]).await
    }

    pub async fn client(&self) -> Raw<TcpStream> {
        Raw::connect(self.address).await
    }

    /// Returns the status line and headers, and the body, of an admin page.
    pub async fn page(&self, path: &str) -> (String, String) {
        self.page_with(path, "").await
    }

    /// Returns an admin page. The request has additional header lines.
    pub async fn page_with(&self, path: &str, headers: &str) -> (String, String) {
        let mut client = Raw::connect(self.admin).await;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}\r\n",
            self.admin
        );
        client.write(request).await;
        let answer = String::from_utf8(client.read_to_end().await).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let is_chunked = head.to_ascii_lowercase().contains("\r\ntransfer-encoding: chunked");
        let body = if is_chunked { dechunked(body) } else { body.to_owned() };
        (head.to_owned(), body)
    }

    pub async fn streams(&self) -> Vec<Value> {
        serde_json::from_str(&self.page("/streams").await.1).unwrap()
    }

    /// Returns the sum of a counter over all series in `/metrics` whose name and labels contain each of `parts`. The
    /// sum is 0 if no series matches.
    pub async fn count(&self, parts: &[&str]) -> u64 {
        let values = self.values(parts).await;
        values.iter().map(|it| it.parse::<u64>().unwrap()).sum()
    }

    /// Returns the same sum for a counter that counts seconds.
    pub async fn seconds(&self, parts: &[&str]) -> f64 {
        let values = self.values(parts).await;
        values.iter().map(|it| it.parse::<f64>().unwrap()).sum()
    }

    async fn values(&self, parts: &[&str]) -> Vec<String> {
        let (_, metrics) = self.page("/metrics").await;
        metrics
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.rsplit_once(' '))
            .filter(|(series, _)| parts.iter().all(|part| series.contains(part)))
            .map(|(_, value)| value.to_owned())
            .collect()
    }

    /// Returns the peak resident memory so far, in bytes.
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id)).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kibibytes = line.unwrap().split_whitespace().nth(1).unwrap();
        kibibytes.parse::<u64>().unwrap() * 1024
    }

    /// Sends a signal such as `TERM` or `HUP`.
    pub fn signal(&self, name: &str) {
        let sent =
            Command::new("/bin/kill").args([&format!("-{name}"), &self.id.to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits until a log line contains each of `parts`. Returns the log so far.
    pub async fn logged(&self, parts: &[&str]) -> String {
        let mut log = self.log.clone();
        let has = |log: &String| {
            let mut lines = log.lines();
            lines.any(|line| parts.iter().all(|part| line.contains(part)))
        };
        let what = format!("{parts:?} in the log");
        // A value borrowed from a watch channel blocks its writer. The value is therefore copied at once, and never
        // borrowed twice.
        let found = within(&what, log.wait_for(has)).await;
        let found = found.ok().map(|log| log.clone());
        found.unwrap_or_else(|| panic!("{what}, but it ended: {}", self.log()))
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        self.log.borrow().clone()
    }

    /// Stops reading the log, and fills its pipe. The process cannot write a line any more.
    pub fn stop_reading_log(&self) {
        let pipe = format!("/proc/{}/fd/2", self.id);
        let mut state = self.reader.state.lock().unwrap();
        *state = Reading::Pausing;
        // Wakes the thread that reads.
        std::fs::OpenOptions::new().write(true).open(&pipe).unwrap().write_all(b"\n").unwrap();
        state = self.reader.changed.wait_while(state, |it| *it == Reading::Pausing).unwrap();
        drop(state);
        crate::log::fill(&pipe);
    }

    pub fn read_log_again(&self) {
        *self.reader.state.lock().unwrap() = Reading::Running;
        self.reader.changed.notify_all();
    }

    /// Waits until the process has ended.
    pub async fn exited(&mut self) -> ExitStatus {
        let mut child = self.child.take().unwrap();
        let waiting = tokio::task::spawn_blocking(move || child.wait().unwrap());
        within("the process's end", waiting).await.unwrap()
    }

    /// Waits until the process has ended and its log is complete.
    pub async fn ended(&mut self) -> ExitStatus {
        let status = self.exited().await;
        let mut log = self.log.clone();
        within("the end of its log", async { while log.changed().await.is_ok() {} }).await;
        status
    }

    async fn told_address(&self, message: &str) -> SocketAddr {
        let marks = format!("\"message\":\"{message}\"");
        let log = self.logged(&[&marks]).await;
        let line = log.lines().find(|line| line.contains(&marks)).unwrap();
        let line: Value = serde_json::from_str(line).unwrap();
        line["address"].as_str().unwrap().parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Joins the chunks of a body, and checks that it is complete.
fn dechunked(body: &str) -> String {
    let (mut joined, mut rest) = (String::new(), body);
    loop {
        let (size, after) = rest.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return joined;
        }
        let (chunk, after) = after.split_at(size);
        joined.push_str(chunk);
        rest = after.strip_prefix("\r\n").unwrap();
    }
}
