//! Writes the own names of the catalog as a registry of OpenTelemetry Weaver: `telemetry/registry` in the repository.
//!
//! The format is Weaver's "Semantic Convention Definition Language v2". The registry imports the names of the semantic
//! conventions and defines the names that start with `tokengauge.`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use serde_json::Value;

use super::attributes::{self, Attribute, Values};
use super::{Kind, Metric, health, semconv, spans, tokengauge};
use crate::config::{GenAiNames, MetricSelection, Profile};
use crate::logs::{CONTENT_EVENT, EXCEPTION_EVENT, REQUEST_EVENT};

const HEADER: &str = "# Generated from crates/telemetry/src/catalog by `REGISTRY=write cargo test -p tokengauge-telemetry registry`.\n";
const OWN: &str = "tokengauge.";

/// The registries with the imported names, and the released version of each.
const DEPENDENCIES: [(&str, &str); 2] = [
    (
        "https://opentelemetry.io/schemas/gen-ai/0.1.0",
        "https://github.com/open-telemetry/semantic-conventions-genai.git@v0.1.0[model]",
    ),
    (
        "https://opentelemetry.io/schemas/1.45.0",
        "https://github.com/open-telemetry/semantic-conventions.git@v1.45.0[model]",
    ),
];

/// Own attributes of spans whose value is an integer.
const INTEGERS: [Attribute; 21] = [
    spans::GATEWAY_RETRIES,
    spans::GATEWAY_FALLBACKS,
    spans::REQUEST_MESSAGES,
    spans::RESPONSE_MESSAGES,
    spans::CLOSE_CODE,
    spans::CACHE_WRITE_5M,
    spans::CACHE_WRITE_1H,
    spans::INPUT_IMAGE,
    spans::INPUT_AUDIO,
    spans::OUTPUT_IMAGE,
    spans::OUTPUT_AUDIO,
    spans::RATE_LIMIT_REQUESTS,
    spans::RATE_LIMIT_TOKENS,
    spans::RATE_LIMIT_INPUT,
    spans::RATE_LIMIT_OUTPUT,
    spans::CONTENT_OMITTED,
    spans::NETWORK_RETRANSMITS,
    spans::COUNTED,
    spans::NORMALIZED,
    spans::QUEUE_DEPTH,
    spans::STALL_COUNT,
];

/// Own attributes of spans whose value is a number other than an integer or a time in seconds.
const NUMBERS: [Attribute; 5] = [
    spans::COST,
    spans::REPORTED_COST,
    spans::SAMPLING_RATIO,
    spans::OUTPUT_TOKEN_RATE,
    spans::TOTAL_TOKEN_RATE,
];

#[expect(clippy::disallowed_methods, reason = "the variable asks the test to write the files")]
#[test]
fn the_registry_in_weavers_format_has_the_names_of_the_catalog() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../telemetry/registry");
    let files = [
        ("manifest.yaml", manifest()),
        ("attributes.yaml", attribute_definitions()),
        ("metrics.yaml", metric_definitions()),
        ("spans.yaml", span_definitions()),
        ("events.yaml", event_definitions()),
    ];
    if env::var_os("REGISTRY").is_some_and(|value| value == "write") {
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in &files {
            fs::write(folder.join(name), text).unwrap();
        }
    }
    for (name, text) in files {
        let committed = fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(committed == text, "telemetry/registry/{name} is stale. {HEADER}");
    }
}

fn manifest() -> String {
    let mut text = format!(
        "{HEADER}description: Names of tokengauge's metrics, attributes, spans and log events.\nschema_url: {}/schemas/{}\nstability: development\ndependencies:\n",
        env!("CARGO_PKG_REPOSITORY"),
        env!("CARGO_PKG_VERSION")
    );
    for (schema_url, path) in DEPENDENCIES {
        line(&mut text, &format!("  - schema_url: {schema_url}"));
        line(&mut text, &format!("    registry_path: {path}"));
    }
    text
}

fn attribute_definitions() -> String {
    let mut text = file("attributes");
    for (key, attribute) in own_attributes() {
        line(&mut text, &format!("  - key: {key}"));
        match (attribute.primitive, attribute.values.as_slice()) {
            (None, []) => line(&mut text, "    type: string"),
            (Some(primitive), _) => line(&mut text, &format!("    type: {primitive}")),
            (None, values) => {
                line(&mut text, "    type:\n      members:");
                for (id, value) in identifiers(values).iter().zip(values) {
                    line(&mut text, &format!("        - id: {}", quoted(id)));
                    line(&mut text, &format!("          value: {}", quoted(value)));
                    line(&mut text, "          stability: development");
                }
            }
        }
        line(&mut text, "    stability: development");
        line(&mut text, &format!("    brief: {}", quoted(attribute.brief)));
    }
    text
}

fn metric_definitions() -> String {
    let of_process = [&health::CPU_TIME, &health::MEMORY];
    let is_imported = |metric: &&&Metric| of_process.iter().any(|it| it.name == metric.name);
    let latest = MetricSelection { gen_ai: GenAiNames::Latest, profile: Profile::Full };
    let standard = semconv::ALL.iter().filter(|metric| metric.is_exported(latest));
    let mut text = format!("{HEADER}file_format: definition/2\nimports:\n  metrics:\n");
    for metric in standard.chain(health::ALL.iter().filter(is_imported)) {
        line(&mut text, &format!("    - {}", metric.name));
    }
    line(&mut text, "metrics:");
    let own = tokengauge::ALL.iter().chain(health::ALL);
    for metric in own.filter(|metric| !is_imported(metric)) {
        line(&mut text, &format!("  - name: {}", metric.name));
        line(&mut text, &format!("    instrument: {}", instrument(metric)));
        line(&mut text, &format!("    unit: {}", quoted(metric.unit)));
        line(&mut text, "    stability: development");
        line(&mut text, &format!("    brief: {}", quoted(metric.description)));
        references(&mut text, metric.attributes());
    }
    text
}

fn span_definitions() -> String {
    let mut text = file("spans");
    for (kind, name, brief) in [
        (
            "server",
            "{http.request.method}",
            "A request of a client, from its headers to the end of its response.",
        ),
        (
            "client",
            "{gen_ai.operation.name} {gen_ai.request.model}, or {http.request.method} for other requests",
            "The request to the upstream.",
        ),
    ] {
        line(&mut text, &format!("  - type: tokengauge.{kind}\n    kind: {kind}"));
        line(&mut text, &format!("    name:\n      note: {}", quoted(name)));
        line(&mut text, &format!("    stability: development\n    brief: {}", quoted(brief)));
        references(&mut text, spans::ALL.iter().copied().filter(|it| is_on(*it, kind)));
    }
    text
}

fn event_definitions() -> String {
    format!(
        "{HEADER}file_format: definition/2\nimports:\n  events:\n    - {EXCEPTION_EVENT}\n    - {CONTENT_EVENT}\nevents:\n  - name: {REQUEST_EVENT}\n    stability: development\n    brief: \"A finished request. The body has the fields of a line of the request log.\"\n"
    )
}

/// Returns whether the attribute is on the span of this kind, as its description states. An attribute without such a
/// statement is on the CLIENT span.
fn is_on(attribute: Attribute, kind: &str) -> bool {
    let about = attribute.description;
    let both = about.contains("Both spans.");
    let [server, client] = ["SERVER span", "CLIENT span"].map(|span| about.contains(span));
    match kind {
        _ if about.contains("On the event") => false,
        "server" => both || server,
        _ => both || client || !server,
    }
}

/// An own attribute of metrics or spans. Some keys are on both, with different values.
struct Definition {
    brief: &'static str,
    values: Vec<&'static str>,
    /// `None` for text and for a fixed list of texts.
    primitive: Option<&'static str>,
}

fn own_attributes() -> BTreeMap<String, Definition> {
    let mut all: BTreeMap<String, Definition> = BTreeMap::new();
    for attribute in attributes::ALL.iter().chain(spans::ALL) {
        // The names of objectives are in the configuration, so only the metrics' attribute has a fixed key.
        if !attribute.key.starts_with(OWN) || attribute.key == spans::VERDICT.key {
            continue;
        }
        let found = all.entry(attribute.key.to_owned()).or_insert_with(|| Definition {
            brief: attribute.description,
            values: Vec::new(),
            primitive: primitive(*attribute),
        });
        if let Values::Closed(values) = attribute.values {
            let new = values.iter().filter(|value| !found.values.contains(value));
            let new: Vec<_> = new.copied().collect();
            found.values.extend(new);
        }
    }
    all
}

fn primitive(attribute: Attribute) -> Option<&'static str> {
    let is_in = |list: &[Attribute]| list.iter().any(|it| it.key == attribute.key);
    match attribute.values {
        Values::Closed(["true"] | ["true", "false"]) => Some("boolean"),
        _ if is_in(&INTEGERS) => Some("int"),
        _ if is_in(&NUMBERS) || attribute.description.contains("in seconds") => Some("double"),
        Values::Closed(_) | Values::Gated | Values::Configured | Values::Any => None,
    }
}

fn instrument(metric: &Metric) -> &'static str {
    match metric.kind {
        Kind::Counter => "counter",
        Kind::UpDownCounter => "updowncounter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    }
}

fn references(text: &mut String, attributes: impl Iterator<Item = Attribute>) {
    let attributes: Vec<_> = attributes.filter(|it| it.key != spans::VERDICT.key).collect();
    if attributes.is_empty() {
        return;
    }
    line(text, "    attributes:");
    for attribute in attributes {
        line(text, &format!("      - ref: {}", attribute.key));
    }
}

fn file(section: &str) -> String {
    format!("{HEADER}file_format: definition/2\n{section}:\n")
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").unwrap();
}

/// Returns the text as a YAML scalar. A JSON string is one.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Returns the identifiers of the members of an enum. Equal ones, such as those of `session-id` and `session_id`, get a
/// number.
fn identifiers(values: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for value in values {
        let words = value.replace(">=", "at_least_").replace('<', "below_").to_lowercase();
        let safe = words.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '_' });
        let mut identifier: String = safe.collect();
        if identifier.starts_with(|first: char| first.is_ascii_digit()) {
            identifier.insert_str(0, "v_");
        }
        let equal = all.iter().filter(|it| **it == identifier).count();
        if equal > 0 {
            write!(identifier, "_{}", equal + 1).unwrap();
        }
        all.push(identifier);
    }
    all
}
