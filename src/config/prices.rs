//! The structs of the price file. Their doc comments are the descriptions in the JSON Schema.

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
    /// Default currency of the entries, an ISO 4217 code.
    pub(super) currency: Field<Currency>,
    /// Token prices. If several entries match a request, the most specific pattern applies, and of this pattern the
    /// newest valid entry.
    pub(super) models: Field<Vec<Field<Model>>>,
    /// Hardware that is paid by the hour.
    pub(super) gpus: Field<Vec<Field<Gpu>>>,
}

/// Token prices are per million tokens.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["model"]))]
pub(super) struct Model {
    /// Name of the requested model or of the model that answered, in which * matches any text.
    pub(super) model: Field<String>,
    /// Name of the provider in telemetry, in which * matches any text. Any provider by default.
    pub(super) provider: Field<String>,
    /// First day (UTC) on which this price applies. Without this key, the price always applies.
    pub(super) from: Field<Day>,
    pub(super) currency: Field<Currency>,
    /// Input tokens.
    pub(super) input: Field<MoneyAmount>,
    /// Input tokens read from a cache. Defaults to input.
    pub(super) cache_read: Field<MoneyAmount>,
    /// Input tokens written to a cache. Defaults to input.
    pub(super) cache_write: Field<MoneyAmount>,
    /// Input tokens written to a cache for an hour. Defaults to cache_write.
    pub(super) cache_write_1h: Field<MoneyAmount>,
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
