//! Defines serde types that accept values of an unexpected type.
//!
//! Dozens of providers implement each format and deviate from it, for example with a number instead of a string, or
//! one object instead of a list. A strict type would reject the whole message, and its text would be lost. These types
//! read what is meant. A value without a meaning is read as absent and reported by [`take_misfit`], so that it is
//! counted as a parse error. Null and empty values are absent and no error.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::frame::scan::Scanner;

thread_local! {
    /// Whether a value without a meaning was read. Serde passes no context to nested types, so they cannot return it.
    static MISFIT: Cell<bool> = const { Cell::new(false) };
}

/// Records that a value of an unexpected type was read as absent.
pub fn record_misfit() {
    MISFIT.set(true);
}

/// Returns whether this thread has read a value without a meaning since the last call.
pub fn take_misfit() -> bool {
    MISFIT.replace(false)
}

/// Reads the next value of an object. A misfit is recorded only if the value's type is known.
pub fn next_value<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    map: &mut A,
    is_known: bool,
) -> Result<T, A::Error> {
    let had_misfit = MISFIT.get();
    let value = map.next_value();
    if !is_known {
        MISFIT.set(had_misfit);
    }
    value
}

/// Parses the text of an object with `parse`. If the object repeats a key, which serde rejects, the last value applies.
pub fn parse_with<U>(json: &str, parse: impl Fn(&str) -> U) -> U {
    let had_misfit = take_misfit();
    let mut parsed = parse(json);
    if MISFIT.get()
        && let Ok(value) = serde_json::from_str::<serde_json::Value>(json)
    {
        MISFIT.set(false);
        parsed = parse(&value.to_string());
    }
    MISFIT.set(MISFIT.get() || had_misfit);
    parsed
}

/// Parses an object of a JSON body that was passed on as text, such as token counts.
pub fn parse<'j, T: Deserialize<'j> + Default>(json: &'j str) -> T {
    serde_json::from_str(json).unwrap_or_else(|_| {
        record_misfit();
        T::default()
    })
}

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

/// A piece of the arguments of a tool call: a string, or another value as compact JSON. Empty if absent. Unlike
/// [`JsonText`], a string is borrowed, but another value can have another order of keys.
#[derive(Debug, Default, PartialEq)]
pub struct Arguments<'a>(pub Cow<'a, str>);

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

    /// Reads a number as its digits, because some servers parse generated text that looks like a number.
    fn number(number: u64) -> Self {
        Self(Cow::Owned(number.to_string()))
    }

    fn float(number: f64) -> Self {
        Self(Cow::Owned(
            serde_json::Number::from_f64(number).map_or_else(String::new, |it| it.to_string()),
        ))
    }

    /// Reads the pieces of a text.
    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let mut all = String::new();
        while let Some(Text(piece)) = seq.next_element()? {
            all.push_str(&piece);
        }
        Ok(Self(Cow::Owned(all)))
    }

    /// Reads the text of a content part.
    fn map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let (mut found, mut is_empty) = (None, true);
        while let Some(Text(key)) = map.next_key()? {
            is_empty = false;
            if found.is_none() && matches!(&*key, "text" | "content" | "value") {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if found.is_none() && !is_empty {
            record_misfit();
        }
        Ok(found.unwrap_or_default())
    }
}

impl<'de: 'a, 'a> FromAny<'de> for Arguments<'a> {
    fn borrowed(text: &'de str) -> Self {
        Self(Cow::Borrowed(text))
    }

    fn copied(text: &str) -> Self {
        Self(Cow::Owned(text.to_owned()))
    }

    fn number(number: u64) -> Self {
        Self(Cow::Owned(number.to_string()))
    }

    fn float(number: f64) -> Self {
        Self(Text::float(number).0)
    }

    fn flag(flag: bool) -> Self {
        Self(Cow::Owned(flag.to_string()))
    }

    fn seq<A: SeqAccess<'de>>(seq: A) -> Result<Self, A::Error> {
        let value = serde_json::Value::deserialize(SeqAccessDeserializer::new(seq))?;
        Ok(Self(Cow::Owned(value.to_string())))
    }

    /// An empty object is absent, because the pieces of the arguments can follow it.
    fn map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        let value = serde_json::Value::deserialize(MapAccessDeserializer::new(map))?;
        let is_empty = value.as_object().is_some_and(serde_json::Map::is_empty);
        Ok(if is_empty { Self::default() } else { Self(Cow::Owned(value.to_string())) })
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
        let text = text.trim();
        let count = text.parse().ok().or_else(|| whole_number(text));
        if count.is_none() && !text.is_empty() {
            record_misfit();
        }
        Self(count)
    }

    fn number(number: u64) -> Self {
        Self(Some(number))
    }
}

impl FromAny<'_> for Flag {
    fn flag(flag: bool) -> Self {
        Self(flag)
    }

    fn copied(text: &str) -> Self {
        if !matches!(text, "" | "true" | "True" | "false" | "False") {
            record_misfit();
        }
        Self(matches!(text, "true" | "True"))
    }

    fn number(number: u64) -> Self {
        if number > 1 {
            record_misfit();
        }
        Self(number == 1)
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
        let number = text.trim().parse().ok().filter(|number: &f64| number.is_finite());
        if number.is_none() && !text.is_empty() {
            record_misfit();
        }
        Self(number)
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

    /// Reads a list with one object as the object. PHP writes an empty object as an empty list.
    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let first = seq.next_element::<Self>()?.unwrap_or_default();
        if seq.next_element::<IgnoredAny>()?.is_some() {
            record_misfit();
            while seq.next_element::<IgnoredAny>()?.is_some() {}
        }
        Ok(first)
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

    /// Reads a single element without its list.
    fn map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        let element = T::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Self { first: Some(element), rest: Vec::new() })
    }
}

/// Conversion from each type of JSON value. By default, the result is an absent value, which is recorded as a misfit
/// unless it is empty.
pub trait FromAny<'de>: Default {
    fn borrowed(text: &'de str) -> Self {
        Self::copied(text)
    }

    fn copied(text: &str) -> Self {
        if text.is_empty() { Self::default() } else { Self::misfit() }
    }

    fn number(_number: u64) -> Self {
        Self::misfit()
    }

    /// Some languages write every number as a float. `76.0` is therefore read as 76.
    fn float(number: f64) -> Self {
        whole(number).map_or_else(Self::misfit, Self::number)
    }

    fn flag(_flag: bool) -> Self {
        Self::misfit()
    }

    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let mut is_empty = true;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            is_empty = false;
        }
        Ok(if is_empty { Self::default() } else { Self::misfit() })
    }

    fn map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut is_empty = true;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            is_empty = false;
        }
        Ok(if is_empty { Self::default() } else { Self::misfit() })
    }

    /// Records that the value has no meaning.
    fn misfit() -> Self {
        record_misfit();
        Self::default()
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
    impl['a] Arguments<'a> where 'de: 'a;
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
