//! The file format of one recorded exchange.
//!
//! ```text
//! POST /v1/messages
//! anthropic-version: 2023-06-01
//!
//! {the request's body}
//! ~~~~
//! 200
//! content-type: text/event-stream
//! fixture: crlf
//!
//! {the answer's body, to the end of the file}
//! ```
//!
//! `fixture: crlf` turns line ends into CR LF, so that the file stays readable. `fixture: eventstream` makes an AWS
//! event-stream of lines `event-type {json}`, where a leading `!` marks an exception. `fixture: websocket` makes a
//! WebSocket message of each line, and adds a close frame after the last one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use tokengauge_llm::budget::RequestBudget;
use tokengauge_llm::count::Tokenizers;
use tokengauge_llm::dialect::{self, Api, Family, RequestReader, RequestTarget};
use tokengauge_llm::frame::Framer;
use tokengauge_measure::record::Record;
use tokengauge_observe::ObservedExchange;
use tokengauge_types::clock::{MonotonicInstant, WallTime};
use tokengauge_types::event::{
    BackpressureTime, BodyWaitState, CallerIdentity, Direction, Ending, ExchangeId, Headers,
    ObserverEvent, REQUEST_HEADERS, RESPONSE_HEADERS, RequestHead, ResponseHead, RouteFacts,
    Scheme, SessionRule, TraceContext,
};
use tokengauge_types::label::{CardinalityLimiter, CardinalityLimits, Name};

use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::Frame as PeerFrame;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};

use super::eventstream;

/// Status code of a protocol upgrade.
pub const SWITCHING: u16 = 101;

const TEXT: OpCode = OpCode::Data(Data::Text);

#[derive(Debug)]
pub struct Fixture {
    pub folder: PathBuf,
    /// Name of the folder, which is the API.
    pub api: String,
    /// Name of the file.
    pub shape: String,
    pub method: http::Method,
    pub path: String,
    host: Option<String>,
    request_headers: Vec<(String, String)>,
    pub request: Vec<u8>,
    pub status: u16,
    pub response_headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Fixture {
    pub fn all() -> Vec<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/exchanges");
        let mut files = Vec::new();
        for folder in entries(&root) {
            files.extend(
                entries(&folder)
                    .into_iter()
                    .filter(|file| file.extension().is_some_and(|kind| kind == "http")),
            );
        }
        files.iter().map(|file| Self::read(file)).collect()
    }

    pub fn name(&self) -> String {
        format!("{}/{}", self.api, self.shape)
    }

    /// Returns the API according to the request line and headers, and to the request body if these are ambiguous.
    pub fn detected(&self) -> Option<Api> {
        let found = dialect::detect(&RequestTarget {
            hint: None,
            method: &self.method,
            host: self.host.as_deref(),
            path: &self.path,
            header_family: self
                .request_headers()
                .get("anthropic-version")
                .map(|_| Family::Anthropic),
        })?;
        if !found.body_decides {
            return Some(found.api);
        }
        let mut reader = RequestReader::new(&found);
        reader.push(&self.request);
        reader.facts().api
    }

    /// Returns the record of the exchange for a response body that arrives in these pieces.
    pub fn play(&self, pieces: &[&[u8]]) -> Record {
        let at = MonotonicInstant::from_millis;
        let limiter = Arc::new(CardinalityLimiter::new(CardinalityLimits::default(), []));
        let mut exchange = ObservedExchange::new(
            ExchangeId(1),
            at(0),
            Box::new(self.open()),
            limiter,
            (&Tokenizers::default(), RequestBudget::default()),
        );
        let mut say = |millis, word, bytes: &[u8]| {
            exchange.apply(at(millis), word, bytes, &mut |_| {});
        };
        say(0, ObserverEvent::Admitted, b"");
        say(1, ObserverEvent::RequestHeadSent, b"");
        say(1, arrival(Direction::Request, &self.request), &self.request);
        say(1, ObserverEvent::RequestBodySent, b"");
        let head = ResponseHead {
            status: self.status,
            version: http::Version::HTTP_11,
            headers: picked(&self.response_headers, &RESPONSE_HEADERS),
            length: None,
            from_proxy: false,
        };
        say(2, ObserverEvent::ResponseHead(Box::new(head)), b"");
        if self.status == SWITCHING {
            say(2, ObserverEvent::Upgraded, b"");
        }
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            say(3, arrival(Direction::Response, piece), piece);
        }
        exchange.end(at(4), Ending::Complete, &mut |_| {})
    }

    /// Returns the request as a client in this process sends it.
    pub fn http_request(&self) -> http::Request<Full<Bytes>> {
        let mut request = http::Request::builder().method(&self.method).uri(&self.path);
        for (name, value) in &self.request_headers {
            request = request.header(name, value);
        }
        request.body(Full::from(self.request.clone())).unwrap()
    }

    /// Returns the response headers with `body`.
    pub fn http_response<B>(&self, body: B) -> http::Response<B> {
        let mut response = http::Response::builder().status(self.status);
        for (name, value) in &self.response_headers {
            response = response.header(name, value);
        }
        response.body(body).unwrap()
    }

    pub fn server_address(&self) -> &str {
        self.host.as_deref().unwrap_or("127.0.0.1")
    }

    /// Returns the framing of the response.
    pub fn framing(&self) -> Option<&'static str> {
        if self.status == SWITCHING {
            return Some("WebSocket messages");
        }
        let api = self.detected()?;
        let content_type = self.header("content-type");
        let mut framer = Framer::new(content_type, api.json());
        framer.push(&self.body, &mut |_| {});
        Some(match framer {
            Framer::Sse(_) => "server-sent events",
            Framer::SingleMessage(_) => "one body",
            Framer::JsonLines(_) => "JSON lines",
            Framer::JsonArray(_) => "a JSON array, streamed",
            Framer::AwsEventStream(_) => "AWS event-stream",
            Framer::Unknown(_) => return None,
        })
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.response_headers.iter();
        let (_, value) = headers.find(|(known, _)| known == name)?;
        Some(value)
    }

    fn request_headers(&self) -> Headers {
        picked(&self.request_headers, &REQUEST_HEADERS)
    }

    fn open(&self) -> RequestHead {
        let address = self.server_address();
        let route = RouteFacts::for_upstream("default", address, 443);
        let session_rule = SessionRule { detect: true, hasher: None };
        let headers = self.http_request().headers().clone();
        RequestHead {
            wall: WallTime::from_unix_nanos(1_800_000_000_000_000_000),
            method: self.method.clone(),
            path: Name::new(&self.path).unwrap(),
            whole_path: None,
            host: Name::new(address),
            version: http::Version::HTTP_11,
            scheme: Scheme::Http,
            headers: self.request_headers(),
            length: None,
            model: None,
            client: None,
            route: Arc::new(route),
            trace: TraceContext::default(),
            conversation: None,
            identity: CallerIdentity::detect(&headers, None, &session_rule),
            session_rule,
            connection: None,
            body_wait: Arc::new(BodyWaitState::default()),
        }
    }

    fn read(file: &Path) -> Self {
        let text = fs::read(file).unwrap();
        let say = |what: &str| format!("{}: {what}", file.display());
        let (request, response) =
            cut(&text, b"\n~~~~\n").unwrap_or_else(|| panic!("{}", say("no line ~~~~")));
        let (head, request) = cut(request, b"\n\n").unwrap_or((request, b""));
        let (line, request_headers) = parse(head);
        let (method, path) =
            line.split_once(' ').unwrap_or_else(|| panic!("{}", say("no METHOD PATH")));
        let (head, body) = cut(response, b"\n\n").unwrap_or((response, b""));
        let (status, response_headers) = parse(head);
        let made = response_headers
            .iter()
            .find(|(name, _)| name == "fixture")
            .map(|(_, value)| value.as_str());
        let body = match made {
            None => body.to_vec(),
            Some("crlf") => {
                String::from_utf8(body.to_vec()).unwrap().replace('\n', "\r\n").into_bytes()
            }
            Some("eventstream") => eventstream::encoded(std::str::from_utf8(body).unwrap()),
            Some("websocket") => websocket(std::str::from_utf8(body).unwrap()),
            Some(other) => panic!("{}", say(&format!("no fixture: {other}"))),
        };
        let folder = file.parent().unwrap().to_owned();
        let host = request_headers.iter().find(|(name, _)| name == "host");
        Self {
            api: folder.file_name().unwrap().to_str().unwrap().to_owned(),
            shape: file.file_stem().unwrap().to_str().unwrap().to_owned(),
            folder,
            method: method.parse().unwrap(),
            path: path.to_owned(),
            host: host.map(|(_, value)| value.clone()),
            request: request.to_vec(),
            request_headers,
            status: status.parse().unwrap_or_else(|_| panic!("{}", say("no status"))),
            response_headers,
            body,
        }
    }
}

/// Encodes the WebSocket bytes that a server sends: a text message for each line, and a normal close.
fn websocket(lines: &str) -> Vec<u8> {
    let messages = lines.lines().map(|line| PeerFrame::message(line.to_owned(), TEXT, true));
    let (code, reason) = (CloseCode::Normal, "".into());
    let close = PeerFrame::close(Some(CloseFrame { code, reason }));
    let mut bytes = Vec::new();
    for frame in messages.chain([close]) {
        frame.format(&mut bytes).unwrap();
    }
    bytes
}

fn arrival(direction: Direction, bytes: &[u8]) -> ObserverEvent {
    ObserverEvent::Body {
        direction,
        len: u32::try_from(bytes.len()).unwrap(),
        blocked: BackpressureTime::default(),
    }
}

/// Returns the first line and the headers after it.
fn parse(head: &[u8]) -> (String, Vec<(String, String)>) {
    let head = std::str::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let first = lines.next().unwrap_or_default().to_owned();
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    (first, headers)
}

/// Returns the headers that may pass the observation channel.
fn picked(headers: &[(String, String)], allowed: &'static [&'static str]) -> Headers {
    let known = |name: &str| allowed.iter().copied().find(|known| *known == name);
    headers.iter().filter_map(|(name, value)| Some((known(name)?, Name::new(value)?))).collect()
}

fn cut<'a>(text: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.windows(mark.len()).position(|window| window == mark)?;
    let (before, after) = text.split_at(at);
    Some((before, &after[mark.len()..]))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}
