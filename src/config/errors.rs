//! Collects the errors of a configuration, so that one run reports all of them. Each error has a position, a key and a
//! hint.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use super::documentation;
use tokengauge_types::url::redact_urls;

/// One error.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfigError {
    /// The file, and the position of the error in the file. `None` for the value of a flag or an environment variable.
    pub position: Option<(PathBuf, Position)>,
    /// The path of the key, such as `routes[1].upstream`, or the flag or variable. Empty if the error is about the
    /// whole file.
    pub key: String,
    /// What is wrong, and how to fix it.
    pub message: String,
}

/// A position in a file. Line and column start at 1. The column counts characters, not bytes.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl Position {
    pub(super) const START: Self = Self { line: 1, column: 1 };
}

/// Prints `file:line:column: key: message`, the form that editors recognise. Does not print queries and user information
/// of URLs, which can be credentials.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((file, position)) = &self.position {
            write!(f, "{}:{}:{}: ", file.display(), position.line, position.column)?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", redact_urls(&self.key))?;
        }
        f.write_str(&redact_urls(&self.message))
    }
}

/// All errors, in file order. Never empty.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    fn new(mut errors: Vec<ConfigError>) -> Self {
        errors.sort_by(|one, other| one.position.cmp(&other.position));
        Self(errors)
    }

    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }

    /// Returns the errors, one per line. The last line is the documentation page that describes the keys.
    pub fn with_documentation(&self) -> String {
        format!(
            "{self}\ndocumentation: {}",
            documentation::page_of(self.iter().map(|error| error.key.as_str()))
        )
    }

    /// Returns the file of each error. An error about a flag or variable has no file.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        let positions = self.0.iter().filter_map(|error| error.position.as_ref());
        positions.map(|(file, _)| file.as_path())
    }
}

/// One error per line.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Identifies a value in the parsed file. Later checks can then report errors at the position of the value.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct NodeId(pub(super) usize);

impl NodeId {
    /// The top-level section of the file.
    pub(super) const ROOT: Self = Self(0);
}

/// The position of a value in the file, and the path of its key.
#[derive(Clone, Debug)]
pub(super) struct Location {
    pub(super) position: Position,
    pub(super) key: String,
}

/// Collects errors and maps node ids to locations.
#[derive(Debug, Default)]
pub(super) struct ErrorCollector {
    file: PathBuf,
    /// In file order, so that the nodes of a section follow the section.
    locations: Vec<Location>,
    /// Nodes whose values are invalid. The deserializer skips them when it reads their section again.
    rejected: BTreeSet<NodeId>,
    errors: Vec<ConfigError>,
    warnings: Vec<ConfigError>,
}

impl ErrorCollector {
    pub(super) fn for_file(file: &Path) -> Self {
        Self { file: file.to_owned(), ..Self::default() }
    }

    pub(super) fn add_node(&mut self, position: Position, key: String) -> NodeId {
        self.locations.push(Location { position, key });
        NodeId(self.locations.len() - 1)
    }

    pub(super) fn location(&self, node: NodeId) -> Location {
        let start = || Location { position: Position::START, key: String::new() };
        self.locations.get(node.0).cloned().unwrap_or_else(start)
    }

    /// Adds an error about the value at `node`.
    pub(super) fn add(&mut self, node: NodeId, message: impl Into<String>) {
        let Location { position, key } = self.location(node);
        self.add_at(position, key, message);
    }

    /// Adds an error about the value of `key` in the section at `node`. If the key is missing, the error has the
    /// position of the innermost section that exists.
    pub(super) fn add_key(&mut self, node: NodeId, key: &str, message: impl Into<String>) {
        let (innermost, path) = self.innermost(node, key);
        self.add_at(self.location(innermost).position, path, message);
    }

    /// Returns the value of the required `key` in the section at `node`. Reports a missing key, unless its value or its
    /// section is invalid and has been reported.
    pub(super) fn required<'v, T>(
        &mut self,
        value: &'v Option<T>,
        (node, key): (NodeId, &str),
        hint: &str,
    ) -> Option<&'v T> {
        if value.is_none() && !self.is_invalid(node, key) {
            self.add_key(node, key, format!("missing key; {hint}"));
        }
        value.as_ref()
    }

    /// Returns whether the value of `key` in the section at `node`, or a section around the value, is invalid.
    pub(super) fn is_invalid(&self, node: NodeId, key: &str) -> bool {
        self.is_rejected(self.innermost(node, key).0)
    }

    /// Returns the innermost node on the way from the section at `node` to its `key`, and the path of the key. Without
    /// a key, returns the section.
    fn innermost(&self, node: NodeId, key: &str) -> (NodeId, String) {
        let section = self.location(node).key;
        if key.is_empty() {
            return (node, section);
        }
        let path = join_path(&section, key);
        let is_above = |location: &Location| {
            let rest = path.strip_prefix(location.key.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        // The first one, because a duplicate key has a node, too.
        let inside = self.locations.iter().enumerate().skip(node.0);
        let inside = inside.take_while(|(_, location)| location.key.starts_with(&section));
        let innermost = inside
            .filter(|(_, location)| is_above(location))
            .min_by_key(|(_, location)| Reverse(location.key.len()));
        (innermost.map_or(node, |(index, _)| NodeId(index)), path)
    }

    /// Adds an error about the value at `node`, if it is the first one. Further attempts to read the section of the value
    /// skip it.
    pub(super) fn reject(&mut self, node: NodeId, message: impl Into<String>) {
        if self.rejected.insert(node) {
            self.add(node, message);
        }
    }

    /// Marks an invalid value whose error has been added.
    pub(super) fn mark_rejected(&mut self, node: NodeId) -> bool {
        self.rejected.insert(node)
    }

    pub(super) fn is_rejected(&self, node: NodeId) -> bool {
        self.rejected.contains(&node)
    }

    pub(super) fn rejected_count(&self) -> usize {
        self.rejected.len()
    }

    pub(super) fn add_at(&mut self, position: Position, key: String, message: impl Into<String>) {
        let position = Some((self.file.clone(), position));
        self.errors.push(ConfigError { position, key, message: message.into() });
    }

    pub(super) fn take_warnings(&mut self) -> Vec<ConfigError> {
        std::mem::take(&mut self.warnings)
    }

    /// Adds an error about a flag or an environment variable.
    pub(super) fn add_outside_file(&mut self, name: &str, message: impl Into<String>) {
        let key = name.to_owned();
        self.errors.push(ConfigError { position: None, key, message: message.into() });
    }

    /// Adds a warning about a flag or an environment variable.
    pub(super) fn warn_outside_file(&mut self, name: &str, message: String) {
        self.warnings.push(ConfigError { position: None, key: name.to_owned(), message });
    }

    /// Adds a warning about the value of `key` in the section at `node`.
    pub(super) fn warn_key(&mut self, node: NodeId, key: &str, message: impl Into<String>) {
        let (innermost, key) = self.innermost(node, key);
        let position = Some((self.file.clone(), self.location(innermost).position));
        self.warnings.push(ConfigError { position, key, message: message.into() });
    }

    /// Adds the warnings of another file, which the configuration file names.
    pub(super) fn extend_warnings(&mut self, warnings: Vec<ConfigError>) {
        self.warnings.extend(warnings);
    }

    /// Adds the errors of another file, which the configuration file names.
    pub(super) fn extend(&mut self, errors: ConfigErrors) {
        self.errors.extend(errors.0);
    }

    pub(super) fn count(&self) -> usize {
        self.errors.len()
    }

    pub(super) fn into_errors(self) -> ConfigErrors {
        ConfigErrors::new(self.errors)
    }

    pub(super) fn into_result<T>(self, value: T) -> Result<T, ConfigErrors> {
        if self.errors.is_empty() { Ok(value) } else { Err(self.into_errors()) }
    }
}

/// The path of `key` in the section `path`.
pub(super) fn join_path(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Returns a hint for an unknown name: a suggestion if a `known` name is similar, otherwise all known names.
pub(super) fn suggestion<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    // Allows one typo for every three letters: `adress` suggests `address`, but `tls` does not suggest `ttl`.
    let max_typos = unknown.chars().count().div_ceil(3).min(3);
    match similar(unknown, known.iter().copied(), max_typos) {
        Some(name) => format!("did you mean \"{name}\"?"),
        None if known.is_empty() => "none are defined".to_owned(),
        None => format!("expected one of {}", known.join(", ")),
    }
}

/// Returns the most similar known name if it differs from `unknown` by at most `max_typos` letters.
pub(super) fn similar<'a>(
    unknown: &str,
    known: impl IntoIterator<Item = &'a str>,
    max_typos: usize,
) -> Option<&'a str> {
    let distances = known.into_iter().map(|name| (strsim::osa_distance(unknown, name), name));
    distances.min().filter(|(typos, _)| *typos <= max_typos).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_close_names_and_lists_the_others() {
        let known = ["address", "tls", "head_timeout"];
        assert_eq!(suggestion("adress", known), "did you mean \"address\"?");
        assert_eq!(suggestion("addrses", known), "did you mean \"address\"?");
        assert_eq!(suggestion("tsl", known), "did you mean \"tls\"?");
        assert_eq!(suggestion("colour", known), "expected one of address, tls, head_timeout");
        assert_eq!(suggestion("any", []), "none are defined");
    }

    #[test]
    fn sorts_errors_by_position_after_those_from_outside_the_file() {
        let mut errors = ErrorCollector::for_file(Path::new("a.yaml"));
        let late = errors.add_node(Position { line: 9, column: 3 }, "b".to_owned());
        let early = errors.add_node(Position { line: 2, column: 5 }, "a".to_owned());
        errors.add(late, "is wrong");
        errors.required::<()>(&None, (early, "c"), "add it");
        errors.add_outside_file("--shutdown-grace-period", "is odd");
        assert_eq!(
            errors.into_result(()).unwrap_err().to_string(),
            "--shutdown-grace-period: is odd\na.yaml:2:5: a.c: missing key; add it\na.yaml:9:3: b: is wrong"
        );
    }
}
