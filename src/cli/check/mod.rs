//! `tokengauge check` validates a configuration file.

use std::path::PathBuf;

use clap::Args;

use crate::config::value::ByteSize;
use crate::config::{self, Config, ConfigErrors};
use tokengauge_telemetry::request_log;

#[derive(Args, Debug)]
#[command(after_help = "\
Prints one error or warning per line as FILE:LINE:COLUMN: KEY: error; hint
All keys: docs/reference/configuration.md
Flags and TOKENGAUGE_* variables are ignored: only the file is checked.
Exit status: 0 if the file is valid, 1 otherwise.")]
pub struct CheckArgs {
    /// Check this configuration file (YAML); - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print the resolved configuration, defaults included and secrets redacted
    #[arg(long)]
    print: bool,
}

pub(super) fn check(args: &CheckArgs) -> Result<String, ConfigErrors> {
    let config = config::check(&args.file)?;
    if args.print {
        // Comments, so that the output is still YAML.
        let warnings: String =
            config.warnings.iter().map(|warning| format!("# {warning}\n")).collect();
        return Ok(warnings + &config.yaml);
    }
    let warnings: String = config.warnings.iter().map(|warning| format!("{warning}\n")).collect();
    Ok(format!("{warnings}{}: valid\n{}", args.file.display(), summary(&config)))
}

/// Returns a summary of the configuration for the output of `check`.
fn summary(config: &Config) -> String {
    let mut lines = Vec::new();
    for listener in &config.listeners {
        let tls = if listener.tls.is_some() { " with TLS" } else { "" };
        lines.push(format!(
            "listens on {}{tls}, for at most {} connections and {} requests",
            listener.address, listener.max_connections, listener.max_requests
        ));
    }
    lines.push(format!("admin port {}, metrics at /metrics", config.file.admin.address));
    for route in &config.routes {
        let facts = &route.facts;
        let host = route.host.as_deref().unwrap_or("any host");
        let prefix = if route.prefix.is_empty() { "/" } else { &route.prefix };
        let upstream =
            format!("{} ({}:{})", route.upstream, facts.server_address, facts.server_port);
        let limit = route.admission.map(|limit| {
            format!(
                ", at most {} requests in flight and {} queued for up to {:?}",
                limit.max_in_flight, limit.max_queue, limit.queue_timeout
            )
        });
        let limit = limit.unwrap_or_default();
        lines.push(format!("route {}: {host}, {prefix} → upstream {upstream}{limit}", facts.name));
    }
    let names: Vec<&str> = config.slos.iter().map(|slo| slo.name.as_str()).collect();
    lines.push(format!("{} SLOs: {}", names.len(), names.join(", ")));
    lines.push(format!(
        "limits: {} of memory for observation, {:?} for open streams at shutdown",
        ByteSize(config.file.limits.observer_memory.get()),
        config.file.shutdown_grace_period.get()
    ));
    lines.push(match &config.file.otlp.endpoint {
        Some(endpoint) => format!("telemetry: OTLP to {endpoint}, and /metrics of the admin port"),
        None => {
            "telemetry: /metrics of the admin port; OTLP only if OTEL_EXPORTER_OTLP_ENDPOINT is set"
                .to_owned()
        }
    });
    lines.push(match config.request_log.as_ref().map(|log| &log.destination) {
        Some(request_log::Destination::File(path)) => format!("request log: {}", path.display()),
        Some(request_log::Destination::Stdout) => "request log: standard output".to_owned(),
        None => "request log: off".to_owned(),
    });
    lines.iter().map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(name: &str, print: bool) -> Result<String, ConfigErrors> {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name);
        check(&CheckArgs { file, print })
    }

    #[test]
    fn reports_a_valid_file_and_prints_it_on_request() {
        let message = checked("examples/minimal.yaml", false).unwrap();
        assert!(
            message.contains("minimal.yaml: valid\n  listens on 127.0.0.1:4000, for at most 9000 "),
            "{message}"
        );
        assert!(
            message.contains("route openai: any host, / → upstream openai (api.openai.com:443)"),
            "{message}"
        );
        for line in [
            "\n  limits: 96MiB of memory for observation, 30s for open streams at shutdown\n",
            "\n  telemetry: /metrics of the admin port; OTLP only if OTEL_EXPORTER_OTLP_ENDPOINT is set\n",
            "\n  request log: off\n",
        ] {
            assert!(message.contains(line), "{message}");
        }
        let printed = checked("examples/minimal.yaml", true).unwrap();
        assert!(printed.contains("url: https://api.openai.com"), "{printed}");
    }

    #[test]
    fn reports_errors_with_the_file_name() {
        let message = checked("Cargo.toml", true).unwrap_err().to_string();
        assert!(message.contains("Cargo.toml:2:1: not valid YAML"), "{message}");
    }
}
