//! `tokengauge demo`: runs a simulated backend, clients, the proxy and an OTLP receiver in one process, and shows them
//! with the view of `tokengauge top`.
//!
//! At the end, the demo compares the telemetry that the receiver got with the traffic that was sent.

mod environment;
mod lines;
mod load;
mod receiver;
mod scenario;
mod verify;

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokengauge_top::{AdminUrl, ScreenSettings, Targets, View, Watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::run::Stop;
use crate::cli::demo::environment::{DemoEnvironment, ListenAddresses};
use crate::cli::demo::load::Load;
use crate::cli::demo::verify::{Observations, Report};
use crate::cli::log::has_colours;
use crate::config::value::DurationValue;
use crate::config::{Log, LogFormat, LogLevel};
use tokengauge_observe::Observer;
use tokengauge_telemetry::LineCounters;

/// Run a demo: a simulated backend, clients, the proxy and an OTLP receiver in one process
///
/// Needs no installation or configuration, and sends nothing to other machines. In a terminal, shows the view of
/// `tokengauge top`; the key q ends the demo. The traffic contains an incident to find. At the end, it compares the telemetry
/// received over OTLP with the traffic that the backend sent: tokens, time to first token, and each request exactly
/// once.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit status: 0 if the received telemetry agrees with the traffic, 1 otherwise.")]
pub struct Args {
    /// Stop after this time, such as 10s or 2m; otherwise stop with Ctrl-C
    #[arg(long = "for", value_name = "TIME")]
    length: Option<DurationValue>,

    /// Run this many concurrent clients
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    clients: u16,

    /// Listen on this address [default: 127.0.0.1:4000 if it is free, else any port]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,

    /// Serve the admin port on this address [default: 127.0.0.1:4001 if it is free, else any port]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,

    /// Seed the random choice of requests and responses
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Log settings of the demo. Only errors are logged, because the demo aborts streams on purpose.
pub const LOG: Log = Log { level: LogLevel::Error, format: LogFormat::Text };

/// Maximum time to wait for requests in flight at the end. The longest request takes about 4 s on an idle machine, and
/// 5 s longer during the incident.
const LOAD_STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum time to wait until the backend has noticed all disconnected clients.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the demo. `variable` looks up `NO_COLOR`, and `log_lines` counts the lines of the log.
///
/// # Errors
/// Returns an error if no port is available or standard output is not writable.
pub async fn run(
    args: Args,
    variable: fn(&str) -> Option<String>,
    log_lines: Arc<LineCounters>,
) -> anyhow::Result<ExitCode> {
    let addresses = ListenAddresses { listen: args.listen, admin: args.admin };
    let mut stop = Stop::listen()?;
    let environment = DemoEnvironment::start(addresses, args.seed, log_lines).await?;
    print(banner(&environment)).await?;
    let load = Load::start(environment.proxy, usize::from(args.clients), args.seed);
    let finished = finished(&mut stop, args.length);
    if io::stdout().is_terminal() {
        show(&environment, has_colours(true, variable), finished).await?;
    } else {
        tokio::select! {
            result = print_lines(environment.app.observer()) => result?,
            () = finished => {}
        }
    }
    let end = async {
        let waiting =
            "\nWaiting for the clients to finish and for the proxy to export its telemetry …\n";
        print(waiting.to_owned()).await?;
        let (report, agrees) = finish(environment, load).await;
        print(report).await?;
        Ok(if agrees { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    };
    tokio::select! {
        ended = end => ended,
        () = stop.requested() => anyhow::bail!("interrupted before the comparison"),
    }
}

/// Stops the clients and the proxy. Returns the text of the report, and whether the telemetry agrees with the traffic.
async fn finish(environment: DemoEnvironment, load: Load) -> (String, bool) {
    let records = load.stop(LOAD_STOP_TIMEOUT).await;
    // If the backend does not notice a disconnected client, the comparison reports this.
    drop(timeout(SETTLE_TIMEOUT, environment.ledger.wait_for_responses(0)).await);
    let (flushed, ledger, receiver) = environment.close().await;
    let entries = ledger.entries();
    let (report, exports) = receiver.read(|telemetry| {
        let observations = Observations {
            records: &records,
            ledger: &entries,
            dropped: ledger.evicted(),
            telemetry,
        };
        (Report::from_observations(&observations), telemetry.exports)
    });
    let agrees = report.agrees() && flushed;
    let late = if flushed { "" } else { "  FAILED the last export was not received in time\n" };
    let verdict = if agrees {
        "The received telemetry agrees with the traffic."
    } else {
        "The received telemetry does NOT agree with the traffic."
    };
    let text = format!(
        "\n{exports} OTLP exports compared with the data that the backend sent and the clients received:\n{report}{late}{verdict}\n"
    );
    (text, agrees)
}

/// Completes after `length`, or on Ctrl-C or SIGTERM.
async fn finished(stop: &mut Stop, length: Option<DurationValue>) {
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

fn banner(environment: &DemoEnvironment) -> String {
    let (proxy, admin, backend) =
        (environment.proxy, environment.app.admin_addr(), environment.backend);
    format!(
        "\
tokengauge demo: clients → proxy http://{proxy}
                         → simulated backend http://{backend}
  console   http://{admin}/
  metrics   curl http://{admin}/metrics
  request   curl -N http://{proxy}/v1/chat/completions \\
              -H 'content-type: application/json' -d '{{\"model\": \"sim-fast\",
              \"stream\": true, \"messages\": [{{\"role\": \"user\", \"content\": \"hi\"}}]}}'
  client    OPENAI_BASE_URL=http://{proxy}/v1 OPENAI_API_KEY=none python app.py
  Some requests stall, fail or are aborted on purpose. Every SLO has the target
  85 % and a window of 10 minutes. An incident starts after 20 s: find it.
  Ctrl-C stops the demo and compares the measurements with the traffic.

"
    )
}

/// Shows the view of `tokengauge top` until the user quits or `finished` completes.
async fn show(
    environment: &DemoEnvironment,
    has_colours: bool,
    finished: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let admin = environment.app.admin_addr();
    let url: AdminUrl = admin.to_string().parse()?;
    let watch = Watch::start(&Targets { urls: vec![url], token: None });
    let notes = vec![
        format!("demo · console http://{admin}/ · proxy http://{}", environment.proxy),
        "An incident starts after 20 s: find it. q ends the demo.".to_owned(),
    ];
    let settings = ScreenSettings { view: View::Now, has_colours, notes };
    Ok(tokengauge_top::show(watch, settings, finished).await?)
}

/// Prints plain lines every second. Returns only if standard output is not writable.
async fn print_lines(observer: &Observer) -> io::Result<()> {
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let start = ticks.tick().await;
    loop {
        let elapsed = ticks.tick().await.duration_since(start);
        print(lines::current(observer, elapsed)).await?;
    }
}

/// Writes to standard output on a thread of its own, because a paused terminal or a full pipe blocks the write. The
/// demo still serves requests and handles signals in this time.
async fn print(text: String) -> io::Result<()> {
    let written = tokio::task::spawn_blocking(move || {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    });
    written.await?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::demo::scenario::SCENARIOS;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn telemetry_agrees_in_every_scenario() {
        let any = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let addresses = ListenAddresses { listen: any, admin: any };
        let environment = DemoEnvironment::start(addresses, 1, Arc::default()).await.unwrap();
        let load = Load::start(environment.proxy, SCENARIOS.len(), 1);
        let (text, agrees) = finish(environment, load).await;
        assert!(agrees, "{text}");
        assert!(text.contains(&format!("{} exchanges", SCENARIOS.len())), "{text}");
    }

    #[test]
    fn parses_flags() {
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
