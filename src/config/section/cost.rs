//! Budgets, and prices, which are in a separate file.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Count, Version, check_length, check_name, route};
use crate::config::deserialize;
use crate::config::errors::{ErrorCollector, NodeId, suggestion};
use crate::config::file;
use crate::config::spanned::{List, OneOrMore, Spanned};
use crate::config::value::{Currency, FilePath, MoneyAmount};
use tokengauge_measure::cost::{self, BudgetLimit, BudgetWindow, Costs, Day, HardwareCost, Prices};
use tokengauge_types::label::{GlobPattern, Label};

/// Maximum number of budgets. Each request is checked against each budget, and a budget exports up to three time
/// series.
const MAX_BUDGETS: usize = 256;

/// Maximum number of price entries in all files. Each request is checked against each entry.
const MAX_PRICES: usize = 1_000;

/// Maximum number of price files, such as one per provider. Each file is read every 5 s to find changes.
const MAX_PRICE_FILES: usize = 32;

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cost {
    /// Price file, or a list of at most 32 price files. Entries of a later file replace those of earlier files with the
    /// same model and provider.
    #[schemars(with = "PricePaths")]
    pub prices: OneOrMore<FilePath>,
    /// Usage budgets. Usage is counted, never enforced.
    pub budgets: List<Budget>,
}

/// Schema of `cost.prices`.
#[derive(JsonSchema)]
#[schemars(inline, extend("format" = "path or list of paths"))]
#[serde(untagged)]
#[expect(dead_code, reason = "only the schema is used")]
enum PricePaths {
    One(String),
    Several(Vec<String>),
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name"]))]
pub struct Budget {
    /// Name in metrics and alerts; must be unique. At most 256 budgets.
    pub name: Option<String>,
    /// Only calls of this tenant; `*` matches any text.
    pub tenant: Option<String>,
    /// Only calls of this route.
    pub route: Option<String>,
    /// Only calls that request this model; `*` matches any text.
    pub model: Option<String>,
    /// Money to spend within the window.
    pub money: Option<Money>,
    /// Input and output tokens for the window.
    #[schemars(range(min = 1))]
    pub tokens: Option<u64>,
    /// Rolling window, or `month`: the calendar month in UTC.
    pub window: BudgetWindow,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["amount", "currency"]))]
pub struct Money {
    /// Amount for the window. A budget has either `money` or `tokens`.
    pub amount: Option<MoneyAmount>,
    /// ISO 4217 code. Only calls with a price in this currency count; amounts are not converted.
    pub currency: Option<Currency>,
}

/// Prices of tokengauge.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "File")]
pub struct PriceFile {
    /// The version of this format: 1, which is also the default.
    #[schemars(range(min = 1, max = 1))]
    pub version: Version,
    /// Default currency of the entries, an ISO 4217 code.
    pub currency: Option<Currency>,
    /// Token prices. If several entries match a request, the most specific pattern applies, and of this pattern the
    /// newest valid entry.
    pub models: List<Model>,
    /// Hardware that is paid by the hour.
    pub gpus: List<Gpu>,
}

/// Token prices are per million tokens.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["model"]))]
pub struct Model {
    /// Name of the requested model or of the model that answered, in which * matches any text.
    pub model: Option<String>,
    /// Name of the provider in telemetry, in which * matches any text. Any provider by default.
    pub provider: Option<String>,
    /// First day (UTC) on which this price applies. Without this key, the price always applies.
    pub from: Option<Day>,
    pub currency: Option<Currency>,
    /// Input tokens.
    pub input: Option<MoneyAmount>,
    /// Input tokens read from a cache. Defaults to input.
    pub cache_read: Option<MoneyAmount>,
    /// Input tokens written to a cache. Defaults to input.
    pub cache_write: Option<MoneyAmount>,
    /// Input tokens written to a cache for an hour. Defaults to cache_write.
    pub cache_write_1h: Option<MoneyAmount>,
    /// Output tokens.
    pub output: Option<MoneyAmount>,
    /// Reasoning tokens, hidden or visible. Defaults to output.
    pub reasoning: Option<MoneyAmount>,
    /// Each request, in addition to its tokens.
    pub request: Option<MoneyAmount>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["route", "hour"]))]
pub struct Gpu {
    /// The route to the backend on this hardware.
    pub route: Option<String>,
    /// Cost of one GPU per hour.
    pub hour: Option<MoneyAmount>,
    /// Number of GPUs.
    pub count: Count,
    pub currency: Option<Currency>,
}

/// Resolves budgets and, if `reads_files`, the price files.
pub fn resolve(
    cost: &mut Cost,
    routes: &[String],
    reads_files: bool,
    errors: &mut ErrorCollector,
) -> Costs {
    let prices = if reads_files { prices(cost, routes, errors) } else { Prices::default() };
    Costs { prices, budgets: budgets(cost, routes, errors) }
}

/// Reads all price files. The entries of a later file replace those of earlier files for the same model and provider,
/// and the same route.
fn prices(cost: &Cost, routes: &[String], errors: &mut ErrorCollector) -> Prices {
    let at = (NodeId::ROOT, "cost.prices");
    check_length(cost.prices.written_len(), MAX_PRICE_FILES, "price files", at, errors);
    let mut prices = Prices::default();
    for Spanned { value: FilePath(path), node } in cost.prices.iter().take(MAX_PRICE_FILES) {
        let Prices { models, rentals } = read_prices(path, *node, routes, errors);
        let is_same =
            |a: &cost::Price, b: &cost::Price| (&a.model, &a.provider) == (&b.model, &b.provider);
        prices.models.retain(|old| !models.iter().any(|new| is_same(old, new)));
        prices.rentals.retain(|old| !rentals.iter().any(|new| old.route == new.route));
        prices.models.extend(models);
        prices.rentals.extend(rentals);
    }
    check_length(prices.models.len(), MAX_PRICES, "prices in all files", at, errors);
    prices
}

fn budgets(cost: &mut Cost, routes: &[String], errors: &mut ErrorCollector) -> Vec<cost::Budget> {
    let at = (NodeId::ROOT, "cost.budgets");
    check_length(cost.budgets.written_len(), MAX_BUDGETS, "budgets", at, errors);
    let mut budgets: Vec<cost::Budget> = Vec::new();
    for Spanned { value, node } in cost.budgets.iter_mut() {
        let Some(budget) = value.resolve(*node, routes, errors) else {
            continue;
        };
        if budgets.iter().any(|other| other.name == budget.name) {
            let message = format!("duplicate budget name \"{}\"; use another name", budget.name);
            errors.add_key(*node, "name", message);
        }
        budgets.push(budget);
    }
    budgets
}

impl Budget {
    fn resolve(
        &mut self,
        node: NodeId,
        routes: &[String],
        errors: &mut ErrorCollector,
    ) -> Option<cost::Budget> {
        let name = errors.required(&self.name, (node, "name"), "add one, such as acme-month")?;
        check_name(name, (node, "name"), errors);
        Some(cost::Budget {
            name: Label::from_trusted(name),
            route: route(&self.route, (node, "route"), routes, errors),
            allowance: self.allowance(node, errors)?,
            tenant: self.tenant.as_mut().map(pattern),
            model: self.model.as_mut().map(pattern),
            window: self.window,
        })
    }

    fn allowance(&self, node: NodeId, errors: &mut ErrorCollector) -> Option<BudgetLimit> {
        let message = match (&self.money, self.tokens) {
            (Some(Money { amount, currency }), None) => {
                let hint = "write an amount, such as 500";
                let amount = errors.required(amount, (node, "money.amount"), hint);
                let hint = "write an ISO 4217 code, such as USD";
                let currency = errors.required(currency, (node, "money.currency"), hint);
                let (amount, currency) = (amount?.0, label(currency?));
                return Some(BudgetLimit::Money { amount, currency });
            }
            (None, Some(tokens)) => {
                #[expect(clippy::cast_precision_loss, reason = "budgets stay below 2^52 tokens")]
                return Some(BudgetLimit::Tokens(tokens as f64));
            }
            (Some(_), Some(_)) => "a budget limits either money or tokens; write two budgets",
            (None, None) => {
                "no limit; write `tokens: 1000000`, or `money: {amount: 500, currency: USD}`"
            }
        };
        errors.add(node, message);
        None
    }
}

/// Parses a pattern that ignores case. The printed configuration contains the pattern in lower case.
fn pattern(text: &mut String) -> GlobPattern {
    let pattern = GlobPattern::new(text);
    *text = pattern.to_string();
    pattern
}

/// Reads a price file. Each error has its position in the price file.
fn read_prices(
    path: &Path,
    node: NodeId,
    routes: &[String],
    errors: &mut ErrorCollector,
) -> Prices {
    let bytes = match file::read_bytes(path, file::MAX_CONFIG_BYTES) {
        Ok(bytes) => bytes,
        Err(reason) => {
            let message = format!("{}: {reason}", path.display());
            errors.add(node, message);
            return Prices::default();
        }
    };
    let prices = file::decode(path, bytes).and_then(|text| {
        let mut file_errors = ErrorCollector::for_file(path);
        let prices = parse_prices(&text, routes, &mut file_errors);
        errors.extend_warnings(file_errors.take_warnings());
        file_errors.into_result(prices)
    });
    prices.unwrap_or_else(|file_errors| {
        errors.extend(file_errors);
        Prices::default()
    })
}

fn parse_prices(text: &str, routes: &[String], errors: &mut ErrorCollector) -> Prices {
    let Some(file) = deserialize::from_yaml::<PriceFile>(text, errors) else {
        return Prices::default();
    };
    check_length(file.models.written_len(), MAX_PRICES, "prices", (NodeId::ROOT, ""), errors);
    let default = file.currency.as_ref();
    let models = file.models.iter().filter_map(|model| price(model, default, errors)).collect();
    let gpus = file.gpus.iter();
    let rentals = gpus.filter_map(|gpu| rental(gpu, default, routes, errors)).collect();
    Prices { models, rentals }
}

fn price(
    Spanned { value, node }: &Spanned<Model>,
    default_currency: Option<&Currency>,
    errors: &mut ErrorCollector,
) -> Option<cost::Price> {
    let hint = "write the model name, with * for any text";
    let model = errors.required(&value.model, (*node, "model"), hint);
    let currency = currency(value.currency.as_ref().or(default_currency), *node, errors);
    let prices = [("input", value.input), ("output", value.output), ("request", value.request)];
    if prices.iter().all(|(key, price)| price.is_none() && !errors.is_invalid(*node, key)) {
        let message = "no price; write input and output per million tokens, or request";
        errors.add(*node, message);
    }
    let amount = |written: Option<MoneyAmount>| written.map(|amount| amount.0);
    Some(cost::Price {
        model: GlobPattern::new(model?),
        provider: value.provider.as_deref().map(GlobPattern::new),
        from: value.from,
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

/// Returns the cost of the hardware behind a route. An entry for an unknown route is ignored with a warning, because
/// several proxies with different routes can share one price file.
fn rental(
    Spanned { value, node }: &Spanned<Gpu>,
    default_currency: Option<&Currency>,
    routes: &[String],
    errors: &mut ErrorCollector,
) -> Option<HardwareCost> {
    let hint = "name the route to the backend on this hardware";
    let route = errors.required(&value.route, (*node, "route"), hint);
    let hint = "write the cost of one GPU per hour, such as 2.5";
    let hour = errors.required(&value.hour, (*node, "hour"), hint)?;
    let currency = currency(value.currency.as_ref().or(default_currency), *node, errors)?;
    let route = route?;
    if !routes.contains(route) {
        let hint = suggestion(route, routes.iter().map(String::as_str));
        let message = format!("no route named \"{route}\", so this entry is ignored; {hint}");
        errors.warn_key(*node, "route", message);
        return None;
    }
    let hour = hour.0 * f64::from(value.count.get());
    Some(HardwareCost { route: Label::from_trusted(route), hour, currency })
}

fn currency(
    written: Option<&Currency>,
    entry: NodeId,
    errors: &mut ErrorCollector,
) -> Option<Label> {
    let hint = "write it here, or once at the top, such as USD";
    errors.required(&written, (entry, "currency"), hint).map(|currency| label(currency))
}

fn label(currency: &Currency) -> Label {
    Label::from_trusted(&currency.0)
}

#[cfg(test)]
mod tests {
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

    /// Loads a configuration with these price files.
    fn loaded(prices: &str) -> Result<Prices, String> {
        let text = format!("upstreams: {{a: {{url: http://a}}}}\ncost: {{prices: {prices}}}\n");
        let loaded = load_text(Some(&text), &RunArgs::default(), &|_| None, &Tokenizers::default());
        loaded.map(|config| config.costs.prices).map_err(|errors| errors.to_string())
    }

    #[test]
    fn later_price_files_replace_entries_of_the_same_model() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, models: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, format!("currency: USD\nmodels: [{models}]\n")).unwrap();
            path.display().to_string()
        };
        let list =
            file("list", "{model: m, provider: openai, input: 1}, {model: \"m*\", input: 2}");
        // Dates do not matter between files: the whole history of the entry is replaced.
        let own = file("own", "{model: M, provider: openai, input: 3}, {model: m, input: 4}");
        let inputs =
            |prices: Prices| -> Vec<f64> { prices.models.iter().map(|it| it.input).collect() };
        assert_eq!(loaded(&list).map(inputs), Ok(vec![1.0, 2.0]), "a single path");
        assert_eq!(loaded(&format!("[{list}, {own}]")).map(inputs), Ok(vec![2.0, 3.0, 4.0]));
        assert_eq!(loaded(&format!("[{own}, {list}]")).map(inputs), Ok(vec![4.0, 1.0, 2.0]));
        assert_eq!(loaded("[]").map(inputs), Ok(Vec::new()));
        let message = loaded(&format!("[{list}, /nowhere/p.yaml]")).unwrap_err();
        assert!(
            message.contains(": cost.prices[1]: /nowhere/p.yaml: cannot read the file"),
            "{message}"
        );
        let message = loaded("{file: a}").unwrap_err();
        assert!(message.contains("cost.prices"), "{message}");
        let many = vec![list; 33].join(", ");
        let message = loaded(&format!("[{many}]")).unwrap_err();
        assert!(message.contains("cost.prices") && message.contains("at most 32"), "{message}");
    }

    /// Returns the starter price lists, with their text.
    fn starter_lists() -> Vec<(String, String)> {
        let files = std::fs::read_dir("examples/prices/list").unwrap();
        let paths = files.map(|file| file.unwrap().path());
        paths
            .map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap()))
            .collect()
    }

    #[test]
    fn every_row_of_the_starter_lists_is_valid_plausible_and_has_a_source() {
        let lists = starter_lists();
        assert!(lists.len() >= 8, "one list per provider");
        for (path, text) in &lists {
            let prices = loaded(path).unwrap();
            let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("  - ")).collect();
            assert_eq!(prices.models.len(), rows.len(), "{path}");
            assert!(text.contains("tokengauge does not update this file"), "{path}");
            for (price, row) in prices.models.iter().zip(rows) {
                let cost::Price { provider, input, cache_read, cache_write, output, .. } = price;
                let origin = row.split_once("}  # ").expect(row).1;
                let (day, source) = origin.split_once(' ').expect(row);
                assert!(day.parse::<Day>().is_ok() && source.starts_with("https://"), "{row}");
                assert!(provider.is_some(), "{row}");
                // No model of a list costs more than 500 USD per million input tokens.
                assert!(*input > 0.0 && *input <= 500.0 && *output <= 1_000.0, "{row}");
                assert!(*output == 0.0 || *output >= *input, "{row}");
                assert!(cache_read.is_none_or(|read| read <= *input), "{row}");
                assert!(cache_write.is_none_or(|write| write >= *input), "{row}");
                let write = cache_write.unwrap_or(*input);
                assert!(price.cache_write_1h.is_none_or(|hour| hour >= write), "{row}");
            }
        }
    }

    #[test]
    fn the_starter_lists_can_be_used_together() {
        let paths: Vec<String> = starter_lists().into_iter().map(|(path, _)| path).collect();
        let rows: usize = paths.iter().map(|path| loaded(path).unwrap().models.len()).sum();
        assert_eq!(loaded(&format!("[{}]", paths.join(", "))).unwrap().models.len(), rows);
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
                cost::Price {
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
                cost::Price {
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
    fn hardware_of_an_unknown_route_causes_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p.yaml");
        let text = "currency: USD\ngpus: [{route: locl, hour: 1}, {route: local, hour: 2}]\n";
        std::fs::write(&file, text).unwrap();
        let text = format!(
            "upstreams: {{local: {{url: http://a}}}}\ncost: {{prices: {}}}\n",
            file.display()
        );
        let args = RunArgs::default();
        let config = load_text(Some(&text), &args, &|_| None, &Tokenizers::default()).unwrap();
        let rentals = config.costs.prices.rentals.iter().map(|rental| rental.route.as_str());
        assert_eq!(rentals.collect::<Vec<_>>(), ["local"]);
        let [warning] = config.warnings.as_slice() else { panic!("{:?}", config.warnings) };
        let expected = "p.yaml:2:16: gpus[0].route: no route named \"locl\", so this entry is ignored; did you mean \
                        \"local\"?";
        assert!(warning.to_string().ends_with(expected), "{warning}");
    }

    #[test]
    fn reports_all_errors_of_the_price_file() {
        let text = "version: 2\nmodels:\n\
            - {model: a, input: -1}\n\
            - {model: b, currency: usd, output: 1}\n\
            - {model: c, currency: USD}\n\
            - {input: 1, currency: USD, from: 2026-02-30}\n\
            - {model: d, currency: USD, price: 3}\n\
            gpus: [{route: local, hour: -1, currency: USD}, {route: local}]\n";
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
            "p.yaml:8:29: gpus[0].hour: \"-1\" ",
            "p.yaml:8:49: gpus[1].hour: missing key",
        ];
        for expected in expected {
            assert!(message.contains(expected), "{expected}\n\n{message}");
        }
        assert_eq!(message.lines().count(), 11, "{message}");
    }
}
