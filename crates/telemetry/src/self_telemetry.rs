//! Writes the proxy's own log. Each event has one function, with a fixed level, message and set of fields.
//!
//! The level shows which action an event requires:
//!
//! - *Error*: data is lost until an operator acts.
//! - *Warn*: the proxy works, but not as configured.
//! - *Info*: the state of the process changed. There are few such events.
//! - *Debug*: details for diagnosis.
//!
//! No field contains a credential, or text of a prompt or response.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use tokengauge_measure::record::Record;
use tokengauge_types::error::WithCauses;
use tokengauge_types::label::Name;
use tokengauge_types::url::redact_urls;
use tracing::{error, info, warn};

/// The proxy accepts requests.
pub fn listening(address: &str, tls: bool) {
    info!(address, tls, "listening");
}

/// The admin port accepts requests. `restricted` is `true` if clients without a token can read only health and metrics.
pub fn admin_listening(address: &str, restricted: bool, has_console: bool) {
    let console = has_console.then(|| format!("http://{address}/"));
    info!(
        address,
        restricted,
        metrics = format!("http://{address}/metrics"),
        console,
        "admin port listening"
    );
}

/// The connection and request limits of all listeners were lowered. The process now never needs more than `open_files`
/// file descriptors.
pub fn limits_lowered(max_connections: usize, max_requests: usize, open_files: u64) {
    warn!(
        max_connections,
        max_requests,
        open_files,
        "listener limits lowered to fit the limit of open files; raise `ulimit -n` to lift them"
    );
}

/// Logs the destination of each exported signal at startup.
pub fn export_configured(summary: &str) {
    info!("{summary}");
}

/// The first call of a known API has ended. Logged once, to show operators what is measured.
pub fn first_call(record: &Record) {
    let Some(call) = &record.call else { return };
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    // Not the label, which is `other` for a model that no response has confirmed.
    let model = call.request.model.as_ref().or(call.response_model.as_ref());
    info!(
        model = model.map(Name::as_str),
        outcome = record.outcome.as_str(),
        status = record.http.status,
        duration_s = seconds(record.timestamps.duration()),
        ttft_s = seconds(record.timestamps.time_to_first_token()),
        output_tokens = call.output.as_ref().map(|output| output.tokens),
        output_tokens_per_second = call.rates.output,
        "first call measured; /stats and /metrics of the admin port have all calls"
    );
}

/// A setting is invalid, and its default applies instead.
pub fn setting_ignored(name: &str, reason: &str) {
    warn!(name, reason = &*redact_urls(reason), "setting ignored");
}

/// A setting is used, but is incomplete, or is probably not what the user intended.
pub fn setting_ambiguous(name: &str, reason: &str) {
    warn!(name, reason = &*redact_urls(reason), "setting used, but check it");
}

/// The configuration is in effect, but should be changed: a key has a new name, or a variable is ignored.
pub fn config_warning(warning: &str) {
    warn!(warning, "configuration");
}

/// A thread panicked. `message` is empty if the panic message may contain user data.
pub fn panicked(thread: &str, location: &str, message: &'static str) {
    error!(thread, location, reason = message, "a thread panicked");
}

/// The observer thread panicked and was restarted, so metrics may miss requests. `restarts` counts since the process
/// started.
pub fn observer_restarted(restarts: u64) {
    error!(restarts, "the observer thread panicked and was restarted");
}

/// The kernel does not report TCP connection statistics.
pub fn tcp_info_unavailable(error: &std::io::Error) {
    info!(%error, "TCP round-trip times and retransmits are unavailable");
}

/// Envoy's filter `ext_proc` is not in observability mode, so that Envoy waits for answers. Logged once.
pub fn envoy_waits() {
    warn!(
        "Envoy's ext_proc filter waits for answers; set `observability_mode: true`, so that requests do not depend on \
         this process"
    );
}

/// A stream of Envoy's filter `ext_proc` cannot be observed. Logged once.
pub fn envoy_stream_refused(reason: &str) {
    warn!(
        reason,
        "an ext_proc stream of Envoy cannot be observed; compare the filter with docs/how-to/envoy.md"
    );
}

/// Requests to an upstream got no response. Logged for the first request, and then at most once a minute.
/// `failed_requests` counts since the previous log line.
pub fn upstream_failed(upstream: &str, address: &str, problem: &str, failed_requests: u64) {
    warn!(upstream, address, problem, failed_requests, "upstream failed");
}

/// An upstream responds again. `failed_requests` got no response in the time `outage` since the first of them.
pub fn upstream_recovered(upstream: &str, address: &str, outage: Duration, failed_requests: u64) {
    info!(upstream, address, ?outage, failed_requests, "upstream recovered");
}

/// Error responses of one upstream, counted since the first error.
#[derive(Clone, Copy, Debug)]
pub struct ErrorResponseCounts {
    /// The kind of status: `5xx` or `429`.
    pub status: &'static str,
    pub duration: Duration,
    pub errors: u64,
    pub responses: u64,
}

/// Many responses of an upstream are errors.
pub fn error_responses_started(upstream: &str, address: &str, counts: ErrorResponseCounts) {
    let ErrorResponseCounts { status, duration, errors, responses } = counts;
    warn!(upstream, address, status, ?duration, errors, responses, "upstream returns errors");
}

/// Few or no responses of an upstream are errors again.
pub fn error_responses_ended(upstream: &str, address: &str, counts: ErrorResponseCounts) {
    let ErrorResponseCounts { status, duration, errors, responses } = counts;
    info!(
        upstream,
        address,
        status,
        ?duration,
        errors,
        responses,
        "upstream stopped returning errors"
    );
}

/// An upstream closes its connections before they can be reused, so new connections are not pooled for the time
/// `pause`. The pause is repeated while the upstream does so, but only the first pause is logged.
pub fn upstream_closes_idle_connections(upstream: &str, pause: Duration) {
    info!(upstream, ?pause, "upstream closes idle connections, not reusing connections");
}

/// A changed configuration is in effect. `need_restart` lists changed keys that take effect only after a restart.
/// `with_certificates` is false if a listener keeps its previous certificate.
pub fn config_reloaded(need_restart: &[&'static str], with_certificates: bool) {
    let except = if with_certificates { "" } else { ", except a certificate" };
    if need_restart.is_empty() {
        info!("configuration reloaded{except}");
    } else {
        warn!(?need_restart, "configuration reloaded{except}, some keys need a restart");
    }
}

/// A changed configuration has errors. The previous configuration stays in effect.
pub fn config_reload_failed(errors: &str) {
    error!("configuration reload failed, the previous configuration stays in force:\n{errors}");
}

/// A changed certificate or key of a listener cannot be used. The previous certificate stays in use.
pub fn certificate_reload_failed(error: &(dyn Error + 'static)) {
    let error = WithCauses(error);
    error!(%error, "certificate reload failed, the previous certificate stays in force");
}

/// The process received a stop signal. Open streams may continue for at most the time `at_most`.
pub fn shutdown_started(exchanges: u64, at_most: Duration) {
    info!(exchanges, ?at_most, "draining before shutdown");
}

/// A drain was requested. Connections stay open for the time `delay`. The drain then ends after the time `quiet`
/// without a request.
pub fn drain_started(exchanges: u64, delay: Duration, quiet: Duration) {
    info!(exchanges, ?delay, ?quiet, "drain started: not ready, still serving");
}

/// The drain's delay has passed, and connections are closed after their current request.
pub fn drain_closing_connections(exchanges: u64) {
    info!(exchanges, "drain: closing each connection after its current request");
}

/// Requests are still in flight after `within`, the time limit that was requested for the drain. The drain continues.
pub fn drain_timed_out(exchanges: u64, within: Duration) {
    warn!(exchanges, ?within, "drain timed out, requests still in flight continue");
}

/// No request is in flight, so the process can be stopped without aborting a request.
pub fn drain_completed(took: Duration) {
    info!(?took, "drained");
}

/// The request log cannot be written. Logged once, until a write succeeds.
pub fn request_log_write_failed(problem: &str) {
    error!(problem, "request log write failed, dropping lines");
}

/// The request log can be written again. `lost` is the number of lines that were dropped since the first failed write.
pub fn request_log_write_recovered(lost: u64) {
    info!(lost, "request log write recovered");
}

/// The file of the request log cannot be renamed or a new one cannot be created, so it grows beyond its size limit.
/// Logged once, until a rotation succeeds.
pub fn request_log_rotation_failed(problem: &str) {
    warn!(problem, "request log rotation failed, continuing in the same file");
}

/// The request log is rotated again.
pub fn request_log_rotation_recovered() {
    info!("request log rotation recovered");
}

/// Standard error takes lines of this log again. `lost` is the number of lines that it did not take.
pub fn log_lines_lost(lost: u64) {
    warn!(lost, "log lines were lost because standard error was not writable");
}

/// Error budgets were restored from a file. `down` is the time that was not measured. `set_back` is set if the wall
/// clock moved backwards in this time, and `down` is then zero.
pub fn slo_state_restored(objectives: usize, down: Duration, set_back: Option<Duration>) {
    match set_back {
        None => info!(objectives, ?down, "error budgets restored"),
        Some(by) => warn!(
            objectives,
            ?by,
            "error budgets restored, downtime counted as zero: the wall clock was set back"
        ),
    }
}

/// The SLO state file cannot be used and was renamed to `aside`, so error budgets start empty.
pub fn slo_state_rejected(problem: &(dyn Error + 'static), aside: &Path) {
    let (problem, aside) = (WithCauses(problem), aside.display());
    warn!(%problem, %aside, "SLO state file rejected and renamed, error budgets start empty");
}

/// Error budgets cannot be written to the SLO state file. Logged once, until a write succeeds.
pub fn slo_state_write_failed(error: &std::io::Error) {
    error!(%error, "SLO state write failed, a restart would restore the last written state");
}

/// Error budgets can be written to the SLO state file again.
pub fn slo_state_write_recovered() {
    info!("SLO state write recovered");
}

/// The metrics of an inference engine cannot be read. Logged once per kind of failure, until a scrape succeeds.
pub fn scrape_failed(upstream: &str, problem: &str) {
    warn!(upstream, problem, "engine metrics scrape failed");
}

/// The metrics of an inference engine were read for the first time, or again after a failure.
pub fn scrape_succeeded(upstream: &str, engine: &str) {
    info!(upstream, engine, "engine metrics scrape succeeded");
}

/// An OTLP export failed. Later failures are not logged until an export has succeeded.
pub fn export_failed(signal: &str, endpoint: &str, problem: &str) {
    warn!(signal, endpoint, problem, "OTLP export failed");
}

/// OTLP exports succeed again after this number of failures.
pub fn export_recovered(signal: &str, failures: u64) {
    info!(signal, failures, "OTLP export recovered");
}

/// The collector accepted an export but rejected some of its items.
pub fn export_partially_rejected(signal: &str, items: i64, why: &str) {
    warn!(signal, items, why, "collector rejected part of an OTLP export");
}

/// Telemetry was lost because no collector received it. Logged at shutdown, because the counters of dropped items
/// cannot be exported in this case. `spans` and `log_records` are the numbers that were lost since the process started.
pub fn telemetry_lost(spans: u64, log_records: u64, last_metrics_delivered: bool) {
    warn!(spans, log_records, last_metrics_delivered, "telemetry was lost");
}

/// The work that a shutdown left undone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Abandoned {
    /// Number of requests that were aborted at the end of the grace period.
    pub exchanges_cut: u64,
    /// Number of requests without a record: no metric, span or line of the request log has them.
    pub requests_unrecorded: u64,
    /// Number of lines of the request log that were dropped since the process started.
    pub log_lines_dropped: u64,
    /// Whether all telemetry was exported.
    pub telemetry_flushed: bool,
}

/// The process ends. The log is the last place for these counts, because no scrape follows.
pub fn stopped(abandoned: Abandoned) {
    let Abandoned { exchanges_cut, requests_unrecorded, log_lines_dropped, telemetry_flushed } =
        abandoned;
    if telemetry_flushed && [exchanges_cut, requests_unrecorded] == [0, 0] {
        info!(log_lines_dropped, "stopped");
    } else {
        warn!(
            exchanges_cut,
            requests_unrecorded,
            log_lines_dropped,
            telemetry_flushed,
            "shutdown timed out; work abandoned"
        );
    }
}
