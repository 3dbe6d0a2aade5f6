//! The cost of a finished call.

use tokengauge_measure::cost::{Costs, PriceResult};
use tokengauge_measure::record::Record;
use tokengauge_telemetry::Instruments;

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
