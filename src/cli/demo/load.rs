//! The demo's clients: each asks, reads, sometimes leaves, pauses and asks again, and keeps a receipt of everything.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cli::demo::answer::Answer;
use crate::cli::demo::scenario::Scenario;
use tokengauge_types::clock::{self, MonotonicInstant};

/// Receipts kept: as many as the backend's ledger keeps entries.
pub const MOST_RECEIPTS: usize = tokengauge_simulator::ledger::LONGEST;

/// What a client knows of one exchange.
#[derive(Clone, Debug, PartialEq)]
pub struct Receipt {
    /// Sent as `traceparent`, and in hexadecimal as `x-request-id`.
    pub trace_id: TraceId,
    pub scenario: &'static str,
    pub stream: bool,
    /// Just before the request was handed to the connection.
    pub asked: MonotonicInstant,
    /// When the first generated text was received.
    pub first_token: Option<MonotonicInstant>,
    /// Tokens of the text received, in o200k_base.
    pub tokens: u64,
    pub status: Option<u16>,
    pub ended: Ended,
}

pub type TraceId = [u8; 16];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    Complete,
    /// The client left.
    Left,
    /// The connection broke before the answer's end.
    Broken,
    /// No connection could be had: nothing was sent.
    Unsent,
}

/// How far the clients shall go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Ask,
    /// Finish what is under way.
    Finish,
    /// Leave now.
    Leave,
}

/// Clients at work.
#[derive(Debug)]
pub struct Load {
    clients: JoinSet<()>,
    phase: watch::Sender<Phase>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    asked: AtomicUsize,
    receipts: Mutex<Receipts>,
}

/// What the clients know, oldest forgotten first.
#[derive(Clone, Debug, Default)]
pub struct Receipts {
    pub kept: VecDeque<Receipt>,
    pub forgotten: u64,
}

impl Load {
    /// `clients` of them ask `target`, each one thing at a time and at least once.
    pub fn start(target: SocketAddr, clients: usize, seed: u64) -> Self {
        let (phase, watched) = watch::channel(Phase::Ask);
        let shared =
            Arc::new(Shared { target, asked: AtomicUsize::new(0), receipts: Mutex::default() });
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

    /// Lets every client finish what it is doing, for up to `grace`; then those that are left hang up.
    pub async fn stop(mut self, grace: Duration) -> Receipts {
        self.phase.send_replace(Phase::Finish);
        let finished = tokio::time::timeout(grace, self.drain()).await.is_ok();
        if !finished {
            self.phase.send_replace(Phase::Leave);
            self.drain().await;
        }
        std::mem::take(&mut *self.shared.receipts())
    }

    async fn drain(&mut self) {
        while self.clients.join_next().await.is_some() {}
    }
}

impl Shared {
    fn receipts(&self) -> std::sync::MutexGuard<'_, Receipts> {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, receipt: Receipt) {
        let mut receipts = self.receipts();
        if receipts.kept.len() >= MOST_RECEIPTS {
            receipts.kept.pop_front();
            receipts.forgotten += 1;
        }
        receipts.kept.push_back(receipt);
    }
}

struct Client {
    shared: Arc<Shared>,
    phase: watch::Receiver<Phase>,
    random: Rng,
    connection: Option<SendRequest<Full<Bytes>>>,
}

/// Between two questions a client waits, up to this long: a person reads, a program works.
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

impl Client {
    async fn run(mut self) {
        loop {
            let nth = self.shared.asked.fetch_add(1, Ordering::Relaxed);
            let scenario = Scenario::choose(nth, &mut self.random);
            let receipt = self.ask(scenario, nth).await;
            self.shared.keep(receipt);
            let pause = LONGEST_PAUSE.mul_f64(self.random.f64());
            let stopped = self.phase.wait_for(|phase| *phase != Phase::Ask);
            if tokio::time::timeout(pause, stopped).await.is_ok() {
                return;
            }
        }
    }

    async fn ask(&mut self, scenario: Scenario, nth: usize) -> Receipt {
        let trace_id = self.random.u128(1..).to_be_bytes();
        let mut receipt = Receipt {
            trace_id,
            scenario: scenario.name,
            stream: scenario.stream,
            asked: clock::now(),
            first_token: None,
            tokens: 0,
            status: None,
            ended: Ended::Unsent,
        };
        let Some(mut sender) = self.connect().await else {
            return receipt;
        };
        let request = self.request(&scenario, nth, trace_id);
        receipt.asked = clock::now();
        receipt.ended = Ended::Broken;
        let mut phase = self.phase.clone();
        let response = tokio::select! {
            response = sender.send_request(request) => response,
            _ = phase.wait_for(|phase| *phase == Phase::Leave) => {
                receipt.ended = Ended::Left;
                return receipt;
            }
        };
        let Ok(response) = response else {
            return receipt;
        };
        receipt.status = Some(response.status().as_u16());
        let mut answer = Answer::default();
        receipt.ended = read(response, &scenario, &mut answer, &mut phase).await;
        receipt.first_token = answer.first_token;
        receipt.tokens = answer.tokens();
        if receipt.ended == Ended::Complete {
            self.connection = Some(sender);
        }
        receipt
    }

    /// The connection used before where it is still good, else a new one.
    async fn connect(&mut self) -> Option<SendRequest<Full<Bytes>>> {
        if let Some(mut sender) = self.connection.take()
            && sender.ready().await.is_ok()
        {
            return Some(sender);
        }
        let socket = TcpStream::connect(self.shared.target).await.ok()?;
        socket.set_nodelay(true).ok()?;
        let (sender, connection) = http1::handshake(TokioIo::new(socket)).await.ok()?;
        // What becomes of the connection shows in the answer.
        tokio::spawn(async move { drop(connection.await) });
        Some(sender)
    }

    fn request(
        &mut self,
        scenario: &Scenario,
        nth: usize,
        trace_id: TraceId,
    ) -> Request<Full<Bytes>> {
        let trace = hexadecimal(&trace_id);
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
        let treatment = scenario.treatment.iter().map(|(name, value)| (*name, (*value).to_owned()));
        for (name, value) in headers.into_iter().chain(treatment) {
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
    answer: &mut Answer,
    phase: &mut watch::Receiver<Phase>,
) -> Ended {
    let streamed = scenario.stream && response.status().is_success();
    let mut body = response.into_body();
    let mut whole = Vec::new();
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            _ = phase.wait_for(|phase| *phase == Phase::Leave) => return Ended::Left,
        };
        let at = clock::now();
        match frame {
            Some(Ok(frame)) => {
                let Some(bytes) = frame.data_ref() else {
                    continue;
                };
                if streamed {
                    answer.stream(bytes, at);
                } else {
                    whole.extend_from_slice(bytes);
                }
            }
            Some(Err(_)) => return Ended::Broken,
            None => {
                answer.whole(&whole, at);
                return Ended::Complete;
            }
        }
        if scenario.leaves_after.is_some_and(|after| answer.pieces >= after) {
            return Ended::Left;
        }
    }
}

pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;

    use super::*;
    use crate::cli::demo::scenario::{self, SCENARIOS};
    use tokengauge_simulator::Ledger;

    /// Straight against the backend: what the clients say agrees with its ledger.
    #[tokio::test]
    async fn receipts_agree_with_the_ledger() {
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
        let receipts = load.stop(Duration::from_secs(20)).await;
        ledger.settled(receipts.kept.len() as u64).await;
        let entries = ledger.entries();
        assert_eq!(entries.len(), receipts.kept.len());
        for receipt in &receipts.kept {
            let id = hexadecimal(&receipt.trace_id);
            let entry = entries.iter().find(|entry| entry.request_id.as_str() == id).unwrap();
            let text = format!("{receipt:?} {entry:?}");
            match (receipt.ended, entry.ended) {
                (Ended::Complete, tokengauge_simulator::Ended::Complete) => {
                    assert_eq!(receipt.tokens, entry.tokens, "{text}")
                }
                (Ended::Complete, tokengauge_simulator::Ended::Failed(status)) => {
                    assert_eq!(receipt.status, Some(status))
                }
                (
                    Ended::Left,
                    tokengauge_simulator::Ended::ClientGone | tokengauge_simulator::Ended::Complete,
                )
                | (Ended::Broken, tokengauge_simulator::Ended::Cut) => {
                    assert!(receipt.tokens <= entry.tokens, "{text}")
                }
                _ => panic!("{text}"),
            }
            if let (Some(received), Some(sent)) = (receipt.first_token, entry.first_token) {
                assert!(receipt.asked <= entry.received && sent <= received, "{text}");
            }
        }
        for scenario in SCENARIOS {
            assert!(
                receipts.kept.iter().any(|it| it.scenario == scenario.name),
                "{}",
                scenario.name
            );
        }
    }
}
