//! The clients of the demo. Each client sends a request, reads the response, counts its tokens, pauses and repeats.
//! Some clients disconnect early. Each request is recorded for the comparison at the end.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cli::demo::scenario::Scenario;
use tokengauge_simulator::tokens;
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::sync::lock;

/// Maximum number of records. The backend also records at most this number of requests.
pub const MAX_RECORDS: usize = tokengauge_simulator::ledger::DEFAULT_CAPACITY;

/// One request and its response, as the client saw them.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientRecord {
    /// Trace id. The client sends it in the header `traceparent` and, in hexadecimal, in `x-request-id`.
    pub trace_id: TraceId,
    pub scenario: &'static str,
    pub stream: bool,
    /// Time just before the client sent the request.
    pub sent_at: MonotonicInstant,
    /// Time at which the client received the first text of the response.
    pub first_token: Option<MonotonicInstant>,
    /// Number of received tokens, counted with o200k_base.
    pub tokens: u64,
    pub status: Option<u16>,
    pub outcome: Outcome,
}

pub type TraceId = [u8; 16];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    Complete,
    /// The client disconnected on purpose.
    Disconnected,
    /// The connection closed before the end of the response.
    Truncated,
    /// The client could not connect, so it sent nothing.
    Unsent,
}

/// The current instruction for all clients.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LoadPhase {
    Send,
    /// Finish the current request and stop.
    Finish,
    /// Disconnect now.
    Disconnect,
}

/// The running clients.
#[derive(Debug)]
pub struct Load {
    clients: JoinSet<()>,
    phase: watch::Sender<LoadPhase>,
    shared: Arc<SharedLoad>,
}

#[derive(Debug)]
struct SharedLoad {
    target: SocketAddr,
    started: MonotonicInstant,
    sent: AtomicUsize,
    records: Mutex<ClientRecords>,
}

/// The newest records of all clients.
#[derive(Clone, Debug, Default)]
pub struct ClientRecords {
    pub kept: VecDeque<ClientRecord>,
    pub dropped: u64,
}

impl Load {
    /// Starts `clients` clients. Each client sends at least one request to `target`, and one request at a time.
    pub fn start(target: SocketAddr, clients: usize, seed: u64) -> Self {
        let (phase, watched) = watch::channel(LoadPhase::Send);
        let shared = Arc::new(SharedLoad {
            target,
            started: clock::now(),
            sent: AtomicUsize::new(0),
            records: Mutex::default(),
        });
        let mut random = Rng::with_seed(seed);
        let mut tasks = JoinSet::new();
        for _ in 0..clients {
            let client = Client {
                shared: Arc::clone(&shared),
                phase: watched.clone(),
                random: random.fork(),
                connection: None,
            };
            tasks.spawn(client.run());
        }
        Self { clients: tasks, phase, shared }
    }

    /// Lets the clients finish their requests for up to `timeout`. Then disconnects the other clients.
    pub async fn stop(mut self, timeout: Duration) -> ClientRecords {
        self.phase.send_replace(LoadPhase::Finish);
        let finished = tokio::time::timeout(timeout, self.join_all()).await.is_ok();
        if !finished {
            self.phase.send_replace(LoadPhase::Disconnect);
            self.join_all().await;
        }
        std::mem::take(&mut *self.shared.records())
    }

    async fn join_all(&mut self) {
        while self.clients.join_next().await.is_some() {}
    }
}

impl SharedLoad {
    fn records(&self) -> MutexGuard<'_, ClientRecords> {
        lock(&self.records)
    }

    fn keep(&self, record: ClientRecord) {
        let mut records = self.records();
        if records.kept.len() >= MAX_RECORDS {
            records.kept.pop_front();
            records.dropped += 1;
        }
        records.kept.push_back(record);
    }
}

struct Client {
    shared: Arc<SharedLoad>,
    phase: watch::Receiver<LoadPhase>,
    random: Rng,
    connection: Option<SendRequest<Full<Bytes>>>,
}

/// Maximum pause between two requests of a client.
const MAX_PAUSE: Duration = Duration::from_millis(400);

impl Client {
    async fn run(mut self) {
        loop {
            let nth = self.shared.sent.fetch_add(1, Ordering::Relaxed);
            let scenario = Scenario::choose(nth, &mut self.random);
            let record = self.send(scenario, nth).await;
            self.shared.keep(record);
            let pause = MAX_PAUSE.mul_f64(self.random.f64());
            let stopped = self.phase.wait_for(|phase| *phase != LoadPhase::Send);
            if tokio::time::timeout(pause, stopped).await.is_ok() {
                return;
            }
        }
    }

    async fn send(&mut self, scenario: Scenario, nth: usize) -> ClientRecord {
        let trace_id = self.random.u128(1..).to_be_bytes();
        let mut record = ClientRecord {
            trace_id,
            scenario: scenario.name,
            stream: scenario.stream,
            sent_at: clock::now(),
            first_token: None,
            tokens: 0,
            status: None,
            outcome: Outcome::Unsent,
        };
        let Some(mut sender) = self.connect().await else {
            return record;
        };
        let request = self.request(&scenario, nth, trace_id);
        record.sent_at = clock::now();
        record.outcome = Outcome::Truncated;
        let mut phase = self.phase.clone();
        let response = tokio::select! {
            response = sender.send_request(request) => response,
            _ = phase.wait_for(|phase| *phase == LoadPhase::Disconnect) => {
                record.outcome = Outcome::Disconnected;
                return record;
            }
        };
        let Ok(response) = response else {
            return record;
        };
        record.status = Some(response.status().as_u16());
        let mut answer = ResponseText::default();
        record.outcome = read(response, &scenario, &mut answer, &mut phase).await;
        record.first_token = answer.first_token;
        record.tokens = answer.tokens();
        if record.outcome == Outcome::Complete {
            self.connection = Some(sender);
        }
        record
    }

    /// Returns a connection to the proxy. Reuses the previous connection if it is still open.
    async fn connect(&mut self) -> Option<SendRequest<Full<Bytes>>> {
        if let Some(mut sender) = self.connection.take()
            && sender.ready().await.is_ok()
        {
            return Some(sender);
        }
        let socket = TcpStream::connect(self.shared.target).await.ok()?;
        socket.set_nodelay(true).ok()?;
        let (sender, connection) = http1::handshake(TokioIo::new(socket)).await.ok()?;
        // An error of the connection also appears as an error of the response.
        tokio::spawn(async move { drop(connection.await) });
        Some(sender)
    }

    fn request(
        &mut self,
        scenario: &Scenario,
        nth: usize,
        trace_id: TraceId,
    ) -> Request<Full<Bytes>> {
        let trace = to_hex(&trace_id);
        let span = self.random.u64(1..);
        let mut request = Request::new(Full::new(Bytes::from(scenario.body(nth))));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = http::Uri::from_static(scenario.api.path());
        let headers = [
            ("host", self.shared.target.to_string()),
            ("content-type", "application/json".to_owned()),
            ("user-agent", "tokengauge-demo".to_owned()),
            ("traceparent", format!("00-{trace}-{span:016x}-01")),
            ("x-request-id", trace),
        ];
        let elapsed = clock::now().since(self.shared.started);
        let simulator_headers =
            scenario.headers(elapsed).map(|(name, value)| (name, value.to_owned()));
        for (name, value) in headers.into_iter().chain(simulator_headers) {
            if let Ok(value) = value.parse() {
                request.headers_mut().insert(name, value);
            }
        }
        request
    }
}

async fn read(
    response: Response<Incoming>,
    scenario: &Scenario,
    answer: &mut ResponseText,
    phase: &mut watch::Receiver<LoadPhase>,
) -> Outcome {
    let streamed = scenario.stream && response.status().is_success();
    let mut body = response.into_body();
    let mut whole = Vec::new();
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            _ = phase.wait_for(|phase| *phase == LoadPhase::Disconnect) => return Outcome::Disconnected,
        };
        let at = clock::now();
        match frame {
            Some(Ok(frame)) => {
                let Some(bytes) = frame.data_ref() else {
                    continue;
                };
                if streamed {
                    answer.add_stream(bytes, at);
                } else {
                    whole.extend_from_slice(bytes);
                }
            }
            Some(Err(_)) => return Outcome::Truncated,
            None => {
                answer.add_body(&whole, at);
                return Outcome::Complete;
            }
        }
        if scenario.leaves_after.is_some_and(|after| answer.chunks >= after) {
            return Outcome::Disconnected;
        }
    }
}

pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Collects the text of one response.
#[derive(Debug, Default)]
struct ResponseText {
    /// The beginning of a line that has not been received completely.
    pending: Vec<u8>,
    /// The received text by choice and field. Each text is tokenized separately.
    texts: BTreeMap<(u64, &'static str), String>,
    /// Number of chunks with text so far.
    chunks: u32,
    first_token: Option<MonotonicInstant>,
}

/// Maximum length of a line in bytes. Responses of the demo have at most 240 tokens, so every line is shorter.
const MAX_LINE_BYTES: usize = 1 << 20;

impl ResponseText {
    /// Adds bytes of a stream of server-sent events.
    fn add_stream(&mut self, bytes: &[u8], at: MonotonicInstant) {
        for byte in bytes {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.pending);
                self.add_line(&line, at);
            } else if self.pending.len() < MAX_LINE_BYTES {
                self.pending.push(*byte);
            }
        }
    }

    fn add_body(&mut self, body: &[u8], at: MonotonicInstant) {
        if let Ok(value) = serde_json::from_slice(body) {
            self.add_choices(&value, "message", at);
        }
    }

    /// Returns the number of received tokens, counted with o200k_base.
    fn tokens(&self) -> u64 {
        self.texts.values().map(|text| tokens::count(text)).sum()
    }

    fn add_line(&mut self, line: &[u8], at: MonotonicInstant) {
        let data = line.strip_prefix(b"data: ").map(serde_json::from_slice::<Value>);
        if let Some(Ok(chunk)) = data {
            self.add_choices(&chunk, "delta", at);
        }
    }

    fn add_choices(&mut self, response: &Value, inner: &str, at: MonotonicInstant) {
        let choices = response.get("choices").and_then(Value::as_array);
        for choice in choices.into_iter().flatten() {
            let index = choice.get("index").and_then(Value::as_u64).unwrap_or_default();
            self.add_text((index, "text"), choice.get("text"), at);
            let Some(message) = choice.get(inner) else {
                continue;
            };
            self.add_text((index, "content"), message.get("content"), at);
            self.add_text((index, "reasoning"), message.get("reasoning_content"), at);
            self.add_text((index, "tool"), message.pointer("/tool_calls/0/function/arguments"), at);
        }
    }

    fn add_text(&mut self, part: (u64, &'static str), value: Option<&Value>, at: MonotonicInstant) {
        let Some(text) = value.and_then(Value::as_str).filter(|text| !text.is_empty()) else {
            return;
        };
        self.texts.entry(part).or_default().push_str(text);
        self.chunks += 1;
        self.first_token.get_or_insert(at);
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;

    use super::*;
    use crate::cli::demo::scenario::{self, SCENARIOS};
    use tokengauge_simulator::Ledger;

    /// Without the proxy in between, the records of the clients must agree with the backend's record of requests.
    #[tokio::test]
    async fn client_records_agree_with_the_ledger() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ledger = Arc::new(Ledger::default());
        let models = scenario::models()
            .into_iter()
            .map(|model| {
                format!("{}:prefill-ms=1,step-ms=0,batch-ms=0", model.name).parse().unwrap()
            })
            .collect();
        let (_stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(tokengauge_simulator::serve(
            listener,
            tokengauge_simulator::Config { models, seed: 1 },
            Arc::clone(&ledger),
            async {
                let _ended = stopped.await;
            },
        ));
        let load = Load::start(address, SCENARIOS.len(), 1);
        let records = load.stop(Duration::from_secs(20)).await;
        ledger.wait_for_responses(records.kept.len() as u64).await;
        let entries = ledger.entries();
        assert_eq!(entries.len(), records.kept.len());
        for record in &records.kept {
            let id = to_hex(&record.trace_id);
            let entry = entries.iter().find(|entry| entry.request_id.as_str() == id).unwrap();
            let text = format!("{record:?} {entry:?}");
            match (record.outcome, entry.ended) {
                (Outcome::Complete, tokengauge_simulator::ResponseEnd::Complete) => {
                    assert_eq!(record.tokens, entry.tokens, "{text}")
                }
                (Outcome::Complete, tokengauge_simulator::ResponseEnd::Failed(status)) => {
                    assert_eq!(record.status, Some(status))
                }
                (
                    Outcome::Disconnected,
                    tokengauge_simulator::ResponseEnd::ClientGone
                    | tokengauge_simulator::ResponseEnd::Complete,
                )
                | (Outcome::Truncated, tokengauge_simulator::ResponseEnd::Cut) => {
                    assert!(record.tokens <= entry.tokens, "{text}")
                }
                _ => panic!("{text}"),
            }
            if let (Some(received), Some(sent)) = (record.first_token, entry.first_token) {
                assert!(record.sent_at <= entry.received && sent <= received, "{text}");
            }
        }
        for scenario in SCENARIOS {
            assert!(
                records.kept.iter().any(|record| record.scenario == scenario.name),
                "{}",
                scenario.name
            );
        }
    }

    #[test]
    fn counts_tokens_at_every_split_and_ignores_roles() {
        let stream = concat!(
            ": ping\n\n",
            r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
            "\n\n",
            r#"data: {"choices":[{"index":0,"delta":{"reasoning_content":"So"}}]}"#,
            "\n\n",
            r#"data: {"choices":[{"index":0,"delta":{"content":"Hello"}},{"index":1,"delta":{"content":" there"}}]}"#,
            "\n\ndata: [DONE]\n\n",
        );
        let mut response = ResponseText::default();
        for (nth, byte) in stream.bytes().enumerate() {
            response.add_stream(&[byte], MonotonicInstant::from_nanos(nth as u64));
        }
        assert_eq!((response.tokens(), response.chunks), (3, 3));
        let end_of_second = stream.find("So").unwrap() as u64;
        assert!(response.first_token.unwrap().nanos() > end_of_second);
    }

    #[test]
    fn reads_a_body() {
        let mut response = ResponseText::default();
        response.add_body(
            br#"{"choices":[{"index":0,"message":{"content":"Hello there"}}]}"#,
            MonotonicInstant::ZERO,
        );
        assert_eq!(response.tokens(), 2);
        let mut half = ResponseText::default();
        half.add_body(br#"{"choices":[{"ind"#, MonotonicInstant::ZERO);
        assert_eq!(half.tokens(), 0);
    }
}
