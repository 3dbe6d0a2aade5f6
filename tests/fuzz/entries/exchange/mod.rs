//! Whole exchanges with events in any order, at any time. The result is one record that satisfies the invariants.

mod board;
mod check;
mod words;

use tokengauge_llm::frame::ParseError;
use tokengauge_measure::record::Record;
use tokengauge_measure::timing::LiveSample;

use super::script::Script;
pub use board::board;
use check::check;
use words::Scene;
pub use words::{CODINGS, HEAD_STATUSES};

/// Results of an exchange.
#[derive(Debug)]
struct Played {
    record: Record,
    samples: Vec<LiveSample>,
}

pub fn exchange(input: &[u8]) {
    let mut script = Script::new(input);
    let cuts = script.cuts();
    let scene = Scene::parse(script);
    let whole = scene.play(None);
    check(&scene, &whole);
    let told = |record: &Record| format!("{record:?}");
    for cuts in [cuts, [1, 1]] {
        let cut = scene.play(Some(cuts));
        check(&scene, &cut);
        // The amount that is decoded from a broken encoded body depends on the piece that contains the error.
        if !is_undecodable(&whole.record) && !is_undecodable(&cut.record) {
            assert_eq!(told(&cut.record), told(&whole.record), "split at {cuts:?}");
        }
    }
}

fn is_undecodable(record: &Record) -> bool {
    let undecodable =
        |anomaly| matches!(anomaly, ParseError::Encoding | ParseError::DecompressionLimit);
    record.anomalies.iter().any(|(odd, _)| undecodable(*odd))
}
