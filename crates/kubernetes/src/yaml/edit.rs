//! A patch → changes of the text, each held against what it should read as.

use json_patch::{Patch, PatchOperation, jsonptr::Pointer};
use serde_json::{Map, Value};

use super::block::{self, Splice, after_line, eol, whole_lines};
use super::error::Error;
use super::lost::{Loss, LossKind, Marks};
use super::style::{self, Style};
use super::text::own_line;
use super::tree::{Kind, Name, Node, Tree};
use super::{PatchedText, flow, read, write};

/// Aliases written out one by one; of more, the collection around all of them is written anew.
const MOST_ALIASES: usize = 64;

pub(super) fn edited(text: &str, value: &Value, patch: &Patch) -> Result<PatchedText, Error> {
    let tree = read(text)?.0;
    let mut draft = Draft {
        text: text.to_owned(),
        marks: Marks::of(&tree),
        former: tree.clone(),
        tree,
        value: value.clone(),
        literals: true,
        lost: Vec::new(),
    };
    for operation in patch.iter() {
        draft.operate(operation)?;
    }
    draft.end_as(text);
    let mut lost = draft.lost;
    lost.sort_by_key(|lost| lost.line);
    Ok(PatchedText { text: draft.text, losses: lost })
}

/// The text as it is so far, and how it reads.
struct Draft {
    text: String,
    tree: Tree,
    value: Value,
    /// If text of several lines may be written as a block.
    literals: bool,
    former: Tree,
    marks: Marks,
    lost: Vec<Loss>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Add,
    Replace,
    Remove,
}

impl Draft {
    fn operate(&mut self, operation: &PatchOperation) -> Result<(), Error> {
        let change = match operation {
            PatchOperation::Add(_) => Change::Add,
            PatchOperation::Replace(_) => Change::Replace,
            PatchOperation::Remove(_) => Change::Remove,
            PatchOperation::Move(_) | PatchOperation::Copy(_) | PatchOperation::Test(_) => {
                let path = operation.path().to_string();
                return Err(Error::Operation { path });
            }
        };
        let mut wanted = self.value.clone();
        json_patch::patch(&mut wanted, std::slice::from_ref(operation))?;
        if wanted == self.value {
            return Ok(());
        }
        let path = tokens(operation.path());
        self.unshare(&path, change);
        let replaced = self.scalar(&path).filter(|_| change == Change::Replace);
        let before = replaced.as_ref().map(|_| self.text.clone());
        self.write(&path, change, &wanted)?;
        if let (Some((value, lost)), Some(before)) = (replaced, before)
            && self.put_back(&path, &value).is_none_or(|text| text != before)
        {
            self.lost.push(lost);
        }
        Ok(())
    }

    /// The single value that stands at `path`, and how it is told where its notation does not come back with it.
    fn scalar(&self, path: &[String]) -> Option<(Value, Loss)> {
        let node = self.node(path)?;
        let value = match &node.kind {
            Kind::Scalar(value) => value.clone(),
            Kind::Alias(_) | Kind::Collection(_) => return None,
        };
        let word = self.text.get(node.bytes.clone())?.to_owned();
        let line = self.former_line(path);
        Some((value, Loss { line, kind: LossKind::Word(word) }))
    }

    /// The text with a former value at `path` again.
    fn put_back(&self, path: &[String], value: &Value) -> Option<String> {
        spliced(&self.text, &self.replace(path, value)?)
    }

    /// Makes the text read as `wanted`, which differs from what it reads as at `path` only.
    fn write(&mut self, path: &[String], change: Change, wanted: &Value) -> Result<(), Error> {
        if self.attempt(|draft| draft.change(path, change, wanted), wanted) {
            return Ok(());
        }
        for length in (0..path.len()).rev() {
            let around = path.get(..length).unwrap_or_default();
            let value = at(wanted, around).unwrap_or(&Value::Null);
            let anew = self.anew(around, value);
            if self.attempt(|draft| draft.replace(around, value), wanted) {
                self.lost.extend(anew);
                return Ok(());
            }
        }
        Err(Error::Unwritable { path: pointer(path) })
    }

    /// Text of several lines is written as a block, or else quoted: below a block, an indented comment would be text.
    fn attempt(&mut self, splices: impl Fn(&Self) -> Option<Vec<Splice>>, wanted: &Value) -> bool {
        [true, false].into_iter().any(|literals| {
            self.literals = literals;
            splices(self).is_some_and(|splices| self.accept(&splices, wanted))
        })
    }

    /// What is told when the collection at `path` is written anew: nothing where an alias stands, which is told as such,
    /// and nothing of what becomes empty.
    fn anew(&self, path: &[String], value: &Value) -> Option<Loss> {
        let written = match self.node(path).map(|node| &node.kind) {
            Some(Kind::Collection(_)) => true,
            Some(Kind::Scalar(_) | Kind::Alias(_)) | None => false,
        };
        let empty = *value == Value::Array(Vec::new()) || *value == Value::Object(Map::new());
        (written && !empty)
            .then(|| Loss { line: self.former_line(path), kind: LossKind::Notation(pointer(path)) })
    }

    /// Takes the changes over if the text then reads as it should.
    fn accept(&mut self, splices: &[Splice], wanted: &Value) -> bool {
        let Some(text) = spliced(&self.text, splices) else {
            return false;
        };
        match read(&text) {
            Ok((tree, value)) if value == *wanted => {
                self.lost.extend(self.marks.without(&self.text, &self.tree, splices));
                self.text = text;
                self.tree = tree;
                self.value = value;
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    fn change(&self, path: &[String], change: Change, wanted: &Value) -> Option<Vec<Splice>> {
        let Some((last, around)) = path.split_last() else {
            return self.replace(path, wanted);
        };
        let node = self.node(around)?;
        let collection = node.collection()?;
        let style = self.style();
        let index = collection.position(last);
        match change {
            Change::Remove if collection.flow => flow::remove(&self.text, node, index?),
            Change::Remove => block::remove(&self.text, collection, index?),
            Change::Replace => self.replace(path, at(wanted, path)?),
            Change::Add if collection.mapping && index.is_some() => {
                self.replace(path, at(wanted, path)?)
            }
            // As a block, which is what everybody writes.
            Change::Add
                if collection.children.is_empty() && !style.flow && !self.in_flow(around) =>
            {
                self.replace(around, at(wanted, around)?)
            }
            Change::Add => {
                let index = index.unwrap_or(collection.children.len());
                let (key, value) = if collection.mapping {
                    (Some(last.as_str()), at(wanted, path)?)
                } else {
                    (None, at(wanted, around)?.get(index)?)
                };
                if collection.flow {
                    flow::insert(&self.text, &style, node, index, (key, value))
                } else {
                    block::insert(&self.text, &style, collection, index, (key, value))
                }
            }
        }
    }

    fn replace(&self, path: &[String], value: &Value) -> Option<Vec<Splice>> {
        let style = self.style();
        let Some((last, around)) = path.split_last() else {
            return self.replace_root(value, &style);
        };
        let collection = self.node(around)?.collection()?;
        let child = collection.children.get(collection.position(last)?)?;
        if collection.flow {
            flow::replace(&self.text, &style, collection, child, value)
        } else {
            block::replace(&self.text, &style, collection, child, value)
        }
    }

    fn replace_root(&self, value: &Value, style: &Style) -> Option<Vec<Splice>> {
        let text = &self.text;
        let Some(root) = &self.tree.root else {
            let lines = with_end(&write::root(value, style), style);
            return Some(vec![whole_lines(text, text.len(), &lines, style)]);
        };
        if style.flow {
            return Some(vec![(root.bytes.clone(), flow::root(text, style, root, value))]);
        }
        let written = write::root(value, style);
        if root.bytes.is_empty() {
            let lines = with_end(&written, style);
            let at = after_line(text, root.bytes.end);
            return Some(vec![whole_lines(text, at, &lines, style)]);
        }
        let start = root.bytes.start;
        let last = eol(text, root.bytes.end);
        let written = written.strip_suffix(style.newline).unwrap_or(&written);
        let before = if own_line(text, start) { "" } else { style.newline };
        Some(vec![(start..last, format!("{before}{written}"))])
    }

    fn style(&self) -> Style {
        Style { literals: self.literals, ..style::of(&self.text, &self.tree) }
    }

    /// A text whose last line has no line end stays one, whatever was added and taken out there: unless the line end
    /// belongs to a value, as below `|`. A blank line that becomes the last one stays, and loses its own.
    fn end_as(&mut self, former: &str) {
        if former.ends_with('\n') {
            return;
        }
        let Some(shorter) = self.text.strip_suffix('\n') else {
            return;
        };
        let shorter = shorter.strip_suffix('\r').unwrap_or(shorter).to_owned();
        if matches!(read(&shorter), Ok((_, value)) if value == self.value) {
            self.text = shorter;
        }
    }

    /// The node that is written at `path`, if the way there leads through no alias and no merge.
    fn node(&self, path: &[String]) -> Option<&Node> {
        way(&self.tree, path).pop().filter(|_| way(&self.tree, path).len() == path.len() + 1)
    }

    fn in_flow(&self, path: &[String]) -> bool {
        let flow = |node: &&Node| node.collection().is_some_and(|inner| inner.flow);
        let way = way(&self.tree, path);
        way.iter().rev().skip(1).any(flow)
    }

    /// The line in which the value at `path` stood in the former text, or what was nearest around it.
    fn former_line(&self, path: &[String]) -> usize {
        let nodes = way(&self.former, path);
        nodes.last().map_or(1, |node| self.former.line(node.bytes.start))
    }

    /// Writes out the aliases of what the change is about to touch, so that it stays a change of this one place.
    fn unshare(&mut self, path: &[String], change: Change) {
        for _ in 0..MOST_ALIASES {
            let Some(alias) = self.shared(path, change) else {
                return;
            };
            let wanted = self.value.clone();
            let value = at(&wanted, &alias).unwrap_or(&Value::Null);
            if !self.attempt(|draft| draft.replace(&alias, value), &wanted) {
                return;
            }
        }
    }

    /// The place of an alias of a value that the change touches.
    fn shared(&self, path: &[String], change: Change) -> Option<Vec<String>> {
        if self.tree.aliases.is_empty() {
            return None;
        }
        let way = way(&self.tree, path);
        let mut anchors: Vec<usize> = way.iter().filter_map(|node| node.anchor).collect();
        let target = way.last().filter(|_| way.len() == path.len() + 1);
        if let Some(target) = target.filter(|_| change != Change::Add) {
            anchors_within(target, &mut anchors);
        }
        let used = |anchor: &usize| self.tree.aliases.iter().any(|alias| alias.of == *anchor);
        anchors.retain(used);
        if anchors.is_empty() {
            return None;
        }
        let mut place = Vec::new();
        let root = self.tree.root.as_ref()?;
        alias_of(root, &anchors, &mut place).then_some(place)
    }
}

/// The nodes on the way to `path`, from the root on, as far as they are written there.
fn way<'t>(tree: &'t Tree, path: &[String]) -> Vec<&'t Node> {
    let mut way: Vec<&Node> = tree.root.iter().collect();
    for token in path {
        let next = way.last().and_then(|node| {
            let collection = node.collection()?;
            let child = collection.children.get(collection.position(token)?)?;
            Some(&child.node)
        });
        match next {
            Some(next) => way.push(next),
            None => break,
        }
    }
    way
}

fn anchors_within(node: &Node, anchors: &mut Vec<usize>) {
    for child in node.collection().into_iter().flat_map(|inner| &inner.children) {
        anchors.extend(child.node.anchor);
        anchors_within(&child.node, anchors);
    }
}

/// Finds an alias of one of these; `place` then leads to it, or to the mapping that merges it.
fn alias_of(node: &Node, anchors: &[usize], place: &mut Vec<String>) -> bool {
    if let Kind::Alias(of) = &node.kind {
        return anchors.contains(of);
    }
    let children = node.collection().into_iter().flat_map(|inner| &inner.children);
    for (index, child) in children.enumerate() {
        let token = match &child.name {
            Name::Item => Some(index.to_string()),
            Name::Key(key) => Some(key.clone()),
            Name::Merge => None,
        };
        let length = place.len();
        let merges = token.is_none();
        place.extend(token);
        if alias_of(&child.node, anchors, place) {
            if merges {
                place.truncate(length);
            }
            return true;
        }
        place.truncate(length);
    }
    false
}

fn with_end(written: &str, style: &Style) -> String {
    match written.strip_suffix(style.newline) {
        Some(_) => written.to_owned(),
        None => format!("{written}{}", style.newline),
    }
}

/// The text with its splices made, which do not overlap and stand in order.
fn spliced(text: &str, splices: &[Splice]) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for (range, written) in splices {
        out.push_str(text.get(at..range.start)?);
        out.push_str(written);
        at = range.end;
    }
    out.push_str(text.get(at..)?);
    Some(out)
}

fn tokens(path: &Pointer) -> Vec<String> {
    path.tokens().map(|token| token.decoded().into_owned()).collect()
}

fn pointer(path: &[String]) -> String {
    let escaped = |token: &String| format!("/{}", token.replace('~', "~0").replace('/', "~1"));
    path.iter().map(escaped).collect()
}

fn at<'v>(value: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, token| match value {
        Value::Object(entries) => entries.get(token),
        Value::Array(items) => items.get(token.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}
