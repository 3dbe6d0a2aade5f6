//! Budgets: what was taken from each, and what it allows.

use std::sync::Arc;

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use crate::attributes::{label, sorted};
use crate::catalog::attributes as key;
use crate::catalog::cost;
use crate::gauges::Current;
use crate::snapshot::BudgetReading;
use tokengauge_types::label::Label;

pub fn register(meter: &Meter, current: &Current) {
    let limits = Arc::clone(current);
    cost::BUDGET_LIMIT.observe_gauge(meter, move |gauge| {
        for budget in &limits.load().budgets {
            gauge.observe(budget.limit, &of(&budget.name, &budget.unit));
        }
    });
    let windows = Arc::clone(current);
    cost::BUDGET_WINDOW.observe_gauge(meter, move |gauge| {
        for BudgetReading { name, unit, window, .. } in &windows.load().budgets {
            gauge.observe(window.as_secs_f64(), &of(name, unit));
        }
    });
    let prices = Arc::clone(current);
    cost::TOKEN_PRICE.observe_gauge(meter, move |gauge| {
        for price in &prices.load().token_prices {
            let attributes =
                [label(key::CURRENCY, &price.currency), label(key::ROUTE, &price.route)];
            gauge.observe(price.amount, &sorted(attributes.to_vec()));
        }
    });
}

/// The attributes of a budget.
pub fn of(name: &Label, unit: &Label) -> Vec<KeyValue> {
    sorted(vec![label(key::BUDGET, name), label(key::BUDGET_UNIT, unit)])
}
