//! Resolves budgets, and prices, which are in a separate file.

use std::path::PathBuf;

use super::objectives::DEFAULT_WINDOW;
use super::{check_length, check_name, check_version, route};
use crate::config::deserialize::{self, Field, Spanned};
use crate::config::errors::{ErrorCollector, NodeId};
use crate::config::value::{Currency, MoneyAmount};
use crate::config::{file, prices, raw};
use tokengauge_measure::cost::{Budget, BudgetLimit, Costs, HardwareCost, Price, Prices};
use tokengauge_types::label::{GlobPattern, Label};

/// Maximum number of budgets. Each request is checked against each budget, and a budget exports up to three time
/// series.
const MAX_BUDGETS: usize = 256;

/// Maximum number of price entries. Each request is checked against each entry.
const MAX_PRICES: usize = 1_000;

pub(super) fn resolve(
    written: &mut Field<raw::Cost>,
    routes: &[String],
    errors: &mut ErrorCollector,
) -> Costs {
    let cost = written.or_insert_default();
    let file = cost.prices.as_ref();
    let prices = file.map(|file| read_prices(file, routes, errors)).unwrap_or_default();
    cost.budgets.or_insert_default();
    let budgets = budgets(&mut cost.budgets, routes, errors);
    if cost.prices.get().is_none() && budgets.is_empty() {
        *written = Field::Absent;
    }
    Costs { prices, budgets }
}

fn budgets(
    written: &mut Field<Vec<Field<raw::Budget>>>,
    routes: &[String],
    errors: &mut ErrorCollector,
) -> Vec<Budget> {
    if let Some(Spanned { value, node }) = written.as_ref() {
        check_length((value.len(), *node), MAX_BUDGETS, "budgets", errors);
    }
    let mut budgets: Vec<Budget> = Vec::new();
    for written in written.entries() {
        let Some(budget) = budget(written, routes, errors) else {
            continue;
        };
        if budgets.iter().any(|other| other.name == budget.name)
            && let Some(name) = written.value.name.as_ref()
        {
            let message = format!("duplicate budget name \"{}\"; use another name", name.value);
            errors.add(name.node, message);
        }
        budgets.push(budget);
    }
    budgets
}

fn budget(
    written: &mut Spanned<raw::Budget>,
    routes: &[String],
    errors: &mut ErrorCollector,
) -> Option<Budget> {
    let Spanned { value, node } = written;
    let name = value.name.required(errors, *node, "name", "add one, such as acme-month")?;
    check_name(&name.value, name.node, errors);
    Some(Budget {
        name: Label::from_trusted(&name.value),
        route: route(&value.route, routes, errors),
        allowance: allowance(value, *node, errors)?,
        tenant: pattern(&mut value.tenant),
        model: pattern(&mut value.model),
        window: value.window.or_time(DEFAULT_WINDOW),
    })
}

/// Parses a pattern that ignores case. The printed configuration contains the pattern in lower case.
fn pattern(written: &mut Field<String>) -> Option<GlobPattern> {
    let text = &mut written.spanned_mut()?.value;
    let pattern = GlobPattern::new(text);
    *text = pattern.to_string();
    Some(pattern)
}

fn allowance(
    budget: &raw::Budget,
    node: NodeId,
    errors: &mut ErrorCollector,
) -> Option<BudgetLimit> {
    let message = match (budget.money.as_ref(), budget.tokens.get()) {
        (Some(Spanned { value, node }), None) => {
            let hint = "write an amount, such as 500";
            let amount = value.amount.required(errors, *node, "amount", hint);
            let hint = "write an ISO 4217 code, such as USD";
            let currency = value.currency.required(errors, *node, "currency", hint);
            let (amount, currency) = (amount?.value.0, label(&currency?.value));
            return Some(BudgetLimit::Money { amount, currency });
        }
        (None, Some(tokens)) => {
            #[expect(clippy::cast_precision_loss, reason = "budgets stay below 2^52 tokens")]
            let tokens = *tokens as f64;
            return Some(BudgetLimit::Tokens(tokens));
        }
        (Some(_), Some(_)) => "a budget limits either money or tokens; write two budgets",
        (None, None) => {
            "no limit; write `tokens: 1000000`, or `money: {amount: 500, currency: USD}`"
        }
    };
    errors.add(node, message);
    None
}

/// Reads the price file. Each error has its position in the price file.
fn read_prices(
    written: &Spanned<PathBuf>,
    routes: &[String],
    errors: &mut ErrorCollector,
) -> Prices {
    let path = &written.value;
    let bytes = match file::read_bytes(path, file::MAX_CONFIG_BYTES) {
        Ok(bytes) => bytes,
        Err(reason) => {
            errors.add(written.node, format!("{}: {reason}", path.display()));
            return Prices::default();
        }
    };
    let prices = file::decode(path, bytes).and_then(|text| {
        let mut errors = ErrorCollector::for_file(path);
        let prices = parse_prices(&text, routes, &mut errors);
        errors.into_result(prices)
    });
    prices.unwrap_or_else(|file_errors| {
        errors.extend(file_errors);
        Prices::default()
    })
}

fn parse_prices(text: &str, routes: &[String], errors: &mut ErrorCollector) -> Prices {
    let file = deserialize::from_yaml::<prices::File>(text, errors);
    let Some(Spanned { mut value, node }) = file else {
        return Prices::default();
    };
    check_version(&mut value.version, errors);
    let default_currency = value.currency.value();
    let models = value.models.value().unwrap_or_default();
    check_length((models.len(), node), MAX_PRICES, "prices", errors);
    let models = models.into_iter().filter_map(Field::spanned);
    let models = models.filter_map(|model| price(model, default_currency.as_ref(), errors));
    let models = models.collect();
    let gpus = value.gpus.value().unwrap_or_default().into_iter().filter_map(Field::spanned);
    let rentals = gpus.filter_map(|gpu| rental(gpu, default_currency.as_ref(), routes, errors));
    Prices { models, rentals: rentals.collect() }
}

fn price(
    written: Spanned<prices::Model>,
    default_currency: Option<&Currency>,
    errors: &mut ErrorCollector,
) -> Option<Price> {
    let Spanned { mut value, node } = written;
    let hint = "write the model name, with * for any text";
    let model = value.model.required(errors, node, "model", hint);
    let currency = currency(value.currency, default_currency, node, errors);
    let prices = [&value.input, &value.output, &value.request];
    if prices.iter().all(|price| matches!(price, Field::Absent)) {
        let message = "no price; write input and output per million tokens, or request";
        errors.add(node, message);
    }
    let amount = |written: Field<MoneyAmount>| written.value().map(|amount| amount.0);
    Some(Price {
        model: GlobPattern::new(&model?.value),
        provider: pattern(&mut value.provider),
        from: value.from.value(),
        currency: currency?,
        input: amount(value.input).unwrap_or_default(),
        cache_read: amount(value.cache_read),
        cache_write: amount(value.cache_write),
        cache_write_1h: amount(value.cache_write_1h),
        output: amount(value.output).unwrap_or_default(),
        reasoning: amount(value.reasoning),
        request: amount(value.request).unwrap_or_default(),
    })
}

fn rental(
    written: Spanned<prices::Gpu>,
    default_currency: Option<&Currency>,
    routes: &[String],
    errors: &mut ErrorCollector,
) -> Option<HardwareCost> {
    let Spanned { mut value, node } = written;
    let hint = "name the route to the backend on this hardware";
    value.route.required(errors, node, "route", hint);
    let route = route(&value.route, routes, errors)?;
    let hint = "write the cost of one GPU per hour, such as 2.5";
    let hour = value.hour.required(errors, node, "hour", hint)?;
    Some(HardwareCost {
        route,
        hour: hour.value.0 * f64::from(value.count.or(1)),
        currency: currency(value.currency, default_currency, node, errors)?,
    })
}

fn currency(
    written: Field<Currency>,
    default: Option<&Currency>,
    entry: NodeId,
    errors: &mut ErrorCollector,
) -> Option<Label> {
    if matches!(written, Field::Absent) && default.is_none() {
        errors.add_missing(entry, "currency", "write it here, or once at the top, such as USD");
    }
    written.value().as_ref().or(default).map(label)
}

fn label(currency: &Currency) -> Label {
    Label::from_trusted(&currency.0)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::RunArgs;
    use crate::config::load::load_text;
    use tokengauge_llm::count::Tokenizers;

    #[test]
    fn reports_an_unreadable_price_file_at_its_key() {
        let text = "upstreams: {a: {url: http://a}}\ncost: {prices: /nowhere/p.yaml}\n";
        let loaded = load_text(Some(text), &RunArgs::default(), &|_| None, &Tokenizers::default());
        let message = loaded.unwrap_err().to_string();
        assert!(
            message.contains("2:16: cost.prices: /nowhere/p.yaml: cannot read the file"),
            "{message}"
        );
    }

    fn resolved(text: &str) -> Result<Prices, String> {
        let mut errors = ErrorCollector::for_file(Path::new("p.yaml"));
        let prices = parse_prices(text, &["local".to_owned()], &mut errors);
        errors.into_result(prices).map_err(|errors| errors.to_string())
    }

    #[test]
    fn parses_prices() {
        let text = "version: 1\ncurrency: USD\nmodels:\n\
            - {model: GPT-*, provider: openai, from: 2026-01-31, input: 2.5, cache_read: 1, cache_write: 3, output: 10, reasoning: 8, request: 0.5}\n\
            - {model: x, request: 1, currency: EUR}\n\
            gpus: [{route: local, hour: 2.5, count: 8}]\n";
        let expected = Prices {
            models: vec![
                Price {
                    model: GlobPattern::new("gpt-*"),
                    provider: Some(GlobPattern::new("openai")),
                    from: "2026-01-31".parse().ok(),
                    currency: Label::from_trusted("USD"),
                    input: 2.5,
                    cache_read: Some(1.0),
                    cache_write: Some(3.0),
                    cache_write_1h: None,
                    output: 10.0,
                    reasoning: Some(8.0),
                    request: 0.5,
                },
                Price {
                    model: GlobPattern::new("x"),
                    provider: None,
                    from: None,
                    currency: Label::from_trusted("EUR"),
                    input: 0.0,
                    cache_read: None,
                    cache_write: None,
                    cache_write_1h: None,
                    output: 0.0,
                    reasoning: None,
                    request: 1.0,
                },
            ],
            rentals: vec![HardwareCost {
                route: Label::from_trusted("local"),
                hour: 20.0,
                currency: Label::from_trusted("USD"),
            }],
        };
        assert_eq!(resolved(text), Ok(expected));
    }

    #[test]
    fn reports_all_errors_of_the_price_file() {
        let text = "version: 2\nmodels:\n\
            - {model: a, input: -1}\n\
            - {model: b, currency: usd, output: 1}\n\
            - {model: c, currency: USD}\n\
            - {input: 1, currency: USD, from: 2026-02-30}\n\
            - {model: d, currency: USD, price: 3}\n\
            gpus: [{route: locl, hour: 1, currency: USD}, {route: local}]\n";
        let message = resolved(text).unwrap_err();
        let expected = [
            "p.yaml:1:10: version: unsupported version 2",
            "p.yaml:3:3: models[0].currency: missing key",
            "p.yaml:3:21: models[0].input: \"-1\" ",
            "p.yaml:4:24: models[1].currency: \"usd\" ",
            "p.yaml:5:3: models[2]: no price",
            "p.yaml:6:3: models[3].model: missing key",
            "p.yaml:6:35: models[3].from: \"2026-02-30\" ",
            "p.yaml:7:29: models[4].price: ",
            "p.yaml:8:16: gpus[0].route: no route named \"locl\"; did you mean \"local\"?",
            "p.yaml:8:47: gpus[1].hour: missing key",
        ];
        for expected in expected {
            assert!(message.contains(expected), "{expected}\n\n{message}");
        }
        assert_eq!(message.lines().count(), 11, "{message}");
    }
}
