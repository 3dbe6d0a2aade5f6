//! The view Models: one row per model, over the last 60 s.

use super::Context;
use super::canvas::{Canvas, Tone, plain};
use super::table::{self, Column, Key, Width};
use crate::format::{UNDEFINED, count, percent, rate, seconds, sparkline};
use crate::overview::{Model, Overview};
use crate::ui::Ui;

pub fn draw(canvas: &mut Canvas<'_>, overview: &Overview, ui: &Ui, context: &Context) {
    table::draw(canvas, &COLUMNS, &overview.models, ui, context);
}

/// Returns the text of a name that can be absent.
pub fn name(text: Option<&crate::text::Text>) -> String {
    text.map_or(UNDEFINED.to_owned(), ToString::to_string)
}

const COLUMNS: [Column<Model>; 12] = [
    Column {
        title: "MODEL",
        width: Width::Text(24, 48),
        rank: 1,
        cell: |it, _| plain(name(it.model.as_ref())),
        key: |it| Key::Text(it.model.as_ref().map(ToString::to_string)),
    },
    Column {
        title: "PROVIDER",
        width: Width::Text(10, 20),
        rank: 6,
        cell: |it, _| plain(name(it.provider.as_ref())),
        key: |it| Key::Text(it.provider.as_ref().map(ToString::to_string)),
    },
    Column {
        title: "TOKENS/S",
        width: Width::Number(9),
        rank: 1,
        cell: |it, _| plain(rate(Some(it.output_tokens_per_second))),
        key: |it| Key::Number(Some(it.output_tokens_per_second)),
    },
    Column {
        title: "STREAM P50",
        width: Width::Number(11),
        rank: 4,
        cell: |it, _| plain(rate(it.stream_output_tokens_per_second.p50)),
        key: |it| Key::Number(it.stream_output_tokens_per_second.p50),
    },
    Column {
        title: "TTFT P50",
        width: Width::Number(9),
        rank: 3,
        cell: |it, _| plain(seconds(it.time_to_first_token_seconds.p50)),
        key: |it| Key::Number(it.time_to_first_token_seconds.p50),
    },
    Column {
        title: "TTFT P95",
        width: Width::Number(9),
        rank: 1,
        cell: |it, _| plain(seconds(it.time_to_first_token_seconds.p95)),
        key: |it| Key::Number(it.time_to_first_token_seconds.p95),
    },
    Column {
        title: "ITL P95",
        width: Width::Number(9),
        rank: 6,
        cell: |it, _| plain(seconds(it.inter_token_latency_seconds.p95)),
        key: |it| Key::Number(it.inter_token_latency_seconds.p95),
    },
    Column {
        title: "IN FLIGHT",
        width: Width::Number(9),
        rank: 4,
        cell: |it, _| plain(count(Some(it.in_flight))),
        key: |it| Key::Number(Some(it.in_flight as f64)),
    },
    Column {
        title: "QUEUE",
        width: Width::Number(6),
        rank: 2,
        cell: |it, _| plain(count(Some(it.queue_depth))),
        key: |it| Key::Number(Some(it.queue_depth as f64)),
    },
    Column {
        title: "REQ/S",
        width: Width::Number(7),
        rank: 5,
        cell: |it, _| plain(rate(Some(it.requests_per_second))),
        key: |it| Key::Number(Some(it.requests_per_second)),
    },
    Column {
        title: "FAILED",
        width: Width::Number(8),
        rank: 2,
        cell: |it, _| {
            let is_bad = it.failed_share.is_some_and(|share| share > 0.0);
            (percent(it.failed_share), if is_bad { Tone::Warning } else { Tone::Plain })
        },
        key: |it| Key::Number(it.failed_share),
    },
    Column {
        title: "TOKENS/S, 15 MINUTES",
        width: Width::Number(20),
        rank: 7,
        cell: |it, _| (sparkline(&it.sparkline, 20), Tone::Good),
        key: |it| Key::Number(Some(it.output_tokens_per_second)),
    },
];
