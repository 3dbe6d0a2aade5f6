//! The price table.

use crate::cost::billed_tokens::BilledTokens;
use crate::cost::{Day, PriceResult};
use crate::record::{Call, Cost, CostParts, Record};
use tokengauge_types::label::{GlobPattern, Label};

/// Unit of token prices: a listed price is for a million tokens.
const MILLION: f64 = 1e6;

/// All configured prices: token prices per model, and hardware prices per hour.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prices {
    pub models: Vec<Price>,
    pub rentals: Vec<HardwareCost>,
}

/// Token prices of the models that match `model`, in `currency` per million tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Price {
    /// Glob pattern on the model name; `*` matches any text.
    pub model: GlobPattern,
    /// Glob pattern on the provider name.
    pub provider: Option<GlobPattern>,
    /// First UTC day on which the price is valid; `None` means always.
    pub from: Option<Day>,
    pub currency: Label,
    pub input: f64,
    /// Price of input tokens read from the provider's prompt cache. `None` means the `input` price.
    pub cache_read: Option<f64>,
    /// Price of input tokens written to the provider's prompt cache. `None` means the `input` price.
    pub cache_write: Option<f64>,
    /// Price of input tokens written to the cache for an hour. `None` means the `cache_write` price.
    pub cache_write_1h: Option<f64>,
    pub output: f64,
    /// Price of reasoning tokens, streamed or hidden. `None` means the `output` price.
    pub reasoning: Option<f64>,
    /// Fixed price of each call, independent of its tokens.
    pub request: f64,
}

/// Hourly hardware price of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct HardwareCost {
    pub route: Label,
    /// Price per hour of the whole hardware behind the route, not per GPU.
    pub hour: f64,
    pub currency: Label,
}

impl Prices {
    /// Returns the cost of `call`, which belongs to `record`.
    pub fn price(&self, record: &Record, call: &Call) -> PriceResult {
        if self.models.is_empty() {
            return PriceResult::Free;
        }
        let Some((used, source)) = BilledTokens::from_call(record, call) else {
            return PriceResult::Free;
        };
        let Some(price) = self.find(record, call) else {
            return PriceResult::Unpriced;
        };
        let parts = price.times(used);
        PriceResult::At(Cost {
            amount: parts.sum(),
            currency: price.currency.clone(),
            source,
            parts,
        })
    }

    /// Returns the most specific price that is valid on the day of the call. Among equally specific prices, the one
    /// with the latest `from` applies.
    fn find(&self, record: &Record, call: &Call) -> Option<&Price> {
        let today = Day::from_wall_time(record.wall);
        let fits = |price: &&Price| price.from.is_none_or(|from| from <= today) && price.fits(call);
        self.models.iter().filter(fits).max_by_key(|price| (price.specificity(), price.from))
    }
}

impl Price {
    /// Returns whether the price applies to the call. The requested model or the model named in the response must
    /// match, because price tables list either name.
    fn fits(&self, call: &Call) -> bool {
        let names = [&call.request.model, &call.response_model];
        let named = names.into_iter().flatten().any(|name| self.model.matches(name.as_str()));
        let vendor = call.series.provider.as_str();
        named && self.provider.as_ref().is_none_or(|it| it.matches(vendor))
    }

    fn specificity(&self) -> impl Ord + use<> {
        (self.model.specificity(), self.provider.is_some())
    }

    fn times(&self, used: BilledTokens) -> CostParts {
        let cache_write = self.cache_write.unwrap_or(self.input);
        let cost = |tokens: f64, price: f64| tokens * price / MILLION;
        CostParts {
            input: cost(used.uncached, self.input),
            cache_read: cost(used.cache_read, self.cache_read.unwrap_or(self.input)),
            cache_write: cost(used.cache_write, cache_write),
            cache_write_1h: cost(used.cache_write_1h, self.cache_write_1h.unwrap_or(cache_write)),
            output: cost(used.output, self.output),
            reasoning: cost(used.reasoning, self.reasoning.unwrap_or(self.output)),
            request: self.request,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Output;
    use crate::testing::stream;
    use tokengauge_llm::count::Source;
    use tokengauge_llm::dialect::Usage;
    use tokengauge_types::clock::WallTime;
    use tokengauge_types::label::Name;

    fn price(model: &str, input: f64) -> Price {
        Price {
            model: GlobPattern::new(model),
            provider: None,
            from: None,
            currency: Label::from_trusted("USD"),
            input,
            cache_read: None,
            cache_write: None,
            cache_write_1h: None,
            output: 0.0,
            reasoning: None,
            request: 0.0,
        }
    }

    fn record(usage: Option<Usage>) -> Record {
        let mut record = stream();
        let call = record.call.as_mut().unwrap();
        call.usage = usage;
        call.request.prompt_bytes = 4_000;
        record
    }

    fn used(input: u64, output: u64) -> Option<Usage> {
        Some(Usage { input: Some(input), output: Some(output), ..Usage::default() })
    }

    fn priced(models: Vec<Price>, record: &Record) -> PriceResult {
        let prices = Prices { models, rentals: Vec::new() };
        prices.price(record, record.call.as_ref().unwrap())
    }

    fn amount(models: Vec<Price>, record: &Record) -> (f64, Source) {
        match priced(models, record) {
            PriceResult::At(cost) => (cost.amount, cost.source),
            PriceResult::Unpriced | PriceResult::Free => panic!("no price"),
        }
    }

    /// Each kind of token has its own price: 600 k uncached input tokens at 2, 300 k cache reads at 0.5, 100 k cache
    /// writes at 4, 150 k output tokens at 10 and 50 k reasoning tokens at 8.
    #[test]
    fn every_part_has_its_price() {
        let usage = Usage {
            cache_read: Some(300_000),
            cache_write: Some(100_000),
            reasoning: Some(50_000),
            ..used(1_000_000, 200_000).unwrap()
        };
        let price = Price {
            cache_read: Some(0.5),
            cache_write: Some(4.0),
            output: 10.0,
            reasoning: Some(8.0),
            request: 0.25,
            ..price("gpt-4o", 2.0)
        };
        let (actual, source) = amount(vec![price.clone()], &record(Some(usage)));
        let exact = 0.6 * 2.0 + 0.3 * 0.5 + 0.1 * 4.0 + 0.15 * 10.0 + 0.05 * 8.0 + 0.25;
        assert!((actual - exact).abs() < 1e-12, "{actual} for {exact}");
        assert_eq!(source, Source::Reported);
        let PriceResult::At(Cost { amount: sum, parts, .. }) =
            priced(vec![price.clone()], &record(Some(usage)))
        else {
            panic!("no price");
        };
        let found = [
            parts.input,
            parts.cache_read,
            parts.cache_write,
            parts.output,
            parts.reasoning,
            parts.request,
        ];
        for (found, expected) in found.into_iter().zip([1.2, 0.15, 0.4, 1.5, 0.4, 0.25]) {
            assert!((found - expected).abs() < 1e-12, "{parts:?}");
        }
        assert!((parts.sum() - sum).abs() < 1e-12, "{parts:?}");
        let plain = Price { cache_read: None, cache_write: None, reasoning: None, ..price };
        let (actual, _) = amount(vec![plain], &record(Some(usage)));
        assert!((actual - (2.0 + 2.0 + 0.25)).abs() < 1e-12, "as input, and as output");
    }

    /// 100 k cache writes for 5 minutes at 1.25 times and 300 k for an hour at twice the input price of 3.
    #[test]
    fn a_longer_cache_lifetime_has_its_own_price() {
        let usage = Usage {
            cache_write: Some(400_000),
            cache_write_5m: Some(100_000),
            cache_write_1h: Some(300_000),
            ..used(1_000_000, 0).unwrap()
        };
        let price =
            Price { cache_write: Some(3.75), cache_write_1h: Some(6.0), ..price("gpt-4o", 3.0) };
        let (actual, _) = amount(vec![price.clone()], &record(Some(usage)));
        let exact = 0.6 * 3.0 + 0.1 * 3.75 + 0.3 * 6.0;
        assert!((actual - exact).abs() < 1e-12, "{actual} for {exact}");
        let one_price = Price { cache_write_1h: None, ..price };
        let (actual, _) = amount(vec![one_price], &record(Some(usage)));
        let exact = 0.6 * 3.0 + 0.4 * 3.75;
        assert!((actual - exact).abs() < 1e-12, "{actual} for {exact}");
    }

    #[test]
    fn without_reported_usage_the_generated_tokens_are_estimated() {
        let mut cut = record(None);
        cut.call.as_mut().unwrap().output =
            Some(Output { tokens: 500.0, counted: 500, ..Output::default() });
        let price = Price { output: 10.0, ..price("gpt-4o", 2.0) };
        let (actual, source) = amount(vec![price.clone()], &cut);
        assert!((actual - 0.007).abs() < 1e-12, "1,000 in and 500 out: {actual}");
        assert_eq!(source, Source::Estimated);
        cut.call.as_mut().unwrap().output = None;
        assert_eq!(priced(vec![price], &cut), PriceResult::Free, "nothing was used");
    }

    #[test]
    fn the_most_specific_entry_applies_in_its_version_in_force() {
        let from = |day: &str, price: Price| Price { from: Some(day.parse().unwrap()), ..price };
        let table = || {
            vec![
                price("*", 1.0),
                price("gpt-4o*", 2.0),
                from("2026-01-01", price("gpt-4o", 4.0)),
                from("2026-07-01", price("gpt-4o", 3.0)),
            ]
        };
        let on = |day: &str| {
            let mut record = record(used(1_000_000, 0));
            let days: u64 = day.parse().unwrap();
            record.wall = WallTime::from_unix_nanos(days * 86_400_000_000_000);
            amount(table(), &record).0.round()
        };
        // The days are 2025-12-31, 2026-01-01, 2026-06-30 and 2026-07-01.
        let actual = ["20453", "20454", "20634", "20635"].map(on);
        for (actual, expected) in actual.into_iter().zip([2.0, 4.0, 4.0, 3.0]) {
            assert!((actual - expected).abs() < 1e-9, "{actual} for {expected}");
        }
    }

    #[test]
    fn prices_match_the_provider_and_the_response_model() {
        let azure = Price { provider: Some(GlobPattern::new("azure.*")), ..price("gpt-4o", 7.0) };
        let vendor = Price { provider: Some(GlobPattern::new("openai")), ..price("gpt-4o", 5.0) };
        let record = record(used(1_000_000, 0));
        assert!(
            (amount(vec![price("gpt-4o", 1.0), azure.clone(), vendor], &record).0 - 5.0).abs()
                < 1e-9
        );
        assert_eq!(priced(vec![azure], &record), PriceResult::Unpriced);
        let answered = vec![price("gpt-4o-2024-08-06", 6.0)];
        assert!((amount(answered, &record).0 - 6.0).abs() < 1e-9);
        assert_eq!(priced(Vec::new(), &record), PriceResult::Free, "no table");
        let mut other = record;
        other.call.as_mut().unwrap().request.model = Name::new("o1");
        assert_eq!(priced(vec![price("gpt-4o", 1.0)], &other), PriceResult::Unpriced);
    }
}
