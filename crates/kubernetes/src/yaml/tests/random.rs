//! Property tests with random documents, notations and patches.

#![expect(clippy::wildcard_enum_match_arm, reason = "JSON has no other types")]

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::yaml::text::starts_line;
use crate::yaml::tree::{Child, Node};

const WORDS: [&str; 24] = [
    "app",
    "yes",
    "1e3",
    "0x10",
    "007",
    "12:30:45",
    "2001-01-01",
    "~",
    "",
    " a",
    "a: b",
    "a #b",
    "- x",
    "--flag=1",
    "é ü",
    "\u{85}",
    "two\nlines",
    "three\n\nlines\n",
    "\tb\n c",
    "http://127.0.0.1:4000/v1",
    "<<",
    "*x",
    "\"q'",
    "%d",
];

const KEYS: [&str; 9] = ["name", "a", "b", "yes", "x y", "a/b~c", "9", "é", "on: #"];

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(WORDS.to_vec()).prop_map(str::to_owned),
        1 => "[ -~\n]{0,12}",
        1 => any::<String>(),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => (-1e6..1e6_f64).prop_map(Value::from),
        4 => word().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop::sample::select(KEYS.to_vec()).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// Writes a value as YAML. The list `choices` decides each choice of notation.
struct Writer<'c> {
    choices: std::iter::Cycle<std::slice::Iter<'c, u8>>,
    newline: &'static str,
    comments: usize,
}

impl Writer<'_> {
    fn choose(&mut self, of: u8) -> u8 {
        self.choices.next().map_or(0, |choice| choice % of)
    }

    fn comment(&mut self) -> String {
        self.comments += 1;
        format!("# c{} é", self.comments)
    }

    /// Returns the end of a line, optionally with a comment, comment lines or blank lines.
    fn end(&mut self, column: usize) -> String {
        let newline = self.newline;
        let indent = " ".repeat(column);
        match self.choose(8) {
            0 => format!(" {}{newline}", self.comment()),
            1 => format!("{newline}{indent}{}{newline}", self.comment()),
            2 => format!("{newline}{newline}"),
            _ => newline.to_owned(),
        }
    }

    fn flow(&mut self, value: &Value) -> String {
        match value {
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| self.flow(item)).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Object(entries) => {
                let entry = |(key, value): (&String, &Value)| {
                    format!("{}: {}", json!(key), self.flow(value))
                };
                let entries: Vec<String> = entries.iter().map(entry).collect();
                format!("{{ {}}}", entries.join(" , "))
            }
            Value::String(text) => write::quoted(text),
            value => value.to_string(),
        }
    }

    fn scalar(&mut self, value: &Value) -> String {
        let quoted = self.flow(value);
        let Value::String(text) = value else {
            return match value {
                Value::Null => ["~", "null", "", "Null"][usize::from(self.choose(4))].to_owned(),
                _ => quoted,
            };
        };
        let printable = text.chars().all(|c| c == ' ' || c.is_ascii_graphic());
        match self.choose(3) {
            0 if scalar::is_plain_string(text) => text.clone(),
            1 if printable => format!("'{}'", text.replace('\'', "''")),
            _ => quoted,
        }
    }

    /// Returns the text after a colon or a dash in `column`, with its line end.
    fn entry_value(&mut self, value: &Value, column: usize, dash: bool) -> String {
        let newline = self.newline;
        let block = match value {
            Value::Array(items) => !items.is_empty(),
            Value::Object(entries) => !entries.is_empty(),
            _ => {
                let literal =
                    value.as_str().filter(|text| text.ends_with("lines\n") && self.choose(2) == 0);
                if let Some(text) = literal {
                    let indent = " ".repeat(column + 2);
                    let lines = text.lines().map(|line| format!("{indent}{line}{newline}"));
                    return format!(" |{newline}{}", lines.collect::<String>());
                }
                return format!(" {}{}", self.scalar(value), self.end(column));
            }
        };
        if !block || self.choose(6) == 0 {
            return format!(" {}{}", self.flow(value), self.end(column));
        }
        let step = usize::from(self.choose(2)) * 2;
        let inner = if value.is_object() || dash { column + 2 } else { column + step };
        let lines = self.block(value, inner);
        if dash && self.choose(3) > 0 {
            return format!(" {}", lines.trim_start_matches(' '));
        }
        format!("{}{lines}", self.end(inner))
    }

    fn block(&mut self, value: &Value, column: usize) -> String {
        let indent = " ".repeat(column);
        match value {
            Value::Array(items) => items
                .iter()
                .map(|item| format!("{indent}-{}", self.entry_value(item, column, true)))
                .collect(),
            Value::Object(entries) => entries
                .iter()
                .map(|(key, value)| {
                    let key = self.scalar(&json!(key));
                    format!("{indent}{key}:{}", self.entry_value(value, column, false))
                })
                .collect(),
            value => format!("{}{}", self.flow(value), self.newline),
        }
    }

    fn document(&mut self, value: &Value) -> String {
        let newline = self.newline;
        let head = match self.choose(5) {
            0 => format!("---{newline}"),
            1 => format!("%YAML 1.1{newline}--- # c{newline}"),
            2 => format!("# head{newline}{newline}"),
            3 => "\u{feff}".to_owned(),
            _ => String::new(),
        };
        let empty = value.as_array().is_some_and(Vec::is_empty)
            || value.as_object().is_some_and(serde_json::Map::is_empty);
        let body = if empty || self.choose(6) == 0 {
            format!("{}{newline}", self.flow(value))
        } else {
            self.block(value, 0)
        };
        let tail = match self.choose(5) {
            0 => format!("# end{newline}"),
            1 => format!("...{newline}"),
            _ => String::new(),
        };
        let text = format!("{head}{body}{tail}");
        match self.choose(4) {
            0 if !text.contains('|') => text.trim_end_matches(['\r', '\n']).to_owned(),
            _ => text,
        }
    }
}

fn document(choices: &[u8], value: &Value) -> String {
    let mut writer = Writer { choices: choices.iter().cycle(), newline: "\n", comments: 0 };
    writer.newline = ["\n", "\n", "\r\n"][usize::from(writer.choose(3))];
    writer.document(value)
}

/// Returns the JSON pointers of a value and all values inside it.
fn pointers(value: &Value) -> Vec<String> {
    let mut all = vec![String::new()];
    let below: Vec<(String, &Value)> = match value {
        Value::Object(entries) => entries
            .iter()
            .map(|(key, value)| (key.replace('~', "~0").replace('/', "~1"), value))
            .collect(),
        Value::Array(items) => {
            items.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect()
        }
        _ => Vec::new(),
    };
    for (token, value) in below {
        let inner = pointers(value).into_iter();
        all.extend(inner.map(|pointer| format!("/{token}{pointer}")));
    }
    all
}

fn operation(value: &Value, (kind, place, key, new): &(u8, Index, Index, Value)) -> Value {
    let pointers = pointers(value);
    let place = place.get(&pointers);
    let parent = value.pointer(place).unwrap();
    let key = match parent {
        Value::Array(items) => match key.index(items.len() + 2) {
            index if index > items.len() => "-".to_owned(),
            index => index.to_string(),
        },
        _ => key.get(&["new", "name", "yes", "a~1b~0c"]).to_string(),
    };
    match kind % 3 {
        0 if parent.is_object() || parent.is_array() => {
            json!({"op": "add", "path": format!("{place}/{key}"), "value": new})
        }
        1 if !place.is_empty() => json!({"op": "remove", "path": place}),
        _ => json!({"op": "replace", "path": place, "value": new}),
    }
}

/// Returns the lines of a text, with an empty line after the last line end.
fn lines(text: &str) -> Vec<&str> {
    let text = text.trim_start_matches('\u{feff}');
    text.split('\n').map(|line| line.trim_end_matches('\r')).collect()
}

/// Returns the number of lines that an operation may change: the lines of the value at its path.
fn changed_lines(text: &str, operation: &Value) -> usize {
    let tree = read(text, 0).unwrap().0;
    let path = operation["path"].as_str().unwrap();
    let tokens: Vec<String> =
        path.split('/').skip(1).map(|token| token.replace("~1", "/").replace("~0", "~")).collect();
    let Some(root) = &tree.root else { return 0 };
    let lines = |from: usize, to: usize| tree.line(to) - tree.line(from) + 1;
    let mut node: &Node = root;
    let mut child: Option<&Child> = None;
    for token in &tokens {
        let collection = node.collection().unwrap();
        let Some(index) = collection.position(token) else {
            let block = !collection.is_flow && !collection.children.is_empty();
            return if block { 0 } else { lines(node.range.start, node.range.end) };
        };
        let last = collection.children.len() == 1;
        let inserts = operation["op"] == "add" && !collection.is_mapping;
        if collection.is_flow || (last && operation["op"] == "remove") {
            return child.map_or(usize::MAX, |child| lines(child.start, node.range.end));
        }
        let next = &collection.children[index];
        if inserts && std::ptr::eq(token, tokens.last().unwrap()) {
            return 1;
        }
        child = Some(next);
        node = &next.node;
    }
    // If an entry on the line of a dash is removed, the next entry moves up to the dash and replaces blank
    // lines.
    let compact = |child: &Child| 2 * usize::from(!starts_line(text, child.start));
    child.map_or(usize::MAX, |child| lines(child.start, node.range.end) + compact(child))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn patched_text_reads_as_the_patched_value(
        values in prop::collection::vec(value(), 1..3),
        choices in prop::collection::vec(any::<u8>(), 1..60),
        operations in prop::collection::vec((any::<u8>(), any::<Index>(), any::<Index>(), value()), 1..5),
    ) {
        let mut text = document(&choices, &values[0]);
        for value in &values[1..] {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str("---\n");
            text.push_str(document(&choices, value).trim_start_matches(['\u{feff}', '%']));
        }
        let Ok(all) = parse_documents(&text) else {
            // A directive is not allowed without `...` before it, so the parser reports an error.
            return Ok(());
        };
        prop_assert_eq!(all.iter().map(Document::text).collect::<String>(), text.as_str());
        let document = &all[0];
        prop_assert_eq!(document.value(), &values[0], "{}", text);
        let same = document.apply(&Patch(Vec::new())).unwrap();
        prop_assert_eq!(&same.text, document.text());
        let mut wanted = document.value().clone();
        let mut now = document.text().to_owned();
        for seed in &operations {
            let operation = operation(&wanted, seed);
            let patch = patch(json!([operation]));
            json_patch::patch(&mut wanted, &patch).unwrap();
            let edited = match one(&now).apply(&patch) {
                Ok(edited) => edited,
                Err(error) => return Err(TestCaseError::fail(format!("{error}\n{now}\n{operation}"))),
            };
            let after = one(&edited.text);
            prop_assert_eq!(after.value(), &wanted, "{}\n{}\n{}", now, operation, edited.text);
            if edited.losses.is_empty() {
                let (before, after): (Vec<_>, Vec<_>) = (lines(&now), lines(&edited.text));
                let front = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
                let behind = before.iter().rev().zip(after.iter().rev()).take_while(|(a, b)| a == b).count();
                let changed = changed_lines(&now, &operation);
                prop_assert!(
                    (front + behind).saturating_add(changed) >= before.len(),
                    "{changed} lines may change:\n{now}\n{operation}\n{}", edited.text
                );
            }
            now = edited.text;
        }
    }

    #[test]
    fn never_panics(text in "[-a-c:#\\[\\]{}|>&*!?,'\" \n\t<~0.é\r]{0,60}") {
        if let Ok(all) = parse_documents(&text) {
            prop_assert_eq!(all.iter().map(Document::text).collect::<String>(), text.as_str());
            for document in &all {
                let same = document.apply(&Patch(Vec::new())).unwrap();
                prop_assert_eq!(&same.text, document.text());
                let wanted = json!({"a": [1, "b"]});
                let patch = patch(replace("", wanted.clone()));
                if let Ok(edited) = document.apply(&patch) {
                    let after = one(&edited.text);
                    prop_assert_eq!(after.value(), &wanted);
                }
            }
        }
    }
}
