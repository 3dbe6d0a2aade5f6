//! Reads a request's facts as its body goes by, whatever the API.

use super::openai;
use super::{Api, RequestFacts};

/// Reads what a request asks for from its body, as it comes, keeping none of it.
#[derive(Debug)]
pub struct RequestReader {
    format: Format,
    lost: bool,
}

#[derive(Debug)]
enum Format {
    OpenAi(openai::Request),
}

impl RequestReader {
    pub fn new(api: Api) -> Self {
        let format = match api {
            Api::OpenAiChat | Api::OpenAiCompletions | Api::OpenAiEmbeddings => {
                Format::OpenAi(openai::Request::new())
            }
        };
        Self {
            format,
            lost: false,
        }
    }

    /// Takes the next bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        match &mut self.format {
            Format::OpenAi(request) if !self.lost => request.push(bytes),
            Format::OpenAi(_) => {}
        }
    }

    /// Bytes were lost: what follows is not read, what was understood before still counts.
    pub fn gap(&mut self) {
        self.lost = true;
    }

    /// What is known so far.
    pub fn facts(&self) -> &RequestFacts {
        match &self.format {
            Format::OpenAi(request) => request.facts(),
        }
    }

    pub fn finish(self) -> RequestFacts {
        match self.format {
            Format::OpenAi(request) => request.into_facts(),
        }
    }
}
