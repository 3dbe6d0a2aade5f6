//! Converts a patch into replacements of text (splices). After each replacement, the new text is parsed and checked.

use std::ops::Range;

use json_patch::{
    Patch, PatchOperation,
    jsonptr::{Pointer, PointerBuf},
};
use serde_json::{Map, Value};

use super::style::{self, Style};
use super::text::{Splice, line_end, next_line, splice, starts_line};
use super::tree::{Child, Collection, Name, Node, NodeKind, Tree};
use super::{Loss, LossKind, PatchedText, YamlError, block, flow, read, write};

/// Maximum number of aliases (`*name`) that one operation replaces with their values. With more aliases, the enclosing
/// collection is written again.
const MAX_EXPANDED_ALIASES: usize = 64;

pub(super) fn apply(text: &str, value: &Value, patch: &Patch) -> Result<PatchedText, YamlError> {
    let (tree, _) = read(text, 0)?;
    let mut editor = Editor {
        text: text.to_owned(),
        mark_lines: tree.marks.iter().map(|mark| tree.line(mark.range.start)).collect(),
        original: tree.clone(),
        tree,
        value: value.clone(),
        literals: true,
        losses: Vec::new(),
    };
    for operation in patch.iter() {
        editor.apply_operation(operation)?;
    }
    editor.restore_last_line(text);
    let mut losses = editor.losses;
    losses.sort_by_key(|loss| loss.line);
    Ok(PatchedText { text: editor.text, losses })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Add,
    Replace,
    Remove,
}

/// The current text of a document, with the parsed tree and value of this text.
struct Editor {
    text: String,
    tree: Tree,
    value: Value,
    /// Whether a string with several lines may be written as a literal block (`|`).
    literals: bool,
    original: Tree,
    /// Line number of each comment, anchor and alias of `tree` in the original text.
    mark_lines: Vec<usize>,
    losses: Vec<Loss>,
}

impl Editor {
    fn apply_operation(&mut self, operation: &PatchOperation) -> Result<(), YamlError> {
        let change = match operation {
            PatchOperation::Add(_) => Change::Add,
            PatchOperation::Replace(_) => Change::Replace,
            PatchOperation::Remove(_) => Change::Remove,
            PatchOperation::Move(_) | PatchOperation::Copy(_) | PatchOperation::Test(_) => {
                let path = operation.path().to_string();
                return Err(YamlError::UnsupportedOperation { path });
            }
        };
        let mut patched = self.value.clone();
        json_patch::patch(&mut patched, std::slice::from_ref(operation))?;
        if patched == self.value {
            return Ok(());
        }
        let path = operation.path();
        self.expand_aliases(path, change);
        let replaced = self.scalar(path).filter(|_| change == Change::Replace);
        let text_before = replaced.as_ref().map(|_| self.text.clone());
        self.write(path, change, &patched)?;
        if let Some((value, loss)) = replaced
            && self.replace(path, &value).and_then(|splices| splice(&self.text, &splices))
                != text_before
        {
            self.losses.push(loss);
        }
        Ok(())
    }

    /// Returns the scalar at `path`, and the loss to report if its old notation, such as quotes, cannot be restored.
    fn scalar(&self, path: &Pointer) -> Option<(Value, Loss)> {
        let node = self.node(path)?;
        let NodeKind::Scalar(value) = &node.kind else { return None };
        let text = self.text.get(node.range.clone())?.to_owned();
        let line = self.original_line(path);
        Some((value.clone(), Loss { line, kind: LossKind::ScalarNotation, text }))
    }

    /// Changes the text so that its parsed value is `patched`. `patched` differs from the current value only at
    /// `path`.
    fn write(&mut self, path: &Pointer, change: Change, patched: &Value) -> Result<(), YamlError> {
        if self.attempt(patched, |editor| editor.change(path, change, patched)) {
            return Ok(());
        }
        for parent in std::iter::successors(path.parent(), |path| path.parent()) {
            let value = patched.pointer(parent.as_str()).unwrap_or(&Value::Null);
            let loss = self.rewriting_loss(parent, value);
            if self.attempt(patched, |editor| editor.replace(parent, value)) {
                self.losses.extend(loss);
                return Ok(());
            }
        }
        Err(YamlError::Unwritable { path: path.to_string() })
    }

    /// Applies the changes that `splices` returns. The first try writes texts as literal blocks (`|`). If the result is
    /// wrong, for example because an indented comment became part of a block, the second try writes no blocks.
    fn attempt(&mut self, patched: &Value, splices: impl Fn(&Self) -> Option<Vec<Splice>>) -> bool {
        [true, false].into_iter().any(|literals| {
            self.literals = literals;
            splices(self).is_some_and(|splices| self.accept(&splices, patched))
        })
    }

    /// Returns the loss to report if the list or mapping at `path` is written again. Returns `None` if its new value
    /// is empty, because an empty collection has no order or notation to lose.
    fn rewriting_loss(&self, path: &Pointer, value: &Value) -> Option<Loss> {
        let is_collection = self.node(path).and_then(Node::collection).is_some();
        let becomes_empty =
            *value == Value::Array(Vec::new()) || *value == Value::Object(Map::new());
        (is_collection && !becomes_empty).then(|| Loss {
            line: self.original_line(path),
            kind: LossKind::CollectionNotation,
            text: path.to_string(),
        })
    }

    /// Applies the splices if the value of the resulting text is `patched`. Otherwise, returns false.
    fn accept(&mut self, splices: &[Splice], patched: &Value) -> bool {
        let Some(text) = splice(&self.text, splices) else { return false };
        match read(&text, 0) {
            Ok((tree, value)) if value == *patched => {
                self.record_lost_marks(splices);
                self.text = text;
                self.tree = tree;
                self.value = value;
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// Records the comments, anchors and aliases that the splices remove from the text.
    fn record_lost_marks(&mut self, splices: &[Splice]) {
        let mut marks = self.tree.marks.iter();
        self.mark_lines.retain(|line| {
            let is_cut = |range: &Range<usize>| {
                splices.iter().any(|(cut, _)| cut.start < range.end && range.start < cut.end)
            };
            let Some(mark) = marks.next().filter(|mark| is_cut(&mark.range)) else { return true };
            let text = self.text.get(mark.range.clone()).unwrap_or_default().to_owned();
            self.losses.push(Loss { line: *line, kind: mark.kind, text });
            false
        });
    }

    fn change(&self, path: &Pointer, change: Change, patched: &Value) -> Option<Vec<Splice>> {
        let Some((parent, last)) = path.split_back() else {
            return self.replace(path, patched);
        };
        let node = self.node(parent)?;
        let collection = node.collection()?;
        let index = collection.position(&last.decoded());
        match change {
            Change::Remove if collection.is_flow => flow::remove(&self.text, node, index?),
            Change::Remove => block::remove(&self.text, collection, index?),
            Change::Replace => self.replace(path, patched.pointer(path.as_str())?),
            Change::Add if collection.is_mapping && index.is_some() => {
                self.replace(path, patched.pointer(path.as_str())?)
            }
            Change::Add => self.add(path, node, collection, patched),
        }
    }

    /// Adds an entry to a mapping or an item to a list.
    fn add(
        &self,
        path: &Pointer,
        node: &Node,
        collection: &Collection,
        patched: &Value,
    ) -> Option<Vec<Splice>> {
        let (parent, last) = path.split_back()?;
        let last = last.decoded();
        let style = self.style();
        if collection.children.is_empty() && !style.is_flow && !self.is_in_flow(parent) {
            // An empty list (`[]`) becomes a list in block style.
            return self.replace(parent, patched.pointer(parent.as_str())?);
        }
        let index = collection.position(&last).unwrap_or(collection.children.len());
        let entry = if collection.is_mapping {
            (Some(&*last), patched.pointer(path.as_str())?)
        } else {
            (None, patched.pointer(parent.as_str())?.get(index)?)
        };
        if collection.is_flow {
            flow::insert(&self.text, &style, node, index, entry)
        } else {
            block::insert(&self.text, &style, collection, index, entry)
        }
    }

    fn replace(&self, path: &Pointer, value: &Value) -> Option<Vec<Splice>> {
        let style = self.style();
        let Some((parent, last)) = path.split_back() else {
            return Some(vec![self.replace_root(value, &style)]);
        };
        let collection = self.node(parent)?.collection()?;
        let child = collection.child(&last.decoded()).filter(|child| !child.is_irregular)?;
        if collection.is_flow {
            Some(flow::replace(&self.text, &style, collection, child, value))
        } else {
            block::replace(&self.text, &style, collection, child, value)
        }
    }

    fn replace_root(&self, value: &Value, style: &Style) -> Splice {
        let text = &self.text;
        let content = write::document(value, style);
        let content = content.strip_suffix(style.newline).unwrap_or(&content);
        let root = match &self.tree.root {
            Some(root) if style.is_flow => {
                return (root.range.clone(), flow::document(text, style, root, value));
            }
            Some(root) if !root.range.is_empty() => root,
            root => {
                let at = root.as_ref().map_or(text.len(), |root| next_line(text, root.range.end));
                let lines = format!("{content}{}", style.newline);
                return block::insert_lines(text, at, &lines, style);
            }
        };
        let start = root.range.start;
        let before = if starts_line(text, start) { "" } else { style.newline };
        (start..line_end(text, root.range.end), format!("{before}{content}"))
    }

    fn style(&self) -> Style {
        Style { literals: self.literals, ..style::detect(&self.text, &self.tree) }
    }

    /// Removes the line end at the end of the text if the original text has none. Keeps a line end that is part of a
    /// value, such as a literal block.
    fn restore_last_line(&mut self, original: &str) {
        if original.ends_with('\n') {
            return;
        }
        let Some(shorter) = self.text.strip_suffix('\n') else { return };
        let shorter = shorter.strip_suffix('\r').unwrap_or(shorter).to_owned();
        if matches!(read(&shorter, 0), Ok((_, value)) if value == self.value) {
            self.text = shorter;
        }
    }

    /// Returns the node at `path`. Returns `None` if the path passes through an alias or a merge key (`<<`).
    fn node(&self, path: &Pointer) -> Option<&Node> {
        let nodes = nodes_along(&self.tree, path);
        nodes.last().copied().filter(|_| nodes.len() == path.count() + 1)
    }

    fn is_in_flow(&self, path: &Pointer) -> bool {
        let nodes = nodes_along(&self.tree, path);
        let parents = nodes.iter().rev().skip(1);
        parents.filter_map(|node| node.collection()).any(|collection| collection.is_flow)
    }

    /// Returns the line in the original text of the value at `path`. For a new value, returns the line of its nearest
    /// parent.
    fn original_line(&self, path: &Pointer) -> usize {
        let nodes = nodes_along(&self.original, path);
        nodes.last().map_or(1, |node| self.original.line(node.range.start))
    }

    /// Replaces each alias that refers to the changed value with a copy of the old value. Otherwise, the change would
    /// affect these places, too.
    fn expand_aliases(&mut self, path: &Pointer, change: Change) {
        for _ in 0..MAX_EXPANDED_ALIASES {
            let Some(alias) = self.affected_alias(path, change) else { return };
            let unchanged = self.value.clone();
            let value = unchanged.pointer(alias.as_str()).unwrap_or(&Value::Null);
            if !self.attempt(&unchanged, |editor| editor.replace(&alias, value)) {
                return;
            }
        }
    }

    /// Returns the path of an alias that refers to the changed value.
    fn affected_alias(&self, path: &Pointer, change: Change) -> Option<PointerBuf> {
        if self.tree.aliased_anchors.is_empty() {
            return None;
        }
        let nodes = nodes_along(&self.tree, path);
        let mut anchors: Vec<usize> = nodes.iter().filter_map(|node| node.anchor).collect();
        if change != Change::Add && nodes.len() == path.count() + 1 {
            collect_anchors(nodes.last()?, &mut anchors);
        }
        find_alias(self.tree.root.as_ref()?, &anchors, Pointer::root())
    }
}

/// Returns the nodes from the root to `path`. Stops where the path does not exist.
fn nodes_along<'t>(tree: &'t Tree, path: &Pointer) -> Vec<&'t Node> {
    let mut nodes: Vec<&Node> = tree.root.iter().collect();
    for token in path.tokens() {
        let collection = nodes.last().and_then(|node| node.collection());
        let child = collection.and_then(|collection| collection.child(&token.decoded()));
        let Some(child) = child else { break };
        nodes.push(&child.node);
    }
    nodes
}

fn children(node: &Node) -> impl Iterator<Item = &Child> {
    node.collection().into_iter().flat_map(|collection| &collection.children)
}

fn collect_anchors(node: &Node, anchors: &mut Vec<usize>) {
    for child in children(node) {
        anchors.extend(child.node.anchor);
        collect_anchors(&child.node, anchors);
    }
}

/// Searches the node at `path` for an alias of one of the anchors. Returns the path of the alias. If a mapping merges
/// the alias (`<<: *name`), returns the path of the mapping.
fn find_alias(node: &Node, anchors: &[usize], path: &Pointer) -> Option<PointerBuf> {
    if let NodeKind::Alias(anchor) = &node.kind {
        return anchors.contains(anchor).then(|| path.to_buf());
    }
    children(node).enumerate().find_map(|(index, child)| {
        let mut inner = path.to_buf();
        match &child.name {
            Name::Item => inner.push_back(index),
            Name::Key(key) => inner.push_back(key),
            Name::Merge => {}
        }
        let alias = find_alias(&child.node, anchors, &inner)?;
        Some(if child.name == Name::Merge { inner } else { alias })
    })
}
