//! Checks the structure of the workspace: dependencies between packages, purity of the observation packages, length of
//! files, and import cycles between files.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "structure/errors.rs"]
mod errors;
#[path = "structure/imports.rs"]
mod imports;
#[path = "structure/names.rs"]
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use imports::{Module, cycles};
use regex::Regex;

/// Packages without I/O, async runtime or telemetry library. Their functions get the time as an argument.
const PURE: [&str; 3] = ["types", "llm", "measure"];

/// Crates that a pure package must not use, and prefixes of such crates.
const IMPURE: [&str; 4] = ["tokio", "hyper", "tracing", "opentelemetry"];

/// Crates that decompress, and the places that may use them. They read untrusted bytes, so only code that limits their
/// output may use them.
const DECOMPRESSORS: [(&str, &[&str]); 3] = [
    ("brotli_decompressor", &["crates/llm/src/decode/"]),
    ("zstd_safe", &["crates/llm/src/decode/"]),
    (
        "flate2",
        &[
            "crates/llm/src/decode/",
            "crates/llm/src/count/",
            "crates/telemetry/",
            "crates/report/",
            "crates/overhead/",
        ],
    ),
];

/// Maximum number of lines of a file before its tests.
const MAX_LINES: usize = 500;

#[test]
fn packages_depend_on_what_the_architecture_page_lists() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let documented: BTreeMap<String, BTreeSet<String>> =
        page.lines().filter_map(documented_package).collect();
    let declared: BTreeMap<String, BTreeSet<String>> = packages()
        .into_iter()
        .map(|name| {
            let dependencies = dependencies(&name)
                .into_iter()
                .filter_map(|it| it.strip_prefix("tokengauge-").map(str::to_owned))
                .collect();
            (name, dependencies)
        })
        .collect();
    assert_eq!(documented, declared, "left: ARCHITECTURE.md, right: Cargo.toml of each package");
}

#[test]
fn pure_packages_use_no_runtime_and_no_clock() {
    let mut problems = Vec::new();
    for package in PURE {
        for dependency in dependencies(package) {
            if IMPURE
                .iter()
                .any(|it| dependency == *it || dependency.starts_with(&format!("{it}-")))
            {
                problems.push(format!("{package} depends on {dependency}"));
            }
        }
        for module in Module::read_package(&root(), &format!("crates/{package}")) {
            let own = module.file.ends_with("types/src/clock.rs");
            if module.reads_the_clock() && !own {
                problems.push(format!("{} reads the clock", module.file));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn decompressors_are_used_where_their_output_is_bounded() {
    let mut problems = Vec::new();
    for module in modules() {
        for (name, allowed) in DECOMPRESSORS {
            if module.names_crate(name) && !allowed.iter().any(|it| module.file.starts_with(it)) {
                problems.push(format!("{} uses {name}", module.file));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn files_are_short() {
    let long: Vec<String> = modules()
        .iter()
        .filter(|module| module.lines_before_tests > MAX_LINES)
        .map(|module| format!("{}: {} lines", module.file, module.lines_before_tests))
        .collect();
    assert!(long.is_empty(), "over {MAX_LINES} lines before tests:\n{}", long.join("\n"));
}

#[test]
fn no_import_cycle_between_files() {
    let cycles: Vec<String> = packages()
        .iter()
        .flat_map(|package| cycles(&Module::read_package(&root(), &package_folder(package))))
        .map(|cycle| cycle.join("\n  "))
        .collect();
    assert!(cycles.is_empty(), "\n{}", cycles.join("\n"));
}

/// A file without a `mod` line is not compiled, and its tests do not run.
#[test]
fn no_error_prints_its_source() {
    let mut problems = Vec::new();
    for file in ["src", "crates"].iter().flat_map(|folder| rust_files(&root().join(folder))) {
        let text = fs::read_to_string(&file).unwrap();
        problems.extend(errors::printed_sources(file.strip_prefix(root()).unwrap(), &text));
    }
    assert!(
        problems.is_empty(),
        "remove the source from the message, or the attribute: {problems:#?}"
    );
}

#[test]
fn every_file_is_declared() {
    let mut undeclared = Vec::new();
    for package in packages() {
        let source = root().join(package_folder(&package)).join("src");
        for file in rust_files(&source) {
            let name = file.file_stem().unwrap().to_str().unwrap();
            let folder = file.parent().unwrap();
            let (module, parent) = match name {
                "lib" | "main" if folder == source => continue,
                "mod" => (folder.file_name().unwrap().to_str().unwrap(), folder.parent().unwrap()),
                _ => (name, folder),
            };
            let candidates = ["mod.rs", "lib.rs", "main.rs"].map(|it| parent.join(it));
            let declaration = format!("mod {module};");
            let declared = candidates
                .iter()
                .chain([&parent.with_extension("rs")])
                .filter_map(|it| fs::read_to_string(it).ok())
                .any(|text| text.lines().any(|line| line.ends_with(&declaration)));
            if !declared {
                undeclared.push(file.display().to_string());
            }
        }
    }
    assert!(undeclared.is_empty(), "no mod line for:\n{}", undeclared.join("\n"));
}

/// A file that is embedded in the program but excluded from the build of the image breaks this build.
#[test]
fn embedded_files_are_part_of_the_image_build() {
    let ignored = root().join("deploy/docker/Dockerfile.dockerignore");
    let ignored = fs::read_to_string(ignored).unwrap();
    let embedded = Regex::new(r#"include_(?:str|bytes)!\(\s*(?:concat!\(\s*)?"([^"]+)""#).unwrap();
    let mut found = Vec::new();
    for package in packages() {
        for file in rust_files(&root().join(package_folder(&package)).join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            let name = file.strip_prefix(root()).unwrap().to_str().unwrap();
            if name.ends_with("tests.rs") || name.contains("/tests/") {
                continue;
            }
            let program = text.split("#[cfg(test)]").next().unwrap();
            for captures in embedded.captures_iter(program) {
                found.push(resolved(&format!("{}/../{}", name, &captures[1])));
            }
        }
    }
    assert!(found.iter().any(|path| path.starts_with("docs/runbooks")), "{found:?}");
    let missing: Vec<_> = found.iter().filter(|path| !is_copied(path, &ignored)).collect();
    assert!(missing.is_empty(), "excluded by Dockerfile.dockerignore: {missing:?}");
}

/// Removes `..` and `.` from a path of the repository.
fn resolved(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/').filter(|part| !matches!(*part, "." | "")) {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// Whether Docker copies a file. The last line that matches the path decides. A line after `!` includes the path.
fn is_copied(path: &str, ignored: &str) -> bool {
    let mut copied = true;
    for line in ignored.lines().filter(|line| !line.starts_with('#')) {
        let (included, pattern) = match line.strip_prefix('!') {
            Some(pattern) => (true, pattern),
            None => (false, line.trim_end_matches("/*")),
        };
        if Path::new(path).starts_with(pattern) {
            copied = included;
        }
    }
    copied
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|it| it == "rs") {
            files.push(path);
        }
    }
    files
}

/// Reads a row `| package | responsibility | dependencies |` of the table in ARCHITECTURE.md.
fn documented_package(line: &str) -> Option<(String, BTreeSet<String>)> {
    let cells: Vec<&str> = line.strip_prefix("| `")?.split('|').map(str::trim).collect();
    let [name, _, dependencies, ""] = cells.as_slice() else { return None };
    let name = name.trim_end_matches('`').trim_start_matches("crates/");
    let name = if name == "src/" { "tokengauge" } else { name };
    let dependencies = dependencies
        .split([',', ' '])
        .filter(|word| !word.is_empty() && *word != "–")
        .map(str::to_owned)
        .collect();
    Some((name.to_owned(), dependencies))
}

/// Returns the packages of the workspace; the root package is `tokengauge`.
fn packages() -> Vec<String> {
    let folders = fs::read_dir(root().join("crates")).unwrap();
    let mut names: Vec<String> =
        folders.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.push("tokengauge".to_owned());
    names.sort();
    names
}

fn package_folder(package: &str) -> String {
    if package == "tokengauge" { ".".to_owned() } else { format!("crates/{package}") }
}

/// Returns the normal dependencies in a package's manifest.
fn dependencies(package: &str) -> BTreeSet<String> {
    let manifest = root().join(package_folder(package)).join("Cargo.toml");
    let text =
        fs::read_to_string(&manifest).unwrap_or_else(|error| panic!("{manifest:?}: {error}"));
    text.lines()
        .skip_while(|line| *line != "[dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

fn modules() -> Vec<Module> {
    packages()
        .iter()
        .flat_map(|package| Module::read_package(&root(), &package_folder(package)))
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}
