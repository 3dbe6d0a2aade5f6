//! Upstreams, the metrics endpoints of their engines, and warm-up tracking.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{check_length, check_name};
use crate::config::bounded::{DAY, HOUR, Int, MINUTE, SECOND, Time, millis};
use crate::config::errors::{ErrorCollector, NodeId};
use crate::config::spanned::{Map, Spanned};
use crate::config::value::{DurationValue, EngineChoice, TimeLimit};
use crate::forward::{self, Protocol, Retry, UpstreamConfig};
use crate::scrape;
use tokengauge_measure::engine::warm;
use tokengauge_telemetry::MAX_CONFIGURED;
use tokengauge_types::label::Label;
use tokengauge_types::url::{PathOrUrl, Url};

const URL_HINT: &str = "write the URL, such as `url: https://api.openai.com`";

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["url"]))]
pub struct Upstream {
    /// URL of the upstream. A path in the URL is prepended to the path of each request.
    pub url: Option<Url>,
    /// HTTP version of connections to this upstream.
    pub protocol: Protocol,
    /// Whether to forward the client's Host header instead of the URL's host.
    pub preserve_host: bool,
    /// Additional root certificates for this upstream (PEM file).
    pub ca_file: Option<PathBuf>,
    /// Time limits of a request.
    pub timeouts: Timeouts,
    /// Idle connections that are kept for reuse.
    pub pool: Pool,
    /// The metrics endpoint of the engine behind this upstream. Not scraped by default.
    pub engine_metrics: Option<EngineMetrics>,
    /// When the engine behind this upstream counts as warm. Without this key, warm-up is not tracked.
    pub warmup: Option<Warmup>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// Maximum time for DNS, TCP and TLS together.
    pub connect: Timeout,
    /// Maximum time from the start of sending the request to the response headers.
    pub response_header: Timeout,
    /// Maximum time between two chunks of the response body.
    pub idle: Timeout,
    /// Maximum time from the request headers to the end of the response.
    pub total: Timeout,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pool {
    /// Maximum time that an idle connection is kept. Keep this value below the keep-alive timeout of the upstream.
    // After 5 min every server has closed the connection.
    pub idle_timeout: Option<Time<0, { 5 * MINUTE }>>,
    /// Maximum number of idle connections.
    pub max_idle_connections: Int<0, 65_536, { UpstreamConfig::POOL_SIZE as u64 }>,
    /// Which requests are sent again if a reused connection ends before the response begins: safe, always or never.
    pub retry: Retry,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineMetrics {
    /// A path on the upstream's host, or a URL.
    pub url: PathOrUrl,
    /// Name of the engine. By default, the names of the metrics identify the engine.
    pub engine: EngineChoice,
    /// Scrape interval.
    // Engines do not update their numbers more often than once per second. Queues change within 5 min.
    pub scrape_interval: Time<SECOND, { 5 * MINUTE }, { millis(scrape::Config::INTERVAL) }>,
    /// Maximum time for a complete response.
    // Below 100 ms, 1 MB over a slow line always fails. A page older than a minute does not describe the present.
    pub scrape_timeout: Time<100, MINUTE, { millis(scrape::Config::TIMEOUT) }>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Warmup {
    /// Time without requests after which the engine must warm up again.
    // A second without traffic is not idleness. No cache is kept for longer than a day.
    pub idle_timeout: Time<SECOND, DAY, { millis(warm::Config::DEFAULT.idle) }>,
    /// Number of successful responses after which the engine counts as warm.
    pub min_requests: Int<0, 1_000, { warm::Config::DEFAULT.exchanges as u64 }>,
    /// Time after the engine's start during which the engine counts as warming up. 0s disables this rule.
    pub startup_grace: Time<0, HOUR, { millis(warm::Config::DEFAULT.young) }>,
    /// A response marks a cold start if it reports a longer model load time than this value.
    // Looking up a loaded model takes some time as well. No model takes an hour to load.
    pub cold_load_threshold: Time<1, HOUR, { millis(warm::Config::DEFAULT.load) }>,
}

/// A time limit of a request. Below 1 ms, every request would fail. For more than one day, write `off`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(try_from = "TimeLimit")]
#[schemars(inline)]
pub struct Timeout(TimeLimit);

impl TryFrom<TimeLimit> for Timeout {
    type Error = &'static str;

    fn try_from(limit: TimeLimit) -> Result<Self, &'static str> {
        let range = Duration::from_millis(1)..=Duration::from_secs(86_400);
        match limit.0.is_none_or(|limit| range.contains(&limit)) {
            true => Ok(Self(limit)),
            false => Err("out of range; write a time from 1ms to 1d, or off"),
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        let forward::Timeouts { connect, response_header, idle, total } =
            forward::Timeouts::default();
        let limit = |limit| Timeout(TimeLimit(limit));
        Self {
            connect: limit(connect),
            response_header: limit(response_header),
            idle: limit(idle),
            total: limit(total),
        }
    }
}

impl Default for EngineMetrics {
    fn default() -> Self {
        Self {
            url: PathOrUrl::Path(scrape::Config::PATH.to_owned()),
            engine: EngineChoice(None),
            scrape_interval: Time::default(),
            scrape_timeout: Time::default(),
        }
    }
}

/// All upstreams.
#[derive(Default)]
pub struct Upstreams {
    pub all: Vec<UpstreamConfig>,
    pub scrapes: Vec<scrape::Config>,
    pub warm: Vec<(Label, warm::Config)>,
}

pub fn resolve(written: &mut Option<Map<Upstream>>, errors: &mut ErrorCollector) -> Upstreams {
    let mut upstreams = Upstreams::default();
    let Some(map) = written else {
        return upstreams;
    };
    if map.is_empty() && map.invalid.is_empty() {
        let hint = "add an upstream, such as `openai: {url: https://api.openai.com}`";
        errors.add_key(NodeId::ROOT, "upstreams", format!("the section is empty; {hint}"));
    }
    check_length(map.len(), MAX_CONFIGURED, "upstreams", (NodeId::ROOT, "upstreams"), errors);
    for name in &map.invalid {
        errors.required::<()>(&None, (NodeId::ROOT, &format!("upstreams.{name}.url")), URL_HINT);
    }
    for (name, Spanned { value, node }) in map.iter_mut() {
        check_name(name, (*node, ""), errors);
        if let Some(url) = errors.required(&value.url, (*node, "url"), URL_HINT).cloned() {
            upstreams.add(Label::from_trusted(name), url, value);
        }
    }
    upstreams
}

impl Upstreams {
    fn add(&mut self, name: Label, url: Url, value: &mut Upstream) {
        let default = with_defaults(name, url);
        let idle_timeout = DurationValue(default.idle_timeout);
        let timeouts = &value.timeouts;
        let config = UpstreamConfig {
            timeouts: forward::Timeouts {
                connect: timeouts.connect.0.0,
                response_header: timeouts.response_header.0.0,
                idle: timeouts.idle.0.0,
                total: timeouts.total.0.0,
            },
            preserve_host: value.preserve_host,
            ca_file: value.ca_file.clone(),
            idle_timeout: value.pool.idle_timeout.get_or_insert(Time::within(idle_timeout)).get(),
            pool_size: value.pool.max_idle_connections.get(),
            retry: value.pool.retry,
            protocol: value.protocol,
            ..default
        };
        let metrics = value.engine_metrics.as_mut();
        self.scrapes.extend(metrics.map(|metrics| scrape(&config, metrics)));
        let warm = value.warmup.as_ref();
        self.warm.extend(warm.map(|warmup| (config.name.clone(), warmup.resolve())));
        self.all.push(config);
    }
}

impl Warmup {
    fn resolve(&self) -> warm::Config {
        warm::Config {
            idle: self.idle_timeout.get(),
            exchanges: self.min_requests.get(),
            young: self.startup_grace.get(),
            load: self.cold_load_threshold.get(),
        }
    }
}

/// Returns an upstream with the URL `url` and defaults for all other settings.
fn with_defaults(name: Label, url: Url) -> UpstreamConfig {
    let Url { tls, host, port, base_path } = url;
    UpstreamConfig { base_path, ..UpstreamConfig::new(name, tls, &host, port) }
}

fn scrape(upstream: &UpstreamConfig, written: &mut EngineMetrics) -> scrape::Config {
    let UpstreamConfig { tls, host, port, .. } = upstream;
    let url = match &written.url {
        PathOrUrl::Url(url) => url.clone(),
        PathOrUrl::Path(path) => {
            Url { tls: *tls, host: host.clone(), port: *port, base_path: path.clone() }
        }
    };
    if (url.tls, &url.host, url.port) == (*tls, host, *port) && !url.base_path.is_empty() {
        written.url = PathOrUrl::Path(url.base_path.clone());
    }
    let server = with_defaults(upstream.name.clone(), url);
    scrape::Config {
        upstream: upstream.name.clone(),
        to: UpstreamConfig { ca_file: upstream.ca_file.clone(), ..server },
        engine: written.engine.0,
        interval: written.scrape_interval.get(),
        timeout: written.scrape_timeout.get(),
    }
}
