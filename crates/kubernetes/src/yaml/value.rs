//! A tree → the value that Kubernetes reads: aliases and merge keys resolved.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::MAX_DEPTH;
use super::error::Error;
use super::tree::{Collection, Kind, Name, Node, Tree};

/// So many bytes all aliases of a document stand for at most, together with what is kept for them. A few lines of
/// aliases of aliases are billions of values; manifests that are written by hand stay far below one MiB.
const MOST_ALIASED: usize = 16 << 20;

/// What a value takes beside its text.
const PER_VALUE: usize = 64;

pub(super) fn of(tree: &Tree) -> Result<Value, Error> {
    let mut reader = Reader {
        tree,
        used: tree.aliases.iter().map(|alias| alias.of).collect(),
        known: BTreeMap::new(),
        left: MOST_ALIASED,
    };
    match &tree.root {
        Some(root) => reader.node(root).map(|read| read.value),
        None => Ok(Value::Null),
    }
}

struct Reader<'t> {
    tree: &'t Tree,
    /// Anchors that an alias stands for.
    used: BTreeSet<usize>,
    known: BTreeMap<usize, Read>,
    left: usize,
}

/// A value, its size in bytes, and how deep it is.
#[derive(Clone)]
struct Read {
    value: Value,
    size: usize,
    levels: usize,
}

impl Reader<'_> {
    fn node(&mut self, node: &Node) -> Result<Read, Error> {
        let read = match &node.kind {
            Kind::Scalar(value) => Read {
                size: PER_VALUE + value.as_str().map_or(0, str::len),
                value: value.clone(),
                levels: 0,
            },
            Kind::Alias(of) => {
                let known = self.known.get(of).cloned();
                let read = known.ok_or_else(|| Error::Cycle { line: self.line(node) })?;
                self.spend(read.size, node)?;
                read
            }
            Kind::Collection(collection) => self.collection(collection, node)?,
        };
        if read.levels > MAX_DEPTH {
            let line = self.line(node);
            return Err(Error::TooDeep { line });
        }
        if let Some(anchor) = node.anchor.filter(|anchor| self.used.contains(anchor)) {
            self.spend(read.size, node)?;
            self.known.insert(anchor, read.clone());
        }
        Ok(read)
    }

    fn collection(&mut self, collection: &Collection, node: &Node) -> Result<Read, Error> {
        let mut items = Vec::new();
        let mut entries = Map::new();
        let mut size = PER_VALUE;
        let mut levels = 0;
        for child in &collection.children {
            let read = self.node(&child.node)?;
            size += read.size;
            levels = levels.max(read.levels);
            match &child.name {
                Name::Item => items.push(read.value),
                Name::Key(key) => {
                    size += key.len();
                    entries.insert(key.clone(), read.value);
                }
                Name::Merge => merge(&mut entries, read.value)
                    .ok_or_else(|| Error::Merge { line: self.line(node) })?,
            }
        }
        let value = if collection.mapping { Value::Object(entries) } else { Value::Array(items) };
        Ok(Read { value, size, levels: levels + 1 })
    }

    fn spend(&mut self, size: usize, node: &Node) -> Result<(), Error> {
        self.left = self
            .left
            .checked_sub(size)
            .ok_or_else(|| Error::Aliases { line: self.line(node), most: MOST_ALIASED })?;
        Ok(())
    }

    fn line(&self, node: &Node) -> usize {
        self.tree.line(node.bytes.start)
    }
}

/// As `go.yaml.in/yaml/v2` does it: what stands further down in the text wins, be it a key or a merge; of a list the
/// first mapping.
fn merge(entries: &mut Map<String, Value>, value: Value) -> Option<()> {
    match value {
        Value::Object(merged) => entries.extend(merged),
        Value::Array(list) => {
            for value in list.into_iter().rev() {
                let Value::Object(merged) = value else {
                    return None;
                };
                entries.extend(merged);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
    }
    Some(())
}
