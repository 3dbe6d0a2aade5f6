//! Values whose type has their range and their default. Each range is checked while a file is read. The JSON Schema
//! contains the ranges of integers.
//!
//! The attributes of garde would need a line per key. Its messages have neither the offending value nor both bounds.

use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::value::{ByteSize, DurationValue, TimeLimit};

/// A value from `MIN` to `MAX`. The numbers are in milliseconds for times and in bytes for sizes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Bounded<T, const MIN: u64, const MAX: u64, const DEFAULT: u64 = MIN>(T);

pub type Int<const MIN: u64, const MAX: u64, const DEFAULT: u64 = MIN> =
    Bounded<usize, MIN, MAX, DEFAULT>;

/// A time. The numbers are in milliseconds.
pub type Time<const MIN: u64, const MAX: u64, const DEFAULT: u64 = MIN> =
    Bounded<DurationValue, MIN, MAX, DEFAULT>;

/// A size. The numbers are in bytes.
pub type Size<const MIN: u64, const MAX: u64, const DEFAULT: u64 = MIN> =
    Bounded<ByteSize, MIN, MAX, DEFAULT>;

pub const SECOND: u64 = 1_000;
pub const MINUTE: u64 = 60 * SECOND;
pub const HOUR: u64 = 60 * MINUTE;
pub const DAY: u64 = 24 * HOUR;

/// Schema keyword with the range of a time or a size, for the reference page.
pub const RANGE: &str = "x-range";

/// Schema keyword with the default of an optional value, for the reference page.
pub const DEFAULT_IF_SET: &str = "x-default";

/// Converts a constant to the unit of [`Time`].
pub const fn millis(time: Duration) -> u64 {
    time.as_secs() * SECOND + time.subsec_millis() as u64
}

/// A type whose values can be compared with the bounds of [`Bounded`].
pub trait Quantity: Copy + fmt::Display {
    /// The type without its format.
    type Value;

    fn from_units(units: u64) -> Self;
    fn units(self) -> u64;
    fn value(self) -> Self::Value;
}

macro_rules! quantity {
    ($type:ty, $value:ty, $from:expr, $units:expr, $get:expr) => {
        impl Quantity for $type {
            type Value = $value;

            fn from_units(units: u64) -> Self {
                $from(units)
            }

            fn units(self) -> u64 {
                $units(self)
            }

            fn value(self) -> $value {
                $get(self)
            }
        }
    };
}

quantity!(u32, Self, |units| Self::try_from(units).unwrap_or(Self::MAX), Self::into, |it| it);
quantity!(usize, Self, |units| Self::try_from(units).unwrap_or(Self::MAX), |it| it as u64, |it| it);
quantity!(
    ByteSize,
    usize,
    |units| Self(usize::from_units(units)),
    |it: Self| it.0.units(),
    |it: Self| it.0
);
quantity!(
    DurationValue,
    Duration,
    |units| Self(Duration::from_millis(units)),
    |it: Self| u64::try_from(it.0.as_millis()).unwrap_or(u64::MAX),
    |it: Self| it.0
);

impl<T: Quantity, const MIN: u64, const MAX: u64, const DEFAULT: u64>
    Bounded<T, MIN, MAX, DEFAULT>
{
    /// # Errors
    /// Returns the error message if `value` is out of range.
    pub fn new(value: T) -> Result<Self, String> {
        if (MIN..=MAX).contains(&value.units()) {
            return Ok(Self(value));
        }
        let (min, max) = (T::from_units(MIN), T::from_units(MAX));
        Err(format!("{value} is out of range; write a value from {min} to {max}"))
    }

    /// Wraps a value without a check. The caller must know that the value is in range.
    pub const fn within(value: T) -> Self {
        Self(value)
    }

    pub fn get(self) -> T::Value {
        self.0.value()
    }
}

impl<T: Quantity, const MIN: u64, const MAX: u64, const DEFAULT: u64> Default
    for Bounded<T, MIN, MAX, DEFAULT>
{
    fn default() -> Self {
        Self(T::from_units(DEFAULT))
    }
}

impl<'de, T, const MIN: u64, const MAX: u64, const DEFAULT: u64> Deserialize<'de>
    for Bounded<T, MIN, MAX, DEFAULT>
where
    T: Quantity + Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(T::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl<T: JsonSchema + Quantity, const MIN: u64, const MAX: u64, const DEFAULT: u64> JsonSchema
    for Bounded<T, MIN, MAX, DEFAULT>
{
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = T::json_schema(generator);
        let [min, max, default] = [MIN, MAX, DEFAULT].map(T::from_units);
        if schema.get("type").is_some_and(|kind| kind == "integer") {
            schema.insert("minimum".to_owned(), MIN.into());
            schema.insert("maximum".to_owned(), MAX.into());
        } else {
            schema.insert(RANGE.to_owned(), format!("`{min}` to `{max}`").into());
        }
        if DEFAULT != MIN {
            schema.insert(DEFAULT_IF_SET.to_owned(), default.to_string().into());
        }
        schema
    }
}

/// Format of an optional time: from 1 ms, below which every request would fail, to `MAX` milliseconds, or `off`.
#[derive(Clone, Copy, Debug)]
pub struct UpTo<const MAX: u64>;

impl<const MAX: u64> UpTo<MAX> {
    /// # Errors
    /// Fails if the value is not a time, or out of range.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        let TimeLimit(limit) = TimeLimit::deserialize(from)?;
        if limit.is_some_and(|limit| !(1..=MAX).contains(&DurationValue(limit).units())) {
            let max = DurationValue::from_units(MAX);
            return Err(de::Error::custom(format_args!(
                "out of range; write a time from 1ms to {max}, or off"
            )));
        }
        Ok(limit)
    }

    /// # Errors
    /// Fails if the serializer fails.
    pub fn serialize<S: Serializer>(limit: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        TimeLimit(*limit).serialize(to)
    }
}

impl<const MAX: u64> JsonSchema for UpTo<MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        TimeLimit::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        TimeLimit::json_schema(generator)
    }
}
