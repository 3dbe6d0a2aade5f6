//! Reads the Markdown pages of this repository, for tests that compare the pages with the program.

use std::fs;
use std::path::{Path, PathBuf};

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns a page by its path from the root.
pub fn read(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// Returns the paths of all published pages: the pages next to the README, and the pages in these folders.
pub fn all() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> =
        ["docs", "deploy", "dashboards", "alerts", "examples"].map(|name| root().join(name)).into();
    let mut paths: Vec<PathBuf> = entries(root());
    paths.retain(|path| path.is_file());
    while let Some(folder) = folders.pop() {
        paths.extend(entries(&folder));
        folders.extend(entries(&folder).into_iter().filter(|path| path.is_dir()));
    }
    for path in paths {
        if path.extension().is_some_and(|it| it == "md") {
            found.push(path.strip_prefix(root()).unwrap().display().to_string());
        }
    }
    found.sort();
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
        .unwrap_or_default()
}

/// Returns the text in single backticks outside of code blocks.
pub fn code_spans(page: &str) -> impl Iterator<Item = &str> {
    let prose = page.split("```").step_by(2);
    prose.flat_map(|text| text.split('`').skip(1).step_by(2))
}

/// Returns the code blocks of one language, without their fences.
pub fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    page.split("```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| block.split_once('\n'))
        .filter(|(named, _)| *named == language)
        .map(|(_, text)| text)
        .collect()
}
