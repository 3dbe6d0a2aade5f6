//! Metrics of the engines behind upstreams: the metrics that engines report, and their warm-up state.

use crate::catalog::attributes::{ASKED, ENGINE, STATE, UPSTREAM, WARM};
use crate::catalog::{Kind, Metric, ROW};
use tokengauge_measure::engine::ScrapeResult;
use tokengauge_measure::record::WarmupState;

pub static REQUESTS: Metric = Metric {
    name: "tokengauge.backend.requests",
    kind: Kind::Gauge,
    unit: "{request}",
    description: "Requests in the engine as it reports them, from any client: waiting and running. Summed over its models and ranks. Absent if not reported, or if the last scrape is older than three intervals.",
    attributes: &[&[UPSTREAM, ENGINE, STATE]],
    combinations: 2,
    ..ROW
};

pub static KV_CACHE: Metric = Metric {
    name: "tokengauge.backend.kv_cache",
    kind: Kind::Gauge,
    unit: "1",
    description: "Used ratio of the engine's KV cache, 0 to 1, as it reports. The fullest of several caches. Absent as above.",
    attributes: &[&[UPSTREAM, ENGINE]],
    ..ROW
};

pub static PREFIX_CACHE: Metric = Metric {
    name: "tokengauge.backend.prefix_cache",
    kind: Kind::Gauge,
    unit: "1",
    description: "Hit ratio of the engine's prefix cache, 0 to 1: hits ÷ queries between the last two scrapes, else the ratio that the engine reports. Absent as above, and without queries.",
    attributes: &[&[UPSTREAM, ENGINE]],
    ..ROW
};

pub static SCRAPE_AGE: Metric = Metric {
    name: "tokengauge.backend.scrape_age",
    kind: Kind::Gauge,
    unit: "s",
    description: "Time since the last successful scrape of the engine's metrics. Absent before the first one.",
    attributes: &[&[UPSTREAM, ENGINE]],
    ..ROW
};

pub static WARM_STATE: Metric = Metric {
    name: "tokengauge.backend.warm",
    kind: Kind::Gauge,
    unit: "{backend}",
    description: "1 for the current warm-up state of the backend, 0 for the others.",
    attributes: &[&[UPSTREAM, WARM]],
    combinations: WarmupState::ALL.len(),
    ..ROW
};

pub static SELF_SCRAPES: Metric = Metric {
    name: "tokengauge.self.scrapes",
    unit: "{scrape}",
    description: "Scrapes of engine metrics by result.",
    attributes: &[&[UPSTREAM, ASKED]],
    combinations: ScrapeResult::ALL.len(),
    ..ROW
};

pub static SELF_IMPLAUSIBLE: Metric = Metric {
    name: "tokengauge.self.implausible",
    unit: "{number}",
    description: "Values of an engine that are implausible and were ignored: negative, not finite, a ratio above 1, more hits than queries.",
    attributes: &[&[UPSTREAM]],
    ..ROW
};
