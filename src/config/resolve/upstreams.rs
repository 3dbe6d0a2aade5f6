//! Upstreams: where requests go.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::{backends, check_name, length_within, within};
use crate::config::deserialize::{Field, Spanned};
use crate::config::errors::ErrorCollector;
use crate::config::raw;
use crate::config::value::Limit;
use crate::forward;
use crate::scrape;
use tokengauge_measure::engine::warm;
use tokengauge_types::label::Label;
use tokengauge_types::url::Url;

/// A time limit shorter than this fails everything; one longer than a day is `off`.
const LIMITS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(86_400);

pub(super) fn resolve(
    written: Field<BTreeMap<String, Field<raw::Upstream>>>,
    errors: &mut ErrorCollector,
) -> Upstreams {
    let mut upstreams = Upstreams::default();
    let Some(Spanned { value, node }) = written.spanned() else {
        return upstreams;
    };
    if value.is_empty() {
        errors.at(
            node,
            "no upstream is left; add one, such as `openai: {url: https://api.openai.com}`",
        );
    }
    for (name, written) in value {
        match written {
            Field::Present(given) => {
                check_name(&name, given.node, errors);
                upstream(&name, given, &mut upstreams, errors);
            }
            Field::Absent => errors.missing(
                node,
                &format!("{name}.url"),
                "write where it is, such as `url: https://api.openai.com`",
            ),
            Field::Invalid => {}
        }
    }
    upstreams
}

/// All of them, and what is wanted to be known of the engines behind them.
#[derive(Default)]
pub(super) struct Upstreams {
    pub(super) all: Vec<forward::Config>,
    pub(super) scrapes: Vec<scrape::Config>,
    pub(super) warm: Vec<(Label, warm::Config)>,
}

/// Adds it to the others, unless it has no URL.
fn upstream(
    name: &str,
    written: Spanned<raw::Upstream>,
    upstreams: &mut Upstreams,
    errors: &mut ErrorCollector,
) -> Option<()> {
    let Spanned { value, node } = written;
    let timeouts = value.timeouts.value().unwrap_or_default();
    let usual = forward::Timeouts::default();
    let mut limit = |field: Field<Limit>, usual| limit_within(field, errors).unwrap_or(usual);
    let timeouts = forward::Timeouts {
        connect: limit(timeouts.connect, usual.connect),
        head: limit(timeouts.head, usual.head),
        idle: limit(timeouts.idle, usual.idle),
        total: limit(timeouts.total, usual.total),
    };
    let pool = value.pool.value().unwrap_or_default();
    // Beyond 5 min every server has hung up.
    let pool_idle = length_within(pool.idle, Duration::ZERO..=Duration::from_secs(300), errors);
    let pool_size = within(pool.size, 0..=65_536, errors);
    let remedy = "write where it is, such as `url: https://api.openai.com`";
    let url = value.url.required(errors, node, "url", remedy)?.value;
    let mut config = at(name, url);
    config.timeouts = timeouts;
    config.keep_host = value.keep_host.value().unwrap_or_default();
    config.ca_file = value.ca_file.value();
    config.pool_idle = pool_idle.unwrap_or(config.pool_idle);
    config.pool_size = pool_size.unwrap_or(config.pool_size);
    config.protocol = match value.protocol.value() {
        Some(raw::Protocol::Http2) => forward::Protocol::Http2,
        Some(raw::Protocol::Http1) => forward::Protocol::Http1,
        None => config.protocol,
    };
    let scrape = backends::scrape(&config, value.metrics, errors);
    let warm = backends::warm(&config, value.warm, errors);
    upstreams.all.push(config);
    upstreams.scrapes.extend(scrape);
    upstreams.warm.extend(warm);
    Some(())
}

/// The upstream at `url`, with defaults for everything else.
pub(super) fn at(name: &str, url: Url) -> forward::Config {
    let Url { tls, host, port, base_path } = url;
    forward::Config { base_path, ..forward::Config::to(Label::known(name), tls, &host, port) }
}

fn limit_within(field: Field<Limit>, errors: &mut ErrorCollector) -> Option<Option<Duration>> {
    let Spanned { value: Limit(limit), node } = field.spanned()?;
    if let Some(limit) = limit
        && !LIMITS.contains(&limit)
    {
        errors.at(
            node,
            "this limits either everything or nothing; write a time from 1ms to 1d, or off",
        );
    }
    Some(limit)
}
