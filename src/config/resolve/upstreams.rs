//! Resolves upstreams, the metrics endpoints of their engines, and warm-up tracking.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::{check_length, check_name};
use crate::config::deserialize::{Field, Spanned};
use crate::config::errors::ErrorCollector;
use crate::config::raw;
use crate::config::value::{EngineChoice, TimeLimit};
use crate::forward;
use crate::scrape;
use tokengauge_measure::engine::warm;
use tokengauge_telemetry::MAX_CONFIGURED;
use tokengauge_types::label::Label;
use tokengauge_types::url::{PathOrUrl, Url};

/// Allowed range of a timeout. Below 1 ms, every request would fail. For more than one day, write `off`.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(86_400);

const URL_HINT: &str = "write the URL, such as `url: https://api.openai.com`";

/// All upstreams.
#[derive(Default)]
pub(super) struct Upstreams {
    pub(super) all: Vec<forward::UpstreamConfig>,
    pub(super) scrapes: Vec<scrape::Config>,
    pub(super) warm: Vec<(Label, warm::Config)>,
}

pub(super) fn resolve(
    written: &mut Field<BTreeMap<String, Field<raw::Upstream>>>,
    errors: &mut ErrorCollector,
) -> Upstreams {
    let mut upstreams = Upstreams::default();
    let Some(Spanned { value, node }) = written.spanned_mut() else {
        return upstreams;
    };
    if value.is_empty() {
        let hint = "add an upstream, such as `openai: {url: https://api.openai.com}`";
        errors.add(*node, format!("the section is empty; {hint}"));
    }
    check_length((value.len(), *node), MAX_CONFIGURED, "upstreams", errors);
    for (name, written) in value {
        match written {
            Field::Present(written) => {
                check_name(name, written.node, errors);
                upstreams.add(name, written, errors);
            }
            Field::Absent => errors.add_missing(*node, &format!("{name}.url"), URL_HINT),
            Field::Invalid => {}
        }
    }
    upstreams
}

impl Upstreams {
    /// Adds an upstream, unless it has no URL.
    fn add(
        &mut self,
        name: &str,
        written: &mut Spanned<raw::Upstream>,
        errors: &mut ErrorCollector,
    ) -> Option<()> {
        let Spanned { value, node } = written;
        let timeouts = timeouts(value.timeouts.or_insert_default(), errors);
        let url = value.url.required(errors, *node, "url", URL_HINT)?.value.clone();
        let pool = value.pool.or_insert_default();
        let default = with_defaults(Label::from_trusted(name), url);
        let config = forward::UpstreamConfig {
            timeouts,
            preserve_host: *value.preserve_host.or_insert_default(),
            ca_file: value.ca_file.get().cloned(),
            idle_timeout: pool.idle_timeout.or_time(default.idle_timeout),
            pool_size: pool.max_idle_connections.or(default.pool_size),
            retry: *pool.retry.or_insert(default.retry),
            protocol: *value.protocol.or_insert(default.protocol),
            ..default
        };
        let metrics = value.engine_metrics.spanned_mut();
        self.scrapes.extend(metrics.map(|metrics| scrape(&config, &mut metrics.value)));
        let warm = value.warmup.spanned_mut();
        self.warm.extend(warm.map(|written| (config.name.clone(), self::warm(&mut written.value))));
        self.all.push(config);
        Some(())
    }
}

/// Returns an upstream with the URL `url` and defaults for all other settings.
fn with_defaults(name: Label, url: Url) -> forward::UpstreamConfig {
    let Url { tls, host, port, base_path } = url;
    forward::UpstreamConfig { base_path, ..forward::UpstreamConfig::new(name, tls, &host, port) }
}

fn timeouts(written: &mut raw::Timeouts, errors: &mut ErrorCollector) -> forward::Timeouts {
    let default = forward::Timeouts::default();
    let mut limit = |field: &mut Field<TimeLimit>, default| {
        let is_invalid = |limit| !TIMEOUTS.contains(&limit);
        if let Some(limit) = field.as_ref()
            && limit.value.0.is_some_and(is_invalid)
        {
            errors.add(limit.node, "out of range; write a time from 1ms to 1d, or off");
        }
        field.or_insert(TimeLimit(default)).0
    };
    forward::Timeouts {
        connect: limit(&mut written.connect, default.connect),
        response_header: limit(&mut written.response_header, default.response_header),
        idle: limit(&mut written.idle, default.idle),
        total: limit(&mut written.total, default.total),
    }
}

fn scrape(upstream: &forward::UpstreamConfig, written: &mut raw::EngineMetrics) -> scrape::Config {
    let forward::UpstreamConfig { tls, host, port, .. } = upstream;
    let url = match written.url.or_insert(PathOrUrl::Path(scrape::Config::PATH.to_owned())) {
        PathOrUrl::Url(url) => url.clone(),
        PathOrUrl::Path(path) => {
            Url { tls: *tls, host: host.clone(), port: *port, base_path: path.clone() }
        }
    };
    if (url.tls, &url.host, url.port) == (*tls, host, *port) && !url.base_path.is_empty() {
        written.url = Field::from_value(PathOrUrl::Path(url.base_path.clone()));
    }
    let server = with_defaults(upstream.name.clone(), url);
    scrape::Config {
        upstream: upstream.name.clone(),
        to: forward::UpstreamConfig { ca_file: upstream.ca_file.clone(), ..server },
        engine: written.engine.or_insert(EngineChoice(None)).0,
        interval: written.scrape_interval.or_time(scrape::Config::INTERVAL),
        timeout: written.scrape_timeout.or_time(scrape::Config::TIMEOUT),
    }
}

fn warm(written: &mut raw::Warmup) -> warm::Config {
    let default = warm::Config::default();
    warm::Config {
        idle: written.idle_timeout.or_time(default.idle),
        exchanges: written.min_requests.or(default.exchanges),
        young: written.startup_grace.or_time(default.young),
        load: written.cold_load_threshold.or_time(default.load),
    }
}
