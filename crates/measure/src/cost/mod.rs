//! Computes the cost of API calls from a price table with dates, and the use of budgets.
//!
//! The proxy never rejects a request because of its cost. A call without a price counts as unpriced, not as free. This
//! module does no I/O.

mod billed_tokens;
mod budget_window;
mod budgets;
mod day;
mod prices;

pub use budget_window::BudgetWindow;
pub use budgets::{Budget, BudgetLimit};
pub use day::Day;
pub use prices::{HardwareCost, Price, Prices};

use crate::record::{Cost, Record};
use tokengauge_types::label::Label;

/// Prices and budgets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    pub prices: Prices,
    pub budgets: Vec<Budget>,
}

/// Cost of a call, or the reason why no cost is known.
#[derive(Clone, Debug, PartialEq)]
pub enum PriceResult {
    At(Cost),
    /// The call used tokens, but the price table has no entry for its model.
    Unpriced,
    /// The call used no tokens, or no price table is configured.
    Free,
}

/// Price of output tokens on a route whose hardware is rented by the hour.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenPrice {
    pub route: Label,
    pub currency: Label,
    /// Price per million output tokens.
    pub amount: f64,
}

impl Costs {
    /// Returns each budget that covers the request of `record`, with the amount spent. Callers set `record.call.cost`
    /// first, because budgets of money use this field.
    pub fn spent<'a>(
        &'a self,
        record: &'a Record,
    ) -> impl Iterator<Item = (&'a Budget, f64)> + use<'a> {
        let spent = |budget: &'a Budget| Some((budget, budget.spent(record)?));
        self.budgets.iter().filter_map(spent)
    }

    /// Computes the price of a million output tokens for each route with an hourly hardware price. The formula is
    /// hardware price per hour ÷ 3,600 × 10⁶ ÷ output tokens per second.
    ///
    /// `sustained` returns the mean output rate of a route over 5 min, in tokens per second. Routes without a rate or
    /// with rate 0 are omitted.
    pub fn token_prices(&self, sustained: impl Fn(&Label) -> Option<f64>) -> Vec<TokenPrice> {
        let price = |rental: &HardwareCost| {
            let rate = sustained(&rental.route).filter(|rate| *rate > 0.0)?;
            Some(TokenPrice {
                route: rental.route.clone(),
                currency: rental.currency.clone(),
                amount: rental.hour / 3_600.0 * 1e6 / rate,
            })
        };
        self.prices.rentals.iter().filter_map(price).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_a_rented_gpu_cost_more_at_a_lower_rate() {
        let costs = Costs {
            prices: Prices {
                rentals: vec![HardwareCost {
                    route: Label::from_trusted("local"),
                    hour: 3.6,
                    currency: Label::from_trusted("USD"),
                }],
                ..Prices::default()
            },
            ..Costs::default()
        };
        let at = |rate: Option<f64>| {
            let prices = costs.token_prices(|route| rate.filter(|_| route.as_str() == "local"));
            prices.first().map(|price| price.amount)
        };
        assert_eq!(at(Some(1_000.0)), Some(1.0), "0.1 cent a second for a thousand tokens");
        assert_eq!(at(Some(500.0)), Some(2.0));
        assert_eq!((at(Some(0.0)), at(None)), (None, None), "no price of nothing");
    }
}
