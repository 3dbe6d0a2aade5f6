//! Parse state of a request body.

use tokengauge_llm::dialect::{Realtime, RequestFacts, RequestReader};

/// Parser of the request body, or its result once the body has ended.
#[derive(Debug)]
pub(super) enum RequestState {
    Parsing(Box<RequestReader>),
    Done(Box<RequestFacts>),
}

impl RequestState {
    pub(super) fn facts(&self) -> &RequestFacts {
        match self {
            Self::Parsing(reader) => reader.facts(),
            Self::Done(facts) => facts,
        }
    }

    /// Returns what the request asks for. In a WebSocket session, the facts come from its messages. If the messages
    /// name no model, the model comes from the request that opened the session.
    pub(super) fn finish(self, session: Option<&Realtime>) -> RequestFacts {
        let facts = match self {
            Self::Parsing(reader) => reader.finish(),
            Self::Done(facts) => *facts,
        };
        match session {
            Some(session) => {
                let mut request = session.facts().clone();
                request.model = request.model.or(facts.model);
                request
            }
            None => facts,
        }
    }
}
