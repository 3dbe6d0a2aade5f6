//! Plays recorded exchanges with fixed timestamps, from the first byte of the request to the record.
//!
//! The tests cover all forms of all supported APIs, with bodies that are cut at many places.
//!
//! Each fixture (`tests/fixtures/exchanges/API/SHAPE.http`) is written by hand from the provider's published reference.
//! Its expected record is in the same folder. `INSTA_UPDATE=always cargo test --test it exchanges` rewrites the
//! expected records. Review the difference afterwards.

mod eventstream;
mod fixture;
mod in_process;
mod parser;
mod summary;

use std::collections::{BTreeMap, BTreeSet};

use tokengauge_llm::dialect::Api;

use fixture::Fixture;

/// Maximum length of a body that is cut in two at every byte. Longer bodies are cut only at every n-th byte, so that
/// the test takes seconds.
const EVERY_SPLIT: usize = 2_000;

#[test]
fn every_exchange_has_its_expected_record() {
    for fixture in Fixture::all() {
        let record = fixture.play(&[&fixture.body]);
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path(&fixture.folder);
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        let golden = summary::summarize(&record);
        settings.bind(|| insta::assert_json_snapshot!(fixture.shape.as_str(), golden));
    }
}

#[test]
fn a_record_does_not_depend_on_how_the_response_is_split() {
    for fixture in Fixture::all() {
        let body = &fixture.body;
        let whole = summary::summarize(&fixture.play(&[body]));
        let bytes: Vec<&[u8]> = body.chunks(1).collect();
        assert_eq!(
            summary::summarize(&fixture.play(&bytes)),
            whole,
            "{}, split at every byte",
            fixture.name()
        );
        let step = body.len().div_ceil(EVERY_SPLIT).max(1);
        for at in (0..=body.len()).step_by(step) {
            let (first, second) = body.split_at(at);
            let cut = summary::summarize(&fixture.play(&[first, second]));
            assert_eq!(cut, whole, "{}, split at {at}", fixture.name());
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
        assert!(answered, "{} has no response", api.as_str());
    }
}

/// Tests the table in the documentation that lists the values read from each API. The table is generated from the
/// expected records.
#[test]
fn the_documentation_lists_the_values_of_each_api() {
    let table = table();
    let documentation = include_str!("../../../docs/reference/api-formats.md");
    assert!(
        documentation.contains(&table),
        "docs/reference/api-formats.md differs from the fixtures; its table should be:\n{table}"
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
        "| API | operation | provider | example requests | response forms | values read |\n|---|---|---|---|---|---|\n",
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
