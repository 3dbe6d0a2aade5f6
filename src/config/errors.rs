//! What is wrong with a configuration: all of it, each with its place, its key and its remedy.

use std::fmt;
use std::path::{Path, PathBuf};

/// One thing that is wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfigError {
    /// The file and the place in it; `None` for what came from a flag or the environment.
    pub place: Option<(PathBuf, Position)>,
    /// The path of the key (`routes[1].upstream`), the flag or the variable; empty for the file as a whole.
    pub key: String,
    /// What is wrong, and what to do about it.
    pub message: String,
}

/// A place in a file; both count from 1, the column in characters.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl Position {
    pub(super) const START: Self = Self { line: 1, column: 1 };
}

/// `file:line:column: key: message`, in the form that editors jump to.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((file, place)) = &self.place {
            write!(f, "{}:{}:{}: ", file.display(), place.line, place.column)?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong, in the order of the file; never empty.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    pub(super) fn new(mut errors: Vec<ConfigError>) -> Self {
        errors.sort_by(|one, other| one.place.cmp(&other.place));
        Self(errors)
    }

    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }

    /// The file of each problem that has one.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        let places = self.0.iter().filter_map(|problem| problem.place.as_ref());
        places.map(|(file, _)| file.as_path())
    }
}

/// One problem a line.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

/// Names a node of the file's tree, for errors that are found after it was read.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct NodeId(pub(super) usize);

/// Where a node stands, and how it is called.
#[derive(Clone, Debug)]
pub(super) struct Location {
    pub(super) place: Position,
    pub(super) key: String,
}

/// Collects errors; knows where each node is.
#[derive(Debug, Default)]
pub(super) struct ErrorCollector {
    file: PathBuf,
    locations: Vec<Location>,
    found: Vec<ConfigError>,
}

impl ErrorCollector {
    pub(super) fn of_file(file: &Path) -> Self {
        Self { file: file.to_owned(), ..Self::default() }
    }

    /// Gives a node its node.
    pub(super) fn add_node(&mut self, place: Position, key: String) -> NodeId {
        self.locations.push(Location { place, key });
        NodeId(self.locations.len() - 1)
    }

    pub(super) fn location(&self, node: NodeId) -> Location {
        self.locations
            .get(node.0)
            .cloned()
            .unwrap_or(Location { place: Position::START, key: String::new() })
    }

    /// Something is wrong with the value at `node`.
    pub(super) fn at(&mut self, node: NodeId, message: impl Into<String>) {
        let Location { place, key } = self.location(node);
        self.in_file(place, key, message);
    }

    /// Something is wrong with `key` of the section at `section`, which does not have it.
    pub(super) fn missing(&mut self, section: NodeId, key: &str, remedy: &str) {
        let location = self.location(section);
        let message = format!("this key is missing; {remedy}");
        self.in_file(location.place, join_path(&location.key, key), message);
    }

    pub(super) fn in_file(&mut self, place: Position, key: String, message: impl Into<String>) {
        self.found.push(ConfigError {
            place: Some((self.file.clone(), place)),
            key,
            message: message.into(),
        });
    }

    /// Something is wrong with a flag or a variable.
    pub(super) fn outside(&mut self, name: &str, message: impl Into<String>) {
        self.found.push(ConfigError { place: None, key: name.to_owned(), message: message.into() });
    }

    /// What is wrong with another file that this one names.
    pub(super) fn include(&mut self, errors: ConfigErrors) {
        self.found.extend(errors.0);
    }

    pub(super) fn count(&self) -> usize {
        self.found.len()
    }

    pub(super) fn into_errors(self) -> ConfigErrors {
        ConfigErrors::new(self.found)
    }

    pub(super) fn into_result<T>(self, value: T) -> Result<T, ConfigErrors> {
        if self.found.is_empty() { Ok(value) } else { Err(ConfigErrors::new(self.found)) }
    }
}

/// The path of `key` in the section `path`.
pub(super) fn join_path(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// `; did you mean "x"?` where one of `known` is close to `wrong`, else what there is.
pub(super) fn suggestion<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let near = known.iter().map(|name| (distance(wrong, name), *name)).min();
    match near {
        // One slip of the finger for every three letters: `adress` is `address`, `tls` is not `ttl`.
        Some((slips, name)) if slips <= wrong.chars().count().div_ceil(3).min(3) => {
            format!("did you mean \"{name}\"?")
        }
        Some(_) => format!("there is {}", known.join(", ")),
        None => "there is none".to_owned(),
    }
}

/// Insertions, deletions, substitutions and swaps of neighbours that lead from one text to the other (optimal string
/// alignment). The texts are keys and names; the first 64 characters decide.
fn distance(from: &str, to: &str) -> usize {
    let from: Vec<char> = from.chars().take(64).collect();
    let to: Vec<char> = to.chars().take(64).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let of = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX / 2);
            let mut best =
                (of(&last, j) + usize::from(a != b)).min(of(&last, j + 1) + 1).min(of(&row, j) + 1);
            let swapped = i > 0 && j > 0 && from.get(i - 1) == Some(b) && to.get(j - 1) == Some(a);
            if swapped {
                best = best.min(of(&before, j - 1) + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_named_and_a_stranger_gets_the_list() {
        let known = ["address", "tls", "head_timeout"];
        assert_eq!(suggestion("adress", known), "did you mean \"address\"?");
        assert_eq!(suggestion("addrses", known), "did you mean \"address\"?");
        assert_eq!(suggestion("tsl", known), "did you mean \"tls\"?");
        assert_eq!(suggestion("colour", known), "there is address, tls, head_timeout");
        assert_eq!(suggestion("any", []), "there is none");
    }

    #[test]
    fn distances_count_slips() {
        let cases = [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "", 3),
            ("abc", "acb", 1),
            ("abc", "abd", 1),
            ("kitten", "sitting", 3),
        ];
        for (from, to, slips) in cases {
            assert_eq!(distance(from, to), slips, "{from} → {to}");
            assert_eq!(distance(to, from), slips, "{to} → {from}");
        }
    }

    #[test]
    fn problems_come_in_the_order_of_the_file_after_those_from_outside() {
        let mut errors = ErrorCollector::of_file(Path::new("a.yaml"));
        let late = errors.add_node(Position { line: 9, column: 3 }, "b".to_owned());
        let early = errors.add_node(Position { line: 2, column: 5 }, "a".to_owned());
        errors.at(late, "is wrong");
        errors.missing(early, "c", "add it");
        errors.outside("--drain", "is odd");
        assert_eq!(
            errors.into_result(()).unwrap_err().to_string(),
            "--drain: is odd\na.yaml:2:5: a.c: this key is missing; add it\na.yaml:9:3: b: is wrong"
        );
    }
}
