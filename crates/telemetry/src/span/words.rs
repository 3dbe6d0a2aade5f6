//! The words that spans have for what a record says by its types.

use crate::catalog::{Attribute, spans as key};
use tokengauge_measure::timing::Stage;

/// The method as a label and span name: one of those the standard knows, else `_OTHER`.
pub fn method(method: &http::Method) -> &'static str {
    const KNOWN: [&str; 9] =
        ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];
    let known = KNOWN.into_iter().find(|known| *known == method.as_str());
    known.unwrap_or("_OTHER")
}

pub fn protocol_version(version: http::Version) -> &'static str {
    match version {
        http::Version::HTTP_09 => "0.9",
        http::Version::HTTP_10 => "1.0",
        http::Version::HTTP_2 => "2",
        http::Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

pub(super) const fn of_stage(stage: Stage) -> Attribute {
    match stage {
        Stage::Admission => key::STAGE_ADMISSION,
        Stage::Connect => key::STAGE_CONNECT,
        Stage::Upload => key::STAGE_UPLOAD,
        Stage::Headers => key::STAGE_HEADERS,
        Stage::FirstByte => key::STAGE_FIRST_BYTE,
        Stage::FirstEvent => key::STAGE_FIRST_EVENT,
        Stage::FirstToken => key::STAGE_FIRST_TOKEN,
        Stage::Thinking => key::STAGE_THINKING,
        Stage::Decode => key::STAGE_DECODE,
        Stage::Tail => key::STAGE_TAIL,
    }
}

/// The host of a `Host` header; an IPv6 address keeps its brackets.
pub(super) fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !name.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => name,
        Some(_) | None => host,
    }
}
