//! Metrics of connections.

use crate::catalog::ROW;
use crate::catalog::attributes::{CONNECT_STAGE, LANE, SIDE};
use crate::catalog::{Kind, Metric};

/// Buckets from a round trip on one host to the connect timeout of 10 s.
const SECONDS: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.5, 2.5, 5.5, 10.5,
];

pub static CONNECT_TIME: Metric = Metric {
    name: "tokengauge.connect.stage",
    kind: Kind::Histogram,
    unit: "s",
    description: "Length of each part of getting a connection to the upstream, for every request. The parts of one request add up to at most its stage connect; the rest is work of this proxy.",
    attributes: &[LANE, &[CONNECT_STAGE]],
    buckets: SECONDS,
    combinations: 4,
};

pub static RTT: Metric = Metric {
    name: "tokengauge.network.rtt",
    kind: Kind::Histogram,
    unit: "s",
    description: "Smoothed TCP round-trip time of a connection as the kernel last reported it during a request. The remote end may be a proxy. A connection that several requests use gives a sample to each. Linux only; absent for Unix sockets.",
    attributes: &[LANE, &[SIDE]],
    buckets: SECONDS,
    combinations: 2,
};

pub static RETRANSMITS: Metric = Metric {
    name: "tokengauge.network.retransmits",
    unit: "{segment}",
    description: "TCP segments that this host retransmitted on the connections of requests, counted once, when a request ends. Retransmits of the remote end are not visible. Linux only; absent for Unix sockets.",
    attributes: &[LANE, &[SIDE]],
    combinations: 2,
    ..ROW
};
