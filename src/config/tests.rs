//! Tests of the whole configuration: precedence, errors, printing, schema and documentation.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::load::load_text;
use super::*;
use crate::forward::ConcurrencyLimit;
use tokengauge_measure::slo::{Preset, Sli, SliKind};
use tokengauge_telemetry::MAX_CONFIGURED;
use tokengauge_telemetry::request_log::Destination;
use tokengauge_types::event::ProxyPosition;

const FILE: &str = "f.yaml";

fn text(text: &str) -> Result<Config, ConfigErrors> {
    with(text, RunArgs::default(), &[])
}

fn with(text: &str, args: RunArgs, variables: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    let args = RunArgs { config: Some(PathBuf::from(FILE)), ..args };
    let none = Tokenizers::default();
    load_text(Some(text), &args, &|name| variable(variables, name), &none)
}

fn flags(args: &RunArgs, variables: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    load(args, &|name| variable(variables, name))
}

fn variable(variables: &[(&str, &str)], name: &str) -> Option<String> {
    let value = variables.iter().find(|(known, _)| *known == name)?.1;
    Some(value.to_owned())
}

fn upstreams(urls: &[&str]) -> RunArgs {
    RunArgs { upstream: urls.iter().copied().map(Secret::new).collect(), ..RunArgs::default() }
}

/// The messages without the file name.
fn messages(result: Result<Config, ConfigErrors>) -> Vec<String> {
    let errors = result.expect_err("the configuration is invalid");
    let lines = errors.iter().map(ToString::to_string);
    lines.map(|line| line.trim_start_matches("f.yaml:").to_owned()).collect()
}

/// Returns the errors of a file that is valid except for `rest`.
fn errors_of(rest: &str) -> Vec<String> {
    messages(text(&format!("version: 1\nupstreams: {{a: {{url: \"http://a\"}}}}\n{rest}\n")))
}

/// A file with many kinds of errors.
const INVALID_FILE: &str = "\
version: 2
lisseners: []
listeners:
  - adress: 127.0.0.1:4000
    max_connections: many
    request_header_timeout: 30
  - address: nowhere
    tls: {certificate: a.pem}
upstreams:
  openai:
    url: https://me:secret@api.openai.com
    preserve_host: yes
    timeouts: {connect: 10s, tottal: off}
  groq:
    url: https://api.groq.com
    protocol: http3
routes:
  - upstream: opena
    position: sideways
  - name: x
    upstream: groq
    strip_prefix: true
    stall: {inter_token_after: 1ms}
    match: /groq
slos:
  - {name: slow, sli: ttft, target: 99.5}
  - {name: slow, sli: availability, target: 95%, threshold: 2s}
  - {sli: output_rate, threshold: 2s, target: 95%, scope: {route: grok}}
shutdown_grace_period: [30s]
shutdown_grace_period: 2d
";

const INVALID_FILE_ERRORS: &[&str] = &[
    "1:10: version: unsupported version 2; this release reads version 1",
    "2:1: lisseners: unknown key; did you mean \"listeners\"?",
    "4:5: listeners[0].adress: unknown key; did you mean \"address\"?",
    "4:5: listeners[0].address: missing key; write the address to listen on, such as `address: 127.0.0.1:4000`",
    "5:22: listeners[0].max_connections: \"many\" is not a whole number; write digits, such as 100",
    "6:29: listeners[0].request_header_timeout: \"30\" is missing a time unit; write a whole number and a unit (ms, s, m, h, \
             d), such as 250ms, 30s or 5m",
    "7:14: listeners[1].address: \"nowhere\" is not an address to listen on; write an IP address and a port, such as \
             127.0.0.1:4000, [::1]:4000 or, for all interfaces, [::]:4000; or unix:/path",
    "8:5: listeners[1].tls.key: missing key; name a PEM file",
    "11:10: upstreams.openai.url: the URL contains credentials; remove the part before the @: clients send \
             credentials in headers, which are forwarded unchanged",
    "12:20: upstreams.openai.preserve_host: \"yes\" is not a boolean; write true or false",
    "13:30: upstreams.openai.timeouts.tottal: unknown key; did you mean \"total\"?",
    "16:15: upstreams.groq.protocol: unknown value \"http3\"; did you mean \"http1\"?",
    "18:15: routes[0].upstream: no upstream named \"opena\"; did you mean \"openai\"?",
    "19:15: routes[0].position: unknown value \"sideways\"; expected one of inbound, outbound, gateway",
    "22:19: routes[1].strip_prefix: no prefix to strip; add match.prefix, or remove this key",
    "23:32: routes[1].stall.inter_token_after: 1ms is out of range; write a value from 250ms to 1h",
    "24:12: routes[1].match: found a single value; write a section of keys, one per line, indented below \
             this key",
    "26:5: slos[0].threshold: missing key; write the longest good time, such as 2s",
    "26:37: slos[0].target: 99.5 is not above 0 and below 1; write 99.5% if you mean a percentage; it \
             must be above 0% and below 100%",
    "27:12: slos[1].name: duplicate SLO name \"slow\"; use another name",
    "27:61: slos[1].threshold: availability has no threshold; remove this key",
    "28:5: slos[2].name: missing key; add one, such as chat-ttft",
    "28:35: slos[2].threshold: \"2s\" is not a threshold of this indicator; write the lowest good rate in \
             tokens per second, such as 15",
    "28:67: slos[2].scope.route: no route named \"grok\"; expected one of opena, x",
    "29:1: shutdown_grace_period: found a list; write a string",
    "30:1: shutdown_grace_period: duplicate key, first defined in line 29; remove one",
];

#[test]
fn reports_all_errors_at_once() {
    assert_eq!(messages(text(INVALID_FILE)), INVALID_FILE_ERRORS);
}

/// Each entry is read again for each of its errors, and the rest of the file is not.
#[test]
fn reports_all_errors_of_a_large_file() {
    let count = 2_000;
    let routes = "  - {stall: {inter_token_after: 1ms, first_token_after: 1ms}, position: x}\n"
        .repeat(count);
    let scalars = "  - 1\n".repeat(count);
    let upstreams: String = (0..count).map(|n| format!("  u{n}: {{}}\n  v{n}: 1\n")).collect();
    let file = format!("version: 1\nupstreams:\n{upstreams}routes:\n{routes}slos:\n{scalars}");
    let lengths = 2;
    assert_eq!(messages(text(&file)).len(), 2 * count + 4 * count + count + lengths);
}

/// Invalid parts of a configuration. Each has the beginning of its expected error.
const CHECKS: &[(&str, &str)] = &[
    ("routes: []", "3:1: routes: the list is empty"),
    (
        "routes: [{upstream: a}, {upstream: a, name: b}]",
        "3:25: routes[1]: route \"a\" matches the same requests",
    ),
    (
        "routes: [{upstream: a}, {upstream: a, match: {prefix: /x}}]",
        "3:25: routes[1]: duplicate route name \"a\"",
    ),
    ("routes: [{name: a b, upstream: a}]", "3:17: routes[0].name: \"a b\" is not a valid name"),
    (
        "routes: [{upstream: a, match: {host: \"http://h\"}}]",
        "3:38: routes[0].match.host: \"http://h\" is not a host",
    ),
    (
        "routes: [{upstream: a, match: {host: h:80}}]",
        "3:38: routes[0].match.host: \"h:80\" is not a host",
    ),
    (
        "routes: [{upstream: a, match: {host: \"::1\"}}]",
        "3:38: routes[0].match.host: \"::1\" is not a host",
    ),
    (
        "routes: [{upstream: a, match: {prefix: v1}}]",
        "3:40: routes[0].match.prefix: \"v1\" does not begin with /",
    ),
    ("routes: [{name: r}]", "3:10: routes[0].upstream: missing key"),
    ("listeners: []", "3:1: listeners: the list is empty"),
    (
        "listeners: [{address: 127.0.0.1:1}, {address: 127.0.0.1:1}]",
        "3:1: listeners: 127.0.0.1:1 is used twice",
    ),
    ("listeners: [{address: 127.0.0.1:4001}]", "3:1: listeners: 127.0.0.1:4001 is used twice"),
    (
        "listeners: [{address: 127.0.0.1:1, max_connections: 0}]",
        "3:53: listeners[0].max_connections: 0 is out of range",
    ),
    (
        "listeners: [{address: 127.0.0.1:1, max_connections: \"5\"}]",
        "3:53: listeners[0].max_connections: \"5\" is in quotes",
    ),
    ("listeners: [null]", "3:13: listeners[0]: the entry is empty"),
    ("listeners:\n  - address: 127.0.0.1:1\n  -\n", "5:4: listeners[1]: the entry is empty"),
    ("routes: [{upstream: a}, ~]", "3:25: routes[1]: the entry is empty"),
    ("slos: [null]", "3:8: slos[0]: the entry is empty"),
    (
        "propagators: [b3, ]\nidentity: {tenant: {headers: [null]}}",
        "4:31: identity.tenant.headers[0]: the entry is",
    ),
    (
        "shutdown_grace_period: 2h",
        "3:24: shutdown_grace_period: 2h is out of range; write a value from 0s to 1h",
    ),
    ("cardinality_limits: {models: 5000}", "3:30: cardinality_limits.models: 5000 is out of range"),
    ("limits: {observer_memory: 1KiB}", "3:27: limits.observer_memory: 1KiB is out of range"),
    ("limits: {header_lines: 9}", "3:24: limits.header_lines: 9 is out of range"),
    ("limits: {header_size: 1KiB}", "3:23: limits.header_size: 1KiB is out of range"),
    ("otlp: {interval: 1ms}", "3:18: otlp.interval: 1ms is out of range"),
    ("otlp: {headers: {\"a b\": secret}}", "3:25: otlp.headers.a b: not a valid header name"),
    ("otlp: {headers: {a: \"sec\\nret\"}}", "3:21: otlp.headers.a: not a valid header value"),
    (
        "slos: [{name: a, sli: duration, target: 95%, threshold: 0s}]",
        "3:57: slos[0].threshold: \"0s\" is not a threshold",
    ),
    (
        "slos: [{name: a, sli: availability, target: 95%, window: 30m}]",
        "3:58: slos[0].window: 30m is out of range; write a value from 1h to 90d",
    ),
    (
        "slos: [{name: a, sli: availability, target: 95%, scope: {model: \"\"}}]",
        "3:65: slos[0].scope.model: empty pattern",
    ),
    ("slos: {}", "3:1: slos: found a section of keys; write a list"),
    ("admin: {address: localhost}", "3:18: admin.address: \"localhost\" is n"),
    (
        "admin: {token_file: /nowhere/token}",
        "3:21: admin.token_file: cannot read the file: No such file",
    ),
];

#[test]
fn reports_single_errors() {
    for (rest, expected) in CHECKS {
        let message = errors_of(rest);
        let [only] = message.as_slice() else {
            panic!("{rest}: {message:#?}");
        };
        assert!(only.starts_with(expected), "{rest}: {only}");
        assert!(!only.contains("secret"), "{only}");
    }
}

#[test]
fn accepts_host_names_wildcards_and_addresses() {
    for (host, kept) in [
        ("LLM.Example.com", "llm.example.com"),
        ("\"*.example.com\"", "*.example.com"),
        ("10.0.0.1", "10.0.0.1"),
        ("\"[::1]\"", "[::1]"),
        ("a_b", "a_b"),
    ] {
        let file = format!(
            "version: 1\nupstreams: {{a: {{url: http://a}}}}\nroutes: [{{upstream: a, match: {{host: {host}}}}}]"
        );
        let config = text(&file).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(config.routes[0].host.as_deref(), Some(kept));
    }
}

#[test]
fn scrapes_engines_at_the_upstream_or_at_a_url() {
    let file = "version: 1\nroutes: [{upstream: a}]\nupstreams:\n  \
                a: {url: \"https://h:8443/v1\", ca_file: ca.pem, engine_metrics: {}}\n  \
                b: {url: \"http://h\", engine_metrics: {url: \"http://m:8002/metrics/\"}}\n  \
                c: {url: \"http://h\"}\n";
    let config = text(file).unwrap();
    let asked = config.scrapes.iter().map(|scrape| {
        let to = &scrape.to;
        let place = (to.tls, to.host.as_str(), to.port, to.base_path.as_str());
        (scrape.upstream.as_str(), place, to.ca_file.is_some())
    });
    assert_eq!(
        asked.collect::<Vec<_>>(),
        [("a", (true, "h", 8443, "/metrics"), true), ("b", (false, "m", 8002, "/metrics/"), false),]
    );
    assert_eq!(config.warmup, []);
}

#[test]
fn reports_errors_of_upstreams() {
    let cases = [
        ("upstreams: {}", "2:1: upstreams: the section is empty"),
        ("upstreams: {a: }", "2:13: upstreams.a.url: missing key"),
        ("upstreams: {a: {}}", "2:13: upstreams.a.url: missing key"),
        ("upstreams: [a]", "2:1: upstreams: found a list; write a section of keys"),
        ("upstreams: {a b: {url: http://a}}", "2:13: upstreams.a b: \"a b\" is not a valid name"),
        (
            "upstreams: {a: {url: http://a, timeouts: {total: 2d}}}",
            "2:50: upstreams.a.timeouts.total: out of range",
        ),
        (
            "upstreams: {a: {url: http://a, pool: {idle_timeout: 1h}}}",
            "2:53: upstreams.a.pool.idle_timeout: 1h is out of range",
        ),
        (
            "upstreams: {a: {url: http://a, engine_metrics: {url: \"http://me:x@a/metrics\"}}}",
            "2:54: upstreams.a.engine_metrics.url: the URL contains credentials",
        ),
        (
            "upstreams: {a: {url: http://a, engine_metrics: {engine: vlm}}}",
            "2:57: upstreams.a.engine_metrics.engine: unknown value \"vlm\"; did you mean \"vllm\"?",
        ),
        (
            "upstreams: {a: {url: http://a, engine_metrics: {scrape_interval: 10ms}}}",
            "2:66: upstreams.a.engine_metrics.scrape_interval: 10ms is out of range",
        ),
        (
            "upstreams: {a: {url: http://a, warmup: {min_requests: 2000}}}",
            "2:55: upstreams.a.warmup.min_requests: 2000 is out of range",
        ),
        (
            "upstreams: {a: {url: http://a}, b: {url: http://b}}",
            "1:1: routes: missing key; there are 2 upstreams",
        ),
        ("shutdown_grace_period: 5s", "1:1: upstreams: missing key; add an upstream"),
    ];
    for (upstreams, expected) in cases {
        let message = messages(text(&format!("version: 1\n{upstreams}\n")));
        let [only] = message.as_slice() else {
            panic!("{upstreams}: {message:#?}");
        };
        assert!(only.starts_with(expected), "{upstreams}: {only}");
    }
}

#[test]
fn lists_that_metrics_have_series_for_are_bounded() {
    let upstreams: String =
        (0..=MAX_CONFIGURED).map(|n| format!("  up-{n}: {{url: \"http://a\"}}\n")).collect();
    let routes: String = (0..=MAX_CONFIGURED)
        .map(|n| format!("  - {{name: r-{n}, match: {{prefix: /{n}}}, upstream: up-0}}\n"))
        .collect();
    let slos: String = (0..=MAX_CONFIGURED)
        .map(|n| format!("  - {{name: s-{n}, sli: availability, target: 99%}}\n"))
        .collect();
    let file = format!("version: 1\nupstreams:\n{upstreams}routes:\n{routes}slos:\n{slos}");
    let expected = ["upstreams", "routes", "SLOs"]
        .map(|what| format!("there are 513 {what}; write at most 512"));
    let messages = messages(text(&file));
    for message in &expected {
        assert!(messages.iter().any(|found| found.contains(message)), "{message}: {messages:#?}");
    }
    assert_eq!(messages.len(), expected.len(), "{messages:#?}");
}

#[test]
fn reports_upstreams_that_are_listeners() {
    for (listener, url, is_loop) in [
        ("127.0.0.1:4000", "http://127.0.0.1:4000", true),
        ("127.0.0.1:4000", "http://LOCALHOST:4000/v1", true),
        ("127.0.0.1:80", "http://localhost", true),
        ("0.0.0.0:4000", "http://127.1.2.3:4000", true),
        ("0.0.0.0:4000", "https://localhost:4000", true),
        ("'[::]:4000'", "http://[::1]:4000", true),
        ("'[::]:4000'", "http://127.0.0.1:4000", true),
        ("10.0.0.1:4000", "http://10.0.0.1:4000", true),
        ("127.0.0.1:4000", "http://127.0.0.1:8000", false),
        ("127.0.0.1:4000", "http://127.0.0.2:4000", false),
        ("10.0.0.1:4000", "http://localhost:4000", false),
        ("0.0.0.0:4000", "http://[::1]:4000", false),
        ("0.0.0.0:4000", "http://vllm:4000", false),
        ("unix:/run/s", "http://localhost:4000", false),
    ] {
        let file = format!(
            "version: 1\nlisteners: [{{address: {listener}}}]\nupstreams: {{a: {{url: '{url}'}}}}\n"
        );
        let expected = "3:22: upstreams.a.url: the address is the listener ";
        match text(&file) {
            Ok(_) => assert!(!is_loop, "{file}"),
            Err(_) => {
                let message = messages(text(&file));
                assert!(is_loop && message[0].starts_with(expected), "{message:?}");
            }
        }
    }
    let message = flags(&upstreams(&["http://127.0.0.1:4000"]), &[]).unwrap_err().to_string();
    assert!(message.starts_with("--upstream: the address is the listener"), "{message}");
}

#[test]
fn reports_empty_files() {
    for empty in ["", "\n\n", "# nothing yet\n", "---\n", "~\n"] {
        let message = messages(text(empty));
        assert!(
            matches!(message.as_slice(), [only] if only.starts_with("1:1: the file is empty; write at least")),
            "{empty:?}: {message:?}"
        );
    }
    assert_eq!(
        messages(text("just words\n")),
        [
            "1:1: found a single value; write a section of keys, one per line, indented below this key"
        ]
    );
    assert!(text("upstreams: {a: {url: http://a}}").is_ok(), "the newest version is the default");
}

#[test]
fn requires_an_upstream() {
    let message = flags(&RunArgs::default(), &[]).unwrap_err().to_string();
    assert!(message.contains("tokengauge run --upstream https://api.openai.com"), "{message}");
    let args =
        RunArgs { listen: vec!["127.0.0.1:4001".parse().unwrap()], ..upstreams(&["http://a"]) };
    let message = flags(&args, &[]).unwrap_err().to_string();
    assert!(message.starts_with("--listen: 127.0.0.1:4001 is used twice"), "{message}");
}

#[test]
fn needs_only_an_upstream() {
    let config = flags(&upstreams(&["https://api.openai.com/base"]), &[]).unwrap();
    let listen = tokengauge_listen::ListenerConfig::at(tokengauge_listen::Address::Tcp(
        "127.0.0.1:4000".parse().unwrap(),
    ));
    let listen = tokengauge_listen::ListenerConfig { marks_large_headers: true, ..listen };
    assert_eq!(config.listeners, [listen]);
    assert_eq!(config.file.admin.address.to_string(), "127.0.0.1:4001");
    let [upstream] = config.upstreams.as_slice() else {
        panic!("{:?}", config.upstreams);
    };
    assert_eq!(
        (upstream.name.as_str(), upstream.tls, upstream.host.as_str(), upstream.port),
        ("default", true, "api.openai.com", 443)
    );
    assert_eq!(upstream.base_path, "/base");
    assert_eq!(upstream.idle_timeout, forward::UpstreamConfig::IDLE_TIMEOUT_TLS);
    let [route] = config.routes.as_slice() else {
        panic!("{:?}", config.routes);
    };
    assert_eq!((route.prefix.as_str(), route.strip, &route.host), ("", false, &None));
    assert_eq!(route.facts.server_address.as_str(), "api.openai.com");
}

#[test]
fn has_default_objectives() {
    let config = flags(&upstreams(&["https://api.openai.com/base"]), &[]).unwrap();
    let objectives: Vec<_> = config
        .slos
        .iter()
        .map(|objective| (objective.name.as_str(), objective.indicator, objective.target))
        .collect();
    assert_eq!(
        objectives,
        [
            ("availability", Sli::Availability, 0.995),
            ("ttft", Sli::Ttft(Duration::from_secs(2)), 0.95),
            ("output_rate", Sli::OutputRate(15.0), 0.95),
            ("duration", Sli::Duration(Duration::from_secs(60)), 0.95),
        ]
    );
    let thirty_days = Duration::from_secs(30 * 24 * 3_600);
    assert!(config.slos.iter().all(|objective| objective.window == thirty_days));
}

/// The objectives of a file, formatted.
fn objectives(written: &str) -> Vec<String> {
    let base = "version: 1\nupstreams: {a: {url: http://a}}\nslos:\n";
    let config = text(&format!("{base}{written}\n")).unwrap_or_else(|errors| panic!("{errors}"));
    let message = config.slos.iter().map(|objective| {
        let counting = &objective.counting;
        let bounds = (objective.indicator.longest(), objective.indicator.lowest());
        format!(
            "{} {} {bounds:?} {} {:?} {:?} {counting:?}",
            objective.name,
            objective.indicator.as_str(),
            objective.target,
            objective.window,
            objective.scope.route.as_ref().map(ToString::to_string),
        )
    });
    message.collect()
}

#[test]
fn supports_every_indicator() {
    let words = [
        ("availability", ""),
        ("ttft", "threshold: 1s"),
        ("first_visible", "threshold: 1s"),
        ("output_rate", "threshold: 2"),
        ("total_rate", "threshold: 2"),
        ("stall_free", ""),
        ("inter_token", "threshold: 1s"),
        ("duration", "threshold: 1s"),
        ("tokens_above_rate", "threshold: 2"),
        ("system_rate", "threshold: 2, min_streams: 3"),
    ];
    for ((word, rest), message) in words.into_iter().zip(SliKind::ALL.map(SliKind::as_str)) {
        let written = format!("  - {{name: x, target: 95%, sli: {word}, {rest}}}");
        let bound = match rest.split(',').next().unwrap() {
            "" => "(None, None)",
            "threshold: 1s" => "(Some(1s), None)",
            _ => "(None, Some(2.0))",
        };
        let read = &objectives(&written)[0];
        assert!(read.starts_with(&format!("x {message} {bound}")), "{read}");
    }
}

#[test]
fn expands_presets_with_their_name_or_another() {
    let message = objectives(
        "  - preset: batch\n  - {preset: batch, name: nightly, target: 90%, window: 7d, warmup: 1m, \
         exclude: [overload], scope: {route: a}}",
    );
    let none = "CountingRules { warmup: 0ns, min_output_tokens: None, exclude: [] }";
    let some = "CountingRules { warmup: 60s, min_output_tokens: None, exclude: [Overload] }";
    let route = "Some(\"a\")";
    assert_eq!(
        message,
        [
            format!("batch-availability availability (None, None) 0.99 2592000s None {none}"),
            format!("batch-duration duration (Some(600s), None) 0.95 2592000s None {none}"),
            format!("batch-total_rate total_rate (None, Some(10.0)) 0.95 2592000s None {none}"),
            format!("nightly-availability availability (None, None) 0.9 604800s {route} {some}"),
            format!("nightly-duration duration (Some(600s), None) 0.9 604800s {route} {some}"),
            format!("nightly-total_rate total_rate (None, Some(10.0)) 0.9 604800s {route} {some}"),
        ]
    );
}

#[test]
fn prints_the_objectives_of_a_preset() {
    let base = "version: 1\nupstreams: {a: {url: http://a}}\nslos: [{preset: voice}]\n";
    let printed = text(base).unwrap().yaml;
    assert!(!printed.contains("preset: voice"), "{printed}");
    for word in ["voice-first_visible", "first_visible", "300ms", "100", "95%"] {
        assert!(
            printed.contains(word) || word == "95%" && printed.contains("0.95"),
            "{word}: {printed}"
        );
    }
}

#[test]
fn reports_conflicting_keys_of_an_objective() {
    let one = |rest: &str| {
        let message = errors_of(&format!("slos: [{{name: x, target: 95%, {rest}}}]"));
        message.join("\n")
    };
    for (rest, expected) in [
        ("sli: stall_free, threshold: 2s", "stall_free has no threshold"),
        ("sli: system_rate, threshold: 2", "write how many streams must be in flight"),
        (
            "sli: system_rate, min_streams: 0, threshold: 2",
            "0 is out of range; write a value from 1 to 1000000",
        ),
        ("sli: ttft, threshold: 2s, min_streams: 3", "only system_rate uses the number of streams"),
        ("sli: ttft, threshold: 2s, min_output_tokens: 3", "does not rate single exchanges"),
        (
            "sli: inter_token, threshold: 2",
            "\"2\" is not a threshold of this indicator; write the longest good time",
        ),
        ("sli: availability, warmup: 2d", "write a value from 0s to 1d"),
        (
            "sli: availability, exclude: [timeouts]",
            "unknown value \"timeouts\"; expected one of rate_limited, overload, shutdown, warming",
        ),
        (
            "sli: availability, scope: {operation: chats}",
            "unknown operation \"chats\"; did you mean \"chat\"?",
        ),
        (
            "sli: availability, scope: {tenant: acme}",
            "requests carry no tenant; configure identity.tenant",
        ),
        ("preset: caht", "did you mean \"chat\"?"),
        ("preset: chat, threshold: 2s", "slos[0].threshold: a preset defines this"),
    ] {
        let message = one(rest);
        assert!(message.contains(expected), "{rest}: {message}");
        assert_eq!(message.lines().count(), 1, "{rest}: {message}");
    }
    let twice = errors_of("slos: [{preset: chat}, {preset: chat, scope: {route: a}}]");
    assert_eq!(twice.len(), 1, "{twice:?}");
    assert!(twice[0].contains("duplicate SLO name \"chat-availability\""));
    let path = errors_of("slo_state: {}");
    assert!(path[0].contains("slo_state.path: missing key"));
}

#[test]
fn strips_the_prefix_of_upstream_flags() {
    let config =
        flags(&upstreams(&["/openai=https://o/v1", "/a/b/=http://b:8000", "http://rest"]), &[]);
    let config = config.unwrap();
    let routes: Vec<_> = config
        .routes
        .iter()
        .map(|route| {
            (route.upstream.as_str(), route.prefix.as_str(), route.strip, route.facts.stripped)
        })
        .collect();
    assert_eq!(
        routes,
        [("openai", "/openai", true, 7), ("a/b", "/a/b", true, 4), ("default", "", false, 0)]
    );
    for clash in [
        ["http://a", "http://b"],
        ["/a=http://a", "/a/=http://b"],
        ["/default=http://a", "http://b"],
    ] {
        let message = flags(&upstreams(&clash), &[]).unwrap_err().to_string();
        assert!(message.starts_with("--upstream: two upstreams for the route"), "{message}");
    }
    let message = flags(&upstreams(&["nowhere", "/x", "http://h?key=secret"]), &[]).unwrap_err();
    assert_eq!(message.iter().count(), 3, "{message}");
}

#[test]
fn applies_provider_and_engine_metrics_flags() {
    let args = RunArgs {
        provider: Some("vllm".to_owned()),
        engine_metrics: Some(true),
        ..upstreams(&["/a=http://a:8000/v1", "https://b"])
    };
    let config = flags(&args, &[]).unwrap();
    let providers = config.routes.iter().map(|route| &route.facts.provider);
    assert!(providers.flatten().map(Label::as_str).eq(["vllm", "vllm"]));
    let asked = config.scrapes.iter().map(|scrape| {
        let to = &scrape.to;
        let place = (to.tls, to.host.as_str(), to.port, to.base_path.as_str());
        (scrape.upstream.as_str(), place, scrape.engine)
    });
    assert_eq!(
        asked.collect::<Vec<_>>(),
        [
            ("a", (false, "a", 8000, "/metrics"), None),
            ("default", (true, "b", 443, "/metrics"), None),
        ]
    );
    let off = RunArgs { provider: None, engine_metrics: Some(false), ..args.clone() };
    let off = flags(&off, &[]).unwrap();
    assert!(off.scrapes.is_empty() && off.routes[0].facts.provider.is_none());

    let alone = RunArgs { upstream: Vec::new(), ..args.clone() };
    let file = "version: 1\nupstreams: {a: {url: http://a}}\n";
    let unused = messages(with(file, alone, &[]));
    assert_eq!(unused.len(), 2, "{unused:?}");
    assert!(unused[1].starts_with("--engine-metrics: requires --upstream"));
    assert!(unused[0].starts_with("--provider: requires --upstream"));
    let odd = RunArgs { provider: Some("my engine".to_owned()), ..args };
    let odd = flags(&odd, &[]).unwrap_err().to_string();
    assert!(odd.starts_with("--provider: \"my engine\" is not a valid name"), "{odd}");
}

#[test]
fn preset_flag_replaces_the_objectives_of_the_file() {
    let chat = || RunArgs { slos: Some(Preset::Batch), ..upstreams(&["http://a"]) };
    let names = |config: &Config| -> Vec<String> {
        let objectives = config.slos.iter();
        objectives.map(|it| it.name.to_string()).collect()
    };
    let batch = ["batch-availability", "batch-duration", "batch-total_rate"];
    assert_eq!(names(&flags(&chat(), &[]).unwrap()), batch);
    let file =
        |slos: &str| format!("version: 1\nupstreams: {{a: {{url: http://a}}}}\nslos: [{slos}]\n");
    let preset = text(&file("{preset: batch}")).unwrap();
    let flagged = with(&file("{preset: voice}"), chat(), &[]).unwrap();
    assert_eq!(flagged.slos, preset.slos);
    let message = messages(with(&file("{preset: noise}"), chat(), &[]));
    assert_eq!(message.len(), 1, "{message:?}");
}

#[test]
fn warns_if_the_listen_flag_removes_tls() {
    let file = "\
listeners: [{address: \"127.0.0.1:1\", tls: {certificate: c.pem, key: k.pem}}]
upstreams: {a: {url: http://a}}
";
    let warnings = |listen: &str, cert: Option<&str>| {
        let args = RunArgs {
            listen: vec![listen.parse().unwrap()],
            tls_cert: cert.map(Into::into),
            tls_key: cert.map(Into::into),
            ..RunArgs::default()
        };
        let config = with(file, args, &[]).unwrap();
        config.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let lost = warnings("127.0.0.1:0", None);
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert!(lost[0].starts_with("--listen: replaces the listeners of the file"), "{lost:?}");
    assert!(lost[0].contains("without TLS; add --tls-cert and --tls-key"), "{lost:?}");
    assert_eq!(warnings("127.0.0.1:0", Some("f.pem")), [""; 0]);
    assert_eq!(warnings("unix:/s", None), [""; 0]);
}

#[test]
fn flags_and_variables_take_precedence_over_the_file() {
    let file = "\
version: 1
listeners: [{address: 127.0.0.1:1}, {address: \"unix:/run/s\"}]
admin: {address: 127.0.0.1:2, token_file: /nowhere}
upstreams: {a: {url: http://a}, b: {url: http://b}}
shutdown_grace_period: 1s
position: inbound
log: {level: warn, format: json}
";
    let args = RunArgs {
        admin: Some("127.0.0.1:12".parse().unwrap()),
        shutdown_grace_period: Some("11s".parse().unwrap()),
        position: Some(ProxyPosition::Gateway),
        log_level: Some(LogLevel::Trace),
        tls_cert: Some("c.pem".into()),
        tls_key: Some("k.pem".into()),
        ..upstreams(&["http://c"])
    };
    let token = [("TOKENGAUGE_ADMIN_TOKEN", "token")];
    let config = with(file, args.clone(), &token).unwrap();
    let tls: Vec<bool> = config.listeners.iter().map(|listener| listener.tls.is_some()).collect();
    assert_eq!(tls, [true, false], "TLS is for TCP");
    let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    let expected = "--tls-cert: Unix sockets have no TLS; served without TLS: /run/s; with TLS: all TCP listeners";
    assert_eq!(warnings, [expected]);
    assert_eq!(config.file.admin.address.0.port(), 12);
    assert_eq!(config.file.admin.token, Some(Secret::new("token")));
    assert_eq!(config.file.admin.token_file, None);
    assert_eq!((config.upstreams.len(), config.routes.len()), (1, 1));
    assert_eq!(
        (config.file.shutdown_grace_period.get(), config.file.position),
        (Duration::from_secs(11), ProxyPosition::Gateway)
    );
    assert_eq!(config.routes[0].facts.position, ProxyPosition::Gateway);
    assert_eq!(config.file.log, Log { level: LogLevel::Trace, format: LogFormat::Json });

    let socket = RunArgs { listen: vec!["unix:/s".parse().unwrap()], ..args.clone() };
    let message = messages(with(file, socket, &token));
    assert!(message[0].starts_with("--tls-cert: no listener has a TCP address"), "{message:?}");

    let args = RunArgs { listen: vec!["127.0.0.1:0".parse().unwrap()], tls_key: None, ..args };
    let message = messages(with(file, args.clone(), &token));
    assert_eq!(message, ["--tls-cert: the key is missing; add --tls-key"]);
    let args = RunArgs { tls_cert: None, ..args };
    let config = with(file, args, &token).unwrap();
    assert_eq!(config.listeners.len(), 1);
}

#[test]
fn reports_errors_in_flags_and_variables_with_those_of_the_file() {
    let args = RunArgs {
        shutdown_grace_period: Some("2d".parse().unwrap()),
        tls_key: Some("k.pem".into()),
        ..upstreams(&["ftp://h"])
    };
    let variables =
        [("TOKENGAUGE_ADMIN_TOKEN", "two words"), ("HTTPS_PROXY", "http://me:secret@h:port x")];
    let message = messages(with("version: 1\ncolour: red\n", args, &variables));
    let keys: BTreeSet<&str> =
        message.iter().map(|line| line.split(": ").next().unwrap()).collect();
    let expected = [
        "--shutdown-grace-period",
        "--tls-key",
        "--upstream",
        "2:1",
        "HTTPS_PROXY",
        "TOKENGAUGE_ADMIN_TOKEN",
    ];
    assert_eq!(keys, BTreeSet::from(expected), "{message:#?}");
    assert!(message.iter().all(|line| !line.contains("words") && !line.contains("secret")));
}

#[test]
fn empty_variables_count_as_unset() {
    let default = flags(&upstreams(&["https://h.example"]), &[]).unwrap();
    for name in [
        "TOKENGAUGE_ADMIN_TOKEN",
        "TOKENGAUGE_IDENTITY_KEY",
        "OTEL_PROPAGATORS",
        "HTTPS_PROXY",
        "http_proxy",
        "all_proxy",
        "NO_PROXY",
    ] {
        for value in ["", " "] {
            let config = flags(&upstreams(&["https://h.example"]), &[(name, value)]).unwrap();
            assert_eq!(config.file.admin, default.file.admin, "{name}");
            assert_eq!(config.upstreams, default.upstreams, "{name}");
            assert_eq!((config.identity_key, config.yaml), (None, default.yaml.clone()), "{name}");
            assert!(config.warnings.is_empty(), "{name}: {:?}", config.warnings);
        }
    }
}

#[test]
fn an_empty_token_variable_does_not_replace_the_token_file() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "from-file").unwrap();
    let file = format!(
        "version: 1\nupstreams: {{a: {{url: http://a}}}}\nadmin: {{token_file: {}}}\n",
        token.display()
    );
    let config = with(&file, RunArgs::default(), &[("TOKENGAUGE_ADMIN_TOKEN", "")]).unwrap();
    assert_eq!(config.file.admin.token, Some(Secret::new("from-file")));
    assert_eq!(config.file.admin.token_file, Some(value::FilePath(token)));
}

#[test]
fn errors_never_show_queries_and_user_information_of_urls() {
    for rest in [
        "upstreams: {a: {url: http://h, engine_metrics: {url: \"/metrics?key=hunter2\"}}}",
        "upstreams: {a: {url: http://h, engine_metrics: {url: \"http://b/metrics?key=hunter2\"}}}",
        "upstreams: {a: {url: http://h, engine_metrics: {url: \"b?key=hunter2\"}}}",
        "upstreams: {a: {url: \"h?key=hunter2\"}}",
        "upstreams: {\"http://h?key=hunter2\": {}}",
        "upstreams: {\"http://me:hunter2@h\": {}}",
        "upstreams: {a: {url: http://h}}\nroutes: [{upstream: a, match: {prefix: \"/a?key=hunter2\"}}]",
        "upstreams: {a: {url: http://h}}\nroutes: [{upstream: \"http://h?key=hunter2\"}]",
        "upstreams: {a: {url: http://h}}\nroutes: [{upstream: a, match: {host: \"http://h?key=hunter2\"}}]",
        "upstreams: {a: {url: http://h}}\nlisteners: [{address: \"http://h?key=hunter2\"}]",
        "upstreams: {a: {url: http://h}}\nadmin: {address: \"http://me:hunter2@h\"}",
        "upstreams: {a: {url: http://h}}\notlp: {endpoint: \"http://h?key=hunter2\"}",
        "upstreams: {a: {url: http://h}}\n\"http://h?key=hunter2\": 1",
    ] {
        let messages = messages(text(&format!("version: 1\n{rest}\n")));
        assert!(!messages.is_empty(), "{rest}");
        assert!(messages.iter().all(|line| !line.contains("hunter2")), "{messages:?}");
    }
    let message =
        messages(flags(&upstreams(&["http://h"]), &[("NO_PROXY", "http://h/?key=hunter2")]));
    assert!(!message[0].contains("hunter2"), "{message:?}");
}

/// One change per key that takes effect only at the next start.
const RESTART_CHANGES: &[(&str, &str)] = &[
    ("listeners", "listeners: [{address: 127.0.0.1:9}]"),
    ("admin", "admin: {address: 127.0.0.1:9}"),
    ("console", "console: false"),
    ("slo_state", "slo_state: {path: a}"),
    ("cardinality_limits", "cardinality_limits: {models: 9}"),
    ("telemetry", "telemetry: {profile: lean}"),
    ("otlp", "otlp: {interval: 9s}"),
    ("limits", "limits: {observer_memory: 9MiB}"),
    ("limits", "limits: {header_lines: 99}"),
    ("propagators", "propagators: [b3]"),
    ("log", "log: {level: debug}"),
];

#[test]
fn names_changes_that_require_a_restart() {
    let base = "version: 1\nupstreams: {a: {url: http://a}}\n";
    let old = text(base).unwrap();
    assert_eq!(old.file.changed_restart_keys(&old.file), [""; 0]);
    for (key, change) in RESTART_CHANGES {
        let new = text(&format!("{base}{change}\n")).unwrap();
        assert_eq!(old.file.changed_restart_keys(&new.file), [*key]);
    }
    let reloadable = "shutdown_grace_period: 9s\nposition: gateway\ntrace_context: continue\nroutes: [{upstream: a, name: z}]\nslos: []\n";
    let new = text(&format!("{base}{reloadable}")).unwrap();
    assert_eq!(old.file.changed_restart_keys(&new.file), [""; 0]);
}

#[test]
fn a_reload_keeps_and_prints_the_values_that_need_a_restart() {
    let base = "version: 1\nupstreams: {a: {url: http://a}}\n";
    let running = text(base).unwrap();
    for (key, change) in RESTART_CHANGES {
        let new = text(&format!("{base}{change}\nshutdown_grace_period: 9s\n")).unwrap();
        assert_ne!(new.yaml, running.yaml);
        let applied = new.as_applied_to(&running);
        assert_eq!(running.file.changed_restart_keys(&applied.file), [""; 0], "{key}");
        assert_eq!(
            applied.file.shutdown_grace_period.get(),
            Duration::from_secs(9),
            "{key}: other keys are reloaded"
        );
        let others = text(&format!("{base}shutdown_grace_period: 9s\n")).unwrap();
        assert_eq!(applied.yaml, others.yaml, "{key}");
    }
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the configuration files of the proxy in `examples`. Files for other programs are omitted.
fn examples() -> Vec<PathBuf> {
    const OTHERS: [&str; 2] = ["collector", "prometheus"];
    let entries = std::fs::read_dir(repository("examples")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let examples: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            !OTHERS.iter().any(|other| name.starts_with(other))
        })
        .collect();
    assert!(examples.len() >= 3, "{examples:?}");
    examples
}

#[test]
fn examples_are_valid_and_survive_printing() {
    for example in examples() {
        let config =
            check(&example, ReferencedFiles::Verify).unwrap_or_else(|errors| panic!("{errors}"));
        let printed = config.yaml.clone();
        let again = text(&printed).unwrap_or_else(|errors| panic!("{errors}\n{printed}"));
        assert_eq!(format!("{config:?}"), format!("{again:?}"), "{printed}");
    }
}

#[test]
fn connections_remain_to_reject_requests_unless_their_limit_is_set() {
    for (keys, expected) in [("", (9000, 8192)), (", max_connections: 50", (50, 50))] {
        let listeners = format!("listeners: [{{address: 127.0.0.1:1{keys}}}]");
        let file = format!("version: 1\nupstreams: {{a: {{url: http://a}}}}\n{listeners}\n");
        let listener = &text(&file).unwrap().listeners[0];
        assert_eq!((listener.max_connections, listener.max_requests), expected);
    }
}

/// A file with every key.
const EVERY_KEY: &str = "\
version: 1
listeners:
  - {address: 127.0.0.1:1, tls: {certificate: c.pem, key: k.pem}, max_connections: 5, max_requests: 9,
     request_header_timeout: 1s, request_body_timeout: 2s, send_timeout: 4s, idle_timeout: 3s}
  - address: unix:/run/s
admin: {address: \"[::1]:9\"}
console: {enabled: false, trace_url: \"http://t/{trace_id}\", hide_names: true}
upstreams:
  a: {url: \"http://[::1]:8000/v1\", protocol: http2, preserve_host: true, ca_file: ca.pem,
      timeouts: {connect: off, response_header: 1m, idle: 90s, total: 1h}, pool: {idle_timeout: 1s, max_idle_connections: 0, retry: always},
      engine_metrics: {url: /m/, engine: sglang, scrape_interval: 9s, scrape_timeout: 800ms},
      warmup: {idle_timeout: 2h, min_requests: 7, startup_grace: 0s, cold_load_threshold: 40ms}}
  b: {url: \"http://b\", engine_metrics: {url: \"https://c:8002\"}, warmup: {}}
routes:
  - {name: r, match: {host: \"*.Example.com\", prefix: /v1/}, upstream: a, strip_prefix: true, api_format: openai, provider: vllm,
     position: inbound, trace_context: continue, stall: {inter_token_after: 1500ms, first_token_after: 5m},
     concurrency_limit: {max_in_flight: 8, max_queue: 0, queue_timeout: 90s},
     content: {capture: true, max_bytes: 2KiB, redact: [emails, /a+/]}}
slos:
  - {name: o, sli: output_rate, threshold: 12.5, target: 99.9%, window: 7d, min_output_tokens: 50, warmup: 5m,
     exclude: [shutdown, rate_limited, warming], scope: {route: r, model: gpt-*, tenant: acme, operation: chat, stream: true}}
  - {name: d, sli: duration, threshold: 90s, target: 0.5}
  - {name: s, sli: system_rate, threshold: 500, min_streams: 8, target: 99%}
  - {preset: voice, name: v, window: 90d}
slo_state: {path: /var/lib/tokengauge/slo}
cost: {prices: examples/prices/flat.yaml, budgets: [{name: b, tenant: acme, route: r, model: gpt-*, money: {amount: 5.5, currency: EUR}, window: 1d}, {name: c, tokens: 9}]}
identity: {tenant: {headers: [x-api-key], hash: true}, session: {headers: [x-s], hash: true, detect: false}, variant: {headers: [x-v, x-w]}}
cardinality_limits: {models: 1, providers: 2, finish_reasons: 3, error_types: 4, tenants: 5, variants: 6, tools: 7, length_buckets: true}
telemetry: {profile: lean}
otlp: {endpoint: \"http://c:4317\", protocol: http/protobuf, interval: 15s, headers: {x-key: s3cret}, genai_names: off}
limits: {observer_memory: 64MiB, header_lines: 70, header_size: 9KiB}
shutdown_grace_period: 0s
position: gateway
trace_context: continue
propagators: [b3, tracecontext]
log: {level: error, format: json}
request_log: {path: stdout, rotate: {size: 2MiB, max_files: 0}}
workload_drift: {baseline: yesterday, sample_size: 300}
";

#[test]
fn prints_every_key() {
    let config = text(EVERY_KEY).unwrap();
    let printed = config.yaml.clone();
    assert!(!printed.contains("s3cret") && printed.contains("***"), "{printed}");
    let again = text(&printed).unwrap_or_else(|errors| panic!("{errors}\n{printed}"));
    assert_eq!(format!("{config:?}"), format!("{again:?}"), "{printed}");
    let key = &config.file.otlp.headers["x-key"].value.0;
    assert_eq!(key.expose(), "s3cret", "the export itself needs the secret");
    let schema = schema_value();
    let mut stated = BTreeSet::new();
    walk(&schema, &schema, "", &mut |path, _| {
        stated.insert(path.to_owned());
    });
    for path in &stated {
        let last = path.rsplit('.').next().unwrap().trim_end_matches("[]");
        assert!(
            last == "*" || last == "token_file" || EVERY_KEY.contains(last),
            "{path} is not in this test"
        );
    }
}

fn schema_value() -> Value {
    schema().to_value()
}

/// Calls `see` with the path and the schema of every key whose value is not a section or list.
fn walk(root: &Value, schema: &Value, path: &str, see: &mut impl FnMut(&str, &Value)) {
    let target = schema["$ref"].as_str().map(|pointer| {
        let pointer = pointer.trim_start_matches('#');
        root.pointer(pointer).expect("the schema refers to itself")
    });
    let target = target.unwrap_or(schema);
    if let Some(properties) = target["properties"].as_object() {
        assert_eq!(target["additionalProperties"], false, "{path} refuses unknown keys");
        for (name, schema) in properties {
            walk(root, schema, &errors::join_path(path, name), see);
        }
    } else if target["items"].is_object() {
        walk(root, &target["items"], &format!("{path}[]"), see);
    } else if target["additionalProperties"].is_object() {
        walk(root, &target["additionalProperties"], &format!("{path}.*"), see);
    } else {
        see(path, schema);
    }
}

/// Begins a generated table, followed by its top-level keys.
const TABLE: &str =
    "<!-- keys, made of the doc comments by `CONFIG_PAGE=write cargo test --lib config`: ";
const END_OF_TABLE: &str = "<!-- end of keys -->\n";

#[test]
#[expect(clippy::disallowed_methods, reason = "regenerates the page on demand")]
fn the_reference_page_has_the_keys_of_the_program() {
    let file = repository("docs/reference/configuration.md");
    let page = std::fs::read_to_string(&file).unwrap();
    let rows = reference_rows();
    let mut parts = page.split(TABLE);
    let mut made = parts.next().unwrap().to_owned();
    for part in parts {
        let (keys, rest) = part.split_once(" -->\n").unwrap();
        let (_, after) = rest.split_once(END_OF_TABLE).unwrap();
        made += &format!(
            "{TABLE}{keys} -->\n| Key | Type | Default | Reloadable | Description |\n|---|---|---|---|---|\n"
        );
        let is_here = |path: &str| keys.split(' ').any(|key| key == top_level(path));
        rows.iter().filter(|(path, _)| is_here(path)).for_each(|(_, row)| made += row);
        made += &(END_OF_TABLE.to_owned() + after);
    }
    if std::env::var("CONFIG_PAGE").is_ok_and(|it| it == "write") {
        std::fs::write(&file, &made).unwrap();
    }
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(page == made, "CONFIG_PAGE=write cargo test --lib config regenerates the page");
}

fn top_level(path: &str) -> &str {
    path.split(['.', '[']).next().unwrap()
}

/// Returns the path and the row of each key, in the order of the structs.
fn reference_rows() -> Vec<(String, String)> {
    let mut schema = schemars::schema_for!(File);
    let mut without_null = schemars::transform::RecursiveTransform(load::remove_null);
    schemars::transform::Transform::transform(&mut without_null, &mut schema);
    let schema = schema.to_value();
    let mut rows = Vec::new();
    collect_rows(&schema, ("", &schema, "none"), "", &mut rows);
    let mut errors = errors::ErrorCollector::default();
    let printed = yaml::parse(&text(EVERY_KEY).unwrap().yaml, &mut errors).unwrap();
    let mut order = Vec::new();
    list_keys(&printed, "", &mut order);
    rows.sort_by_key(|(path, _)| order.iter().position(|key| key == path).expect(path));
    rows
}

/// Adds the paths below `node` in file order, without names and numbers of entries.
fn list_keys(node: &yaml::Node, path: &str, order: &mut Vec<String>) {
    order.push(path.to_owned());
    match &node.kind {
        yaml::Kind::Null | yaml::Kind::Scalar { .. } => {}
        yaml::Kind::List(items) => {
            items.iter().for_each(|item| list_keys(item, &format!("{path}[]"), order));
        }
        yaml::Kind::Section(entries) => {
            let is_map = ["upstreams", "tokenizers", "otlp.headers"].contains(&path);
            if is_map {
                order.push(format!("{path}.*"));
            }
            for (key, value) in entries {
                let key = if is_map { "*" } else { &key.text };
                list_keys(value, &errors::join_path(path, key), order);
            }
        }
    }
}

/// Adds a row for each value below a key with this path, schema and default. `description` is that of the key.
fn collect_rows(
    root: &Value,
    (path, schema, default): (&str, &Value, &str),
    description: &str,
    rows: &mut Vec<(String, String)>,
) {
    let pointer = schema["$ref"].as_str().map(|pointer| pointer.trim_start_matches('#'));
    let target = pointer.map_or(schema, |pointer| root.pointer(pointer).unwrap());
    let default = match &schema["default"] {
        Value::String(text) => format!("`{text}`"),
        Value::Array(words) if !words.is_empty() => format!("`{}`", words[0].as_str().unwrap()),
        number @ (Value::Number(_) | Value::Bool(_)) => format!("`{number}`"),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            schema["x-default"].as_str().map_or(default.to_owned(), |text| format!("`{text}`"))
        }
    };
    if let Some(properties) = target["properties"].as_object() {
        for (name, schema) in properties {
            let is_required =
                target["required"].as_array().is_some_and(|keys| keys.contains(&(**name).into()));
            let default = if is_required { "required" } else { "none" };
            let description = schema["description"].as_str().unwrap_or_default();
            let path = errors::join_path(path, name);
            collect_rows(root, (&path, schema, default), description, rows);
        }
    } else if target["items"].is_object() {
        let entry = (&*format!("{path}[]"), &target["items"], &*default);
        collect_rows(root, entry, description, rows);
    } else if target["additionalProperties"].is_object() {
        let entry = (&*format!("{path}.*"), &target["additionalProperties"], &*default);
        collect_rows(root, entry, description, rows);
    } else {
        let reloadable = if RESTART_KEYS.contains(&top_level(path)) { "no" } else { "yes" };
        let (kind, description) = (kind_of(target), description.replace('\n', " "));
        let row = format!("| `{path}` | {kind} | {default} | {reloadable} | {description} |\n");
        rows.push((path.to_owned(), row));
    }
}

/// Returns the type of a value, with its range.
fn kind_of(schema: &Value) -> String {
    let format = schema["format"].as_str().filter(|format| !format.contains("int"));
    let is_name = schema["enum"].is_array() || schema["oneOf"].is_array();
    let kind = match schema["type"].as_str() {
        _ if is_name => "name",
        _ if format.is_some_and(|format| format != "double") => format.unwrap(),
        Some("integer" | "number") => "number",
        Some("boolean") => "boolean",
        _ => "text",
    };
    match (&schema["x-range"], &schema["minimum"], &schema["maximum"]) {
        (Value::String(range), ..) => format!("{kind}, {range}"),
        (_, Value::Number(min), Value::Number(max))
            if min.is_u64() && max.is_u64() && min != max =>
        {
            format!("{kind}, {min} to {max}")
        }
        _ => kind.to_owned(),
    }
}

/// Returns the table of keys in `docs/reference/configuration.md`: path, type, default, whether the key is reloadable,
/// description.
fn documented_keys(documentation: &str) -> Vec<[&str; 5]> {
    let rows = documentation.lines().filter(|line| line.starts_with("| `"));
    let keys = rows.filter_map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        // Other tables on the page have fewer columns.
        let mut cells: [&str; 5] = cells.try_into().ok()?;
        cells[0] = cells[0].trim_matches('`');
        Some(cells)
    });
    keys.collect()
}

#[test]
fn schema_and_documentation_have_the_same_keys() {
    let schema = schema_value();
    let mut paths = BTreeSet::new();
    walk(&schema, &schema, "", &mut |path, schema| {
        let is_described = path.ends_with(['*', ']']) || schema["description"].is_string();
        assert!(is_described, "{path} has no description");
        paths.insert(path.to_owned());
    });
    let documentation =
        std::fs::read_to_string(repository("docs/reference/configuration.md")).unwrap();
    let documented = documented_keys(&documentation);
    assert_eq!(documented.len(), paths.len(), "one row per key");
    for [path, kind, _, reloadable, description] in documented {
        assert!(paths.contains(path), "{path} is not in the schema");
        assert!(!kind.is_empty() && !description.is_empty(), "{path}");
        let top_level = path.split(['.', '[']).next().unwrap();
        let needs_restart = RESTART_KEYS.contains(&top_level);
        assert_eq!(reloadable == "no", needs_restart, "whether {path} is reloadable");
    }
}

#[test]
fn documented_defaults_are_the_defaults() {
    let file = "version: 1\nupstreams: {a: {url: http://a, engine_metrics: {}, warmup: {}}}\nrequest_log: {path: a}\n\
                routes: [{upstream: a, content: {capture: true}, concurrency_limit: {max_in_flight: 1}}]\n\
                identity: {tenant: {headers: [a]}, session: {headers: [a]}, variant: {headers: [a]}}\n\
                cost: {budgets: [{name: a, tokens: 1}]}\n";
    let config = text(file).unwrap();
    let printed: Value =
        serde_json::to_value(serde_saphyr::from_str::<Value>(&config.yaml).unwrap()).unwrap();
    let documentation =
        std::fs::read_to_string(repository("docs/reference/configuration.md")).unwrap();
    for [path, _, default, ..] in documented_keys(&documentation) {
        let Some(default) = default.split('`').nth(1) else {
            continue;
        };
        let pointer = path.replace("[]", ".0").replace(".*", ".a").replace('.', "/");
        let value = printed.pointer(&format!("/{pointer}")).unwrap();
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        // The YAML reader of this test parses `off` as false, as YAML 1.1 demands. The configuration reader does not.
        let value = if default == "off" && value == "false" { "off".to_owned() } else { value };
        assert_eq!(value, default, "{path}");
    }
}

/// Validates `value` against a schema. Supports only references, types, enumerations, and unknown and required keys.
fn accepts(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(pointer) = schema["$ref"].as_str() {
        let target = root.pointer(pointer.trim_start_matches('#')).unwrap();
        return accepts(root, target, value);
    }
    if let Some(any) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
        let fits = any.iter().any(|schema| accepts(root, schema, value).is_ok());
        return fits.then_some(()).ok_or_else(|| format!("{value} fits none"));
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let expected = schema["type"].as_str().unwrap_or(kind);
    if expected != kind && (expected, kind) != ("number", "integer") {
        return Err(format!("{value} is not of type {expected}"));
    }
    if schema["enum"].as_array().is_some_and(|words| !words.contains(value)) {
        return Err(format!("{value} is not in the list"));
    }
    if !schema["const"].is_null() && schema["const"] != *value {
        return Err(format!("{value} is not {}", schema["const"]));
    }
    for item in value.as_array().into_iter().flatten() {
        accepts(root, &schema["items"], item)?;
    }
    let Some(object) = value.as_object() else {
        return Ok(());
    };
    for required in schema["required"].as_array().into_iter().flatten() {
        if !object.contains_key(required.as_str().unwrap()) {
            return Err(format!("{required} is missing"));
        }
    }
    for (key, value) in object {
        match (&schema["properties"][key], &schema["additionalProperties"]) {
            (Value::Null, Value::Object(_)) => {
                accepts(root, &schema["additionalProperties"], value)?
            }
            (Value::Null, _) => return Err(format!("{key} is unknown")),
            (schema, _) => accepts(root, schema, value)?,
        }
    }
    Ok(())
}

#[test]
fn schema_accepts_examples_and_rejects_invalid_files() {
    let schema = schema_value();
    for example in examples() {
        let text = std::fs::read_to_string(&example).unwrap();
        let value: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(accepts(&schema, &schema, &value), Ok(()), "{}", example.display());
    }
    let refused = [
        r#"{"version": 1, "colour": "red"}"#,
        r#"{"version": 1, "upstreams": {"a": {"url": "http://a", "colour": "red"}}}"#,
        r#"{"version": 1, "upstreams": {"a": {}}}"#,
        r#"{"version": 1, "routes": [{}]}"#,
        r#"{"version": 1, "position": "sideways"}"#,
        r#"{"version": "1"}"#,
        r#"{"shutdown_grace_period": 5}"#,
    ];
    for text in refused {
        let value = serde_json::from_str(text).unwrap();
        assert!(accepts(&schema, &schema, &value).is_err(), "{text}");
    }
}

#[test]
fn checks_the_request_log() {
    let base = "version: 1\nupstreams: {a: {url: http://a}}\nrequest_log: ";
    let message = |log: &str| text(&format!("{base}{log}\n")).unwrap_err().to_string();
    assert!(message("{}").contains("write the path of a file, or stdout"));
    assert!(message("{path: a, rotate: {size: 1KiB}}").contains("from 1MiB to 1024GiB"));
    assert!(message("{path: a, rotate: {max_files: 1001}}").contains("from 0 to 1000"));
    let place = |path: &str| {
        let config = text(&format!("{base}{{path: {path}}}\n")).unwrap();
        config.request_log.unwrap().destination
    };
    assert_eq!(place("stdout"), Destination::Stdout);
    assert_eq!(place("./stdout"), Destination::File("./stdout".into()));
    let off = text("version: 1\nupstreams: {a: {url: http://a}}\n").unwrap();
    assert_eq!(off.request_log, None);
}

#[test]
fn checks_content_capture() {
    let base = "version: 1\nupstreams: {a: {url: http://a}}\nroutes: [{upstream: a, content: ";
    let read = |content: &str| text(&format!("{base}{content}}}]\n"));
    let message = |content: &str| read(content).unwrap_err().to_string();
    let captures = |content: &str| read(content).unwrap().contents.iter().count();
    assert_eq!(captures("{capture: true}"), 1);
    assert_eq!(captures("{capture: false, max_bytes: 1KiB}"), 0);
    assert!(message("{max_bytes: 1KiB}").contains("write `capture: true`"));
    assert!(message("{capture: true, max_bytes: 2MiB}").contains("from 1KiB to 1MiB"));
    let unknown = message("{capture: true, redact: [secrets, email]}");
    assert!(
        unknown.contains("routes[0].content.redact[1]") && unknown.contains("emails"),
        "{unknown}"
    );
    assert!(message("{capture: true, redact: [/(/]}").contains("invalid pattern"));
    assert!(message("{capture: true, redact: [/a*/]}").contains("at least one character"));
    let many = vec!["emails"; 65].join(", ");
    assert!(message(&format!("{{capture: true, redact: [{many}]}}")).contains("at most 64"));
}

#[test]
fn checks_concurrency_limits() {
    let base =
        "version: 1\nupstreams: {a: {url: http://a}}\nroutes: [{upstream: a, concurrency_limit: ";
    let read = |admission: &str| text(&format!("{base}{admission}}}]\n"));
    let message = |admission: &str| read(admission).unwrap_err().to_string();
    let limits = |admission: &str| read(admission).unwrap().routes[0].admission;
    let expected = ConcurrencyLimit {
        max_in_flight: 8,
        max_queue: ConcurrencyLimit::DEFAULT_MAX_QUEUE,
        queue_timeout: ConcurrencyLimit::DEFAULT_QUEUE_TIMEOUT,
    };
    assert_eq!(limits("{max_in_flight: 8}"), Some(expected));
    let none = text("version: 1\nupstreams: {a: {url: http://a}}\n").unwrap();
    assert_eq!(none.routes[0].admission, None);
    let missing = message("{max_queue: 3}");
    assert!(
        missing.contains("max_in_flight") && missing.contains("concurrent requests"),
        "{missing}"
    );
    let zero = message("{max_in_flight: 0}");
    assert!(
        zero.contains("routes[0].concurrency_limit.max_in_flight")
            && zero.contains("from 1 to 65536"),
        "{zero}"
    );
    assert!(message("{max_in_flight: 1, max_queue: 65537}").contains("from 0 to 65536"));
    assert!(message("{max_in_flight: 1, queue_timeout: 1ms}").contains("from 10ms to 10m"));
    assert!(message("{max_in_fligt: 1}").contains("max_in_flight"));
}

#[cfg(feature = "envoy")]
mod envoy {
    use super::*;

    const LISTENER: &str = "listeners: [{address: \"127.0.0.1:1\", protocol: ext-proc}]\n";

    fn ext_proc() -> RunArgs {
        RunArgs { ext_proc: true, ..RunArgs::default() }
    }

    #[test]
    fn the_command_needs_no_upstream() {
        let config = flags(&ext_proc(), &[]).unwrap();
        assert_eq!(config.protocols(), [Protocol::ExtProc]);
        assert!(config.routes.is_empty() && config.upstreams.is_empty());
        let printed = text(&config.yaml).unwrap();
        assert_eq!((printed.protocols(), printed.yaml), (vec![Protocol::ExtProc], config.yaml));
        let args = RunArgs { ext_proc: true, ..upstreams(&["http://a"]) };
        let expected = "--upstream: no listener forwards requests; remove the flag, or add a listener with `protocol: http`";
        assert_eq!(messages(flags(&args, &[])), [expected]);
    }

    #[test]
    fn listeners_keep_their_protocol() {
        let both = "upstreams: {a: {url: \"http://a\"}}\nlisteners: [{address: \"127.0.0.1:1\"}, {address: \
                    \"127.0.0.1:2\", protocol: ext-proc}]";
        assert_eq!(text(both).unwrap().protocols(), [Protocol::Http, Protocol::ExtProc]);
        let missing = messages(text("listeners: [{address: \"127.0.0.1:1\"}]"));
        assert!(missing[0].contains("upstreams: missing key"), "{missing:?}");
    }

    #[test]
    fn a_route_without_upstream_has_settings_for_a_route_of_envoy() {
        let routes = "routes: [{name: chat, provider: vllm, stall: {inter_token_after: 5s}}]\n\
                      slos: [{name: up, sli: availability, target: 99%, scope: {route: chat}}]";
        let config = text(&format!("{LISTENER}{routes}")).unwrap();
        let [route] = config.envoy_routes.as_slice() else { panic!("{:?}", config.envoy_routes) };
        assert_eq!((route.name.as_str(), route.position), ("chat", ProxyPosition::Envoy));
        assert_eq!(route.inter_token_after, Duration::from_secs(5));
        assert_eq!(route.provider.as_ref().map(Label::as_str), Some("vllm"));
        assert_eq!(config.observed_routes().count(), 1);
        assert_eq!(text(&config.yaml).unwrap().yaml, config.yaml);
    }

    #[test]
    fn a_route_of_envoy_has_no_setting_that_forwarding_needs() {
        let routes = "routes:\n  - name: chat\n    match: {prefix: /v1}\n    concurrency_limit: {max_in_flight: 1}\n  \
                      - provider: vllm";
        let errors = messages(text(&format!("{LISTENER}{routes}")));
        assert_eq!(errors.len(), 3, "{errors:?}");
        assert!(errors[0].contains("routes[0].match: Envoy chooses and forwards"), "{errors:?}");
        assert!(errors[1].contains("routes[0].concurrency_limit: Envoy chooses"), "{errors:?}");
        assert!(errors[2].contains("routes[1].upstream: missing key"), "{errors:?}");
    }
}
