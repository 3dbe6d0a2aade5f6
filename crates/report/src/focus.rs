//! Renders cost in the format of FOCUS 1.2 (FinOps Open Cost and Usage Specification), which tools for cloud cost read.
//!
//! A row has the cost of one kind of token in one hour, for one tenant, provider, model, currency and source of the
//! token counts. The sum of `BilledCost` is exactly the cost of the report.

use std::collections::BTreeMap;

use ::time::format_description::well_known::Rfc3339;
use ::time::{Duration, OffsetDateTime, Time};

use crate::UNKNOWN;
use crate::csv_line;
use crate::key::{self, SEPARATOR};
use crate::line::Line;
use crate::money::Money;
use crate::row::{NumericField, Row};
use tokengauge_types::label::OTHER;
use tokengauge_types::label_enum;

/// Maximum number of combinations of hour, tenant, provider, model, currency and source. A combination needs about 500
/// bytes. This number is enough for 130 combinations in each hour of a month.
const MAX_CHARGES: usize = 100_000;

label_enum! {
    /// Kind of what a row charges.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum Kind {
        Input = "input",
        CacheRead = "cache_read",
        CacheWrite = "cache_write",
        CacheWriteHour = "cache_write_1h",
        Output = "output",
        Reasoning = "reasoning",
        /// Fixed price of a request.
        Request = "request",
        /// All tokens of requests whose log lines do not split the cost.
        All = "all",
    }
}

/// Quantity and cost of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Charge {
    quantity: f64,
    cost: Money,
}

type Charges = [Charge; Kind::ALL.len()];

/// All charges of a log. The key has hour, tenant, provider, model, currency and source, joined by `SEPARATOR`.
#[derive(Clone, Debug, Default)]
pub struct Table {
    charges: BTreeMap<String, Charges>,
    /// Number of requests without a cost.
    pub without_cost: u64,
    /// Whether there were too many combinations, so that tenant, provider and model of some requests became `other`.
    pub is_limited: bool,
}

impl Table {
    /// Adds the cost of a request.
    pub fn add(&mut self, line: &Line<'_>, row: &Row) {
        let Some(charges) = charges(line, row) else {
            self.without_cost += 1;
            return;
        };
        let labels = line.labels();
        let identity = line.identity.as_ref();
        let cost = line.call.as_ref().and_then(|call| call.cost.as_ref());
        let source = if row.is_estimated(NumericField::Cost) { "estimated" } else { "reported" };
        let parts = [
            line.hour(),
            identity.and_then(|identity| identity.tenant.as_deref()),
            labels.and_then(|labels| labels.provider.as_deref()),
            labels.and_then(|labels| labels.model.as_deref()),
            cost.map(|cost| &*cost.currency),
            Some(source),
        ];
        let separator = SEPARATOR.to_string();
        let bounded = |part: &Option<&str>| part.map(key::bounded).unwrap_or_default();
        let key = parts.iter().map(bounded).collect::<Vec<_>>().join(&separator);
        self.add_charges(key, &charges);
    }

    pub fn merge(&mut self, other: &Self) {
        for (key, charges) in &other.charges {
            self.add_charges(key.clone(), charges);
        }
        self.without_cost += other.without_cost;
        self.is_limited |= other.is_limited;
    }

    fn add_charges(&mut self, key: String, charges: &Charges) {
        let is_full = self.charges.len() >= MAX_CHARGES && !self.charges.contains_key(&key);
        self.is_limited |= is_full;
        let key = if is_full { combined(&key) } else { key };
        let sums = self.charges.entry(key).or_default();
        for (sum, charge) in sums.iter_mut().zip(charges) {
            sum.quantity += charge.quantity;
            sum.cost += charge.cost;
        }
    }
}

/// Returns the key with `other` instead of tenant, provider and model.
fn combined(key: &str) -> String {
    let parts = key.split(SEPARATOR).enumerate();
    let parts = parts.map(|(place, part)| if (1..=3).contains(&place) { OTHER } else { part });
    parts.collect::<Vec<_>>().join(&SEPARATOR.to_string())
}

/// Splits the cost of a request by kind. The kinds add up exactly to the cost. Returns `None` without a cost.
fn charges(line: &Line<'_>, row: &Row) -> Option<Charges> {
    let total = Money::from_amount(row.value(NumericField::Cost)?);
    let mut charges = Charges::default();
    let tokens = |number| row.value(number).unwrap_or(0.0);
    let (input, output) = (tokens(NumericField::Input), tokens(NumericField::Output));
    let Some(parts) = line.cost_parts() else {
        set(&mut charges, Kind::All, Charge { quantity: input + output, cost: total });
        return Some(charges);
    };
    let (read, write) = (tokens(NumericField::Cached), tokens(NumericField::CacheWritten));
    let write_hour = tokens(NumericField::CacheWrittenHour);
    let reasoning = tokens(NumericField::Reasoning);
    let is_reported = !row.is_estimated(NumericField::Output);
    let visible = if is_reported { (output - reasoning).max(0.0) } else { output };
    for (kind, quantity, cost) in [
        (Kind::Input, (input - read - write).max(0.0), parts.input),
        (Kind::CacheRead, read, parts.cache_read),
        (Kind::CacheWrite, (write - write_hour).max(0.0), parts.cache_write),
        (Kind::CacheWriteHour, write_hour, parts.cache_write_1h),
        (Kind::Output, visible, parts.output),
        (Kind::Reasoning, reasoning, parts.reasoning),
        (Kind::Request, 1.0, parts.request),
    ] {
        let cost = Money::from_amount(cost.unwrap_or(0.0));
        let quantity =
            if kind == Kind::Request && cost == Money::default() { 0.0 } else { quantity };
        set(&mut charges, kind, Charge { quantity, cost });
    }
    // The parts are rounded separately. The largest part takes the difference.
    let sum: Money = charges.iter().map(|charge| charge.cost).sum();
    if let Some(largest) = charges.iter_mut().max_by_key(|charge| charge.cost) {
        largest.cost += total - sum;
    }
    Some(charges)
}

fn set(charges: &mut Charges, kind: Kind, charge: Charge) {
    if let Some(place) = charges.get_mut(kind as usize) {
        *place = charge;
    }
}

/// Columns of the output. `x_` marks columns that FOCUS does not define.
const COLUMNS: [&str; 32] = [
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingAccountType",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "EffectiveCost",
    "InvoiceId",
    "InvoiceIssuerName",
    "ListCost",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ServiceCategory",
    "ServiceName",
    "ServiceSubcategory",
    "x_Model",
    "x_Tenant",
    "x_TokenKind",
    "x_TokenSource",
];

/// Renders a heading and one row per charge, in the order of time.
pub fn render(table: &Table) -> String {
    let mut out = csv_line::row(&COLUMNS.map(str::to_owned));
    for (key, charges) in &table.charges {
        for (kind, charge) in Kind::ALL.into_iter().zip(charges) {
            let is_empty = charge.cost == Money::default() && charge.quantity == 0.0;
            if let Some(cells) = cells(key, kind, *charge).filter(|_| !is_empty) {
                out += &csv_line::row(&cells);
            }
        }
    }
    out
}

fn cells(key: &str, kind: Kind, charge: Charge) -> Option<Vec<String>> {
    let mut parts = key.split(SEPARATOR);
    let hour = parts.next()?;
    let mut part = || parts.next().map(|part| if part.is_empty() { UNKNOWN } else { part });
    let (tenant, provider, model) = (part()?, part()?, part()?);
    let (currency, source) = (part()?, part()?);
    let [hour_start, hour_end, month_start, month_end] = periods(hour)?;
    let cost = decimal(charge.cost.to_string());
    let quantity = decimal(charge.quantity.to_string());
    let what = match kind {
        Kind::Input => "input tokens",
        Kind::CacheRead => "input tokens read from the cache",
        Kind::CacheWrite => "input tokens written to the cache",
        Kind::CacheWriteHour => "input tokens written to the cache for an hour",
        Kind::Output => "output tokens",
        Kind::Reasoning => "reasoning tokens",
        Kind::Request => "requests",
        Kind::All => "tokens",
    };
    let description = csv_line::text(&format!("{what} of {model}"));
    let unit = if kind == Kind::Request { "Requests" } else { "Tokens" };
    let (tenant, provider, model) =
        (csv_line::text(tenant), csv_line::text(provider), csv_line::text(model));
    // The log knows no invoice and no account, and no discount other than those in the price table.
    let account = "tokengauge";
    let cells: [&str; COLUMNS.len()] = [
        &cost,
        account,
        account,
        "Account",
        currency,
        &month_end,
        &month_start,
        "Usage",
        "",
        &description,
        "Usage-Based",
        &hour_end,
        &hour_start,
        &quantity,
        unit,
        &cost,
        &cost,
        "",
        &provider,
        &cost,
        "Standard",
        &quantity,
        unit,
        &provider,
        &provider,
        "AI and Machine Learning",
        &provider,
        "Generative AI",
        &model,
        &tenant,
        kind.as_str(),
        source,
    ];
    Some(cells.map(str::to_owned).to_vec())
}

/// Formats a number as a decimal number, also if it is whole: `1.0`. FOCUS requires decimals.
fn decimal(number: String) -> String {
    if number.contains('.') { number } else { number + ".0" }
}

/// Returns start and end of an hour such as `2026-10-31T23`, and of its month.
fn periods(hour: &str) -> Option<[String; 4]> {
    let start = OffsetDateTime::parse(&format!("{hour}:00:00Z"), &Rfc3339).ok()?;
    let month = start.replace_day(1).ok()?.replace_time(Time::MIDNIGHT);
    // No month has more than 31 days, and the first of the next month is at most 31 days later.
    let next_month = (month + Duration::days(31)).replace_day(1).ok()?;
    let times = [start, start + Duration::hours(1), month, next_month];
    let formatted = times.map(|time| time.format(&Rfc3339).ok());
    let [start, end, month_start, month_end] = formatted;
    Some([start?, end?, month_start?, month_end?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_end_at_the_next_hour_and_month() {
        let periods = |hour| periods(hour).unwrap();
        assert_eq!(
            periods("2026-10-31T23"),
            [
                "2026-10-31T23:00:00Z",
                "2026-11-01T00:00:00Z",
                "2026-10-01T00:00:00Z",
                "2026-11-01T00:00:00Z"
            ]
        );
        assert_eq!(periods("2026-12-31T23")[3], "2027-01-01T00:00:00Z");
        assert_eq!(periods("2024-02-29T12")[3], "2024-03-01T00:00:00Z");
    }

    #[test]
    fn too_many_combinations_become_other() {
        let mut table = Table::default();
        let charge = Charge { quantity: 1.0, cost: Money::from_amount(0.5) };
        for n in 0..MAX_CHARGES + 10 {
            let key = format!("2026-10-01T00\u{1f}t{n}\u{1f}p\u{1f}m\u{1f}USD\u{1f}reported");
            table.add_charges(key, &[charge; Kind::ALL.len()]);
        }
        assert_eq!((table.charges.len(), table.is_limited), (MAX_CHARGES + 1, true));
        let other = table.charges.keys().find(|key| key.contains("other")).unwrap();
        assert_eq!(other, "2026-10-01T00\u{1f}other\u{1f}other\u{1f}other\u{1f}USD\u{1f}reported");
    }
}
