//! Budgets of money or tokens, and the calls that count towards each budget. The proxy measures usage and never
//! enforces a budget.

use crate::cost::BudgetWindow;
use crate::cost::billed_tokens::BilledTokens;
use crate::record::{Call, Record};
use tokengauge_types::label::{GlobPattern, Label};

/// Limit on usage over a window. `tenant`, `route` and `model` select the calls that count; `None` selects all
/// calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// Unique name; the value of the `tokengauge.budget` attribute.
    pub name: Label,
    /// Glob pattern for the tenant name; `*` matches any text. A call without a tenant never matches a pattern.
    pub tenant: Option<GlobPattern>,
    pub route: Option<Label>,
    /// Glob pattern on the requested model.
    pub model: Option<GlobPattern>,
    pub allowance: BudgetLimit,
    pub window: BudgetWindow,
}

/// Amount that a `Budget` allows in its window.
#[derive(Clone, Debug, PartialEq)]
pub enum BudgetLimit {
    /// Input plus output tokens. If the provider reports no usage, the proxy counts output tokens and estimates input
    /// tokens.
    Tokens(f64),
    Money {
        amount: f64,
        currency: Label,
    },
}

impl BudgetLimit {
    pub const fn amount(&self) -> f64 {
        match self {
            Self::Tokens(amount) | Self::Money { amount, .. } => *amount,
        }
    }

    /// Returns the value of the attribute `tokengauge.budget_unit`: `token`, or a currency such as `USD`.
    pub fn unit(&self) -> Label {
        match self {
            Self::Tokens(_) => Label::from_trusted("token"),
            Self::Money { currency, .. } => currency.clone(),
        }
    }
}

impl Budget {
    /// Returns the amount that a request spends from this budget. `None` if the budget does not cover the request, or
    /// if the amount is unknown.
    pub(super) fn spent(&self, record: &Record) -> Option<f64> {
        let call = record.call.as_ref().filter(|call| self.covers(record, call))?;
        match &self.allowance {
            BudgetLimit::Tokens(_) => {
                BilledTokens::from_call(record, call).map(|(used, _)| used.total())
            }
            BudgetLimit::Money { currency, .. } => {
                let cost = call.cost.as_ref()?;
                (cost.currency == *currency).then_some(cost.amount)
            }
        }
    }

    fn covers(&self, record: &Record, call: &Call) -> bool {
        let fits = |pattern: &Option<GlobPattern>, name: Option<&str>| {
            let fits = |pattern: &GlobPattern| name.is_some_and(|name| pattern.matches(name));
            pattern.as_ref().is_none_or(fits)
        };
        let tenant = record.caller.tenant.as_ref().map(|name| name.as_str());
        let model = call.request.model.as_ref().map(|name| name.as_str());
        let route = self.route.as_ref();
        fits(&self.tenant, tenant)
            && fits(&self.model, model)
            && route.is_none_or(|route| *route == record.route.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Cost, CostParts};
    use crate::testing::stream;
    use tokengauge_llm::count::Source;
    use tokengauge_llm::dialect::Usage;
    use tokengauge_types::label::Name;

    fn record_of(tenant: &str) -> Record {
        let mut record = stream();
        record.caller.tenant = Name::new(tenant);
        let call = record.call.as_mut().unwrap();
        call.usage = Some(Usage { input: Some(90), output: Some(10), ..Usage::default() });
        call.cost = Some(Cost {
            amount: 0.5,
            currency: Label::from_trusted("USD"),
            source: Source::Reported,
            parts: CostParts::default(),
        });
        record
    }

    fn budget(allowance: BudgetLimit) -> Budget {
        Budget {
            name: Label::from_trusted("b"),
            tenant: Some(GlobPattern::new("acme*")),
            route: None,
            model: None,
            allowance,
            window: BudgetWindow::default(),
        }
    }

    fn money(currency: &str) -> BudgetLimit {
        BudgetLimit::Money { amount: 10.0, currency: Label::from_trusted(currency) }
    }

    #[test]
    fn a_budget_pays_for_its_tenant_in_its_unit() {
        let tokens = budget(BudgetLimit::Tokens(1e6));
        assert_eq!(tokens.spent(&record_of("acme-1")), Some(100.0));
        assert_eq!(tokens.spent(&record_of("globex")), None);
        assert_eq!(tokens.spent(&stream()), None, "nobody's");
        assert_eq!(budget(money("USD")).spent(&record_of("acme")), Some(0.5));
        assert_eq!(budget(money("EUR")).spent(&record_of("acme")), None, "never summed across");
        assert_eq!(tokens.allowance.unit().as_str(), "token");
        assert_eq!(money("EUR").unit().as_str(), "EUR");
    }

    #[test]
    fn a_scope_restricts_the_budget() {
        let route = Budget { route: Some(Label::from_trusted("other")), ..budget(money("USD")) };
        let model =
            Budget { model: Some(GlobPattern::new("GPT-*")), tenant: None, ..budget(money("USD")) };
        assert_eq!(route.spent(&record_of("acme")), None);
        assert_eq!(model.spent(&record_of("globex")), Some(0.5));
        let mut plain = record_of("acme");
        plain.call = None;
        assert_eq!(model.spent(&plain), None);
    }
}
