//! YAML text → a tree of nodes that know which bytes they stand in.
//!
//! Between nodes stand nothing but blanks, comments and the indicators that join them; so from the end of one node the
//! indicator before the next is found by passing over blanks and comments.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;
use serde_saphyr::granit_parser::{Event, ScalarStyle, StructureStyle};

use super::MAX_DEPTH;
use super::error::Error;
use super::events::{Bytes, events};
use super::scalar;
use super::tag::{expect_tag, scalar_value};
use super::text::{first, skip_blanks, skip_trivia};

/// One document. Without a root where nothing stands but comments.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) root: Option<Node>,
    /// In the order of the text, as anchors and aliases are.
    pub(super) comments: Vec<Range<usize>>,
    pub(super) anchors: Vec<Range<usize>>,
    pub(super) aliases: Vec<Alias>,
    /// Where each line begins.
    lines: Vec<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Alias {
    pub(super) of: usize,
    pub(super) bytes: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// From the tag or the anchor, where there are such, to the end of the content; blank and without length for what
    /// is not written at all.
    pub(super) bytes: Range<usize>,
    pub(super) content: usize,
    pub(super) anchor: Option<usize>,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Scalar(Value),
    Alias(usize),
    Collection(Collection),
}

#[derive(Clone, Debug)]
pub(super) struct Collection {
    pub(super) flow: bool,
    pub(super) mapping: bool,
    pub(super) children: Vec<Child>,
}

/// An entry of a mapping, or an item of a sequence.
#[derive(Clone, Debug)]
pub(super) struct Child {
    /// Where the key begins, or the dash; in flow style the item itself.
    pub(super) start: usize,
    /// Behind the colon or the dash; in flow style the item itself.
    pub(super) head: usize,
    pub(super) name: Name,
    /// Not written in the usual way: with a `?` before the key, or without a colon.
    pub(super) unusual: bool,
    pub(super) node: Node,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Item,
    Key(String),
    /// `<<`
    Merge,
}

impl Node {
    pub(super) fn collection(&self) -> Option<&Collection> {
        match &self.kind {
            Kind::Collection(collection) => Some(collection),
            Kind::Scalar(_) | Kind::Alias(_) => None,
        }
    }
}

impl Collection {
    pub(super) fn position(&self, token: &str) -> Option<usize> {
        if self.mapping {
            let named = |child: &Child| matches!(&child.name, Name::Key(key) if key == token);
            return self.children.iter().position(named);
        }
        let index = token.parse().ok()?;
        (index < self.children.len()).then_some(index)
    }
}

impl Tree {
    /// Counted from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|begin| *begin <= at)
    }
}

pub(super) fn parse(text: &str) -> Result<Tree, Error> {
    let mut tree = Tree {
        root: None,
        comments: Vec::new(),
        anchors: Vec::new(),
        aliases: Vec::new(),
        lines: std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect(),
    };
    let mut parsed = Vec::new();
    let mut begin = first(text);
    for event in events(text, true) {
        let (event, bytes) = event?;
        if matches!(event, Event::Comment(..)) {
            tree.comments.push(bytes.range());
        } else if let Event::DocumentStart(explicit, _) = event {
            // Where there is no ---, the parser gives the span of what follows.
            begin = if explicit { bytes.end } else { begin };
        } else {
            parsed.push((event, bytes));
        }
    }
    // An anchor is told behind its node.
    let mut builder = Builder {
        text,
        events: parsed.into_iter().peekable(),
        tree: &mut tree,
        names: BTreeMap::new(),
        at: begin,
    };
    let root = builder.document()?;
    tree.anchors.sort_by_key(|bytes| bytes.start);
    tree.root = root;
    Ok(tree)
}

struct Builder<'t, 'b, I: Iterator<Item = (Event<'t>, Bytes)>> {
    text: &'t str,
    events: std::iter::Peekable<I>,
    tree: &'b mut Tree,
    /// The lines of keys, while their mapping is read.
    names: BTreeMap<String, usize>,
    /// Behind what was read last.
    at: usize,
}

impl<'t, I: Iterator<Item = (Event<'t>, Bytes)>> Builder<'t, '_, I> {
    fn document(&mut self) -> Result<Option<Node>, Error> {
        let mut root = None;
        while let Some((event, bytes)) = self.events.next() {
            if !event.is_node() {
                continue;
            }
            if root.is_some() {
                return Err(Error::Syntax {
                    line: self.tree.line(bytes.start),
                    column: bytes.column + 1,
                    message: "a second document begins here without a ---".to_owned(),
                });
            }
            root = Some(self.node(event, bytes, 0)?);
        }
        Ok(root)
    }

    /// The node that `event` begins, searched from `self.at` on, which is then behind it.
    fn node(&mut self, event: Event<'t>, bytes: Bytes, level: usize) -> Result<Node, Error> {
        let anchored = self.anchor();
        let properties = [bytes.tag, anchored.as_ref().map(|anchor| anchor.start)];
        let first = properties.into_iter().flatten().min();
        let behind = [bytes.tag.map(|tag| self.word_end(tag)), anchored.map(|anchor| anchor.end)];
        let behind = behind.into_iter().flatten().max().unwrap_or_default();
        self.at = self.at.max(behind);
        let line = self.tree.line(bytes.start);
        let anchor;
        let (kind, content, end) = if let Event::Scalar(text, style, id, tag) = event {
            anchor = id;
            let text = self.unended(&text, style, bytes);
            let value = scalar_value(text, style, tag.as_deref(), line)?;
            let (content, end) = self.scalar(style, bytes, behind);
            (Kind::Scalar(value), content, end)
        } else if let Event::SequenceStart(style, id, tag) = event {
            anchor = id;
            expect_tag(tag.as_deref(), "seq", line)?;
            self.collection(style, false, bytes, level)?
        } else if let Event::MappingStart(style, id, tag) = event {
            anchor = id;
            expect_tag(tag.as_deref(), "map", line)?;
            self.collection(style, true, bytes, level)?
        } else if let Event::Alias(of) = event {
            anchor = 0;
            let bytes = bytes.range();
            let (start, end) = (bytes.start, bytes.end);
            self.tree.aliases.push(Alias { of, bytes });
            (Kind::Alias(of), start, end)
        } else {
            return Err(Error::Syntax {
                line,
                column: bytes.column + 1,
                message: "no value was expected here".to_owned(),
            });
        };
        self.at = self.at.max(end);
        Ok(Node {
            bytes: first.unwrap_or(content).min(content)..end,
            content,
            anchor: (anchor != 0).then_some(anchor),
            kind,
        })
    }

    /// What names the node that was just begun.
    fn anchor(&mut self) -> Option<Range<usize>> {
        let (_, bytes) = self.events.next_if(|(event, _)| matches!(event, Event::Anchor(..)))?;
        self.tree.anchors.push(bytes.range());
        Some(bytes.range())
    }

    /// Where the content begins and ends; `behind` is the end of its tag and anchor.
    fn scalar(&self, style: ScalarStyle, bytes: Bytes, behind: usize) -> (usize, usize) {
        if matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) {
            return self.block_scalar(bytes);
        }
        let unwritten = style == ScalarStyle::Plain && bytes.start == bytes.end;
        let start = if unwritten { bytes.start.max(behind) } else { bytes.start };
        (start, bytes.end.max(start))
    }

    /// The text of a block scalar whose last line is the last of the document and has no line end: it has none in the
    /// value either, as Kubernetes reads it, while the parser adds one.
    fn unended<'s>(&self, text: &'s str, style: ScalarStyle, bytes: Bytes) -> &'s str {
        let block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
        let last = bytes.end == self.text.len() && !self.text.ends_with('\n');
        let unended = text.strip_suffix('\n').filter(|_| block && last);
        unended.unwrap_or(text)
    }

    /// From the `|` to the last line that counts, without its line end. The parser's own span begins below the header
    /// and ends where the next node begins.
    fn block_scalar(&self, bytes: Bytes) -> (usize, usize) {
        let content = skip_blanks(self.text, self.at).min(bytes.start);
        let all = self.text.get(content..bytes.end).unwrap_or_default();
        let header = all.lines().next().unwrap_or_default();
        let header = header.split('#').next().unwrap_or_default();
        let trimmed = all.trim_end_matches([' ', '\t', '\r', '\n']).len();
        let kept = all.rfind('\n').filter(|_| header.contains('+'));
        (content, content + kept.unwrap_or(trimmed).max(trimmed))
    }

    fn word_end(&self, at: usize) -> usize {
        let rest = self.text.get(at..).unwrap_or_default();
        rest.find([' ', '\t', '\r', '\n']).map_or(self.text.len(), |length| at + length)
    }

    /// What is told, where it begins and where it ends.
    fn collection(
        &mut self,
        style: StructureStyle,
        mapping: bool,
        bytes: Bytes,
        level: usize,
    ) -> Result<(Kind, usize, usize), Error> {
        if level >= MAX_DEPTH {
            let line = self.tree.line(bytes.start);
            return Err(Error::TooDeep { line });
        }
        let flow = style == StructureStyle::Flow;
        let outer = std::mem::take(&mut self.names);
        if flow {
            self.at = self.at.max(bytes.end);
        }
        let mut children = Vec::new();
        let mut end = bytes.end;
        while let Some((event, span)) = self.events.next() {
            if matches!(event, Event::SequenceEnd | Event::MappingEnd) {
                end = if flow { span.end } else { self.at };
                break;
            }
            if !event.is_node() {
                continue;
            }
            children.push(if mapping {
                self.entry(event, span, flow, level)?
            } else {
                self.item(event, span, flow, level)?
            });
        }
        self.names = outer;
        let content = if flow {
            bytes.start
        } else {
            children.first().map_or(bytes.start, |child: &Child| child.start)
        };
        let collection = Collection { flow, mapping, children };
        Ok((Kind::Collection(collection), content, end.max(content)))
    }

    fn item(
        &mut self,
        event: Event<'t>,
        bytes: Bytes,
        flow: bool,
        level: usize,
    ) -> Result<Child, Error> {
        let dash = skip_trivia(self.text, self.at, flow);
        let dashed = !flow && self.byte(dash) == Some(b'-');
        if dashed {
            self.at = dash + 1;
        }
        let head = self.at;
        let node = self.node(event, bytes, level + 1)?;
        Ok(Child {
            start: if dashed { dash } else { node.bytes.start },
            head: if dashed { head } else { node.bytes.start },
            name: Name::Item,
            unusual: !flow && !dashed,
            node,
        })
    }

    fn entry(
        &mut self,
        event: Event<'t>,
        bytes: Bytes,
        flow: bool,
        level: usize,
    ) -> Result<Child, Error> {
        let start = skip_trivia(self.text, self.at, flow);
        let line = self.tree.line(bytes.start);
        let name = self.name(&event, line)?;
        let key = self.node(event, bytes, level + 1)?;
        let colon = skip_trivia(self.text, key.bytes.end.max(self.at), false);
        let joined = self.byte(colon) == Some(b':');
        if joined {
            self.at = colon + 1;
        }
        let head = self.at;
        let Some((event, bytes)) = self.next_node() else {
            return Err(Error::Key { line, why: "it has no value" });
        };
        let node = self.node(event, bytes, level + 1)?;
        Ok(Child { start, head, name, unusual: start != key.bytes.start || !joined, node })
    }

    fn name(&mut self, event: &Event<'t>, line: usize) -> Result<Name, Error> {
        let Event::Scalar(text, style, _, tag) = event else {
            let why = if matches!(event, Event::Alias(_)) {
                "write out what the alias stands for"
            } else {
                "JSON has no lists and mappings as keys"
            };
            return Err(Error::Key { line, why });
        };
        if *style == ScalarStyle::Plain && tag.is_none() && text == "<<" {
            return Ok(Name::Merge);
        }
        let value = scalar_value(text, *style, tag.as_deref(), line)?;
        let key =
            scalar::key(value).ok_or(Error::Key { line, why: "quote it, so that it is text" })?;
        if let Some(first) = self.names.insert(key.clone(), line) {
            return Err(Error::SecondKey { line, key, first });
        }
        Ok(Name::Key(key))
    }

    fn next_node(&mut self) -> Option<(Event<'t>, Bytes)> {
        self.events.find(|(event, _)| event.is_node())
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }
}
