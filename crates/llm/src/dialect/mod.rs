//! Translates API formats. Requests become facts, such as the model. Responses become events that are the same for all
//! formats.
//!
//! `reader` and `request_paths` select the format of an API. Most formats are a table (`table::Table`). The other
//! formats implement `response::Format`. A format never returns an error: it skips unknown content and reports
//! malformed input as a [`ParseError`](crate::frame::ParseError).

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a reader matches the fields that it uses and skips the others"
)]

mod anthropic;
mod api;
mod bedrock;
mod characters;
mod clouds;
mod cohere;
mod cumulative;
mod delta_template;
mod detect;
mod emit;
mod engines;
mod errors;
mod event;
mod fault;
mod finish;
mod form;
mod google;
pub mod headers;
mod json;
mod lenient;
mod lm_studio;
mod mcp;
mod normal_path;
mod openai;
mod provider;
mod rate_limits;
mod repair;
mod replicate;
mod request;
mod request_reader;
mod response;
mod table;
#[cfg(test)]
mod testing;
mod token_count;
mod usage;

pub use api::{Api, Operation};
pub use detect::{DetectedApi, RequestTarget, detect, is_certain, is_hint};
pub use event::{ByModality, Event, EventSink, Part, RequestFacts, TextKind, Timings, Usage};
pub use fault::{ErrorFacts, blames_client};
pub use finish::FinishMeaning;
pub use mcp::{McpMessage, McpReader};
pub use openai::{Realtime, TurnMessage};
pub use provider::{provider_by_headers, provider_by_host};
pub use rate_limits::{RateLimit, RateLimits};
pub use request_reader::RequestReader;

use crate::budget::RequestBudget;
use crate::frame::Frame;
use finish::FailedChoices;
use request::RequestPaths;
use response::FormatReader;
use table::TableReader;
use tokengauge_types::label_enum;

/// The lowest HTTP status with a response body that is only an error.
const FIRST_ERROR: u16 = 400;

label_enum! {
    /// A family of API formats. The setting `api_format` of a route can name a family.
    #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub enum Family {
        OpenAi = "openai",
        Anthropic = "anthropic",
        Google = "google",
        Bedrock = "bedrock",
        Cohere = "cohere",
        Ollama = "ollama",
        Tgi = "tgi",
        LlamaCpp = "llama_cpp",
        Sglang = "sglang",
        Vllm = "vllm",
        Triton = "triton",
        Watsonx = "watsonx",
        Replicate = "replicate",
        DashScope = "dashscope",
        Cloudflare = "cloudflare",
        AlephAlpha = "aleph_alpha",
        LmStudio = "lm_studio",
    }
}

/// Reads the response of one call.
#[derive(Debug)]
pub struct ResponseReader {
    reader: Reader,
    failed_choices: FailedChoices,
}

impl ResponseReader {
    /// Creates a reader for the response to `request`. If `status` is an error, the body is read only as an error.
    pub fn new(api: Api, request: &RequestFacts, status: u16, budget: &RequestBudget) -> Self {
        let reader = reader(api, request, is_error(status), budget);
        Self { reader, failed_choices: FailedChoices::new(api) }
    }

    /// Reads the next frame (a message or a piece of the body) and passes its events to `out`.
    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl EventSink) {
        let Self { reader, failed_choices } = self;
        // The record belongs to the thread, and a message that is only an error leaves its own in it.
        lenient::take_misfit();
        reader.read(frame, &mut |event| {
            failed_choices.observe(&event);
            out(event);
        });
        if !matches!(frame, Frame::BodyChunk(_)) {
            failed_choices.end(out);
        }
    }
}

macro_rules! readers {
    ($($variant:ident($reader:ty),)*) => {
        /// The reader of one API format.
        #[derive(Debug)]
        enum Reader {
            $($variant(Box<$reader>)),*
        }

        impl Reader {
            /// Like [`ResponseReader::read`]. `out` is a trait object, so that the readers are compiled once, and not
            /// for each of three callers.
            fn read(&mut self, frame: &Frame<'_>, mut out: &mut dyn FnMut(Event<'_>)) {
                match self {
                    $(Self::$variant(reader) => reader.read(frame, &mut out)),*
                }
            }
        }

        $(impl From<$reader> for Reader {
            fn from(reader: $reader) -> Self {
                Self::$variant(Box::new(reader))
            }
        })*
    };
}

readers! {
    Table(TableReader),
    Chat(FormatReader<openai::Chat>),
    Responses(FormatReader<openai::Responses>),
    Media(openai::MediaReader),
    Messages(FormatReader<anthropic::Messages>),
    Generate(FormatReader<google::Generate>),
    Invoke(bedrock::Invoke),
    Replicate(replicate::Replicate),
    LmStudio(FormatReader<lm_studio::LmStudio>),
}

/// Returns a reader for the response to `request`. `failed` is set if the status is an error.
fn reader(api: Api, request: &RequestFacts, failed: bool, budget: &RequestBudget) -> Reader {
    let table = match api.family() {
        Family::OpenAi => return openai::reader(api, request, failed, budget),
        Family::Anthropic => return anthropic::reader(failed, budget),
        Family::Google => return google::reader(api, request, failed),
        Family::Bedrock => return bedrock::reader(api, failed, budget),
        Family::Replicate => return replicate::Replicate::new(failed).into(),
        Family::LmStudio => return lm_studio::reader(failed, budget),
        Family::Watsonx if api == Api::WatsonxChat => {
            return openai::reader(Api::OpenAiChat, request, failed, budget);
        }
        Family::Cohere => cohere::table(api),
        Family::Watsonx => &clouds::WATSONX,
        Family::DashScope => &clouds::DASHSCOPE,
        Family::Cloudflare => &clouds::CLOUDFLARE,
        Family::AlephAlpha => &clouds::ALEPH_ALPHA,
        Family::Ollama => &engines::OLLAMA,
        Family::Tgi => &engines::TGI,
        Family::LlamaCpp => &engines::LLAMA_CPP,
        Family::Sglang => &engines::SGLANG,
        Family::Vllm => &engines::VLLM,
        Family::Triton => &engines::TRITON,
    };
    table.reader(request, failed).into()
}

/// Returns the paths of the values that are read from a request of this API.
pub fn request_paths(api: Api) -> &'static RequestPaths {
    match api.family() {
        Family::OpenAi => &openai::REQUEST,
        Family::Anthropic => &anthropic::REQUEST,
        Family::Google => &google::REQUEST,
        Family::Bedrock => bedrock::request_paths(api),
        Family::Cohere => &cohere::REQUEST,
        Family::Replicate => &replicate::REQUEST,
        Family::Watsonx => &clouds::WATSONX_REQUEST,
        Family::DashScope => &clouds::DASHSCOPE_REQUEST,
        Family::Cloudflare => &clouds::CLOUDFLARE_REQUEST,
        Family::AlephAlpha => &clouds::ALEPH_ALPHA_REQUEST,
        Family::LmStudio => &lm_studio::REQUEST,
        Family::Ollama => &engines::OLLAMA_REQUEST,
        Family::Tgi | Family::LlamaCpp | Family::Sglang | Family::Vllm | Family::Triton => {
            &engines::REQUEST
        }
    }
}

/// Returns whether the body of a response with this status is an error.
pub const fn is_error(status: u16) -> bool {
    status >= FIRST_ERROR
}
