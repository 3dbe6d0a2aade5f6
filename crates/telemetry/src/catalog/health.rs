//! Metrics of the proxy's own health: data that was lost, rejected or dropped, and internal delays.

use crate::catalog::attributes::{
    CERTIFICATE_FILE, COMPONENT, CPU_MODE, DIMENSION, DROP_REASON, OMISSION_REASON, PARSE_ERROR,
    RESULT, SCRAPE_RESULT, SIGNAL, UPSTREAM, VERSION,
};
use crate::catalog::buckets::DELAYS;
use crate::catalog::state::{
    BACKENDS, CERTIFICATES, EXPORTS, LOG, OVERFLOWS, PROCESS, REQUEST_LOG, SNAPSHOT, seconds,
    signed, zip,
};
use crate::catalog::{Kind, Metric};
use crate::export_counters::DropReason;
use tokengauge_measure::engine::ScrapeResult;

metrics! {
    /// All metrics of the proxy's own health.
    ALL;
    SELF_DROPPED_BYTES "tokengauge.self.observer.dropped_bytes" Counter "By",
        "Body bytes that were not observed. They were forwarded nevertheless.",
        state!(SNAPSHOT, |state| Some(state.observer.lost_bytes));
    SELF_UNOBSERVED "tokengauge.self.observer.unobserved_requests" Counter "{exchange}",
        "Requests of which a part was not observed. If the observer was too late for their events, only their result is counted.",
        state!(SNAPSHOT, |state| Some(state.observer.unobserved));
    SELF_BACKLOG "tokengauge.self.observer.backlog" Gauge "By",
        "Bytes copied and not yet processed.",
        state!(SNAPSHOT, |state| Some(state.observer.backlog));
    SELF_HELD "tokengauge.self.observer.memory" Gauge "By",
        "Bytes that the parsers of all requests hold: decompressors, incomplete messages and text. At most half of limits.observer_memory.",
        state!(SNAPSHOT, |state| Some(state.observer.held));
    SELF_AGE "tokengauge.self.observer.snapshot_age" Gauge "s",
        "Age of the metrics that the observer provides. 0 unless the observer is overloaded or stuck.",
        state!(SNAPSHOT, |state| Some(seconds(state.observer.age)));
    SELF_RESTARTS "tokengauge.self.observer.restarts" Counter "{restart}",
        "Restarts of the observer thread after a panic.",
        state!(SNAPSHOT, |state| Some(state.observer.restarts));
    SELF_PARSE_ERRORS "tokengauge.self.parse_errors" Counter "{anomaly}" split [PARSE_ERROR],
        "Parse errors in traffic.";
    SELF_OVERFLOW "tokengauge.self.label_overflow" Counter "{value}" split [DIMENSION],
        "How often a label value was replaced by other because its dimension was full.",
        state!(OVERFLOWS, |(_, times)| Some(*times));
    SELF_INVALID_REQUESTS "tokengauge.self.requests.invalid" Counter "{request}",
        "Requests rejected before routing: their headers were malformed or far too large.",
        state!(SNAPSHOT, |state| Some(state.refused_requests));
    SELF_OVER_LIMIT "tokengauge.self.requests.over_limit" Counter "{request}",
        "Requests answered with 503 because the limit max_requests of their listener was reached.",
        state!(SNAPSHOT, |state| Some(state.clients.over_limit));
    SELF_NOT_OBSERVED "tokengauge.self.requests.not_observed" Counter "{request}",
        "Requests of routes with observe: false, such as health checks. They are in no other count, span, log line or SLO.",
        state!(SNAPSHOT, |state| Some(state.observer.excluded));
    SELF_ENVOY_STREAMS "tokengauge.self.envoy.streams" Counter "{stream}",
        "Streams of Envoy's filter ext_proc. Each carries one request. Absent without a listener for Envoy.",
        state!(SNAPSHOT, |state| state.envoy.map(|envoy| envoy.streams));
    SELF_ENVOY_ANSWERED "tokengauge.self.envoy.answered_messages" Counter "{message}",
        "Messages of Envoy's filter ext_proc for whose answer Envoy waited, because the filter is not in observability mode. Absent without a listener for Envoy.",
        state!(SNAPSHOT, |state| state.envoy.map(|envoy| envoy.answered_messages));
    SELF_ENVOY_REFUSED "tokengauge.self.envoy.refused_streams" Counter "{stream}",
        "Streams of Envoy's filter ext_proc that could not be observed: they have no request headers, or a body mode in which the service sends the bodies. Absent without a listener for Envoy.",
        state!(SNAPSHOT, |state| state.envoy.map(|envoy| envoy.refused_streams));
    SELF_ENVOY_UNKNOWN_ENDS "tokengauge.self.envoy.unknown_ends" Counter "{exchange}",
        "Exchanges whose stream ended before their response, and whose end no access log entry explained. They are observed in part. Absent without a listener for Envoy.",
        state!(SNAPSHOT, |state| state.envoy.map(|envoy| envoy.unknown_ends));
    SELF_ENVOY_UNOBSERVED "tokengauge.self.envoy.unobserved_requests" Counter "{request}",
        "Requests that Envoy's access log reported and that no ext_proc stream carried, for example while this process restarted. Absent without a listener for Envoy.",
        state!(SNAPSHOT, |state| state.envoy.map(|envoy| envoy.unobserved_requests));
    SELF_CONNECTIONS "tokengauge.self.connections.open" Gauge "{connection}",
        "Open client connections, including WebSockets.",
        state!(SNAPSHOT, |state| Some(state.clients.connections));
    SELF_CONNECTIONS_LIMIT "tokengauge.self.connections.limit" Gauge "{connection}",
        "Maximum number of client connections, summed over all listeners. Further connections wait.",
        state!(SNAPSHOT, |state| Some(state.clients.connections_limit));
    SELF_CONNECTIONS_EVICTED "tokengauge.self.connections.evicted" Counter "{connection}",
        "Client connections without a request that were closed for new ones because the limit max_connections of their listener was reached.",
        state!(SNAPSHOT, |state| Some(state.clients.evicted));
    SELF_EXPORTS "tokengauge.self.export.requests" Counter "{request}" by [&[SIGNAL]] split [RESULT] times 6,
        "OTLP export requests. Retries of a request are not counted.",
        state!(EXPORTS, each |signal| Some([("failed", Some(signal.failed)), ("ok", Some(signal.succeeded))]));
    SELF_RETRIES "tokengauge.self.export.retries" Counter "{retry}" by [&[SIGNAL]] times 3,
        "Attempts that repeat an OTLP export request.",
        state!(EXPORTS, |signal| Some(signal.retries));
    SELF_DROPPED "tokengauge.self.export.dropped" Counter "{item}" by [&[SIGNAL]] split [DROP_REASON] times 15,
        "Spans, log records or collections of metrics that were never delivered, and data points that the collector rejected. Cumulative metrics recover on the next export, and deltas are kept for it.",
        state!(EXPORTS, each |signal| Some(signal.dropped.map(|(reason, items)| (reason.as_str(), Some(items)))));
    SELF_CONTENT_OMITTED "tokengauge.self.content.omitted" Counter "{part}" split [OMISSION_REASON],
        "Content that was not captured: messages and parts of an unknown form, and calls captured in part (beyond the limit, or not observed).";
    SELF_LOGGED "tokengauge.self.request_log.written" Counter "{line}",
        "Lines written to the request log. 0 if it is off.",
        state!(REQUEST_LOG, |log| Some(log.written));
    SELF_UNLOGGED "tokengauge.self.request_log.dropped" Counter "{line}" split [DROP_REASON],
        "Lines of the request log that were dropped.",
        state!(REQUEST_LOG, each |log| Some(log.dropped_for([DropReason::QueueFull, DropReason::Failed, DropReason::Shutdown])));
    SELF_ROTATION_FAILURES "tokengauge.self.request_log.rotation_failures" Counter "{rotation}",
        "Failed attempts to rotate the request log. Its file then grows beyond its size limit, and no line is lost.",
        state!(REQUEST_LOG, |log| Some(log.failed_rotations));
    SELF_LOG_DROPPED "tokengauge.self.log.dropped" Counter "{line}" split [DROP_REASON],
        "Lines of this process's log that were dropped because standard error was not writable.",
        // After the last line, no metrics are exported.
        state!(LOG, each |log| Some(log.dropped_for([DropReason::QueueFull, DropReason::Failed])));
    SELF_SCRAPES "tokengauge.self.scrapes" Counter "{scrape}" by [&[UPSTREAM]] split [SCRAPE_RESULT],
        "Scrapes of engine metrics by result.",
        state!(BACKENDS, each |backend| backend.scrapes.map(|counts| zip(ScrapeResult::ALL.map(ScrapeResult::as_str), counts.map(Some))));
    SELF_IMPLAUSIBLE "tokengauge.self.implausible_values" Counter "{number}" by [&[UPSTREAM]],
        "Values of an engine that are implausible and were ignored: negative, not finite, a ratio above 1, more hits than queries.",
        state!(BACKENDS, |backend| backend.scrapes.map(|_| backend.implausible));
    SELF_SCHEDULING_DELAY "tokengauge.self.scheduling_delay" Histogram "s" split [COMPONENT] buckets DELAYS,
        "Scheduling delay of this proxy: a blocked thread, a stopped process, or a machine without spare cores. Delays of `runtime` of 100 ms and more are excluded from stalls.";
    CPU_TIME "process.cpu.time" Counter "s" split [CPU_MODE],
        "CPU time of this process. Linux only.",
        state!(PROCESS, each |process| process.cpu.map(|time| [("user", Some(seconds(time.user))), ("system", Some(seconds(time.system)))]));
    MEMORY "process.memory.usage" UpDownCounter "By",
        "Resident memory of this process. Linux only.",
        state!(PROCESS, |process| process.resident.and_then(signed));
    PROCESS_CPU "process.cpu" Counter "s",
        "CPU time of this process, user and system, under the name of Prometheus client libraries. Linux only.",
        state!(PROCESS, |process| process.cpu.map(|time| seconds(time.user + time.system)));
    PROCESS_RESIDENT_MEMORY "process.resident_memory" Gauge "By",
        "Resident memory of this process, under the name of Prometheus client libraries. Linux only.",
        state!(PROCESS, |process| process.resident);
    PROCESS_START "process.start_time" Gauge "s",
        "Start time of this process in seconds since 1970. Linux only.",
        state!(PROCESS, |process| process.started);
    PROCESS_OPEN_FDS "process.open_fds" Gauge "{file}",
        "Open file descriptors of this process, including sockets. Linux only.",
        state!(PROCESS, |process| process.open_files);
    SELF_MEMORY_LIMIT "tokengauge.self.memory_limit" Gauge "By",
        "Memory limit of this process: the lowest limit of its cgroup and the parents of it. Absent without a limit.",
        state!(PROCESS, |process| process.memory_limit);
    SELF_CPU_LIMIT "tokengauge.self.cpu_limit" Gauge "{cpu}",
        "Cores that this process may use before the kernel throttles it: the lowest limit of the same cgroups. Absent without a limit.",
        state!(PROCESS, |process| process.cpu_limit);
    SELF_DRAIN_DURATION "tokengauge.self.drain.duration" Gauge "s",
        "Time since a drain of this process was requested. 0 without one.",
        state!(SNAPSHOT, |state| Some(seconds(state.draining)));
    SELF_RELOAD_SUCCESSFUL "tokengauge.self.config.last_reload_successful" Gauge "{reload}",
        "1 if the configuration and the certificates of listeners are those in their files, as of the last load; 0 if that load failed and earlier ones stay in use.",
        state!(SNAPSHOT, |state| state.config.map(|config| u64::from(config.is_current)));
    SELF_RELOAD_TIME "tokengauge.self.config.last_reload_time" Gauge "s",
        "Time of the last successful load of the configuration, in seconds since 1970. The start counts as a load.",
        state!(SNAPSHOT, |state| state.config.map(|config| config.loaded_at));
    SELF_CERTIFICATE_EXPIRY "tokengauge.self.certificate.expiry" Gauge "s" by [&[CERTIFICATE_FILE]],
        "Time at which a certificate expires, in seconds since 1970. Of a listener's chain in use, the earliest; of a ca_file, the latest. At most 64 files.",
        state!(CERTIFICATES, |certificate| Some(certificate.expires_at));
    BUILD_INFO "tokengauge.build_info" Gauge "{build}" split [VERSION],
        "Always 1.",
        state!(SNAPSHOT, each |_| Some([(env!("CARGO_PKG_VERSION"), Some(1_u64))]));
}
