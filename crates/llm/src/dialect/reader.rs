//! Reads a response's events from its frames, whatever the API.

use super::api::{Api, Family};
use super::{
    Event, RequestFacts, aleph_alpha, anthropic, bedrock, cloudflare, cohere, dashscope, engines,
    google, ollama, openai, replicate, watsonx,
};
use crate::frame::Frame;

/// The first status whose body is an error and nothing else.
const FIRST_ERROR: u16 = 400;

/// Whether the body of an answer of this status is an error.
pub const fn is_error(status: u16) -> bool {
    status >= FIRST_ERROR
}

/// Reads the response of one call.
#[derive(Debug)]
pub struct ResponseReader(Response);

#[derive(Debug)]
enum Response {
    OpenAi(Box<openai::Response>),
    Anthropic(Box<anthropic::Response>),
    Google(Box<google::Response>),
    Bedrock(Box<bedrock::Response>),
    Cohere(Box<cohere::Response>),
    Ollama(Box<ollama::Response>),
    Engine(Box<engines::Response>),
    Watsonx(Box<watsonx::Response>),
    Replicate(Box<replicate::Response>),
    DashScope(Box<dashscope::Response>),
    Cloudflare(Box<cloudflare::Response>),
    AlephAlpha(Box<aleph_alpha::Response>),
}

impl ResponseReader {
    /// `asked`: what the request asked for. The body of an error status is only an error.
    pub fn new(api: Api, asked: &RequestFacts, status: u16) -> Self {
        let failed = is_error(status);
        let model = asked.model.as_ref();
        Self(match api.family() {
            Family::OpenAi => Response::OpenAi(Box::new(openai::Response::new(api, failed))),
            Family::Anthropic => Response::Anthropic(Box::new(anthropic::Response::new(failed))),
            Family::Google => Response::Google(Box::new(google::Response::new(api, model, failed))),
            Family::Bedrock => Response::Bedrock(Box::new(bedrock::Response::new(api, failed))),
            Family::Cohere => Response::Cohere(Box::new(cohere::Response::new(api, model, failed))),
            Family::Ollama => Response::Ollama(Box::new(ollama::Response::new(failed))),
            Family::Tgi | Family::LlamaCpp | Family::Sglang | Family::Vllm | Family::Triton => {
                Response::Engine(Box::new(engines::Response::new(api, asked, failed)))
            }
            Family::Watsonx => Response::Watsonx(Box::new(watsonx::Response::new(api, failed))),
            Family::Replicate => Response::Replicate(Box::new(replicate::Response::new(failed))),
            Family::DashScope => Response::DashScope(Box::new(dashscope::Response::new(failed))),
            Family::Cloudflare => Response::Cloudflare(Box::new(cloudflare::Response::new(failed))),
            Family::AlephAlpha => {
                Response::AlephAlpha(Box::new(aleph_alpha::Response::new(asked, failed)))
            }
        })
    }

    /// Takes the next frame and calls `out` for everything that it says.
    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        if let Frame::Odd(anomaly) = frame {
            return out(Event::Odd(*anomaly));
        }
        match &mut self.0 {
            Response::OpenAi(response) => response.read(frame, out),
            Response::Anthropic(response) => response.read(frame, out),
            Response::Google(response) => response.read(frame, out),
            Response::Bedrock(response) => response.read(frame, out),
            Response::Cohere(response) => response.read(frame, out),
            Response::Ollama(response) => response.read(frame, out),
            Response::Engine(response) => response.read(frame, out),
            Response::Watsonx(response) => response.read(frame, out),
            Response::Replicate(response) => response.read(frame, out),
            Response::DashScope(response) => response.read(frame, out),
            Response::Cloudflare(response) => response.read(frame, out),
            Response::AlephAlpha(response) => response.read(frame, out),
        }
    }
}
