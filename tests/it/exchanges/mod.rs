//! Whole exchanges on literal moments, from the first request byte to the record: every API that is understood, in
//! every shape, however its bodies are cut.
//!
//! Each fixture (`tests/fixtures/exchanges/API/SHAPE.http`) is written by hand after the vendor's published reference;
//! beside it stands the golden record. `INSTA_UPDATE=always cargo test --test it exchanges` writes the golden records
//! anew, for review.

mod eventstream;
mod fixture;
mod in_process;
mod summary;

use std::collections::{BTreeMap, BTreeSet};

use tokengauge_llm::dialect::Api;

use fixture::Fixture;

/// Bodies up to this long are cut in two at every place; longer ones at every place that is a multiple of a step, so
/// that the whole takes seconds.
const EVERY_SPLIT: usize = 2_000;

#[test]
fn every_exchange_has_its_golden_record() {
    for fixture in Fixture::all() {
        let record = fixture.play(&[&fixture.body]);
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path(&fixture.folder);
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        let golden = summary::of(&record);
        settings.bind(|| insta::assert_json_snapshot!(fixture.shape.as_str(), golden));
    }
}

#[test]
fn a_record_does_not_depend_on_how_the_answer_is_cut() {
    for fixture in Fixture::all() {
        let body = &fixture.body;
        let whole = summary::of(&fixture.play(&[body]));
        let bytes: Vec<&[u8]> = body.chunks(1).collect();
        assert_eq!(summary::of(&fixture.play(&bytes)), whole, "{}, byte by byte", fixture.name());
        let step = body.len().div_ceil(EVERY_SPLIT).max(1);
        for at in (0..=body.len()).step_by(step) {
            let (first, second) = body.split_at(at);
            let cut = summary::of(&fixture.play(&[first, second]));
            assert_eq!(cut, whole, "{}, cut at {at}", fixture.name());
        }
    }
}

#[test]
fn every_api_has_its_fixtures_and_is_detected_as_itself() {
    let mut shapes: BTreeMap<String, Vec<Fixture>> = BTreeMap::new();
    for fixture in Fixture::all() {
        let detected = fixture.detected().map(Api::as_str);
        assert_eq!(detected, Some(fixture.api.as_str()), "{}", fixture.name());
        shapes.entry(fixture.api.clone()).or_default().push(fixture);
    }
    for api in Api::ALL {
        let fixtures = shapes.get(api.as_str()).map_or(&[][..], Vec::as_slice);
        assert!(!fixtures.is_empty(), "{} has no fixture", api.as_str());
        let answered = fixtures.iter().any(|fixture| fixture.status < 400);
        assert!(answered, "{} has no answer", api.as_str());
    }
}

/// What is read from each API is what its golden records hold: the table in the documentation is made of them.
#[test]
fn the_documentation_holds_what_is_read_from_each() {
    let table = table();
    let documentation = include_str!("../../../docs/dialects.md");
    assert!(
        documentation.contains(&table),
        "docs/dialects.md does not say what the fixtures show; its table should read:\n{table}"
    );
}

fn table() -> String {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for fixture in Fixture::all() {
        let row = rows.entry(fixture.api.clone()).or_default();
        let record = fixture.play(&[&fixture.body]);
        row.requests.insert(format!("`{} {}`", fixture.method, fixture.path));
        row.framings.extend(fixture.framing());
        row.read.extend(summary::read(&record));
    }
    let mut table = String::from(
        "| API | operation | provider | requests like | answers as | read of them |\n|---|---|---|---|---|---|\n",
    );
    for api in Api::ALL {
        let Some(row) = rows.get(api.as_str()) else {
            continue;
        };
        table.push_str(&format!(
            "| `{}` | {} | `{}` | {} | {} | {} |\n",
            api.as_str(),
            api.operation().as_str(),
            api.provider(),
            joined(&row.requests),
            joined(&row.framings),
            summary::FACTS
                .iter()
                .filter(|fact| row.read.contains(*fact))
                .copied()
                .collect::<Vec<_>>()
                .join(", "),
        ));
    }
    table
}

#[derive(Debug, Default)]
struct Row {
    requests: BTreeSet<String>,
    framings: BTreeSet<&'static str>,
    read: BTreeSet<&'static str>,
}

fn joined(set: &BTreeSet<impl AsRef<str>>) -> String {
    let words: Vec<&str> = set.iter().map(AsRef::as_ref).collect();
    words.join(", ")
}
