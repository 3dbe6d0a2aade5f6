//! Holds many slow streams, and measures the memory of each. Then disconnects all at once.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty};
use serde::Serialize;
use tokio::task::LocalSet;
use tokio::time::Instant;

use crate::clients::Clients;
use crate::connect::{Connector, Server};
use crate::exchange::Exchange;
use crate::process::{self, Memory};
use crate::script::Script;

/// Streams that open per second.
const OPEN_PER_SECOND: u32 = 1_000;
/// Longest wait for the first chunks, and for the backend to notice that the clients disconnected.
const PATIENCE: Duration = Duration::from_secs(60);
/// Resolution of the time until the backend has noticed all disconnected clients.
const POLL: Duration = Duration::from_millis(2);

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: Server,
    /// Address of the backend itself: http://IP:PORT
    #[arg(long)]
    backend: Uri,
    #[arg(long)]
    streams: u32,
    /// How long all streams are held
    #[arg(long, default_value_t = 8.0)]
    seconds: f64,
    /// Time between two chunks of a stream
    #[arg(long, default_value_t = 2_000_000)]
    gap_us: u64,
    /// Process whose memory is measured, with its descendants
    #[arg(long)]
    process: u32,
}

#[derive(Debug, Serialize)]
pub struct Report {
    streams: u32,
    before: Memory,
    held: Memory,
    /// From the disconnect until the backend has noticed all clients.
    noticed_ms: f64,
    mismatches: u64,
    errors: BTreeMap<String, u64>,
}

pub async fn run(args: Args) -> anyhow::Result<Report> {
    let script: Script = format!("kind=stream,tokens=1000,gap-us={}", args.gap_us).parse()?;
    let clients = Rc::new(Clients::new(Exchange::new(script)?, Connector::new(&args.server)?));
    let before = process::memory(args.process);
    let streams = LocalSet::new();
    for number in 0..args.streams {
        let start = Duration::from_secs(1) * number / OPEN_PER_SECOND;
        streams.spawn_local(Rc::clone(&clients).run_client(start));
    }
    streams.run_until(wait_for_streams(&clients, args.streams)).await?;
    streams.run_until(tokio::time::sleep(Duration::from_secs_f64(args.seconds))).await;
    let held = process::memory(args.process);
    let disconnected = Instant::now();
    drop(streams);
    wait_for_backend(&args.backend).await?;
    Ok(Report {
        streams: args.streams,
        before,
        held,
        noticed_ms: disconnected.elapsed().as_secs_f64() * 1_000.0,
        mismatches: clients.mismatches.get(),
        errors: clients.errors.borrow().clone(),
    })
}

async fn wait_for_streams(clients: &Clients, streams: u32) -> anyhow::Result<()> {
    let start = Instant::now();
    while clients.opened.get() < u64::from(streams) {
        if start.elapsed() > PATIENCE {
            bail!(
                "{} of {streams} streams opened: {:?}",
                clients.opened.get(),
                clients.errors.borrow()
            );
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn wait_for_backend(backend: &Uri) -> anyhow::Result<()> {
    let server = Server { url: backend.clone(), http2: false, certificate: None };
    let mut sender = Connector::new(&server)?.connect::<Empty<Bytes>>().await?;
    let start = Instant::now();
    loop {
        sender.ready().await?;
        let request = Request::get("/stats").header("host", "backend").body(Empty::new())?;
        let answer = sender.send(request).await?.into_body().collect().await?.to_bytes();
        let stats: serde_json::Value = serde_json::from_slice(&answer)?;
        if stats.get("active").context("no count of active responses")? == 0 {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            bail!("the backend still sends: {stats}");
        }
        tokio::time::sleep(POLL).await;
    }
}
