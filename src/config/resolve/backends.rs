//! What is wanted to be known of the engine behind an upstream: its own metrics, and whether it has warmed up.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{length_within, within};
use crate::config::deserialize::Field;
use crate::config::errors::ErrorCollector;
use crate::config::raw;
use crate::forward;
use crate::scrape;
use tokengauge_measure::engine::warm;
use tokengauge_types::label::Label;
use tokengauge_types::url::{Page, Url};

/// Faster than an engine turns its numbers over nothing new is said; slower than 5 min no queue is seen that matters.
const INTERVALS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(300);

/// Below the lower one a page of 1 MB over a slow line fails always; layers the upper one it is no longer about now.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);

/// A second without an exchange is no idleness; caches that outlive a day are no longer asked about.
const IDLE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);

/// 0 is off.
const YOUNG: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3_600);

/// Every answer takes a moment for looking the model up; no model takes an hour to load.
const LOADS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(3_600);

/// More than a thousand answers are no beginning.
const EXCHANGES: RangeInclusive<usize> = 0..=1_000;

/// `None` where its metrics are not read.
pub(super) fn scrape(
    upstream: &forward::Config,
    written: Field<raw::Metrics>,
    errors: &mut ErrorCollector,
) -> Option<scrape::Config> {
    let written = written.value()?;
    let interval = length_within(written.interval, INTERVALS, errors);
    let timeout = length_within(written.timeout, TIMEOUTS, errors);
    let usual = usual_scrape(upstream, written.url.value());
    Some(scrape::Config {
        engine: written.engine.value().and_then(raw::Engine::known),
        interval: interval.unwrap_or(usual.interval),
        timeout: timeout.unwrap_or(usual.timeout),
        ..usual
    })
}

/// Asks for `page`, or where engines usually have it, with defaults for everything else.
pub(super) fn usual_scrape(upstream: &forward::Config, page: Option<Page>) -> scrape::Config {
    let url = match page.unwrap_or_else(|| Page::Path(scrape::Config::PATH.to_owned())) {
        Page::Url(url) => url,
        Page::Path(path) => Url {
            tls: upstream.tls,
            host: upstream.host.clone(),
            port: upstream.port,
            base_path: path,
        },
    };
    let name = upstream.name.clone();
    let usual = forward::Config::to(name.clone(), url.tls, &url.host, url.port);
    scrape::Config {
        upstream: name,
        to: forward::Config {
            base_path: url.base_path,
            ca_file: upstream.ca_file.clone(),
            ..usual
        },
        engine: None,
        interval: scrape::Config::INTERVAL,
        timeout: scrape::Config::TIMEOUT,
    }
}

/// `None` where nobody asks.
pub(super) fn warm(
    upstream: &forward::Config,
    written: Field<raw::Warm>,
    errors: &mut ErrorCollector,
) -> Option<(Label, warm::Config)> {
    let written = written.value()?;
    let usual = warm::Config::default();
    let config = warm::Config {
        idle: length_within(written.idle, IDLE, errors).unwrap_or(usual.idle),
        exchanges: within(written.exchanges, EXCHANGES, errors).unwrap_or(usual.exchanges),
        young: length_within(written.young, YOUNG, errors).unwrap_or(usual.young),
        load: length_within(written.load, LOADS, errors).unwrap_or(usual.load),
    };
    Some((upstream.name.clone(), config))
}
