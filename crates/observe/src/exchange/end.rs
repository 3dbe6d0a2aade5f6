//! The end of a request: determines its session and outcome, and creates the record.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::ObservedExchange;
use super::protocol::Protocol;
use crate::api_call::{ApiCall, Closing};
use tokengauge_llm::frame::ParseError;
use tokengauge_measure::record::{self, Http, Record, ResponseSummary};
use tokengauge_measure::timing::{LiveSample, Stall, edge_wait};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{Ending, RequestHead};

impl ObservedExchange {
    /// Ends the request and returns its record.
    pub fn end(
        mut self,
        at: MonotonicInstant,
        ending: Ending,
        out: &mut impl FnMut(LiveSample),
    ) -> Record {
        self.finish(at, ending, out)
    }

    /// Like [`end`](Self::end). If parsing panics, the record has the facts about HTTP only.
    pub(crate) fn end_despite_panic(
        mut self,
        at: MonotonicInstant,
        ending: Ending,
        out: &mut impl FnMut(LiveSample),
    ) -> Record {
        let finished = catch_unwind(AssertUnwindSafe(|| self.finish(at, ending, out)));
        finished.unwrap_or_else(|_| {
            self.abort();
            self.protocol = Protocol::Plain;
            self.finish(at, ending, out)
        })
    }

    fn finish(
        &mut self,
        at: MonotonicInstant,
        ending: Ending,
        out: &mut impl FnMut(LiveSample),
    ) -> Record {
        self.timestamps.end = Some(at);
        report_end_of_stall(self.stall_clock.stop(at), out);
        if self.head.is_none() {
            self.select_api(true);
        }
        self.end_call(at, ending == Ending::Complete, out);
        let websocket = self.websocket().copied();
        let (outcome, error_source, error_type) = match &websocket {
            Some(socket) => {
                let session = self.protocol.call().map(ApiCall::session_outcome);
                socket.classify(ending, &session.unwrap_or_default())
            }
            None => record::classify(ending, &self.answered(ending)),
        };
        let series = self.metric_labels();
        let answering = self.is_answering();
        let call = self.protocol.take_call();
        let mut record = Record {
            exchange: self.id,
            wall: self.request_head.wall,
            edge_wait: edge_wait(self.request_head.starts(), self.request_head.wall),
            timestamps: self.timestamps,
            stages: self.timestamps.stages(),
            route: Arc::clone(&self.request_head.route),
            caller: self.request_head.identity.clone(),
            trace: self.request_head.trace.clone(),
            http: self.http(),
            websocket,
            call: None,
            mcp: None,
            outcome,
            ending,
            error_source,
            error_type,
            connected: self.connected.take().map(|connected| *connected),
            network: self.connections.report(),
            blocked: self.blocked,
            anomalies: Vec::new(),
            is_turn: self.is_turn,
            gateway_usage: self.gateway_usage,
        };
        if let (Some(mut call), Some(series)) = (call, series) {
            record.anomalies = call.anomalies();
            let (gap, queue_depth) = (self.gap, self.queue_depth);
            let closing = Closing { record: &record, gap, answering, queue_depth };
            let mut call = call.close(series, closing, out);
            call.stalls = std::mem::take(&mut self.stall_clock).into_stalls();
            let head = &mut *self.request_head;
            let conversation =
                call.request.conversation.take().or_else(|| head.conversation.take());
            call.request.conversation = conversation.and_then(|id| head.session_rule.recorded(id));
            record.call = Some(call);
        }
        self.end_messages(at, ending, &mut record);
        let broke_off = [(self.gap, ParseError::Gap), (self.broken, ParseError::Panic)];
        record
            .anomalies
            .extend(broke_off.iter().filter(|(is, _)| *is).map(|(_, anomaly)| (*anomaly, 1)));
        record
    }

    /// Adds the messages of the Model Context Protocol and the parse errors of a WebSocket to the record.
    fn end_messages(&mut self, at: MonotonicInstant, ending: Ending, record: &mut Record) {
        match &mut self.protocol {
            Protocol::Mcp(_) => {
                let protocol = std::mem::replace(&mut self.protocol, Protocol::Plain);
                if let Protocol::Mcp(mcp) = protocol
                    && let Some((mcp, errors)) = mcp.finish(at)
                {
                    record.mcp = Some(Box::new(mcp));
                    record.anomalies.extend(errors);
                }
            }
            Protocol::WebSocket(socket) => {
                record.anomalies.extend(socket.session.finish(ending == Ending::Complete));
            }
            Protocol::Plain | Protocol::Call(_) => {}
        }
    }

    /// Ends the parsing of the call. The request becomes plain HTTP if its complete response contradicts the API.
    fn end_call(
        &mut self,
        at: MonotonicInstant,
        is_complete: bool,
        out: &mut impl FnMut(LiveSample),
    ) {
        if let Some(call) = self.protocol.call_mut() {
            call.request_end(false);
            call.response_end(at, is_complete, &mut self.timestamps, out);
        }
        self.resolve_session();
        if is_complete {
            self.protocol.take_call_if(|call| call.is_contradicted(self.response_bytes));
            if let Some(call) = self.protocol.call_mut() {
                call.require_answer();
            }
        }
    }

    /// Uses the session in the request body, if its source is preferred to the source of the session in the headers.
    pub(super) fn resolve_session(&mut self) {
        let RequestHead { identity, session_rule, .. } = &mut *self.request_head;
        let call = self.protocol.call().filter(|_| session_rule.detect);
        let Some(signal) = call.and_then(|call| call.facts().session.as_ref()) else { return };
        if identity.session_source.is_none_or(|found| signal.source < found) {
            identity.session = session_rule.recorded(signal.id.clone());
            identity.session_source = Some(signal.source);
        }
    }

    fn answered(&self, ending: Ending) -> ResponseSummary {
        let call = self.protocol.call();
        let delivered = ending == Ending::Complete;
        let streamed = call.is_some_and(ApiCall::is_streamed);
        ResponseSummary {
            status: self.head.as_ref().map(|head| head.status),
            own: self.head.as_ref().is_some_and(|head| head.from_proxy),
            streamed,
            finished: streamed && call.is_some_and(|call| call.is_finished(delivered)),
            lost: call.is_some_and(ApiCall::is_lost),
            failed: call.is_some_and(|call| call.response.facts.failed),
            failure: call.and_then(|call| call.response.facts.error_type.clone()),
            provider: call.map(|call| call.provider(&self.request_head.route)),
        }
    }

    fn http(&mut self) -> Http {
        let bytes = [self.request_bytes, self.response_bytes];
        Http::from_heads(&mut self.request_head, self.head.as_deref_mut(), bytes)
    }
}

pub(super) fn report_end_of_stall(ended: Option<Stall>, out: &mut impl FnMut(LiveSample)) {
    if let Some(stall) = ended {
        out(LiveSample::Resumed(stall));
    }
}
