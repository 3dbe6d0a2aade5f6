//! Parses a document into a tree. Each node has the byte range of its text.
//!
//! Only blanks, comments and indicators (such as `-` and `:`) occur between two nodes. To find the indicator before a
//! node, the parser skips blanks and comments after the previous node.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::ops::Range;
use std::vec::IntoIter;

use serde_json::Value;
use serde_saphyr::granit_parser::{Event, ScalarStyle, StructureStyle};

use super::events::{Position, events};
use super::scalar::{self, check_tag, scalar_value};
use super::text::{column, skip_trivia, text_start};
use super::{LossKind, MAX_DEPTH, YamlError};

/// The tree of one document. The root is absent if the document contains only comments.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) root: Option<Node>,
    /// Comments, anchors and aliases, in the order of the text.
    pub(super) marks: Vec<Mark>,
    /// Numbers of the anchors (`&name`) to which at least one alias (`*name`) refers.
    pub(super) aliased_anchors: BTreeSet<usize>,
    line_starts: Vec<usize>,
    lines_before: usize,
}

/// A comment, an anchor or an alias. This part of the text is lost if its value is written again.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) kind: LossKind,
    pub(super) range: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Byte range of the node, from its tag or anchor to the end of its content. Empty if the text contains no value,
    /// as after `key:`.
    pub(super) range: Range<usize>,
    pub(super) content_start: usize,
    pub(super) anchor: Option<usize>,
    pub(super) kind: NodeKind,
}

#[derive(Clone, Debug)]
pub(super) enum NodeKind {
    Scalar(Value),
    /// An alias, with the number of the anchor to which it refers.
    Alias(usize),
    Collection(Collection),
}

#[derive(Clone, Debug)]
pub(super) struct Collection {
    pub(super) is_flow: bool,
    pub(super) is_mapping: bool,
    pub(super) children: Vec<Child>,
}

/// An entry of a mapping or an item of a list.
#[derive(Clone, Debug)]
pub(super) struct Child {
    /// Start of the key or of the dash. An item in flow style has no dash and starts at its value.
    pub(super) start: usize,
    /// End of the colon or of the dash. An item in flow style has no dash and starts at its value.
    pub(super) value_start: usize,
    pub(super) name: Name,
    /// Whether the entry has a `?` before its key, or lacks the colon or the dash. Such an entry is not edited in
    /// place.
    pub(super) is_irregular: bool,
    pub(super) node: Node,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Item,
    Key(String),
    /// The merge key `<<`.
    Merge,
}

impl Node {
    pub(super) fn collection(&self) -> Option<&Collection> {
        match &self.kind {
            NodeKind::Collection(collection) => Some(collection),
            NodeKind::Scalar(_) | NodeKind::Alias(_) => None,
        }
    }
}

impl Child {
    pub(super) fn end(&self) -> usize {
        self.node.range.end.max(self.value_start)
    }
}

impl Collection {
    /// Returns the index of a child. `token` is its key, or its index in a list.
    pub(super) fn position(&self, token: &str) -> Option<usize> {
        if self.is_mapping {
            let is_named = |child: &Child| matches!(&child.name, Name::Key(key) if key == token);
            return self.children.iter().position(is_named);
        }
        token.parse().ok().filter(|index| *index < self.children.len())
    }

    pub(super) fn child(&self, token: &str) -> Option<&Child> {
        self.children.get(self.position(token)?)
    }
}

impl Tree {
    /// Returns the line number of a byte offset. The first line has the number 1.
    pub(super) fn line(&self, at: usize) -> usize {
        self.lines_before + self.line_starts.partition_point(|start| *start <= at)
    }
}

/// Parses one document. Line numbers in errors include `lines_before`.
pub(super) fn parse(text: &str, lines_before: usize) -> Result<Tree, YamlError> {
    let line_starts = text.match_indices('\n').map(|(at, _)| at + 1);
    let mut tree = Tree {
        root: None,
        marks: Vec::new(),
        aliased_anchors: BTreeSet::new(),
        line_starts: std::iter::once(0).chain(line_starts).collect(),
        lines_before,
    };
    let mut content = Vec::new();
    let mut start = text_start(text);
    for event in events(text, true, lines_before) {
        let (event, position) = event?;
        if matches!(event, Event::Comment(..)) {
            tree.marks.push(Mark { kind: LossKind::Comment, range: position.range() });
        } else if let Event::DocumentStart(is_explicit, _) = event {
            // If the document has no `---`, the parser reports the start of the content as its position.
            start = if is_explicit { position.end } else { start };
        } else {
            content.push((event, position));
        }
    }
    let events = content.into_iter().peekable();
    let mut builder = Builder { text, events, tree: &mut tree, keys: BTreeMap::new(), at: start };
    let root = builder.document()?;
    tree.marks.sort_by_key(|mark| mark.range.start);
    tree.root = root;
    Ok(tree)
}

struct Builder<'t, 'b> {
    text: &'t str,
    events: Peekable<IntoIter<(Event<'t>, Position)>>,
    tree: &'b mut Tree,
    /// Keys of the current mapping, with their line numbers.
    keys: BTreeMap<String, usize>,
    /// Byte offset after the last part of the text that was read.
    at: usize,
}

impl<'t> Builder<'t, '_> {
    fn document(&mut self) -> Result<Option<Node>, YamlError> {
        let mut root = None;
        while let Some((event, position)) = self.next_node() {
            if root.is_some() {
                return Err(self.syntax_error(position, "a second document begins without ---"));
            }
            root = Some(self.node(event, position, 0)?);
        }
        Ok(root)
    }

    /// Reads the node that starts with `event`. Afterwards, `at` is the end of the node.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other event starts a node")]
    fn node(
        &mut self,
        event: Event<'t>,
        position: Position,
        depth: usize,
    ) -> Result<Node, YamlError> {
        let anchor_range = self.anchor();
        let property_starts = [position.tag, anchor_range.as_ref().map(|range| range.start)];
        let property_ends =
            [position.tag.map(|tag| self.word_end(tag)), anchor_range.map(|range| range.end)];
        let properties_end = property_ends.into_iter().flatten().max().unwrap_or_default();
        self.at = self.at.max(properties_end);
        let line = self.tree.line(position.start);
        let mut anchor = 0;
        let (kind, content) = match event {
            Event::Scalar(text, style, id, tag) => {
                anchor = id;
                let text = self.without_added_line_end(&text, style, position);
                let value = scalar_value(text, style, tag.as_deref(), line)?;
                (NodeKind::Scalar(value), self.scalar_range(style, position, properties_end))
            }
            Event::SequenceStart(style, id, tag) => {
                anchor = id;
                check_tag(tag.as_deref(), "seq", line)?;
                self.collection(style, false, position, depth)?
            }
            Event::MappingStart(style, id, tag) => {
                anchor = id;
                check_tag(tag.as_deref(), "map", line)?;
                self.collection(style, true, position, depth)?
            }
            Event::Alias(anchor) => {
                let range = position.range();
                self.tree.marks.push(Mark { kind: LossKind::Alias, range: range.clone() });
                self.tree.aliased_anchors.insert(anchor);
                (NodeKind::Alias(anchor), range)
            }
            _ => return Err(self.syntax_error(position, "unexpected value")),
        };
        self.at = self.at.max(content.end);
        let start = property_starts.into_iter().flatten().min();
        Ok(Node {
            range: start.unwrap_or(content.start).min(content.start)..content.end,
            content_start: content.start,
            anchor: (anchor != 0).then_some(anchor),
            kind,
        })
    }

    /// Reads the anchor (`&name`) of the next node, and returns its byte range.
    fn anchor(&mut self) -> Option<Range<usize>> {
        let (_, position) = self.events.next_if(|(event, _)| matches!(event, Event::Anchor(..)))?;
        let range = position.range();
        self.tree.marks.push(Mark { kind: LossKind::Anchor, range: range.clone() });
        Some(range)
    }

    fn scalar_range(
        &self,
        style: ScalarStyle,
        position: Position,
        properties_end: usize,
    ) -> Range<usize> {
        if matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) {
            return self.block_scalar_range(position);
        }
        let is_unwritten = style == ScalarStyle::Plain && position.start == position.end;
        let start = if is_unwritten { position.start.max(properties_end) } else { position.start };
        start..position.end.max(start)
    }

    /// Returns the byte range of a literal or folded block scalar, from the `|` or `>` to the last line with text. The
    /// parser's own range starts after this header and ends at the next node.
    fn block_scalar_range(&self, position: Position) -> Range<usize> {
        let start = skip_trivia(self.text, self.at, false).min(position.start);
        let text = self.text.get(start..position.end).unwrap_or_default();
        let header = text.lines().next().unwrap_or_default();
        let header = header.split('#').next().unwrap_or_default();
        let trimmed = text.trim_end_matches([' ', '\t', '\r', '\n']).len();
        let kept = text.rfind('\n').filter(|_| header.contains('+')).unwrap_or(trimmed);
        start..start + kept.max(trimmed)
    }

    /// Removes the line end that the parser adds to a block scalar at the end of a text without a final line end.
    /// Kubernetes does not add this line end.
    fn without_added_line_end<'s>(
        &self,
        text: &'s str,
        style: ScalarStyle,
        position: Position,
    ) -> &'s str {
        let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
        let is_last = position.end == self.text.len() && !self.text.ends_with('\n');
        text.strip_suffix('\n').filter(|_| is_block && is_last).unwrap_or(text)
    }

    fn word_end(&self, at: usize) -> usize {
        let rest = self.text.get(at..).unwrap_or_default();
        rest.find([' ', '\t', '\r', '\n']).map_or(self.text.len(), |length| at + length)
    }

    /// Reads a collection. Returns the collection and the byte range of its content.
    fn collection(
        &mut self,
        style: StructureStyle,
        is_mapping: bool,
        position: Position,
        depth: usize,
    ) -> Result<(NodeKind, Range<usize>), YamlError> {
        if depth >= MAX_DEPTH {
            return Err(YamlError::TooDeep { line: self.tree.line(position.start) });
        }
        let is_flow = style == StructureStyle::Flow;
        let outer_keys = std::mem::take(&mut self.keys);
        if is_flow {
            self.at = self.at.max(position.end);
        }
        let mut children = Vec::new();
        let mut end = position.end;
        while let Some((event, position)) = self.events.next() {
            if matches!(event, Event::SequenceEnd | Event::MappingEnd) {
                end = if is_flow { position.end } else { self.at };
                break;
            }
            if !event.is_node() {
                continue;
            }
            children.push(if is_mapping {
                self.entry(event, position, is_flow, depth)?
            } else {
                self.item(event, position, is_flow, depth)?
            });
        }
        self.keys = outer_keys;
        let first = children.first().filter(|_| !is_flow);
        let start = first.map_or(position.start, |child: &Child| child.start);
        let collection = Collection { is_flow, is_mapping, children };
        Ok((NodeKind::Collection(collection), start..end.max(start)))
    }

    fn item(
        &mut self,
        event: Event<'t>,
        position: Position,
        is_flow: bool,
        depth: usize,
    ) -> Result<Child, YamlError> {
        let dash = skip_trivia(self.text, self.at, is_flow);
        let has_dash = !is_flow && self.has_byte(dash, b'-');
        if has_dash {
            self.at = dash + 1;
        }
        let value_start = self.at;
        let node = self.node(event, position, depth + 1)?;
        let node_start = node.range.start;
        Ok(Child {
            start: if has_dash { dash } else { node_start },
            value_start: if has_dash { value_start } else { node_start },
            name: Name::Item,
            is_irregular: !is_flow && !has_dash,
            node,
        })
    }

    fn entry(
        &mut self,
        event: Event<'t>,
        position: Position,
        is_flow: bool,
        depth: usize,
    ) -> Result<Child, YamlError> {
        let start = skip_trivia(self.text, self.at, is_flow);
        let line = self.tree.line(position.start);
        let name = self.name(&event, line)?;
        let key = self.node(event, position, depth + 1)?;
        let colon = skip_trivia(self.text, key.range.end.max(self.at), false);
        let has_colon = self.has_byte(colon, b':');
        if has_colon {
            self.at = colon + 1;
        }
        let value_start = self.at;
        let (event, position) =
            self.next_node().ok_or(YamlError::InvalidKey { line, reason: "it has no value" })?;
        let node = self.node(event, position, depth + 1)?;
        let is_irregular = start != key.range.start || !has_colon;
        Ok(Child { start, value_start, name, is_irregular, node })
    }

    fn name(&mut self, event: &Event<'t>, line: usize) -> Result<Name, YamlError> {
        let Event::Scalar(text, style, _, tag) = event else {
            let reason = if matches!(event, Event::Alias(_)) {
                "replace the alias by its value"
            } else {
                "JSON does not support lists and mappings as keys"
            };
            return Err(YamlError::InvalidKey { line, reason });
        };
        if *style == ScalarStyle::Plain && tag.is_none() && text == "<<" {
            return Ok(Name::Merge);
        }
        let value = scalar_value(text, *style, tag.as_deref(), line)?;
        let reason = "quote it to make it a string";
        let key = scalar::key(value).ok_or(YamlError::InvalidKey { line, reason })?;
        if let Some(first) = self.keys.insert(key.clone(), line) {
            return Err(YamlError::DuplicateKey { line, key, first });
        }
        Ok(Name::Key(key))
    }

    fn next_node(&mut self) -> Option<(Event<'t>, Position)> {
        self.events.find(|(event, _)| event.is_node())
    }

    fn has_byte(&self, at: usize, byte: u8) -> bool {
        self.text.as_bytes().get(at) == Some(&byte)
    }

    fn syntax_error(&self, position: Position, message: &str) -> YamlError {
        let line = self.tree.line(position.start);
        YamlError::Syntax {
            line,
            column: column(self.text, position.start) + 1,
            message: message.to_owned(),
        }
    }
}
