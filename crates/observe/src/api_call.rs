//! The data that only exchanges with a known API have: request facts, response and metric labels.

use std::sync::Arc;
use std::time::Duration;

use crate::request_state::RequestState;
use crate::response::{FrameContent, ResponseAccumulator};
use tokengauge_llm::content::{self, CaptureBudget, CapturePolicy, RequestCapture};
use tokengauge_llm::count::Tokenizers;
use tokengauge_llm::decode::ContentDecoder;
use tokengauge_llm::dialect::{
    self, Api, DetectedApi, Event, RateLimits, Realtime, RequestFacts, RequestReader,
    ResponseReader,
};
use tokengauge_llm::frame::{Frame, Framer, ParseError};
use tokengauge_measure::record::{
    self, Call, Completeness, LengthBuckets, MetricLabels, Outcome, Output, WebSocket,
};
use tokengauge_measure::timing::{LiveSample, Rates, Stalls, Timestamps, rates};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{Direction, Headers, RequestHead, ResponseHead, RouteFacts};
use tokengauge_types::label::{CardinalityLimiter, Dimension, Label, Name, OTHER};

/// A call of a known API.
#[derive(Debug)]
pub(super) struct ApiCall {
    api: Api,
    request: RequestState,
    /// Whether the request body determines the API.
    body_decides: bool,
    request_coding: ContentDecoder,
    response_coding: ContentDecoder,
    /// Created with the response headers. `None` if the body cannot be parsed.
    response: Option<(Framer, ResponseReader)>,
    /// Whether a part of the response body was not parsed.
    lost: bool,
    /// State of a WebSocket session, in both directions.
    session: Option<Box<Realtime>>,
    pub(super) answer: ResponseAccumulator,
    /// Labels, which are final once the response headers have confirmed the model.
    series: Option<MetricLabels>,
    provider: Label,
    quota: Option<RateLimits>,
    tokenizers: Tokenizers,
    /// The request body, if content is captured.
    asked: Option<Box<RequestCapture>>,
}

/// Facts that the exchange passes to its call when it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closing {
    pub(super) points: Timestamps,
    pub(super) outcome: Outcome,
    /// Whether HTTP delivered the body completely.
    pub(super) delivered: bool,
    /// Whether a part of the exchange was not observed.
    pub(super) gap: bool,
    /// Whether a response below 400 had begun.
    pub(super) answering: bool,
    pub(super) queue_depth: u32,
    /// The WebSocket after an upgrade.
    pub(super) websocket: Option<WebSocket>,
}

impl ApiCall {
    pub(super) fn new(found: &DetectedApi, open: &RequestHead, tokenizers: &Tokenizers) -> Self {
        let api = found.api;
        Self {
            api,
            request: RequestState::Parsing(Box::new(RequestReader::new(found))),
            body_decides: found.body_decides,
            request_coding: ContentDecoder::new(open.headers.get("content-encoding")),
            response_coding: ContentDecoder::plain(),
            response: None,
            lost: false,
            session: None,
            answer: ResponseAccumulator::new(None, tokenizers),
            series: None,
            provider: provider(api, &open.route, None),
            quota: None,
            tokenizers: tokenizers.clone(),
            asked: None,
        }
    }

    /// Captures the content of the request and the response from now on.
    pub(super) fn capture(&mut self, policy: &Arc<CapturePolicy>, budget: &CaptureBudget) {
        let asked = RequestCapture::new(policy, budget);
        self.answer.heard = asked.heard().map(Box::new);
        self.asked = Some(Box::new(asked));
    }

    pub(super) fn facts(&self) -> &RequestFacts {
        match &self.session {
            Some(session) => session.facts(),
            None => self.request.facts(),
        }
    }

    /// Returns the requested model. Sessions name it in their messages, other requests in the path or the query.
    pub(super) fn asked(&self) -> Option<&Name> {
        let facts = self.request.facts();
        self.facts().model.as_ref().or(facts.model.as_ref())
    }

    /// Returns whether the call is a streamed generation, according to the response or, before it, to the request.
    pub(super) fn is_stream(&self) -> bool {
        let answered = self.framer().and_then(Framer::is_stream);
        self.api.operation().generates()
            && answered.unwrap_or_else(|| self.facts().stream == Some(true))
    }

    /// Returns whether the response is complete: the provider's end marker was received or, if the API has none, the
    /// body ended.
    ///
    /// If the body was truncated, every requested choice must have stopped, because one may not have begun. A
    /// delivered body has shown all choices.
    pub(super) fn is_finished(&self, delivered: bool) -> bool {
        let asked = self.facts().choices.filter(|_| !delivered);
        let fewest = asked.and_then(|asked| usize::try_from(asked).ok());
        self.answer.is_finished(fewest.unwrap_or_default()) || (delivered && !self.api.marks_end())
    }

    /// Returns whether the response is a stream.
    pub(super) fn is_streamed(&self) -> bool {
        self.framer().and_then(Framer::is_stream).unwrap_or(false)
    }

    /// Returns whether the call is an observed, streamed generation that has not ended. `answered`: the response
    /// headers were received.
    pub(super) fn is_awaiting(&self, answered: bool) -> bool {
        let unread = answered && self.response.is_none();
        self.is_stream() && !unread && !self.lost && !self.answer.failed && !self.is_finished(false)
    }

    /// Returns the rate limits in the response headers.
    pub(super) const fn quota(&self) -> Option<RateLimits> {
        self.quota
    }

    /// Returns whether a part of the response body was not parsed.
    pub(super) const fn is_lost(&self) -> bool {
        self.lost
    }

    pub(super) fn request(&mut self, bytes: &[u8]) {
        let Self { request, asked, .. } = self;
        if let RequestState::Parsing(reader) = request
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

    /// Ends the request body. `sent`: the body was sent completely.
    pub(super) fn request_end(&mut self, sent: bool) {
        if sent {
            self.request_coding.end();
        }
        if let RequestState::Parsing(reader) = &self.request {
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
            (Direction::Request, RequestState::Parsing(reader), _) => reader.gap(),
            (Direction::Response, _, Some((framer, _))) => framer.gap(),
            (Direction::Request | Direction::Response, _, _) => {}
        }
    }

    /// Continues as a WebSocket. Returns whether the messages of this API are understood.
    pub(super) fn upgrade(&mut self) -> bool {
        let sessions = self.api == Api::OpenAiRealtime;
        self.session = sessions.then(|| Box::new(Realtime::new()));
        // A session has messages in place of a request and a response.
        (self.asked, self.answer.heard) = (None, None);
        sessions
    }

    /// Applies a message of the session.
    pub(super) fn message(
        &mut self,
        direction: Direction,
        text: &[u8],
        out: &mut impl FnMut(LiveSample),
    ) {
        let Some(session) = &mut self.session else {
            return;
        };
        let busy = !session.is_idle();
        let mut content = FrameContent::default();
        let mut take = |event: Event<'_>| self.answer.event(&event, &mut content, out);
        match direction {
            Direction::Request => session.client(text, &mut take),
            Direction::Response => session.server(text, &mut take),
        }
        if (busy || content.text) && session.is_idle() {
            self.answer.end_turn(self.request.facts().model.as_ref(), &self.tokenizers, out);
        }
    }

    /// Returns the outcome of the session according to its messages.
    pub(super) fn session_outcome(&self) -> record::Session {
        let session = self.session.as_deref();
        record::Session {
            failed: session.is_some_and(Realtime::has_failed),
            error: session.and_then(Realtime::error).cloned(),
        }
    }

    /// Returns whether an upgrade has become a session. The protocol switch confirms neither model nor key. The first
    /// message of the server confirms both.
    pub(super) fn is_accepted(&self) -> bool {
        self.session.as_deref().is_some_and(Realtime::is_accepted)
    }

    /// Returns whether the model is final.
    pub(super) fn has_final_model(&self) -> bool {
        self.asked().is_some()
            || self.answer.model.is_some()
            || self.session.as_deref().is_none_or(Realtime::has_generated)
    }

    /// Applies the response headers. Returns `false` if the request body shows that this is not a call of a known API.
    /// `now` is the time since 1970.
    pub(super) fn head(&mut self, head: &ResponseHead, route: &RouteFacts, now: Duration) -> bool {
        if self.body_decides {
            let Some(api) = self.facts().api else {
                return false;
            };
            self.api = api;
            self.series = None;
        }
        let heard = self.answer.heard.take();
        self.answer = ResponseAccumulator::new(self.asked(), &self.tokenizers);
        self.answer.heard = heard;
        self.provider = provider(self.api, route, Some(&head.headers));
        self.response_coding = ContentDecoder::new(head.headers.get("content-encoding"));
        self.response = (!self.response_coding.is_unread()).then(|| {
            let framer = Framer::new(head.headers.get("content-type"), self.api.json());
            (framer, ResponseReader::new(self.api, self.facts(), head.status))
        });
        self.quota = RateLimits::read(&head.headers, now);
        self.apply_head_events(head);
        true
    }

    /// Applies counts, timings and errors in the response headers.
    fn apply_head_events(&mut self, head: &ResponseHead) {
        let whole = self.facts().stream != Some(true);
        let answer = &mut self.answer;
        let mut content = FrameContent::default();
        let failed = dialect::is_error(head.status);
        dialect::headers::read(&head.headers, failed, whole, &mut |event| {
            answer.event(&event, &mut content, &mut |_| {});
        });
    }

    /// Applies bytes of the response body.
    pub(super) fn response(
        &mut self,
        at: MonotonicInstant,
        bytes: &[u8],
        points: &mut Timestamps,
        out: &mut impl FnMut(LiveSample),
    ) {
        let Self { response: Some((framer, reader)), response_coding, lost, answer, .. } = self
        else {
            return;
        };
        let read = response_coding.push(bytes, &mut |plain| {
            framer.push(plain, &mut |frame| {
                apply_frame(reader, answer, (at, frame), points, out);
            });
        });
        if !read {
            framer.gap();
            *lost = true;
        }
    }

    /// Ends the response body. `delivered`: HTTP delivered the body completely.
    pub(super) fn response_end(
        &mut self,
        at: MonotonicInstant,
        delivered: bool,
        points: &mut Timestamps,
        out: &mut impl FnMut(LiveSample),
    ) {
        let Self { response: Some((framer, reader)), response_coding, answer, .. } = self else {
            return;
        };
        if delivered {
            response_coding.end();
        }
        framer.finish(&mut |frame| apply_frame(reader, answer, (at, frame), points, out));
    }

    /// Returns the parse errors, each with its count.
    pub(super) fn anomalies(&mut self) -> Vec<(ParseError, u32)> {
        for coding in [&self.request_coding, &self.response_coding] {
            if let Some(error) = coding.error() {
                self.answer.odd(error);
            }
        }
        self.answer.anomalies()
    }

    /// Returns the metric labels of the call. A response below 400 confirms the names of model, tenant and variant.
    /// Before such a response, a name has a label only if another exchange has confirmed it.
    pub(super) fn series(
        &mut self,
        open: &RequestHead,
        is_confirmed: bool,
        gate: &CardinalityLimiter,
    ) -> MetricLabels {
        if let Some(series) = self.series.as_ref().filter(|_| is_confirmed) {
            return series.clone();
        }
        let series = self.name_series(open, is_confirmed, gate);
        if is_confirmed {
            self.series = Some(series.clone());
        }
        series
    }

    /// Returns everything that is known about the call after its end.
    pub(super) fn close(
        mut self,
        series: MetricLabels,
        closing: Closing,
        out: &mut impl FnMut(LiveSample),
    ) -> Call {
        let streamed = self.is_streamed();
        let complete = self.complete(closing, streamed);
        let generates = self.api.operation().generates();
        let counted = self.answer.count(out);
        // A count of 0 proves that no token was generated only if the whole response was observed.
        let seen = closing.outcome == Outcome::Ok && complete != Completeness::Unobserved;
        let answered = generates && (seen || counted.total > 0 || self.answer.usage.is_some());
        let output = answered.then(|| Output::reconcile(&counted, self.answer.usage.as_ref()));
        let rates = self.rates(closing, output.as_ref(), complete);
        let is_truncated = generates && complete == Completeness::Cut && closing.answering;
        let request = self.request.finish(self.session.as_deref());
        let seen = complete != Completeness::Unobserved;
        let (finish_reasons, choices) = self.answer.finish_reasons(is_truncated, seen);
        let heard = self.answer.heard.as_deref();
        let captured = self
            .asked
            .map(|asked| Box::new(content::assemble(self.api, *asked, heard, &finish_reasons)));
        let usage = self.answer.usage;
        Call {
            bands: LengthBuckets::of(&request, usage.as_ref(), output.as_ref()),
            series,
            streamed,
            finish_reasons,
            choices,
            content: captured,
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

    fn rates(
        &mut self,
        closing: Closing,
        output: Option<&Output>,
        complete: Completeness,
    ) -> Rates {
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
            let seen = complete != Completeness::Unobserved;
            return Rates::of_stream(&closing.points, tokens, blocked, seen);
        }
        // A session consists of many responses with silence between them, so it has no rate.
        let one = closing.websocket.is_none() && complete == Completeness::True;
        let rates = one.then(|| Rates::of_whole(&closing.points, output.tokens));
        rates.unwrap_or_default()
    }

    fn framer(&self) -> Option<&Framer> {
        self.response.as_ref().map(|(framer, _)| framer)
    }

    fn complete(&self, closing: Closing, streamed: bool) -> Completeness {
        // If there is no framer, the body was not parsed, because its content encoding is unknown.
        let unread = closing.answering && self.response.is_none();
        let missed = closing.websocket.is_some_and(|socket| socket.lost || socket.compressed);
        if closing.gap || unread || missed || self.lost {
            return Completeness::Unobserved;
        }
        let ended = if let Some(socket) = &closing.websocket {
            socket.is_finished()
        } else if streamed {
            self.is_finished(closing.delivered)
        } else {
            closing.delivered && !self.response_coding.is_short()
        };
        if ended { Completeness::True } else { Completeness::Cut }
    }

    fn name_series(
        &self,
        open: &RequestHead,
        is_confirmed: bool,
        gate: &CardinalityLimiter,
    ) -> MetricLabels {
        let (route, who) = (&open.route, &open.who);
        let label = |dimension, name: &Name| match is_confirmed {
            true => gate.admit(dimension, name),
            false => gate.known(dimension, name).unwrap_or_else(|| Label::known(OTHER)),
        };
        let asked = self.asked().or(self.answer.model.as_ref());
        let model =
            asked.map_or_else(|| Label::known("unknown"), |model| label(Dimension::Model, model));
        MetricLabels {
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

/// Parses one frame and applies its events.
fn apply_frame(
    reader: &mut ResponseReader,
    answer: &mut ResponseAccumulator,
    (at, frame): (MonotonicInstant, Frame<'_>),
    points: &mut Timestamps,
    out: &mut impl FnMut(LiveSample),
) {
    let mut content = FrameContent::default();
    reader.read(&frame, &mut |event| answer.event(&event, &mut content, out));
    if matches!(frame, Frame::Event { .. }) {
        answer.chunk(at, content, points, out);
    }
}

fn provider(api: Api, route: &RouteFacts, headers: Option<&Headers>) -> Label {
    let host = Some(route.server_address.as_str());
    dialect::provider(api, route.provider.as_ref(), host, headers)
}
