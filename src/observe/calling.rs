//! The part of an exchange that only a call of a known API has: its request's facts, its answer, its series.

use crate::clock::Moment;
use crate::dialect::{self, Api, Reader, RequestFacts, RequestReader};
use crate::frame::{Anomaly, Frame, Framer};
use crate::label::{Dimension, Gate, Label, OTHER};
use crate::measure::{Points, Rates, Sample, rates};
use crate::observe::answer::{Answer, Brought};
use crate::record::{Call, Complete, Outcome, Output, Series};
use crate::wire::{Direction, Head, RouteFacts};

/// A call of a known API.
#[derive(Debug)]
pub(super) struct Calling {
    api: Api,
    request: Reading,
    framer: Option<Framer>,
    reader: Reader,
    pub(super) answer: Answer,
    /// Settled once the answer's head vouches for the model.
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

/// What a call cannot know of itself when it is closed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closing {
    pub(super) points: Points,
    pub(super) outcome: Outcome,
    /// Whether the body came to its end as HTTP counts it.
    pub(super) delivered: bool,
    /// Whether part of it went by unobserved.
    pub(super) gap: bool,
    /// Whether an answer below 400 had begun.
    pub(super) answering: bool,
    pub(super) queue_depth: u32,
}

impl Calling {
    pub(super) fn new(api: Api, route: &RouteFacts) -> Self {
        Self {
            api,
            request: Reading::Still(Box::new(RequestReader::new(api))),
            framer: None,
            reader: Reader::new(api),
            answer: Answer::new(None),
            series: None,
            provider: provider(api, route, None),
        }
    }

    pub(super) fn facts(&self) -> &RequestFacts {
        self.request.facts()
    }

    /// Whether it is a streamed generation as far as is known now: the answer decides, before it the request.
    pub(super) fn is_stream(&self) -> bool {
        let answered = self.framer.as_ref().and_then(Framer::is_stream);
        self.api.operation().generates()
            && answered.unwrap_or_else(|| self.facts().stream == Some(true))
    }

    /// Whether the answer came as a stream.
    pub(super) fn is_streamed(&self) -> bool {
        self.framer
            .as_ref()
            .and_then(Framer::is_stream)
            .unwrap_or(false)
    }

    pub(super) fn request(&mut self, bytes: &[u8]) {
        if let Reading::Still(reader) = &mut self.request {
            reader.push(bytes);
        }
    }

    pub(super) fn request_end(&mut self) {
        if let Reading::Still(reader) = &self.request {
            self.request = Reading::Done(Box::new(reader.facts().clone()));
        }
    }

    pub(super) fn gap(&mut self, direction: Direction) {
        match (direction, &mut self.request, &mut self.framer) {
            (Direction::Request, Reading::Still(reader), _) => reader.gap(),
            (Direction::Response, _, Some(framer)) => framer.gap(),
            (Direction::Request | Direction::Response, _, _) => {}
        }
    }

    pub(super) fn head(&mut self, head: &Head, route: &RouteFacts) {
        self.answer = Answer::new(self.facts().model.as_ref());
        self.provider = provider(self.api, route, head.headers.get("server"));
        self.reader.status(head.status);
        match head.headers.get("content-encoding") {
            None | Some("identity") => {
                self.framer = Some(Framer::new(head.headers.get("content-type")));
            }
            Some(_) => self.answer.odd(Anomaly::Encoding),
        }
    }

    /// Body bytes of the answer.
    pub(super) fn response(
        &mut self,
        at: Moment,
        bytes: &[u8],
        points: &mut Points,
        out: &mut impl FnMut(Sample),
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
        framer.push(bytes, &mut |frame| {
            take(reader, answer, (at, frame), points, out)
        });
    }

    /// The answer's body is over.
    pub(super) fn response_end(
        &mut self,
        at: Moment,
        points: &mut Points,
        out: &mut impl FnMut(Sample),
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
        framer.finish(&mut |frame| take(reader, answer, (at, frame), points, out));
    }

    /// What its metrics are told apart by. A model's name is `vouched` for by an answer below 400; before that it has
    /// its own value only if another exchange had one.
    pub(super) fn series(&mut self, route: &RouteFacts, vouched: bool, gate: &Gate) -> Series {
        if let Some(series) = self.series.as_ref().filter(|_| vouched) {
            return series.clone();
        }
        let series = self.name_series(route, vouched, gate);
        if vouched {
            self.series = Some(series.clone());
        }
        series
    }

    /// Everything that is known of it after its end.
    pub(super) fn close(
        mut self,
        series: Series,
        closing: Closing,
        out: &mut impl FnMut(Sample),
    ) -> Call {
        let streamed = self.is_streamed();
        let complete = self.complete(closing, streamed);
        let generates = self.api.operation().generates();
        let counted = self.answer.count(out);
        let answered = generates
            && (closing.outcome == Outcome::Ok || counted.total > 0 || self.answer.usage.is_some());
        let output = answered.then(|| Output::reconcile(&counted, self.answer.usage.as_ref()));
        let rates = match &output {
            Some(output) if streamed => {
                let tokens = rates::Tokens {
                    output: output.tokens,
                    counted: output.counted,
                    counted_first: output.counted_first,
                };
                let blocked = self.answer.stream().blocked_in_decode();
                Rates::of_stream(
                    &closing.points,
                    tokens,
                    blocked,
                    complete != Complete::Unobserved,
                )
            }
            Some(output) if complete == Complete::True => {
                Rates::of_whole(&closing.points, output.tokens)
            }
            Some(_) | None => Rates::default(),
        };
        let owed = generates && complete == Complete::Cut && closing.answering;
        Call {
            series,
            streamed,
            finish_reasons: self.answer.finish_reasons(owed),
            response_id: self.answer.id.take(),
            response_model: self.answer.model.take(),
            service_tier: self.answer.service_tier.take(),
            system_fingerprint: self.answer.system_fingerprint.take(),
            usage: self.answer.usage,
            output,
            rates,
            complete,
            queue_depth: closing.queue_depth,
            verdicts: Vec::new(),
            request: match self.request {
                Reading::Still(reader) => reader.finish(),
                Reading::Done(facts) => *facts,
            },
        }
    }

    fn complete(&self, closing: Closing, streamed: bool) -> Complete {
        // Without a framer nothing of a body was read: a content-encoding that is not understood.
        let unread = closing.answering && self.framer.is_none();
        if closing.gap || unread {
            return Complete::Unobserved;
        }
        let ended = if streamed {
            self.answer.is_finished()
        } else {
            closing.delivered
        };
        if ended { Complete::True } else { Complete::Cut }
    }

    fn name_series(&self, route: &RouteFacts, vouched: bool, gate: &Gate) -> Series {
        let asked = self.facts().model.as_ref().or(self.answer.model.as_ref());
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

/// Reads one frame, and takes in the events that come of it.
fn take(
    reader: &mut Reader,
    answer: &mut Answer,
    (at, frame): (Moment, Frame<'_>),
    points: &mut Points,
    out: &mut impl FnMut(Sample),
) {
    let mut brought = Brought::default();
    reader.read(&frame, &mut |event| answer.event(&event, &mut brought, out));
    if matches!(frame, Frame::Event { .. }) {
        answer.chunk(at, brought, points, out);
    }
}

fn provider(api: Api, route: &RouteFacts, server: Option<&str>) -> Label {
    let host = Some(route.server_address.as_str());
    dialect::provider(api, route.provider.as_ref(), host, server)
}
