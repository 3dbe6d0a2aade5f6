//! Reads the `OTEL_*` variables.
//!
//! The rules are those of the OpenTelemetry specification. An empty value counts as unset. A variable for one signal
//! takes precedence over the general variable. The case of keywords is ignored. An invalid value is reported and
//! ignored.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::endpoint::{Endpoint, redacted};
use crate::config::{
    BatchConfig, ExemplarFilter, ExportHeaders, GenAiNames, Profile, Protocol, SettingWarning,
    SignalConfig, TelemetryConfig, Temporality, TlsFiles,
};
use crate::sampling::{RootSampler, Sampler};
use tokengauge_types::url::percent_decoded;

impl TelemetryConfig {
    /// Reads the `OTEL_*` variables and those of this program for telemetry, such as `TOKENGAUGE_GEN_AI_NAMES`, through
    /// `get`. To apply a configuration file, the caller passes a `get` that returns the values of the file.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> (Self, Vec<SettingWarning>) {
        let environment = Environment { get: &get, warnings: RefCell::default() };
        let config = Self {
            disabled: environment.flag("OTEL_SDK_DISABLED", false),
            resource: environment.resource(),
            logs: environment.logs(),
            metrics: environment.metrics(),
            traces: environment.signal("TRACES", "/v1/traces"),
            metric_interval: environment
                .millis("OTEL_METRIC_EXPORT_INTERVAL")
                .unwrap_or(Self::METRIC_INTERVAL),
            temporality: environment
                .keyword(
                    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
                    Temporality::ALL.map(|temporality| (temporality.as_str(), temporality)),
                )
                .unwrap_or_default(),
            span_batch: environment.batch("OTEL_BSP", BatchConfig::SPANS),
            log_batch: environment.batch("OTEL_BLRP", BatchConfig::LOGS),
            sampler: environment.sampler(),
            max_value_chars: environment
                .number("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT")
                .or_else(|| environment.number("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT")),
            gen_ai: environment.gen_ai_names(),
            profile: Profile::default(),
            exemplars: environment
                .keyword(
                    "OTEL_METRICS_EXEMPLAR_FILTER",
                    ExemplarFilter::ALL.map(|filter| (filter.as_str(), filter)),
                )
                .unwrap_or_default(),
            max_request_bytes: environment.max_request_bytes(),
        };
        (config, environment.warnings.into_inner())
    }
}

struct Environment<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
    warnings: RefCell<Vec<SettingWarning>>,
}

impl Environment<'_> {
    /// Returns the settings for logs. Logs are exported only with `OTEL_LOGS_EXPORTER=otlp`, or, without this variable,
    /// with an endpoint for logs.
    fn logs(&self) -> SignalConfig {
        let requested = match self.text("OTEL_LOGS_EXPORTER") {
            Some(list) => {
                let mut words = list.split(',').map(str::trim);
                self.exports("LOGS") && words.any(|word| word.eq_ignore_ascii_case("otlp"))
            }
            None => self.text("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT").is_some(),
        };
        if requested { self.signal("LOGS", "/v1/logs") } else { SignalConfig::default() }
    }

    fn metrics(&self) -> SignalConfig {
        let mut config = self.signal("METRICS", "/v1/metrics");
        if let Some(limit) = self.millis("OTEL_METRIC_EXPORT_TIMEOUT") {
            config.timeout = config.timeout.min(limit);
        }
        config
    }

    fn signal(&self, signal: &str, path: &str) -> SignalConfig {
        let name = |what: &str| self.signal_variable(signal, what);
        let protocol = self.keyword(
            &name("PROTOCOL"),
            Protocol::ALL.map(|protocol| (protocol.as_str(), protocol)),
        );
        let endpoint =
            if self.exports(signal) { self.endpoint(signal, path, protocol) } else { None };
        let (endpoint, authorization) =
            endpoint.map(|endpoint| (endpoint.url, endpoint.authorization)).unzip();
        let file = |what| self.text(&name(what)).map(PathBuf::from);
        let list = name("HEADERS");
        let configured = self.text(&list).map(|text| self.pairs(&list, &text));
        // A configured header replaces the credentials of the URL, because the last header of a name is sent.
        let headers = authorization.flatten().map(|value| ("authorization".to_owned(), value));
        let headers = headers.into_iter().chain(configured.unwrap_or_default()).collect();
        SignalConfig {
            endpoint,
            protocol: protocol.unwrap_or_default(),
            headers: ExportHeaders(headers),
            timeout: self.millis(&name("TIMEOUT")).unwrap_or(TelemetryConfig::TIMEOUT),
            gzip: self
                .keyword(&name("COMPRESSION"), [("gzip", true), ("none", false)])
                .unwrap_or(false),
            tls: TlsFiles {
                certificate: file("CERTIFICATE"),
                client_key: file("CLIENT_KEY"),
                client_certificate: file("CLIENT_CERTIFICATE"),
            },
            proxy: None,
        }
    }

    /// Returns the name of the variable that applies to the signal. A variable such as
    /// `OTEL_EXPORTER_OTLP_TRACES_TIMEOUT` takes precedence over the general `OTEL_EXPORTER_OTLP_TIMEOUT`.
    fn signal_variable(&self, signal: &str, what: &str) -> String {
        let own = format!("OTEL_EXPORTER_OTLP_{signal}_{what}");
        if self.text(&own).is_some() { own } else { format!("OTEL_EXPORTER_OTLP_{what}") }
    }

    /// Returns the endpoint of a signal. The signal's own endpoint is used unchanged. Over HTTP, the signal's path is
    /// appended to the general endpoint.
    fn endpoint(&self, signal: &str, path: &str, protocol: Option<Protocol>) -> Option<Endpoint> {
        let name = self.signal_variable(signal, "ENDPOINT");
        let text = self.text(&name)?;
        let url = match protocol.unwrap_or_default() {
            Protocol::Grpc => self.with_scheme(signal, &name, &text),
            Protocol::HttpProtobuf => text,
        };
        let has_grpc_port = url.trim_end_matches('/').ends_with(":4317");
        let advice = match protocol {
            None if has_grpc_port => {
                "; port 4317 is usually gRPC, for which OTEL_EXPORTER_OTLP_PROTOCOL=grpc is required"
            }
            None | Some(_) => "",
        };
        let Some(endpoint) = Endpoint::parse(&url) else {
            let shown = redacted(&url);
            let message = match shown.contains("://") {
                true => format!("\"{shown}\" is not a URL such as http://localhost:4318{advice}"),
                false => {
                    format!(
                        "\"{shown}\" has no scheme; write http://{shown} or https://{shown}{advice}"
                    )
                }
            };
            self.ignore(&name, message);
            return None;
        };
        if !advice.is_empty() {
            self.warn(&name, format!("OTLP over HTTP is used{advice}"));
        }
        let is_general = name == "OTEL_EXPORTER_OTLP_ENDPOINT";
        Some(match protocol.unwrap_or_default() {
            Protocol::HttpProtobuf if is_general => endpoint.with_path(path),
            Protocol::Grpc | Protocol::HttpProtobuf => endpoint,
        })
    }

    /// Adds a scheme to a gRPC endpoint without one: `http` if `…_INSECURE` is true, and `https` if not. The
    /// specification requires a scheme for HTTP only.
    fn with_scheme(&self, signal: &str, name: &str, endpoint: &str) -> String {
        if endpoint.contains("://") {
            return endpoint.to_owned();
        }
        let insecure = self.signal_variable(signal, "INSECURE");
        if self.text(&insecure).is_none() {
            let shown = redacted(endpoint);
            let message = format!(
                "\"{shown}\" has no scheme, so TLS is used; write http://{shown} or https://{shown}"
            );
            self.warn(name, message);
        }
        let scheme = if self.flag(&insecure, false) { "http" } else { "https" };
        format!("{scheme}://{endpoint}")
    }

    /// Returns whether `OTEL_<signal>_EXPORTER` allows OTLP exports. `none` does not. `/metrics` is served in any case.
    fn exports(&self, signal: &str) -> bool {
        let name = format!("OTEL_{signal}_EXPORTER");
        let Some(value) = self.text(&name) else {
            return true;
        };
        let words: Vec<_> = value.split(',').map(|word| word.trim().to_ascii_lowercase()).collect();
        for word in &words {
            if !matches!(word.as_str(), "otlp" | "none" | "prometheus") {
                self.ignore(&name, format!("\"{word}\" is not supported; use otlp or none"));
            }
        }
        words.iter().any(|word| word == "otlp")
            || !words.iter().any(|word| matches!(word.as_str(), "none" | "prometheus"))
    }

    /// `TOKENGAUGE_GEN_AI_NAMES` takes precedence over `OTEL_SEMCONV_STABILITY_OPT_IN`.
    fn gen_ai_names(&self) -> GenAiNames {
        let known = GenAiNames::ALL.map(|names| (names.as_str(), names));
        let names = self.keyword("TOKENGAUGE_GEN_AI_NAMES", known);
        names.or_else(|| self.opted_in_gen_ai_names()).unwrap_or_default()
    }

    /// Reads the list of conventions in `OTEL_SEMCONV_STABILITY_OPT_IN`. The suffix `/dup` requests the former names,
    /// too. Unknown conventions are not reported, because other instrumentation reads the same variable.
    fn opted_in_gen_ai_names(&self) -> Option<GenAiNames> {
        let name = "OTEL_SEMCONV_STABILITY_OPT_IN";
        let list = self.text(name)?;
        let words: Vec<&str> = list.split(',').map(str::trim).collect();
        if words.contains(&"http/dup") {
            let message =
                "\"http/dup\": only the stable names of HTTP metrics and attributes exist";
            self.warn(name, message.to_owned());
        }
        let opted_in = [
            ("gen_ai_latest_experimental/dup", GenAiNames::Both),
            ("gen_ai_latest_experimental", GenAiNames::Latest),
        ];
        opted_in.into_iter().find_map(|(word, names)| words.contains(&word).then_some(names))
    }

    fn batch(&self, prefix: &str, default: BatchConfig) -> BatchConfig {
        let name = |what: &str| format!("{prefix}_{what}");
        let at_least_one = |what| {
            let name = name(what);
            self.number(&name).filter(|&number| {
                number > 0 || self.reject::<()>(&name, "0", "a number above 0").is_some()
            })
        };
        let queue = at_least_one("MAX_QUEUE_SIZE").unwrap_or(default.queue);
        let size = at_least_one("MAX_EXPORT_BATCH_SIZE").unwrap_or(default.size);
        BatchConfig {
            delay: self.millis(&name("SCHEDULE_DELAY")).unwrap_or(default.delay),
            queue,
            size: size.min(queue),
            timeout: self.millis(&name("EXPORT_TIMEOUT")).unwrap_or(default.timeout),
        }
    }

    fn max_request_bytes(&self) -> usize {
        let name = "TOKENGAUGE_OTLP_MAX_REQUEST_BYTES";
        let expected = format!("a number from {}", TelemetryConfig::MIN_REQUEST_BYTES);
        self.number(name)
            .filter(|&bytes| {
                bytes >= TelemetryConfig::MIN_REQUEST_BYTES
                    || self.reject::<()>(name, &bytes.to_string(), &expected).is_some()
            })
            .unwrap_or(TelemetryConfig::MAX_REQUEST_BYTES)
    }

    fn sampler(&self) -> Sampler {
        let default = Sampler {
            against_parent: self.flag("TOKENGAUGE_KEEP_UNSAMPLED_FAILURES", true),
            ..Sampler::default()
        };
        let name = "OTEL_TRACES_SAMPLER";
        let Some(value) = self.text(name) else {
            return default;
        };
        let word = value.to_ascii_lowercase();
        let (parent_based, root) = match word.strip_prefix("parentbased_") {
            Some(root) => (true, root),
            None => (false, word.as_str()),
        };
        let root = match root {
            "always_on" => RootSampler::AlwaysOn,
            "always_off" => RootSampler::AlwaysOff,
            "traceidratio" => RootSampler::Ratio(self.ratio()),
            _ => {
                let expected = "always_on, always_off, traceidratio, or one of these with the prefix parentbased_";
                return self.reject(name, &value, expected).unwrap_or(default);
            }
        };
        Sampler { root, parent_based, ..default }
    }

    fn ratio(&self) -> f64 {
        let name = "OTEL_TRACES_SAMPLER_ARG";
        let Some(value) = self.text(name) else {
            return 1.0;
        };
        match value.parse::<f64>() {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => ratio,
            Ok(_) | Err(_) => self.reject(name, &value, "a number from 0 to 1").unwrap_or(1.0),
        }
    }

    /// `OTEL_SERVICE_NAME` takes precedence over `service.name` in `OTEL_RESOURCE_ATTRIBUTES`.
    fn resource(&self) -> Vec<(String, String)> {
        let name = "OTEL_RESOURCE_ATTRIBUTES";
        let given = self.text(name).map(|value| self.pairs(name, &value)).unwrap_or_default();
        let mut resource: Vec<(String, String)> = Vec::new();
        let mut put =
            |key: &str, value: String| match resource.iter_mut().find(|(known, _)| known == key) {
                Some((_, known)) => *known = value,
                None => resource.push((key.to_owned(), value)),
            };
        put("service.name", "tokengauge".into());
        put("service.version", env!("CARGO_PKG_VERSION").into());
        put("service.instance.id", String::new());
        given.into_iter().for_each(|(key, value)| put(&key, value));
        if let Some(service) = self.text("OTEL_SERVICE_NAME") {
            put("service.name", service);
        }
        // Replaces an empty id with a random UUID. Without an id, replicas collide, because Prometheus uses the id as
        // `instance`.
        if let Some((_, id)) =
            resource.iter_mut().find(|(key, id)| key == "service.instance.id" && id.is_empty())
        {
            *id = random_uuid();
        }
        resource
    }

    /// Parses `key=value,key=value` with percent-encoding.
    fn pairs(&self, name: &str, list: &str) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let decoded = item.split_once('=').and_then(|(key, value)| {
                Some((percent_decoded(key.trim())?, percent_decoded(value.trim())?))
            });
            match decoded {
                Some((key, value)) if !key.is_empty() => pairs.push((key, value)),
                // The value may be a credential, so the message has the position only.
                Some(_) | None => self.ignore(
                    name,
                    format!("entry {} is ignored: not key=value, percent-encoded", pairs.len() + 1),
                ),
            }
        }
        pairs
    }

    /// Parses one of the given keywords.
    fn keyword<T: Copy, const N: usize>(&self, name: &str, known: [(&str, T); N]) -> Option<T> {
        let value = self.text(name)?;
        match known.iter().find(|(word, _)| word.eq_ignore_ascii_case(&value)) {
            Some((_, meaning)) => Some(*meaning),
            None => {
                let words = known.map(|(word, _)| word).join(", ");
                self.reject(name, &value, &format!("one of {words}"))
            }
        }
    }

    fn flag(&self, name: &str, default: bool) -> bool {
        self.keyword(name, [("true", true), ("false", false)]).unwrap_or(default)
    }

    fn number(&self, name: &str) -> Option<usize> {
        let value = self.text(name)?;
        value.parse().ok().or_else(|| self.reject(name, &value, "a whole number"))
    }

    fn millis(&self, name: &str) -> Option<Duration> {
        let value = self.text(name)?;
        match value.parse() {
            Ok(millis) if millis > 0 => Some(Duration::from_millis(millis)),
            Ok(_) | Err(_) => self.reject(name, &value, "milliseconds above 0"),
        }
    }

    /// Returns the value of a variable, or `None` if it is unset or empty.
    fn text(&self, name: &str) -> Option<String> {
        let value = (self.get)(name)?;
        let value = value.trim();
        (!value.is_empty()).then(|| value.to_owned())
    }

    /// Reports an invalid value.
    fn reject<T>(&self, name: &str, value: &str, expected: &str) -> Option<T> {
        self.ignore(name, format!("\"{value}\" is ignored; expected {expected}"));
        None
    }

    /// Reports a value that is ignored.
    fn ignore(&self, name: &str, message: String) {
        self.report(SettingWarning { variable: name.to_owned(), message, is_ignored: true });
    }

    /// Reports a value that is used, but probably not as the user intended.
    fn warn(&self, name: &str, message: String) {
        self.report(SettingWarning { variable: name.to_owned(), message, is_ignored: false });
    }

    /// Reports each problem only once. A general variable is read for each signal.
    fn report(&self, warning: SettingWarning) {
        let mut warnings = self.warnings.borrow_mut();
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
}

/// Returns a UUID of version 4. The UUID must be unique but not secret, so any random source is sufficient.
fn random_uuid() -> String {
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        fastrand::u32(..),
        fastrand::u16(..),
        fastrand::u16(..0x1000),
        fastrand::u16(0x8000..0xc000),
        fastrand::u64(..1 << 48)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Signal;

    fn read(variables: &[(&str, &str)]) -> (TelemetryConfig, Vec<String>) {
        let (config, problems) = TelemetryConfig::from_env(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        (config, problems.into_iter().map(|problem| problem.variable).collect())
    }

    fn quiet(variables: &[(&str, &str)]) -> TelemetryConfig {
        let (config, problems) = read(variables);
        assert!(problems.is_empty(), "{problems:?}");
        config
    }

    #[test]
    fn an_empty_environment_exports_nothing() {
        let config = quiet(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]);
        assert!(!config.sends_any());
        assert!(config.summary().contains("no endpoint is configured"));
        assert_eq!(config.metric_interval, Duration::from_secs(10));
        assert_eq!(config.metrics.protocol, Protocol::HttpProtobuf);
        assert_eq!(
            config.sampler,
            Sampler { root: RootSampler::AlwaysOn, parent_based: true, against_parent: true }
        );
        assert_eq!(config.gen_ai, GenAiNames::Latest);
    }

    #[test]
    fn appends_the_signal_path_to_the_general_http_endpoint() {
        let http = quiet(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/")]);
        assert_eq!(http.metrics.endpoint.as_deref(), Some("http://collector:4318/v1/metrics"));
        assert_eq!(http.traces.endpoint.as_deref(), Some("http://collector:4318/v1/traces"));
        let grpc = quiet(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4317"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "GRPC"),
        ]);
        assert_eq!(grpc.traces.endpoint.as_deref(), Some("https://collector:4317"));
        assert_eq!(grpc.traces.protocol, Protocol::Grpc);
    }

    #[test]
    fn a_signals_own_variable_takes_precedence() {
        let config = quiet(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://general:4318"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://own:4318/custom"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2000"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "3000"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "a=1"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "b=2"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "none"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
            ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "/key.pem"),
            ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", "/own.pem"),
        ]);
        assert_eq!(config.traces.endpoint.as_deref(), Some("http://own:4318/custom"));
        assert_eq!((config.metrics.timeout.as_secs(), config.traces.timeout.as_secs()), (2, 3));
        assert_eq!(config.metrics.headers.0, [("a".to_owned(), "1".to_owned())]);
        assert_eq!(config.traces.headers.0, [("b".to_owned(), "2".to_owned())]);
        assert_eq!((config.metrics.gzip, config.traces.gzip), (false, true));
        assert_eq!(config.metrics.tls.certificate, Some(PathBuf::from("/ca.pem")));
        assert_eq!(config.metrics.tls.client_key, None);
        assert_eq!(config.traces.tls.client_key, Some(PathBuf::from("/key.pem")));
        assert_eq!(config.traces.tls.client_certificate, Some(PathBuf::from("/own.pem")));
    }

    #[test]
    fn each_signal_can_be_exported_alone() {
        let traces = quiet(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://own:4318")]);
        assert_eq!((traces.sends(Signal::Metrics), traces.sends(Signal::Traces)), (false, true));
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://general:4318");
        let metrics =
            quiet(&[endpoint, ("OTEL_TRACES_EXPORTER", "none"), ("OTEL_METRICS_EXPORTER", "otlp")]);
        assert_eq!((metrics.sends(Signal::Metrics), metrics.sends(Signal::Traces)), (true, false));
        let scraped = quiet(&[endpoint, ("OTEL_METRICS_EXPORTER", "prometheus")]);
        assert!(!scraped.sends(Signal::Metrics));
        let disabled = quiet(&[endpoint, ("OTEL_SDK_DISABLED", "TRUE")]);
        assert!(!disabled.sends_any() && disabled.summary().contains("OTEL_SDK_DISABLED"));
    }

    #[test]
    fn logs_are_exported_only_on_request() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://general:4318");
        assert!(!quiet(&[endpoint]).sends(Signal::Logs));
        let requested =
            quiet(&[endpoint, ("OTEL_LOGS_EXPORTER", "otlp"), ("OTEL_BLRP_MAX_QUEUE_SIZE", "9")]);
        assert_eq!(requested.logs.endpoint.as_deref(), Some("http://general:4318/v1/logs"));
        assert!(
            requested.summary().ends_with("logs to http://general:4318/v1/logs (http/protobuf)")
        );
        assert_eq!((requested.log_batch.queue, requested.log_batch.size), (9, 9));
        let own = ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://own:4318/logs");
        let own_only = quiet(&[own, ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "a=1")]);
        assert_eq!((own_only.sends(Signal::Logs), own_only.sends(Signal::Metrics)), (true, false));
        assert_eq!(own_only.logs.endpoint.as_deref(), Some("http://own:4318/logs"));
        assert_eq!(own_only.logs.headers.0, [("a".to_owned(), "1".to_owned())]);
        assert!(!quiet(&[own, ("OTEL_LOGS_EXPORTER", "none")]).sends(Signal::Logs));
        assert!(!quiet(&[own, ("OTEL_SDK_DISABLED", "true")]).sends(Signal::Logs));
        assert!(
            !quiet(&[("OTEL_LOGS_EXPORTER", "otlp")]).sends(Signal::Logs),
            "there is no endpoint"
        );
    }

    #[test]
    fn decodes_resource_attributes_and_prefers_the_service_name() {
        let config = quiet(&[
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "team=a%20b%2Cc, service.name=other ,service.instance.id=pod-1",
            ),
            ("OTEL_SERVICE_NAME", "edge"),
        ]);
        let pairs: Vec<_> =
            config.resource.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(
            pairs,
            [
                ("service.name", "edge"),
                ("service.version", env!("CARGO_PKG_VERSION")),
                ("service.instance.id", "pod-1"),
                ("team", "a b,c"),
            ]
        );
    }

    #[test]
    fn generates_a_missing_instance_id() {
        let id = |config: &TelemetryConfig| config.resource[2].1.clone();
        let (one, other) = (id(&quiet(&[])), id(&quiet(&[])));
        assert_ne!(one, other);
        assert_eq!(one.len(), 36);
        assert_eq!((one.as_bytes()[14], one.as_bytes()[8]), (b'4', b'-'));
        assert!(matches!(one.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{one}");
    }

    #[test]
    fn parses_samplers() {
        let sampler = |name, argument| {
            quiet(&[("OTEL_TRACES_SAMPLER", name), ("OTEL_TRACES_SAMPLER_ARG", argument)]).sampler
        };
        let is = |parent_based, root| Sampler { root, parent_based, against_parent: true };
        assert_eq!(sampler("always_on", ""), is(false, RootSampler::AlwaysOn));
        assert_eq!(sampler("always_off", ""), is(false, RootSampler::AlwaysOff));
        assert_eq!(sampler("traceidratio", "0.25"), is(false, RootSampler::Ratio(0.25)));
        assert_eq!(sampler("parentbased_traceidratio", ""), is(true, RootSampler::Ratio(1.0)));
        assert_eq!(sampler("ParentBased_Always_Off", ""), is(true, RootSampler::AlwaysOff));
        let obedient = quiet(&[
            ("TOKENGAUGE_KEEP_UNSAMPLED_FAILURES", "false"),
            ("OTEL_TRACES_SAMPLER", "parentbased_always_on"),
        ]);
        assert!(!obedient.sampler.against_parent);
    }

    #[test]
    fn parses_batches_and_limits() {
        let config = quiet(&[
            ("OTEL_BSP_SCHEDULE_DELAY", "200"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
            ("OTEL_BSP_EXPORT_TIMEOUT", "700"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
            ("OTEL_METRIC_EXPORT_TIMEOUT", "400"),
            ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "64"),
            ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "Delta"),
            ("TOKENGAUGE_GEN_AI_NAMES", "both"),
        ]);
        let millis = Duration::from_millis;
        assert_eq!(
            config.span_batch,
            BatchConfig { delay: millis(200), queue: 100, size: 100, timeout: millis(700) }
        );
        assert_eq!((config.metric_interval, config.metrics.timeout), (millis(1_000), millis(400)));
        assert_eq!(config.max_value_chars, Some(64));
        assert_eq!(config.temporality, Temporality::Delta);
        assert!(config.gen_ai.latest() && config.gen_ai.legacy());
    }

    #[test]
    fn reports_and_ignores_invalid_values() {
        for (variable, value) in [
            ("OTEL_SDK_DISABLED", "yes"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "10s"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "-1"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://collector"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"),
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "many"),
            ("OTEL_RESOURCE_ATTRIBUTES", "novalue"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=%ZZ"),
            ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "sometimes"),
            ("TOKENGAUGE_GEN_AI_NAMES", "newest"),
            ("TOKENGAUGE_KEEP_UNSAMPLED_FAILURES", "no"),
            ("OTEL_METRICS_EXEMPLAR_FILTER", "sampled"),
            ("OTEL_LOGS_EXPORTER", "console"),
            ("OTEL_BLRP_SCHEDULE_DELAY", "soon"),
        ] {
            let (mut config, problems) = read(&[(variable, value)]);
            assert_eq!(problems, [variable], "{variable}={value}");
            let mut default = TelemetryConfig::default();
            default.resource.clear();
            config.resource.clear();
            assert_eq!(config, default, "{variable}={value}");
        }
        let (config, problems) =
            read(&[("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")]);
        assert_eq!(
            (problems.as_slice(), config.sampler.root),
            (["OTEL_TRACES_SAMPLER_ARG".to_owned()].as_slice(), RootSampler::Ratio(1.0))
        );
    }

    /// Returns the endpoint for traces, and the warning if there is one: its text, and whether the value of the
    /// variable is ignored. Asserts that there is at most one warning.
    fn endpoint(variables: &[(&str, &str)]) -> (Option<String>, Option<(String, bool)>) {
        let (config, warnings) = TelemetryConfig::from_env(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        assert!(warnings.len() <= 1, "{warnings:?}");
        let warning = warnings.first().map(|it| (it.to_string(), it.is_ignored));
        (config.traces.endpoint, warning)
    }

    #[test]
    fn a_grpc_endpoint_without_scheme_uses_tls_unless_insecure_is_set() {
        let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        let general = ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317");
        let (url, warning) = endpoint(&[general, grpc]);
        assert_eq!(url.as_deref(), Some("https://localhost:4317"));
        let message = "OTEL_EXPORTER_OTLP_ENDPOINT: \"localhost:4317\" has no scheme, so TLS is used; write \
                       http://localhost:4317 or https://localhost:4317";
        assert_eq!(warning, Some((message.to_owned(), false)));
        for (insecure, expected) in
            [("true", "http://localhost:4317"), ("false", "https://localhost:4317")]
        {
            let insecure = ("OTEL_EXPORTER_OTLP_INSECURE", insecure);
            assert_eq!(endpoint(&[general, grpc, insecure]), (Some(expected.to_owned()), None));
        }
    }

    #[test]
    fn an_http_endpoint_without_scheme_is_ignored() {
        let (url, warning) = endpoint(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317")]);
        assert_eq!(url, None);
        let message = "OTEL_EXPORTER_OTLP_ENDPOINT: \"localhost:4317\" has no scheme; write http://localhost:4317 or \
                       https://localhost:4317; port 4317 is usually gRPC, for which \
                       OTEL_EXPORTER_OTLP_PROTOCOL=grpc is required";
        assert_eq!(warning, Some((message.to_owned(), true)));
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4318");
        let (url, warning) = endpoint(&[own, ("OTEL_EXPORTER_OTLP_INSECURE", "true")]);
        assert_eq!((url, warning.map(|it| it.1)), (None, Some(true)));
    }

    #[test]
    fn warns_about_the_grpc_port_without_the_grpc_protocol() {
        let (url, warning) = endpoint(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317")]);
        assert_eq!(url.as_deref(), Some("http://collector:4317/v1/traces"));
        let (message, is_ignored) = warning.unwrap();
        assert!(message.contains("OTEL_EXPORTER_OTLP_PROTOCOL=grpc") && !is_ignored, "{message}");
    }

    #[test]
    fn reads_the_opt_in_of_semantic_conventions() {
        let variable = "OTEL_SEMCONV_STABILITY_OPT_IN";
        for (list, expected) in [
            ("gen_ai_latest_experimental", GenAiNames::Latest),
            ("http, gen_ai_latest_experimental/dup", GenAiNames::Both),
            ("http,database/dup", GenAiNames::Latest),
        ] {
            assert_eq!(quiet(&[(variable, list)]).gen_ai, expected, "{list}");
        }
        let own = ("TOKENGAUGE_GEN_AI_NAMES", "legacy");
        let both = quiet(&[(variable, "gen_ai_latest_experimental/dup"), own]);
        assert_eq!(both.gen_ai, GenAiNames::Legacy, "the own variable takes precedence");
        let (_, problems) = read(&[(variable, "http/dup")]);
        assert_eq!(problems, [variable]);
    }

    #[test]
    fn never_shows_credentials() {
        let config = quiet(&[("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hunter2")]);
        assert_eq!(
            config.metrics.headers.0,
            [("authorization".to_owned(), "Bearer hunter2".to_owned())]
        );
        assert!(!format!("{config:?}").contains("hunter2"));
        let (_, problems) = TelemetryConfig::from_env(|name| {
            (name == "OTEL_EXPORTER_OTLP_HEADERS").then(|| "hunter2".to_owned())
        });
        assert!(problems.iter().all(|problem| !problem.to_string().contains("hunter2")));
    }

    #[test]
    fn credentials_of_a_url_become_a_header() {
        let endpoint =
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:hunt%65r2@collector:4318/otlp?key=hunter2");
        let config = quiet(&[endpoint]);
        let url = "http://collector:4318/otlp/v1/traces?key=hunter2";
        assert_eq!(config.traces.endpoint.as_deref(), Some(url));
        let basic = ("authorization".to_owned(), "Basic bWU6aHVudGVyMg==".to_owned());
        assert_eq!(config.traces.headers.0, [basic]);
        let summary = config.summary();
        assert!(!summary.contains("hunt") && summary.contains("/otlp/v1/traces?***"), "{summary}");
        let config = quiet(&[endpoint, ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=own")]);
        let last = ("Authorization".to_owned(), "own".to_owned());
        assert_eq!(config.traces.headers.0.last(), Some(&last));
    }

    #[test]
    fn problems_of_an_endpoint_never_show_its_credentials() {
        for endpoint in ["ftp://me:hunter2@collector", "me:hunter2@collector:4318"] {
            let (_, problems) = TelemetryConfig::from_env(|name| {
                (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| endpoint.to_owned())
            });
            let problem = problems.first().unwrap().to_string();
            assert!(problem.contains("***@collector") && !problem.contains("hunt"), "{problem}");
        }
    }
}
