//! Logs, OTLP export, and limits of the proxy's own resources.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::errors::{ErrorCollector, NodeId};
use crate::config::spanned::{List, Map, Spanned};
use crate::config::value::HeaderValue;
use crate::config::{Environment, ExportProtocol, LogFormat, LogLevel, RunArgs};
use crate::forward::Propagator;
use tokengauge_listen::HeaderLimits;
use tokengauge_telemetry::config::{GenAiNames, Profile};
use tokengauge_telemetry::request_log::{self, Destination};
use tokengauge_types::bounded::{Int, MINUTE, SECOND, Size, Time};
use tokengauge_types::url::Url;

/// The proxy's own log, on standard error.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Lowest level that is logged: `error`, `warn`, `info`, `debug`, `trace`. Flag `--log-level`.
    pub level: LogLevel,
    /// `text` or `json`. Flag `--log-format`.
    pub format: LogFormat,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["path"]))]
pub struct RequestLog {
    /// File, created if absent, or standard output. Required with `request_log`. Flag `--request-log`.
    pub path: Option<Destination>,
    /// File rotation.
    pub rotate: request_log::Rotation,
}

/// The amount of metrics on `/metrics` and over OTLP.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// `full`, or `lean` for a tenth of the series; see [lean profile](telemetry.md#lean-profile).
    pub profile: Profile,
}

/// Settings of the key `otlp`. Each one takes precedence over the `OTEL_*` variable with the same meaning.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Otlp {
    /// Collector for metrics and traces. Without an endpoint nothing is exported.
    pub endpoint: Option<Url>,
    /// `grpc` or `http/protobuf`.
    pub protocol: Option<ExportProtocol>,
    /// Export interval of metrics.
    // Below 1 s the cost of exports outweighs their use. Above 5 min, 5-minute windows have no points.
    pub interval: Option<Time<SECOND, { 5 * MINUTE }>>,
    /// Headers of every export, in addition to `OTEL_EXPORTER_OTLP_HEADERS`. Put API keys into the variable. Always
    /// redacted in output.
    pub headers: Map<HeaderValue>,
    /// Names of the `gen_ai.*` metrics: `latest`, `legacy`, `both` or `off`.
    pub genai_names: Option<GenAiNames>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Memory of the observer for all requests together: half for bytes that wait for the observer, half for what its
    /// parsers hold, such as 48 KiB for a gzip stream. Beyond it, bytes are forwarded unobserved, and a counter
    /// increases.
    // At least one full shard. 4 GiB is more than a sidecar ever has. The default is, for bytes that wait, three times
    // the data of half a second at 100,000 chunks of 300 bytes per second; and for parsers, 1,000 concurrent gzip
    // streams. With 5,000 open streams, the process stays below 256 MiB, the memory limit of a sidecar.
    pub observer_memory: Size<{ 1 << 20 }, { 4 << 30 }, { 96 << 20 }>,
    /// Maximum number of header lines of a request or response; see [header limits](#header-limits).
    pub header_lines: Int<50, 2_000, { HeaderLimits::MAX_LINES as u64 }>,
    /// Maximum size of the headers of a request or response; see [header limits](#header-limits).
    // Most servers accept 8 KiB. The buffers of an HTTP/1 connection grow with the limit.
    pub header_size: Size<{ 8 << 10 }, { 1 << 20 }, { HeaderLimits::MAX_BYTES as u64 }>,
}

impl Limits {
    pub fn headers(&self) -> HeaderLimits {
        HeaderLimits { max_lines: self.header_lines.get(), max_bytes: self.header_size.get() }
    }
}

impl Otlp {
    pub(in crate::config) fn check(&self, errors: &mut ErrorCollector) {
        for (name, Spanned { node, .. }) in self.headers.iter() {
            if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
                errors.add(*node, "not a valid header name; write a name such as x-api-key");
            }
        }
    }
}

impl RequestLog {
    /// Applies the flag, and resolves the settings. `None` disables the request log.
    pub(in crate::config) fn resolve(
        written: &mut Option<Self>,
        args: &RunArgs,
        errors: &mut ErrorCollector,
    ) -> Option<request_log::RequestLogConfig> {
        if let Some(flag) = &args.request_log {
            written.get_or_insert_default().path = Some(flag.clone());
        }
        let log = written.as_ref()?;
        let hint = "write the path of a file, or stdout";
        let path = errors.required(&log.path, (NodeId::ROOT, "request_log.path"), hint)?;
        Some(request_log::RequestLogConfig { destination: path.clone(), rotate: log.rotate })
    }
}

/// Completes the trace header formats, and returns the unknown values of `OTEL_PROPAGATORS`. The file takes precedence
/// over the variable.
pub fn resolve_propagators(
    written: &mut Option<List<Propagator>>,
    environment: Environment<'_>,
    errors: &mut ErrorCollector,
) -> Vec<String> {
    let mut ignored = Vec::new();
    let list = written.get_or_insert_with(|| match environment("OTEL_PROPAGATORS") {
        Some(list) => parse_propagators(&list, &mut ignored).into_iter().collect(),
        None => Propagator::DEFAULT.into_iter().collect(),
    });
    let mut known = Vec::new();
    for Spanned { value, node } in list.iter() {
        if known.contains(value) {
            errors.add(*node, format!("{} is listed twice; remove one", value.as_str()));
        }
        known.push(*value);
    }
    ignored
}

/// Parses `OTEL_PROPAGATORS`. Unknown words are ignored, as the OpenTelemetry specification demands, and added to
/// `ignored` for the log.
fn parse_propagators(list: &str, ignored: &mut Vec<String>) -> Vec<Propagator> {
    let mut propagators = Vec::new();
    for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let matches = |propagator: &Propagator| propagator.as_str().eq_ignore_ascii_case(word);
        match Propagator::ALL.into_iter().find(matches) {
            Some(propagator) if propagators.contains(&propagator) => {}
            Some(propagator) => propagators.push(propagator),
            // The OpenTelemetry specification uses `none` for an empty list.
            None if word.eq_ignore_ascii_case("none") => {}
            None => ignored.push(word.to_owned()),
        }
    }
    propagators
}
