//! The program's own log, on standard error.

use std::io;

use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::{Log, LogFormat, LogLevel};

/// Installs the logger for the life of the process. Has no effect if there is one already.
pub fn start(log: Log) {
    let subscriber = subscriber(log, io::stderr);
    drop(tracing::subscriber::set_global_default(subscriber));
}

fn subscriber<W>(log: Log, writer: W) -> Box<dyn Subscriber + Send + Sync>
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
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(writer)
        // Only terminals show colours.
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()));
    match log.format {
        LogFormat::Text => Box::new(lines.finish()),
        LogFormat::Json => Box::new(lines.json().flatten_event(true).finish()),
    }
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

    fn logged(log: Log) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = subscriber(log, move || writer.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(n = 7, "odd");
            tracing::debug!("detail");
        });
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
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
