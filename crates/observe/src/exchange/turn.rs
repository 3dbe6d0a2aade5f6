//! Calls inside a WebSocket, each of which is an exchange of its own.

use std::sync::Arc;

use super::ObservedExchange;
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{RequestHead, TraceContext};
use tokengauge_types::label::Name;

impl ObservedExchange {
    /// Marks the request as a call inside a WebSocket. Its request was a message, so it is detected as if it was posted.
    pub(crate) const fn mark_turn(&mut self) {
        self.is_turn = true;
    }

    /// Returns the headers of a call inside this WebSocket, which begins at `at`. The call gets its own spans below the
    /// span of the WebSocket. Headers that identify the request or its start are left out.
    pub(crate) fn turn_head(&self, at: MonotonicInstant) -> Box<RequestHead> {
        let RequestHead { route, trace, identity, session_rule, .. } = &*self.request_head;
        let kept = ["openai-beta", "user-agent", "x-stainless-lang"];
        let headers = self.request_head.headers.iter().filter(|(name, _)| kept.contains(name));
        Box::new(RequestHead {
            wall: self.request_head.wall + at.since(self.timestamps.accept),
            method: self.request_head.method.clone(),
            path: self.request_head.path.clone(),
            whole_path: None,
            model: self.request_head.model.clone(),
            host: self.request_head.host.clone(),
            version: self.request_head.version,
            scheme: self.request_head.scheme,
            headers: headers.filter_map(|(name, value)| Some((name, Name::new(value)?))).collect(),
            length: None,
            client: self.request_head.client,
            connection: None,
            route: Arc::clone(route),
            trace: TraceContext {
                trace_id: trace.trace_id,
                parent: Some(trace.server_span),
                parent_sampled: trace.parent_sampled,
                server_span: fastrand::u64(1..).to_be_bytes(),
                client_span: fastrand::u64(1..).to_be_bytes(),
                state: trace.state.clone(),
            },
            conversation: self.request_head.conversation.clone(),
            identity: identity.clone(),
            session_rule: session_rule.clone(),
            body_wait: Arc::default(),
        })
    }
}
