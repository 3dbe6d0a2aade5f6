//! Rows that describe the proxy and its monitoring: no call changes, but telemetry does.

use std::fmt::Write as _;

use super::links;
use super::rows::Firing;

pub(super) struct Row {
    pub(super) breaks: &'static str,
    calls: &'static str,
    telemetry: &'static str,
    pub(super) alerts: &'static [Firing],
    /// Series with their values, in steps of 30 s. The change is at 30 min.
    pub(super) series: &'static [(&'static str, &'static str)],
}

pub(super) const UP: (&str, &str) = ("up{job=\"tokengauge\", instance=\"a\"}", "1x120");
pub(super) const BUILD: (&str, &str) =
    ("tokengauge_build_info{job=\"tokengauge\", instance=\"a\"}", "1x120");
const MEMORY_LIMIT: (&str, &str) =
    ("tokengauge_self_memory_limit_bytes{job=\"tokengauge\", instance=\"a\"}", "1000x120");

pub(super) const ROWS: [Row; 6] = [
    Row {
        breaks: "the memory of the proxy is at 95 % of its limit",
        calls: "none",
        telemetry: "none",
        alerts: &[("TokengaugeMemoryNearLimit", 11)],
        series: &[
            UP,
            BUILD,
            MEMORY_LIMIT,
            ("process_memory_usage_bytes{job=\"tokengauge\", instance=\"a\"}", "500x60 950x59"),
        ],
    },
    Row {
        breaks: "the memory of the proxy is at its limit, the kernel kills it, and it starts again",
        calls: "requests in flight break off and have no record",
        telemetry: "counters restart at 0",
        alerts: &[],
        series: &[
            UP,
            ("tokengauge_build_info{job=\"tokengauge\", instance=\"a\"}", "1x60 stale _x1 1x57"),
            MEMORY_LIMIT,
            (
                "process_memory_usage_bytes{job=\"tokengauge\", instance=\"a\"}",
                "500x58 950x1 stale _x1 500x57",
            ),
            (
                "tokengauge_requests_started_total{job=\"tokengauge\", instance=\"a\"}",
                "0+30x60 stale _x1 0+30x57",
            ),
        ],
    },
    Row {
        breaks: "the proxy stops and does not start again",
        calls: "no call passes",
        telemetry: "all series end",
        alerts: &[("TokengaugeTelemetryAbsent", 6)],
        series: &[
            ("up{job=\"tokengauge\", instance=\"a\"}", "1x60 0x59"),
            ("tokengauge_build_info{job=\"tokengauge\", instance=\"a\"}", "1x60 stale"),
        ],
    },
    Row {
        breaks: "Prometheus cannot scrape the proxy",
        calls: "none",
        telemetry: "all series end; counters contain the missed requests later",
        alerts: &[("TokengaugeTelemetryAbsent", 6)],
        series: &[
            ("up{job=\"tokengauge\", instance=\"a\"}", "1x60 0x59"),
            ("tokengauge_build_info{job=\"tokengauge\", instance=\"a\"}", "1x60 stale"),
        ],
    },
    Row {
        breaks: "the collector is down, and Prometheus scrapes the proxy",
        calls: "none",
        telemetry: "spans are dropped when the queue is full",
        alerts: &[("TokengaugeExportFailing", 10)],
        series: &[
            UP,
            BUILD,
            (
                "tokengauge_self_export_requests_total{job=\"tokengauge\", instance=\"a\", \
                 tokengauge_signal=\"traces\", tokengauge_result=\"ok\"}",
                "0+3x60 180x59",
            ),
            (
                "tokengauge_self_export_requests_total{job=\"tokengauge\", instance=\"a\", \
                 tokengauge_signal=\"traces\", tokengauge_result=\"failed\"}",
                "0x60 3+3x59",
            ),
        ],
    },
    Row {
        breaks: "the collector is down, and metrics pass through it",
        calls: "none",
        telemetry: "all series end; counters contain the missed requests later",
        alerts: &[("TokengaugeTelemetryAbsent", 11)],
        series: &[("tokengauge_build_info{job=\"tokengauge\", instance=\"a\"}", "1x60 stale")],
    },
];

pub(super) fn table() -> String {
    let mut table =
        String::from("| what breaks | calls | telemetry | alerts |\n|---|---|---|---|\n");
    for row in &ROWS {
        let Row { breaks, calls, telemetry, .. } = row;
        writeln!(table, "| {breaks} | {calls} | {telemetry} | {} |", links(row.alerts)).unwrap();
    }
    table
}
