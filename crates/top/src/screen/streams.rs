//! The view Streams: requests in flight, stalled first.

use super::Context;
use super::canvas::{Canvas, Piece, Tone, plain};
use super::models::name;
use super::table::{self, Column, Key, Width};
use crate::document::Stages;
use crate::format::{count, rate, seconds};
use crate::overview::{Overview, Phase, Stream};
use crate::ui::Ui;

pub fn draw(canvas: &mut Canvas<'_>, overview: &Overview, ui: &Ui, context: &Context) {
    let left_out = overview.streams_left_out;
    if left_out > 0 {
        canvas.line([(format!("{left_out} further requests are not in the list"), Tone::Warning)]);
    }
    table::draw(canvas, &COLUMNS, &overview.streams, ui, context);
}

/// Letters of the bar of stages.
const BAR_WIDTH: u8 = 10;

const COLUMNS: [Column<Stream>; 12] = [
    Column {
        title: "PHASE",
        width: Width::Text(14, 14),
        rank: 1,
        cell: phase,
        key: |it| Key::Text(Some(it.phase.word().to_owned())),
    },
    Column {
        title: "MODEL",
        width: Width::Text(14, 40),
        rank: 1,
        cell: |it, _| plain(name(it.model.as_ref())),
        key: |it| Key::Text(it.model.as_ref().map(ToString::to_string)),
    },
    Column {
        title: "AGE",
        width: Width::Number(7),
        rank: 1,
        cell: |it, _| plain(seconds(it.age_seconds)),
        key: |it| Key::Number(it.age_seconds),
    },
    Column {
        title: "TTFT",
        width: Width::Number(7),
        rank: 3,
        cell: |it, _| plain(seconds(it.time_to_first_token_seconds)),
        key: |it| Key::Number(it.time_to_first_token_seconds),
    },
    Column {
        title: "TOKENS",
        width: Width::Number(7),
        rank: 2,
        cell: |it, _| plain(count(it.tokens)),
        key: |it| Key::Number(it.tokens.map(|it| it as f64)),
    },
    Column {
        title: "TOKENS/S",
        width: Width::Number(8),
        rank: 2,
        cell: |it, _| plain(rate(it.output_tokens_per_second)),
        key: |it| Key::Number(it.output_tokens_per_second),
    },
    Column {
        title: "IDLE",
        width: Width::Number(7),
        rank: 1,
        cell: |it, _| plain(seconds(it.idle_seconds)),
        key: |it| Key::Number(it.idle_seconds),
    },
    Column {
        title: "STAGES",
        width: Width::Text(BAR_WIDTH as usize, BAR_WIDTH as usize),
        rank: 4,
        cell: |it, _| stages(&it.stages),
        key: |_| Key::Number(None),
    },
    Column {
        title: "ROUTE",
        width: Width::Text(8, 20),
        rank: 4,
        cell: |it, _| plain(name(it.route.as_ref())),
        key: |it| Key::Text(it.route.as_ref().map(ToString::to_string)),
    },
    Column {
        title: "TENANT",
        width: Width::Text(8, 20),
        rank: 5,
        cell: |it, _| plain(name(it.tenant.as_ref())),
        key: |it| Key::Text(it.tenant.as_ref().map(ToString::to_string)),
    },
    Column {
        title: "SESSION",
        width: Width::Text(8, 36),
        rank: 6,
        cell: |it, _| plain(name(it.session.as_ref())),
        key: |it| Key::Text(it.session.as_ref().map(ToString::to_string)),
    },
    Column {
        title: "PROCESS",
        width: Width::Text(8, 24),
        rank: 6,
        cell: |it, _| plain(it.process.as_str()),
        key: |it| Key::Text(Some(it.process.to_string())),
    },
];

/// Returns a bar of the stages so far: one letter per tenth of the time, explained in the help.
fn stages(stages: &Stages) -> Piece {
    let Stages { admission, connect, upload, headers, first_token, reasoning, decode, tail } =
        *stages;
    let parts = [
        ('q', admission),
        ('c', connect),
        ('u', upload),
        ('w', headers + first_token),
        ('r', reasoning),
        ('d', decode),
        ('t', tail),
    ];
    let whole: f64 = parts.iter().map(|(_, seconds)| seconds.max(0.0)).sum();
    if whole.is_nan() || whole <= 0.0 {
        return plain("–");
    }
    // The stage in the middle of each part of the bar.
    let letter = |part: u8| {
        let middle = (f64::from(part) + 0.5) / f64::from(BAR_WIDTH) * whole;
        let mut until = 0.0;
        let stage = parts.iter().find(|(_, seconds)| {
            until += seconds.max(0.0);
            until >= middle
        });
        stage.map(|(letter, _)| *letter)
    };
    plain((0..BAR_WIDTH).filter_map(letter).collect::<String>())
}

fn phase(stream: &Stream, _: &Context) -> Piece {
    let tone = match stream.phase {
        Phase::Stalled => Tone::Bad,
        Phase::ClientIsSlow | Phase::Queued => Tone::Warning,
        Phase::Streaming => Tone::Good,
        Phase::Waiting | Phase::Unstreamed | Phase::Unknown => Tone::Plain,
    };
    (stream.phase.word().to_owned(), tone)
}
