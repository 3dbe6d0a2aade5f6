//! API formats: reads requests as facts, and frames of responses as events.
//!
//! Each format is one module with a row of `families!`. It has a `Reader` of responses, `reader` that creates it, and
//! `request_paths`. A format never returns an error: it skips what it does not understand and reports malformed input as
//! an [`ParseError`](crate::frame::ParseError).

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a reader matches the fields that it uses and skips the others"
)]

mod aleph_alpha;
mod anthropic;
mod api;
mod bedrock;
mod characters;
mod cloudflare;
mod cohere;
mod cumulative;
mod dashscope;
mod detect;
mod emit;
mod engine_request;
mod error_field;
mod errors;
mod event;
mod form;
mod google;
pub mod headers;
mod json;
mod lenient;
mod llama_cpp;
mod ollama;
mod openai;
mod provider;
mod rate_limits;
mod repair;
mod replicate;
mod request;
mod request_reader;
mod response;
mod result_usage;
mod sglang;
mod table;
#[cfg(test)]
mod testing;
mod tgi;
mod triton;
mod uncached_usage;
mod vllm;
mod watsonx;

pub use api::{Api, Operation};
pub use detect::{DetectedApi, RequestTarget, detect, is_hint};
pub use event::{ByModality, Event, Part, RequestFacts, TextKind, Timings, Usage};
pub use openai::Realtime;
pub use provider::provider;
pub use rate_limits::{RateLimit, RateLimits};
pub use request_reader::RequestReader;

use crate::frame::Frame;
use request::RequestPaths;

/// The first status whose body is an error and nothing else.
const FIRST_ERROR: u16 = 400;

macro_rules! families {
    ($($family:ident = $name:literal in $module:ident;)*) => {
        /// A family of formats, which the setting `dialect` of a route may name.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub enum Family {
            $($family),*
        }

        impl Family {
            pub const ALL: [Self; [$(stringify!($family)),*].len()] = [$(Self::$family),*];

            /// Returns the name in configuration and documentation.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$family => $name),*
                }
            }
        }

        /// Reads the response of one call.
        #[derive(Debug)]
        pub struct ResponseReader(Format);

        #[derive(Debug)]
        enum Format {
            $($family(Box<$module::Reader>)),*
        }

        impl ResponseReader {
            /// Creates a reader of the response to `request`. The body of an error status is read only as an error.
            pub fn new(api: Api, request: &RequestFacts, status: u16) -> Self {
                let failed = is_error(status);
                Self(match api.family() {
                    $(Family::$family => Format::$family(Box::new($module::reader(api, request, failed)))),*
                })
            }

            /// Reads the next frame and passes its events to `out`.
            pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
                match &mut self.0 {
                    $(Format::$family(reader) => reader.read(frame, out)),*
                }
            }
        }

        /// Returns the values of a request that are read.
        pub fn request_paths(api: Api) -> &'static RequestPaths {
            match api.family() {
                $(Family::$family => $module::request_paths(api)),*
            }
        }
    };
}

// Family = name, module.
families! {
    OpenAi = "openai" in openai;
    Anthropic = "anthropic" in anthropic;
    Google = "google" in google;
    Bedrock = "bedrock" in bedrock;
    Cohere = "cohere" in cohere;
    Ollama = "ollama" in ollama;
    Tgi = "tgi" in tgi;
    LlamaCpp = "llama_cpp" in llama_cpp;
    Sglang = "sglang" in sglang;
    Vllm = "vllm" in vllm;
    Triton = "triton" in triton;
    Watsonx = "watsonx" in watsonx;
    Replicate = "replicate" in replicate;
    DashScope = "dashscope" in dashscope;
    Cloudflare = "cloudflare" in cloudflare;
    AlephAlpha = "aleph_alpha" in aleph_alpha;
}

/// Returns whether the body of a response with this status is an error.
pub const fn is_error(status: u16) -> bool {
    status >= FIRST_ERROR
}
