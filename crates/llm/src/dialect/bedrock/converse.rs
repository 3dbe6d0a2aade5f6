//! Reads responses of the Converse API, which has one format for all models. Also reads Amazon Nova's format, which
//! wraps each event in an object under the event's name.

use std::time::Duration;

use serde::Deserialize;

use crate::dialect::event::sum;
use crate::dialect::lenient::{self, Count, List, Text};
use crate::dialect::table::{Field, Table, TableReader, TimingPhase, Unit};
use crate::dialect::token_count::TokenCount;
use crate::dialect::usage::UncachedUsage;
use crate::dialect::{Part, RequestFacts, Timings, Usage};

static TABLE: Table = Table {
    has_blocks: true,
    parse_usage: |json| lenient::parse::<RawUsage<'_>>(json).usage(),
    ..Table::new(&[
        // The model that a prompt router selected.
        ("trace.promptRouter.invokedModelId", Field::Model),
        ("serviceTier.type", Field::ServiceTier),
        ("stopReason", Field::StopReason),
        ("usage{}", Field::Usage),
        ("metrics.latencyMs", Field::Clock(TimingPhase::Total, Unit::Milliseconds)),
        ("metrics", Field::Report),
        // Bodies.
        ("output.message.content.*.text", Field::Text(Part::Text)),
        ("output.message.content.*.citationsContent.content.*.text", Field::Text(Part::Text)),
        (
            "output.message.content.*.reasoningContent.reasoningText.text",
            Field::Text(Part::Reasoning),
        ),
        ("output.message.content.*.toolUse.toolUseId", Field::CallId),
        ("output.message.content.*.toolUse.name", Field::CallName),
        ("output.message.content.*.toolUse.input{}", Field::Arguments),
        // Streams.
        ("contentBlockIndex", Field::Block),
        ("start.toolUse.toolUseId", Field::CallId),
        ("start.toolUse.name", Field::CallName),
        ("delta.text", Field::Text(Part::Text)),
        ("delta.reasoningContent.text", Field::Text(Part::Reasoning)),
        // Nova.
        ("delta.reasoningContent.reasoningText.text", Field::Text(Part::Reasoning)),
        ("delta.toolUse.input{}", Field::Arguments),
    ])
    .unwraps(&["contentBlockStart", "contentBlockDelta", "messageStop", "metadata"])
};

/// Token counts and durations: the usage of Converse, or the metrics that Bedrock adds to the last message of any
/// model.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct RawUsage<'a> {
    input_tokens: TokenCount,
    output_tokens: TokenCount,
    cache_read_input_tokens: TokenCount,
    cache_write_input_tokens: TokenCount,
    total_tokens: TokenCount,
    cache_details: List<CacheDetail<'a>>,
    // Spelling in Nova's usage and in Bedrock's metrics. Converse uses both spellings for the cache counts.
    input_token_count: TokenCount,
    output_token_count: TokenCount,
    cache_read_input_token_count: TokenCount,
    cache_write_input_token_count: TokenCount,
    /// Milliseconds, in the metrics.
    invocation_latency: Count,
}

/// Cache writes of one lifetime.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct CacheDetail<'a> {
    ttl: Text<'a>,
    input_tokens: TokenCount,
}

pub fn reader(failed: bool) -> TableReader {
    TABLE.reader(&RequestFacts::default(), failed)
}

impl RawUsage<'_> {
    /// Returns the token counts as OpenTelemetry defines them.
    pub fn usage(&self) -> Usage {
        let written = |ttl: &str| {
            let details = self.cache_details.iter().filter(|detail| detail.ttl.0 == ttl);
            details.map(|detail| detail.input_tokens.0).reduce(|one, other| sum((one, other)))?
        };
        let counts = UncachedUsage {
            cache_write_5m: written("5m"),
            cache_write_1h: written("1h"),
            input: self.input_tokens.0.or(self.input_token_count.0),
            output: self.output_tokens.0.or(self.output_token_count.0),
            cache_read: self.cache_read_input_tokens.0.or(self.cache_read_input_token_count.0),
            cache_write: self.cache_write_input_tokens.0.or(self.cache_write_input_token_count.0),
            total: self.total_tokens.0,
            ..UncachedUsage::default()
        };
        counts.usage()
    }

    /// Returns the call duration that Bedrock measured. Bedrock's first-byte latency is ignored, because it combines
    /// queueing and prefill.
    pub fn timings(&self) -> Timings {
        let total = self.invocation_latency.0.map(Duration::from_millis);
        Timings { total, ..Timings::default() }
    }
}
