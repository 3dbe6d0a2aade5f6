//! `tokengauge top`: shows running proxies in the terminal.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use terminal_size::{Width, terminal_size};
use tokengauge_top::{AdminUrl, Overview, ScreenSettings, Targets, Watch};
use tokio::time::{MissedTickBehavior, interval};

use super::log::has_colours;
use super::run::{self, Stop};
use super::{write_stderr, write_stdout};
use crate::config::Secret;

/// Show one or several running proxies in the terminal: what is wrong, models, streams, SLOs and sessions
///
/// Reads /api/v1/live of each admin port. Figures of several processes are merged: counts and rates are sums, and
/// percentiles come from merged histograms. Without a terminal, prints plain lines every 5 s.
/// docs/how-to/top.md lists the keys.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Read the process with this admin port: HOST:PORT or http://HOST:PORT[/PREFIX]; may be repeated. A DNS name with
    /// several addresses, such as a headless Service, means several processes
    #[arg(
        long,
        value_name = "URL",
        env = "TOKENGAUGE_ADMIN",
        value_delimiter = ',',
        default_value = "127.0.0.1:4001"
    )]
    admin: Vec<AdminUrl>,

    /// Send this bearer token to the admin ports. A variable is safer, because other users can see flags
    #[arg(long, value_name = "TOKEN", env = "TOKENGAUGE_ADMIN_TOKEN", hide_env_values = true)]
    token: Option<Secret>,

    /// Start with this view, or print it with --once
    #[arg(long, value_enum, value_name = "VIEW", default_value_t)]
    view: View,

    /// Print one view as plain text and exit
    #[arg(long, conflicts_with = "json")]
    once: bool,

    /// Print one merged JSON document and exit
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum View {
    #[default]
    Now,
    Models,
    Streams,
    Slos,
    Sessions,
}

impl From<View> for tokengauge_top::View {
    fn from(view: View) -> Self {
        match view {
            View::Now => Self::Now,
            View::Models => Self::Models,
            View::Streams => Self::Streams,
            View::Slos => Self::Slos,
            View::Sessions => Self::Sessions,
        }
    }
}

const AFTER_HELP: &str = "\
Examples:
  The proxy on this machine:
    tokengauge top

  A pod, through a forwarded port:
    kubectl port-forward pod/POD 4001 & tokengauge top

  All replicas behind a headless Service, from inside the cluster:
    TOKENGAUGE_ADMIN_TOKEN=… tokengauge top --admin http://tokengauge-admin.chat.svc:4001

Exit status of --once and --json: 0 if at least one process answered, 1 otherwise.";

/// Width for output that is not a terminal.
const DEFAULT_WIDTH: u16 = 80;

/// Interval of plain lines: the length of an interval of the processes.
const LINES_INTERVAL: Duration = Duration::from_secs(5);

pub(super) fn run(
    args: &Args,
    environment: fn(&str) -> Option<String>,
) -> anyhow::Result<ExitCode> {
    let token = args.token.as_ref().map(|token| token.expose().to_owned());
    let targets = Targets { urls: args.admin.clone(), token };
    let runtime = run::runtime()?;
    let result = runtime.block_on(async {
        if args.once || args.json {
            return print_once(&targets, args).await;
        }
        if io::stdout().is_terminal() {
            let settings = ScreenSettings {
                view: args.view.into(),
                has_colours: has_colours(true, environment),
                notes: Vec::new(),
            };
            let mut stop = Stop::listen()?;
            tokengauge_top::show(Watch::start(&targets), settings, stop.requested()).await?;
        } else {
            print_lines(&targets).await?;
        }
        Ok(ExitCode::SUCCESS)
    });
    // The end does not wait for a name lookup in progress.
    runtime.shutdown_background();
    result
}

async fn print_once(targets: &Targets, args: &Args) -> anyhow::Result<ExitCode> {
    let overview = tokengauge_top::read_once(targets).await;
    if args.json {
        write_stdout(&format!("{}\n", serde_json::to_string_pretty(&overview)?))?;
    } else {
        let width = terminal_size().map_or(DEFAULT_WIDTH, |(Width(width), _)| width);
        write_stdout(&tokengauge_top::plain_text(&overview, args.view.into(), width))?;
    }
    Ok(exit_code(&overview))
}

fn exit_code(overview: &Overview) -> ExitCode {
    if overview.has_data() {
        return ExitCode::SUCCESS;
    }
    for process in &overview.processes {
        let failure = process.failure.as_ref();
        let reason = failure.map(|failure| failure.reason.as_str()).unwrap_or_default();
        write_stderr(format!("tokengauge: {}: {reason}", process.address));
    }
    write_stderr(
        "tokengauge: no process answered; start one with `tokengauge run` or `tokengauge demo`, or set --admin to the \
         admin port of a running one",
    );
    ExitCode::FAILURE
}

/// Prints plain lines until standard output is closed.
async fn print_lines(targets: &Targets) -> io::Result<()> {
    let mut watch = Watch::start(targets);
    // The first block has data if a process answers at once.
    drop(tokio::time::timeout(LINES_INTERVAL, first_answer(&mut watch)).await);
    let mut ticks = interval(LINES_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let block = tokengauge_top::lines(&watch.overview(), tokengauge_top::now_unix_ms());
        let written = tokio::task::spawn_blocking(move || {
            let mut out = io::stdout().lock();
            out.write_all(block.as_bytes()).and_then(|()| out.flush())
        });
        match written.await? {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            result => result?,
        }
    }
}

async fn first_answer(watch: &mut Watch) {
    while !watch.overview().has_data() {
        watch.changed().await;
    }
}
