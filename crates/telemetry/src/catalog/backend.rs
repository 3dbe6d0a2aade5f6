//! Our own metrics of the engines behind upstreams: what they say of themselves, and whether they have warmed up.

use crate::catalog::attributes::{ASKED, ENGINE, STATE, UPSTREAM, WARM};
use crate::catalog::{Kind, Metric, ROW};
use tokengauge_measure::engine::Asked;
use tokengauge_measure::record::Warm;

pub static REQUESTS: Metric = Metric {
    name: "tokengauge.backend.requests",
    kind: Kind::Gauge,
    unit: "{request}",
    description: "Requests in the engine by its own word, whoever sent them: waiting for their turn, and worked on. Summed over its models and ranks. Absent where it does not say so, and once the reading is older than three intervals.",
    attributes: &[&[UPSTREAM, ENGINE, STATE]],
    combinations: 2,
    ..ROW
};

pub static KV_CACHE: Metric = Metric {
    name: "tokengauge.backend.kv_cache",
    kind: Kind::Gauge,
    unit: "1",
    description: "Share of the engine's KV cache that is in use, 0 to 1, by its own word; of several caches that of the fullest. Absent as above.",
    attributes: &[&[UPSTREAM, ENGINE]],
    ..ROW
};

pub static PREFIX_CACHE: Metric = Metric {
    name: "tokengauge.backend.prefix_cache",
    kind: Kind::Gauge,
    unit: "1",
    description: "Share of what the engine looked up in its prefix cache that was there, 0 to 1: hits ÷ queries between the last two readings of its counters, else its own reckoning. Absent as above, and where nothing was looked up.",
    attributes: &[&[UPSTREAM, ENGINE]],
    ..ROW
};

pub static SCRAPE_AGE: Metric = Metric {
    name: "tokengauge.backend.scrape_age",
    kind: Kind::Gauge,
    unit: "s",
    description: "Time since the engine's own metrics were last read and understood. Absent before the first time.",
    attributes: &[&[UPSTREAM, ENGINE]],
    ..ROW
};

pub static WARM_STATE: Metric = Metric {
    name: "tokengauge.backend.warm",
    kind: Kind::Gauge,
    unit: "{backend}",
    description: "1 for the state in which an exchange would find the backend now, 0 for the others.",
    attributes: &[&[UPSTREAM, WARM]],
    combinations: Warm::ALL.len(),
    ..ROW
};

pub static SELF_SCRAPES: Metric = Metric {
    name: "tokengauge.self.scrapes",
    unit: "{scrape}",
    description: "How often an engine was asked for its own metrics, by how that ended.",
    attributes: &[&[UPSTREAM, ASKED]],
    combinations: Asked::ALL.len(),
    ..ROW
};

pub static SELF_IMPLAUSIBLE: Metric = Metric {
    name: "tokengauge.self.implausible",
    unit: "{number}",
    description: "Numbers of an engine that cannot be true and were left out: negative, not finite, a share above 1, more hits than queries.",
    attributes: &[&[UPSTREAM]],
    ..ROW
};
