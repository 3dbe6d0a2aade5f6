//! Values with an allowed range. Each range is checked while a file is read. The JSON Schema contains the ranges of
//! integers.

use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, de};

use super::deserialize::Field;
use super::value::{ByteSize, DurationValue};

/// A value from `MIN` to `MAX`. The bounds are in milliseconds for times and in bytes for sizes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Bounded<T, const MIN: u64, const MAX: u64>(T);

pub(super) type BoundedInt<const MIN: u64, const MAX: u64> = Bounded<usize, MIN, MAX>;

/// A time. The bounds are in milliseconds.
pub(super) type BoundedTime<const MIN: u64, const MAX: u64> = Bounded<DurationValue, MIN, MAX>;

/// A size. The bounds are in bytes.
pub(super) type BoundedSize<const MIN: u64, const MAX: u64> = Bounded<ByteSize, MIN, MAX>;

pub(super) const SECOND: u64 = 1_000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;

/// A type whose values can be compared with the bounds of [`Bounded`].
pub(super) trait Quantity: Copy + fmt::Display {
    fn from_units(units: u64) -> Self;
    fn units(self) -> u64;
}

impl Quantity for usize {
    fn from_units(units: u64) -> Self {
        Self::try_from(units).unwrap_or(Self::MAX)
    }

    fn units(self) -> u64 {
        self as u64
    }
}

impl Quantity for u32 {
    fn from_units(units: u64) -> Self {
        Self::try_from(units).unwrap_or(Self::MAX)
    }

    fn units(self) -> u64 {
        self.into()
    }
}

impl Quantity for DurationValue {
    fn from_units(units: u64) -> Self {
        Self(Duration::from_millis(units))
    }

    fn units(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Quantity for ByteSize {
    fn from_units(units: u64) -> Self {
        Self(usize::from_units(units))
    }

    fn units(self) -> u64 {
        self.0.units()
    }
}

impl<T: Quantity, const MIN: u64, const MAX: u64> Bounded<T, MIN, MAX> {
    /// # Errors
    /// Returns the error message if `value` is out of range.
    pub(super) fn new(value: T) -> Result<Self, String> {
        if (MIN..=MAX).contains(&value.units()) {
            return Ok(Self(value));
        }
        let (min, max) = (T::from_units(MIN), T::from_units(MAX));
        Err(format!("{value} is out of range; write a value from {min} to {max}"))
    }

    /// Wraps a value without a check. The caller must know that the value is in range.
    pub(super) const fn within(value: T) -> Self {
        Self(value)
    }

    pub(super) const fn get(self) -> T {
        self.0
    }
}

impl<T: Quantity, const MIN: u64, const MAX: u64> Field<Bounded<T, MIN, MAX>> {
    /// Returns the value. An absent or invalid value is first replaced by `default`.
    pub(super) fn or(&mut self, default: T) -> T {
        self.or_insert(Bounded(default)).0
    }
}

impl<const MIN: u64, const MAX: u64> Field<BoundedTime<MIN, MAX>> {
    pub(super) fn or_time(&mut self, default: Duration) -> Duration {
        self.or(DurationValue(default)).0
    }
}

impl<'de, T, const MIN: u64, const MAX: u64> Deserialize<'de> for Bounded<T, MIN, MAX>
where
    T: Quantity + Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(T::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl<T: JsonSchema, const MIN: u64, const MAX: u64> JsonSchema for Bounded<T, MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = T::json_schema(generator);
        if schema.get("type").is_some_and(|kind| kind == "integer") {
            schema.insert("minimum".to_owned(), MIN.into());
            schema.insert("maximum".to_owned(), MAX.into());
        }
        schema
    }
}
