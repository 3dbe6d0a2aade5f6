//! Deserializes a parsed YAML file into any serde type, and reports *all* errors.
//!
//! serde stops at the first error. This deserializer reports the error at its position, marks the invalid value, and
//! reads the section again without it, so that the next error is found. The invalid value has its default then. The same
//! derived structs therefore define both the accepted keys and the JSON Schema.

use std::cell::RefCell;
use std::fmt;

use serde::de::value::{MapDeserializer, StrDeserializer};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::{Deserialize, Deserializer};

use super::errors::{ErrorCollector, NodeId, join_path, suggestion};
use super::spanned::{ONE_OR_MORE, SPANNED, Spanned};
use super::yaml::{self, Key, Kind, Node};

/// Key of a section that can be switched off.
const SWITCH: &str = "enabled";

/// Deserializes the YAML document `text` as a `T`. Returns `None` if the document is empty or invalid.
pub(super) fn from_yaml<T: DeserializeOwned>(text: &str, errors: &mut ErrorCollector) -> Option<T> {
    let root = yaml::parse(text, errors)?;
    from_node(&root, errors)
}

/// Deserializes `root` as a `T`. Returns `None` if the node is empty or invalid.
pub(super) fn from_node<'t, T: Deserialize<'t>>(
    root: &'t Node,
    errors: &mut ErrorCollector,
) -> Option<T> {
    let reader = Reader { node: root, errors: &RefCell::new(errors) };
    // The error is dropped here, because it has been reported where it occurred.
    let root = Option::<Spanned<T>>::deserialize(reader).ok().flatten();
    root.map(|root| root.value)
}

/// An error on its way through serde. Only the innermost node that receives the error reports it.
#[derive(Debug)]
enum Failure {
    Reported,
    Unreported(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reported => f.write_str("already reported"),
            Self::Unreported(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Failure {}

impl de::Error for Failure {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Unreported(message.to_string())
    }
}

#[derive(Clone, Copy)]
struct Reader<'t, 'p> {
    node: &'t Node,
    errors: &'p RefCell<&'p mut ErrorCollector>,
}

impl<'t> Reader<'t, '_> {
    fn report(self, message: String) -> Failure {
        self.errors.borrow_mut().reject(self.node.id, message);
        Failure::Reported
    }

    fn is_rejected(self) -> bool {
        self.errors.borrow().is_rejected(self.node.id)
    }

    /// Deserializes this node with `seed`. Reports an error that no inner node has reported.
    fn read<S: DeserializeSeed<'t>>(self, seed: S) -> Result<S::Value, Failure> {
        seed.deserialize(self).map_err(|failure| match failure {
            Failure::Reported => Failure::Reported,
            // The error of a section can be a consequence of a rejected key.
            Failure::Unreported(_) if self.has_rejected_key() => {
                self.errors.borrow_mut().mark_rejected(self.node.id);
                Failure::Reported
            }
            Failure::Unreported(message) => self.report(message),
        })
    }

    fn has_rejected_key(self) -> bool {
        let Kind::Section(entries) = &self.node.kind else { return false };
        entries.iter().any(|(_, node)| self.errors.borrow().is_rejected(node.id))
    }

    fn unexpected_kind(self, hint: &str) -> Failure {
        self.report(format!("found {}; {hint}", self.node.kind.name()))
    }

    fn text(self, hint: &str) -> Result<&'t str, Failure> {
        let Kind::Scalar { text, .. } = &self.node.kind else {
            return Err(self.unexpected_kind(hint));
        };
        Ok(text)
    }

    /// Returns the text of a number or boolean. Such a value must not be in quotes.
    fn unquoted(self, hint: &str) -> Result<&'t str, Failure> {
        let text = self.text(hint)?;
        if matches!(self.node.kind, Kind::Scalar { quoted: true, .. }) {
            return Err(self.report(format!("\"{text}\" is in quotes; {hint} without quotes")));
        }
        Ok(text)
    }

    fn entries(self) -> Result<&'t [(Key, Node)], Failure> {
        let Kind::Section(entries) = &self.node.kind else {
            let hint = "write a section of keys, one per line, indented below this key";
            return Err(self.unexpected_kind(hint));
        };
        Ok(entries)
    }

    /// Returns the value of a section that consists only of `true` or `false`. This is a short form for sections with the
    /// key [`SWITCH`].
    fn switch(self, fields: &[&str]) -> Option<bool> {
        let Kind::Scalar { text, quoted: false, .. } = &self.node.kind else { return None };
        text.parse().ok().filter(|_| fields.contains(&SWITCH))
    }

    fn reject_unknown_keys(self, entries: &[(Key, Node)], known: &[&str]) {
        let path = self.errors.borrow().location(self.node.id).key;
        let unknown = entries.iter().filter(|(key, _)| !known.contains(&key.text.as_str()));
        for (key, node) in unknown {
            if !self.errors.borrow_mut().mark_rejected(node.id) {
                continue;
            }
            let message = format!("unknown key; {}", suggestion(&key.text, known.iter().copied()));
            let path = join_path(&path, &key.text);
            self.errors.borrow_mut().add_at(key.position, path, message);
        }
    }
}

impl<'de> Deserializer<'de> for Reader<'de, '_> {
    type Error = Failure;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        if let Some(enabled) = self.switch(fields) {
            return visitor.visit_map(MapDeserializer::new([(SWITCH, enabled)].into_iter()));
        }
        let entries = self.entries()?;
        self.reject_unknown_keys(entries, fields);
        // A key without a value, or with an invalid one, has its default.
        let is_valid = |(key, node): &&(Key, Node)| {
            fields.contains(&key.text.as_str())
                && !matches!(node.kind, Kind::Null)
                && !self.errors.borrow().is_rejected(node.id)
        };
        let left = entries.iter().filter(is_valid);
        visitor.visit_map(Entries { left, value: None, errors: self.errors })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let left = self.entries()?.iter();
        visitor.visit_map(Entries { left, value: None, errors: self.errors })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let Kind::List(items) = &self.node.kind else {
            let hint = "write a list, one entry per line, each starting with `- `";
            return Err(self.unexpected_kind(hint));
        };
        visitor.visit_seq(Items { left: items.iter(), errors: self.errors })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        match name {
            SPANNED => visitor.visit_seq(IdThenNode { id: Some(self.node.id), reader: self }),
            ONE_OR_MORE => match &self.node.kind {
                Kind::List(_) => self.deserialize_seq(visitor),
                Kind::Null | Kind::Scalar { .. } | Kind::Section(_) => {
                    let only = std::slice::from_ref(self.node);
                    visitor.visit_seq(Items { left: only.iter(), errors: self.errors })
                }
            },
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.node.kind {
            Kind::Null => visitor.visit_none(),
            Kind::Scalar { .. } | Kind::List(_) | Kind::Section(_) => visitor.visit_some(self),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_str(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let text = self.text("write a string")?;
        visitor.visit_borrowed_str(text)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let hint = "write a whole number";
        let text = self.unquoted(hint)?;
        let Ok(number) = text.parse() else {
            return Err(
                self.report(format!("\"{text}\" is not a whole number; write digits, such as 100"))
            );
        };
        visitor.visit_u64(number)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let hint = "write true or false";
        match self.unquoted(hint)? {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            text => Err(self.report(format!("\"{text}\" is not a boolean; {hint}"))),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let text = self.text(&format!("write one of {}", variants.join(", ")))?;
        if !variants.contains(&text) {
            let hint = suggestion(text, variants.iter().copied());
            return Err(self.report(format!("unknown value \"{text}\"; {hint}")));
        }
        let variant: StrDeserializer<'_, Failure> = text.into_deserializer();
        visitor.visit_enum(variant)
    }

    /// Always fails, because no configuration type needs this method. If a new type needs it, its first test fails.
    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Failure> {
        Err(self.report("values of this type are not supported".to_owned()))
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct
        identifier ignored_any
    }
}

/// A sequence of the id of a node and the node. Each further attempt to get the node reads it again.
struct IdThenNode<'t, 'p> {
    id: Option<NodeId>,
    reader: Reader<'t, 'p>,
}

impl<'t> SeqAccess<'t> for IdThenNode<'t, '_> {
    type Error = Failure;

    fn next_element_seed<S: DeserializeSeed<'t>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Failure> {
        match self.id.take() {
            Some(NodeId(id)) => seed.deserialize(id.into_deserializer()).map(Some),
            None => {
                let rejected = self.reader.errors.borrow().rejected_count();
                let value = self.reader.read(seed).map(Some);
                // Another attempt helps only if it skips a value inside this one.
                let is_final = self.reader.is_rejected()
                    || self.reader.errors.borrow().rejected_count() == rejected;
                if value.is_err() && is_final { Ok(None) } else { value }
            }
        }
    }
}

struct Items<'t, 'p> {
    left: std::slice::Iter<'t, Node>,
    errors: &'p RefCell<&'p mut ErrorCollector>,
}

impl<'t> SeqAccess<'t> for Items<'t, '_> {
    type Error = Failure;

    fn next_element_seed<S: DeserializeSeed<'t>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Failure> {
        let errors = self.errors;
        let is_valid = |node: &&Node| !errors.borrow().is_rejected(node.id);
        let Some(node) = self.left.find(is_valid) else { return Ok(None) };
        let reader = Reader { node, errors };
        match node.kind {
            Kind::Null => {
                Err(reader
                    .report("the entry is empty; write a value, or remove the entry".to_owned()))
            }
            Kind::Scalar { .. } | Kind::List(_) | Kind::Section(_) => reader.read(seed).map(Some),
        }
    }
}

struct Entries<'t, 'p, I> {
    left: I,
    value: Option<&'t Node>,
    errors: &'p RefCell<&'p mut ErrorCollector>,
}

impl<'t, I: Iterator<Item = &'t (Key, Node)>> MapAccess<'t> for Entries<'t, '_, I> {
    type Error = Failure;

    fn next_key_seed<S: DeserializeSeed<'t>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Failure> {
        let Some((key, value)) = self.left.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        let key: StrDeserializer<'_, Failure> = key.text.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'t>>(&mut self, seed: S) -> Result<S::Value, Failure> {
        let Some(node) = self.value.take() else {
            return Err(Failure::Unreported("a value was requested before its key".to_owned()));
        };
        let errors = self.errors;
        Reader { node, errors }.read(seed)
    }
}
