//! Parse state of a request body.

use tokengauge_llm::dialect::{Realtime, RequestFacts, RequestReader};

/// Parse state of the request body: in progress or finished.
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

    /// Returns the facts of the request. For a session, the facts come from its messages. If the messages name no
    /// model, the model comes from the handshake.
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
