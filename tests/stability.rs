//! Public names are stable: a name that was public once still exists, or `docs/reference/renames.csv` names its
//! successor. `docs/reference/stability.md` states the rules.
//!
//! `tests/fixtures/public_names.csv` records every name that was ever public. A new name needs a new line there, and a
//! removed or renamed one keeps its line and gets a row in `renames.csv`.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic"
)]

#[path = "pages/admin_fields.rs"]
mod admin_fields;

use std::collections::{BTreeMap, BTreeSet};
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

/// The renames by kind and former name. A metric that became several has several.
fn renames() -> BTreeMap<Name, Vec<String>> {
    let mut renames: BTreeMap<Name, Vec<String>> = BTreeMap::new();
    for row in rows("docs/reference/renames.csv") {
        let [kind, old, new] = row.as_slice() else {
            panic!("not three columns: {row:?}");
        };
        let name = old.split_once('{').map_or(old.as_str(), |(name, _)| name);
        renames.entry((kind.clone(), name.to_owned())).or_default().push(new.clone());
    }
    renames
}

/// Returns the labels whose values select one of several successors of a metric, with these values.
fn selectors() -> BTreeSet<String> {
    let rows = rows("docs/reference/renames.csv");
    let old = rows.iter().filter_map(|row| row[1].split_once('{'));
    old.map(|(_, selector)| selector.trim_end_matches('}').to_owned()).collect()
}

#[test]
fn every_name_that_was_public_exists_or_has_a_successor() {
    let (current, renames, selectors) = (current(), renames(), selectors());
    let is_selector = |name: &str| {
        selectors.iter().any(|it| it == name || it.split('=').next().is_some_and(|key| key == name))
    };
    let exists = |kind: &str, name: &str| current.contains(&(kind.to_owned(), name.to_owned()));
    let mut lost = Vec::new();
    for row in rows("tests/fixtures/public_names.csv") {
        let (kind, name) = (row[0].as_str(), row[1].as_str());
        let successors = renames.get(&(kind.to_owned(), name.to_owned()));
        // The values of a renamed attribute keep their names, unless they have rows of their own.
        let of_attribute = name.split_once('=').and_then(|(key, value)| {
            let new = renames.get(&("attribute".to_owned(), key.to_owned()))?.first()?;
            Some(format!("{new}={value}"))
        });
        let survives = exists(kind, name)
            || successors.is_some_and(|all| all.iter().all(|new| exists(kind, new)))
            || of_attribute.is_some_and(|new| exists(kind, &new))
            || is_selector(name);
        if !survives {
            lost.push(format!("{kind},{name}"));
        }
    }
    assert!(
        lost.is_empty(),
        "renamed or removed without a row in renames.csv:\n{}",
        lost.join("\n")
    );
}

#[test]
fn every_public_name_is_recorded() {
    let recorded: BTreeSet<Name> = rows("tests/fixtures/public_names.csv")
        .into_iter()
        .map(|row| (row[0].clone(), row[1].clone()))
        .collect();
    let current = current();
    let new: Vec<String> =
        current.difference(&recorded).map(|(kind, name)| format!("{kind},{name}")).collect();
    assert!(current.len() > 400, "{}", current.len());
    assert!(new.is_empty(), "add to tests/fixtures/public_names.csv:\n{}", new.join("\n"));
}

#[test]
fn renames_lead_to_current_names() {
    let current = current();
    for ((kind, old), new) in renames() {
        for new in new {
            assert!(current.contains(&(kind.clone(), new.clone())), "{kind}: {old} → {new}");
        }
        assert!(!current.contains(&(kind.clone(), old.clone())), "{kind}: {old} still exists");
    }
}

#[test]
fn changelog_has_every_rename() {
    let changelog = read("CHANGELOG.md");
    for row in rows("docs/reference/renames.csv") {
        let line = format!("| {} | `{}` | `{}` |", row[0], row[1], row[2]);
        assert!(changelog.contains(&line), "CHANGELOG.md lacks {line}");
    }
}
