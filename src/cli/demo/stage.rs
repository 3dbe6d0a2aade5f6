//! The demo's stage: a simulated backend, the proxy before it and an OTLP receiver behind it, all in this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::app::App;
use crate::cli::demo::receiver::Receiver;
use crate::cli::demo::scenario;
use crate::config::{self, RunArgs, Secret};
use tokengauge_simulator::Ledger;

/// Everything that runs. Dropped, the backend and the receiver end with it.
#[derive(Debug)]
pub struct Stage {
    pub app: App,
    pub proxy: SocketAddr,
    pub backend: SocketAddr,
    pub ledger: Arc<Ledger>,
    pub receiver: Receiver,
    serving: [JoinHandle<()>; 2],
}

/// Where the proxy shall listen.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    pub listen: Option<SocketAddr>,
    pub admin: Option<SocketAddr>,
}

/// Often enough for the last second to be seen arriving, and seldom enough to be no load.
const METRIC_INTERVAL: Duration = Duration::from_secs(1);

/// Spans wait this long for others.
const SPAN_DELAY: Duration = Duration::from_millis(500);

/// What is still open when the clients have gone is over at once.
const DRAIN: Duration = Duration::from_secs(2);

impl Stage {
    pub async fn start(places: Places, seed: u64) -> anyhow::Result<Self> {
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
        let receive = receiver.clone().serve(otlp_listener, std::future::pending());
        let serving = [tokio::spawn(serve), tokio::spawn(receive)];
        let args = arguments(places, backend)?;
        let config = config::load(&args, &|_| None)?;
        let app = App::start(config, exporting_to(otlp)).await?;
        let proxy = app.listen_addr().context("the proxy listens nowhere")?;
        Ok(Self { app, proxy, backend, ledger, receiver, serving })
    }

    /// Stops the proxy, so that all it has to say is said; `true` where it was delivered in time.
    pub async fn close(self) -> (bool, Arc<Ledger>, Receiver) {
        let ended = self.app.shutdown(DRAIN).await;
        for task in self.serving {
            task.abort();
        }
        (ended.flushed, self.ledger, self.receiver)
    }
}

async fn bind() -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no port can be had")?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// The flags of `tokengauge run` that put it before the backend. Neither the environment nor a file plays a part: the
/// demo is the same everywhere.
fn arguments(places: Places, backend: SocketAddr) -> anyhow::Result<RunArgs> {
    let place = |wanted: Option<SocketAddr>, usual: u16| {
        wanted.unwrap_or_else(|| free_or_any(usual)).to_string()
    };
    Ok(RunArgs {
        listen: vec![place(places.listen, 4_000).parse().map_err(anyhow::Error::msg)?],
        admin: Some(place(places.admin, 4_001).parse().map_err(anyhow::Error::msg)?),
        upstream: vec![Secret::new(&format!("http://{backend}"))],
        ..RunArgs::default()
    })
}

/// The usual port where nobody has it, else any: a demo beside a running proxy still works.
fn free_or_any(usual: u16) -> SocketAddr {
    let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, usual));
    match std::net::TcpListener::bind(usual) {
        Ok(_) => usual,
        Err(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
    }
}

/// OTLP over HTTP in protobuf to the receiver.
fn exporting_to(otlp: SocketAddr) -> tokengauge_telemetry::Config {
    let mut config = tokengauge_telemetry::Config::default();
    config.metrics.endpoint = Some(format!("http://{otlp}/v1/metrics"));
    config.traces.endpoint = Some(format!("http://{otlp}/v1/traces"));
    config.metric_interval = METRIC_INTERVAL;
    config.span_batch.delay = SPAN_DELAY;
    config
}
