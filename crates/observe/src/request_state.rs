//! The facts of a request: while its body is being read, and after that.

use tokengauge_llm::dialect::{Realtime, RequestFacts, RequestReader};

/// The request's body: being read, then read.
#[derive(Debug)]
pub(super) enum RequestState {
    Still(Box<RequestReader>),
    Done(Box<RequestFacts>),
}

impl RequestState {
    pub(super) fn facts(&self) -> &RequestFacts {
        match self {
            Self::Still(reader) => reader.facts(),
            Self::Done(facts) => facts,
        }
    }

    /// What was asked for: of a session, in its messages, and the model before them.
    pub(super) fn finish(self, session: Option<&Realtime>) -> RequestFacts {
        let asked = match self {
            Self::Still(reader) => reader.finish(),
            Self::Done(facts) => *facts,
        };
        match session {
            Some(session) => {
                let mut request = session.facts().clone();
                request.model = request.model.or(asked.model);
                request
            }
            None => asked,
        }
    }
}
