//! What the proxy says about itself: one struct per happening, each with one level, one message, one set of fields.
//!
//! Levels say what the operator must do. *Error*: something is lost until somebody acts. *Warn*: it works, but not as
//! asked. *Info*: the few turning points of a process's life. *Debug*: for whoever looks for a fault. No happening has a
//! field that can hold a credential or text of a prompt or an answer.

use std::time::Duration;

/// The proxy takes requests.
#[derive(Debug)]
pub struct Listening<'a> {
    pub address: &'a str,
    pub tls: bool,
}

impl Listening<'_> {
    pub fn emit(&self) {
        tracing::info!(address = self.address, tls = self.tls, "listening");
    }
}

/// The admin port answers.
#[derive(Debug)]
pub struct AdminListening<'a> {
    pub address: &'a str,
    /// Whether more than health and metrics is refused for want of a token.
    pub restricted: bool,
}

impl AdminListening<'_> {
    pub fn emit(&self) {
        tracing::info!(
            address = self.address,
            restricted = self.restricted,
            "admin port listening"
        );
    }
}

/// Where telemetry goes, or that it goes nowhere.
#[derive(Debug)]
pub struct Exporting<'a> {
    pub summary: &'a str,
}

impl Exporting<'_> {
    pub fn emit(&self) {
        tracing::info!("{}", self.summary);
    }
}

/// A setting was understood in part or not at all, and its default holds.
#[derive(Debug)]
pub struct SettingIgnored<'a> {
    pub name: &'a str,
    pub reason: &'a str,
}

impl SettingIgnored<'_> {
    pub fn emit(&self) {
        tracing::warn!(name = self.name, reason = self.reason, "setting ignored");
    }
}

/// The kernel cannot be asked about TCP connections.
#[derive(Debug)]
pub struct NoTcpInfo<'a> {
    pub error: &'a std::io::Error,
}

impl NoTcpInfo<'_> {
    pub fn emit(&self) {
        tracing::info!(error = %self.error, "no round-trip times and retransmits: the kernel cannot be asked");
    }
}

/// A changed configuration is in force.
#[derive(Debug)]
pub struct Reloaded<'a> {
    /// Keys that changed but only hold after a restart.
    pub need_restart: &'a [&'static str],
}

impl Reloaded<'_> {
    pub fn emit(&self) {
        if self.need_restart.is_empty() {
            tracing::info!("configuration reloaded");
        } else {
            tracing::warn!(need_restart = ?self.need_restart, "configuration reloaded, but these keys hold only after a restart");
        }
    }
}

/// A changed configuration was refused; the old one stays.
#[derive(Debug)]
pub struct ReloadRefused<'a> {
    pub errors: &'a str,
}

impl ReloadRefused<'_> {
    pub fn emit(&self) {
        tracing::error!("the new configuration is refused and the old one stays:\n{}", self.errors);
    }
}

/// The proxy was told to stop and lets streams finish.
#[derive(Debug)]
pub struct Draining {
    pub exchanges: u64,
    pub at_most: Duration,
}

impl Draining {
    pub fn emit(&self) {
        tracing::info!(exchanges = self.exchanges, at_most = ?self.at_most, "draining");
    }
}

/// The proxy was asked to be seen off, and serves on.
#[derive(Debug)]
pub struct DrainBegun {
    pub exchanges: u64,
    /// How long connections are kept as before.
    pub delay: Duration,
    /// How long no exchange shall be in flight.
    pub quiet: Duration,
}

impl DrainBegun {
    pub fn emit(&self) {
        tracing::info!(
            exchanges = self.exchanges,
            delay = ?self.delay,
            quiet = ?self.quiet,
            "drain begun: not ready, still serving"
        );
    }
}

/// The delay is over, and connections are no longer kept.
#[derive(Debug)]
pub struct DrainParting {
    pub exchanges: u64,
}

impl DrainParting {
    pub fn emit(&self) {
        tracing::info!(exchanges = self.exchanges, "drain: each connection ends with its exchange");
    }
}

/// The drain was to take no longer, and what is in flight goes on.
#[derive(Debug)]
pub struct DrainOverdue {
    pub exchanges: u64,
    /// How long the one who asked for it waits.
    pub within: Duration,
}

impl DrainOverdue {
    pub fn emit(&self) {
        tracing::warn!(
            exchanges = self.exchanges,
            within = ?self.within,
            "drain: its time is over, and what is in flight goes on"
        );
    }
}

/// Nothing is in flight any more, and it may be stopped.
#[derive(Debug)]
pub struct Drained {
    pub took: Duration,
}

impl Drained {
    pub fn emit(&self) {
        tracing::info!(took = ?self.took, "drained");
    }
}

/// Lines of the request log cannot be written; told once until they can be again.
#[derive(Debug)]
pub struct RequestLogFails<'a> {
    pub problem: &'a str,
}

impl RequestLogFails<'_> {
    pub fn emit(&self) {
        tracing::error!(
            problem = self.problem,
            "the request log cannot be written; lines are dropped"
        );
    }
}

/// The request log can be written again.
#[derive(Debug)]
pub struct RequestLogWorks {
    pub lost: usize,
}

impl RequestLogWorks {
    pub fn emit(&self) {
        tracing::info!(lost = self.lost, "the request log is written again");
    }
}

/// The error budgets of a process before go on.
#[derive(Debug)]
pub struct BudgetsRestored {
    /// Objectives that are what they were.
    pub objectives: usize,
    pub down: Duration,
    /// By how much the wall clock was set back meanwhile.
    pub set_back: Option<Duration>,
}

impl BudgetsRestored {
    pub fn emit(&self) {
        let (objectives, down) = (self.objectives, self.down);
        match self.set_back {
            None => tracing::info!(objectives, ?down, "error budgets restored"),
            Some(by) => tracing::warn!(
                objectives,
                ?by,
                "error budgets restored as if no time had passed: the wall clock was set back"
            ),
        }
    }
}

/// The file of error budgets cannot be taken up, and was put aside.
#[derive(Debug)]
pub struct BudgetsRefused<'a> {
    pub problem: &'a dyn std::error::Error,
    pub aside: &'a std::path::Path,
}

impl BudgetsRefused<'_> {
    pub fn emit(&self) {
        tracing::warn!(
            problem = %self.problem,
            aside = %self.aside.display(),
            "the file of error budgets is refused and put aside; every budget starts afresh"
        );
    }
}

/// Error budgets cannot be written; told once until they can be again.
#[derive(Debug)]
pub struct BudgetsUnwritten<'a> {
    pub error: &'a std::io::Error,
}

impl BudgetsUnwritten<'_> {
    pub fn emit(&self) {
        tracing::error!(
            error = %self.error,
            "error budgets cannot be written; a restart would go back to what was written last"
        );
    }
}

/// Error budgets can be written again.
#[derive(Debug)]
pub struct BudgetsWritten;

impl BudgetsWritten {
    pub fn emit(&self) {
        tracing::info!("error budgets are written again");
    }
}

/// The metrics of the engine behind an upstream cannot be read; told once for each kind of failure until they can be.
#[derive(Debug)]
pub struct ScrapeFails<'a> {
    pub upstream: &'a str,
    pub problem: &'a str,
}

impl ScrapeFails<'_> {
    pub fn emit(&self) {
        tracing::warn!(
            upstream = self.upstream,
            problem = self.problem,
            "the engine's metrics cannot be read"
        );
    }
}

/// They are read: for the first time, or again.
#[derive(Debug)]
pub struct ScrapeWorks<'a> {
    pub upstream: &'a str,
    pub engine: &'a str,
}

impl ScrapeWorks<'_> {
    pub fn emit(&self) {
        tracing::info!(
            upstream = self.upstream,
            engine = self.engine,
            "the engine's metrics are read"
        );
    }
}

/// At the end: what no collector ever got. The counters that tell of it could not leave either.
#[derive(Debug)]
pub struct TelemetryLost {
    /// Since the start, for whatever reason.
    pub spans: u64,
    /// Whether the last metrics were delivered, or none are sent.
    pub last_metrics: bool,
}

impl TelemetryLost {
    pub fn emit(&self) {
        tracing::warn!(
            spans = self.spans,
            last_metrics_delivered = self.last_metrics,
            "telemetry was lost"
        );
    }
}

/// All is sent that could be; the process ends.
#[derive(Debug)]
pub struct Stopped {
    pub cut: u64,
    pub flushed: bool,
}

impl Stopped {
    pub fn emit(&self) {
        if self.flushed && self.cut == 0 {
            tracing::info!("stopped");
        } else {
            tracing::warn!(
                exchanges_cut = self.cut,
                telemetry_flushed = self.flushed,
                "stopped before all was done"
            );
        }
    }
}
