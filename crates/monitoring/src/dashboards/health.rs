//! Health of the proxy: resource usage, unobserved traffic and failed exports.

use super::Colour::{Green, Orange, Red, Yellow};
use super::{Dashboard, Panel, Scope, Unit, heatmap, stat, state_timeline, table, time_series};

pub(super) fn dashboard() -> Dashboard {
    Dashboard::new(
        "tokengauge-health",
        "tokengauge · own health",
        "The proxy itself: what it takes, what it did not see, what it could not deliver, how late it was. Nothing here is about a model.",
    )
    .scope(Scope::Process)
    .row("Now", now())
    .row("What it takes", taken())
    .row("What it does", done())
    .row("What it did not see", unseen())
    .row("What it could not deliver", delivered())
    .row("What it asked and who it is", [scrapes(), engines(), builds()])
}

/// Text for a value that the process does not report.
const NOT_TOLD: &str = "Not told";
/// Text for a counter that has not increased yet.
const NONE: &str = "None";

fn now() -> Vec<Panel> {
    let processes = stat(
        "Processes up",
        Unit::Number,
        "Processes that tell something: count(tokengauge_self_build).",
    )
    .query("count(tokengauge_self_build{<process>})")
    .judged(Red, &[(1.0, Green)])
    .empty(NONE);
    let memory = stat(
        "Memory, of its limit",
        Unit::Share,
        "Of the process that is nearest to its limit: process_memory_usage_bytes ÷ tokengauge_self_memory_limit_bytes. Absent where no cgroup sets a limit.",
    )
    .query(
        "max(
            max by (job, instance) (process_memory_usage_bytes{<process>})
            / (max by (job, instance) (tokengauge_self_memory_limit_bytes{<process>}) > 0)
        )",
    )
    .judged(Green, &[(0.8, Orange), (0.9, Red)])
    .empty("No limit");
    let unseen = stat(
        "Unobserved",
        Unit::Share,
        "Share of exchanges of which a part passed unobserved: rate(tokengauge_self_observer_unobserved_total) ÷ rate(tokengauge_requests_started_total). They were forwarded all the same; their numbers are missing.",
    )
    .query(
        "sum(rate(tokengauge_self_observer_unobserved_total{<process>}[$__rate_interval]))
        / (sum(rate(tokengauge_requests_started_total{<process>}[$__rate_interval])) > 0)",
    )
    .judged(Green, &[(0.001, Yellow), (0.01, Red)]);
    let anomalies = stat(
        "Anomalies",
        Unit::PerMinute,
        "What was odd in what went by, per minute: 60 × rate(tokengauge_self_anomalies_total).",
    )
    .query("60 * sum(rate(tokengauge_self_anomalies_total{<process>}[$__rate_interval]))")
    .empty(NONE);
    let narrow = [processes, draining(), memory, unseen].map(|panel| panel.size(3, 4));
    let wide = [anomalies, undelivered(), late()].map(|panel| panel.size(4, 4));
    narrow.into_iter().chain(wide).collect()
}

fn draining() -> Panel {
    stat(
        "Draining",
        Unit::Number,
        "Processes that were asked to drain and have not ended yet: how many have tokengauge_self_draining_seconds > 0. They serve on, and are not ready.",
    )
    .query("sum(tokengauge_self_draining_seconds{<process>} > bool 0)")
    .empty(NOT_TOLD)
}

fn undelivered() -> Panel {
    stat(
        "Exports failed",
        Unit::Share,
        "Share of export requests over OTLP that failed: rate(tokengauge_self_export_requests_total) with tokengauge_result = failed ÷ all. Absent where nothing is exported.",
    )
    .query(
        r#"sum(rate(tokengauge_self_export_requests_total{<process>, tokengauge_result="failed"}[$__rate_interval]))
        / (sum(rate(tokengauge_self_export_requests_total{<process>}[$__rate_interval])) > 0)"#,
    )
    .judged(Green, &[(0.01, Yellow), (0.5, Red)])
    .empty("None sent")
}

fn late() -> Panel {
    stat(
        "Own delay p99",
        Unit::Seconds,
        "By how much turns of the runtime that moves bytes came late: 99th percentile of tokengauge_self_delay_seconds with tokengauge_part = runtime. What reaches 100 ms is taken out of stalls.",
    )
    .query(
        r#"histogram_quantile(0.99,
            sum by (le) (rate(tokengauge_self_delay_seconds_bucket{<process>, tokengauge_part="runtime"}[$__rate_interval]))
        ) >= 0"#,
    )
    .judged(Green, &[(0.1, Red)])
    .empty(NOT_TOLD)
}

fn taken() -> Vec<Panel> {
    let cpu = time_series(
        "CPU",
        Unit::Cores,
        "Cores in use, by process: rate(process_cpu_time_seconds_total), in user and system mode together. Limit: tokengauge_self_cpu_limit, where a cgroup sets one; the lowest of them.",
    )
    .line(
        "{{instance}}",
        "sum by (instance) (rate(process_cpu_time_seconds_total{<process>}[$__rate_interval]))",
    )
    .line("limit", "min(tokengauge_self_cpu_limit{<process>})")
    .empty(NOT_TOLD)
    .size(12, 7);
    let memory = time_series(
        "Memory",
        Unit::Bytes,
        "Resident, by process: process_memory_usage_bytes. Limit: tokengauge_self_memory_limit_bytes, where a cgroup sets one; the lowest of them. At the limit the kernel ends the process.",
    )
    .line(
        "{{instance}}",
        "sum by (instance) (process_memory_usage_bytes{<process>})",
    )
    .line("limit", "min(tokengauge_self_memory_limit_bytes{<process>})")
    .empty(NOT_TOLD)
    .size(12, 7);
    vec![cpu, memory]
}

fn done() -> Vec<Panel> {
    let open = time_series(
        "Exchanges in flight, by process",
        Unit::Number,
        "tokengauge_active_requests, over its states, routes and vantages.",
    )
    .line("{{instance}}", "sum by (instance) (tokengauge_active_requests{<process>})")
    .size(8, 7);
    let requests = time_series(
        "Requests, by process",
        Unit::RequestsPerSecond,
        "Exchanges begun: rate(tokengauge_requests_started_total). Refused: rate(tokengauge_self_requests_refused_total), whose heads were malformed or too large, and which never became an exchange.",
    )
    .line(
        "{{instance}}",
        "sum by (instance) (rate(tokengauge_requests_started_total{<process>}[$__rate_interval]))",
    )
    .line(
        "refused",
        "sum(rate(tokengauge_self_requests_refused_total{<process>}[$__rate_interval]))",
    )
    .size(8, 7);
    let delays = heatmap(
        "Own delay of the runtime",
        Unit::Seconds,
        "By how much turns of the runtime that moves bytes came late, how often: increase(tokengauge_self_delay_seconds) with tokengauge_part = runtime.",
    )
    .query(
        r#"sum by (le) (increase(tokengauge_self_delay_seconds_bucket{<process>, tokengauge_part="runtime"}[$__rate_interval]))"#,
    )
    .empty(NOT_TOLD)
    .size(8, 7);
    vec![open, requests, delays, drained()]
}

fn drained() -> Panel {
    state_timeline(
        "Drains, by process",
        Unit::Number,
        "Which process was drained when, from the moment at which it was asked to: tokengauge_self_draining_seconds > 0. It serves on until it ends; exchanges in flight, above, show how far it is. A process that is not there has no bar.",
    )
    .line(
        "{{instance}}",
        "max by (instance) (tokengauge_self_draining_seconds{<process>} > bool 0)",
    )
    .word(0.0, "serving", Green)
    .word(1.0, "draining", Orange)
    .empty(NOT_TOLD)
    .size(24, 6)
}

fn unseen() -> Vec<Panel> {
    let backlog = time_series(
        "Observer's backlog",
        Unit::Bytes,
        "Bytes copied and not yet looked at, by process: tokengauge_self_observer_backlog_bytes. It is bounded: beyond it bytes pass unobserved.",
    )
    .line(
        "{{instance}}",
        "max by (instance) (tokengauge_self_observer_backlog_bytes{<process>})",
    )
    .size(8, 7);
    let lost = time_series(
        "Passed unobserved",
        Unit::BytesPerSecond,
        "Body bytes that were forwarded and not looked at: rate(tokengauge_self_observer_lost_bytes_total). Exchanges: rate(tokengauge_self_observer_unobserved_total) × 60.",
    )
    .line(
        "bytes",
        "sum(rate(tokengauge_self_observer_lost_bytes_total{<process>}[$__rate_interval]))",
    )
    .right(
        "exchanges",
        Unit::PerMinute,
        "60 * sum(rate(tokengauge_self_observer_unobserved_total{<process>}[$__rate_interval]))",
    )
    .size(8, 7);
    let anomalies = time_series(
        "Anomalies",
        Unit::PerMinute,
        "What was odd in what went by, per minute: 60 × rate(tokengauge_self_anomalies_total) by tokengauge_anomaly. A gap is a part that was not observed; a panic is a fault of this program.",
    )
    .line(
        "{{tokengauge_anomaly}}",
        "60 * sum by (tokengauge_anomaly) (rate(tokengauge_self_anomalies_total{<process>}[$__rate_interval])) > 0",
    )
    .empty(NONE)
    .size(8, 7);
    let late = time_series(
        "Own delay p99",
        Unit::Seconds,
        "By how much turns came late: 99th percentile of tokengauge_self_delay_seconds, by tokengauge_part. A late observer makes no stream slower; a late runtime does.",
    )
    .line(
        "{{tokengauge_part}}",
        "histogram_quantile(0.99,
            sum by (le, tokengauge_part) (rate(tokengauge_self_delay_seconds_bucket{<process>}[$__rate_interval]))
        ) >= 0",
    )
    .empty(NOT_TOLD)
    .size(8, 7);
    vec![backlog, lost, anomalies, late, overflow(), left_out()]
}

fn overflow() -> Panel {
    time_series(
        "Labels called other",
        Unit::PerMinute,
        "Values for which a dimension had no room, per minute: 60 × rate(tokengauge_self_label_overflow_total) by tokengauge_dimension. Their numbers are under `other`.",
    )
    .line(
        "{{tokengauge_dimension}}",
        "60 * sum by (tokengauge_dimension) (rate(tokengauge_self_label_overflow_total{<process>}[$__rate_interval])) > 0",
    )
    .empty(NONE)
    .size(8, 7)
}

fn left_out() -> Panel {
    time_series(
        "Content left out",
        Unit::PerMinute,
        "Parts that content capture left out, per minute: 60 × rate(tokengauge_self_content_left_out_total) by tokengauge_omission. 0 where nothing is captured.",
    )
    .line(
        "{{tokengauge_omission}}",
        "60 * sum by (tokengauge_omission) (rate(tokengauge_self_content_left_out_total{<process>}[$__rate_interval]))",
    )
    .size(8, 7)
}

fn delivered() -> Vec<Panel> {
    let exports = time_series(
        "Exports",
        Unit::PerMinute,
        "Export requests over OTLP, per minute: 60 × rate(tokengauge_self_export_requests_total) by tokengauge_signal and tokengauge_result. Absent where nothing is exported.",
    )
    .line(
        "{{tokengauge_signal}}, {{tokengauge_result}}",
        "60 * sum by (tokengauge_signal, tokengauge_result) (rate(tokengauge_self_export_requests_total{<process>}[$__rate_interval]))",
    )
    .empty("None sent")
    .size(8, 7);
    let dropped = time_series(
        "Never delivered",
        Unit::PerMinute,
        "Spans, or collections of metrics, per minute: 60 × rate(tokengauge_self_export_dropped_total) by tokengauge_signal and tokengauge_reason. Cumulative metrics heal with the next delivery; spans are gone.",
    )
    .line(
        "{{tokengauge_signal}}, {{tokengauge_reason}}",
        "60 * sum by (tokengauge_signal, tokengauge_reason) (rate(tokengauge_self_export_dropped_total{<process>}[$__rate_interval]))",
    )
    .empty(NONE)
    .size(8, 7);
    let lines = time_series(
        "Request log",
        Unit::PerSecond,
        "Lines written: rate(tokengauge_self_request_log_written_total), 0 where it is off. Never written: rate(tokengauge_self_request_log_dropped_total) by tokengauge_reason.",
    )
    .line(
        "written",
        "sum(rate(tokengauge_self_request_log_written_total{<process>}[$__rate_interval]))",
    )
    .line(
        "dropped: {{tokengauge_reason}}",
        "sum by (tokengauge_reason) (rate(tokengauge_self_request_log_dropped_total{<process>}[$__rate_interval])) > 0",
    )
    .size(8, 7);
    vec![exports, dropped, lines]
}

fn scrapes() -> Panel {
    time_series(
        "Asking engines for their metrics",
        Unit::PerMinute,
        "How often, per minute, by how that ended: 60 × rate(tokengauge_self_scrapes_total) by tokengauge_upstream and tokengauge_asked. Implausible numbers of theirs that were left out: 60 × rate(tokengauge_self_implausible_total).",
    )
    .line(
        "{{tokengauge_upstream}}, {{tokengauge_asked}}",
        "60 * sum by (tokengauge_upstream, tokengauge_asked) (rate(tokengauge_self_scrapes_total{<process>}[$__rate_interval])) > 0",
    )
    .line(
        "implausible: {{tokengauge_upstream}}",
        "60 * sum by (tokengauge_upstream) (rate(tokengauge_self_implausible_total{<process>}[$__rate_interval])) > 0",
    )
    .empty("No engine is asked")
    .size(8, 7)
}

fn engines() -> Panel {
    time_series(
        "Age of what engines told",
        Unit::Seconds,
        "Time since an engine's own metrics were last read and understood: tokengauge_backend_scrape_age_seconds, by tokengauge_upstream; of several processes the oldest reading. Numbers older than three intervals are no longer told.",
    )
    .line(
        "{{tokengauge_upstream}}",
        "max by (tokengauge_upstream) (tokengauge_backend_scrape_age_seconds{<process>})",
    )
    .empty("No engine is asked")
    .size(8, 7)
}

fn builds() -> Panel {
    table(
        "Builds",
        Unit::Number,
        "Processes by version: count(tokengauge_self_build) by job and tokengauge_version.",
    )
    .key("job", "Job")
    .key("tokengauge_version", "Version")
    .column(
        "Processes",
        Unit::Number,
        "count by (job, tokengauge_version) (tokengauge_self_build{<process>})",
    )
    .empty(NONE)
    .size(8, 7)
}
