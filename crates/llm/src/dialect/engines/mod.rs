//! What inference engines speak natively, beside OpenAI's formats: text generation inference, llama.cpp, SGLang, vLLM's
//! own server, and Triton's generate extension, which KServe has too.

mod llama_cpp;
mod request;
mod sglang;
mod shares;
mod tgi;
mod triton;
mod vllm;

use super::asked::Format;
use super::shapes::{self, Shapes};
use super::{Api, Event, Part, RequestFacts};
use crate::frame::Frame;

pub const REQUEST: Format = Format { keys: request::KEYS, take: request::take };

/// Reads the answer of one call.
#[derive(Debug)]
pub enum Response {
    Tgi(Shapes<tgi::Stream, tgi::Whole>),
    LlamaCpp(Shapes<llama_cpp::Stream, llama_cpp::Whole>),
    Sglang(Shapes<sglang::Stream, sglang::Whole>),
    Vllm(Shapes<vllm::Stream, vllm::Whole>),
    Triton(Shapes<triton::Stream, triton::Whole>),
}

impl Response {
    /// `failed`: the status says that the answer is an error.
    pub fn new(api: Api, asked: &RequestFacts, failed: bool) -> Self {
        if api == Api::LlamaCppCompletion {
            let stream = llama_cpp::Stream::new(asked);
            Self::LlamaCpp(Shapes::of(failed, stream, llama_cpp::Whole::new(asked)))
        } else if api == Api::SglangGenerate {
            let stream = sglang::Stream::new(asked);
            Self::Sglang(Shapes::of(failed, stream, sglang::Whole::new(asked)))
        } else if api == Api::VllmGenerate {
            let stream = vllm::Stream::new(asked);
            Self::Vllm(Shapes::of(failed, stream, vllm::Whole::new(asked)))
        } else if api == Api::TritonGenerate {
            let stream = triton::Stream::default();
            Self::Triton(Shapes::of(failed, stream, triton::Whole::new(asked)))
        } else {
            let stream = tgi::Stream::default();
            Self::Tgi(Shapes::of(failed, stream, tgi::Whole::new(asked)))
        }
    }

    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        match self {
            Self::Tgi(shapes) => shapes.read(frame, out),
            Self::LlamaCpp(shapes) => shapes.read(frame, out),
            Self::Sglang(shapes) => shapes.read(frame, out),
            Self::Vllm(shapes) => shapes.read(frame, out),
            Self::Triton(shapes) => shapes.read(frame, out),
        }
    }
}

fn say(choice: u32, text: &str, out: &mut impl FnMut(Event<'_>)) {
    shapes::say(Part::Text, choice, text, out);
}

#[cfg(test)]
mod tests;
