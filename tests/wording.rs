//! Keeps the prose of this repository in plain English: counts the phrases of `tests/fixtures/wording.txt` in
//! documentation, in comments and messages of Rust, and in comments and text of YAML and scripts.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use regex::{Regex, RegexBuilder};

/// Maximum number of hits per 1,000 lines of prose, for each kind of file.
const LIMIT: usize = 10;

/// Folders and files that are not prose of this project, or hold data.
const SKIPPED: [&str; 7] =
    ["target", "node_modules", "fixtures", "snapshots", "dashboards", "files", "LICENSE"];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Documentation,
    Rust,
    Other,
}

impl Kind {
    fn from_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "md" => Some(Self::Documentation),
            "rs" => Some(Self::Rust),
            "yaml" | "yml" | "tpl" | "toml" | "sh" | "py" => Some(Self::Other),
            _ => None,
        }
    }

    /// Returns the part of a line that a person reads: all of it in documentation; else comments, and strings with
    /// several words.
    fn prose(self, line: &str) -> String {
        let line = line.trim();
        match self {
            Self::Documentation => line.to_owned(),
            Self::Rust if line.starts_with("//") => line.to_owned(),
            Self::Rust => strings(line),
            Self::Other if line.starts_with('#') => line.to_owned(),
            Self::Other => match line.split_once(": ") {
                Some((_, value)) if value.matches(' ').count() >= 3 => value.to_owned(),
                _ => strings(line),
            },
        }
    }
}

/// Returns the string literals of a line that consist of several words.
fn strings(line: &str) -> String {
    let literals = line.split('"').skip(1).step_by(2);
    literals.filter(|text| text.matches(' ').count() >= 2).collect::<Vec<_>>().join(" ")
}

fn phrases() -> Regex {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = fs::read_to_string(root.join("tests/fixtures/wording.txt")).unwrap();
    let phrases: Vec<&str> = list
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once(" => ").unwrap_or_else(|| panic!("no alternative: {line}")).0)
        .collect();
    assert!(phrases.len() > 10);
    RegexBuilder::new(&format!(r"\b(?:{})\b", phrases.join("|")))
        .case_insensitive(true)
        .build()
        .unwrap()
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type().unwrap();
        // The test itself and its list contain the phrases.
        if SKIPPED.contains(&name.as_str()) || name == "wording.rs" || name == ".git" {
            continue;
        }
        if kind.is_dir() {
            files(&entry.path(), found);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
}

#[test]
fn prose_is_plain() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let phrases = phrases();
    let mut paths = Vec::new();
    files(root, &mut paths);
    for kind in [Kind::Documentation, Kind::Rust, Kind::Other] {
        let (mut lines, mut hits) = (0, Vec::new());
        for path in paths.iter().filter(|path| Kind::from_path(path) == Some(kind)) {
            let text = fs::read_to_string(path).unwrap();
            for (number, line) in text.lines().enumerate() {
                let prose = kind.prose(line);
                if prose.trim().is_empty() {
                    continue;
                }
                lines += 1;
                let name = path.strip_prefix(root).unwrap().display();
                hits.extend(
                    phrases
                        .find_iter(&prose)
                        .map(|hit| format!("{name}:{}: {}", number + 1, hit.as_str())),
                );
            }
        }
        assert!(lines > 1_000, "{kind:?}: {lines} lines");
        assert!(
            hits.len() * 1_000 <= LIMIT * lines,
            "{kind:?}: {} phrases in {lines} lines of prose, more than {LIMIT} per 1,000. Alternatives are in \
             tests/fixtures/wording.txt.\n{}",
            hits.len(),
            hits.join("\n")
        );
    }
}

#[test]
fn finds_phrases_in_prose_only() {
    let phrases = phrases();
    let hits = |kind: Kind, line: &str| phrases.find_iter(&kind.prose(line)).count();
    assert_eq!(hits(Kind::Documentation, "Nobody is told, and whose fault it is."), 3);
    assert_eq!(hits(Kind::Rust, "/// What the client was told."), 1);
    assert_eq!(hits(Kind::Rust, "let told = upon(\"x\");"), 0);
    assert_eq!(hits(Kind::Rust, "panic!(\"the client was told so\")"), 1);
    assert_eq!(hits(Kind::Other, "summary: nobody reads this one"), 1);
    assert_eq!(hits(Kind::Other, "told: 5"), 0);
}
