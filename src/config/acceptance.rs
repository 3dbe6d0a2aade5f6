//! Reads the limits file of `tokengauge report --accept`. Errors are reported as for the configuration file.

use std::path::Path;

use schemars::{JsonSchema, Schema, schema_for};
use serde::Deserialize;

use super::deserialize;
use super::errors::{ConfigErrors, ErrorCollector, Position};
use super::file;
use super::load::tidy;
use super::section::Version;
use super::spanned::{Map, Spanned};
use super::value::DurationValue;
use tokengauge_report::Quality;
use tokengauge_report::acceptance::{Acceptance, Bound, Limit, LimitBasis, Undecided};
use tokengauge_report::compare::{Measure, Statistic};

/// Default minimum number of requests for a statistic. With 100 requests, five lie above the 95th percentile.
const MIN_REQUESTS: u64 = 100;

/// Limits of a run.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct File {
    /// The version of this format: 1, which is also the default.
    #[schemars(range(min = 1, max = 1))]
    version: Version,
    /// Minimum number of requests for a figure, in a comparison for both A and B. With fewer, limits of the figure are
    /// undecided.
    min_requests: Option<u64>,
    /// Whether an undecided limit counts as broken or held.
    undecided: UndecidedAs,
    /// Output tokens per second of one stream.
    output_tps: Statistics,
    /// Time to first token, such as 500ms.
    ttft: Statistics,
    /// Time per output token, such as 40ms.
    itl: Statistics,
    /// Duration of a request, such as 10s.
    duration: Statistics,
    /// Ratio of failed requests, such as 1%.
    error_rate: Figure,
    /// Mean cost of a request, by currency.
    cost: Map<Figure>,
    /// Ratios of requests by the result of their choices.
    quality: Qualities,
    /// Ratios of requests by finish reason.
    finish: Map<Figure>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum UndecidedAs {
    #[default]
    Broken,
    Held,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Statistics {
    mean: Figure,
    p5: Figure,
    p50: Figure,
    p95: Figure,
    p99: Figure,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Qualities {
    complete: Figure,
    empty: Figure,
    refused: Figure,
    filtered: Figure,
    tool_json_invalid: Figure,
    unfinished: Figure,
}

/// Limits of one figure.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Figure {
    /// Minimum.
    min: Option<Spanned<String>>,
    /// Maximum.
    max: Option<Spanned<String>>,
    /// Relative change from A to B, such as -5%: B ÷ A − 1.
    change: Range,
    /// Difference between B and A in the unit of the figure: B − A.
    difference: Range,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Range {
    min: Option<Spanned<String>>,
    max: Option<Spanned<String>>,
}

/// Reads the limits in `path`. Returns the limits and the text of the file.
///
/// # Errors
/// Returns all errors of the file.
pub fn acceptance(path: &Path) -> Result<(Acceptance, String), ConfigErrors> {
    let text = file::read(path)?;
    let acceptance = parse_acceptance(&text, path)?;
    Ok((acceptance, text))
}

fn parse_acceptance(text: &str, path: &Path) -> Result<Acceptance, ConfigErrors> {
    let mut errors = ErrorCollector::for_file(path);
    let file = deserialize::from_yaml(text, &mut errors);
    let acceptance =
        file.map(|file| resolve(file, &mut errors)).filter(|file| !file.limits.is_empty());
    match acceptance {
        Some(acceptance) => return errors.into_result(acceptance),
        None if errors.count() > 0 => {}
        None => {
            let message =
                "the file contains no limit; add one, such as `ttft: {p95: {max: 500ms}}`";
            errors.add_at(Position::START, String::new(), message);
        }
    }
    Err(errors.into_errors())
}

/// The JSON Schema of the file.
pub fn acceptance_schema() -> Schema {
    tidy(schema_for!(File), "tokengauge limits of a run")
}

fn resolve(file: File, errors: &mut ErrorCollector) -> Acceptance {
    let mut limits = LimitResolver { limits: Vec::new(), errors };
    for (series, measure) in [
        (file.output_tps, Measure::OutputTps),
        (file.ttft, Measure::Ttft),
        (file.itl, Measure::Itl),
        (file.duration, Measure::Duration),
    ] {
        let Statistics { mean, p5, p50, p95, p99 } = series;
        for (statistic, figure) in Statistic::ALL.into_iter().zip([mean, p5, p50, p95, p99]) {
            limits.figure(figure, &measure, statistic);
        }
    }
    limits.figure(file.error_rate, &Measure::ErrorRate, Statistic::Mean);
    for (currency, figure) in file.cost.entries {
        limits.figure(figure.value, &Measure::Cost(currency), Statistic::Mean);
    }
    let Qualities { complete, empty, refused, filtered, tool_json_invalid, unfinished } =
        file.quality;
    let figures = [complete, empty, refused, filtered, tool_json_invalid, unfinished];
    for (quality, figure) in Quality::ALL.into_iter().zip(figures) {
        limits.figure(figure, &Measure::Quality(quality), Statistic::Mean);
    }
    for (reason, figure) in file.finish.entries {
        limits.figure(figure.value, &Measure::Finish(reason), Statistic::Mean);
    }
    Acceptance {
        min_requests: file.min_requests.unwrap_or(MIN_REQUESTS),
        undecided: match file.undecided {
            UndecidedAs::Broken => Undecided::Broken,
            UndecidedAs::Held => Undecided::Held,
        },
        limits: limits.limits,
    }
}

struct LimitResolver<'p> {
    limits: Vec<Limit>,
    errors: &'p mut ErrorCollector,
}

impl LimitResolver<'_> {
    fn figure(&mut self, figure: Figure, measure: &Measure, statistic: Statistic) {
        let Figure { min, max, change, difference } = figure;
        for (on, Range { min, max }) in [
            (LimitBasis::Value, Range { min, max }),
            (LimitBasis::Change, change),
            (LimitBasis::Difference, difference),
        ] {
            for (bound, text) in [(Bound::Min, min), (Bound::Max, max)] {
                let Some(Spanned { value: text, node }) = text else {
                    continue;
                };
                match parse_number(&text, on, measure) {
                    Ok(value) => self.limits.push(Limit {
                        key: self.errors.location(node).key,
                        measure: measure.clone(),
                        statistic,
                        on,
                        bound,
                        value,
                    }),
                    Err(hint) => {
                        self.errors.add(node, format!("\"{text}\" is not a valid limit; {hint}"));
                    }
                }
            }
        }
    }
}

/// Parses a limit in the unit of its figure. Only changes and differences may be negative. The returned error is a hint
/// for the user.
fn parse_number(text: &str, on: LimitBasis, measure: &Measure) -> Result<f64, &'static str> {
    let (digits, sign) = match text.strip_prefix('-') {
        Some(digits) if on != LimitBasis::Value => (digits, -1.0),
        Some(_) | None => (text, 1.0),
    };
    let ratio = |hint| {
        let percent = digits.strip_suffix('%').ok_or(hint)?;
        // Appends an exponent instead of dividing by 100: in floating point, 99.9 ÷ 100 differs from 0.999.
        parse_digits(&format!("{}e-2", percent.trim_end())).ok_or(hint)
    };
    let size = match (on, measure) {
        (LimitBasis::Change, _) => ratio("write a percentage, such as 10% or -5%"),
        (_, Measure::ErrorRate | Measure::Quality(_) | Measure::Finish(_)) => {
            ratio("write a percentage, such as 1%")
        }
        (_, Measure::OutputTps) => {
            parse_digits(digits).ok_or("write tokens per second, such as 30")
        }
        (_, Measure::Cost(_)) => {
            parse_digits(digits).ok_or("write an amount of money, such as 0.002")
        }
        (_, Measure::Ttft | Measure::Itl | Measure::Duration) => {
            parse_seconds(digits).ok_or("write a number and a unit (ms, s), such as 500ms or 2.5s")
        }
    }?;
    Ok(sign * size)
}

fn parse_digits(text: &str) -> Option<f64> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.filter(|_| text.starts_with(|c: char| c.is_ascii_digit()))
}

/// Parses a time, and returns seconds. [`DurationValue`] has a resolution of 1 ms, which is too coarse for the time
/// between two tokens.
fn parse_seconds(text: &str) -> Option<f64> {
    if let Ok(DurationValue(length)) = text.parse() {
        return Some(length.as_secs_f64());
    }
    let (number, scale) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1e-3),
        (None, Some(number)) => (number, 1.0),
        (None, None) => return None,
    };
    parse_digits(number).map(|number| number * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(text: &str) -> Vec<(String, f64)> {
        let acceptance = parse_acceptance(text, Path::new("f")).unwrap();
        acceptance.limits.into_iter().map(|limit| (limit.key, limit.value)).collect()
    }

    fn wrong(text: &str) -> String {
        parse_acceptance(text, Path::new("f")).unwrap_err().to_string()
    }

    #[test]
    fn parses_limits_in_their_units() {
        let text = "version: 1\nmin_requests: 20\nundecided: held\n\
            output_tps: {p50: {min: 30, change: {min: -5%}}, mean: {difference: {min: -2.5}}}\n\
            ttft: {p95: {max: 500ms, difference: {max: 1.5s}}}\nitl: {p99: {max: 0.5ms}}\nduration: {mean: {max: 1m}}\n\
            error_rate: {max: 1%, difference: {max: 0.5%}}\ncost: {USD: {max: 0.002, change: {max: 0%}}}\n\
            quality: {empty: {max: 2%}}\nfinish: {length: {max: 10%}}\n";
        let expected = [
            ("output_tps.mean.difference.min", -2.5),
            ("output_tps.p50.min", 30.0),
            ("output_tps.p50.change.min", -0.05),
            ("ttft.p95.max", 0.5),
            ("ttft.p95.difference.max", 1.5),
            ("itl.p99.max", 0.0005),
            ("duration.mean.max", 60.0),
            ("error_rate.max", 0.01),
            ("error_rate.difference.max", 0.005),
            ("cost.USD.max", 0.002),
            ("cost.USD.change.max", 0.0),
            ("quality.empty.max", 0.02),
            ("finish.length.max", 0.1),
        ];
        assert_eq!(limits(text), expected.map(|(key, value)| (key.to_owned(), value)));
        let acceptance = parse_acceptance(text, Path::new("f")).unwrap();
        assert_eq!((acceptance.min_requests, acceptance.undecided), (20, Undecided::Held));
        assert!(acceptance.needs_comparison());
    }

    #[test]
    fn reports_errors_with_position_and_hint() {
        let text = "version: 1\nttft: {p95: {max: 500}}\nerror_rate: {max: 0.01}\noutput_tps:\n  p50: {min: -3}\n  p90: {min: 3}\n";
        assert_eq!(
            wrong(text),
            "f:2:19: ttft.p95.max: \"500\" is not a valid limit; write a number and a unit (ms, s), such as 500ms or 2.5s\n\
             f:3:19: error_rate.max: \"0.01\" is not a valid limit; write a percentage, such as 1%\n\
             f:5:14: output_tps.p50.min: \"-3\" is not a valid limit; write tokens per second, such as 30\n\
             f:6:3: output_tps.p90: unknown key; did you mean \"p50\"?"
        );
        assert!(wrong("version: 1\n").contains("no limit"));
        assert!(wrong("").contains("no limit"));
        assert!(wrong("version: 2\nttft: {p50: {max: 1s}}\n").contains("unsupported version"));
    }
}
