//! One exchange, from its first word to its record: composes the stages. Sans-IO, so it drives tests, fuzzers, benches
//! and replay alike.
//!
//! Nothing in here fails: whatever is odd is counted and carried in the record, and what was understood before still
//! counts.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::dialect::{self, Api, Reader, RequestFacts, RequestReader};
use crate::frame::{Anomaly, Frame, Framer};
use crate::label::{Dimension, Gate, Label, OTHER};
use crate::load::State;
use crate::measure::{Points, Rates, Sample, rates};
use crate::observe::answer::{Answer, Brought};
use crate::record::{self, Answered, Call, Complete, Http, Outcome, Output, Record, Series};
use crate::wire::{
    Connected, Direction, Ending, ExchangeId, Head, Headers, Open, RouteFacts, Word,
};

/// An exchange in flight, as far as it has been observed.
#[derive(Debug)]
pub struct Exchange {
    id: ExchangeId,
    open: Box<Open>,
    points: Points,
    connected: Option<Box<Connected>>,
    head: Option<Box<Head>>,
    /// `None` for plain HTTP.
    call: Option<Box<Calling>>,
    request_bytes: u64,
    response_bytes: u64,
    blocked: Duration,
    queue_depth: u32,
    gap: bool,
    broken: bool,
}

/// The part of an exchange that only a call of a known API has.
#[derive(Debug)]
struct Calling {
    api: Api,
    request: Reading,
    framer: Option<Framer>,
    reader: Reader,
    answer: Answer,
    series: Option<Series>,
    provider: Label,
}

/// The request's body: being read, then read.
#[derive(Debug)]
enum Reading {
    Still(Box<RequestReader>),
    Done(Box<RequestFacts>),
}

impl Reading {
    fn facts(&self) -> &RequestFacts {
        match self {
            Self::Still(reader) => reader.facts(),
            Self::Done(facts) => facts,
        }
    }
}

impl Exchange {
    pub fn new(id: ExchangeId, at: Moment, open: Box<Open>) -> Self {
        let path = open
            .path
            .as_str()
            .get(open.route.stripped..)
            .unwrap_or_default();
        let detect = dialect::Detect {
            hint: open.route.dialect.as_ref().map(Label::as_str),
            method: &open.method,
            host: Some(open.route.server_address.as_str()),
            path,
        };
        let call = dialect::detect(&detect).map(|api| {
            Box::new(Calling {
                api,
                request: Reading::Still(Box::new(RequestReader::new(api))),
                framer: None,
                reader: Reader::new(api),
                answer: Answer::new(None),
                series: None,
                provider: provider(api, &open.route, None),
            })
        });
        Self {
            id,
            open,
            points: Points {
                accept: at,
                ..Points::default()
            },
            connected: None,
            head: None,
            call,
            request_bytes: 0,
            response_bytes: 0,
            blocked: Duration::ZERO,
            queue_depth: 0,
            gap: false,
            broken: false,
        }
    }

    /// Takes in one word other than `Open` and `End`. `bytes` are those of an `Arrival`; `out` is told what is measured
    /// while the exchange goes on.
    pub fn word(
        &mut self,
        at: Moment,
        word: Word,
        bytes: &[u8],
        gate: &Gate,
        out: &mut impl FnMut(Sample),
    ) {
        match word {
            Word::Open(_) | Word::End(_) | Word::Trailers(_) => {}
            Word::Admitted => self.points.admit = Some(at),
            Word::Connected(connected) => self.connected = Some(connected),
            Word::Sent => self.points.sent = Some(at),
            Word::RequestEnd => self.request_end(at),
            Word::Head(head) => self.head(at, head, gate),
            Word::Arrival {
                direction: Direction::Request,
                ..
            } => self.request(bytes),
            Word::Arrival {
                direction: Direction::Response,
                blocked,
                ..
            } => {
                self.response(at, bytes, blocked.duration(), out);
            }
            Word::Upgraded => self.call = None,
            Word::Gap { direction, bytes } => self.gap(direction, bytes),
        }
    }

    /// The exchange is over.
    pub fn end(
        mut self,
        at: Moment,
        ending: Ending,
        gate: &Gate,
        out: &mut impl FnMut(Sample),
    ) -> Record {
        self.points.end = Some(at);
        self.finish_body(at, out);
        let answered = self.answered();
        let (outcome, fault, error_type) = record::settle(ending, &answered);
        let series = self.series(gate);
        let call = self.call.take();
        let mut record = Record {
            exchange: self.id,
            wall: self.open.wall,
            points: self.points,
            stages: self.points.stages(),
            route: Arc::clone(&self.open.route),
            trace: self.open.trace,
            http: self.http(),
            call: None,
            outcome,
            ending,
            fault,
            error_type,
            connected: self.connected.as_deref().copied(),
            blocked: self.blocked,
            anomalies: Vec::new(),
        };
        if let (Some(mut call), Some(series)) = (call, series) {
            record.anomalies = call.answer.anomalies();
            record.call = Some(self.close(*call, series, &record, answered.finished, out));
        }
        if self.gap {
            record.anomalies.push((Anomaly::Gap, 1));
        }
        if self.broken {
            record.anomalies.push((Anomaly::Panic, 1));
        }
        record
    }

    /// What the exchange counts as while it is in flight.
    pub fn state(&self) -> State {
        let Some(call) = &self.call else {
            return State::Unstreamed;
        };
        if !call.api.operation().generates() || !call.is_stream() {
            State::Unstreamed
        } else if self.points.token.is_some() {
            State::Streaming
        } else {
            State::Waiting
        }
    }

    /// What its live metrics are told apart by. A model's name is vouched for by an answer below 400; before that it
    /// has its own value only if another exchange had one.
    pub fn series(&mut self, gate: &Gate) -> Option<Series> {
        let vouched = self
            .head
            .as_ref()
            .is_some_and(|head| head.status < 400 && !head.own);
        let call = self.call.as_deref_mut()?;
        if let Some(series) = call.series.as_ref().filter(|_| vouched) {
            return Some(series.clone());
        }
        let series = call.name_series(&self.open.route, vouched, gate);
        if vouched {
            call.series = Some(series.clone());
        }
        Some(series)
    }

    /// Marks the exchange as one whose stages broke off.
    pub fn break_off(&mut self) {
        self.broken = true;
        self.call = None;
    }

    pub const fn set_queue_depth(&mut self, depth: u32) {
        self.queue_depth = depth;
    }

    pub const fn id(&self) -> ExchangeId {
        self.id
    }

    pub const fn points(&self) -> &Points {
        &self.points
    }

    pub fn open(&self) -> &Open {
        &self.open
    }

    pub fn request_facts(&self) -> Option<&RequestFacts> {
        Some(self.call.as_ref()?.request.facts())
    }

    fn request(&mut self, bytes: &[u8]) {
        self.request_bytes += bytes.len() as u64;
        if let Some(Reading::Still(reader)) = self.call.as_mut().map(|call| &mut call.request) {
            reader.push(bytes);
        }
    }

    fn request_end(&mut self, at: Moment) {
        self.points.uploaded = Some(at);
        if let Some(call) = &mut self.call {
            call.request_end();
        }
    }

    fn head(&mut self, at: Moment, head: Box<Head>, gate: &Gate) {
        self.points.head = Some(at);
        if let Some(call) = &mut self.call {
            call.head(&head, &self.open.route);
        }
        self.head = Some(head);
        self.series(gate);
    }

    fn response(
        &mut self,
        at: Moment,
        bytes: &[u8],
        blocked: Duration,
        out: &mut impl FnMut(Sample),
    ) {
        self.points.byte.get_or_insert(at);
        self.response_bytes += bytes.len() as u64;
        self.blocked += blocked;
        let Some(call) = self.call.as_deref_mut() else {
            return;
        };
        call.answer.stream().block(blocked);
        call.read(at, &mut self.points, out, |framer, mut each| {
            framer.push(bytes, &mut each)
        });
    }

    fn finish_body(&mut self, at: Moment, out: &mut impl FnMut(Sample)) {
        if let Some(call) = self.call.as_deref_mut() {
            call.request_end();
            call.read(at, &mut self.points, out, |framer, mut each| {
                framer.finish(&mut each)
            });
        }
    }

    fn gap(&mut self, direction: Direction, bytes: u64) {
        self.gap = true;
        let call = self.call.as_deref_mut();
        match direction {
            Direction::Request => {
                self.request_bytes += bytes;
                if let Some(Reading::Still(reader)) = call.map(|call| &mut call.request) {
                    reader.gap();
                }
            }
            Direction::Response => {
                self.response_bytes += bytes;
                if let Some(framer) = call.and_then(|call| call.framer.as_mut()) {
                    framer.gap();
                }
            }
        }
    }

    fn answered(&self) -> Answered {
        let call = self.call.as_deref();
        Answered {
            status: self.head.as_ref().map(|head| head.status),
            own: self.head.as_ref().is_some_and(|head| head.own),
            streamed: call.is_some_and(Calling::is_streamed),
            finished: call.is_some_and(|call| call.answer.is_finished()),
            failed: call.is_some_and(|call| call.answer.failed),
            failure: call.and_then(|call| call.answer.failure.clone()),
        }
    }

    fn http(&mut self) -> Http {
        let head = self.head.as_deref_mut();
        Http {
            method: self.open.method.clone(),
            path: self.open.path.clone(),
            host: self.open.host.clone(),
            scheme: self.open.scheme,
            version: self.open.version,
            status: head.as_ref().map(|head| head.status),
            own: head.as_ref().is_some_and(|head| head.own),
            client: self.open.client,
            request_bytes: self.request_bytes,
            response_bytes: self.response_bytes,
            request_headers: std::mem::take(&mut self.open.headers),
            response_headers: head
                .map_or_else(Headers::default, |head| std::mem::take(&mut head.headers)),
        }
    }

    fn close(
        &self,
        mut call: Calling,
        series: Series,
        record: &Record,
        finished: bool,
        out: &mut impl FnMut(Sample),
    ) -> Call {
        let streamed = call.is_streamed();
        let complete = self.complete(record, streamed, finished);
        let generates = call.api.operation().generates();
        let counted = call.answer.count(out);
        let answered = generates
            && (record.outcome == Outcome::Ok || counted.total > 0 || call.answer.usage.is_some());
        let output = answered.then(|| Output::reconcile(&counted, call.answer.usage.as_ref()));
        let rates = match &output {
            Some(output) if streamed => {
                let tokens = rates::Tokens {
                    output: output.tokens,
                    counted: output.counted,
                    counted_first: output.counted_first,
                };
                let blocked = call.answer.stream().blocked_in_decode();
                Rates::of_stream(
                    &self.points,
                    tokens,
                    blocked,
                    complete != Complete::Unobserved,
                )
            }
            Some(output) if complete == Complete::True => {
                Rates::of_whole(&self.points, output.tokens)
            }
            _ => Rates::default(),
        };
        let owed = generates
            && complete == Complete::Cut
            && self.head.as_ref().is_some_and(|head| head.status < 400);
        Call {
            series,
            streamed,
            finish_reasons: call.answer.finish_reasons(owed),
            response_id: call.answer.id.take(),
            response_model: call.answer.model.take(),
            service_tier: call.answer.service_tier.take(),
            system_fingerprint: call.answer.system_fingerprint.take(),
            usage: call.answer.usage,
            output,
            rates,
            complete,
            queue_depth: self.queue_depth,
            verdicts: Vec::new(),
            request: match call.request {
                Reading::Still(reader) => reader.facts().clone(),
                Reading::Done(facts) => *facts,
            },
        }
    }

    fn complete(&self, record: &Record, streamed: bool, finished: bool) -> Complete {
        if self.gap
            || record
                .anomalies
                .iter()
                .any(|(anomaly, _)| *anomaly == Anomaly::Encoding)
        {
            return Complete::Unobserved;
        }
        let ended = if streamed {
            finished
        } else {
            record.ending == Ending::Complete
        };
        if ended { Complete::True } else { Complete::Cut }
    }
}

impl Calling {
    /// Whether it is a stream as far as is known now: the answer decides, before it the request.
    fn is_stream(&self) -> bool {
        let answered = self.framer.as_ref().and_then(Framer::is_stream);
        answered.unwrap_or_else(|| self.request.facts().stream == Some(true))
    }

    /// Whether the answer came as a stream.
    fn is_streamed(&self) -> bool {
        self.framer
            .as_ref()
            .and_then(Framer::is_stream)
            .unwrap_or(false)
    }

    fn request_end(&mut self) {
        if let Reading::Still(reader) = &self.request {
            self.request = Reading::Done(Box::new(reader.facts().clone()));
        }
    }

    fn head(&mut self, head: &Head, route: &RouteFacts) {
        self.answer = Answer::new(self.request.facts().model.as_ref());
        self.provider = provider(self.api, route, head.headers.get("server"));
        self.reader.status(head.status);
        match head.headers.get("content-encoding") {
            None | Some("identity") => {
                self.framer = Some(Framer::new(head.headers.get("content-type")))
            }
            Some(_) => self.answer.odd(Anomaly::Encoding),
        }
    }

    /// Has the framer take something in, and reads the frames that come of it.
    fn read(
        &mut self,
        at: Moment,
        points: &mut Points,
        out: &mut impl FnMut(Sample),
        feed: impl FnOnce(&mut Framer, &mut dyn FnMut(Frame<'_>)),
    ) {
        let Self {
            framer: Some(framer),
            reader,
            answer,
            ..
        } = self
        else {
            return;
        };
        feed(framer, &mut |frame| {
            let mut brought = Brought::default();
            reader.read(&frame, &mut |event| answer.event(&event, &mut brought, out));
            if matches!(frame, Frame::Event { .. }) {
                answer.chunk(at, brought, points, out);
            }
        });
    }

    fn name_series(&self, route: &RouteFacts, vouched: bool, gate: &Gate) -> Series {
        let asked = self
            .request
            .facts()
            .model
            .as_ref()
            .or(self.answer.model.as_ref());
        let model = asked.map_or_else(
            || Label::known("unknown"),
            |model| match vouched {
                true => gate.admit(Dimension::Model, model),
                false => gate
                    .known(Dimension::Model, model)
                    .unwrap_or_else(|| Label::known(OTHER)),
            },
        );
        Series {
            operation: self.api.operation(),
            provider: self.provider.clone(),
            model,
            stream: self.is_stream(),
            route: route.name.clone(),
            vantage: route.vantage,
            server_address: route.server_address.clone(),
            server_port: route.server_port,
        }
    }
}

fn provider(api: Api, route: &RouteFacts, server: Option<&str>) -> Label {
    dialect::provider(
        api,
        route.provider.as_ref(),
        Some(route.server_address.as_str()),
        server,
    )
}
