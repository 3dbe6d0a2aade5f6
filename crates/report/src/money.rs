//! Amounts of money that add up exactly, in any order.

use std::fmt;
use std::iter::Sum;
use std::ops::{AddAssign, Sub};

/// Units per unit of currency. A price of 0.01 per million tokens is 10,000 units per token.
const UNITS: i128 = 1_000_000_000_000;
/// Decimals of an amount: the exponent of [`UNITS`].
const DECIMALS: usize = 12;

/// An amount in one currency, in units of 10⁻¹². The sum of floating-point numbers depends on their order, so the
/// groups of a report would not add up to its total.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Money(i128);

impl Money {
    /// Rounds an amount to the nearest unit.
    #[expect(clippy::cast_possible_truncation, reason = "`as` saturates")]
    pub fn from_amount(amount: f64) -> Self {
        Self((amount * UNITS as f64).round() as i128)
    }

    /// Returns an amount of `units` of 10⁻¹².
    pub const fn from_units(units: i128) -> Self {
        Self(units)
    }

    pub fn to_amount(self) -> f64 {
        self.0 as f64 / UNITS as f64
    }
}

impl AddAssign for Money {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl Sub for Money {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), |mut sum, amount| {
            sum += amount;
            sum
        })
    }
}

/// Formats the exact amount, such as `0.3719`, without trailing zeros.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, rest) = (self.0.abs() / UNITS, self.0.abs() % UNITS);
        let decimals = format!("{rest:0DECIMALS$}");
        let decimals = decimals.trim_end_matches('0');
        let point = if decimals.is_empty() { "" } else { "." };
        write!(f, "{sign}{whole}{point}{decimals}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn formats_exact_amounts() {
        for (amount, text) in [
            (0.0, "0"),
            (12.0, "12"),
            (0.3719, "0.3719"),
            (0.000_000_15, "0.00000015"),
            (1e-13, "0"),
            (1_234_567.5, "1234567.5"),
            (-0.25, "-0.25"),
        ] {
            assert_eq!(Money::from_amount(amount).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn a_sum_does_not_depend_on_the_order(amounts in proptest::collection::vec(0.0..1e4_f64, 0..50)) {
            let sum = |amounts: &mut dyn Iterator<Item = &f64>| amounts.map(|it| Money::from_amount(*it)).sum::<Money>();
            prop_assert_eq!(sum(&mut amounts.iter()), sum(&mut amounts.iter().rev()));
        }
    }
}
