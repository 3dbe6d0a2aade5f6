//! Holds the shape of the source tree: who may import whom, what the pure part may use, how long a file may grow.
//!
//! The rule is written twice on purpose, here and in `ARCHITECTURE.md`, and one test says that both are the same. The
//! files are read as token trees rather than as items: a path inside a macro's arguments counts like any other, and
//! only what stands under `#[cfg(test)]` is left out. A path is followed through `crate`, `self`, `super` and groups
//! up to the top-level module that it reaches.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "this is a test: what is not as expected shall end it"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Ident, Token, braced, bracketed, parenthesized, token};

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
    row("slots", &["clock"]),
    row("wire", &["clock", "label"]),
    row("diag", &["clock", "label", "wire"]),
    row("listen", &["clock", "diag"]),
    row("route", &["label", "wire"]),
    row(
        "forward",
        &["clock", "diag", "label", "route", "tee", "wire"],
    ),
    row("tee", &["clock", "diag", "wire"]),
    row("decode", &[]),
    row("frame", &[]),
    row("dialect", &["frame", "label", "wire"]),
    row("count", &["dialect", "label"]),
    row("measure", &["clock", "count::Source", "dialect::Kind"]),
    row(
        "record",
        &[
            "clock", "count", "dialect", "frame", "label", "measure", "wire",
        ],
    ),
    row(
        "observe",
        &[
            "clock",
            "count",
            "decode",
            "dialect",
            "frame",
            "label",
            "load::State",
            "measure",
            "record",
            "wire",
        ],
    ),
    row(
        "observe/board",
        &[
            "clock", "count", "dialect", "export", "frame", "label", "load", "measure", "record",
            "slo", "wire",
        ],
    ),
    row("observe/task", &["clock", "diag", "tee", "wire"]),
    row("load", &["clock", "label", "record", "slots", "wire"]),
    row("slo", &["clock", "label", "record", "slots", "wire"]),
    row(
        "export",
        &[
            "clock",
            "count::Source",
            "diag",
            "dialect::Kind",
            "dialect::Operation",
            "dialect::Usage",
            "frame::Anomaly",
            "label",
            "load",
            "measure",
            "record",
            "slo",
            "wire",
        ],
    ),
    row(
        "admin",
        &["clock", "diag", "export", "label", "load", "slo", "wire"],
    ),
    row(
        "console",
        &["clock", "diag", "export", "label", "load", "slo"],
    ),
    row(
        "config",
        &[
            "admin", "clock", "count", "diag", "export", "forward", "label", "listen", "load",
            "observe", "route", "slo", "tee", "wire",
        ],
    ),
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
    "count",
    "measure",
    "record",
    "observe/answer",
    "observe/board",
    "observe/exchange",
    "load",
    "slo",
];

/// Crates that a pure module may not use, nor any crate whose name starts with one of these and `_`.
const IMPURE_CRATES: &[&str] = &["tokio", "hyper", "tracing", "opentelemetry"];

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
            (
                row.module.to_owned(),
                row.may_import.iter().map(|&name| name.to_owned()).collect(),
            )
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
    assert_eq!(
        measure("use crate::count::Source; use crate::dialect::{Kind as K};"),
        [""; 0]
    );
    assert_eq!(measure("use crate::count::{Source, Counter};").len(), 1);
    assert_eq!(
        measure("use crate::count; fn f() -> count::Counter {}").len(),
        1
    );
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
        let mut paths = Paths {
            module: module_path(name),
            ..Paths::default()
        };
        let parser = |input: ParseStream<'_>| paths.read(input);
        parser
            .parse_str(text)
            .unwrap_or_else(|error| panic!("src/{name}: {error}"));
        Self {
            name: name.to_owned(),
            text: text.to_owned(),
            paths,
        }
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
        own.strip_prefix(module)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
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
    let mut path: Vec<String> = name
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_owned)
        .collect();
    if path.last().is_some_and(|last| last == "mod")
        || ["lib", "main"]
            .map(|root| vec![root.to_owned()])
            .contains(&path)
    {
        path.pop();
    }
    path
}

fn complaints(source: &Source) -> Vec<String> {
    let row = TABLE
        .iter()
        .filter(|row| source.is_in(row.module))
        .max_by_key(|row| row.module.len());
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
    if PURE.iter().any(|module| source.is_in(module)) {
        modules.chain(impure).collect()
    } else {
        modules.collect()
    }
}

/// What the paths in a file reach.
#[derive(Default)]
struct Paths {
    /// Where the reader stands: the file's module and the inline modules that are open.
    module: Vec<String>,
    /// In this crate, by module and item (`clock::Moment`); `*` for a glob of its root.
    inside: BTreeSet<String>,
    /// Impure crates, and the functions that read the clock.
    outside: BTreeSet<String>,
    /// Modules in files of their own that are compiled for tests only.
    test_modules: Vec<Vec<String>>,
}

impl Paths {
    fn read(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        while !input.is_empty() {
            if input.peek(Token![#]) {
                self.attribute(input)?;
            } else if input.peek(Ident::peek_any) {
                let word = Ident::parse_any(input)?;
                self.word(&word, input)?;
            } else {
                self.other(input)?;
            }
        }
        Ok(())
    }

    fn attribute(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        input.parse::<Token![#]>()?;
        input.parse::<Option<Token![!]>>()?;
        if !input.peek(token::Bracket) {
            return Ok(());
        }
        let content;
        bracketed!(content in input);
        if is_cfg_test(&content.fork()).unwrap_or(false) {
            skip(&content)?;
            return self.skip_item(input);
        }
        self.read(&content)
    }

    fn word(&mut self, word: &Ident, input: ParseStream<'_>) -> syn::Result<()> {
        if word == "use" {
            input.parse::<Option<Token![::]>>()?;
            return self.follow(Reached::Nothing, input);
        }
        if word == "extern" && input.peek(Token![crate]) {
            input.parse::<Token![crate]>()?;
            return self.follow(Reached::Nothing, input);
        }
        if word == "mod" && input.peek2(token::Brace) {
            self.module.push(Ident::parse_any(input)?.to_string());
            self.other(input)?;
            self.module.pop();
            return Ok(());
        }
        if input.peek(Token![::]) {
            let reached = self.step(Reached::Nothing, word);
            return self.onwards(reached, input);
        }
        Ok(())
    }

    /// Follows one branch of a path: a word and what comes after it, a group, or a glob.
    fn follow(&mut self, reached: Reached, input: ParseStream<'_>) -> syn::Result<()> {
        if input.peek(Ident::peek_any) {
            let word = Ident::parse_any(input)?;
            let reached = self.step(reached, &word);
            return self.onwards(reached, input);
        }
        if input.peek(token::Brace) {
            let branches;
            braced!(branches in input);
            while !branches.is_empty() {
                branches.parse::<Option<Token![::]>>()?;
                self.follow(reached.clone(), &branches)?;
                while !branches.is_empty() && !branches.peek(Token![,]) {
                    skip_one(&branches)?;
                }
                branches.parse::<Option<Token![,]>>()?;
            }
            return Ok(());
        }
        if let Reached::Inside(mut path) = reached {
            path.extend(input.peek(Token![*]).then(|| "*".to_owned()));
            self.reach(&path);
        }
        Ok(())
    }

    fn onwards(&mut self, reached: Reached, input: ParseStream<'_>) -> syn::Result<()> {
        if input.peek(Token![::]) {
            input.parse::<Token![::]>()?;
            return self.follow(reached, input);
        }
        if let Reached::Inside(path) = reached {
            self.reach(&path);
        }
        Ok(())
    }

    /// A path into this crate ends here. Its module and item are what counts.
    fn reach(&mut self, path: &[String]) {
        if !path.is_empty() {
            self.inside.insert(path[..path.len().min(2)].join("::"));
        }
    }

    /// One word further along a path. Takes note of what must not be reached from the pure part.
    fn step(&mut self, reached: Reached, word: &Ident) -> Reached {
        let word = word.to_string();
        let next = match (reached, word.as_str()) {
            (Reached::Nothing, "crate") => Reached::Inside(Vec::new()),
            (Reached::Nothing, "self") => Reached::Inside(self.module.clone()),
            (Reached::Nothing, "super") => Reached::Inside(parent(&self.module)),
            (Reached::Inside(path), "super") => Reached::Inside(parent(&path)),
            (Reached::Inside(path), "self") => Reached::Inside(path),
            (Reached::Inside(mut path), _) => {
                path.push(word);
                Reached::Inside(path)
            }
            (Reached::Nothing, _) => Reached::Outside(vec![word]),
            (Reached::Outside(mut path), _) => {
                path.push(word);
                Reached::Outside(path)
            }
        };
        if let Reached::Outside(path) = &next
            && IMPURE_CRATES.iter().any(|name| is_of(name, &path[0]))
        {
            self.outside.insert(path[0].clone());
        }
        if let Reached::Inside(path) | Reached::Outside(path) = &next
            && let [.., module, function] = path.as_slice()
            && module == "clock"
            && (function == "now" || function == "wall_now")
        {
            self.outside.insert(format!("clock::{function}"));
        }
        next
    }

    /// A group, whose inside is read like the rest, or a single token that means nothing here.
    fn other(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        let content;
        if input.peek(token::Brace) {
            braced!(content in input);
        } else if input.peek(token::Paren) {
            parenthesized!(content in input);
        } else if input.peek(token::Bracket) {
            bracketed!(content in input);
        } else {
            return skip_one(input);
        }
        self.read(&content)
    }

    /// Passes over what stands under `#[cfg(test)]`: an item, a statement, a field or a variant.
    fn skip_item(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        while input.peek(Token![#]) {
            input.parse::<Token![#]>()?;
            skip_one(input)?;
        }
        let ends_with_block = loop {
            if !input.peek(Ident::peek_any) {
                break None;
            }
            let word = Ident::parse_any(input)?;
            if input.peek(token::Paren) && word == "pub" {
                skip_one(input)?;
            }
            match word.to_string().as_str() {
                "pub" | "async" | "unsafe" => {}
                "const" if input.peek(Token![fn]) => {}
                "use" | "const" | "static" | "type" | "let" | "extern" => break Some(false),
                "mod" => {
                    if input.peek2(Token![;]) {
                        let mut path = self.module.clone();
                        path.push(input.fork().call(Ident::parse_any)?.to_string());
                        self.test_modules.push(path);
                    }
                    break Some(true);
                }
                "fn" | "impl" | "struct" | "enum" | "trait" | "union" | "macro_rules" => {
                    break Some(true);
                }
                _ => break None,
            }
        };
        while !input.is_empty() {
            let ends = input.peek(Token![;])
                || (ends_with_block == Some(true) && input.peek(token::Brace))
                || (ends_with_block.is_none() && input.peek(Token![,]));
            skip_one(input)?;
            if ends {
                break;
            }
        }
        Ok(())
    }
}

/// How far a path has been followed.
#[derive(Clone)]
enum Reached {
    Nothing,
    /// In this crate, from its root.
    Inside(Vec<String>),
    /// In another crate, or under a name that was brought in before.
    Outside(Vec<String>),
}

fn parent(module: &[String]) -> Vec<String> {
    module[..module.len().saturating_sub(1)].to_vec()
}

fn is_of(family: &str, name: &str) -> bool {
    name.strip_prefix(family)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

fn is_cfg_test(attribute: ParseStream<'_>) -> syn::Result<bool> {
    let is_cfg = attribute.call(Ident::parse_any)? == "cfg";
    let condition;
    parenthesized!(condition in attribute);
    Ok(is_cfg && condition.call(Ident::parse_any)? == "test" && condition.is_empty())
}

fn skip(input: ParseStream<'_>) -> syn::Result<()> {
    while !input.is_empty() {
        skip_one(input)?;
    }
    Ok(())
}

fn skip_one(input: ParseStream<'_>) -> syn::Result<()> {
    input.step(|cursor| match cursor.token_tree() {
        Some((_, rest)) => Ok(((), rest)),
        None => Err(cursor.error("a token was expected")),
    })
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
