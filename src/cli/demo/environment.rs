//! Starts the parts of the demo in this process: a simulated backend, the proxy and an OTLP receiver.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::app::App;
use crate::cli::demo::receiver::Receiver;
use crate::cli::demo::scenario;
use crate::cli::run;
use crate::config::{self, RunArgs, Secret};
use tokengauge_simulator::Ledger;
use tokengauge_telemetry::LineCounters;

/// The running parts of the demo. Dropping this value stops the backend and the OTLP receiver.
#[derive(Debug)]
pub struct DemoEnvironment {
    pub app: App,
    pub proxy: SocketAddr,
    pub backend: SocketAddr,
    pub ledger: Arc<Ledger>,
    pub receiver: Receiver,
    serving: [JoinHandle<()>; 2],
}

/// Requested addresses of the proxy. `None` means the default port, or any free port if the default port is in use.
#[derive(Clone, Copy, Debug)]
pub struct ListenAddresses {
    pub listen: Option<SocketAddr>,
    pub admin: Option<SocketAddr>,
}

/// Interval of metric exports. Short enough to include the last second of the demo, and long enough to cause little
/// load.
const METRIC_INTERVAL: Duration = Duration::from_secs(1);

/// Time for which spans wait for a batch.
const SPAN_DELAY: Duration = Duration::from_millis(500);

/// Grace period of the proxy's shutdown. 2 s are enough, because requests end when the clients disconnect.
const GRACE_PERIOD: Duration = Duration::from_secs(2);

/// Target of every SLO. The scenarios fail about 7 % of the requests on purpose. The default targets would therefore
/// show error budgets that are overspent many times.
const SLO_TARGET: f64 = 0.85;

/// Window of every SLO. The demo covers it within minutes, so that the error budgets recover after the incident.
const SLO_WINDOW: Duration = Duration::from_secs(10 * 60);

impl DemoEnvironment {
    pub async fn start(
        addresses: ListenAddresses,
        seed: u64,
        log_lines: Arc<LineCounters>,
    ) -> anyhow::Result<Self> {
        let (backend_listener, backend) = bind().await?;
        let (otlp_listener, otlp) = bind().await?;
        let ledger = Arc::new(Ledger::default());
        let receiver = Receiver::default();
        let models = scenario::models();
        let config = tokengauge_simulator::Config { models, seed };
        tokio::task::spawn_blocking(tokengauge_simulator::tokens::load).await?;
        let serve = tokengauge_simulator::serve(
            backend_listener,
            config,
            Arc::clone(&ledger),
            std::future::pending(),
        );
        let receive = receiver.clone().serve(otlp_listener);
        let serving = [tokio::spawn(serve), tokio::spawn(receive)];
        let args = run_args(addresses, backend)?;
        let mut config = config::load(&args, &|_| None)?;
        for objective in &mut config.slos {
            objective.target = SLO_TARGET;
            objective.window = SLO_WINDOW;
        }
        let app = App::start(config, export_config(otlp), run::workers()?, log_lines).await?;
        let proxy = app.listen_addr().context("the proxy has no TCP listener")?;
        Ok(Self { app, proxy, backend, ledger, receiver, serving })
    }

    /// Stops the proxy. Returns whether all telemetry was exported in time, the backend's ledger, and the receiver.
    pub async fn close(self) -> (bool, Arc<Ledger>, Receiver) {
        let outcome = self.app.shutdown(GRACE_PERIOD).await;
        for task in self.serving {
            task.abort();
        }
        (outcome.flushed, self.ledger, self.receiver)
    }
}

async fn bind() -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no port is available")?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Returns the arguments of a proxy for `backend`. Environment variables and files are ignored, so that the demo is the
/// same on every machine.
fn run_args(addresses: ListenAddresses, backend: SocketAddr) -> anyhow::Result<RunArgs> {
    let address = |requested: Option<SocketAddr>, default: u16| {
        requested.unwrap_or_else(|| default_or_any(default)).to_string()
    };
    Ok(RunArgs {
        listen: vec![address(addresses.listen, 4_000).parse().map_err(anyhow::Error::msg)?],
        admin: Some(address(addresses.admin, 4_001).parse().map_err(anyhow::Error::msg)?),
        upstream: vec![Secret::new(&format!("http://{backend}"))],
        ..RunArgs::default()
    })
}

/// Returns the default port if it is free, or else any free port. The demo can then run next to another proxy.
fn default_or_any(default: u16) -> SocketAddr {
    let default = SocketAddr::from((Ipv4Addr::LOCALHOST, default));
    match std::net::TcpListener::bind(default) {
        Ok(_) => default,
        Err(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
    }
}

fn export_config(otlp: SocketAddr) -> tokengauge_telemetry::TelemetryConfig {
    let mut config = tokengauge_telemetry::TelemetryConfig::default();
    config.metrics.endpoint = Some(format!("http://{otlp}/v1/metrics"));
    config.traces.endpoint = Some(format!("http://{otlp}/v1/traces"));
    config.metric_interval = METRIC_INTERVAL;
    config.span_batch.delay = SPAN_DELAY;
    config
}
