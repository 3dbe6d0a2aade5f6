//! A tree of nodes → any type that serde can fill, telling *everything* that is wrong on the way.
//!
//! serde itself stops at the first error. Here every error is told where it arises, with its place, and a [`Field`]
//! then holds [`Field::Invalid`] and lets its section go on. So the raw structs stay plain derived ones, and what they
//! derive is both what is read and what the schema says.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::errors::{ErrorCollector, NodeId, join_path, suggestion};
use super::yaml::{Key, Kind, Node};

/// What stands under a key.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Field<T> {
    /// Nothing, or `null`.
    #[default]
    Absent,
    /// Something that cannot be a `T`; that has been told.
    Invalid,
    Present(Spanned<T>),
}

/// A value and where it stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Spanned<T> {
    pub value: T,
    pub(super) node: NodeId,
}

impl<T> Field<T> {
    /// A value that stands nowhere: for writing.
    pub(super) fn of(value: T) -> Self {
        let node = NodeId::default();
        Self::Present(Spanned { value, node })
    }

    pub(super) fn spanned(self) -> Option<Spanned<T>> {
        match self {
            Self::Present(given) => Some(given),
            Self::Absent | Self::Invalid => None,
        }
    }

    pub(super) fn value(self) -> Option<T> {
        self.spanned().map(|given| given.value)
    }

    /// The value, or what is told where a section must have one and has not.
    pub(super) fn required(
        self,
        errors: &mut ErrorCollector,
        section: NodeId,
        key: &str,
        remedy: &str,
    ) -> Option<Spanned<T>> {
        if matches!(self, Self::Absent) {
            errors.missing(section, key, remedy);
        }
        self.spanned()
    }
}

impl<T> From<Option<T>> for Field<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Self::of)
    }
}

/// Reads `root` as a `T`.
pub(super) fn from_node<'t, T: Deserialize<'t>>(
    root: &'t Node,
    errors: &mut ErrorCollector,
) -> Field<T> {
    let report = RefCell::new(errors);
    let reader = Reader { node: root, report: &report };
    // An error has been told by whoever met it.
    Field::deserialize(reader).unwrap_or(Field::Invalid)
}

/// The newtype's name by which [`Field`] asks for a node's node along with the node.
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
        f.write_str("a node of the configuration's tree")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Field<T>, E> {
        Ok(Field::Absent)
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
            Self::Present(given) => given.value.serialize(serializer),
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

/// An error on its way up. It is told at the innermost node that knows of it, once.
#[derive(Debug)]
enum Failure {
    Told,
    Untold(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Told => f.write_str("told already"),
            Self::Untold(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Failure {}

impl de::Error for Failure {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Untold(message.to_string())
    }
}

#[derive(Clone, Copy)]
struct Reader<'t, 'p> {
    node: &'t Node,
    report: &'p RefCell<&'p mut ErrorCollector>,
}

impl<'t> Reader<'t, '_> {
    fn tell(self, message: String) -> Failure {
        self.report.borrow_mut().at(self.node.id, message);
        Failure::Told
    }

    /// What stands here, read by `seed`. An error that nobody further in told is told here.
    fn told<S: DeserializeSeed<'t>>(self, seed: S) -> Result<S::Value, Failure> {
        seed.deserialize(self).map_err(|failure| match failure {
            Failure::Told => Failure::Told,
            Failure::Untold(message) => self.tell(message),
        })
    }

    fn expected(self, what: &str) -> Failure {
        self.tell(format!("found {}; {what}", self.node.kind.name()))
    }

    fn text(self, expected: &str) -> Result<&'t str, Failure> {
        match &self.node.kind {
            Kind::Scalar { text, .. } => Ok(text),
            Kind::Null | Kind::List(_) | Kind::Section(_) => Err(self.expected(expected)),
        }
    }

    /// A scalar that is not text: quotes would make it that.
    fn plain(self, expected: &str) -> Result<&'t str, Failure> {
        let text = self.text(expected)?;
        if matches!(self.node.kind, Kind::Scalar { quoted: true, .. }) {
            return Err(self.tell(format!("\"{text}\" is in quotes; {expected}, without them")));
        }
        Ok(text)
    }

    fn entries(self) -> Result<&'t [(Key, Node)], Failure> {
        match &self.node.kind {
            Kind::Section(entries) => Ok(entries),
            Kind::Null | Kind::Scalar { .. } | Kind::List(_) => Err(self
                .expected("write keys here, each on a line of its own, indented below this one")),
        }
    }

    fn refuse_unknown(self, entries: &[(Key, Node)], known: &[&str]) {
        let path = self.report.borrow().location(self.node.id).key;
        let unknown = entries.iter().filter(|(key, _)| !known.contains(&key.text.as_str()));
        for (key, _) in unknown {
            let message =
                format!("there is no such key; {}", suggestion(&key.text, known.iter().copied()));
            let path = join_path(&path, &key.text);
            self.report.borrow_mut().in_file(key.place, path, message);
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
        self.refuse_unknown(entries, fields);
        let known = |(key, _): &&(Key, Node)| fields.contains(&key.text.as_str());
        visitor.visit_map(Entries {
            left: entries.iter().filter(known),
            value: None,
            report: self.report,
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_map(Entries {
            left: self.entries()?.iter(),
            value: None,
            report: self.report,
        })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let Kind::List(items) = &self.node.kind else {
            return Err(self.expected(
                "write a list here, each entry on a line of its own that begins with `- `",
            ));
        };
        let report = self.report;
        let readers = items.iter().map(|node| Reader { node, report });
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
            Kind::Null => visitor.visit_unit(),
            Kind::Scalar { .. } | Kind::List(_) | Kind::Section(_) => {
                visitor.visit_seq(Marked { node: Some(self.node.id), reader: self })
            }
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_str(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let text = self.text("write a single text")?;
        visitor.visit_borrowed_str(text)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let expected = "write a whole number";
        let text = self.plain(expected)?;
        let Ok(number) = text.parse() else {
            return Err(self.tell(format!("\"{text}\" is no whole number; {expected}")));
        };
        visitor.visit_u64(number)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let expected = "write true or false";
        match self.plain(expected)? {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            text => Err(self.tell(format!("\"{text}\" is neither true nor false; {expected}"))),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let expected = format!("write one of {}", variants.join(", "));
        let text = self.text(&expected)?;
        if !variants.contains(&text) {
            let near = suggestion(text, variants.iter().copied());
            return Err(self.tell(format!("\"{text}\" is not known here; {near}")));
        }
        let variant: StrDeserializer<'_, Failure> = text.into_deserializer();
        visitor.visit_enum(variant)
    }

    /// For what the raw structs do not ask for: no configuration reaches this, a new raw type would in its first test.
    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Failure> {
        Err(self.tell("a value of a kind that this program cannot read".to_owned()))
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 f64 char bytes byte_buf option unit unit_struct tuple tuple_struct
        identifier ignored_any
    }
}

impl<'t> IntoDeserializer<'t, Failure> for Reader<'t, '_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// A node's node, then the node.
struct Marked<'t, 'p> {
    node: Option<NodeId>,
    reader: Reader<'t, 'p>,
}

impl<'t> SeqAccess<'t> for Marked<'t, '_> {
    type Error = Failure;

    fn next_element_seed<S: DeserializeSeed<'t>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Failure> {
        match self.node.take() {
            Some(NodeId(node)) => seed.deserialize(node.into_deserializer()).map(Some),
            None => self.reader.told(seed).map(Some),
        }
    }
}

struct Entries<'t, 'p, I> {
    left: I,
    value: Option<&'t Node>,
    report: &'p RefCell<&'p mut ErrorCollector>,
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
            return Err(Failure::Untold("a value was asked for before its key".to_owned()));
        };
        let report = self.report;
        Reader { node, report }.told(seed)
    }
}
