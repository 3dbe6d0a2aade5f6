//! Deserializes a parsed YAML file into any serde type, and reports *all* errors.
//!
//! serde stops at the first error. This deserializer records an error at its position, sets the [`Field`] to
//! [`Field::Invalid`] and continues. The same derived structs therefore define both the accepted keys and the JSON
//! Schema.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::errors::{ErrorCollector, NodeId, join_path, suggestion};
use super::yaml::{self, Key, Kind, Node};

/// The value of a key.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Field<T> {
    /// No value, or `null`.
    #[default]
    Absent,
    /// The value is not a valid `T`. The error is already reported.
    Invalid,
    Present(Spanned<T>),
}

/// A value and its node in the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Spanned<T> {
    pub value: T,
    pub(super) node: NodeId,
}

impl<T> Field<T> {
    /// Wraps a default or another value that is not from the file. The value has no position.
    pub(super) fn from_value(value: T) -> Self {
        let node = NodeId::default();
        Self::Present(Spanned { value, node })
    }

    pub(super) fn spanned(self) -> Option<Spanned<T>> {
        let Self::Present(spanned) = self else { return None };
        Some(spanned)
    }

    pub(super) fn value(self) -> Option<T> {
        self.spanned().map(|spanned| spanned.value)
    }

    pub(super) fn spanned_mut(&mut self) -> Option<&mut Spanned<T>> {
        let Self::Present(spanned) = self else { return None };
        Some(spanned)
    }

    pub(super) const fn as_ref(&self) -> Option<&Spanned<T>> {
        let Self::Present(spanned) = self else { return None };
        Some(spanned)
    }

    pub(super) fn get(&self) -> Option<&T> {
        self.as_ref().map(|spanned| &spanned.value)
    }

    /// Returns the value. An absent or invalid value is first replaced by `default`.
    pub(super) fn or_insert(&mut self, default: T) -> &mut T {
        if !matches!(self, Self::Present(_)) {
            *self = Self::from_value(default);
        }
        let Self::Present(spanned) = self else { unreachable!("it has just been set") };
        &mut spanned.value
    }

    pub(super) fn or_insert_default(&mut self) -> &mut T
    where
        T: Default,
    {
        self.or_insert(T::default())
    }

    /// Replaces the value with that of a flag, if given. Then returns the value, or else the default of `T`.
    pub(super) fn merge(&mut self, flag: Option<T>) -> T
    where
        T: Copy + Default,
    {
        if let Some(flag) = flag {
            *self = Self::from_value(flag);
        }
        *self.or_insert_default()
    }

    /// Returns the value, or `None` if it is absent or invalid. Reports an absent value.
    pub(super) fn required(
        &self,
        errors: &mut ErrorCollector,
        section: NodeId,
        key: &str,
        hint: &str,
    ) -> Option<&Spanned<T>> {
        if matches!(self, Self::Absent) {
            errors.add_missing(section, key, hint);
        }
        self.as_ref()
    }
}

impl<T> Field<Vec<Field<T>>> {
    /// Returns the valid entries of the list, and removes the invalid ones.
    pub(super) fn entries(&mut self) -> impl Iterator<Item = &mut Spanned<T>> {
        if let Self::Present(list) = self {
            list.value.retain(|entry| matches!(entry, Field::Present(_)));
        }
        self.spanned_mut()
            .into_iter()
            .flat_map(|list| &mut list.value)
            .filter_map(Field::spanned_mut)
    }
}

impl<T> From<Option<T>> for Field<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Self::from_value)
    }
}

/// A list of values without positions.
impl<T> FromIterator<T> for Field<Vec<Field<T>>> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self::from_value(values.into_iter().map(Field::from_value).collect())
    }
}

/// Deserializes the YAML document `text` as a `T`. Returns `None` if the document is empty or invalid.
pub(super) fn from_yaml<T: DeserializeOwned>(
    text: &str,
    errors: &mut ErrorCollector,
) -> Option<Spanned<T>> {
    let root = yaml::parse(text, errors)?;
    from_node(&root, errors)
}

/// Deserializes `root` as a `T`. Returns `None` if the node is empty or invalid.
pub(super) fn from_node<'t, T: Deserialize<'t>>(
    root: &'t Node,
    errors: &mut ErrorCollector,
) -> Option<Spanned<T>> {
    let errors = RefCell::new(errors);
    let reader = Reader { node: root, errors: &errors, is_entry: false };
    // The error is dropped here, because it has been reported where it occurred.
    Field::deserialize(reader).ok().and_then(Field::spanned)
}

/// Name of the newtype with which [`Field`] asks the deserializer for both the id and the value of a node.
const FIELD: &str = "$tokengauge::field";

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Field<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(FIELD, FieldVisitor(PhantomData))
    }
}

struct FieldVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for FieldVisitor<T> {
    type Value = Field<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a node of the configuration")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Field<T>, E> {
        Ok(Field::Absent)
    }

    fn visit_none<E: de::Error>(self) -> Result<Field<T>, E> {
        Ok(Field::Invalid)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Field<T>, A::Error> {
        let node = NodeId(parts.next_element()?.unwrap_or_default());
        Ok(match parts.next_element() {
            Ok(Some(value)) => Field::Present(Spanned { value, node }),
            Ok(None) | Err(_) => Field::Invalid,
        })
    }
}

impl<T: Serialize> Serialize for Field<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent | Self::Invalid => serializer.serialize_unit(),
            Self::Present(spanned) => spanned.value.serialize(serializer),
        }
    }
}

impl<T: JsonSchema> JsonSchema for Field<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }
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
    /// Whether the node is an entry of a list.
    is_entry: bool,
}

impl<'t> Reader<'t, '_> {
    fn report(self, message: String) -> Failure {
        self.errors.borrow_mut().add(self.node.id, message);
        Failure::Reported
    }

    /// Deserializes this node with `seed`. Reports an error that no inner node has reported.
    fn read<S: DeserializeSeed<'t>>(self, seed: S) -> Result<S::Value, Failure> {
        seed.deserialize(self).map_err(|failure| match failure {
            Failure::Reported => Failure::Reported,
            Failure::Unreported(message) => self.report(message),
        })
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

    fn reject_unknown_keys(self, entries: &[(Key, Node)], known: &[&str]) {
        let path = self.errors.borrow().location(self.node.id).key;
        let unknown = entries.iter().filter(|(key, _)| !known.contains(&key.text.as_str()));
        for (key, _) in unknown {
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
        let entries = self.entries()?;
        self.reject_unknown_keys(entries, fields);
        let known = |(key, _): &&(Key, Node)| fields.contains(&key.text.as_str());
        visitor.visit_map(Entries {
            left: entries.iter().filter(known),
            value: None,
            errors: self.errors,
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_map(Entries {
            left: self.entries()?.iter(),
            value: None,
            errors: self.errors,
        })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let Kind::List(items) = &self.node.kind else {
            let hint = "write a list, one entry per line, each starting with `- `";
            return Err(self.unexpected_kind(hint));
        };
        let errors = self.errors;
        let readers = items.iter().map(|node| Reader { node, errors, is_entry: true });
        visitor.visit_seq(de::value::SeqDeserializer::new(readers))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        if name != FIELD {
            return visitor.visit_newtype_struct(self);
        }
        match self.node.kind {
            // An absent key has a default. An entry of a list has none.
            Kind::Null if self.is_entry => {
                self.report("the entry is empty; write a value, or remove the entry".to_owned());
                visitor.visit_none()
            }
            Kind::Null => visitor.visit_unit(),
            Kind::Scalar { .. } | Kind::List(_) | Kind::Section(_) => {
                visitor.visit_seq(IdThenNode { id: Some(self.node.id), reader: self })
            }
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
        i8 i16 i32 i64 i128 u8 u16 u128 f32 f64 char bytes byte_buf option unit unit_struct tuple tuple_struct
        identifier ignored_any
    }
}

impl<'t> IntoDeserializer<'t, Failure> for Reader<'t, '_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// A sequence of two elements: the id of a node, and the node.
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
            None => self.reader.read(seed).map(Some),
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
        Reader { node, errors, is_entry: false }.read(seed)
    }
}
