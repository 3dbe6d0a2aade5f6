//! Cost of a call.

use tokengauge_llm::count::Source;
use tokengauge_types::label::Label;

/// An amount of money. Amounts in different currencies are never added.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    pub amount: f64,
    /// ISO 4217 code, as written in the price table.
    pub currency: Label,
    /// [`Source::Reported`] if the provider reported the tokens, otherwise [`Source::Estimated`] from counted tokens.
    pub source: Source,
}
