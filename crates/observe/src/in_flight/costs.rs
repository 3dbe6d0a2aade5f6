//! Prices and budgets of finished calls.

use super::InFlightRequests;
use tokengauge_measure::cost::{Costs, PriceResult, TokenPrice};
use tokengauge_measure::load;
use tokengauge_measure::record::Record;
use tokengauge_telemetry::{BudgetReading, Instruments};
use tokengauge_types::label::Label;

impl InFlightRequests {
    /// Sets the prices and budgets for calls that end later.
    pub fn set_costs(&mut self, costs: Costs) {
        for budget in &costs.budgets {
            let unit = budget.allowance.unit();
            self.sinks.instruments.record_spend((&budget.name, &unit), 0.0);
        }
        self.costs = costs;
    }

    pub(super) fn budgets(&self) -> Vec<BudgetReading> {
        let budgets = self.costs.budgets.iter();
        let reading = budgets.map(|budget| BudgetReading {
            name: budget.name.clone(),
            unit: budget.allowance.unit(),
            limit: budget.allowance.amount(),
            window: budget.window,
        });
        reading.collect()
    }

    /// Returns the price of a million output tokens for routes with an hourly hardware price, at the output rate in
    /// `reading`.
    pub(super) fn token_prices(&self, reading: &load::Reading) -> Vec<TokenPrice> {
        let sustained = |route: &Label| {
            let models = reading.models.iter().filter(|model| model.model_key.route == *route);
            let rates = models.map(|model| model.output.five_minutes);
            rates.sum::<Option<f64>>()
        };
        self.costs.token_prices(sustained)
    }
}

/// Sets the cost of a call, and records the amount that it spends from each budget.
pub(super) fn charge(costs: &Costs, record: &mut Record, instruments: &Instruments) {
    let Some(call) = &record.call else { return };
    let cost = match costs.prices.price(record, call) {
        PriceResult::At(cost) => Some(cost),
        PriceResult::Free => None,
        PriceResult::Unpriced => {
            instruments.record_unpriced(&call.series);
            None
        }
    };
    if let Some(call) = &mut record.call {
        call.cost = cost;
    }
    for (budget, amount) in costs.spent(record) {
        instruments.record_spend((&budget.name, &budget.allowance.unit()), amount);
    }
}
