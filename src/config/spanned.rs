//! Values with their position, and lists and sections that leave out invalid entries.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::errors::NodeId;

/// A value and its node in the file. A default has the node of the whole file.
#[derive(Clone, Copy, Default, Eq)]
pub struct Spanned<T> {
    pub value: T,
    pub(super) node: NodeId,
}

/// A list. Invalid entries are reported and left out.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct List<T> {
    entries: Vec<Spanned<T>>,
    /// Number of invalid entries.
    #[serde(skip)]
    invalid: usize,
}

/// A section whose keys are names that the user chooses.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Map<T> {
    entries: BTreeMap<String, Spanned<T>>,
    /// Names without a valid value.
    #[serde(skip)]
    pub(super) invalid: Vec<String>,
}

impl<T> From<T> for Spanned<T> {
    fn from(value: T) -> Self {
        Self { value, node: NodeId::ROOT }
    }
}

/// Positions do not count.
impl<T: PartialEq> PartialEq for Spanned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T> List<T> {
    /// Number of entries in the file, including invalid ones.
    pub(super) fn written_len(&self) -> usize {
        self.entries.len() + self.invalid
    }

    pub(super) fn is_written_empty(&self) -> bool {
        self.written_len() == 0
    }
}

impl<T: fmt::Debug> fmt::Debug for Spanned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), invalid: 0 }
    }
}

impl<T> Deref for List<T> {
    type Target = Vec<Spanned<T>>;

    fn deref(&self) -> &Vec<Spanned<T>> {
        &self.entries
    }
}

impl<T> DerefMut for List<T> {
    fn deref_mut(&mut self) -> &mut Vec<Spanned<T>> {
        &mut self.entries
    }
}

impl<T> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self { entries: values.into_iter().map(Spanned::from).collect(), invalid: 0 }
    }
}

impl<T> Default for Map<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), invalid: Vec::new() }
    }
}

impl<T> Deref for Map<T> {
    type Target = BTreeMap<String, Spanned<T>>;

    fn deref(&self) -> &BTreeMap<String, Spanned<T>> {
        &self.entries
    }
}

impl<T> DerefMut for Map<T> {
    fn deref_mut(&mut self) -> &mut BTreeMap<String, Spanned<T>> {
        &mut self.entries
    }
}

impl<T> IntoIterator for Map<T> {
    type Item = (String, Spanned<T>);
    type IntoIter = std::collections::btree_map::IntoIter<String, Spanned<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

/// Name of the newtype with which [`Spanned`] asks the deserializer for both the id and the value of a node.
pub(super) const SPANNED: &str = "$tokengauge::spanned";

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spanned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(SPANNED, Contents::<Self>(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Contents::<Self>(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Map<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Contents::<Self>(PhantomData))
    }
}

/// Reads the parts of a `T`.
struct Contents<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Contents<Spanned<T>> {
    type Value = Spanned<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Spanned<T>, A::Error> {
        let node = NodeId(parts.next_element()?.unwrap_or_default());
        loop {
            match parts.next_element() {
                Ok(Some(value)) => return Ok(Spanned { value, node }),
                Ok(None) => return Err(de::Error::custom("invalid")),
                // The next attempt skips the value that has just been rejected.
                Err(_) => {}
            }
        }
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Contents<List<T>> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<List<T>, A::Error> {
        let mut list = List::default();
        while let Some(entry) = entries.next_element().transpose() {
            match entry {
                Ok(entry) => list.push(entry),
                Err(_) => list.invalid += 1,
            }
        }
        Ok(list)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Contents<Map<T>> {
    type Value = Map<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a section of keys")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut section: A) -> Result<Map<T>, A::Error> {
        let mut map = Map::default();
        while let Some(name) = section.next_key()? {
            match section.next_value() {
                Ok(Some(value)) => drop(map.insert(name, value)),
                Ok(None) | Err(_) => map.invalid.push(name),
            }
        }
        Ok(map)
    }
}

impl<T: Serialize> Serialize for Spanned<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

/// Implements `JsonSchema` for a type as for the type of its content.
macro_rules! schema_of_content {
    ($type:ident => $content:ty) => {
        impl<T: JsonSchema> JsonSchema for $type<T> {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                <$content>::schema_name()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                generator.subschema_for::<$content>()
            }
        }
    };
}

schema_of_content!(Spanned => T);
schema_of_content!(List => Vec<T>);
schema_of_content!(Map => BTreeMap<String, T>);
