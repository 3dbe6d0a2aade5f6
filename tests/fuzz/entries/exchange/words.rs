//! Events made from a script, and the exchange that receives them.

use std::sync::Arc;
use std::time::Duration;

use tokengauge_llm::budget::RequestBudget;
use tokengauge_llm::count::Tokenizers;
use tokengauge_llm::dialect::Family;
use tokengauge_observe::ObservedExchange;
use tokengauge_types::clock::{MonotonicInstant, WallTime};
use tokengauge_types::event::{
    BackpressureTime, BodyWaitState, CallerIdentity, ConnectTimings, Direction, Ending, ExchangeId,
    Headers, ObserverEvent, RESPONSE_HEADERS, RejectReason, RequestHead, ResponseHead, RouteFacts,
    Scheme, SessionRule, TimeoutKind, TraceContext, UpstreamFailure,
};
use tokengauge_types::label::{CardinalityLimiter, CardinalityLimits, Label, Name};

use super::Played;
use crate::entries::script::{Script, in_pieces};

pub const ENDINGS: [Ending; 22] = [
    Ending::Complete,
    Ending::ClientDisconnected,
    Ending::RequestBodyFailed,
    Ending::UpstreamFailed(UpstreamFailure::Dns),
    Ending::UpstreamFailed(UpstreamFailure::Connect),
    Ending::UpstreamFailed(UpstreamFailure::Tls),
    Ending::UpstreamFailed(UpstreamFailure::BeforeResponse),
    Ending::UpstreamFailed(UpstreamFailure::Protocol),
    Ending::UpstreamFailed(UpstreamFailure::MidBody),
    Ending::TimedOut(TimeoutKind::Connect),
    Ending::TimedOut(TimeoutKind::ResponseHeader),
    Ending::TimedOut(TimeoutKind::Idle),
    Ending::TimedOut(TimeoutKind::Total),
    Ending::TimedOut(TimeoutKind::TotalUnread),
    Ending::TimedOut(TimeoutKind::Send),
    Ending::Rejected(RejectReason::NoRoute),
    Ending::Rejected(RejectReason::BadRequest),
    Ending::Rejected(RejectReason::HeadersTooLarge),
    Ending::Rejected(RejectReason::Overload),
    Ending::Rejected(RejectReason::Draining),
    Ending::Drained,
    Ending::Complete,
];

const METHODS: [http::Method; 3] = [http::Method::POST, http::Method::GET, http::Method::PUT];

pub const CODINGS: [&str; 8] =
    ["", "gzip", "deflate", "br", "zstd", "gzip, br", "identity", "what"];

pub const HEAD_STATUSES: [u16; 10] = [200, 101, 200, 204, 302, 400, 408, 429, 500, 503];

/// Timestamp at which every exchange is accepted. It is later than the clock's start, so that an event can precede it.
pub const ACCEPT: MonotonicInstant = MonotonicInstant::from_secs(1_000);

/// An exchange as described by a script.
#[derive(Debug)]
pub struct Scene {
    path: Option<Name>,
    hint: Option<&'static str>,
    method: http::Method,
    model: Option<Name>,
    request_coding: &'static str,
    anthropic: bool,
    pub ending: Ending,
    pub acts: Vec<Act>,
}

/// One event and its delay in milliseconds after the previous event. A negative delay places it before the previous
/// event.
#[derive(Debug)]
pub struct Act {
    pub millis: i64,
    pub what: What,
}

#[derive(Debug)]
pub enum What {
    Say(fn() -> ObserverEvent),
    Connected(bool),
    ResponseHead(Answer),
    Arrival { direction: Direction, blocked: u32, bytes: Vec<u8> },
    Gap(Direction, u64),
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    own: bool,
    headers: Vec<(&'static str, Name)>,
}

impl Scene {
    pub fn parse(mut script: Script<'_>) -> Self {
        let name = |bytes: &[u8]| Name::new(&String::from_utf8_lossy(bytes));
        let families = Family::ALL.map(|family| Some(family.as_str()));
        let hints = [&[None, Some("none")], &families[..]].concat();
        let mut scene = Self {
            ending: script.pick(&ENDINGS),
            hint: script.pick(&hints),
            method: METHODS[usize::from(script.digit()) % METHODS.len()].clone(),
            request_coding: script.pick(&CODINGS),
            anthropic: script.flag(),
            path: name(script.short()),
            model: name(script.short()),
            acts: Vec::new(),
        };
        while !script.is_over() && scene.acts.len() < Act::MOST {
            scene.acts.push(Act::parse(&mut script));
        }
        scene
    }

    /// Returns the timestamps of the events, and of the end as the last one.
    pub fn moments(&self) -> Vec<MonotonicInstant> {
        let mut now = ACCEPT.nanos();
        let steps = self.acts.iter().map(|act| act.millis).chain([1]);
        steps
            .map(|millis| {
                now = now.saturating_add_signed(millis * 1_000_000);
                MonotonicInstant::from_nanos(now)
            })
            .collect()
    }

    pub fn is_in_order(&self) -> bool {
        self.acts.iter().all(|act| act.millis >= 0)
    }

    pub fn arrivals(&self, wanted: Direction) -> impl Iterator<Item = (&[u8], Duration)> {
        self.acts.iter().filter_map(move |act| {
            if let What::Arrival { direction, blocked, bytes } = &act.what
                && *direction == wanted
                && !bytes.is_empty()
            {
                return Some((&bytes[..], BackpressureTime(*blocked).duration()));
            }
            None
        })
    }

    /// Returns the number of bytes lost in this direction, or `None` if no gap occurred.
    pub fn lost(&self, wanted: Direction) -> Option<u64> {
        let gaps = self.acts.iter().filter_map(|act| {
            if let What::Gap(direction, bytes) = act.what
                && direction == wanted
            {
                return Some(bytes);
            }
            None
        });
        gaps.reduce(|sum, bytes| sum + bytes)
    }

    pub fn heads(&self) -> impl Iterator<Item = &Answer> {
        self.acts.iter().filter_map(|act| {
            if let What::ResponseHead(answer) = &act.what {
                return Some(answer);
            }
            None
        })
    }

    pub fn is_coded(&self) -> bool {
        let coded = |answer: &Answer| answer.header("content-encoding").is_some();
        self.heads().any(coded)
    }

    /// Applies all events. Arrivals come in pieces of these sizes, all at the same timestamp.
    pub fn play(&self, cuts: Option<[usize; 2]>) -> Played {
        let limiter = Arc::new(CardinalityLimiter::new(CardinalityLimits::default(), []));
        let mut exchange = ObservedExchange::new(
            ExchangeId(7),
            ACCEPT,
            Box::new(self.open()),
            limiter,
            (&Tokenizers::default(), RequestBudget::default()),
        );
        let mut samples = Vec::new();
        let moments = self.moments();
        for (act, at) in self.acts.iter().zip(&moments) {
            for (word, bytes) in act.words(cuts) {
                exchange.apply(*at, word, bytes, &mut |sample| samples.push(sample));
            }
            // The owner of an exchange calls these methods after every event.
            exchange.state();
            if exchange.has_final_labels() {
                exchange.metric_labels();
            }
        }
        let end = *moments.last().expect("the end has an entry");
        let record = exchange.end(end, self.ending, &mut |sample| samples.push(sample));
        Played { record, samples }
    }

    pub fn open(&self) -> RequestHead {
        let route = RouteFacts {
            dialect: self.hint.map(Label::from_trusted),
            ..RouteFacts::for_upstream("default", "127.0.0.1", 443)
        };
        let coding = Name::new(self.request_coding).map(|coding| ("content-encoding", coding));
        let version = Name::new("2023-06-01").filter(|_| self.anthropic);
        let version = version.map(|version| ("anthropic-version", version));
        RequestHead {
            wall: WallTime::from_unix_nanos(1_800_000_000_000_000_000),
            method: self.method.clone(),
            path: self.path.clone().unwrap_or_else(slash),
            whole_path: None,
            model: self.model.clone(),
            host: None,
            version: http::Version::HTTP_11,
            scheme: Scheme::Http,
            headers: coding.into_iter().chain(version).collect(),
            length: None,
            client: None,
            route: Arc::new(route),
            trace: TraceContext::default(),
            conversation: None,
            identity: CallerIdentity::default(),
            session_rule: SessionRule::default(),
            connection: None,
            body_wait: Arc::new(BodyWaitState::default()),
        }
    }
}

impl Act {
    /// Maximum number of events. More events cover nothing new.
    pub const MOST: usize = 64;

    /// Returns the events of this act, with the bytes of each arrival.
    pub fn words(&self, cuts: Option<[usize; 2]>) -> Vec<(ObserverEvent, &[u8])> {
        let word = match &self.what {
            What::Say(word) => word(),
            What::Connected(reused) => connected(*reused),
            What::ResponseHead(answer) => ObserverEvent::ResponseHead(Box::new(answer.head())),
            What::Gap(direction, bytes) => {
                ObserverEvent::Gap { direction: *direction, bytes: *bytes }
            }
            What::Arrival { direction, blocked, bytes } => {
                let pieces = in_pieces(bytes, cuts.unwrap_or([bytes.len(); 2]));
                let blocked = [BackpressureTime(*blocked)].into_iter();
                return pieces
                    .into_iter()
                    .zip(blocked.chain(std::iter::repeat(BackpressureTime::default())))
                    .map(|(piece, blocked)| (arrived(*direction, piece, blocked), piece))
                    .collect();
            }
        };
        vec![(word, b"")]
    }

    /// Reads one act. A letter selects its kind, so that inputs can be written by hand.
    fn parse(script: &mut Script<'_>) -> Self {
        let letter = script.byte();
        let millis = i64::from(script.byte().cast_signed());
        let what = match letter {
            b'w' => What::Say(|| ObserverEvent::Queued),
            b'a' => What::Say(|| ObserverEvent::Admitted),
            b's' => What::Say(|| ObserverEvent::RequestHeadSent),
            b'r' => What::Say(|| ObserverEvent::RequestBodySent),
            b'u' => What::Say(|| ObserverEvent::Upgraded),
            b't' => What::Say(|| ObserverEvent::Trailers(Direction::Response)),
            b'x' => What::Say(|| ObserverEvent::Closed(Direction::Request)),
            b'y' => What::Say(|| ObserverEvent::Closed(Direction::Response)),
            b'c' => What::Connected(script.flag()),
            b'h' => What::ResponseHead(Answer::parse(script)),
            b'g' => What::Gap(Direction::Request, u64::from(script.digit())),
            b'G' => What::Gap(Direction::Response, u64::from(script.digit())),
            b'q' => arrival(Direction::Request, script),
            b'm' => message(Direction::Request, script),
            b'M' => message(Direction::Response, script),
            _ => arrival(Direction::Response, script),
        };
        Self { millis, what }
    }
}

impl Answer {
    fn parse(script: &mut Script<'_>) -> Self {
        let status = script.pick(&HEAD_STATUSES);
        let own = script.digit() == 1;
        let content_type = ("content-type", String::from_utf8_lossy(script.short()).into_owned());
        let coding = ("content-encoding", script.pick(&CODINGS).to_owned());
        let upgrade = ("upgrade", script.pick(&["", "websocket", "h2c"]).to_owned());
        let other = script.pick(&RESPONSE_HEADERS);
        let other = (other, String::from_utf8_lossy(script.short()).into_owned());
        let headers = [content_type, coding, upgrade, other];
        let named = |(name, value): (_, String)| Some((name, Name::new(&value)?));
        Self { status, own, headers: headers.into_iter().filter_map(named).collect() }
    }

    fn header(&self, wanted: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(name, _)| *name == wanted).map(|(_, value)| value.as_str())
    }

    fn head(&self) -> ResponseHead {
        let headers: Headers = self.headers.iter().cloned().collect();
        ResponseHead {
            status: self.status,
            version: http::Version::HTTP_11,
            headers,
            length: None,
            from_proxy: self.own,
        }
    }
}

fn slash() -> Name {
    Name::new("/").expect("not empty")
}

fn connected(reused: bool) -> ObserverEvent {
    ConnectTimings { reused, ..ConnectTimings::default() }.into()
}

fn arrived(direction: Direction, bytes: &[u8], blocked: BackpressureTime) -> ObserverEvent {
    ObserverEvent::Body {
        direction,
        len: u32::try_from(bytes.len()).expect("inputs are short"),
        blocked,
    }
}

fn arrival(direction: Direction, script: &mut Script<'_>) -> What {
    What::Arrival {
        direction,
        blocked: u32::from(script.digit()) * 1_000,
        bytes: script.long().to_vec(),
    }
}

/// Returns an arrival that is a WebSocket frame.
fn message(direction: Direction, script: &mut Script<'_>) -> What {
    let first = script.pick(&[0x81_u8, 0x82, 0x88, 0x89, 0x01, 0x80, 0x00, 0xc1]);
    let payload = script.long();
    let (masked, mask): (u8, &[u8]) = match direction {
        Direction::Request => (0x80, &[0; 4]),
        Direction::Response => (0, &[]),
    };
    let length = u16::try_from(payload.len()).expect("a two-byte number fits");
    let length = match u8::try_from(length).ok().filter(|length| *length < 126) {
        Some(length) => vec![masked | length],
        None => [&[masked | 126], &length.to_be_bytes()[..]].concat(),
    };
    What::Arrival { direction, blocked: 0, bytes: [&[first], &length[..], mask, payload].concat() }
}
