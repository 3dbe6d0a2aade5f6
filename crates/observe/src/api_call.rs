//! The part of an exchange that only a call of a known API has: its request's facts, its answer, its series.

use std::sync::Arc;
use std::time::Duration;

use crate::content_decoder::ContentDecoder;
use crate::request_state::RequestState;
use crate::response::{FrameContent, ResponseAccumulator};
use tokengauge_llm::content::{self, Asked, Budget, Policy};
use tokengauge_llm::count::Tokenisers;
use tokengauge_llm::dialect::{
    self, Api, DetectedApi, Event, RateLimits, Realtime, RequestFacts, RequestReader,
    ResponseReader,
};
use tokengauge_llm::frame::{Anomaly, Frame, Framer};
use tokengauge_measure::record::{self, Bands, Call, Complete, Outcome, Output, Series, WebSocket};
use tokengauge_measure::timing::{Points, Rates, Sample, Stalls, rates};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{Direction, Headers, RequestHead, ResponseHead, RouteFacts};
use tokengauge_types::label::{CardinalityLimiter, Dimension, Label, Name, OTHER};

/// A call of a known API.
#[derive(Debug)]
pub(super) struct ApiCall {
    api: Api,
    request: RequestState,
    /// Whether the body says which API it is.
    body_decides: bool,
    request_coding: ContentDecoder,
    response_coding: ContentDecoder,
    /// Made when the head is known; `None` where the body cannot be read.
    response: Option<(Framer, ResponseReader)>,
    /// Part of the answer's body went by unread.
    lost: bool,
    /// Both sides of what was upgraded to a WebSocket.
    session: Option<Box<Realtime>>,
    pub(super) answer: ResponseAccumulator,
    /// Settled once the answer's head vouches for the model.
    series: Option<Series>,
    provider: Label,
    quota: Option<RateLimits>,
    tokenisers: Tokenisers,
    /// The request's body, where content is captured.
    asked: Option<Box<Asked>>,
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
    /// What it went on as, if it did.
    pub(super) websocket: Option<WebSocket>,
}

impl ApiCall {
    pub(super) fn new(found: &DetectedApi, open: &RequestHead, tokenisers: &Tokenisers) -> Self {
        let api = found.api;
        Self {
            api,
            request: RequestState::Still(Box::new(RequestReader::new(found))),
            body_decides: found.body_decides,
            request_coding: ContentDecoder::new(&open.headers),
            response_coding: ContentDecoder::plain(),
            response: None,
            lost: false,
            session: None,
            answer: ResponseAccumulator::new(None, tokenisers),
            series: None,
            provider: provider(api, &open.route, None),
            quota: None,
            tokenisers: tokenisers.clone(),
            asked: None,
        }
    }

    /// Captures what is asked and answered from here on.
    pub(super) fn capture(&mut self, policy: &Arc<Policy>, budget: &Budget) {
        let asked = Asked::new(policy, budget);
        self.answer.heard = asked.heard().map(Box::new);
        self.asked = Some(Box::new(asked));
    }

    pub(super) fn facts(&self) -> &RequestFacts {
        match &self.session {
            Some(session) => session.facts(),
            None => self.request.facts(),
        }
    }

    /// The model that is asked for: of a session, in its messages, else in the path or the query.
    pub(super) fn asked(&self) -> Option<&Name> {
        let facts = self.request.facts();
        self.facts().model.as_ref().or(facts.model.as_ref())
    }

    /// Whether it is a streamed generation as far as is known now: the answer decides, before it the request.
    pub(super) fn is_stream(&self) -> bool {
        let answered = self.framer().and_then(Framer::is_stream);
        self.api.operation().generates()
            && answered.unwrap_or_else(|| self.facts().stream == Some(true))
    }

    /// Whether the answer came to its end: by the provider's last word or, where the API has none, by the body's end.
    ///
    /// Of a body that broke off, every choice that was asked for must have stopped: one may not have begun. A body that
    /// was delivered has shown all the choices there are.
    pub(super) fn is_finished(&self, delivered: bool) -> bool {
        let asked = self.facts().choices.filter(|_| !delivered);
        let fewest = asked.and_then(|asked| usize::try_from(asked).ok());
        self.answer.is_finished(fewest.unwrap_or_default()) || (delivered && !self.api.marks_end())
    }

    /// Whether the answer came as a stream.
    pub(super) fn is_streamed(&self) -> bool {
        self.framer().and_then(Framer::is_stream).unwrap_or(false)
    }

    /// Whether it is a streamed generation whose tokens are seen and whose last word is still to come. `answered`: its
    /// head has come.
    pub(super) fn is_awaiting(&self, answered: bool) -> bool {
        let unread = answered && self.response.is_none();
        self.is_stream() && !unread && !self.lost && !self.answer.failed && !self.is_finished(false)
    }

    /// What the answer's head says is left of the caller's limits.
    pub(super) const fn quota(&self) -> Option<RateLimits> {
        self.quota
    }

    /// Whether part of the answer's body went by unread.
    pub(super) const fn is_lost(&self) -> bool {
        self.lost
    }

    pub(super) fn request(&mut self, bytes: &[u8]) {
        let Self { request, asked, .. } = self;
        if let RequestState::Still(reader) = request
            && !self.request_coding.push(bytes, &mut |plain| {
                reader.push(plain);
                if let Some(asked) = asked {
                    asked.push(plain);
                }
            })
        {
            reader.gap();
        }
    }

    /// No more of the request's body will come; `sent`: it came to its end.
    pub(super) fn request_end(&mut self, sent: bool) {
        if sent {
            self.request_coding.end();
        }
        if let RequestState::Still(reader) = &self.request {
            self.request = RequestState::Done(Box::new(reader.facts().clone()));
        }
    }

    pub(super) fn gap(&mut self, direction: Direction) {
        match direction {
            Direction::Request => {
                self.request_coding.gap();
                if let Some(asked) = &mut self.asked {
                    asked.gap();
                }
            }
            Direction::Response => {
                self.response_coding.gap();
                self.lost = true;
            }
        }
        match (direction, &mut self.request, &mut self.response) {
            (Direction::Request, RequestState::Still(reader), _) => reader.gap(),
            (Direction::Response, _, Some((framer, _))) => framer.gap(),
            (Direction::Request | Direction::Response, _, _) => {}
        }
    }

    /// The exchange goes on as a WebSocket; whether this is an API whose messages are understood.
    pub(super) fn upgrade(&mut self) -> bool {
        let sessions = self.api == Api::OpenAiRealtime;
        self.session = sessions.then(|| Box::new(Realtime::new()));
        // A session's messages are no request and no answer.
        (self.asked, self.answer.heard) = (None, None);
        sessions
    }

    /// A message of the session.
    pub(super) fn message(
        &mut self,
        direction: Direction,
        text: &[u8],
        out: &mut impl FnMut(Sample),
    ) {
        let Some(session) = &mut self.session else {
            return;
        };
        let busy = !session.is_idle();
        let mut brought = FrameContent::default();
        let mut take = |event: Event<'_>| self.answer.event(&event, &mut brought, out);
        match direction {
            Direction::Request => session.client(text, &mut take),
            Direction::Response => session.server(text, &mut take),
        }
        if (busy || brought.text) && session.is_idle() {
            self.answer.end_turn(self.request.facts().model.as_ref(), &self.tokenisers, out);
        }
    }

    /// What the session's own messages say of how it went.
    pub(super) fn said(&self) -> record::Session {
        let session = self.session.as_deref();
        record::Session {
            failed: session.is_some_and(Realtime::has_failed),
            error: session.and_then(Realtime::error).cloned(),
        }
    }

    /// Whether an upgrade has become a session: the protocol's switch says nothing of the model or the key, the first
    /// message of the server does.
    pub(super) fn is_taken_up(&self) -> bool {
        self.session.as_deref().is_some_and(Realtime::is_accepted)
    }

    /// Whether its model is as well known as it will be.
    pub(super) fn is_named(&self) -> bool {
        self.asked().is_some()
            || self.answer.model.is_some()
            || self.session.as_deref().is_none_or(Realtime::has_generated)
    }

    /// The answer's head. `false`: the request's body showed that this is no call of any known API.
    /// `now`: since 1970.
    pub(super) fn head(&mut self, head: &ResponseHead, route: &RouteFacts, now: Duration) -> bool {
        if self.body_decides {
            let Some(api) = self.facts().api else {
                return false;
            };
            self.api = api;
            self.series = None;
        }
        let heard = self.answer.heard.take();
        self.answer = ResponseAccumulator::new(self.asked(), &self.tokenisers);
        self.answer.heard = heard;
        self.provider = provider(self.api, route, Some(&head.headers));
        self.response_coding = ContentDecoder::new(&head.headers);
        self.response = (!self.response_coding.is_unread()).then(|| {
            let framer = Framer::new(head.headers.get("content-type"), self.api.json());
            (framer, ResponseReader::new(self.api, self.facts(), head.status))
        });
        self.quota = RateLimits::read(&head.headers, now);
        self.head_says(head);
        true
    }

    /// Counts, timings and errors that stand in the head.
    fn head_says(&mut self, head: &ResponseHead) {
        let whole = self.facts().stream != Some(true);
        let answer = &mut self.answer;
        let mut brought = FrameContent::default();
        let failed = dialect::is_error(head.status);
        dialect::headers::read(&head.headers, failed, whole, &mut |event| {
            answer.event(&event, &mut brought, &mut |_| {});
        });
    }

    /// Body bytes of the answer.
    pub(super) fn response(
        &mut self,
        at: MonotonicInstant,
        bytes: &[u8],
        points: &mut Points,
        out: &mut impl FnMut(Sample),
    ) {
        let Self { response: Some((framer, reader)), response_coding, lost, answer, .. } = self
        else {
            return;
        };
        let read = response_coding.push(bytes, &mut |plain| {
            framer.push(plain, &mut |frame| {
                take(reader, answer, (at, frame), points, out);
            });
        });
        if !read {
            framer.gap();
            *lost = true;
        }
    }

    /// The answer's body is over; `delivered`: it came to its end as HTTP counts it.
    pub(super) fn response_end(
        &mut self,
        at: MonotonicInstant,
        delivered: bool,
        points: &mut Points,
        out: &mut impl FnMut(Sample),
    ) {
        let Self { response: Some((framer, reader)), response_coding, answer, .. } = self else {
            return;
        };
        if delivered {
            response_coding.end();
        }
        framer.finish(&mut |frame| take(reader, answer, (at, frame), points, out));
    }

    /// What was odd about it, each with how often.
    pub(super) fn anomalies(&mut self) -> Vec<(Anomaly, u32)> {
        for coding in [&self.request_coding, &self.response_coding] {
            if let Some(odd) = coding.odd() {
                self.answer.odd(odd);
            }
        }
        self.answer.anomalies()
    }

    /// What its metrics are told apart by. The names of model, tenant and variant are `vouched` for by an answer below
    /// 400; before that each has its own value only if another exchange had one.
    pub(super) fn series(
        &mut self,
        open: &RequestHead,
        vouched: bool,
        gate: &CardinalityLimiter,
    ) -> Series {
        if let Some(series) = self.series.as_ref().filter(|_| vouched) {
            return series.clone();
        }
        let series = self.name_series(open, vouched, gate);
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
        // Nothing counted is nothing generated only where all of it was seen.
        let seen = closing.outcome == Outcome::Ok && complete != Complete::Unobserved;
        let answered = generates && (seen || counted.total > 0 || self.answer.usage.is_some());
        let output = answered.then(|| Output::reconcile(&counted, self.answer.usage.as_ref()));
        let rates = self.rates(closing, output.as_ref(), complete);
        let owed = generates && complete == Complete::Cut && closing.answering;
        let request = self.request.finish(self.session.as_deref());
        let seen = complete != Complete::Unobserved;
        let (finish_reasons, choices) = self.answer.ended(owed, seen);
        let heard = self.answer.heard.as_deref();
        let content = self
            .asked
            .map(|asked| Box::new(content::assemble(self.api, *asked, heard, &finish_reasons)));
        let usage = self.answer.usage;
        Call {
            bands: Bands::of(&request, usage.as_ref(), output.as_ref()),
            series,
            streamed,
            finish_reasons,
            choices,
            content,
            response_id: self.answer.id.take(),
            response_model: self.answer.model.take(),
            service_tier: self.answer.service_tier.take(),
            system_fingerprint: self.answer.system_fingerprint.take(),
            usage,
            timings: self.answer.timings,
            quota: self.quota,
            tokenizer: output.map(|_| self.answer.tokenizer()),
            output,
            rates,
            complete,
            queue_depth: closing.queue_depth,
            warm: None,
            cost: None,
            verdicts: Vec::new(),
            stalls: Stalls::default(),
            request,
        }
    }

    fn rates(&mut self, closing: Closing, output: Option<&Output>, complete: Complete) -> Rates {
        let Some(output) = output else {
            return Rates::default();
        };
        if self.is_streamed() {
            let tokens = rates::Tokens {
                output: output.tokens,
                counted: output.counted,
                counted_first: output.counted_first,
            };
            let blocked = self.answer.stream().blocked_in_decode();
            let seen = complete != Complete::Unobserved;
            return Rates::of_stream(&closing.points, tokens, blocked, seen);
        }
        // A session is many answers and the silence between them: no rate of it says how fast any of them came.
        let one = closing.websocket.is_none() && complete == Complete::True;
        let rates = one.then(|| Rates::of_whole(&closing.points, output.tokens));
        rates.unwrap_or_default()
    }

    fn framer(&self) -> Option<&Framer> {
        self.response.as_ref().map(|(framer, _)| framer)
    }

    fn complete(&self, closing: Closing, streamed: bool) -> Complete {
        // Without a framer nothing of a body was read: a content-encoding that is not understood.
        let unread = closing.answering && self.response.is_none();
        let missed = closing.websocket.is_some_and(|socket| socket.lost || socket.compressed);
        if closing.gap || unread || missed || self.lost {
            return Complete::Unobserved;
        }
        let ended = if let Some(socket) = &closing.websocket {
            socket.is_finished()
        } else if streamed {
            self.is_finished(closing.delivered)
        } else {
            closing.delivered && !self.response_coding.is_short()
        };
        if ended { Complete::True } else { Complete::Cut }
    }

    fn name_series(&self, open: &RequestHead, vouched: bool, gate: &CardinalityLimiter) -> Series {
        let (route, who) = (&open.route, &open.who);
        let label = |dimension, name: &Name| match vouched {
            true => gate.admit(dimension, name),
            false => gate.known(dimension, name).unwrap_or_else(|| Label::known(OTHER)),
        };
        let asked = self.asked().or(self.answer.model.as_ref());
        let model =
            asked.map_or_else(|| Label::known("unknown"), |model| label(Dimension::Model, model));
        Series {
            operation: self.api.operation(),
            provider: self.provider.clone(),
            model,
            stream: self.is_stream(),
            route: route.name.clone(),
            vantage: route.vantage,
            server_address: route.server_address.clone(),
            server_port: route.server_port,
            tenant: who.tenant.as_ref().map(|name| label(Dimension::Tenant, name)),
            variant: who.variant.as_ref().map(|name| label(Dimension::Variant, name)),
        }
    }
}

/// Reads one frame, and takes in the events that come of it.
fn take(
    reader: &mut ResponseReader,
    answer: &mut ResponseAccumulator,
    (at, frame): (MonotonicInstant, Frame<'_>),
    points: &mut Points,
    out: &mut impl FnMut(Sample),
) {
    let mut brought = FrameContent::default();
    reader.read(&frame, &mut |event| answer.event(&event, &mut brought, out));
    if matches!(frame, Frame::Event { .. }) {
        answer.chunk(at, brought, points, out);
    }
}

fn provider(api: Api, route: &RouteFacts, headers: Option<&Headers>) -> Label {
    let host = Some(route.server_address.as_str());
    dialect::provider(api, route.provider.as_ref(), host, headers)
}
