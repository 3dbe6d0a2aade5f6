//! Upstreams, the metrics endpoints of their engines, and warm-up tracking.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{check_length, check_name};
use crate::config::errors::{ErrorCollector, NodeId};
use crate::config::spanned::{Map, Spanned};
use crate::config::value::{DurationValue, EngineChoice, FilePath};
use crate::forward::{self, Protocol, Retry, UpstreamConfig};
use crate::scrape;
use tokengauge_measure::engine::warm;
use tokengauge_telemetry::MAX_CONFIGURED;
use tokengauge_types::bounded::{Int, MINUTE, SECOND, Time, millis};
use tokengauge_types::label::Label;
use tokengauge_types::url::{PathOrUrl, Url};

const URL_HINT: &str = "write the URL, such as `url: https://api.openai.com`";

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["url"]))]
pub struct Upstream {
    /// `http://` or `https://`. A path in the URL is prepended to the path of each request. Credentials and queries are
    /// rejected. At most 512 upstreams.
    pub url: Option<Url>,
    /// `http1`: one connection per request; closing it cancels the request. `http2`: by ALPN over TLS, else with prior
    /// knowledge.
    pub protocol: Protocol,
    /// Whether to forward the client's `Host` header instead of the host of the URL.
    pub preserve_host: bool,
    /// PEM file with additional root certificates for this upstream.
    pub ca_file: Option<FilePath>,
    /// Time limits of a request.
    pub timeouts: forward::Timeouts,
    /// Idle connections that are kept for reuse.
    pub pool: Pool,
    /// The metrics endpoint of the engine behind this upstream. Not scraped by default.
    pub engine_metrics: Option<EngineMetrics>,
    /// When the engine behind this upstream counts as warm. Without this key, warm-up is not tracked.
    pub warmup: Option<warm::WarmupConfig>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pool {
    /// How long an idle connection is kept. The default over TLS is `50s`. Keep it below the upstream's
    /// keep-alive timeout (uvicorn, used by most engines: 5 s). 5 minutes after it was opened, a connection takes no
    /// further request, so that a changed DNS answer applies.
    // After 5 min every server has closed the connection.
    pub idle_timeout:
        Option<Time<0, { 5 * MINUTE }, { millis(UpstreamConfig::IDLE_TIMEOUT_PLAIN) }>>,
    /// Maximum number of idle connections.
    pub max_idle_connections: Int<0, 65_536, { UpstreamConfig::POOL_SIZE as u64 }>,
    /// Which requests are sent again on a new connection if a reused connection ends before any byte of the response.
    /// `safe`: idempotent requests (by method, or with `Idempotency-Key`), and requests of which the upstream has
    /// [provably read nothing](reliability.md#repeated-requests). `always`: all, although the upstream may execute a
    /// request twice. `never`: only requests of which no byte was written. Bodies up to 1 MiB can be sent again.
    pub retry: Retry,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineMetrics {
    /// Metrics endpoint of the engine: a path on the upstream's host, or a URL without credentials and query.
    /// `engine_metrics: {}` uses the defaults; see [engine metrics](engine-metrics.md). Flag `--engine-metrics`, for
    /// each `--upstream`.
    pub url: PathOrUrl,
    /// `vllm`, `sglang`, `tgi`, `tensorrt_llm`, `llama_cpp`, `triton` or `nim`. `auto` detects the engine by its metric
    /// names.
    pub engine: EngineChoice,
    /// Scrape interval. Values expire after three intervals plus `scrape_timeout`.
    // Engines do not update their numbers more often than once per second. Queues change within 5 min.
    pub scrape_interval: Time<SECOND, { 5 * MINUTE }, { millis(scrape::ScrapeConfig::INTERVAL) }>,
    /// Maximum time for a complete response.
    // Below 100 ms, 1 MB over a slow line always fails. A page older than a minute does not describe the present.
    pub scrape_timeout: Time<100, MINUTE, { millis(scrape::ScrapeConfig::TIMEOUT) }>,
}

impl Default for EngineMetrics {
    fn default() -> Self {
        Self {
            url: PathOrUrl::Path(scrape::ScrapeConfig::PATH.to_owned()),
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
    pub scrapes: Vec<scrape::ScrapeConfig>,
    pub warm: Vec<(Label, warm::WarmupConfig)>,
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
    for empty in map.invalid.iter().filter(|invalid| invalid.node != NodeId::ROOT) {
        errors.required::<()>(&None, (empty.node, "url"), URL_HINT);
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
        let config = UpstreamConfig {
            timeouts: value.timeouts,
            preserve_host: value.preserve_host,
            ca_file: value.ca_file.clone().map(|path| path.0),
            idle_timeout: value.pool.idle_timeout.get_or_insert(Time::within(idle_timeout)).get(),
            pool_size: value.pool.max_idle_connections.get(),
            retry: value.pool.retry,
            protocol: value.protocol,
            ..default
        };
        let metrics = value.engine_metrics.as_mut();
        self.scrapes.extend(metrics.map(|metrics| scrape(&config, metrics)));
        self.warm.extend(value.warmup.map(|warmup| (config.name.clone(), warmup)));
        self.all.push(config);
    }
}

/// Returns an upstream with the URL `url` and defaults for all other settings.
fn with_defaults(name: Label, url: Url) -> UpstreamConfig {
    let Url { tls, host, port, base_path } = url;
    UpstreamConfig { base_path, ..UpstreamConfig::new(name, tls, &host, port) }
}

fn scrape(upstream: &UpstreamConfig, written: &mut EngineMetrics) -> scrape::ScrapeConfig {
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
    scrape::ScrapeConfig {
        upstream: upstream.name.clone(),
        to: UpstreamConfig { ca_file: upstream.ca_file.clone(), ..server },
        engine: written.engine.0,
        interval: written.scrape_interval.get(),
        timeout: written.scrape_timeout.get(),
    }
}
