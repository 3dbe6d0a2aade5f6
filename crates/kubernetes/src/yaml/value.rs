//! Computes the value that Kubernetes reads from a document. Aliases (`*name`) and merge keys (`<<`) are replaced with
//! their values.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::tree::{Collection, Name, Node, NodeKind, Tree};
use super::{MAX_DEPTH, YamlError};

/// Memory limit in bytes for the values of all anchors and aliases of a document. A few lines of nested aliases can
/// expand to billions of values. Hand-written manifests need far less than 1 MiB.
const MAX_ALIAS_BYTES: usize = 16 << 20;

/// Estimated memory of a value, excluding its text, in bytes.
const VALUE_OVERHEAD: usize = 64;

pub(super) fn resolve(tree: &Tree) -> Result<Value, YamlError> {
    let mut resolver = Resolver { tree, anchored: BTreeMap::new(), bytes_left: MAX_ALIAS_BYTES };
    match &tree.root {
        Some(root) => resolver.node(root).map(|resolved| resolved.value),
        None => Ok(Value::Null),
    }
}

struct Resolver<'t> {
    tree: &'t Tree,
    anchored: BTreeMap<usize, Resolved>,
    bytes_left: usize,
}

#[derive(Clone)]
struct Resolved {
    value: Value,
    bytes: usize,
    depth: usize,
}

impl Resolver<'_> {
    fn node(&mut self, node: &Node) -> Result<Resolved, YamlError> {
        let resolved = match &node.kind {
            NodeKind::Scalar(value) => Resolved {
                bytes: VALUE_OVERHEAD + value.as_str().map_or(0, str::len),
                value: value.clone(),
                depth: 0,
            },
            NodeKind::Alias(anchor) => {
                let target = self.anchored.get(anchor).cloned();
                let target =
                    target.ok_or_else(|| YamlError::AliasCycle { line: self.line(node) })?;
                self.spend(target.bytes, node)?;
                target
            }
            NodeKind::Collection(collection) => self.collection(collection, node)?,
        };
        if resolved.depth > MAX_DEPTH {
            return Err(YamlError::TooDeep { line: self.line(node) });
        }
        if let Some(anchor) =
            node.anchor.filter(|anchor| self.tree.aliased_anchors.contains(anchor))
        {
            self.spend(resolved.bytes, node)?;
            self.anchored.insert(anchor, resolved.clone());
        }
        Ok(resolved)
    }

    fn collection(&mut self, collection: &Collection, node: &Node) -> Result<Resolved, YamlError> {
        let mut items = Vec::new();
        let mut entries = Map::new();
        let mut bytes = VALUE_OVERHEAD;
        let mut depth = 0;
        for child in &collection.children {
            let resolved = self.node(&child.node)?;
            bytes += resolved.bytes;
            depth = depth.max(resolved.depth);
            match &child.name {
                Name::Item => items.push(resolved.value),
                Name::Key(key) => {
                    bytes += key.len();
                    entries.insert(key.clone(), resolved.value);
                }
                Name::Merge => merge(&mut entries, resolved.value)
                    .ok_or_else(|| YamlError::InvalidMerge { line: self.line(node) })?,
            }
        }
        let value =
            if collection.is_mapping { Value::Object(entries) } else { Value::Array(items) };
        Ok(Resolved { value, bytes, depth: depth + 1 })
    }

    fn spend(&mut self, bytes: usize, node: &Node) -> Result<(), YamlError> {
        let left = self.bytes_left.checked_sub(bytes);
        self.bytes_left = left.ok_or_else(|| YamlError::AliasExpansion {
            line: self.line(node),
            limit: MAX_ALIAS_BYTES,
        })?;
        Ok(())
    }

    fn line(&self, node: &Node) -> usize {
        self.tree.line(node.range.start)
    }
}

/// Merges a mapping into `entries`, with the rules of `go.yaml.in/yaml/v2`. If a key and a merge set the same entry,
/// the later one is used. In a list of mappings, the first mapping is used. Returns `None` for values other than
/// mappings.
fn merge(entries: &mut Map<String, Value>, value: Value) -> Option<()> {
    match value {
        Value::Object(merged) => entries.extend(merged),
        Value::Array(list) => {
            for value in list.into_iter().rev() {
                let Value::Object(merged) = value else { return None };
                entries.extend(merged);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
    }
    Some(())
}
