//! Fuzzes the request readers. The facts must be the same for every cut of a request, and a reader must hold little
//! memory.

use tokengauge_llm::dialect::{
    Api, DetectedApi, Family, RequestFacts, RequestReader, RequestTarget, detect,
};
use tokengauge_types::label::{MAX_NAME_BYTES, Name};

use super::memory::Meter;
use super::messages::flood;
use super::script::{Script, however_cut};

/// Maximum memory of a reader in bytes. It holds the path to the current value, short words among the facts, and a
/// piece of 4 KiB of a form field.
const STATE: usize = 10 << 10;

/// Number of repetitions of a part of a request.
const ROUNDS: usize = 200;

pub fn requests(input: &[u8]) {
    let mut script = Script::new(input);
    let found = found(&mut script);
    let lost_after = script.flag().then(|| usize::from(script.digit()));
    let cuts = script.cuts();
    let body = script.rest();
    let (read, lost) = body.split_at(lost_after.unwrap_or(body.len()).min(body.len()));
    let facts = however_cut(read, cuts, |pieces| {
        let mut reading = Reading::new(&found);
        pieces.iter().for_each(|piece| reading.push(piece));
        if lost_after.is_some() {
            reading.reader.gap();
            reading.push(lost);
        }
        reading.reader.finish()
    });
    // An invalid UTF-8 byte becomes a character of three bytes.
    assert!(facts.prompt_bytes <= 3 * read.len() as u64);
    let most_stops = facts.stop_sequences.unwrap_or(0);
    assert!(most_stops <= read.len(), "more values than bytes");
    let mut reading = Reading::new(&found);
    flood(body, 0..ROUNDS, |body| reading.push(body));
}

fn found(script: &mut Script<'_>) -> DetectedApi {
    let by_path = script.flag();
    let api = script.pick(Api::ALL);
    let stream = script.pick(&[None, Some(true), Some(false)]);
    let path = String::from_utf8_lossy(script.short());
    let known = DetectedApi { api, model: Name::new(&path), stream, body_decides: script.flag() };
    if !by_path {
        return known;
    }
    let detected = detect(&RequestTarget {
        hint: None,
        method: &http::Method::POST,
        host: None,
        path: &path,
        header_family: script.flag().then_some(Family::Anthropic),
    });
    detected.unwrap_or(known)
}

struct Reading {
    reader: RequestReader,
    meter: Meter,
}

impl Reading {
    fn new(found: &DetectedApi) -> Self {
        Self { reader: RequestReader::new(found), meter: Meter::default() }
    }

    fn push(&mut self, piece: &[u8]) {
        let Self { reader, meter } = self;
        meter.during(|| reader.push(piece));
        meter.assert_holds_at_most(STATE, "a request");
        words_are_short(reader.facts());
    }
}

fn words_are_short(facts: &RequestFacts) {
    let words = [&facts.model, &facts.reasoning_level, &facts.service_tier, &facts.encoding_format];
    for word in words.into_iter().flatten() {
        // Control characters become longer sequences after the cut.
        assert!(word.as_str().len() <= 3 * MAX_NAME_BYTES);
    }
}
