//! The file of prices as it is written. What stands here is also its JSON Schema, descriptions included.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::deserialize::Field;
use super::value::{Amount, Currency, Date};

/// Prices of tokengauge.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["version"]))]
pub(super) struct File {
    /// The version of this format: 1.
    #[schemars(range(min = 1, max = 1))]
    pub(super) version: Field<u64>,
    /// The currency of entries that name none: three letters of ISO 4217.
    pub(super) currency: Field<Currency>,
    /// What tokens cost: of the entries that fit a call, the narrowest pattern counts, and of its versions the youngest
    /// that is in force.
    pub(super) models: Field<Vec<Field<Model>>>,
    /// Hardware that is paid by the hour.
    pub(super) gpus: Field<Vec<Field<Gpu>>>,
}

/// Amounts are for a million tokens each.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["model"]))]
pub(super) struct Model {
    /// A pattern on the model that was asked for or that answered, in which * stands for any text.
    pub(super) model: Field<String>,
    /// A pattern on the provider as telemetry has it; left out, any.
    pub(super) provider: Field<String>,
    /// The day, in UTC, from which on it holds; left out, it always has.
    pub(super) from: Field<Date>,
    pub(super) currency: Field<Currency>,
    /// Input.
    pub(super) input: Field<Amount>,
    /// Input that was read from a cache; left out, as input.
    pub(super) cache_read: Field<Amount>,
    /// Input that was written to a cache; left out, as input.
    pub(super) cache_write: Field<Amount>,
    /// Output.
    pub(super) output: Field<Amount>,
    /// Reasoning, hidden or not; left out, as output.
    pub(super) reasoning: Field<Amount>,
    /// Each call, whatever its tokens.
    pub(super) request: Field<Amount>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["route", "hour"]))]
pub(super) struct Gpu {
    /// The route to the backend that runs on it.
    pub(super) route: Field<String>,
    /// What one of them costs an hour.
    pub(super) hour: Field<Amount>,
    /// How many there are.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) count: Field<usize>,
    pub(super) currency: Field<Currency>,
}
