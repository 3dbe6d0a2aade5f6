//! `tokengauge demo`: a simulated backend, a mixed load, the proxy and an OTLP receiver in one process, a live view of
//! it, and at the end the question whether the telemetry that arrived agrees with what was really sent.

mod answer;
mod load;
mod receiver;
mod scenario;
mod stage;
mod verify;

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use terminal_size::{Width, terminal_size};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::run::Stop;
use crate::cli::demo::load::Load;
use crate::cli::demo::stage::{Places, Stage};
use crate::cli::demo::verify::{Evidence, Report};
use crate::config::value::DurationValue;
use crate::config::{Log, LogFormat, LogLevel};
use crate::console::{Screen, View, render, render_lines};

/// See tokengauge at work: a simulated backend, clients, the proxy and an OTLP receiver in one process
///
/// Nothing has to be installed or configured, and nothing leaves the machine. At the end it compares what arrived over
/// OTLP with what the backend really sent: tokens, time to first token, and every exchange exactly once.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit status: 0 if the telemetry that arrived agrees with what was really sent, 1 if it does not.")]
pub struct Args {
    /// End by itself after this long, such as 10s or 2m; otherwise Ctrl-C ends it
    #[arg(long = "for", value_name = "TIME")]
    length: Option<DurationValue>,

    /// How many clients ask at the same time
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    clients: u16,

    /// Where the proxy listens [default: 127.0.0.1:4000 if it is free, else any port]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,

    /// Where the admin port listens [default: 127.0.0.1:4001 if it is free, else any port]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,

    /// Decides what is asked and answered
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The demo breaks off streams on purpose: only what should not happen is logged into its view.
pub const LOG: Log = Log { level: LogLevel::Error, format: LogFormat::Text };

/// The longest request of the mix takes some 4 s where nothing else runs.
const GRACE: Duration = Duration::from_secs(20);

/// By then the backend has noticed every client that left.
const SETTLING: Duration = Duration::from_secs(5);

/// Runs the demo; `colourless` is what `NO_COLOR` asks for.
///
/// # Errors
/// Where a port cannot be had, or standard output not be written to.
pub async fn run(args: Args, colourless: bool) -> anyhow::Result<ExitCode> {
    let places = Places { listen: args.listen, admin: args.admin };
    let mut stop = Stop::listen()?;
    let stage = Stage::start(places, args.seed).await?;
    let mut show = Show::new(colourless);
    show.say(&banner(&stage))?;
    let load = Load::start(stage.proxy, usize::from(args.clients), args.seed);
    tokio::select! {
        shown = show.run(stage.app.console()) => shown?,
        () = over(&mut stop, args.length) => {}
    }
    show.say(
        "\nThe clients finish what they are doing, and the proxy says what it has to say …\n",
    )?;
    tokio::select! {
        report = finish(stage, load) => {
            show.say(&report.0)?;
            Ok(if report.1 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        () = stop.requested() => anyhow::bail!("interrupted before anything could be compared"),
    }
}

/// Ends the load and the proxy and compares: what to say, and whether all is well.
async fn finish(stage: Stage, load: Load) -> (String, bool) {
    let receipts = load.stop(GRACE).await;
    // Where the backend has not noticed a client's leaving by now, the comparison will say what is missing.
    drop(timeout(SETTLING, stage.ledger.settled(0)).await);
    let (flushed, ledger, receiver) = stage.close().await;
    let entries = ledger.entries();
    let (report, exports) = receiver.look(|arrived| {
        let evidence = Evidence {
            receipts: &receipts,
            ledger: &entries,
            forgotten: ledger.forgotten(),
            arrived,
        };
        (Report::of(&evidence), arrived.exports)
    });
    let agrees = report.agrees() && flushed;
    let late = if flushed { "" } else { "  FAILED the last export did not arrive in time\n" };
    let verdict = if agrees {
        "The telemetry that arrived agrees with what was really sent."
    } else {
        "The telemetry that arrived does NOT agree with what was really sent."
    };
    let text = format!(
        "\nWhat {exports} OTLP exports say, against what the backend sent and the clients got:\n{report}{late}{verdict}\n"
    );
    (text, agrees)
}

/// Resolves when the time is over, or on Ctrl-C or SIGTERM.
async fn over(stop: &mut Stop, length: Option<DurationValue>) {
    let ended = async {
        match length {
            Some(DurationValue(length)) => tokio::time::sleep(length).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = ended => {}
        () = stop.requested() => {}
    }
}

fn banner(stage: &Stage) -> String {
    let (proxy, admin, backend) = (stage.proxy, stage.app.admin_addr(), stage.backend);
    format!(
        "\
tokengauge demo: clients → proxy http://{proxy} → simulated backend http://{backend}
  metrics   curl http://{admin}/metrics        live streams   curl http://{admin}/streams
  ask too   curl -N http://{proxy}/v1/chat/completions -H 'content-type: application/json' \\
              -d '{{\"model\":\"sim-fast\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"hi\"}}]}}'
  a client  OPENAI_BASE_URL=http://{proxy}/v1 OPENAI_API_KEY=none python app.py
  Some requests stall, fail or break off on purpose: error budgets shrink.
  Ctrl-C ends it and compares what was measured with what was sent.

"
    )
}

/// Standard output: a view that is drawn anew on a terminal, lines elsewhere.
struct Show {
    terminal: bool,
    colour: bool,
}

/// What a terminal that does not tell its width is taken to have.
const USUAL_WIDTH: usize = 100;

impl Show {
    fn new(colourless: bool) -> Self {
        let terminal = io::stdout().is_terminal();
        Self { terminal, colour: terminal && !colourless }
    }

    fn say(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Shows `view` again and again; ends only where standard output cannot be written to.
    async fn run(&mut self, view: impl Fn() -> View) -> io::Result<()> {
        let every = Duration::from_millis(if self.terminal { 250 } else { 1_000 });
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let start = ticks.tick().await;
        let mut screen = Screen::default();
        loop {
            let elapsed = ticks.tick().await.duration_since(start);
            let view = view();
            if self.terminal {
                let width =
                    terminal_size().map_or(USUAL_WIDTH, |(Width(width), _)| usize::from(width));
                screen.draw(&render(&view, width, self.colour), &mut io::stdout().lock())?;
            } else {
                self.say(&render_lines(&view, elapsed))?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::demo::scenario::SCENARIOS;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_arrives_over_otlp_is_what_was_sent_in_every_scenario() {
        let any = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let places = Places { listen: any, admin: any };
        let stage = Stage::start(places, 1).await.unwrap();
        let load = Load::start(stage.proxy, SCENARIOS.len(), 1);
        let (text, agrees) = finish(stage, load).await;
        assert!(agrees, "{text}");
        assert!(text.contains(&format!("{} exchanges", SCENARIOS.len())), "{text}");
    }

    #[test]
    fn the_flags_are_read() {
        use clap::Parser;
        #[derive(Parser)]
        struct Alone {
            #[command(flatten)]
            args: Args,
        }
        let args = Alone::parse_from(["x", "--for", "10s", "--clients", "3"]).args;
        assert_eq!((args.length, args.clients), (Some(DurationValue(Duration::from_secs(10))), 3));
        assert!(Alone::try_parse_from(["x", "--clients", "0"]).is_err());
        assert!(Alone::try_parse_from(["x", "--for", "10"]).is_err());
    }
}
