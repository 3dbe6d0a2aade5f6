//! Prices, in a file of their own, and budgets.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use super::{check_name, length_within};
use crate::config::deserialize::{self, Field, Spanned};
use crate::config::errors::{ErrorCollector, NodeId, suggestion};
use crate::config::raw;
use crate::config::value::{Amount, Currency};
use crate::config::{file, prices, yaml};
use tokengauge_measure::cost::{Allowance, Budget, Costs, Price, Prices, Rental};
use tokengauge_types::label::{Label, Pattern};

/// A budget of less than an hour is a rate limit; 90 days are the longest that objectives have.
const WINDOWS: RangeInclusive<Duration> =
    Duration::from_secs(3_600)..=Duration::from_secs(90 * 86_400);

/// A month less its odd days, as objectives have it.
const WINDOW: Duration = Duration::from_secs(30 * 86_400);

/// Each budget is a series or three, and is looked at for each call.
const MOST_BUDGETS: usize = 256;

/// Each entry is looked at for each call.
const MOST_PRICES: usize = 1_000;

pub(super) fn resolve(
    written: Field<raw::Cost>,
    routes: &[String],
    errors: &mut ErrorCollector,
) -> Costs {
    let written = written.value().unwrap_or_default();
    let prices = match written.prices.spanned() {
        Some(given) => prices(&given.value, routes, errors),
        None => Prices::default(),
    };
    Costs { prices, budgets: budgets(written.budgets, routes, errors) }
}

fn budgets(
    written: Field<Vec<Field<raw::Budget>>>,
    routes: &[String],
    errors: &mut ErrorCollector,
) -> Vec<Budget> {
    let Some(Spanned { value, node }) = written.spanned() else {
        return Vec::new();
    };
    if value.len() > MOST_BUDGETS {
        let message = format!("there are {} budgets; write at most {MOST_BUDGETS}", value.len());
        errors.at(node, message);
    }
    let mut budgets: Vec<Budget> = Vec::new();
    for written in value.into_iter().filter_map(Field::spanned) {
        let named = written.value.name.clone();
        let Some(budget) = budget(written, routes, errors) else {
            continue;
        };
        if budgets.iter().any(|other| other.name == budget.name)
            && let Field::Present(name) = named
        {
            let message =
                format!("a second budget is called \"{}\"; give this one another name", name.value);
            errors.at(name.node, message);
        }
        budgets.push(budget);
    }
    budgets
}

fn budget(
    written: Spanned<raw::Budget>,
    routes: &[String],
    errors: &mut ErrorCollector,
) -> Option<Budget> {
    let Spanned { value, node } = written;
    let remedy = "give it one, such as acme-month";
    let name = value.name.required(errors, node, "name", remedy)?;
    check_name(&name.value, name.node, errors);
    let window = length_within(value.window, WINDOWS, errors).unwrap_or(WINDOW);
    let route = value.route.spanned().map(|route| {
        check_route(&route, routes, errors);
        Label::known(&route.value)
    });
    let allowance = allowance(value.money, value.tokens, node, errors)?;
    let pattern = |written: Field<String>| written.value().map(|text| Pattern::new(&text));
    Some(Budget {
        name: Label::known(&name.value),
        tenant: pattern(value.tenant),
        model: pattern(value.model),
        route,
        allowance,
        window,
    })
}

fn allowance(
    money: Field<raw::Money>,
    tokens: Field<u64>,
    budget: NodeId,
    errors: &mut ErrorCollector,
) -> Option<Allowance> {
    match (money.spanned(), tokens.spanned()) {
        (Some(money), None) => {
            let Spanned { value, node } = money;
            let remedy = "write how much, such as 500";
            let amount = value.amount.required(errors, node, "amount", remedy);
            let remedy = "write its three letters, such as USD";
            let currency = value.currency.required(errors, node, "currency", remedy);
            Some(Allowance::Money { amount: amount?.value.0, currency: label(&currency?.value) })
        }
        (None, Some(tokens)) => {
            #[expect(clippy::cast_precision_loss, reason = "beyond 2^52 tokens nobody budgets")]
            let tokens = tokens.value as f64;
            Some(Allowance::Tokens(tokens))
        }
        (Some(_), Some(_)) => {
            let message = "this is a budget of money and of tokens; make it two budgets";
            errors.at(budget, message);
            None
        }
        (None, None) => {
            let message =
                "write what it allows: `tokens: 1000000`, or `money: {amount: 500, currency: USD}`";
            errors.at(budget, message);
            None
        }
    }
}

/// What `path` says. What is wrong with it is told by its own lines.
fn prices(path: &Path, routes: &[String], errors: &mut ErrorCollector) -> Prices {
    let mut inner = ErrorCollector::of_file(path);
    let prices = match file::read(path) {
        Ok(text) => table(&text, routes, &mut inner),
        Err(file_errors) => {
            errors.include(file_errors);
            return Prices::default();
        }
    };
    inner.into_result(prices).unwrap_or_else(|file_errors| {
        errors.include(file_errors);
        Prices::default()
    })
}

fn table(text: &str, routes: &[String], errors: &mut ErrorCollector) -> Prices {
    let root = yaml::parse(text, errors);
    let file =
        root.and_then(|root| deserialize::from_node::<prices::File>(&root, errors).spanned());
    let Some(Spanned { value, node }) = file else {
        return Prices::default();
    };
    super::version(value.version, node, errors);
    let usual = value.currency.spanned().map(|given| given.value);
    let models: Vec<_> = value.models.value().unwrap_or_default();
    if models.len() > MOST_PRICES {
        let message = format!("there are {} prices; write at most {MOST_PRICES}", models.len());
        errors.at(node, message);
    }
    let models = models
        .into_iter()
        .filter_map(Field::spanned)
        .filter_map(|written| price(written, usual.as_ref(), errors));
    let models = models.collect();
    let gpus = value.gpus.value().unwrap_or_default();
    let rentals = gpus
        .into_iter()
        .filter_map(Field::spanned)
        .filter_map(|written| rental(written, usual.as_ref(), routes, errors));
    Prices { models, rentals: rentals.collect() }
}

fn price(
    written: Spanned<prices::Model>,
    usual: Option<&Currency>,
    errors: &mut ErrorCollector,
) -> Option<Price> {
    let Spanned { value, node } = written;
    let remedy = "write the model's name, with * for any text";
    let model = value.model.required(errors, node, "model", remedy);
    let from = value.from.value().map(|date| date.0);
    let currency = currency(value.currency, usual, node, errors);
    let prices = [&value.input, &value.output, &value.request];
    if prices.iter().all(|price| matches!(price, Field::Absent)) {
        let message = "this has no price; write input and output per million tokens, or request";
        errors.at(node, message);
    }
    let amount = |written: Field<Amount>| written.value().map(|amount| amount.0);
    Some(Price {
        model: Pattern::new(&model?.value),
        provider: value.provider.value().map(|text| Pattern::new(&text)),
        from,
        currency: currency?,
        input: amount(value.input).unwrap_or_default(),
        cache_read: amount(value.cache_read),
        cache_write: amount(value.cache_write),
        output: amount(value.output).unwrap_or_default(),
        reasoning: amount(value.reasoning),
        request: amount(value.request).unwrap_or_default(),
    })
}

fn rental(
    written: Spanned<prices::Gpu>,
    usual: Option<&Currency>,
    routes: &[String],
    errors: &mut ErrorCollector,
) -> Option<Rental> {
    let Spanned { value, node } = written;
    let remedy = "name the route whose backend it is";
    let route = value.route.required(errors, node, "route", remedy)?;
    check_route(&route, routes, errors);
    let remedy = "write what one GPU costs an hour, such as 2.5";
    let hour = value.hour.required(errors, node, "hour", remedy)?;
    let count = super::within(value.count, 1..=1_000_000, errors).unwrap_or(1);
    Some(Rental {
        route: Label::known(&route.value),
        hour: hour.value.0 * f64::from(u32::try_from(count).unwrap_or(u32::MAX)),
        currency: currency(value.currency, usual, node, errors)?,
    })
}

fn check_route(route: &Spanned<String>, routes: &[String], errors: &mut ErrorCollector) {
    if !routes.contains(&route.value) {
        let near = suggestion(&route.value, routes.iter().map(String::as_str));
        errors.at(route.node, format!("there is no route \"{}\"; {near}", route.value));
    }
}

fn currency(
    written: Field<Currency>,
    usual: Option<&Currency>,
    entry: NodeId,
    errors: &mut ErrorCollector,
) -> Option<Label> {
    let absent = matches!(written, Field::Absent);
    let own = written.value();
    let currency = own.as_ref().or(usual);
    if currency.is_none() && absent {
        errors.missing(entry, "currency", "write it here, or once at the top, such as USD");
    }
    currency.map(label)
}

fn label(currency: &Currency) -> Label {
    Label::known(&currency.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(text: &str) -> Result<Prices, String> {
        let mut errors = ErrorCollector::of_file(Path::new("p.yaml"));
        let prices = table(text, &["local".to_owned()], &mut errors);
        errors.into_result(prices).map_err(|it| it.to_string())
    }

    #[test]
    fn prices_are_read() {
        let text = "version: 1\ncurrency: USD\nmodels:\n\
            - {model: GPT-*, provider: openai, from: 2026-01-31, input: 2.5, cache_read: 1, cache_write: 3, output: 10, reasoning: 8, request: 0.5}\n\
            - {model: x, request: 1, currency: EUR}\n\
            gpus: [{route: local, hour: 2.5, count: 8}]\n";
        let expected = Prices {
            models: vec![
                Price {
                    model: Pattern::new("gpt-*"),
                    provider: Some(Pattern::new("openai")),
                    from: "2026-01-31".parse().ok(),
                    currency: Label::known("USD"),
                    input: 2.5,
                    cache_read: Some(1.0),
                    cache_write: Some(3.0),
                    output: 10.0,
                    reasoning: Some(8.0),
                    request: 0.5,
                },
                Price {
                    model: Pattern::new("x"),
                    provider: None,
                    from: None,
                    currency: Label::known("EUR"),
                    input: 0.0,
                    cache_read: None,
                    cache_write: None,
                    output: 0.0,
                    reasoning: None,
                    request: 1.0,
                },
            ],
            rentals: vec![Rental {
                route: Label::known("local"),
                hour: 20.0,
                currency: Label::known("USD"),
            }],
        };
        assert_eq!(resolved(text), Ok(expected));
    }

    #[test]
    fn what_is_wrong_with_prices_is_told_at_once() {
        let text = "version: 2\nmodels:\n\
            - {model: a, input: -1}\n\
            - {model: b, currency: usd, output: 1}\n\
            - {model: c, currency: USD}\n\
            - {input: 1, currency: USD, from: 2026-02-30}\n\
            - {model: d, currency: USD, price: 3}\n\
            gpus: [{route: locl, hour: 1, currency: USD}, {route: local}]\n";
        let told = resolved(text).unwrap_err();
        let expected = [
            "p.yaml:1:10: version: version 2 is not known",
            "p.yaml:3:3: models[0].currency: this key is missing",
            "p.yaml:3:21: models[0].input: \"-1\" is no amount",
            "p.yaml:4:24: models[1].currency: \"usd\" is no currency",
            "p.yaml:5:3: models[2]: this has no price",
            "p.yaml:6:3: models[3].model: this key is missing",
            "p.yaml:6:35: models[3].from: \"2026-02-30\" is no day",
            "p.yaml:7:29: models[4].price: ",
            "p.yaml:8:16: gpus[0].route: there is no route \"locl\"; did you mean \"local\"?",
            "p.yaml:8:47: gpus[1].hour: this key is missing",
        ];
        for expected in expected {
            assert!(told.contains(expected), "{expected}\n\n{told}");
        }
        assert_eq!(told.lines().count(), 11, "each is told once\n{told}");
    }
}
