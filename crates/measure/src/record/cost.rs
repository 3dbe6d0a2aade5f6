//! What a call cost.

use tokengauge_llm::count::Source;
use tokengauge_types::label::Label;

/// An amount of money. Never added to one in another currency.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    pub amount: f64,
    /// ISO 4217, as the price table has it.
    pub currency: Label,
    /// [`Source::Reported`] where the provider reported the tokens; else [`Source::Estimated`], from what was counted.
    pub source: Source,
}
