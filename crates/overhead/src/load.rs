//! One measurement: clients repeat requests, and a window after the warm-up is measured.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use tokio::task::LocalSet;

use crate::clients::Clients;
use crate::connect::{Connector, Server};
use crate::exchange::Exchange;
use crate::process::{self, Cpu, Memory};
use crate::script::Script;
use crate::stats::Summary;

/// Time for the streams that are open at the end of the window, beyond their planned duration.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: Server,
    /// What each request asks for, such as kind=stream,tokens=100,gap-us=20000
    #[arg(long)]
    script: Script,
    /// Requests in flight
    #[arg(long, default_value_t = 1)]
    clients: u32,
    /// Length of the measured window
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Time before the window. Clients start during the first stream, spread evenly
    #[arg(long, default_value_t = 0.5)]
    warm_up: f64,
    /// Open a connection for each request
    #[arg(long)]
    new_connections: bool,
    /// Pause of a client after each response
    #[arg(long, default_value_t = 0)]
    pause_ms: u64,
    /// Process whose CPU time and memory are measured, with its descendants
    #[arg(long)]
    process: Option<u32>,
    /// Another process whose CPU time is measured, for example one that gets a copy of the traffic
    #[arg(long)]
    beside: Option<u32>,
}

#[derive(Debug, Serialize)]
pub struct Report {
    script: String,
    clients: u32,
    /// Length of the window. The requests and chunks that end in the window count.
    seconds: f64,
    requests: u64,
    chunks: u64,
    delay: Option<Summary>,
    first_chunk: Option<Summary>,
    total: Option<Summary>,
    cpu: Option<Cpu>,
    beside_cpu: Option<Cpu>,
    memory: Option<Memory>,
    driver_cpu: Cpu,
    mismatches: u64,
    errors: BTreeMap<String, u64>,
}

pub async fn run(args: Args) -> anyhow::Result<Report> {
    let exchange = Exchange::new(args.script.clone())?;
    let pause = Duration::from_millis(args.pause_ms);
    let clients = Clients::new(exchange, Connector::new(&args.server)?)
        .with_new_connections(args.new_connections)
        .with_pause(pause);
    let clients = Rc::new(clients);
    let stream = Duration::from_micros(args.script.duration_us());
    let tasks = LocalSet::new();
    for number in 0..args.clients {
        tasks.spawn_local(Rc::clone(&clients).run_client((stream + pause) * number / args.clients));
    }
    let measured = tasks.run_until(measure(&args, &clients)).await;
    tokio::time::timeout(stream + PATIENCE, tasks).await.context("streams did not end in time")?;
    Ok(measured.report(&args, &clients))
}

struct Measured {
    seconds: f64,
    cpu: Option<Cpu>,
    beside_cpu: Option<Cpu>,
    memory: Option<Memory>,
    driver_cpu: Cpu,
}

async fn measure(args: &Args, clients: &Clients) -> Measured {
    let own = std::process::id();
    tokio::time::sleep(Duration::from_secs_f64(args.warm_up)).await;
    let used = |process: Option<u32>| process.map(process::cpu);
    let (cpu, beside_cpu, driver_cpu) = (used(args.process), used(args.beside), process::cpu(own));
    let start = tokio::time::Instant::now();
    clients.is_measuring.set(true);
    tokio::time::sleep(Duration::from_secs_f64(args.seconds)).await;
    clients.is_measuring.set(false);
    let seconds = start.elapsed().as_secs_f64();
    let since = |process: Option<u32>, before: Option<Cpu>| {
        process.zip(before).map(|(process, before)| process::cpu(process) - before)
    };
    let (cpu, beside_cpu) = (since(args.process, cpu), since(args.beside, beside_cpu));
    let driver_cpu = process::cpu(own) - driver_cpu;
    let memory = args.process.map(process::memory);
    clients.is_stopped.set(true);
    Measured { seconds, cpu, beside_cpu, memory, driver_cpu }
}

impl Measured {
    fn report(self, args: &Args, clients: &Clients) -> Report {
        let tally = clients.tally.borrow();
        Report {
            script: args.script.to_string(),
            clients: args.clients,
            seconds: self.seconds,
            requests: tally.requests,
            chunks: tally.chunks,
            delay: tally.delay.summary(),
            first_chunk: tally.first_chunk.summary(),
            total: tally.total.summary(),
            cpu: self.cpu,
            beside_cpu: self.beside_cpu,
            memory: self.memory,
            driver_cpu: self.driver_cpu,
            mismatches: clients.mismatches.get(),
            errors: clients.errors.borrow().clone(),
        }
    }
}
