//! YAML text → a tree of nodes that know where they stand.
//!
//! Built from the events of serde-saphyr's own parser rather than by its deserialiser, because that one stops at the
//! first error; from a tree everything that is wrong can be told at once. Scalars stay text here: what a scalar may
//! be is for the type that reads it to say (so `off` is no boolean, and `1.10` no number, unless somebody asks for one).

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
    /// Nothing, `~` or `null`: the same as if the key were not there.
    Null,
    Scalar {
        text: String,
        quoted: bool,
    },
    List(Vec<Node>),
    /// Keys in the order of the file, none twice.
    Section(Vec<(Key, Node)>),
}

#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) text: String,
    pub(super) place: Position,
}

impl Kind {
    /// A key with nothing behind it comes from the parser as `~`.
    fn scalar(text: String, style: ScalarStyle) -> Self {
        if is_null(&text, style) {
            return Self::Null;
        }
        Self::Scalar { text, quoted: style != ScalarStyle::Plain }
    }

    /// For "expected …, found …".
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Scalar { .. } => "a single value",
            Self::List(_) => "a list",
            Self::Section(_) => "a section of keys",
        }
    }
}

/// The tree of `text`, and what is wrong with it as YAML. A text that cannot be parsed has no yaml; the parser cannot
/// go on after such an error, so that is the only one then.
pub(super) fn parse(text: &str, errors: &mut ErrorCollector) -> Option<Node> {
    let options = options! { emit_comments: false };
    let mut events = Vec::new();
    for event in Parser::new_from_str_with_options(text, options) {
        match event {
            Ok(event) => events.push(event),
            Err(error) => {
                let place = position_of(*error.marker());
                errors.in_file(place, String::new(), syntax(text, place, &error.info()));
                return None;
            }
        }
    }
    let mut builder = Builder { events: events.into_iter().peekable(), errors };
    builder.document()
}

/// A parser's message, and the remedy where the cause is one of the usual ones.
fn syntax(text: &str, place: Position, message: &str) -> String {
    let line = text.lines().nth(place.line - 1).unwrap_or_default();
    let indent: String = line.chars().take_while(|c| c.is_whitespace()).collect();
    let remedy = if indent.contains('\t') {
        "YAML is indented with spaces; replace the tab"
    } else if line.contains(": *") || line.contains("- *") {
        "a value that begins with * must be quoted, such as \"*.example.com\""
    } else {
        "check the indentation, and that every key is followed by a colon and a space"
    };
    format!("not valid YAML: {message}; {remedy}")
}

struct Builder<'p, 'input, I: Iterator<Item = (Event<'input>, Span)>> {
    events: std::iter::Peekable<I>,
    errors: &'p mut ErrorCollector,
}

impl<'input, I: Iterator<Item = (Event<'input>, Span)>> Builder<'_, 'input, I> {
    /// The one document; further ones are a problem.
    fn document(&mut self) -> Option<Node> {
        let mut root = None;
        while let Some((event, span)) = self.events.next() {
            if !event.is_node() {
                continue;
            }
            let place = position_of(span.start);
            if root.is_some() {
                self.errors.in_file(
                    place,
                    String::new(),
                    "a second document begins here; keep one configuration per file (remove the --- before it)",
                );
                return root;
            }
            root = Some(self.node(event, place, ""));
        }
        root
    }

    /// The node that `event` begins. `place` is where its key stands, so that what is wrong with a whole section is
    /// told at its name; a scalar is told at itself.
    fn node(&mut self, event: Event<'input>, place: Position, path: &str) -> Node {
        let id = self.errors.add_node(place, path.to_owned());
        let kind = if let Event::Scalar(text, style, ..) = event {
            Kind::scalar(text.into_owned(), style)
        } else if matches!(event, Event::SequenceStart(..)) {
            self.list(path)
        } else if matches!(event, Event::MappingStart(..)) {
            self.section(path)
        } else {
            // An alias: no other event is a node.
            let message = "aliases are not supported; write the value out";
            self.errors.at(id, message);
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
            let place = if matches!(&event, Event::Scalar(text, style, ..) if !is_null(text, *style))
            {
                position_of(span.start)
            } else {
                key.place
            };
            let value = self.node(event, place, &value_path);
            match entries.iter().find(|(known, _)| known.text == key.text) {
                Some((first, _)) => {
                    let message = format!(
                        "this key stands here for the second time (first in line {}); remove one",
                        first.place.line
                    );
                    self.errors.in_file(key.place, value_path, message);
                }
                None => entries.push((key, value)),
            }
        }
        Kind::Section(entries)
    }

    /// A key, or `None` where it is none; then its value is passed over.
    fn key(&mut self, event: Event<'input>, span: Span, path: &str) -> Option<Key> {
        let place = position_of(span.start);
        if !event.is_node() {
            return None;
        }
        if let Event::Scalar(text, ..) = event {
            let text = text.into_owned();
            return Some(Key { text, place });
        }
        let message = "a key must be a single word; write `key: value`";
        self.errors.in_file(place, path.to_owned(), message);
        self.node(event, place, path);
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

    use super::*;

    fn problems_of(text: &str) -> Vec<String> {
        let mut errors = ErrorCollector::of_file(Path::new("f"));
        parse(text, &mut errors);
        match errors.into_result(()) {
            Ok(()) => Vec::new(),
            Err(errors) => errors.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn scalars_are_told_at_themselves_and_sections_at_their_key() {
        let mut errors = ErrorCollector::of_file(Path::new("f"));
        let text = "a:\n  b: 1\n  c:\n    - x\n    - d: ü\n      e:\n";
        let root = parse(text, &mut errors).unwrap();
        let mut seen = Vec::new();
        walk(&root, &mut |id| {
            let location = errors.location(id);
            seen.push((location.key, location.place.line, location.place.column));
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
    fn what_is_wrong_with_the_yaml_is_told_with_its_place() {
        let cases = [
            (
                "a: 1\nb: 2\na: 3\na: 4\n",
                vec![
                    "f:3:1: a: this key stands here for the second time (first in line 1); remove one",
                    "f:4:1: a: this key stands here for the second time (first in line 1); remove one",
                ],
            ),
            ("a: &x 1\nb: *x\n", vec!["f:2:1: b: aliases are not supported; write the value out"]),
            (
                "a: 1\n---\nb: 2\n",
                vec![
                    "f:3:1: a second document begins here; keep one configuration per file (remove the --- before it)",
                ],
            ),
            (
                "? [a, b]\n: 1\nc: 2\n",
                vec!["f:1:3: a key must be a single word; write `key: value`"],
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(problems_of(text), expected, "{text}");
        }
    }

    #[test]
    fn what_does_not_parse_is_told_with_the_usual_remedy() {
        let cases = [
            ("a:\n\tb: 1\n", "f:2:", "replace the tab"),
            ("host: *.example.com\n", "f:1:", "must be quoted"),
            ("a: [1, 2\n", "f:", "not valid YAML"),
            (&"[".repeat(100_000), "f:1:", "not valid YAML"),
            ("a: 1\n b: 2\n", "f:2:", "check the indentation"),
        ];
        for (text, place, remedy) in cases {
            let errors = problems_of(text);
            let [problem] = errors.as_slice() else {
                panic!("{text:?}: {errors:?}");
            };
            assert!(problem.starts_with(place) && problem.contains(remedy), "{problem}");
        }
    }
}
