//! Public names are stable, as `docs/reference/stability.md` states.
//!
//! `tests/fixtures/public_names.csv` records every public name. A new name needs a new line there.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "pages/admin_fields.rs"]
mod admin_fields;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use tokengauge::config::RunArgs;
use tokengauge_telemetry::catalog::attributes::{self, Attribute, Values};
use tokengauge_telemetry::catalog::{metrics, spans};

/// A kind, such as `metric`, and a name.
type Name = (String, String);

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the names of this version.
fn current() -> BTreeSet<Name> {
    let mut names = BTreeSet::new();
    let mut add = |kind: &str, name: String| names.insert((kind.to_owned(), name));
    for metric in metrics() {
        add("metric", metric.name.to_owned());
    }
    for Attribute { key, values, .. } in attributes::ALL.iter().chain(spans::ALL) {
        add("attribute", (*key).to_owned());
        if let Values::Closed(values) = values {
            for value in *values {
                add("value", format!("{key}={value}"));
            }
        }
    }
    // A test compares this page with the schema.
    for key in table_keys(&read("docs/reference/configuration.md"), 5) {
        add("config", key);
    }
    // A test compares this page with the schema.
    for field in table_keys(&read("docs/reference/request-log.md"), 4) {
        add("field", field);
    }
    // A test compares these examples with real pages.
    for field in admin_fields::documented() {
        add("field", field);
    }
    let run = RunArgs::augment_args(Command::new("run"));
    for flag in run.get_arguments().filter_map(|flag| flag.get_long()) {
        add("flag", format!("--{flag}"));
    }
    for alert in alerts() {
        add("alert", alert);
    }
    names
}

/// Returns the keys in the first column of the tables of a page that have this number of columns.
fn table_keys(page: &str, columns: usize) -> Vec<String> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let keys = cells.filter(|(_, rest)| rest.matches(" | ").count() + 2 == columns);
    keys.map(|(key, _)| key.to_owned()).collect()
}

fn alerts() -> Vec<String> {
    let files = fs::read_dir(path("alerts")).unwrap().map(|entry| entry.unwrap().path());
    let rules = files.filter(|file| file.to_string_lossy().ends_with(".rules.yaml"));
    let text: String = rules.map(|file| fs::read_to_string(file).unwrap()).collect();
    text.lines()
        .filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("alert: "))
        .map(str::to_owned)
        .collect()
}

fn rows(file: &str) -> Vec<Vec<String>> {
    let text = read(file);
    text.lines().skip(1).map(|row| row.split(',').map(str::to_owned).collect()).collect()
}

#[test]
fn public_names_are_stable() {
    let recorded: BTreeSet<Name> = rows("tests/fixtures/public_names.csv")
        .into_iter()
        .map(|row| (row[0].clone(), row[1].clone()))
        .collect();
    let current = current();
    assert!(current.len() > 400, "{}", current.len());
    let lines = |names: Vec<&Name>| -> String {
        names.into_iter().map(|(kind, name)| format!("\n{kind},{name}")).collect()
    };
    let (lost, new) =
        (recorded.difference(&current).collect(), current.difference(&recorded).collect());
    let (lost, new) = (lines(lost), lines(new));
    assert!(lost.is_empty(), "a public name was removed or renamed:{lost}");
    assert!(new.is_empty(), "add to tests/fixtures/public_names.csv:{new}");
}
