//! Values with their position, and lists and sections that leave out invalid entries.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::errors::NodeId;

/// A value and its node in the file. A default has the node of the whole file. `Debug` and `PartialEq` ignore the node.
#[derive(Clone, Copy, Default, Serialize)]
#[serde(transparent)]
pub struct Spanned<T> {
    pub value: T,
    #[serde(skip)]
    pub(super) node: NodeId,
}

/// A list.
pub type List<T> = Valid<Vec<Spanned<T>>>;

/// A section whose keys are names that the user chooses.
pub type Map<T> = Valid<BTreeMap<String, Spanned<T>>>;

/// The valid entries of a list or a map. Invalid ones are reported and left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Valid<C> {
    pub(super) entries: C,
    /// Entries without a valid value: their names in a map, and the nodes of those without any value.
    #[serde(skip)]
    pub(super) invalid: Vec<Spanned<String>>,
}

impl<T> From<T> for Spanned<T> {
    fn from(value: T) -> Self {
        Self { value, node: NodeId::ROOT }
    }
}

impl<T: PartialEq> PartialEq for Spanned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Spanned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T> List<T> {
    /// Number of entries in the file, including invalid ones.
    pub(super) fn written_len(&self) -> usize {
        self.entries.len() + self.invalid.len()
    }
}

impl<T> Map<T> {
    /// Names of all entries in the file, including invalid ones.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.entries.keys().chain(self.invalid.iter().map(|invalid| &invalid.value))
    }
}

impl<C> Deref for Valid<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.entries
    }
}

impl<C> DerefMut for Valid<C> {
    fn deref_mut(&mut self) -> &mut C {
        &mut self.entries
    }
}

impl<T> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self { entries: values.into_iter().map(Spanned::from).collect(), invalid: Vec::new() }
    }
}

/// Name of the newtype with which [`OneOrMore`] asks the deserializer for a list or a single entry.
pub(super) const ONE_OR_MORE: &str = "$tokengauge::one_or_more";

/// A list whose only entry can also be written without a list.
#[derive(Clone, Debug, PartialEq)]
pub struct OneOrMore<T>(pub List<T>);

impl<T> Default for OneOrMore<T> {
    fn default() -> Self {
        Self(List::from_iter([]))
    }
}

impl<T> Deref for OneOrMore<T> {
    type Target = List<T>;

    fn deref(&self) -> &List<T> {
        &self.0
    }
}

impl<T> DerefMut for OneOrMore<T> {
    fn deref_mut(&mut self) -> &mut List<T> {
        &mut self.0
    }
}

/// Serializes a single entry without a list, as most files write it.
impl<T: Serialize> Serialize for OneOrMore<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [only] => only.serialize(serializer),
            _ => self.0.serialize(serializer),
        }
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

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMore<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = Contents::<List<T>>(PhantomData);
        deserializer.deserialize_newtype_struct(ONE_OR_MORE, list).map(Self)
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
        let mut list = List::from_iter([]);
        while let Some(entry) = entries.next_element().transpose() {
            match entry {
                Ok(entry) => list.push(entry),
                Err(_) => list.invalid.push(Spanned::default()),
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
        let mut map = Map { entries: BTreeMap::new(), invalid: Vec::new() };
        while let Some(name) = section.next_key()? {
            match section.next_value() {
                Ok(Spanned { value: Some(value), node }) => {
                    map.insert(name, Spanned { value, node });
                }
                Ok(Spanned { value: None, node }) => {
                    map.invalid.push(Spanned { value: name, node })
                }
                Err(_) => map.invalid.push(name.into()),
            }
        }
        Ok(map)
    }
}

/// Implements `JsonSchema` for a type as for the type of its content.
macro_rules! schema_of_content {
    ($type:ident) => {
        impl<T: JsonSchema> JsonSchema for $type<T> {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                T::schema_name()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                generator.subschema_for::<T>()
            }
        }
    };
}

schema_of_content!(Spanned);
schema_of_content!(Valid);
