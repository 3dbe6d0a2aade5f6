//! Answers in the likeness of Bedrock's and SageMaker's, as frames and as whole bodies cut anywhere; and what their
//! requests ask for.

mod converse;
mod invoke;
mod requests;
mod sagemaker;

use std::time::Duration;

use crate::dialect::testing::{Answer, JSON};
use crate::dialect::*;
use crate::frame::encode;

const AWS: Option<&str> = Some("application/vnd.amazon.eventstream");

/// A stream of these messages: the event type of each, and its payload.
fn stream(api: Api, messages: &[(&str, &str)]) -> Vec<String> {
    let messages = messages.iter();
    let body: Vec<u8> = messages.flat_map(|(name, payload)| encode::event(name, payload)).collect();
    Answer::of(api, AWS).read(&body)
}

fn body(api: Api, body: &str) -> Vec<String> {
    Answer::of(api, JSON).read(body.as_bytes())
}

fn took(milliseconds: u64) -> String {
    let timings =
        Timings { total: Some(Duration::from_millis(milliseconds)), ..Timings::default() };
    format!("{:?}", Event::Timings(timings))
}
