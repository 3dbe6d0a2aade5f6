//! Upstreams, with the metrics endpoints and the warm-up tracking of the engines behind them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::check_name;
use crate::config::deserialize::{Field, Spanned};
use crate::config::errors::ErrorCollector;
use crate::config::raw;
use crate::config::value::TimeLimit;
use crate::forward;
use crate::scrape;
use tokengauge_measure::engine::warm;
use tokengauge_types::label::Label;
use tokengauge_types::url::{PathOrUrl, Url};

/// A shorter limit fails every request. A limit of more than a day is `off`.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(86_400);

const URL_HINT: &str = "write the URL, such as `url: https://api.openai.com`";

/// All upstreams.
#[derive(Default)]
pub(super) struct Upstreams {
    pub(super) all: Vec<forward::Config>,
    pub(super) scrapes: Vec<scrape::Config>,
    pub(super) warm: Vec<(Label, warm::Config)>,
}

pub(super) fn resolve(
    written: Field<BTreeMap<String, Field<raw::Upstream>>>,
    errors: &mut ErrorCollector,
) -> Upstreams {
    let mut upstreams = Upstreams::default();
    let Some(Spanned { value, node }) = written.spanned() else {
        return upstreams;
    };
    if value.is_empty() {
        let hint = "add an upstream, such as `openai: {url: https://api.openai.com}`";
        errors.add(node, format!("the section is empty; {hint}"));
    }
    for (name, written) in value {
        match written {
            Field::Present(written) => {
                check_name(&name, written.node, errors);
                upstreams.add(&name, written, errors);
            }
            Field::Absent => errors.add_missing(node, &format!("{name}.url"), URL_HINT),
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
        written: Spanned<raw::Upstream>,
        errors: &mut ErrorCollector,
    ) -> Option<()> {
        let Spanned { value, node } = written;
        let timeouts = timeouts(value.timeouts.or_default(), errors);
        let pool = value.pool.or_default();
        let url = value.url.required(errors, node, "url", URL_HINT)?.value;
        let config = with_defaults(name, url);
        let config = forward::Config {
            timeouts,
            keep_host: value.keep_host.value().unwrap_or_default(),
            ca_file: value.ca_file.value(),
            pool_idle: pool.idle.duration().unwrap_or(config.pool_idle),
            pool_size: pool.size.or(config.pool_size),
            protocol: value.protocol.value().unwrap_or(config.protocol),
            ..config
        };
        self.scrapes.extend(value.metrics.value().map(|metrics| scrape(&config, metrics)));
        let warm = value.warm.value().map(|written| (config.name.clone(), warm(written)));
        self.warm.extend(warm);
        self.all.push(config);
        Some(())
    }
}

/// The upstream at `url`, with defaults for everything else.
pub(super) fn with_defaults(name: &str, url: Url) -> forward::Config {
    let Url { tls, host, port, base_path } = url;
    forward::Config { base_path, ..forward::Config::to(Label::known(name), tls, &host, port) }
}

fn timeouts(written: raw::Timeouts, errors: &mut ErrorCollector) -> forward::Timeouts {
    let default = forward::Timeouts::default();
    let mut limit = |field, default| timeout(field, errors).unwrap_or(default);
    forward::Timeouts {
        connect: limit(written.connect, default.connect),
        head: limit(written.head, default.head),
        idle: limit(written.idle, default.idle),
        total: limit(written.total, default.total),
    }
}

fn timeout(field: Field<TimeLimit>, errors: &mut ErrorCollector) -> Option<Option<Duration>> {
    let Spanned { value: TimeLimit(limit), node } = field.spanned()?;
    if limit.is_some_and(|limit| !TIMEOUTS.contains(&limit)) {
        errors.add(node, "out of range; write a time from 1ms to 1d, or off");
    }
    Some(limit)
}

fn scrape(upstream: &forward::Config, written: raw::Metrics) -> scrape::Config {
    let default = default_scrape(upstream, written.url.value());
    scrape::Config {
        engine: written.engine.value().and_then(|choice| choice.0),
        interval: written.interval.duration().unwrap_or(default.interval),
        timeout: written.timeout.duration().unwrap_or(default.timeout),
        ..default
    }
}

/// A scrape of `page`, or of the path that engines use by default.
pub(super) fn default_scrape(
    upstream: &forward::Config,
    page: Option<PathOrUrl>,
) -> scrape::Config {
    let url = match page.unwrap_or_else(|| PathOrUrl::Path(scrape::Config::PATH.to_owned())) {
        PathOrUrl::Url(url) => url,
        PathOrUrl::Path(path) => Url {
            tls: upstream.tls,
            host: upstream.host.clone(),
            port: upstream.port,
            base_path: path,
        },
    };
    let server = with_defaults(upstream.name.as_str(), url);
    scrape::Config {
        upstream: upstream.name.clone(),
        to: forward::Config { ca_file: upstream.ca_file.clone(), ..server },
        engine: None,
        interval: scrape::Config::INTERVAL,
        timeout: scrape::Config::TIMEOUT,
    }
}

fn warm(written: raw::Warm) -> warm::Config {
    let default = warm::Config::default();
    warm::Config {
        idle: written.idle.duration().unwrap_or(default.idle),
        exchanges: written.exchanges.or(default.exchanges),
        young: written.young.duration().unwrap_or(default.young),
        load: written.load.duration().unwrap_or(default.load),
    }
}
