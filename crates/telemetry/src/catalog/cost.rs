//! Metrics of cost and budgets.

use crate::catalog::attributes::{BUDGET, BUDGET_UNIT, CALL, CURRENCY, ENDED, ROUTE, TOKEN_SOURCE};
use crate::catalog::{Kind, Metric, ROW};

pub static COST: Metric = Metric {
    name: "tokengauge.cost",
    unit: "{currency}",
    description: "Cost of calls by the price table, recorded when they end. `reported` if the provider reported the tokens, else `estimated`. Do not sum across currencies.",
    attributes: &[CALL, ENDED, &[CURRENCY, TOKEN_SOURCE]],
    // Two token sources × two currencies, for a price table whose currency changes once.
    combinations: 4,
    ..ROW
};

pub static UNPRICED: Metric = Metric {
    name: "tokengauge.unpriced",
    unit: "{request}",
    description: "Calls that used tokens without a price in the table. Absent without a price table.",
    attributes: &[CALL],
    ..ROW
};

pub static TOKEN_PRICE: Metric = Metric {
    name: "tokengauge.token_price",
    kind: Kind::Gauge,
    unit: "{currency}",
    description: "Cost of a million output tokens on hardware paid by the hour: price per hour ÷ 3,600 × 10⁶ ÷ output tokens per second over 5 min. Absent while nothing is generated, and until the window is covered.",
    attributes: &[&[ROUTE, CURRENCY]],
    ..ROW
};

pub static BUDGET_USED: Metric = Metric {
    name: "tokengauge.budget.used",
    unit: "{unit}",
    description: "Amount that calls took from a budget since the start, in the unit of the budget: tokens (input and output), or money.",
    attributes: &[&[BUDGET, BUDGET_UNIT]],
    ..ROW
};

pub static BUDGET_LIMIT: Metric = Metric {
    name: "tokengauge.budget.limit",
    kind: Kind::Gauge,
    unit: "{unit}",
    description: "Limit of a budget in its window.",
    attributes: &[&[BUDGET, BUDGET_UNIT]],
    ..ROW
};

pub static BUDGET_WINDOW: Metric = Metric {
    name: "tokengauge.budget.window",
    kind: Kind::Gauge,
    unit: "s",
    description: "Rolling window of a budget.",
    attributes: &[&[BUDGET, BUDGET_UNIT]],
    ..ROW
};
