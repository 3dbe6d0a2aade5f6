//! The `OTEL_*` variables.
//!
//! As the specification says: an empty value is unset, a signal's own variable goes before the general one, enumerated
//! values ignore case, and a value that is not understood is reported and ignored.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::{
    BatchConfig, Config, ExemplarFilter, ExportHeaders, GenAiNames, IgnoredSetting, Protocol,
    SignalConfig, Temporality, TlsFiles,
};
use crate::sampling::{RootSampler, Sampler};

impl Config {
    /// Reads the `OTEL_*` variables, and `TOKENGAUGE_GEN_AI_NAMES` and `TOKENGAUGE_KEEP_UNSAMPLED_FAILURES`, through
    /// `get`. A configuration file is laid under the environment by a `get` that falls back on the file's values.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> (Self, Vec<IgnoredSetting>) {
        let environment = Environment { get: &get, problems: RefCell::default() };
        let config = Self {
            disabled: environment.flag("OTEL_SDK_DISABLED"),
            resource: environment.resource(),
            metrics: environment.signal("METRICS", "/v1/metrics"),
            traces: environment.signal("TRACES", "/v1/traces"),
            metric_interval: environment
                .positive_millis("OTEL_METRIC_EXPORT_INTERVAL")
                .unwrap_or(Self::METRIC_INTERVAL),
            temporality: environment.temporality(),
            batch: environment.batch(),
            sampler: environment.sampler(),
            max_value_chars: environment
                .number("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT")
                .or_else(|| environment.number("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT")),
            gen_ai: environment.gen_ai(),
            exemplars: environment.exemplars(),
        };
        (config, environment.problems.into_inner())
    }
}

struct Environment<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
    problems: RefCell<Vec<IgnoredSetting>>,
}

impl Environment<'_> {
    fn signal(&self, signal: &str, path: &str) -> SignalConfig {
        let own = |what: &str| format!("OTEL_EXPORTER_OTLP_{signal}_{what}");
        let either = |what: &str| {
            let general = format!("OTEL_EXPORTER_OTLP_{what}");
            [own(what), general].into_iter().find_map(|name| Some((self.text(&name)?, name)))
        };
        let protocol = either("PROTOCOL").and_then(|(value, name)| self.protocol(&name, &value));
        let endpoint = self.exports(signal).then(|| self.endpoint(signal, path, protocol));
        let mut timeout = either("TIMEOUT")
            .and_then(|(value, name)| self.parse_millis(&name, &value))
            .unwrap_or(Config::TIMEOUT);
        if signal == "METRICS" {
            let bound = self.positive_millis("OTEL_METRIC_EXPORT_TIMEOUT");
            timeout = bound.map_or(timeout, |bound| bound.min(timeout));
        }
        let file = |what| either(what).map(|(value, _)| PathBuf::from(value));
        SignalConfig {
            endpoint: endpoint.flatten(),
            protocol: protocol.unwrap_or_default(),
            headers: either("HEADERS")
                .map(|(value, name)| ExportHeaders(self.pairs(&name, &value)))
                .unwrap_or_default(),
            timeout,
            gzip: either("COMPRESSION").is_some_and(|(value, name)| self.gzip(&name, &value)),
            tls: TlsFiles {
                certificate: file("CERTIFICATE"),
                client_key: file("CLIENT_KEY"),
                client_certificate: file("CLIENT_CERTIFICATE"),
            },
        }
    }

    /// The signal's own endpoint is taken as it is; over HTTP the general one gets the signal's path.
    fn endpoint(&self, signal: &str, path: &str, protocol: Option<Protocol>) -> Option<String> {
        let own = format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT");
        let (endpoint, name, path) = match self.text(&own) {
            Some(endpoint) => (endpoint, own, ""),
            None => {
                let name = "OTEL_EXPORTER_OTLP_ENDPOINT";
                (self.text(name)?, name.to_owned(), path)
            }
        };
        let Some(url) = self.with_scheme(signal, &name, &endpoint) else {
            self.complain(&name, format!("`{endpoint}` is not a URL like http://localhost:4318"));
            return None;
        };
        if protocol.is_none() && url.trim_end_matches('/').ends_with(":4317") {
            self.complain(&name, "port 4317 is commonly gRPC, but http/protobuf is the default: set OTEL_EXPORTER_OTLP_PROTOCOL=grpc if so".into());
        }
        Some(match protocol.unwrap_or_default() {
            Protocol::Grpc => url,
            Protocol::HttpProtobuf if path.is_empty() => url,
            Protocol::HttpProtobuf => format!("{}{path}", url.trim_end_matches('/')),
        })
    }

    /// Without a scheme, `…_INSECURE` decides which it is.
    fn with_scheme(&self, signal: &str, name: &str, endpoint: &str) -> Option<String> {
        let url = if endpoint.contains("://") {
            endpoint.to_owned()
        } else {
            let own = format!("OTEL_EXPORTER_OTLP_{signal}_INSECURE");
            let own_or_general = match self.text(&own) {
                Some(_) => own.as_str(),
                None => "OTEL_EXPORTER_OTLP_INSECURE",
            };
            let scheme = if self.flag(own_or_general) { "http" } else { "https" };
            self.complain(name, format!("`{endpoint}` has no scheme; taken as {scheme}://"));
            format!("{scheme}://{endpoint}")
        };
        let uri: http::Uri = url.parse().ok()?;
        let known = matches!(uri.scheme_str(), Some("http" | "https"));
        (known && uri.host().is_some_and(|host| !host.is_empty())).then_some(url)
    }

    /// `OTEL_METRICS_EXPORTER` and `OTEL_TRACES_EXPORTER`: `none` turns the signal off. Prometheus is always served.
    fn exports(&self, signal: &str) -> bool {
        let name = format!("OTEL_{signal}_EXPORTER");
        let Some(value) = self.text(&name) else {
            return true;
        };
        let words: Vec<_> = value.split(',').map(|word| word.trim().to_ascii_lowercase()).collect();
        for word in &words {
            if !matches!(word.as_str(), "otlp" | "none" | "prometheus") {
                self.complain(&name, format!("`{word}` is not supported; use otlp or none"));
            }
        }
        words.iter().any(|word| word == "otlp")
            || !words.iter().any(|word| matches!(word.as_str(), "none" | "prometheus"))
    }

    fn protocol(&self, name: &str, value: &str) -> Option<Protocol> {
        match value.to_ascii_lowercase().as_str() {
            "grpc" => Some(Protocol::Grpc),
            "http/protobuf" => Some(Protocol::HttpProtobuf),
            _ => self.reject(name, value, "grpc or http/protobuf"),
        }
    }

    fn gzip(&self, name: &str, value: &str) -> bool {
        match value.to_ascii_lowercase().as_str() {
            "gzip" => true,
            "none" => false,
            _ => self.reject(name, value, "gzip or none").unwrap_or(false),
        }
    }

    fn temporality(&self) -> Temporality {
        let name = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE";
        let Some(value) = self.text(name) else {
            return Temporality::default();
        };
        match value.to_ascii_lowercase().as_str() {
            "cumulative" => Temporality::Cumulative,
            "delta" => Temporality::Delta,
            "lowmemory" => Temporality::LowMemory,
            _ => self.reject(name, &value, "cumulative, delta or lowmemory").unwrap_or_default(),
        }
    }

    fn batch(&self) -> BatchConfig {
        let default = BatchConfig::default();
        let at_least_one = |name| {
            self.number(name).filter(|&number| {
                number > 0 || self.reject::<()>(name, "0", "a number above 0").is_some()
            })
        };
        let queue = at_least_one("OTEL_BSP_MAX_QUEUE_SIZE").unwrap_or(default.queue);
        let size = at_least_one("OTEL_BSP_MAX_EXPORT_BATCH_SIZE").unwrap_or(default.size);
        BatchConfig {
            delay: self.positive_millis("OTEL_BSP_SCHEDULE_DELAY").unwrap_or(default.delay),
            queue,
            size: size.min(queue),
            timeout: self.positive_millis("OTEL_BSP_EXPORT_TIMEOUT").unwrap_or(default.timeout),
        }
    }

    fn sampler(&self) -> Sampler {
        let default = Sampler {
            against_parent: self.switch("TOKENGAUGE_KEEP_UNSAMPLED_FAILURES", true),
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
                let words =
                    "always_on, always_off, traceidratio, or one of them after parentbased_";
                return self.reject(name, &value, words).unwrap_or(default);
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

    fn gen_ai(&self) -> GenAiNames {
        let name = "TOKENGAUGE_GEN_AI_NAMES";
        let Some(value) = self.text(name) else {
            return GenAiNames::default();
        };
        match value.to_ascii_lowercase().as_str() {
            "latest" => GenAiNames::Latest,
            "legacy" => GenAiNames::Legacy,
            "both" => GenAiNames::Both,
            "off" => GenAiNames::Off,
            _ => self.reject(name, &value, "latest, legacy, both or off").unwrap_or_default(),
        }
    }

    fn exemplars(&self) -> ExemplarFilter {
        let name = "OTEL_METRICS_EXEMPLAR_FILTER";
        let Some(value) = self.text(name) else {
            return ExemplarFilter::default();
        };
        match value.to_ascii_lowercase().as_str() {
            "trace_based" => ExemplarFilter::TraceBased,
            "always_on" => ExemplarFilter::AlwaysOn,
            "always_off" => ExemplarFilter::AlwaysOff,
            _ => self
                .reject(name, &value, "trace_based, always_on or always_off")
                .unwrap_or_default(),
        }
    }

    /// `OTEL_SERVICE_NAME` goes before `service.name` in `OTEL_RESOURCE_ATTRIBUTES`.
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
        // Without one, replicas collide: Prometheus makes its `instance` of it.
        if let Some((_, id)) =
            resource.iter_mut().find(|(key, id)| key == "service.instance.id" && id.is_empty())
        {
            *id = random_uuid();
        }
        resource
    }

    /// `key=value,key=value`, both percent-encoded.
    fn pairs(&self, name: &str, list: &str) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let decoded = item.split_once('=').and_then(|(key, value)| {
                Some((percent_decoded(key.trim())?, percent_decoded(value.trim())?))
            });
            match decoded {
                Some((key, value)) if !key.is_empty() => pairs.push((key, value)),
                // The value may be a credential: say which place, not what stands there.
                Some(_) | None => self.complain(
                    name,
                    format!(
                        "entry {} is not key=value, percent-encoded; it is ignored",
                        pairs.len() + 1
                    ),
                ),
            }
        }
        pairs
    }

    fn flag(&self, name: &str) -> bool {
        self.switch(name, false)
    }

    fn switch(&self, name: &str, default: bool) -> bool {
        let Some(value) = self.text(name) else {
            return default;
        };
        match value.to_ascii_lowercase().as_str() {
            "true" => true,
            "false" => false,
            _ => self.reject(name, &value, "true or false").unwrap_or(default),
        }
    }

    fn number(&self, name: &str) -> Option<usize> {
        let value = self.text(name)?;
        value.parse().ok().or_else(|| self.reject(name, &value, "a whole number"))
    }

    fn positive_millis(&self, name: &str) -> Option<Duration> {
        self.parse_millis(name, &self.text(name)?)
    }

    fn parse_millis(&self, name: &str, value: &str) -> Option<Duration> {
        match value.parse() {
            Ok(millis) if millis > 0 => Some(Duration::from_millis(millis)),
            Ok(_) | Err(_) => self.reject(name, value, "milliseconds above 0"),
        }
    }

    /// An empty value is an unset one.
    fn text(&self, name: &str) -> Option<String> {
        let value = (self.get)(name)?;
        let value = value.trim();
        (!value.is_empty()).then(|| value.to_owned())
    }

    /// Reports a value that is not understood; there is nothing to put in its place.
    fn reject<T>(&self, name: &str, value: &str, wanted: &str) -> Option<T> {
        self.complain(name, format!("`{value}` is ignored: it should be {wanted}"));
        None
    }

    /// Once for each: general variables are read for every signal.
    fn complain(&self, name: &str, message: String) {
        let problem = IgnoredSetting { variable: name.to_owned(), message };
        let mut problems = self.problems.borrow_mut();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
}

/// `None` where an escape is broken or what comes out is not UTF-8.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let value = digit()? * 16 + digit()?;
        decoded.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(decoded).ok()
}

/// A UUID of version 4. Uniqueness is all that matters here, so any random source will do.
fn random_uuid() -> String {
    let bits = fastrand::u128(..);
    let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    let mut uuid = String::with_capacity(36);
    for (place, digit) in hex.chars().enumerate() {
        if matches!(place, 8 | 12 | 16 | 20) {
            uuid.push('-');
        }
        uuid.push(digit);
    }
    uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Config, Vec<String>) {
        let (config, problems) = Config::from_env(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        (config, problems.into_iter().map(|problem| problem.variable).collect())
    }

    fn quiet(variables: &[(&str, &str)]) -> Config {
        let (config, problems) = read(variables);
        assert!(problems.is_empty(), "{problems:?}");
        config
    }

    #[test]
    fn an_empty_environment_sends_nothing_and_asks_for_nothing() {
        let config = quiet(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]);
        assert!(!config.sends());
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
    fn the_general_endpoint_gets_the_signals_path_over_http_only() {
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
    fn a_signals_own_variable_goes_before_the_general_one() {
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
    fn one_signal_can_be_sent_without_the_other() {
        let traces = quiet(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://own:4318")]);
        assert_eq!((traces.sends_metrics(), traces.sends_traces()), (false, true));
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://general:4318");
        let metrics =
            quiet(&[endpoint, ("OTEL_TRACES_EXPORTER", "none"), ("OTEL_METRICS_EXPORTER", "otlp")]);
        assert_eq!((metrics.sends_metrics(), metrics.sends_traces()), (true, false));
        let scraped = quiet(&[endpoint, ("OTEL_METRICS_EXPORTER", "prometheus")]);
        assert!(!scraped.sends_metrics());
        let disabled = quiet(&[endpoint, ("OTEL_SDK_DISABLED", "TRUE")]);
        assert!(!disabled.sends() && disabled.summary().contains("OTEL_SDK_DISABLED"));
    }

    #[test]
    fn resource_attributes_are_percent_decoded_and_the_service_name_goes_first() {
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
    fn an_instance_id_is_made_where_none_is_given() {
        let id = |config: &Config| config.resource[2].1.clone();
        let (one, other) = (id(&quiet(&[])), id(&quiet(&[])));
        assert_ne!(one, other);
        assert_eq!(one.len(), 36);
        assert_eq!((one.as_bytes()[14], one.as_bytes()[8]), (b'4', b'-'));
        assert!(matches!(one.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{one}");
    }

    #[test]
    fn samplers() {
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
    fn batches_and_limits() {
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
            config.batch,
            BatchConfig { delay: millis(200), queue: 100, size: 100, timeout: millis(700) }
        );
        assert_eq!((config.metric_interval, config.metrics.timeout), (millis(1_000), millis(400)));
        assert_eq!(config.max_value_chars, Some(64));
        assert_eq!(config.temporality, Temporality::Delta);
        assert!(config.gen_ai.latest() && config.gen_ai.legacy());
    }

    #[test]
    fn what_is_not_understood_is_reported_and_ignored() {
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
        ] {
            let (mut config, problems) = read(&[(variable, value)]);
            assert_eq!(problems, [variable], "{variable}={value}");
            let mut default = Config::default();
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

    #[test]
    fn an_endpoint_without_a_scheme_is_secure_unless_said_otherwise() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318");
        let (config, problems) = read(&[endpoint]);
        assert_eq!(config.traces.endpoint.as_deref(), Some("https://collector:4318/v1/traces"));
        assert_eq!(problems, ["OTEL_EXPORTER_OTLP_ENDPOINT"]);
        let (config, _) = read(&[endpoint, ("OTEL_EXPORTER_OTLP_INSECURE", "true")]);
        assert_eq!(config.traces.endpoint.as_deref(), Some("http://collector:4318/v1/traces"));
    }

    #[test]
    fn the_port_of_grpc_without_its_protocol_is_pointed_out() {
        let (_, problems) = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317")]);
        assert_eq!(problems, ["OTEL_EXPORTER_OTLP_ENDPOINT"]);
    }

    #[test]
    fn credentials_are_never_shown() {
        let config = quiet(&[("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hunter2")]);
        assert_eq!(
            config.metrics.headers.0,
            [("authorization".to_owned(), "Bearer hunter2".to_owned())]
        );
        assert!(!format!("{config:?}").contains("hunter2"));
        let (_, problems) = Config::from_env(|name| {
            (name == "OTEL_EXPORTER_OTLP_HEADERS").then(|| "hunter2".to_owned())
        });
        assert!(problems.iter().all(|problem| !problem.to_string().contains("hunter2")));
    }
}
