//! Requests in flight.

use serde::Serialize;

use super::Reachable;
use crate::document::{self, Stages};
use crate::text::Text;

/// A request in flight.
#[derive(Clone, Debug, Serialize)]
pub struct Stream {
    pub process: Text,
    pub request_number: u64,
    pub phase: Phase,
    pub model: Option<Text>,
    pub route: Option<Text>,
    pub tenant: Option<Text>,
    pub session: Option<Text>,
    pub age_seconds: Option<f64>,
    pub time_to_first_token_seconds: Option<f64>,
    pub tokens: Option<u64>,
    pub output_tokens_per_second: Option<f64>,
    pub idle_seconds: Option<f64>,
    pub stages: Stages,
}

/// What a request does now, the worst first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Stalled,
    ClientIsSlow,
    Queued,
    Waiting,
    Streaming,
    Unstreamed,
    Unknown,
}

impl Phase {
    fn of(stream: &document::Stream) -> Self {
        let word =
            |text: &Option<Text>| text.as_ref().map(Text::as_str).unwrap_or_default().to_owned();
        match word(&stream.phase).as_str() {
            _ if stream.stalled == Some(true) => Self::Stalled,
            "queued" => Self::Queued,
            "waiting" => Self::Waiting,
            "streaming" if word(&stream.waiting_for) == "client" => Self::ClientIsSlow,
            "streaming" => Self::Streaming,
            "unstreamed" => Self::Unstreamed,
            _ => Self::Unknown,
        }
    }

    pub const fn word(self) -> &'static str {
        match self {
            Self::Stalled => "stalled",
            Self::ClientIsSlow => "client is slow",
            Self::Queued => "queued",
            Self::Waiting => "waiting",
            Self::Streaming => "streaming",
            Self::Unstreamed => "no stream",
            Self::Unknown => "–",
        }
    }
}

/// Returns the streams of all processes: stalled first, then the oldest.
pub(super) fn merge(processes: &[Reachable<'_>]) -> Vec<Stream> {
    let of_process = |process: &Reachable<'_>| {
        let name = process.name.clone();
        let row = move |stream: &document::Stream| row(name.clone(), stream);
        process.snapshot.streams.iter().map(row).collect::<Vec<_>>()
    };
    let mut streams: Vec<Stream> = processes.iter().flat_map(of_process).collect();
    streams.sort_by(|a, b| {
        let age = |stream: &Stream| stream.age_seconds.unwrap_or_default();
        let is_running = |stream: &Stream| stream.phase != Phase::Stalled;
        is_running(a).cmp(&is_running(b)).then(age(b).total_cmp(&age(a)))
    });
    streams
}

fn row(process: Text, stream: &document::Stream) -> Stream {
    Stream {
        process,
        request_number: stream.request_number,
        phase: Phase::of(stream),
        model: stream.model.clone(),
        route: stream.route.clone(),
        tenant: stream.tenant.clone(),
        session: stream.session.clone(),
        age_seconds: stream.age_seconds,
        time_to_first_token_seconds: stream.time_to_first_token_seconds,
        tokens: stream.tokens,
        output_tokens_per_second: stream.output_tokens_per_second,
        idle_seconds: stream.idle_seconds,
        stages: stream.stages,
    }
}
