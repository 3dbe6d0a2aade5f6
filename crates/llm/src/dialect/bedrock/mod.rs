//! Reads Amazon's APIs: Bedrock Converse, Bedrock Invoke, and SageMaker invocations.
//!
//! Converse has one format for all models. Invoke and SageMaker pass on the model's own format. Bedrock wraps each
//! message in `{"bytes": BASE64}`. SageMaker splits a stream into parts at any position.

mod converse;
mod model_format;
mod models;
mod request;

pub use request::request_paths;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;
use serde::Deserialize;

use super::emit::{emit_timings, emit_usage};
use super::lenient::{Object, Text};
use super::{Api, Event, EventSink, Reader, Usage};
use crate::budget::RequestBudget;
use crate::frame::{BudgetedFramer, Frame, JsonFraming, ParseError};
use converse::RawUsage;
use model_format::ModelReader;

/// JSON key of the metrics that Bedrock adds to the last message of a model's stream.
const METRICS: &str = "amazon-bedrock-invocationMetrics";

/// Reads an Invoke or SageMaker response in the model's own format.
#[derive(Debug)]
pub struct Invoke {
    model: ModelReader,
    /// Frames the stream that SageMaker cuts.
    framer: Option<Box<BudgetedFramer>>,
    budget: RequestBudget,
    /// Finds [`METRICS`] in a message.
    metrics: memmem::Finder<'static>,
    /// Token counts that the model's own format reported.
    usage: Usage,
    /// The status code marks the response as an error.
    failed: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Wrapped<'a> {
    bytes: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Measured<'a> {
    #[serde(rename = "amazon-bedrock-invocationMetrics")]
    metrics: Object<RawUsage<'a>>,
}

pub fn reader(api: Api, failed: bool, budget: &RequestBudget) -> Reader {
    if matches!(api, Api::BedrockConverse | Api::BedrockCountTokens) {
        converse::reader(failed).into()
    } else {
        Invoke::new(failed, budget).into()
    }
}

impl Invoke {
    fn new(failed: bool, budget: &RequestBudget) -> Self {
        Self {
            model: ModelReader::new(failed, budget),
            framer: None,
            budget: budget.clone(),
            metrics: memmem::Finder::new(METRICS),
            usage: Usage::default(),
            failed,
        }
    }

    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl EventSink) {
        match frame {
            Frame::Event { name: b"PayloadPart", data } => self.part(data, out),
            Frame::Event { name: b"chunk", data } => self.wrapped(data, out),
            _ => self.model.read(frame, out),
        }
    }

    /// Reads one part of a SageMaker stream.
    fn part(&mut self, bytes: &[u8], out: &mut impl EventSink) {
        let Self { model, framer, budget, .. } = self;
        let new = || Box::new(BudgetedFramer::new(None, JsonFraming::Lines, budget));
        framer.get_or_insert_with(new).push(bytes, &mut |frame| model.read(&frame, out));
    }

    /// Reads one message of a Bedrock stream. It contains a base64-encoded message of the model.
    fn wrapped(&mut self, data: &[u8], out: &mut impl EventSink) {
        let wrapped = serde_json::from_slice::<Wrapped<'_>>(data).unwrap_or_default();
        let message = STANDARD.decode(wrapped.bytes.0.as_bytes()).unwrap_or_default();
        if message.is_empty() {
            return out(Event::ParseError(ParseError::BadJson));
        }
        let (model, known) = (&mut self.model, &mut self.usage);
        let frame = Frame::Event { name: b"", data: &message };
        model.read(&frame, &mut |event| {
            if let Event::Usage(usage) = event {
                known.merge(*usage);
            }
            out(event);
        });
        if !self.failed && self.metrics.find(&message).is_some() {
            self.measured(&message, out);
        }
    }

    /// Reads the metrics that Bedrock adds to the last message. Their token counts are used only if the model itself
    /// reported none, because the model knows best what it generated.
    fn measured(&self, message: &[u8], out: &mut impl EventSink) {
        let measured = serde_json::from_slice::<Measured<'_>>(message).unwrap_or_default();
        let Some(metrics) = measured.metrics.0 else {
            return;
        };
        let mut usage = metrics.usage();
        usage.merge(self.usage);
        if usage != self.usage {
            emit_usage(usage, out);
        }
        emit_timings(metrics.timings(), out);
        out(Event::Done);
    }
}

#[cfg(test)]
mod tests;
