//! The price file as written. These types are also its JSON Schema, with the doc comments as descriptions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::deserialize::Field;
use super::raw::Count;
use super::value::{Currency, MoneyAmount};
use tokengauge_measure::cost::Day;

/// Prices of tokengauge.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    /// The version of this format: 1, which is also the default.
    #[schemars(range(min = 1, max = 1))]
    pub(super) version: Field<u64>,
    /// The currency of entries that have none: an ISO 4217 code.
    pub(super) currency: Field<Currency>,
    /// Token prices. Of the entries that match a request, the narrowest pattern applies, in its newest version in
    /// force.
    pub(super) models: Field<Vec<Field<Model>>>,
    /// Hardware that is paid by the hour.
    pub(super) gpus: Field<Vec<Field<Gpu>>>,
}

/// Token prices are per million tokens.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["model"]))]
pub(super) struct Model {
    /// A pattern on the requested model or the model that answered, in which * matches any text.
    pub(super) model: Field<String>,
    /// A pattern on the provider in telemetry. Without this key, any.
    pub(super) provider: Field<String>,
    /// First day (UTC) of this price. Without this key, it always applies.
    pub(super) from: Field<Day>,
    pub(super) currency: Field<Currency>,
    /// Input tokens.
    pub(super) input: Field<MoneyAmount>,
    /// Input tokens read from a cache. Defaults to input.
    pub(super) cache_read: Field<MoneyAmount>,
    /// Input tokens written to a cache. Defaults to input.
    pub(super) cache_write: Field<MoneyAmount>,
    /// Output tokens.
    pub(super) output: Field<MoneyAmount>,
    /// Reasoning tokens, hidden or visible. Defaults to output.
    pub(super) reasoning: Field<MoneyAmount>,
    /// Each request, in addition to its tokens.
    pub(super) request: Field<MoneyAmount>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["route", "hour"]))]
pub(super) struct Gpu {
    /// The route to the backend on this hardware.
    pub(super) route: Field<String>,
    /// Cost of one GPU per hour.
    pub(super) hour: Field<MoneyAmount>,
    /// Number of GPUs.
    pub(super) count: Field<Count>,
    pub(super) currency: Field<Currency>,
}
