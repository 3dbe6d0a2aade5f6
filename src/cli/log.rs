//! Installs the log of the process: lines on standard error, and OTLP export if configured.

use std::any::Any;
use std::io::Write as _;
use std::panic::{self, PanicHookInfo};
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use tokengauge_telemetry::logs::{LogEmitter, TracingLayer};
use tokengauge_telemetry::self_telemetry;
use tokengauge_telemetry::{LineCounters, ProcessLog};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry, reload};

use crate::config::{Log, LogFormat, LogLevel};

/// Maximum time that the end of the process waits for its last log lines. Standard error normally takes them at once.
pub const FLUSH_TIMEOUT: Duration = Duration::from_millis(200);

/// The installed log. Dropping this value writes the last lines, and discards those that standard error does not take
/// within [`FLUSH_TIMEOUT`].
#[expect(missing_debug_implementations, reason = "the tracing layer has no Debug")]
pub struct InstalledLog {
    export: LogExport,
    lines: Arc<ProcessLog>,
}

/// A handle that adds OTLP export to the log after telemetry has started.
type LogExport = reload::Handle<Option<TracingLayer>, Registry>;

impl InstalledLog {
    /// Exports log records over OTLP, too.
    pub fn export_to(&self, emitter: &LogEmitter) {
        // This fails only if the subscriber no longer exists, and then there is no log to export.
        drop(self.export.reload(Some(emitter.tracing_layer())));
    }

    pub fn line_counters(&self) -> Arc<LineCounters> {
        Arc::clone(self.lines.counters())
    }
}

impl Drop for InstalledLog {
    fn drop(&mut self) {
        self.lines.stop(FLUSH_TIMEOUT);
    }
}

/// Installs the log until the process ends. An installed log is not replaced. `environment` looks up the variable
/// `NO_COLOR`.
///
/// # Errors
/// Fails if the thread that writes lines cannot be started.
pub fn start(log: Log, environment: fn(&str) -> Option<String>) -> io::Result<InstalledLog> {
    let lines = Arc::new(ProcessLog::start(io::stderr())?);
    let has_colours = has_colours(io::IsTerminal::is_terminal(&io::stderr()), environment);
    let (subscriber, export) = subscriber(log, has_colours, Arc::clone(&lines));
    drop(tracing::subscriber::set_global_default(subscriber));
    panic::set_hook(Box::new(log_panic));
    Ok(InstalledLog { export, lines })
}

/// Prints the error that ended a service. If no process reads standard error, gives up after [`FLUSH_TIMEOUT`], so that
/// the process ends and can be restarted.
pub(super) fn print_last_error(error: &anyhow::Error) {
    if let Ok(log) = ProcessLog::start(io::stderr()) {
        drop(writeln!(&log, "tokengauge: {error:#}"));
        log.stop(FLUSH_TIMEOUT);
    }
}

/// Returns whether output has colours: on a terminal, unless the user disabled them with `NO_COLOR`. Every value except
/// the empty string disables them (no-color.org).
pub fn has_colours(is_terminal: bool, environment: fn(&str) -> Option<String>) -> bool {
    is_terminal && environment("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn log_panic(info: &PanicHookInfo<'_>) {
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    let thread = thread::current();
    let message = fixed_message(info.payload());
    self_telemetry::panicked(thread.name().unwrap_or_default(), &location, message);
}

/// Returns the panic message if it is a constant of the program, and otherwise an empty string. Other messages can
/// contain prompt text, for example the message of an invalid string index.
fn fixed_message(payload: &dyn Any) -> &'static str {
    payload.downcast_ref().copied().unwrap_or_default()
}

fn subscriber<W>(
    log: Log,
    has_colours: bool,
    writer: W,
) -> (impl Subscriber + Send + Sync, LogExport)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let level = match log.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(has_colours);
    let lines = match log.format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let (otlp, handle) = reload::Layer::new(None);
    let subscriber = tracing_subscriber::registry().with(otlp).with(lines).with(level);
    (subscriber, handle)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn formatted_panic_messages_are_not_logged() {
        let message = |panic: fn()| fixed_message(&*panic::catch_unwind(panic).unwrap_err());
        assert_eq!(
            message(|| unreachable!("a bug")),
            "internal error: entered unreachable code: a bug"
        );
        assert_eq!(message(|| assert_eq!("prompt", "text")), "");
        assert_eq!(message(|| assert_eq!("prompt".parse::<u8>().unwrap(), 1)), "");
    }

    fn logged(log: Log) -> String {
        logged_with(log, false)
    }

    fn logged_with(log: Log, has_colours: bool) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let (subscriber, _) = subscriber(log, has_colours, move || writer.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(n = 7, "odd");
            tracing::debug!("detail");
        });
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn any_value_of_no_color_disables_colours() {
        assert!(logged_with(Log::default(), true).contains('\x1b'));
        assert!(!logged_with(Log::default(), false).contains('\x1b'));
        assert!(!has_colours(true, |name| (name == "NO_COLOR").then(|| "0".to_owned())));
        assert!(has_colours(true, |name| (name == "NO_COLOR").then(String::new)));
        assert!(has_colours(true, |_| None));
        assert!(!has_colours(false, |_| None));
    }

    #[test]
    fn respects_level_and_format() {
        let text = logged(Log::default());
        assert!(
            text.contains("WARN") && text.contains("odd") && !text.contains("detail"),
            "{text}"
        );
        let json = logged(Log { level: LogLevel::Debug, format: LogFormat::Json });
        let lines: Vec<serde_json::Value> =
            json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[0]["message"], &lines[0]["n"]), (&"odd".into(), &7.into()));
        let errors_only = Log { level: LogLevel::Error, ..Log::default() };
        assert_eq!(logged(errors_only), "");
    }
}
