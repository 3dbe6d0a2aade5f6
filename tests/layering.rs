//! Holds the shape of the source tree: who may import whom, what the pure part may use, how long a file may grow.
//!
//! The rule is written twice on purpose, here and in `ARCHITECTURE.md`, and one test says that both are the same. The
//! paths in each file are found by `layering/paths.rs`.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "this is a test: what is not as expected shall end it"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::parse::{ParseStream, Parser};

use paths::Paths;

#[path = "layering/paths.rs"]
mod paths;

/// One module (or one file of it, where that needs less or more than its siblings) and what it may import: a module,
/// or one item of a module.
struct Row {
    module: &'static str,
    may_import: &'static [&'static str],
}

const fn row(module: &'static str, may_import: &'static [&'static str]) -> Row {
    Row { module, may_import }
}

/// Stands for every module: for what puts the program together.
const ALL: &[&str] = &["all"];

/// The table of `ARCHITECTURE.md`, which gives the reason for each row that is not obvious. Longest match first wins.
const TABLE: &[Row] = &[
    row("clock", &[]),
    row("label", &[]),
    row("bell", &[]),
    row("slots", &["clock"]),
    row("vitals", &[]),
    row("tcp", &[]),
    row("wire", &["clock", "label", "tcp::Connection"]),
    row("diag", &["clock", "label", "wire"]),
    row("listen", &["bell", "clock", "diag", "tcp::Connection"]),
    row("route", &["label", "wire"]),
    row("forward", &["bell", "clock", "diag", "label", "route", "tcp::Connection", "tee", "wire"]),
    row("tee", &["clock", "diag", "wire"]),
    row("decode", &[]),
    row("frame", &[]),
    row("dialect", &["frame", "label", "wire"]),
    row("content", &["dialect", "label"]),
    row("count", &["dialect", "label"]),
    row("cost", &["clock", "count::Source", "label", "record"]),
    row("measure", &["clock", "count::Source", "dialect::Kind"]),
    row("record", &["clock", "content", "count", "dialect", "frame", "label", "measure", "wire"]),
    row(
        "observe",
        &[
            "clock",
            "content",
            "count",
            "decode",
            "dialect",
            "frame",
            "label",
            "load::State",
            "measure",
            "record",
            "tcp::Connection",
            "tcp::Info",
            "wire",
        ],
    ),
    row(
        "observe/board",
        &[
            "clock", "content", "cost", "count", "dialect", "drift", "engine", "export", "frame",
            "label", "load", "measure", "record", "slo", "wire",
        ],
    ),
    row("observe/task", &["clock", "diag", "tee", "wire"]),
    row("engine", &["clock", "label", "record::Warm"]),
    row("scrape", &["diag", "engine", "forward", "label"]),
    row(
        "load",
        &[
            "clock",
            "dialect::Allowance",
            "dialect::Quota",
            "label",
            "measure::Band",
            "measure::VOICE_RATE",
            "record",
            "slots",
            "wire",
        ],
    ),
    row(
        "slo",
        &["clock", "dialect::Operation", "label", "measure::rates", "record", "slots", "wire"],
    ),
    row("drift", &["clock", "label", "load::Flow", "load::MOST_FLOWS", "record", "wire"]),
    row(
        "export",
        &[
            "clock",
            "content::Content",
            "cost::TokenPrice",
            "count::Source",
            "diag",
            "dialect::Allowance",
            "dialect::Api",
            "dialect::ByModality",
            "dialect::Kind",
            "dialect::Operation",
            "dialect::Quota",
            "dialect::RequestFacts",
            "dialect::Timings",
            "dialect::Usage",
            "drift",
            "engine",
            "frame::Anomaly",
            "label",
            "load",
            "measure",
            "record",
            "slo",
            "vitals",
            "wire",
        ],
    ),
    row(
        "admin",
        &[
            "clock",
            "diag",
            "drift",
            "engine::Reading",
            "export",
            "label",
            "load",
            "measure::Band",
            "slo",
            "wire",
        ],
    ),
    row("console", &["clock", "diag", "export", "label", "load", "slo"]),
    row(
        "config",
        &[
            "admin",
            "clock",
            "content",
            "cost",
            "count",
            "diag",
            "dialect",
            "drift",
            "engine",
            "export",
            "forward",
            "label",
            "listen",
            "load",
            "monitoring",
            "observe",
            "report",
            "route",
            "scrape",
            "slo",
            "tee",
            "wire",
        ],
    ),
    row("monitoring", &["export::names", "export::prometheus"]),
    row("report", &["label"]),
    row(
        "kube",
        &["config::Length", "config::Target", "config::Url", "diag", "label", "slo::Preset"],
    ),
    row("kube/injector", &["clock", "diag", "listen"]),
    row("simulate", &["clock", "label"]),
    row("app", ALL),
    row("cli", ALL),
    row("lib", ALL),
    row("main", ALL),
];

/// Modules and files that are arithmetic over bytes and instants: no runtime, no I/O, no telemetry library, and no
/// reading of the clock (time is an argument).
const PURE: &[&str] = &[
    "label",
    "slots",
    "wire",
    "decode",
    "frame",
    "dialect",
    "content",
    "count",
    "measure",
    "record",
    "observe/answer",
    "observe/board",
    "observe/calling",
    "observe/coding",
    "observe/exchange",
    "observe/network",
    "observe/reading",
    "engine",
    "load",
    "slo",
    "drift",
    "kube/inject",
    "kube/injector/authority",
    "kube/injector/instant",
    "kube/review",
    "kube/yaml",
    "report/accept",
    "report/bootstrap",
    "report/compare",
    "report/knee",
    "report/slices",
    "report/statistics",
    "report/steady",
    "report/table",
    "report/window",
];

/// The most lines that a file may have before its tests. A reader holds about so much in mind at once; a file that
/// reaches 350 should have been two ideas already.
const LONGEST_FILE: usize = 500;

#[test]
fn every_file_imports_only_what_the_table_allows() {
    let complaints: Vec<String> = sources().iter().flat_map(complaints).collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn no_file_has_grown_past_its_bound() {
    for source in sources() {
        let lines = lines_before_tests(&source.text);
        assert!(
            lines <= LONGEST_FILE,
            "src/{} has {lines} lines before its tests, {LONGEST_FILE} are allowed: split it by idea",
            source.name
        );
    }
}

/// The picture that people read and the table that the compiler cannot hold are one.
#[test]
fn the_architecture_page_shows_the_same_table() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let shown: BTreeMap<String, BTreeSet<String>> =
        page.lines().filter_map(shown_row).flatten().collect();
    let held: BTreeMap<String, BTreeSet<String>> = TABLE
        .iter()
        .map(|row| {
            (row.module.to_owned(), row.may_import.iter().map(|&name| name.to_owned()).collect())
        })
        .collect();
    assert_eq!(shown, held, "left: ARCHITECTURE.md, right: this test");
}

#[test]
fn a_forbidden_import_is_found_in_whatever_form_it_is_written() {
    let forbidden = [
        "use crate::export::names;",
        "use crate::{label::Name, export::names};",
        "use crate::{label::{Label, Name}, export};",
        "use super::super::export;",
        "use super::{super::export::names, other};",
        "fn f() -> crate::export::Thing { todo!() }",
        "fn f() { let x = crate::export::made(); }",
        "fn f() { println!(\"{}\", crate::export::made()); }",
        "fn f() { matches!(x, Some(crate::export::Kind::A { .. })) }",
        "macro_rules! m { () => { $crate::export::made() } }",
        "mod inner { use super::super::super::export; }",
        "#[cfg(not(test))] use crate::export;",
        "#[cfg(test)] mod tests {} use crate::export;",
        "#[cfg(test)] use crate::{label}; use crate::export;",
        "#[derive(Debug)] struct S<T: crate::export::Trait>(T);",
        "use crate::*;",
        "use crate::export::*;",
        "use crate::export;",
        "use crate::frame::{self}; use crate::export::{self};",
        "fn f() { crate::export::made::<u8>(); }",
    ];
    for text in forbidden {
        let source = Source::literal("dialect/openai.rs", text);
        assert_eq!(complaints(&source).len(), 1, "{text}");
    }
}

#[test]
fn a_runtime_or_a_clock_is_found_in_the_pure_part() {
    let forbidden = [
        "use tokio::sync::mpsc;",
        "use tokio as runtime;",
        "fn f() { hyper::body::take() }",
        "fn f() { tracing::info!(\"seen\"); }",
        "use opentelemetry_sdk::Resource;",
        "use {bytes::Bytes, hyper_util::rt};",
        "extern crate tokio;",
        "fn f() { let at = crate::clock::now(); }",
        "fn f() { let at = clock::wall_now(); }",
        "use crate::clock::{Moment, now};",
    ];
    for text in forbidden {
        for file in ["slo/budget.rs", "observe/exchange.rs"] {
            let source = Source::literal(file, text);
            assert_eq!(complaints(&source).len(), 1, "{file}: {text}");
        }
        let source = Source::literal("observe/task.rs", text);
        assert_eq!(complaints(&source), [""; 0], "{text}");
    }
}

#[test]
fn an_inflater_is_found_outside_its_home() {
    let inflaters = [
        ("use flate2::Decompress;", "decode/flate.rs", "observe/coding.rs"),
        ("use flate2::write::GzEncoder;", "export/otlp.rs", "admin/mod.rs"),
        ("fn f(it: brotli_decompressor::BrotliResult) {}", "decode/brotli.rs", "frame/sse.rs"),
        ("use zstd_safe as zstd;", "decode/zstd.rs", "dialect/mod.rs"),
    ];
    for (text, home, elsewhere) in inflaters {
        assert_eq!(complaints(&Source::literal(home, text)), [""; 0], "{text}");
        assert_eq!(complaints(&Source::literal(elsewhere, text)).len(), 1, "{text}");
    }
}

#[test]
fn what_is_allowed_passes() {
    let allowed = [
        "use crate::frame::Anomaly; use super::Frame; use self::inner::X;",
        "pub(crate) fn f(tokio: u8) -> u8 { tokio }",
        "#[cfg(test)] mod tests { use crate::export; use tokio::time; }",
        "#[cfg(test)] use crate::export; use std::{fmt, io};",
        "#[cfg(test)] #[expect(unused, reason = \"x\")] pub(crate) const fn f<A, B>() { crate::export::f() }",
        "enum E { #[cfg(test)] A(crate::export::T), B }",
        "/// See [`crate::export`].\nstruct S;",
        "const TEXT: &str = \"use tokio::sync;\";",
    ];
    for text in allowed {
        let source = Source::literal("frame/sse.rs", text);
        assert_eq!(complaints(&source), [""; 0], "{text}");
    }
}

#[test]
fn a_row_may_allow_one_item_of_a_module() {
    let measure = |text| complaints(&Source::literal("measure/rates.rs", text));
    assert_eq!(measure("use crate::count::Source; use crate::dialect::{Kind as K};"), [""; 0]);
    assert_eq!(measure("use crate::count::{Source, Counter};").len(), 1);
    assert_eq!(measure("use crate::count; fn f() -> count::Counter {}").len(), 1);
    assert_eq!(measure("use crate::count::*;").len(), 1);
}

#[test]
fn a_module_without_a_row_is_refused() {
    let source = Source::literal("helpers.rs", "");
    assert_eq!(complaints(&source).len(), 1);
}

#[test]
fn lines_are_counted_up_to_the_tests() {
    let text = "fn a() {}\n#[cfg(test)]\nfn b() {}\n\n#[cfg(test)]\nmod tests {\n}\n";
    assert_eq!(lines_before_tests(text), 4);
}

/// One file under `src/`.
struct Source {
    /// Relative to `src/`, with `/`.
    name: String,
    text: String,
    paths: Paths,
}

impl Source {
    fn literal(name: &str, text: &str) -> Self {
        let mut paths = Paths { module: module_path(name), ..Paths::default() };
        let parser = |input: ParseStream<'_>| paths.read(input);
        parser.parse_str(text).unwrap_or_else(|error| panic!("src/{name}: {error}"));
        Self { name: name.to_owned(), text: text.to_owned(), paths }
    }

    /// `frame/sse` of `frame/sse.rs`, `frame` of `frame/mod.rs`.
    fn module(&self) -> String {
        let path = module_path(&self.name);
        if path.is_empty() {
            return self.name.trim_end_matches(".rs").to_owned();
        }
        path.join("/")
    }

    fn is_in(&self, module: &str) -> bool {
        let own = self.module();
        own.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Everything under `src/` but what is compiled for tests only.
fn sources() -> Vec<Source> {
    let src = root().join("src");
    let mut files = Vec::new();
    collect(&src, &mut files);
    assert!(files.len() > 20, "only {} files in src/", files.len());
    let sources: Vec<Source> = files
        .iter()
        .map(|file| {
            let name = file.strip_prefix(&src).unwrap().to_str().unwrap();
            Source::literal(name, &fs::read_to_string(file).unwrap())
        })
        .collect();
    let test_only: Vec<String> = sources
        .iter()
        .flat_map(|source| source.paths.test_modules.iter().map(|path| path.join("/")))
        .collect();
    sources
        .into_iter()
        .filter(|source| !test_only.iter().any(|module| source.is_in(module)))
        .collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn module_path(name: &str) -> Vec<String> {
    let mut path: Vec<String> =
        name.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if path.last().is_some_and(|last| last == "mod")
        || ["lib", "main"].map(|root| vec![root.to_owned()]).contains(&path)
    {
        path.pop();
    }
    path
}

fn complaints(source: &Source) -> Vec<String> {
    let row =
        TABLE.iter().filter(|row| source.is_in(row.module)).max_by_key(|row| row.module.len());
    let Some(row) = row else {
        return vec![format!(
            "src/{} belongs to no module of the table: give it a row",
            source.name
        )];
    };
    let own = source.paths.module.first();
    let forbidden = |reached: &&String| {
        let module = reached.split("::").next().unwrap_or_default();
        let allowed = |name: &str| row.may_import.contains(&name);
        row.may_import != ALL
            && own.is_none_or(|own| own != module)
            && !allowed(module)
            && !allowed(reached)
    };
    let modules = source.paths.inside.iter().filter(forbidden).map(|reached| {
        format!(
            "src/{} imports {reached}; {} may import only {:?}",
            source.name, row.module, row.may_import
        )
    });
    let impure = source.paths.outside.iter().map(|name| {
        format!(
            "src/{} uses {name}; that part is pure: bytes and instants in, values out",
            source.name
        )
    });
    let strayed = source
        .paths
        .strayed
        .iter()
        .map(|name| format!("src/{} uses {name}, which has its home elsewhere", source.name));
    let modules = modules.chain(strayed);
    if PURE.iter().any(|module| source.is_in(module)) {
        modules.chain(impure).collect()
    } else {
        modules.collect()
    }
}

/// Lines before the module of tests, which stands last in a file.
fn lines_before_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    lines
        .windows(2)
        .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod "))
        .unwrap_or(lines.len())
}

/// The modules and imports that one line of the page's table shows; `None` for any other line.
fn shown_row(line: &str) -> Option<Vec<(String, BTreeSet<String>)>> {
    let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
    let [modules, _, imports, _, ..] = cells.as_slice() else {
        return None;
    };
    let imports: BTreeSet<String> = imports
        .split([',', ' '])
        .filter(|word| !word.is_empty() && *word != "–")
        .map(str::to_owned)
        .collect();
    let names: Vec<&str> = modules.split('`').skip(1).step_by(2).collect();
    let rows = names
        .into_iter()
        .map(|name| {
            let name = name.trim_end_matches(".rs").trim_end_matches('/');
            (name.to_owned(), imports.clone())
        })
        .collect::<Vec<_>>();
    (!rows.is_empty()).then_some(rows)
}
