//! Parses YAML into a tree of values with positions.
//!
//! The parser uses the events of serde-saphyr, because the deserializer of serde-saphyr stops at the first error.
//! Single values stay text until a type reads them. For example, `off` stays a word, and `1.10` becomes a number only
//! if the type expects one.

use std::collections::HashMap;

use serde_saphyr::granit_parser::{Event, Marker, Parser, ScalarStyle, Span, options};

use super::errors::{ErrorCollector, NodeId, Position, join_path};

/// One value of the file.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// No value, `~` or `null`. Equivalent to an absent key.
    Null,
    Scalar {
        text: String,
        quoted: bool,
    },
    List(Vec<Node>),
    /// Unique keys, in file order.
    Section(Vec<(Key, Node)>),
}

#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) text: String,
    pub(super) position: Position,
}

impl Kind {
    /// Creates a single value, or [`Kind::Null`] for `~`. The parser reports a missing value as `~`, too.
    fn scalar(text: String, style: ScalarStyle) -> Self {
        if is_null(&text, style) {
            return Self::Null;
        }
        Self::Scalar { text, quoted: style != ScalarStyle::Plain }
    }

    /// Returns the kind of the value for error messages, such as `a list` in `found a list; …`.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Null => "no value",
            Self::Scalar { .. } => "a single value",
            Self::List(_) => "a list",
            Self::Section(_) => "a section of keys",
        }
    }
}

/// Parses `text`. Reports only the first syntax error, and then returns `None`.
pub(super) fn parse(text: &str, errors: &mut ErrorCollector) -> Option<Node> {
    let options = options! { emit_comments: false };
    let mut events = Vec::new();
    for event in Parser::new_from_str_with_options(text, options) {
        match event {
            Ok(event) => events.push(event),
            Err(error) => {
                let position = position_of(*error.marker());
                errors.add_at(position, String::new(), syntax_error(text, position, &error.info()));
                return None;
            }
        }
    }
    let mut builder = Builder { events: events.into_iter().peekable(), errors };
    builder.document()
}

/// Returns the message of a syntax error, with a hint for frequent causes.
fn syntax_error(text: &str, position: Position, message: &str) -> String {
    let line = text.lines().nth(position.line - 1).unwrap_or_default();
    let indent: String = line.chars().take_while(|c| c.is_whitespace()).collect();
    let hint = if indent.contains('\t') {
        "YAML is indented with spaces; replace the tab"
    } else if line.contains(": *") || line.contains("- *") {
        "a value that starts with * must be quoted, such as \"*.example.com\""
    } else {
        "check the indentation, and that each key is followed by a colon and a space"
    };
    format!("not valid YAML: {message}; {hint}")
}

/// Returns the first reference to an environment variable in `text`, such as `${TOKEN}` or `$(TOKEN)`.
fn variable_reference(text: &str) -> Option<&str> {
    let starts = text.match_indices('$').map(|(start, _)| start);
    starts.filter_map(|start| text.get(start..)).find_map(|reference| {
        let end = match reference.as_bytes().get(1)? {
            b'{' => reference.find('}')?,
            b'(' => reference.find(')')?,
            _ => return None,
        };
        let name = reference.get(2..end)?;
        let starts_as_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        // `${NAME:-default}`, too.
        let name = name.split_once(":-").map_or(name, |(name, _)| name);
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        (starts_as_name && is_name).then(|| reference.get(..=end)).flatten()
    })
}

/// Returns the error for a reference to a variable. The rest of the value can be a secret and is not printed.
fn unexpanded(reference: &str, path: &str) -> String {
    let hint = match path.starts_with("otlp.headers.") {
        true => "write the value, or set OTEL_EXPORTER_OTLP_HEADERS for headers of the export",
        false => "write the value. A credential does not belong here: clients send theirs",
    };
    // The default value of `${NAME:-default}` can be a secret, too.
    let name = match reference.split_once(":-") {
        Some((name, _)) => format!("{name}}}"),
        None => reference.to_owned(),
    };
    format!("variables are not expanded in this file, but the value contains \"{name}\"; {hint}")
}

struct Builder<'p, 'input, I: Iterator<Item = (Event<'input>, Span)>> {
    events: std::iter::Peekable<I>,
    errors: &'p mut ErrorCollector,
}

impl<'input, I: Iterator<Item = (Event<'input>, Span)>> Builder<'_, 'input, I> {
    /// Reads the document. Reports a second document in the same file as an error.
    fn document(&mut self) -> Option<Node> {
        let mut root = None;
        while let Some((event, span)) = self.events.next() {
            if !event.is_node() {
                continue;
            }
            let position = position_of(span.start);
            if root.is_some() {
                self.errors.add_at(
                    position,
                    String::new(),
                    "a second document starts here; keep one configuration per file (remove the --- before it)",
                );
                return root;
            }
            root = Some(self.node(event, position, ""));
        }
        root
    }

    /// Reads the value that starts with `event`. Errors are reported at `position`: the position of a single value, or
    /// of the key of a section or list.
    fn node(&mut self, event: Event<'input>, position: Position, path: &str) -> Node {
        let id = self.errors.add_node(position, path.to_owned());
        let kind = if let Event::Scalar(text, style, ..) = event {
            if let Some(variable) = variable_reference(&text) {
                self.errors.reject(id, unexpanded(variable, path));
            }
            Kind::scalar(text.into_owned(), style)
        } else if matches!(event, Event::SequenceStart(..)) {
            self.list(path)
        } else if matches!(event, Event::MappingStart(..)) {
            self.section(path)
        } else {
            // The event must be an alias, because no other event starts a node.
            let message = "aliases are not supported; write the value out";
            self.errors.reject(id, message);
            Kind::Null
        };
        Node { id, kind }
    }

    fn list(&mut self, path: &str) -> Kind {
        let mut items = Vec::new();
        while let Some((event, span)) = self.events.next() {
            if matches!(event, Event::SequenceEnd) {
                break;
            }
            if event.is_node() {
                let path = format!("{path}[{}]", items.len());
                items.push(self.node(event, position_of(span.start), &path));
            }
        }
        Kind::List(items)
    }

    fn section(&mut self, path: &str) -> Kind {
        let mut entries: Vec<(Key, Node)> = Vec::new();
        let mut lines: HashMap<String, usize> = HashMap::new();
        while let Some((event, span)) = self.events.next() {
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let Some(key) = self.key(event, span, path) else {
                continue;
            };
            let value_path = join_path(path, &key.text);
            let Some((event, span)) = self.next_node() else {
                break;
            };
            let position = if matches!(&event, Event::Scalar(text, style, ..) if !is_null(text, *style))
            {
                position_of(span.start)
            } else {
                key.position
            };
            let value = self.node(event, position, &value_path);
            match lines.get(&key.text) {
                Some(line) => {
                    let message =
                        format!("duplicate key, first defined in line {line}; remove one");
                    self.errors.add_at(key.position, value_path, message);
                }
                None => {
                    lines.insert(key.text.clone(), key.position.line);
                    entries.push((key, value));
                }
            }
        }
        Kind::Section(entries)
    }

    /// Reads a key. If the key is not a single value, reports an error, skips its value and returns `None`.
    fn key(&mut self, event: Event<'input>, span: Span, path: &str) -> Option<Key> {
        let position = position_of(span.start);
        if !event.is_node() {
            return None;
        }
        if let Event::Scalar(text, ..) = event {
            let text = text.into_owned();
            return Some(Key { text, position });
        }
        let message = "a key must be a plain string; write `key: value`";
        self.errors.add_at(position, path.to_owned(), message);
        self.node(event, position, path);
        let (value, span) = self.next_node()?;
        self.node(value, position_of(span.start), path);
        None
    }

    fn next_node(&mut self) -> Option<(Event<'input>, Span)> {
        self.events.find(|(event, _)| event.is_node())
    }
}

fn is_null(text: &str, style: ScalarStyle) -> bool {
    style == ScalarStyle::Plain && matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

fn position_of(marker: Marker) -> Position {
    Position { line: marker.line().max(1), column: marker.col() + 1 }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokengauge_types::clock;

    use super::*;

    fn errors_of(text: &str) -> Vec<String> {
        let mut errors = ErrorCollector::for_file(Path::new("f"));
        parse(text, &mut errors);
        match errors.into_result(()) {
            Ok(()) => Vec::new(),
            Err(errors) => errors.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn locates_scalars_at_the_value_and_sections_at_the_key() {
        let mut errors = ErrorCollector::for_file(Path::new("f"));
        let text = "a:\n  b: 1\n  c:\n    - x\n    - d: ü\n      e:\n";
        let root = parse(text, &mut errors).unwrap();
        let mut seen = Vec::new();
        walk(&root, &mut |id| {
            let location = errors.location(id);
            seen.push((location.key, location.position.line, location.position.column));
        });
        let expected = [
            ("", 1, 1),
            ("a", 1, 1),
            ("a.b", 2, 6),
            ("a.c", 3, 3),
            ("a.c[0]", 4, 7),
            ("a.c[1]", 5, 7),
            ("a.c[1].d", 5, 10),
            ("a.c[1].e", 6, 7),
        ];
        assert_eq!(seen, expected.map(|(key, line, column)| (key.to_owned(), line, column)));
    }

    fn walk(node: &Node, see: &mut impl FnMut(NodeId)) {
        see(node.id);
        match &node.kind {
            Kind::Null | Kind::Scalar { .. } => {}
            Kind::List(items) => items.iter().for_each(|item| walk(item, see)),
            Kind::Section(entries) => entries.iter().for_each(|(_, value)| walk(value, see)),
        }
    }

    #[test]
    fn rejects_references_to_variables_without_printing_the_rest() {
        let text =
            "otlp:\n  headers: {a: \"sk-1 ${TOKEN}\"}\nlist:\n  - $(HOST)\n  - ${A_1:-sk-2}\n";
        assert_eq!(
            errors_of(text),
            [
                "f:2:16: otlp.headers.a: variables are not expanded in this file, but the value contains \"${TOKEN}\"; \
                 write the value, or set OTEL_EXPORTER_OTLP_HEADERS for headers of the export",
                "f:4:5: list[0]: variables are not expanded in this file, but the value contains \"$(HOST)\"; write the \
                 value. A credential does not belong here: clients send theirs",
                "f:5:5: list[1]: variables are not expanded in this file, but the value contains \"${A_1}\"; write the \
                 value. A credential does not belong here: clients send theirs",
            ]
        );
        let other = "a: [\"$5\", \"a$\", \"${}\", \"$()\", \"${a b}\", \"/x$(?:b)/\", \"${\", \"/x${2}/\"]\n";
        assert_eq!(errors_of(other), [""; 0]);
    }

    #[test]
    fn reports_structural_errors_with_their_position() {
        let cases = [
            (
                "a: 1\nb: 2\na: 3\na: 4\n",
                vec![
                    "f:3:1: a: duplicate key, first defined in line 1; remove one",
                    "f:4:1: a: duplicate key, first defined in line 1; remove one",
                ],
            ),
            ("a: &x 1\nb: *x\n", vec!["f:2:1: b: aliases are not supported; write the value out"]),
            (
                "a: 1\n---\nb: 2\n",
                vec![
                    "f:3:1: a second document starts here; keep one configuration per file (remove the --- before it)",
                ],
            ),
            (
                "? [a, b]\n: 1\nc: 2\n",
                vec!["f:1:3: a key must be a plain string; write `key: value`"],
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(errors_of(text), expected, "{text}");
        }
    }

    /// The parser used to compare every key with all earlier keys. That took 12 s in a release build.
    #[test]
    fn reads_a_file_full_of_keys_in_linear_time() {
        let took = |keys: u32| {
            let text: String = (0..keys).map(|number| format!("k{number}: 1\n")).collect();
            let began = clock::now();
            assert_eq!(errors_of(&text), Vec::<String>::new());
            clock::now().since(began)
        };
        let (few, many) = (took(10_000), took(80_000));
        assert!(many < 24 * few, "8 times the keys took {few:?} and {many:?}");
    }

    #[test]
    fn hints_at_the_cause_of_syntax_errors() {
        let cases = [
            ("a:\n\tb: 1\n", "f:2:", "replace the tab"),
            ("host: *.example.com\n", "f:1:", "must be quoted"),
            ("a: [1, 2\n", "f:", "not valid YAML"),
            (&"[".repeat(100_000), "f:1:", "not valid YAML"),
            ("a: 1\n b: 2\n", "f:2:", "check the indentation"),
        ];
        for (text, position, hint) in cases {
            let errors = errors_of(text);
            let [error] = errors.as_slice() else {
                panic!("{text:?}: {errors:?}");
            };
            assert!(error.starts_with(position) && error.contains(hint), "{error}");
        }
    }
}
