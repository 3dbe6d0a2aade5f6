//! State of a request to a known API: facts about the request and the response, and the metric labels.

use std::sync::Arc;
use std::time::Duration;

use crate::provider;
use crate::request_state::RequestState;
use crate::response::{FrameContent, ObservedResponse};
use tokengauge_llm::BodyReader;
use tokengauge_llm::budget::RequestBudget;
use tokengauge_llm::content::{self, CapturePolicy, RequestCapture};
use tokengauge_llm::count::Tokenizers;
use tokengauge_llm::decode::ContentDecoder;
use tokengauge_llm::dialect::{
    Api, DetectedApi, Event, Operation, RateLimits, Realtime, RequestFacts, RequestReader,
};
use tokengauge_llm::frame::ParseError;
use tokengauge_measure::record::{
    self, Call, Completeness, LengthBuckets, MetricLabels, Outcome, Output, Record, TokenCounts,
};
use tokengauge_measure::timing::{LiveSample, Rates, Stalls, Timestamps};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{Direction, Ending, RequestHead, ResponseHead, RouteFacts};
use tokengauge_types::label::{CardinalityLimiter, Dimension, Label, Name};

#[derive(Debug)]
pub(super) struct ApiCall {
    api: Api,
    request: RequestState,
    /// Whether only the request body shows which API is called, because several APIs share the path.
    body_decides: bool,
    /// Whether nothing but a call of this API can have the request's headers.
    is_certain: bool,
    request_coding: ContentDecoder,
    /// Created with the response headers.
    body: Option<BodyReader>,
    /// The HTTP status of the response, or 0 before the headers.
    status: u16,
    /// State of a WebSocket session, in both directions.
    session: Option<Box<Realtime>>,
    pub(super) response: ObservedResponse,
    /// Metric labels. `None` until a successful response has confirmed the names.
    series: Option<MetricLabels>,
    /// Rate limits in the response headers.
    pub(super) quota: Option<RateLimits>,
    tokenizers: Tokenizers,
    budget: RequestBudget,
    /// The captured request body, if content is captured.
    request_capture: Option<Box<RequestCapture>>,
}

/// Facts about the request that [`ApiCall::close`] needs at its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closing<'a> {
    pub(super) record: &'a Record,
    /// Whether a part of the request was not observed.
    pub(super) gap: bool,
    /// Whether a response below 400 had begun.
    pub(super) answering: bool,
    pub(super) queue_depth: u32,
}

impl ApiCall {
    pub(super) fn new(
        (found, is_certain): (DetectedApi, bool),
        open: &RequestHead,
        tokenizers: &Tokenizers,
        budget: &RequestBudget,
    ) -> Self {
        let api = found.api;
        Self {
            api,
            request: RequestState::Parsing(Box::new(RequestReader::new(&found))),
            body_decides: found.body_decides,
            is_certain,
            request_coding: ContentDecoder::new(open.headers.get("content-encoding"), budget),
            body: None,
            status: 0,
            session: None,
            response: ObservedResponse::new(None, (tokenizers, budget), None),
            series: None,
            quota: None,
            tokenizers: tokenizers.clone(),
            budget: budget.clone(),
            request_capture: None,
        }
    }

    /// Starts to capture the content of the request and the response.
    pub(super) fn capture(&mut self, policy: &Arc<CapturePolicy>) {
        let request_capture = RequestCapture::new(policy, &self.budget);
        self.response.capture = request_capture.heard().map(Box::new);
        self.request_capture = Some(Box::new(request_capture));
    }

    pub(super) fn facts(&self) -> &RequestFacts {
        match &self.session {
            Some(session) => session.facts(),
            None => self.request.facts(),
        }
    }

    /// Returns the requested model, from the messages of a WebSocket session, or else from the body, path or query of
    /// the request.
    pub(super) fn requested_model(&self) -> Option<&Name> {
        let facts = self.request.facts();
        self.facts().model.as_ref().or(facts.model.as_ref())
    }

    /// Returns whether the call is a streamed generation. The response headers decide. Before they arrive, the request
    /// decides.
    pub(super) fn is_stream(&self) -> bool {
        let answered = self.body.as_ref().and_then(BodyReader::is_stream);
        self.api.operation().generates()
            && answered.unwrap_or_else(|| self.facts().stream == Some(true))
    }

    /// Returns whether the response is complete: the provider's end marker was received. For an API without end
    /// markers, the end of the body (`delivered`) is enough.
    ///
    /// Before the end of the body, every requested choice (alternative answer) must have stopped, because a choice may
    /// not have begun yet.
    pub(super) fn is_finished(&self, delivered: bool) -> bool {
        let requested = self.facts().choices.filter(|_| !delivered);
        let fewest = requested.and_then(|requested| usize::try_from(requested).ok());
        self.response.facts.is_finished(fewest.unwrap_or_default())
            || (delivered && (self.response.facts.has_final_usage() || !self.api.marks_end()))
    }

    /// Returns whether no further token is expected, because the provider's final event or an error was received.
    pub(super) fn is_stream_over(&self) -> bool {
        self.response.facts.failed || self.is_finished(false)
    }

    pub(super) fn is_streamed(&self) -> bool {
        self.body.as_ref().and_then(BodyReader::is_stream).unwrap_or(false)
    }

    /// Returns whether a further token of a stream is expected. `answered` is true if the response headers were
    /// received.
    pub(super) fn is_awaiting(&self, answered: bool) -> bool {
        let is_read = self.body.as_ref().map_or(!answered, |body| !body.is_unread());
        self.is_stream() && is_read && !self.is_lost() && !self.is_stream_over()
    }

    /// Returns whether a part of the response body was not parsed.
    pub(super) fn is_lost(&self) -> bool {
        self.body.as_ref().is_some_and(BodyReader::is_lossy)
    }

    /// Parses bytes of the request body. Returns `false` if some bytes were not parsed because of a limit or the memory
    /// budget.
    pub(super) fn request(&mut self, bytes: &[u8]) -> bool {
        let Self { request, request_capture, .. } = self;
        if let RequestState::Parsing(reader) = request
            && !self.request_coding.push(bytes, &mut |plain| {
                reader.push(plain);
                if let Some(request_capture) = request_capture {
                    request_capture.push(plain);
                }
            })
        {
            reader.gap();
        }
        !self.request_coding.is_given_up()
    }

    /// Ends the request body. `sent` is true if the whole body was sent.
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
                if let Some(request_capture) = &mut self.request_capture {
                    request_capture.gap();
                }
                if let RequestState::Parsing(reader) = &mut self.request {
                    reader.gap();
                }
            }
            Direction::Response => {
                if let Some(body) = &mut self.body {
                    body.gap();
                }
            }
        }
    }

    /// Continues the call as a WebSocket. Returns whether the messages of this API can be parsed.
    pub(super) fn upgrade(&mut self) -> bool {
        let sessions = self.api == Api::OpenAiRealtime;
        self.session = sessions.then(|| Box::new(Realtime::new()));
        // The capture ends, because a session has messages instead of a request and a response.
        (self.request_capture, self.response.capture) = (None, None);
        sessions
    }

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
        let mut take = |event: Event<'_>| self.response.event(&event, &mut content, out);
        match direction {
            Direction::Request => session.client(text, &mut take),
            Direction::Response => session.server(text, &mut take),
        }
        if (busy || content.text) && session.is_idle() {
            let parsers = (&self.tokenizers, &self.budget);
            self.response.end_turn(self.request.facts().model.as_ref(), parsers, out);
        }
    }

    pub(super) fn session_outcome(&self) -> record::Session {
        let session = self.session.as_deref();
        record::Session {
            failed: session.is_some_and(Realtime::has_failed),
            error: session.and_then(Realtime::error).cloned(),
        }
    }

    /// Returns whether a WebSocket session has begun. The status 101 confirms neither the model nor the API key. The
    /// first message of the server confirms both.
    pub(super) fn is_accepted(&self) -> bool {
        self.session.as_deref().is_some_and(Realtime::is_accepted)
    }

    pub(super) fn has_final_model(&self) -> bool {
        self.requested_model().is_some()
            || self.response.facts.model.is_some()
            || self.session.as_deref().is_none_or(Realtime::has_generated)
    }

    /// Selects the API from the keys of the request body, if several APIs share the path. Returns `false` if the body
    /// matches none of these APIs. `may_go_on` means that more of the body can follow. The API guessed from the path
    /// then stays.
    pub(super) fn select_api(&mut self, may_go_on: bool) -> bool {
        if !self.body_decides {
            return true;
        }
        let Some(api) = self.facts().api else {
            return may_go_on;
        };
        self.api = api;
        self.series = None;
        true
    }

    /// Applies the response headers. `now` is the time since the Unix epoch.
    pub(super) fn head(&mut self, head: &ResponseHead, route: &RouteFacts, now: Duration) {
        provider::learn(route, &head.headers);
        self.quota = RateLimits::read(&head.headers, now);
        let capture = self.response.capture.take();
        let parsers = (&self.tokenizers, &self.budget);
        let mut response = ObservedResponse::new(self.requested_model(), parsers, capture);
        let mut content = FrameContent::default();
        let (facts, status_and_headers) = (self.facts(), (head.status, &head.headers));
        let mut read = |event: Event<'_>| response.event(&event, &mut content, &mut |_| {});
        let body = BodyReader::new(self.api, facts, status_and_headers, &self.budget, &mut read);
        (self.response, self.body, self.status) = (response, Some(body), head.status);
    }

    /// Parses bytes of the response body. Returns `false` if some bytes were not parsed because of a limit or the
    /// memory budget.
    pub(super) fn response(
        &mut self,
        at: MonotonicInstant,
        bytes: &[u8],
        timestamps: &mut Timestamps,
        out: &mut impl FnMut(LiveSample),
    ) -> bool {
        let Self { body: Some(body), response, .. } = self else { return true };
        let mut content = FrameContent::default();
        body.push(bytes, &mut |item| response.item((at, item), &mut content, timestamps, out))
    }

    /// Ends the response body. `delivered` is true if the whole body was received.
    pub(super) fn response_end(
        &mut self,
        at: MonotonicInstant,
        delivered: bool,
        timestamps: &mut Timestamps,
        out: &mut impl FnMut(LiveSample),
    ) {
        let Self { body: Some(body), response, .. } = self else { return };
        let mut content = FrameContent::default();
        body.finish(delivered, &mut |item| {
            response.item((at, item), &mut content, timestamps, out)
        });
    }

    /// Records an error if a response that was received completely contains no answer.
    pub(super) fn require_answer(&mut self) {
        let Self { body: Some(body), response, .. } = self else { return };
        response.facts.require_answer(self.api, self.status, body);
    }

    /// Returns whether a successful response shows that the request is no call of this API: the path only ends like a
    /// path of the API, and the response is in another format. `bytes` is the size of the response body.
    pub(super) fn is_contradicted(&self, bytes: u64) -> bool {
        let facts = &self.response.facts;
        let is_read = self.body.as_ref().is_some_and(|body| !(body.is_lossy() || body.is_unread()));
        let is_foreign = !facts.failed && facts.parse_errors.is_empty() && !facts.has_answer();
        !self.is_certain
            && self.api.has_answer_in_each_body()
            && self.status < 300
            && bytes > 0
            && is_read
            && self.session.is_none()
            && is_foreign
    }

    pub(super) fn provider(&self, route: &RouteFacts) -> Label {
        provider::find(self.api, route)
    }

    /// Returns the parse errors, each with its count.
    pub(super) fn anomalies(&mut self) -> Vec<(ParseError, u32)> {
        let mut counts = std::mem::take(&mut self.response.facts.parse_errors);
        ParseError::BadCount.add_times(self.facts().bad_counts, &mut counts);
        let errors = [self.request_coding.error(), self.body.as_ref().and_then(BodyReader::error)];
        errors.into_iter().flatten().for_each(|error| error.add_to(&mut counts));
        counts
    }

    /// Returns the metric labels of the call. A response below 400 confirms the names of model, tenant and variant. An
    /// unconfirmed name is used only if another request has confirmed it, so that invented names do not create label
    /// values.
    pub(super) fn metric_labels(
        &mut self,
        open: &RequestHead,
        is_confirmed: bool,
        limiter: &CardinalityLimiter,
    ) -> MetricLabels {
        if let Some(series) = self.series.as_ref().filter(|_| is_confirmed) {
            return series.clone();
        }
        let series = self.name_series(open, is_confirmed, limiter);
        if is_confirmed {
            self.series = Some(series.clone());
        }
        series
    }

    /// Returns the record of the call, after the end of the request.
    pub(super) fn close(
        mut self,
        series: MetricLabels,
        closing: Closing<'_>,
        out: &mut impl FnMut(LiveSample),
    ) -> Call {
        let streamed = self.is_streamed();
        let complete = self.complete(closing, streamed);
        let counted = self.response.count(out);
        let output = self.output(closing, &counted, complete);
        let rates = self.rates(closing, output.as_ref(), complete);
        let needs_reason = closing.answering
            && match complete {
                Completeness::Cut => self.api.operation().generates(),
                Completeness::Complete => streamed && self.api.stops_each_choice(),
                Completeness::Unobserved => false,
            };
        let request = self.request.finish(self.session.as_deref());
        let seen = complete != Completeness::Unobserved;
        let choices = self.response.finished_choices(self.api, needs_reason, seen);
        let response_capture = self.response.capture.as_deref();
        let captured = self.request_capture.map(|request_capture| {
            Box::new(content::assemble(
                self.api,
                *request_capture,
                response_capture,
                &choices.iter().map(|choice| choice.reason.clone()).collect::<Vec<_>>(),
            ))
        });
        let facts = &mut self.response.facts;
        let is_fetched = self.api.operation() == Operation::FetchResponse;
        let usage = facts.usage.filter(|_| !is_fetched);
        Call {
            compacted: request.compacted || facts.is_compacted,
            length_buckets: LengthBuckets::from_call(&request, usage.as_ref(), output.as_ref()),
            series,
            streamed,
            choices,
            content: captured,
            response_id: facts.id.take(),
            response_model: facts.model.take(),
            service_tier: facts.service_tier.take(),
            system_fingerprint: facts.system_fingerprint.take(),
            usage,
            fetched_usage: facts.usage.filter(|_| is_fetched).map(Box::new),
            timings: facts.timings,
            quota: self.quota,
            tokenizer: output.map(|_| facts.tokenizer()),
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

    /// Returns the output tokens. Returns `None` if the call generates nothing, or if it is unknown whether it did.
    fn output(
        &self,
        closing: Closing<'_>,
        counted: &TokenCounts,
        complete: Completeness,
    ) -> Option<Output> {
        // A count of 0 is a proof only if the whole response was observed, and if the response is not generated later.
        let seen = closing.record.outcome == Outcome::Ok
            && complete != Completeness::Unobserved
            && !self.facts().background;
        let usage = self.response.facts.usage.as_ref();
        let answered = seen || counted.total > 0 || usage.is_some();
        (self.api.operation().generates() && answered).then(|| Output::reconcile(counted, usage))
    }

    fn rates(
        &mut self,
        closing: Closing<'_>,
        output: Option<&Output>,
        complete: Completeness,
    ) -> Rates {
        let Some(output) = output else { return Rates::default() };
        if self.is_streamed() {
            let blocked = self.response.timing.blocked_in_decode();
            let seen = complete != Completeness::Unobserved;
            return Rates::of_stream(&closing.record.timestamps, output, blocked, seen);
        }
        // A session consists of many responses with silence between them, so it has no rate.
        if closing.record.websocket.is_some() || complete != Completeness::Complete {
            return Rates::default();
        }
        Rates::of_whole(&closing.record.timestamps, output.tokens)
    }

    fn complete(&self, closing: Closing<'_>, streamed: bool) -> Completeness {
        let unread = closing.answering && self.body.as_ref().is_none_or(BodyReader::is_unread);
        let missed =
            closing.record.websocket.is_some_and(|socket| socket.lost || socket.compressed);
        if closing.gap || unread || missed || self.is_lost() {
            return Completeness::Unobserved;
        }
        let ended = if let Some(socket) = &closing.record.websocket {
            socket.is_finished()
        } else if streamed {
            // After an error in the stream, an end marker ends a part of the response.
            !self.response.facts.failed
                && self.is_finished(closing.record.ending == Ending::Complete)
        } else {
            closing.record.ending == Ending::Complete
                && !self.body.as_ref().is_some_and(BodyReader::is_short)
        };
        if ended { Completeness::Complete } else { Completeness::Cut }
    }

    fn name_series(
        &self,
        open: &RequestHead,
        is_confirmed: bool,
        limiter: &CardinalityLimiter,
    ) -> MetricLabels {
        let (route, identity) = (&open.route, &open.identity);
        let label =
            |dimension, name: &Name| provider::label(limiter, dimension, name, is_confirmed);
        let requested = self.requested_model().or(self.response.facts.model.as_ref());
        let model = requested
            .map_or_else(|| Label::from_trusted("unknown"), |model| label(Dimension::Model, model));
        MetricLabels {
            operation: self.api.operation(),
            provider: self.provider(route),
            model,
            stream: self.is_stream(),
            route: route.name.clone(),
            position: route.position,
            server_address: route.server_address.clone(),
            server_port: route.server_port,
            tenant: identity.tenant.as_ref().map(|name| label(Dimension::Tenant, name)),
            variant: identity.variant.as_ref().map(|name| label(Dimension::Variant, name)),
        }
    }
}
