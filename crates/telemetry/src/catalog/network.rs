//! Our own metrics of the connections that exchanges go over.

use crate::catalog::ROW;
use crate::catalog::attributes::{CONNECT_STAGE, LANE, SIDE};
use crate::catalog::{Kind, Metric};

/// From a round trip on one host to the 10 s that connecting may take.
const SECONDS: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.5, 2.5, 5.5, 10.5,
];

pub static CONNECT_TIME: Metric = Metric {
    name: "tokengauge.connect.stage",
    kind: Kind::Histogram,
    unit: "s",
    description: "Length of each part of having a connection to the upstream that took place, for every exchange. Those of one exchange add up to at most its stage connect; what is missing is this proxy's own work.",
    attributes: &[LANE, &[CONNECT_STAGE]],
    buckets: SECONDS,
    combinations: 4,
};

pub static RTT: Metric = Metric {
    name: "tokengauge.network.rtt",
    kind: Kind::Histogram,
    unit: "s",
    description: "Smoothed TCP round-trip time of a connection by the kernel, as last seen in the course of an exchange: to its far end, be that a proxy. A connection that several exchanges use gives each a sample. Linux only; none over Unix sockets.",
    attributes: &[LANE, &[SIDE]],
    buckets: SECONDS,
    combinations: 2,
};

pub static RETRANSMITS: Metric = Metric {
    name: "tokengauge.network.retransmits",
    unit: "{segment}",
    description: "TCP segments that this proxy's kernel sent again on the connections of exchanges, each told once, when an exchange ends. What the far end sent again is not seen. Linux only; none over Unix sockets.",
    attributes: &[LANE, &[SIDE]],
    combinations: 2,
    ..ROW
};
