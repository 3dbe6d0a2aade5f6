//! Defines the command line: the subcommands, and how they print results and errors.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::builder::UnknownArgumentValueParser;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::{self, RunArgs};
use tokengauge_types::url::redact_urls;

mod admin_client;
mod check;
#[cfg(feature = "tools")]
pub mod clickhouse;
#[cfg(feature = "demo")]
pub mod demo;
pub mod inject;
pub mod injector;
pub mod log;
#[cfg(feature = "tools")]
mod monitoring;
mod notify;
#[cfg(feature = "tools")]
pub mod report;
pub mod run;
#[cfg(feature = "tools")]
mod schema;
#[cfg(feature = "tools")]
mod shell;
#[cfg(feature = "demo")]
pub mod simulate;
#[cfg(feature = "top")]
mod top;

/// OpenTelemetry-native observability proxy for LLM APIs. Forwards traffic unchanged and exports tokens per second,
/// time to first token, queue depth and error budgets.
#[derive(Debug, Parser)]
#[command(name = "tokengauge", version, propagate_version = true, after_help = examples())]
pub struct Cli {
    /// Without a command, the first steps are printed.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Parses the command line and the environment. If the user asks for help or an argument is invalid, prints a text and
/// ends the process.
pub fn parse() -> Cli {
    let command = without_empty_variables(Cli::command(), config::is_empty_variable);
    let command = with_suggestions(command);
    let matches = command.try_get_matches().unwrap_or_else(|error| exit(&error));
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| exit(&error))
}

/// Prints an error of the command line, or a help text, and ends the process. An error repeats the invalid value, which
/// can be a URL with a credential.
#[expect(clippy::exit, reason = "clap ends the process in the same way")]
fn exit(error: &clap::Error) -> ! {
    let text = error.render().to_string();
    match redact_urls(&text) {
        redacted if error.use_stderr() && redacted != text => {
            write_stderr(redacted.trim_end());
            std::process::exit(error.exit_code())
        }
        _ => error.exit(),
    }
}

/// Makes clap ignore variables that are set but empty. Manifests and shells write an empty value for a setting that is
/// not set.
fn without_empty_variables(
    command: clap::Command,
    is_empty_variable: fn(&str) -> bool,
) -> clap::Command {
    let is_empty =
        |flag: &clap::Arg| flag.get_env().and_then(OsStr::to_str).is_some_and(is_empty_variable);
    // clap has no way to remove a variable from a flag. A variable with an empty name is never set.
    let without = |flag: clap::Arg| if is_empty(&flag) { flag.env("") } else { flag };
    command.mut_subcommands(|command| command.mut_args(without))
}

/// Words of other proxies for flags of `run`. clap suggests the flag with the most similar letters, which would be
/// `--position` for `--port`.
const OTHER_NAMES: [(&str, &str); 8] = [
    ("port", "--listen"),
    ("host", "--listen"),
    ("bind", "--listen"),
    ("address", "--listen"),
    ("url", "--upstream"),
    ("target", "--upstream"),
    ("backend", "--upstream"),
    ("base-url", "--upstream"),
];

/// Makes clap suggest the right flag of `run` for the [`OTHER_NAMES`].
fn with_suggestions(command: clap::Command) -> clap::Command {
    command.mut_subcommand("run", |run| {
        run.args(OTHER_NAMES.map(|(name, flag)| {
            let unknown = UnknownArgumentValueParser::suggest_arg(flag);
            clap::Arg::new(name).long(name).hide(true).value_parser(unknown)
        }))
    })
}

const DEMO_STEP: &str = "See it work, without any setup:
     tokengauge demo";

const PROXY_STEP: &str = "\
Put it in front of a provider or an engine, send a request through it, and read the metrics:
     tokengauge run --upstream https://api.openai.com
     curl http://127.0.0.1:4000/v1/chat/completions -H \"Authorization: Bearer $OPENAI_API_KEY\" \\
       -H 'Content-Type: application/json' \\
       -d '{\"model\": \"gpt-4o-mini\", \"stream\": true, \"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'
     curl http://127.0.0.1:4001/metrics";

const KUBERNETES_STEP: &str = "Add it to an engine in Kubernetes:
     tokengauge inject --image REGISTRY/tokengauge:VERSION --mode inbound vllm.yaml | kubectl apply -f -";

/// Returns what to do next, with the commands that this build contains.
fn first_steps() -> String {
    let steps = [(cfg!(feature = "demo"), DEMO_STEP), (true, PROXY_STEP), (true, KUBERNETES_STEP)];
    let built = steps.iter().filter(|(built, _)| *built).zip(1..);
    let steps: String = built.map(|((_, text), number)| format!("{number}. {text}\n")).collect();
    format!(
        "tokengauge is an observability proxy for LLM APIs. Things to do next:\n\n{steps}\nAll commands: tokengauge --help\n"
    )
}

/// Returns examples of the commands that this build contains.
fn examples() -> String {
    let examples = [
        (cfg!(feature = "demo"), DEMO_EXAMPLE),
        (true, EXAMPLES),
        (cfg!(feature = "tools"), TOOLS_EXAMPLE),
        (true, MORE_EXAMPLES),
    ];
    let built = examples.iter().filter(|(built, _)| *built);
    let texts: Vec<&str> = built.map(|(_, text)| *text).collect();
    format!("Examples:\n{}", texts.join("\n\n"))
}

const DEMO_EXAMPLE: &str = "  \
  Try it, without any setup:
    tokengauge demo";

const EXAMPLES: &str = "  \
  Run it in front of a provider's API, and point the client at it:
    tokengauge run --upstream https://api.openai.com
    OPENAI_BASE_URL=http://127.0.0.1:4000/v1 python app.py

  Validate a configuration file and print it with all defaults:
    tokengauge check --print tokengauge.yaml";

const TOOLS_EXAMPLE: &str = "  \
  Summarize a request log, and check a release against limits:
    tokengauge report requests.jsonl
    tokengauge report new.jsonl --baseline old.jsonl --accept limits.yaml

  Let an editor complete and validate the configuration file:
    tokengauge schema > tokengauge.schema.json";

const MORE_EXAMPLES: &str = "  \
  Inject it beside an engine in Kubernetes:
    tokengauge inject --image REGISTRY/tokengauge:VERSION --mode inbound vllm.yaml | kubectl apply -f -";

const RUN_EXAMPLES: &str = "\
Examples:
  One provider, spans and metrics to a local collector:
    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317 OTEL_EXPORTER_OTLP_PROTOCOL=grpc \\
      tokengauge run --upstream https://api.openai.com

  Beside a self-hosted engine:
    tokengauge run --listen [::]:8080 --upstream http://127.0.0.1:8000 --position inbound

  Two providers by path prefix:
    tokengauge run --upstream /openai=https://api.openai.com --upstream /groq=https://api.groq.com/openai";

#[cfg(feature = "envoy")]
const EXT_PROC_EXAMPLES: &str = "\
Examples:
  Beside an Envoy whose filter ext_proc and gRPC access log name this address:
    tokengauge ext-proc --listen 127.0.0.1:4000

  With the settings of a configuration file:
    tokengauge ext-proc --listen [::]:4000 --config tokengauge.yaml";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the proxy: forward requests to an upstream, measure a copy of the traffic, and export over OTLP and /metrics
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Observe the traffic of Envoy, which sends a copy over gRPC (ext_proc), without being in its path
    #[cfg(feature = "envoy")]
    #[command(after_help = EXT_PROC_EXAMPLES)]
    ExtProc(RunArgs),
    /// Drain a running proxy and wait until it is idle. It reports not ready and closes each connection after its
    /// current request, but still serves every request
    Drain(admin_client::DrainArgs),
    /// Check the health of a running proxy; exits with 0 or 1
    Probe(admin_client::ProbeArgs),
    /// Run a demo: a simulated backend, a mixed load, the proxy and an OTLP receiver in one process
    #[cfg(feature = "demo")]
    Demo(demo::Args),
    /// Run a simulated LLM backend with OpenAI's API, the speed of a real engine, and stalls and failures on request
    #[cfg(feature = "demo")]
    Simulate(simulate::Args),
    /// Show one or several running proxies in the terminal: what is wrong, models, streams, SLOs and sessions
    #[cfg(feature = "top")]
    Top(top::Args),
    /// Evaluate request logs: throughput, latency, errors and cost. Also compares two sets of requests and checks
    /// limits
    #[cfg(feature = "tools")]
    Report(Box<report::Args>),
    /// Validate a configuration file and print every error with line, key and hint
    Check(check::CheckArgs),
    /// Run the admission webhook that injects the sidecar into new pods
    Injector(Box<injector::Args>),
    /// Write the Grafana dashboards, or check that the files in a folder match
    #[cfg(feature = "tools")]
    Dashboards(monitoring::DashboardsArgs),
    /// Write the Prometheus alert rules, or check that the files in a folder match
    #[cfg(feature = "tools")]
    Alerts(monitoring::AlertsArgs),
    /// Inject the sidecar into Kubernetes manifests, beside an engine or beside an application
    Inject(Box<inject::InjectArgs>),
    /// Remove from Kubernetes manifests what inject added
    Uninject(inject::UninjectArgs),
    /// Print the JSON Schema of the configuration file, a request log line, the price file, a report, or the limits of a
    /// report
    #[cfg(feature = "tools")]
    Schema {
        #[arg(default_value = "config")]
        of: schema::SchemaOf,
    },
    /// Print a completion script for a shell
    #[cfg(feature = "tools")]
    Completions(shell::CompletionsArgs),
    /// Write the manual pages, one per command
    #[cfg(feature = "tools")]
    Man(shell::ManArgs),
}

/// Runs the subcommand.
pub fn main(cli: Cli) -> ExitCode {
    let Some(command) = cli.command else {
        return print(first_steps());
    };
    match command {
        Command::Run(args) => service_exit_code(run::run(args, config::environment)),
        #[cfg(feature = "envoy")]
        Command::ExtProc(args) => {
            let args = RunArgs { ext_proc: true, ..args };
            service_exit_code(run::run(args, config::environment))
        }
        Command::Drain(args) => {
            exit_code(admin_client::drain(&args, config::environment).map(print))
        }
        Command::Probe(args) => {
            exit_code(admin_client::probe(&args, config::environment).map(print))
        }
        #[cfg(feature = "demo")]
        Command::Demo(args) => service_exit_code(run_demo(args)),
        #[cfg(feature = "demo")]
        Command::Simulate(args) => service_exit_code(run_simulator(args)),
        #[cfg(feature = "top")]
        Command::Top(args) => exit_code(top::run(&args, config::environment)),
        #[cfg(feature = "tools")]
        Command::Report(args) => report::run(*args, config::environment),
        Command::Check(args) => check::run(&args, config::environment)
            .unwrap_or_else(|error| fail(format!("{error:#}"))),
        Command::Injector(args) => service_exit_code(injector::run(*args, config::environment)),
        #[cfg(feature = "tools")]
        Command::Dashboards(args) => monitoring::dashboards(&args).map_or_else(fail, print),
        #[cfg(feature = "tools")]
        Command::Alerts(args) => {
            monitoring::alerts(&args).map_or_else(|error| fail(format!("{error:#}")), print)
        }
        Command::Inject(args) => inject::inject(&args),
        Command::Uninject(args) => inject::uninject(&args),
        #[cfg(feature = "tools")]
        Command::Schema { of } => print(schema::schema(of)),
        #[cfg(feature = "tools")]
        Command::Completions(args) => print(shell::completions(&args, Cli::command())),
        #[cfg(feature = "tools")]
        Command::Man(args) => exit_code(shell::man(&args, Cli::command()).map(print)),
    }
}

#[cfg(feature = "demo")]
fn run_demo(args: demo::Args) -> anyhow::Result<ExitCode> {
    let log = log::start(demo::LOG, config::environment)?;
    let runtime = run::runtime()?;
    let result = runtime.block_on(demo::run(args, config::environment, log.line_counters()));
    // Standard output may be a pipe that is full. The end of the demo does not wait for its reader.
    runtime.shutdown_background();
    result
}

#[cfg(feature = "demo")]
fn run_simulator(args: simulate::Args) -> anyhow::Result<ExitCode> {
    run::runtime()?.block_on(simulate::run(args))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the exit code of a command that runs until it is stopped.
fn service_exit_code(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        log::print_last_error(&error);
        ExitCode::FAILURE
    })
}

fn exit_code(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| fail(format!("tokengauge: {error:#}")))
}

/// Prints a result to standard output. The output ends in exactly one line break.
fn print(result: impl Display) -> ExitCode {
    match write_stdout(&format!("{}\n", result.to_string().trim_end())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn fail(error: impl Display) -> ExitCode {
    write_stderr(error);
    ExitCode::FAILURE
}

/// Writes to standard output. A closed pipe is not an error, because readers such as `head` close it early.
fn write_stdout(text: &str) -> io::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a line to standard error. A failure is ignored, because the exit code still reports the problem.
fn write_stderr(line: impl Display) {
    drop(writeln!(io::stderr().lock(), "{line}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the flags of `run` alone.
    #[derive(Debug, Parser)]
    struct Run {
        #[command(flatten)]
        args: RunArgs,
    }

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
        Run::command().debug_assert();
    }

    #[test]
    fn every_run_flag_has_a_variable_and_help() {
        for flag in Run::command().get_arguments() {
            let name = flag.get_long().unwrap();
            let expected = format!("TOKENGAUGE_{}", name.to_uppercase().replace('-', "_"));
            let variable = flag.get_env().and_then(|name| name.to_str());
            assert_eq!(variable, Some(expected.as_str()), "--{name}");
            assert!(flag.get_help().is_some(), "--{name}");
        }
    }

    #[test]
    fn suggests_the_flag_for_words_of_other_programs() {
        let command = with_suggestions(Cli::command());
        command.clone().debug_assert();
        for (line, flag) in [
            ("run --port 4000", "--listen"),
            ("run --port=4000", "--listen"),
            ("run --target http://a", "--upstream"),
        ] {
            let words = ["tokengauge"].into_iter().chain(line.split(' '));
            let error = command.clone().try_get_matches_from(words).unwrap_err().to_string();
            assert!(error.starts_with("error: unexpected argument '--"), "{error}");
            assert!(
                error.contains(&format!("'{flag}'")) && !error.contains("--position"),
                "{error}"
            );
        }
    }

    #[test]
    fn an_empty_variable_counts_as_unset() {
        let is_empty = |name: &str| matches!(name, "TOKENGAUGE_POSITION" | "TOKENGAUGE_UPSTREAM");
        let command = without_empty_variables(Cli::command(), is_empty);
        let run = command.find_subcommand("run").unwrap();
        let variable = |flag: &str| {
            let flag = run.get_arguments().find(|arg| arg.get_long() == Some(flag)).unwrap();
            flag.get_env().unwrap().to_str().unwrap()
        };
        assert_eq!(["position", "upstream"].map(variable), ["", ""]);
        assert_eq!(["admin", "config"].map(variable), ["TOKENGAUGE_ADMIN", "TOKENGAUGE_CONFIG"]);
    }

    #[test]
    fn the_first_steps_are_valid_commands() {
        assert!(Cli::try_parse_from(["tokengauge"]).unwrap().command.is_none());
        let steps = first_steps();
        let lines = steps.lines().map(str::trim).filter(|line| line.starts_with("tokengauge "));
        let commands: Vec<_> = lines.filter(|line| !line.contains(" is ")).collect();
        assert_eq!(commands.len(), 2 + usize::from(cfg!(feature = "demo")));
        for command in commands {
            let words = command.split(" | ").next().unwrap().split(' ');
            assert!(Cli::try_parse_from(words).is_ok(), "{command}");
        }
    }

    #[test]
    fn list_flags_may_be_repeated_or_joined() {
        let line = "run --listen 127.0.0.1:1,unix:/s --listen [::1]:2 --upstream /a=http://a --upstream http://b \
                    --shutdown-grace-period 5s --position gateway --log-level debug";
        let run = Run::try_parse_from(line.split(' ')).unwrap();
        assert_eq!(run.args.listen.len(), 3);
        let upstreams: Vec<&str> = run.args.upstream.iter().map(|url| url.expose()).collect();
        assert_eq!(upstreams, ["/a=http://a", "http://b"]);
        for invalid in
            ["--shutdown-grace-period 5", "--listen 4000", "--position sideways", "--admin :4001"]
        {
            let line = format!("run {invalid}");
            assert!(Run::try_parse_from(line.split(' ')).is_err(), "{invalid}");
        }
    }

    #[test]
    fn boolean_flags_need_no_value() {
        for (line, expected) in [
            ("run", None),
            ("run --engine-metrics --upstream http://a", Some(true)),
            ("run --engine-metrics=true", Some(true)),
            ("run --engine-metrics=false", Some(false)),
        ] {
            let run = Run::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(run.args.engine_metrics, expected, "{line}");
        }
        for invalid in ["--engine-metrics=maybe", "--slos noise"] {
            let line = format!("run {invalid}");
            assert!(Run::try_parse_from(line.split(' ')).is_err(), "{invalid}");
        }
    }

    #[test]
    fn never_prints_a_url_with_a_password() {
        let line = "run --upstream https://me:s3cret@host";
        let run = Run::try_parse_from(line.split(' ')).unwrap();
        let errors = config::load(&run.args, &|_| None).unwrap_err();
        assert_eq!(
            errors.to_string(),
            "--upstream: the URL contains credentials; remove the part before the @: clients send credentials in \
             headers, which are forwarded unchanged"
        );
        assert!(!format!("{run:?}").contains("s3cret"));
    }
}
