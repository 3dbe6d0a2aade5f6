//! Writes values as YAML in random notations: block and flow style, quotes, indentation, comments and anchors.

use serde_json::{Map, Value, json};

use super::choices::Choices;

/// Words that some YAML parsers read as another type than text.
const WORDS: [&str; 9] = ["yes", "no", "on", "off", "true", "false", "null", "y", "n"];

/// Writes one input.
pub struct Writer<'c, 'b> {
    choices: &'c mut Choices<'b>,
    newline: &'static str,
    /// Indentation of a nested mapping.
    step: usize,
    /// Indentation of a list below its key.
    dash: usize,
    /// Number of comments so far. It is used as the text of the next comment.
    comments: usize,
    with_comments: bool,
    with_anchors: bool,
    /// Number of anchors so far. It is used as the name of the next anchor.
    anchor_count: usize,
    /// The anchors of this document with their values.
    anchors: Vec<(String, Value)>,
    /// Whether the last value is a block scalar. An indented comment below it would be part of its text.
    after_block_scalar: bool,
    /// Whether the text has block scalars, for which the last line end is significant.
    has_block_scalars: bool,
}

/// Returns the text of a stream of documents.
pub fn stream(choices: &mut Choices<'_>, documents: &[Value]) -> String {
    let newline = choices.pick(&["\n", "\n", "\r\n"]);
    let step = choices.pick(&[2, 2, 4]);
    let dash = choices.pick(&[0, 2]);
    let with_comments = !choices.once_in(3);
    let with_anchors = choices.once_in(3);
    let mut writer = Writer {
        choices,
        newline,
        step,
        dash,
        comments: 0,
        with_comments,
        with_anchors,
        anchor_count: 0,
        anchors: Vec::new(),
        after_block_scalar: false,
        has_block_scalars: false,
    };
    let mut text = String::new();
    let mut ended = false;
    for (index, value) in documents.iter().enumerate() {
        text.push_str(&writer.head(index == 0, ended, value.is_null()));
        text.push_str(&writer.document(value));
        ended = writer.choices.once_in(8);
        if ended {
            text.push_str(&format!("...{newline}"));
        }
    }
    if !writer.has_block_scalars && writer.choices.once_in(5) {
        text.truncate(text.trim_end().len());
    }
    text
}

impl Writer<'_, '_> {
    fn comment(&mut self) -> String {
        self.comments += 1;
        let tail = self.choices.pick(&["", ": é", "\t'\"", " - x: [", " #"]);
        format!("# c{}{tail}", self.comments)
    }

    /// Returns the text before a document.
    fn head(&mut self, first: bool, ended: bool, null: bool) -> String {
        let newline = self.newline;
        if null {
            // After `...`, a comment belongs to a document only if `---` follows.
            return format!("---{newline}{}{newline}", self.comment());
        }
        let bare = first || ended;
        match self.choices.below(8) {
            5 if first => "\u{feff}".to_owned(),
            6 if bare => format!("%YAML 1.1{newline}---{newline}"),
            7 if bare => format!("{}{newline}{newline}---{newline}", self.comment()),
            4 => format!("--- {}{newline}", self.comment()),
            3 => format!("---{newline}{newline}{}{newline}", self.comment()),
            _ if bare => String::new(),
            _ => format!("---{newline}"),
        }
    }

    fn document(&mut self, value: &Value) -> String {
        self.anchors.clear();
        self.after_block_scalar = false;
        if value.is_null() {
            return String::new();
        }
        let newline = self.newline;
        match self.choices.below(10) {
            8 => format!("{value}{newline}"),
            7 => {
                let text = serde_json::to_string_pretty(value).unwrap_or_default();
                format!("{}{newline}", text.replace('\n', newline))
            }
            9 => format!("{}{newline}", self.flow(value, 0)),
            _ => self.block(value, 0),
        }
    }

    /// Returns comments and blank lines between two entries in `column`.
    fn gap(&mut self, column: usize) -> String {
        let mut gap = String::new();
        let mut times = self.choices.below(12).saturating_sub(9);
        while times > 0 {
            times -= 1;
            if !self.with_comments || self.choices.once_in(3) {
                if !self.after_block_scalar {
                    gap.push_str(self.newline);
                }
                continue;
            }
            let further =
                if self.after_block_scalar { 0 } else { self.choices.pick(&[0, 0, 2, 4]) };
            let comment = self.comment();
            gap.push_str(&format!("{}{comment}{}", " ".repeat(column + further), self.newline));
            self.after_block_scalar = false;
        }
        gap
    }

    /// Returns the end of a line, possibly with a comment.
    fn end(&mut self) -> String {
        self.after_block_scalar = false;
        let newline = self.newline;
        if self.with_comments && self.choices.once_in(8) {
            let blank = self.choices.pick(&[" ", "   "]);
            return format!("{blank}{}{newline}", self.comment());
        }
        newline.to_owned()
    }

    fn block(&mut self, value: &Value, column: usize) -> String {
        match value {
            Value::Object(entries) if !entries.is_empty() => self.mapping(entries, column),
            Value::Array(items) if !items.is_empty() => {
                let mut lines = String::new();
                for item in items {
                    lines.push_str(&self.gap(column));
                    let rest = self.entry_value(item, column, true);
                    lines.push_str(&format!("{}-{rest}", " ".repeat(column)));
                }
                lines
            }
            _ => format!("{}{}", self.flow(value, column), self.newline),
        }
    }

    fn mapping(&mut self, entries: &Map<String, Value>, column: usize) -> String {
        let indent = " ".repeat(column);
        let mut rest: Vec<(&String, &Value)> = entries.iter().collect();
        let mut lines = String::new();
        let merged = self.anchors.iter().rev().find(|(_, value)| {
            value.as_object().is_some_and(|merged| {
                !merged.is_empty()
                    && merged.iter().all(|(key, value)| entries.get(key) == Some(value))
            })
        });
        if let Some((name, Value::Object(merged))) = merged.cloned()
            && self.choices.once_in(2)
        {
            rest.retain(|(key, _)| !merged.contains_key(*key));
            lines.push_str(&format!("{indent}<<: *{name}{}", self.end()));
        }
        let shuffled = self.choices.once_in(3);
        while !rest.is_empty() {
            let (key, value) = if shuffled { self.choices.take(&mut rest) } else { rest.remove(0) };
            lines.push_str(&self.gap(column));
            let key = self.key(key);
            let rest = self.entry_value(value, column, false);
            lines.push_str(&format!("{indent}{key}:{rest}"));
        }
        lines
    }

    /// Returns the text after a colon or a dash in `column`, with its line end.
    fn entry_value(&mut self, value: &Value, column: usize, dash: bool) -> String {
        let known = self.anchors.iter().rev().find(|(_, known)| known == value);
        if let Some((name, _)) = known.cloned()
            && self.choices.once_in(2)
        {
            return format!(" *{name}{}", self.end());
        }
        let empty = match value {
            Value::Array(items) => items.is_empty(),
            Value::Object(entries) => entries.is_empty(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        };
        let mut anchor = String::new();
        self.anchor_count += 1;
        let name = format!("a{}", self.anchor_count);
        if self.with_anchors && !value.is_null() && self.choices.once_in(6) {
            anchor = format!(" &{name}");
        }
        let written = if empty {
            self.leaf(value, column, &anchor)
        } else if self.choices.once_in(8) {
            let flow = self.flow(value, column + self.step);
            format!("{anchor} {flow}{}", self.end())
        } else {
            let list = value.is_array();
            let inner = match (dash, list) {
                (true, _) => column + 2,
                (false, true) => column + self.dash,
                (false, false) => column + self.step,
            };
            if dash && anchor.is_empty() && !self.choices.once_in(6) {
                let lines = self.compact(value, inner);
                format!(" {lines}")
            } else {
                let end = self.end();
                format!("{anchor}{end}{}", self.block(value, inner))
            }
        };
        if !anchor.is_empty() {
            self.anchors.push((name, value.clone()));
        }
        written
    }

    /// Returns a block whose first entry is on the line of the dash.
    fn compact(&mut self, value: &Value, column: usize) -> String {
        let lines = self.block(value, column);
        let first = lines.trim_start_matches([' ', '\r', '\n']);
        if first.starts_with('#') {
            return format!("{}{lines}", self.newline).trim_start_matches(' ').to_owned();
        }
        first.to_owned()
    }

    /// Returns a scalar or an empty collection.
    fn leaf(&mut self, value: &Value, column: usize, anchor: &str) -> String {
        match value {
            Value::Null => {
                let word = self.choices.pick(&["", " null", " ~", " Null"]);
                format!("{word}{}", self.end())
            }
            Value::String(text) => self.text(text, column, anchor),
            _ => format!("{anchor} {value}{}", self.end()),
        }
    }

    fn text(&mut self, text: &str, column: usize, anchor: &str) -> String {
        let newline = self.newline;
        let style = self.choices.below(6);
        let body = text.trim_end_matches('\n');
        let plain_lines = body.chars().all(|c| c == '\n' || (c != '\t' && !c.is_control()))
            && body.lines().all(|line| line.is_empty() || !line.trim().is_empty())
            && !body.is_empty()
            && !body.starts_with([' ', '\n']);
        let chomping = match text.len() - body.len() {
            0 => "-",
            1 => "",
            _ => "+",
        };
        let indent = " ".repeat(column + self.step.max(2));
        let folds = body.lines().all(|line| !line.is_empty() && !line.starts_with(' '));
        if plain_lines && (style == 3 || (style == 4 && folds)) {
            let (sign, joint) = if style == 3 {
                ("|", newline.to_owned())
            } else {
                (">", format!("{newline}{newline}"))
            };
            let line = |line: &str| {
                if line.is_empty() { String::new() } else { format!("{indent}{line}") }
            };
            let lines: Vec<String> = body.split('\n').map(line).collect();
            let more = newline.repeat((text.len() - body.len()).max(1));
            let end = self.end();
            self.after_block_scalar = true;
            self.has_block_scalars = true;
            return format!("{anchor} {sign}{chomping}{end}{}{more}", lines.join(&joint));
        }
        if style == 5
            && text.contains(' ')
            && text.trim() == text
            && !text.contains(['\n', '\t', '"', '\\', '#', ':', '-'])
        {
            let folded = text.replacen(' ', &format!("{newline}{indent}"), 1);
            return format!("{anchor} \"{folded}\"{}", self.end());
        }
        format!("{anchor} {}{}", self.word(text, style), self.end())
    }

    fn word(&mut self, text: &str, style: usize) -> String {
        let single = !text.chars().any(|c| c.is_control());
        match style {
            0 | 3..=5 if is_plain(text) => text.to_owned(),
            1 if single => format!("'{}'", text.replace('\'', "''")),
            _ => json!(text).to_string(),
        }
    }

    fn key(&mut self, key: &str) -> String {
        let style = self.choices.below(8).saturating_sub(5);
        self.word(key, style)
    }

    /// Returns a value in flow style. Its lines are indented by at least `column`.
    fn flow(&mut self, value: &Value, column: usize) -> String {
        let (open, close) = if value.is_array() { ('[', ']') } else { ('{', '}') };
        let entries: Vec<(Option<&String>, &Value)> = match value {
            Value::Array(items) => items.iter().map(|item| (None, item)).collect(),
            Value::Object(entries) => {
                entries.iter().map(|(key, value)| (Some(key), value)).collect()
            }
            Value::String(text) => {
                let style = self.choices.below(3);
                let bare = is_plain(text) && !text.contains([',', ':', '[', ']', '{', '}']);
                return self.word(text, if bare { style } else { 1 + style % 2 });
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => return value.to_string(),
        };
        let lines = !entries.is_empty() && self.choices.once_in(4);
        let inner = column + self.step;
        let count = entries.len();
        let mut text = String::from(open);
        for (index, (key, value)) in entries.into_iter().enumerate() {
            if lines {
                text.push_str(&format!("{}{}", self.end(), " ".repeat(inner)));
            }
            if let Some(key) = key {
                text.push_str(&format!("{}: ", json!(key)));
            }
            text.push_str(&self.flow(value, inner));
            if index + 1 < count {
                text.push_str(self.choices.pick(&[", ", ",", " , "]));
            } else if lines && self.choices.once_in(3) {
                text.push(',');
            }
        }
        if lines {
            text.push_str(&format!("{}{}", self.end(), " ".repeat(column)));
        }
        text.push(close);
        text
    }
}

/// Whether a text needs no quotes. False negatives are allowed.
fn is_plain(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '/')
        && text.chars().all(|c| c.is_alphanumeric() || " _./:@=%-".contains(c))
        && !text.contains(": ")
        && !text.ends_with([' ', ':'])
        && !WORDS.contains(&text.to_lowercase().as_str())
}
