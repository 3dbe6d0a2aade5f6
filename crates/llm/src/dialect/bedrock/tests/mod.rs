//! Tests requests and responses of Bedrock and SageMaker. Each body is read with every cut.

mod converse;
mod invoke;
mod requests;
mod sagemaker;

use std::time::Duration;

use crate::dialect::testing::{JSON, TestResponse};
use crate::dialect::*;
use crate::frame::encode;

const AWS: Option<&str> = Some("application/vnd.amazon.eventstream");

/// Returns a stream of AWS event stream messages, each with an event type and a payload.
fn stream(api: Api, messages: &[(&str, &str)]) -> Vec<String> {
    let messages = messages.iter();
    let body: Vec<u8> = messages.flat_map(|(name, payload)| encode::event(name, payload)).collect();
    TestResponse::new(api, AWS).read(&body)
}

fn body(api: Api, body: &str) -> Vec<String> {
    TestResponse::new(api, JSON).read(body.as_bytes())
}

fn took(milliseconds: u64) -> String {
    let timings =
        Timings { total: Some(Duration::from_millis(milliseconds)), ..Timings::default() };
    format!("{:?}", Event::Timings(&timings))
}
