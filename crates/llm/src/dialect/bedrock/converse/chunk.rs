//! One event of a stream, as far as it is read.

use serde::Deserialize;

use super::super::counts::RawUsage;
use crate::dialect::failure::Failure;
use crate::dialect::lenient::{Count, Object, Text};

/// The payload of any event: they share no field that means two things.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct Chunk<'a> {
    pub content_block_index: Count,
    pub start: Object<Box<Start<'a>>>,
    pub delta: Object<Delta<'a>>,
    pub stop_reason: Text<'a>,
    pub usage: Object<Box<RawUsage>>,
    pub metrics: Object<Metrics>,
    pub service_tier: Object<Box<Tier<'a>>>,
    pub trace: Object<Box<Trace<'a>>>,
    pub error: Failure<'a>,
}

/// An event as Nova writes it itself: under its name.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct Named<'a> {
    pub content_block_start: Object<Box<Chunk<'a>>>,
    pub content_block_delta: Object<Box<Chunk<'a>>>,
    pub message_stop: Object<Box<Chunk<'a>>>,
    pub metadata: Object<Box<Chunk<'a>>>,
    pub error: Failure<'a>,
}

impl<'a> Named<'a> {
    pub fn chunk(&self) -> Option<&Chunk<'a>> {
        [&self.content_block_delta, &self.content_block_start, &self.message_stop, &self.metadata]
            .into_iter()
            .find_map(|event| event.0.as_deref())
    }
}

/// What a block is; there for other blocks than calls of tools, too.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct Start<'a> {
    pub tool_use: Object<ToolStart<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct ToolStart<'a> {
    pub tool_use_id: Text<'a>,
    pub name: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct Delta<'a> {
    pub text: Text<'a>,
    pub tool_use: Object<Tool<'a>>,
    pub reasoning_content: Object<Reasoning<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Tool<'a> {
    pub input: Text<'a>,
}

/// Reasoning; what is redacted has no text.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct Reasoning<'a> {
    pub text: Text<'a>,
    /// Nova writes it as it stands in a whole answer.
    pub reasoning_text: Object<Inner<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Inner<'a> {
    pub text: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metrics {
    pub latency_ms: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Tier<'a> {
    #[serde(rename = "type")]
    pub kind: Text<'a>,
}

/// Which model a prompt router chose.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct Trace<'a> {
    pub prompt_router: Object<Router<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct Router<'a> {
    pub invoked_model_id: Text<'a>,
}
