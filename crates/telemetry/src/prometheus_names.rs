//! Translates OpenTelemetry names to Prometheus names, with the default rules of Prometheus' OTLP receiver.
//!
//! Characters other than letters, digits and `_` become `_`. The unit is appended as a word, and counters get the
//! suffix `_total`, unless the name already contains them. For example, the histogram `http.server.request.duration`
//! with unit `s` becomes `http_server_request_duration_seconds`.

use tokengauge_types::label_enum;

/// Returns the Prometheus name of a metric.
pub fn name(otel: &str, unit: &str, kind: Kind) -> String {
    let mut name: String =
        otel.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let has = |name: &str, word: &str| name.split('_').any(|part| part == word);
    let (main, per) = unit_words(unit, kind);
    if !main.is_empty() && !has(&name, main) {
        name.push('_');
        name.push_str(main);
    }
    if let Some(per) = per
        && !name.ends_with(&format!("per_{per}"))
    {
        name.push_str("_per_");
        name.push_str(per);
    }
    if kind == Kind::Counter && !name.ends_with("_total") {
        name.push_str("_total");
    }
    name
}

label_enum! {
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum Kind {
        Counter = "counter",
        Gauge = "gauge",
        Histogram = "histogram",
    }
}

/// Returns the unit of an OpenMetrics family, such as `seconds`. `None` if the name does not end with the unit.
pub fn unit_of<'a>(family: &str, unit: &'a str, kind: Kind) -> Option<&'a str> {
    let (main, per) = unit_words(unit, kind);
    let ends = family.strip_suffix(main).is_some_and(|rest| rest.ends_with('_'));
    (per.is_none() && !main.is_empty() && ends).then_some(main)
}

/// Returns the words for the parts of a unit before and after `/`, such as `seconds` for `s`. `{token}` has no word.
fn unit_words(unit: &str, kind: Kind) -> (&str, Option<&str>) {
    let (main, per) = match unit.split_once('/') {
        Some((main, per)) => (main, Some(per)),
        None => (unit, None),
    };
    let main = match main {
        "s" => "seconds",
        "By" => "bytes",
        "1" if kind == Kind::Gauge && per.is_none() => "ratio",
        _ => "",
    };
    let per = per.map(|per| match per {
        "s" => "second",
        other => other,
    });
    (main, per)
}

pub fn label_name(key: &str) -> String {
    let name: String =
        key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        return format!("key_{name}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_the_translator_of_prometheus() {
        for (otel, unit, kind, expected) in [
            (
                "gen_ai.client.inference.duration",
                "s",
                Kind::Histogram,
                "gen_ai_client_inference_duration_seconds",
            ),
            (
                "gen_ai.client.inference.usage.output_tokens",
                "{token}",
                Kind::Counter,
                "gen_ai_client_inference_usage_output_tokens_total",
            ),
            ("gen_ai.client.token.usage", "{token}", Kind::Histogram, "gen_ai_client_token_usage"),
            ("x.throughput", "{token}/s", Kind::Gauge, "x_throughput_per_second"),
            ("x.output_tokens_per_second", "{token}/s", Kind::Gauge, "x_output_tokens_per_second"),
            ("x.ratio", "1", Kind::Gauge, "x_ratio"),
            ("x.budget.remaining", "1", Kind::Gauge, "x_budget_remaining_ratio"),
            ("x.c", "1", Kind::Counter, "x_c_total"),
            ("x.queue_seconds", "s", Kind::Gauge, "x_queue_seconds"),
            ("x.lost", "By", Kind::Counter, "x_lost_bytes_total"),
            ("x.time", "s", Kind::Counter, "x_time_seconds_total"),
        ] {
            assert_eq!(name(otel, unit, kind), expected);
        }
    }

    #[test]
    fn returns_the_unit_if_the_name_ends_with_it() {
        for (family, unit, kind, expected) in [
            ("x_time_seconds", "s", Kind::Counter, Some("seconds")),
            ("x_lost_bytes", "By", Kind::Counter, Some("bytes")),
            ("x_budget_ratio", "1", Kind::Gauge, Some("ratio")),
            ("x_seconds_left", "s", Kind::Gauge, None),
            ("seconds", "s", Kind::Gauge, None),
            ("x_rate_per_second", "{token}/s", Kind::Gauge, None),
            ("x_tokens", "{token}", Kind::Counter, None),
        ] {
            assert_eq!(unit_of(family, unit, kind), expected, "{family}");
        }
    }
}
