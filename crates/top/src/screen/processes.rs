//! The table of processes on the view Now.

use super::Context;
use super::canvas::{Canvas, Piece, Tone, plain};
use super::table::{self, Column, Key, Width};
use crate::format::{count, percent, rate, seconds, since, span};
use crate::overview::{Overview, Process};
use crate::ui::Ui;

pub fn draw(canvas: &mut Canvas<'_>, overview: &Overview, ui: &Ui, context: &Context) {
    table::draw(canvas, &COLUMNS, &overview.processes, ui, context);
}

const COLUMNS: [Column<Process>; 10] = [
    Column {
        title: "PROCESS",
        width: Width::Text(12, 40),
        rank: 1,
        cell: |it, _| plain(it.name.as_str()),
        key: |it| Key::Text(Some(it.name.as_str().to_owned())),
    },
    Column {
        title: "STATE",
        width: Width::Text(11, 44),
        rank: 1,
        cell: state,
        key: |it| Key::Number(it.failure.as_ref().map(|failure| failure.since_unix_ms as f64)),
    },
    Column {
        title: "REQ/S",
        width: Width::Number(7),
        rank: 4,
        cell: |it, _| plain(rate(it.requests_per_second)),
        key: |it| Key::Number(it.requests_per_second),
    },
    Column {
        title: "FAILED",
        width: Width::Number(8),
        rank: 2,
        cell: |it, _| plain(percent(it.failed_share)),
        key: |it| Key::Number(it.failed_share),
    },
    Column {
        title: "TOKENS/S",
        width: Width::Number(8),
        rank: 2,
        cell: |it, _| plain(rate(it.output_tokens_per_second)),
        key: |it| Key::Number(it.output_tokens_per_second),
    },
    Column {
        title: "STREAM P50",
        width: Width::Number(10),
        rank: 5,
        cell: |it, _| plain(rate(it.stream_output_tokens_per_second_p50)),
        key: |it| Key::Number(it.stream_output_tokens_per_second_p50),
    },
    Column {
        title: "TTFT P95",
        width: Width::Number(8),
        rank: 1,
        cell: |it, _| plain(seconds(it.time_to_first_token_p95_seconds)),
        key: |it| Key::Number(it.time_to_first_token_p95_seconds),
    },
    Column {
        title: "IN FLIGHT",
        width: Width::Number(9),
        rank: 3,
        cell: |it, _| plain(count(it.in_flight)),
        key: |it| Key::Number(it.in_flight.map(|it| it as f64)),
    },
    Column {
        title: "QUEUE",
        width: Width::Number(6),
        rank: 4,
        cell: |it, _| plain(count(it.queue_depth)),
        key: |it| Key::Number(it.queue_depth.map(|it| it as f64)),
    },
    Column {
        title: "STALLED",
        width: Width::Number(7),
        rank: 5,
        cell: |it, _| plain(count(it.stalled)),
        key: |it| Key::Number(it.stalled.map(|it| it as f64)),
    },
];

fn state(process: &Process, context: &Context) -> Piece {
    match (&process.failure, process.has_answered) {
        (Some(failure), _) => {
            let since = since(Some(failure.since_unix_ms), context.now_unix_ms);
            (format!("unreachable since {since}"), Tone::Bad)
        }
        (None, false) => ("connecting".to_owned(), Tone::Faint),
        (None, true) => {
            let uptime = process.uptime_seconds.map(span);
            plain(uptime.map_or("up".to_owned(), |uptime| format!("up {uptime}")))
        }
    }
}
