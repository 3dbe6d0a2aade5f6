//! The command line: what the program can be asked to do, and how it answers.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::{self, ConfigErrors, RunArgs};

mod admin_client;
#[cfg(feature = "desk")]
pub mod alerts;
mod check;
#[cfg(feature = "desk")]
mod dashboards;
#[cfg(feature = "demo")]
pub mod demo;
pub mod drain;
pub mod inject;
pub mod injector;
pub mod log;
pub mod probe;
#[cfg(feature = "desk")]
pub mod report;
pub mod run;
#[cfg(feature = "demo")]
pub mod simulate;

/// Observes LLM traffic without touching it: forwards every byte, counts tokens on the side, and tells tokens per
/// second, time to first token, queue depth and error budgets over OpenTelemetry.
#[derive(Debug, Parser)]
#[command(name = "tokengauge", version, propagate_version = true, after_help = examples())]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// Of those commands only that this program was built with.
fn examples() -> String {
    let examples = [
        (cfg!(feature = "demo"), DEMO_EXAMPLE),
        (true, EXAMPLES),
        (cfg!(feature = "desk"), DESK_EXAMPLE),
        (true, MORE_EXAMPLES),
    ];
    let built = examples.iter().filter(|(built, _)| *built);
    let texts: Vec<&str> = built.map(|(_, text)| *text).collect();
    format!("Examples:\n{}", texts.join("\n\n"))
}

const DEMO_EXAMPLE: &str = "  \
  See it work, with everything it needs inside:
    tokengauge demo";

const EXAMPLES: &str = "  \
  Put it in front of a vendor's API, and point the client at it:
    tokengauge run --upstream https://api.openai.com
    OPENAI_BASE_URL=http://127.0.0.1:4000/v1 python app.py

  Validate a configuration file and see what it amounts to:
    tokengauge check --print tokengauge.yaml";

const DESK_EXAMPLE: &str = "  \
  Say what a request log amounts to, and whether a release keeps its limits:
    tokengauge report requests.jsonl
    tokengauge report new.jsonl --baseline old.jsonl --accept limits.yaml";

const MORE_EXAMPLES: &str = "  \
  Put it beside an engine in Kubernetes:
    tokengauge inject --mode inbound vllm.yaml | kubectl apply -f -

  Let an editor complete and check the file:
    tokengauge schema > tokengauge.schema.json";

const RUN_EXAMPLES: &str = "\
Examples:
  One vendor, spans and metrics to a local collector:
    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317 OTEL_EXPORTER_OTLP_PROTOCOL=grpc \\
      tokengauge run --upstream https://api.openai.com

  Beside a self-hosted engine:
    tokengauge run --listen 0.0.0.0:8080 --upstream http://127.0.0.1:8000 --vantage inbound

  Two vendors by path prefix:
    tokengauge run --upstream /openai=https://api.openai.com --upstream /groq=https://api.groq.com/openai";

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the proxy: forward to an upstream, observe on the side, export over OTLP and /metrics
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Have a running proxy seen off before it is stopped: it is not ready, serves on, and keeps no connection; returns when
    /// nothing is in flight any more
    Drain(drain::Args),
    /// Ask a running proxy whether it is well; exits with 0 or 1
    Probe(probe::Args),
    /// See it work: a simulated backend, a mixed load, the proxy and an OTLP receiver in one process
    #[cfg(feature = "demo")]
    Demo(demo::Args),
    /// Run a simulated LLM backend: OpenAI-compatible, paced like a real engine, with stalls and failures on request
    #[cfg(feature = "demo")]
    Simulate(simulate::Args),
    /// Evaluate request logs: throughput, latency, errors and cost, A against B, and limits to be kept
    #[cfg(feature = "desk")]
    Report(report::Args),
    /// Validate a configuration file: every error with its line, its key and its remedy
    Check(check::CheckArgs),
    /// Run the admission webhook that gives pods their sidecar when they are created
    Injector(Box<injector::Args>),
    /// Write Grafana's dashboards, or check that a folder has them as they are generated
    #[cfg(feature = "desk")]
    Dashboards(dashboards::Args),
    /// Make Prometheus' rules of alerts, or check that a folder has them
    #[cfg(feature = "desk")]
    Alerts(alerts::Args),
    /// Put the sidecar into Kubernetes manifests: beside an engine or beside an application
    Inject(Box<inject::InjectArgs>),
    /// Take out of Kubernetes manifests what inject put in
    Uninject(inject::UninjectArgs),
    /// Print the JSON Schema of the configuration file, of a line of the request log, of the file of prices, of a report,
    /// or of the limits that a report is held to
    Schema {
        #[arg(default_value = "config")]
        of: check::SchemaOf,
    },
}

/// Does what was asked for.
pub fn main(cli: Cli) -> ExitCode {
    match cli.command {
        Command::Run(args) => ended(run::run(args, config::environment)),
        Command::Drain(args) => said(drain::run(&args, config::environment)),
        Command::Probe(args) => said(probe::run(&args, config::environment)),
        #[cfg(feature = "demo")]
        Command::Demo(args) => ended(demonstrated(args)),
        #[cfg(feature = "demo")]
        Command::Simulate(args) => ended(simulated(args)),
        #[cfg(feature = "desk")]
        Command::Report(args) => report::run(args),
        Command::Check(args) => answer(check::check(&args)),
        Command::Injector(args) => ended(injector::run(*args, config::environment)),
        #[cfg(feature = "desk")]
        Command::Dashboards(args) => answer(dashboards::run(&args)),
        #[cfg(feature = "desk")]
        Command::Alerts(args) => answer(alerts::run(&args).map_err(|error| format!("{error:#}"))),
        Command::Inject(args) => inject::inject(&args),
        Command::Uninject(args) => inject::uninject(&args),
        Command::Schema { of } => answer(Ok::<_, ConfigErrors>(check::schema(of))),
    }
}

#[cfg(feature = "demo")]
fn demonstrated(args: demo::Args) -> anyhow::Result<ExitCode> {
    log::start(demo::LOG);
    // By convention (no-color.org) any value but the empty one counts.
    let colourless = config::environment("NO_COLOR").is_some_and(|value| !value.is_empty());
    run::runtime()?.block_on(demo::run(args, colourless))
}

#[cfg(feature = "demo")]
fn simulated(args: simulate::Args) -> anyhow::Result<ExitCode> {
    run::runtime()?.block_on(simulate::run(args))?;
    Ok(ExitCode::SUCCESS)
}

fn said(result: anyhow::Result<String>) -> ExitCode {
    answer(result.map_err(|error| format!("tokengauge: {error:#}")))
}

fn ended(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| answer(Err::<String, _>(format!("tokengauge: {error:#}"))))
}

/// Writes what came out to standard output and succeeds, or what was wrong to standard error and fails.
fn answer(answer: Result<String, impl Display>) -> ExitCode {
    match answer {
        Ok(text) => match writeln!(io::stdout().lock(), "{}", text.trim_end()) {
            // A reader that has gone (`| head`) is no failure.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
            Ok(()) | Err(_) => ExitCode::SUCCESS,
        },
        Err(wrong) => {
            // AdminAddress standard error cannot be written to either, there is nobody left to tell.
            drop(writeln!(io::stderr().lock(), "{wrong}"));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// `run`'s flags alone.
    #[derive(Debug, Parser)]
    struct Run {
        #[command(flatten)]
        args: RunArgs,
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        Run::command().debug_assert();
    }

    #[test]
    fn every_flag_has_its_variable_and_its_help() {
        for flag in Run::command().get_arguments() {
            let name = flag.get_long().unwrap();
            let expected = format!("TOKENGAUGE_{}", name.to_uppercase().replace('-', "_"));
            let variable = flag.get_env().and_then(|name| name.to_str());
            assert_eq!(variable, Some(expected.as_str()), "--{name}");
            assert!(flag.get_help().is_some(), "--{name}");
        }
    }

    #[test]
    fn flags_are_read_and_lists_may_be_repeated_or_joined() {
        let line = "run --listen 127.0.0.1:1,unix:/s --listen [::1]:2 --upstream /a=http://a --upstream http://b \
                    --drain 5s --vantage gateway --log-level debug";
        let run = Run::try_parse_from(line.split(' ')).unwrap();
        assert_eq!(run.args.listen.len(), 3);
        let upstreams: Vec<&str> = run.args.upstream.iter().map(|url| url.expose()).collect();
        assert_eq!(upstreams, ["/a=http://a", "http://b"]);
        for wrong in ["--drain 5", "--listen 4000", "--vantage sideways", "--admin :4001"] {
            let line = format!("run {wrong}");
            assert!(Run::try_parse_from(line.split(' ')).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_flag_that_is_on_or_off_may_be_written_without_a_value() {
        for (line, expected) in [
            ("run", None),
            ("run --engine-metrics --upstream http://a", Some(true)),
            ("run --engine-metrics=true", Some(true)),
            ("run --engine-metrics=false", Some(false)),
        ] {
            let run = Run::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(run.args.engine_metrics, expected, "{line}");
        }
        for wrong in ["--engine-metrics=maybe", "--objectives noise"] {
            let line = format!("run {wrong}");
            assert!(Run::try_parse_from(line.split(' ')).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_url_with_a_password_is_never_echoed() {
        let line = "run --upstream https://me:s3cret@host";
        let run = Run::try_parse_from(line.split(' ')).unwrap();
        let errors = config::load(&run.args, &|_| None).unwrap_err();
        assert_eq!(
            errors.to_string(),
            "--upstream: the URL holds credentials; take out what stands before the @: clients send credentials in \
             headers, and those pass untouched"
        );
        assert!(!format!("{run:?}").contains("s3cret"));
    }
}
