//! Amazon's formats: Bedrock's Converse and Invoke, and SageMaker's invocations.
//!
//! Converse is one format for all models. Invoke and SageMaker hand on what the model itself writes: Bedrock wraps each
//! message of it in `{"bytes": BASE64}`, SageMaker cuts a stream of it into parts wherever it likes.

mod converse;
mod counts;
mod inner;
mod native;
mod request;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;
use serde::Deserialize;

use counts::RawUsage;
use inner::Inner;

use super::asked::Format;
use super::lenient::{Object, Text};
use super::{Api, Event, Usage};
use crate::frame::{Anomaly, Frame, Framer, Json};

/// How the request of an API is read. Where the path leaves open which API it is for, the body tells.
pub const fn request(api: Api) -> Format {
    let take = if matches!(api, Api::BedrockConverse | Api::BedrockCountTokens) {
        request::take
    } else if matches!(api, Api::SageMakerInvocations | Api::SageMakerChat) {
        request::take_sagemaker
    } else {
        request::take_invoke
    };
    Format { keys: request::KEYS, take }
}

/// What Bedrock adds to the last message of a model's stream.
const METRICS: &str = "amazon-bedrock-invocationMetrics";

/// Reads the answer of one call.
#[derive(Debug)]
pub enum Response {
    Converse(Box<converse::Response>),
    Own(Box<Own>),
}

/// Reads what a model itself writes.
#[derive(Debug)]
pub struct Own {
    inner: Inner,
    /// Takes apart what SageMaker cut.
    framer: Option<Box<Framer>>,
    /// The message that was last unwrapped; kept for its room.
    message: Vec<u8>,
    /// Finds [`METRICS`] in it.
    metrics: memmem::Finder<'static>,
    /// What the model's own format told of its tokens.
    told: Usage,
    /// The status says that the answer is an error: then nobody says what it took.
    failed: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Wrapped<'a> {
    bytes: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Measured {
    #[serde(rename = "amazon-bedrock-invocationMetrics")]
    metrics: Object<RawUsage>,
}

impl Response {
    /// `failed`: the status says that the answer is an error.
    pub fn new(api: Api, failed: bool) -> Self {
        if matches!(api, Api::BedrockConverse | Api::BedrockCountTokens) {
            Self::Converse(Box::new(converse::Response::new(failed)))
        } else {
            Self::Own(Box::new(Own::new(failed)))
        }
    }

    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        match self {
            Self::Converse(response) => response.read(frame, out),
            Self::Own(own) => own.read(frame, out),
        }
    }
}

impl Own {
    fn new(failed: bool) -> Self {
        Self {
            inner: Inner::new(failed),
            framer: None,
            message: Vec::new(),
            metrics: memmem::Finder::new(METRICS),
            told: Usage::default(),
            failed,
        }
    }

    fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        match frame {
            Frame::Event { name: b"PayloadPart", data } => self.part(data, out),
            Frame::Event { name: b"chunk", data } => self.wrapped(data, out),
            Frame::Event { .. }
            | Frame::Exception { .. }
            | Frame::Stray(_)
            | Frame::Piece(_)
            | Frame::Whole
            | Frame::Odd(_) => self.inner.read(frame, out),
        }
    }

    /// SageMaker: the next bytes of a stream, cut anywhere.
    fn part(&mut self, bytes: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let inner = &mut self.inner;
        let framer = || Box::new(Framer::new(None, Json::Lines));
        self.framer.get_or_insert_with(framer).push(bytes, &mut |frame| inner.read(&frame, out));
    }

    /// Bedrock: one message.
    fn wrapped(&mut self, data: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let wrapped = serde_json::from_slice::<Wrapped<'_>>(data).unwrap_or_default();
        self.message.clear();
        let read = STANDARD.decode_vec(wrapped.bytes.0.as_bytes(), &mut self.message);
        if read.is_err() || self.message.is_empty() {
            return out(Event::Odd(Anomaly::BadJson));
        }
        let (inner, told) = (&mut self.inner, &mut self.told);
        let frame = Frame::Event { name: b"", data: &self.message };
        inner.read(&frame, &mut |event| {
            if let Event::Usage(usage) = &event {
                told.merge(*usage);
            }
            out(event);
        });
        if !self.failed && self.metrics.find(&self.message).is_some() {
            self.measured(out);
        }
    }

    /// What Bedrock itself says of the call that the last message ended. Its counts stand in for those that the model's
    /// own format does not tell; where both are there, the model's hold: they come from what generated.
    fn measured(&self, out: &mut impl FnMut(Event<'_>)) {
        let measured = serde_json::from_slice::<Measured>(&self.message).unwrap_or_default();
        let Some(metrics) = measured.metrics.0 else {
            return;
        };
        if let Some(counted) = metrics.tally().usage() {
            let mut usage = counted;
            usage.merge(self.told);
            if usage != self.told {
                out(Event::Usage(usage));
            }
        }
        if let Some(timings) = metrics.timings() {
            out(Event::Timings(timings));
        }
        out(Event::Done);
    }
}

#[cfg(test)]
mod tests;
