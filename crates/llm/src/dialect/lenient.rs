//! Defines serde types that read a value of the wrong type as absent.
//!
//! Dozens of providers implement each format and deviate from it, for example with a number instead of a string, or
//! null instead of an object. A strict type would reject the whole message, and its text would be lost. With these
//! types, only malformed JSON is an error.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::frame::scan::Scanner;

/// A string, empty if absent. The string is borrowed unless it contains escapes. (Serde would copy every `Cow<str>`.)
#[derive(Debug, Default, PartialEq)]
pub struct Text<'a>(pub Cow<'a, str>);

impl Text<'_> {
    /// Returns the string unless it is empty.
    pub fn some(&self) -> Option<&str> {
        Some(&*self.0).filter(|text| !text.is_empty())
    }
}

/// A non-negative whole number, such as a token count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count(pub Option<u64>);

/// A number. It may be written as a string.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Number(pub Option<f64>);

/// An object, `None` if absent.
#[derive(Debug, PartialEq)]
pub struct Object<T>(pub Option<T>);

/// A list of objects. Other elements are skipped. The first element is stored inline, because most lists have one
/// element and then need no allocation.
#[derive(Debug, PartialEq)]
pub struct List<T> {
    first: Option<T>,
    rest: Vec<T>,
}

impl<T> List<T> {
    pub const fn first(&self) -> Option<&T> {
        self.first.as_ref()
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.rest)
    }
}

/// A boolean, false if absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flag(pub bool);

/// The arguments of a tool call: a string, or another value as compact JSON. Empty if absent.
#[derive(Debug, Default, PartialEq)]
pub struct JsonText(pub String);

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
    /// Parses a string as a number, because protocol buffers write large numbers as strings.
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

impl<'de> Deserialize<'de> for JsonText {
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

    #[expect(clippy::cast_precision_loss, reason = "counts and durations are far below 2^53")]
    fn number(number: u64) -> Self {
        Self(Some(number as f64))
    }

    fn float(number: f64) -> Self {
        Self(Some(number))
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

/// Conversion from each type of JSON value. By default, the result is an absent value.
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

    /// Some languages write every number as a float. `76.0` is therefore read as 76.
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

/// Reads a value of any type as a `T`.
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
        #[expect(clippy::cast_precision_loss, reason = "only the sign of the number matters")]
        Ok(u64::try_from(number).map_or_else(|_| T::float(number as f64), T::number))
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

/// Returns a float as a whole number, or `None` if it has a fraction or is out of range.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range and the fraction are checked"
)]
pub fn whole(number: f64) -> Option<u64> {
    (number.fract().abs() < f64::EPSILON && (0.0..=9e15).contains(&number)).then_some(number as u64)
}

/// Parses a whole number, which may be written as a float.
pub fn whole_number(text: &str) -> Option<u64> {
    whole(text.parse().ok()?)
}

/// Returns a value as compact JSON. Some formats send the arguments of a tool call as a JSON object, and others as a
/// string that contains JSON. The model generated the same text in both cases.
fn compact(json: &str) -> String {
    let json = json.trim_ascii();
    if !json.starts_with(['{', '[']) {
        return json.to_owned();
    }
    let mut kept = Vec::with_capacity(json.len());
    Scanner::<false>::default()
        .compact(json.as_bytes(), &mut |piece| kept.extend_from_slice(piece));
    String::from_utf8(kept).unwrap_or_default()
}

macro_rules! impl_lenient {
    ($(impl[$($generic:tt)*] $type:ty $(where $bound:tt: $outlived:tt)?;)*) => {$(
        impl<'de, $($generic)*> serde::Deserialize<'de> for $type $(where $bound: $outlived)? {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                crate::dialect::lenient::read_any(from)
            }
        }
    )*};
}
pub(in crate::dialect) use impl_lenient;

impl_lenient! {
    impl['a] Text<'a> where 'de: 'a;
    impl['a] Code<'a> where 'de: 'a;
    impl[] Count;
    impl[] Flag;
    impl[] Number;
    impl[T: Deserialize<'de>] Object<T>;
    impl[T: Deserialize<'de>] List<T>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_whitespace_outside_strings() {
        assert_eq!(
            compact(" {\n \"a b\" : [ 1 , \" \\\" ] \" ] ,\t\"é\":{ } }\r\n"),
            r#"{"a b":[1," \" ] "],"é":{}}"#
        );
        assert_eq!(compact(" 1.50 "), "1.50");
        assert_eq!(compact("{} {}"), "{}");
    }
}
