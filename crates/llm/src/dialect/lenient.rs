//! Serde types that read what they can and call the rest absent.
//!
//! Dozens of providers speak each format, and each has fields of its own make: a number where another has text, null
//! where an object belongs. A type that refused such a field would lose the whole message, and with it the text that
//! stands beside it. So a field of a wrong type is no field; only what is not JSON at all is an error.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::asked;
use super::json::{Value, compact};

/// A string; empty where there is none. Borrowed unless it has escapes: serde's own `Cow` is always copied.
#[derive(Debug, Default, PartialEq)]
pub struct Text<'a>(pub Cow<'a, str>);

impl Text<'_> {
    /// The string, unless it is empty.
    pub fn some(&self) -> Option<&str> {
        Some(&*self.0).filter(|text| !text.is_empty())
    }
}

/// A number of things.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count(pub Option<u64>);

/// A number of any kind, also one that is written as a string.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Number(pub Option<f64>);

/// An object.
#[derive(Debug, PartialEq)]
pub struct Object<T>(pub Option<T>);

/// A list whose elements are objects; others are left out. The first stands inline: most lists have one element, and
/// it should not cost an allocation.
#[derive(Debug, PartialEq)]
pub struct List<T> {
    first: Option<T>,
    rest: Vec<T>,
}

impl<T> List<T> {
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.rest)
    }
}

/// A yes or no; no where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flag(pub bool);

/// What a tool is called with: a string, or a value of any other type as compact JSON. Empty where there is none.
#[derive(Debug, Default, PartialEq)]
pub struct Written(pub String);

/// A short identifier: a string or a number.
#[derive(Debug, Default, PartialEq)]
pub struct Code<'a>(pub Cow<'a, str>);

impl<'de: 'a, 'a> FromAny<'de> for Text<'a> {
    fn borrowed(text: &'de str) -> Self {
        Self(Cow::Borrowed(text))
    }

    fn copied(text: &str) -> Self {
        Self(Cow::Owned(text.to_owned()))
    }
}

impl<'de: 'a, 'a> FromAny<'de> for Code<'a> {
    fn borrowed(text: &'de str) -> Self {
        Self(Cow::Borrowed(text))
    }

    fn copied(text: &str) -> Self {
        Self(Cow::Owned(text.to_owned()))
    }

    fn number(number: u64) -> Self {
        Self(Cow::Owned(number.to_string()))
    }
}

impl FromAny<'_> for Count {
    /// Protocol buffers write large numbers as strings.
    fn copied(text: &str) -> Self {
        Self(text.parse().ok())
    }

    fn number(number: u64) -> Self {
        Self(Some(number))
    }
}

impl FromAny<'_> for Flag {
    fn flag(flag: bool) -> Self {
        Self(flag)
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(from)?;
        let json = raw.get();
        Ok(Self(match json.as_bytes().first() {
            Some(b'"') => serde_json::from_str(json).map_err(serde::de::Error::custom)?,
            Some(b'n') => String::new(),
            Some(_) | None => compact(json),
        }))
    }
}

impl FromAny<'_> for Number {
    fn copied(text: &str) -> Self {
        let number = text.parse().ok();
        Self(number.filter(|number: &f64| number.is_finite()))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "no count or clock is so large that its last digit matters"
    )]
    fn number(number: u64) -> Self {
        Self(Some(number as f64))
    }

    fn float(number: f64) -> Self {
        Self(Some(number))
    }
}

impl Number {
    /// The same of a value that is read piecemeal.
    pub fn of(value: Value<'_>) -> Self {
        Self(asked::float(value))
    }

    pub fn milliseconds(self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.0? / 1e3).ok()
    }

    pub fn seconds(self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.0?).ok()
    }
}

impl Count {
    /// The same of a value that is read piecemeal.
    pub fn of(value: Value<'_>) -> Self {
        Self(asked::float(value).and_then(whole))
    }
}

impl<T> Default for Object<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> FromAny<'de> for Object<T> {
    fn map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|object| Self(Some(object)))
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { first: None, rest: Vec::new() }
    }
}

impl<'de, T: Deserialize<'de>> FromAny<'de> for List<T> {
    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let mut list = Self::default();
        while let Some(Object(element)) = seq.next_element::<Object<T>>()? {
            match element {
                Some(element) if list.first.is_none() => list.first = Some(element),
                Some(element) => list.rest.push(element),
                None => {}
            }
        }
        Ok(list)
    }
}

/// What a type makes of each JSON type; by default nothing.
pub trait FromAny<'de>: Default {
    fn borrowed(text: &'de str) -> Self {
        Self::copied(text)
    }

    fn copied(_text: &str) -> Self {
        Self::default()
    }

    fn number(_number: u64) -> Self {
        Self::default()
    }

    /// Some languages write every number as a float: `76.0` is 76.
    fn float(number: f64) -> Self {
        whole(number).map_or_else(Self::default, Self::number)
    }

    fn flag(_flag: bool) -> Self {
        Self::default()
    }

    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }

    fn map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
}

/// Reads whatever value stands next as a `T`.
pub fn read_any<'de, T: FromAny<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_any(Any(PhantomData))
}

struct Any<T>(PhantomData<T>);

impl<'de, T: FromAny<'de>> Visitor<'de> for Any<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<T, E> {
        Ok(T::borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok(T::copied(text))
    }

    fn visit_u64<E>(self, number: u64) -> Result<T, E> {
        Ok(T::number(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<T, E> {
        Ok(u64::try_from(number).map_or_else(|_| T::default(), T::number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<T, E> {
        Ok(T::float(number))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<T, E> {
        Ok(T::flag(flag))
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<T, A::Error> {
        T::seq(seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::map(map)
    }
}

/// A float that is a count.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked, and a fraction is refused"
)]
pub fn whole(number: f64) -> Option<u64> {
    (number.fract().abs() < f64::EPSILON && (0.0..=9e15).contains(&number)).then_some(number as u64)
}

macro_rules! read_leniently {
    ($(impl[$($generic:tt)*] $type:ty $(where $bound:tt: $outlived:tt)?;)*) => {$(
        impl<'de, $($generic)*> serde::Deserialize<'de> for $type $(where $bound: $outlived)? {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                crate::dialect::lenient::read_any(from)
            }
        }
    )*};
}
pub(in crate::dialect) use read_leniently;

read_leniently! {
    impl['a] Text<'a> where 'de: 'a;
    impl['a] Code<'a> where 'de: 'a;
    impl[] Count;
    impl[] Flag;
    impl[] Number;
    impl[T: Deserialize<'de>] Object<T>;
    impl[T: Deserialize<'de>] List<T>;
}
