//! The programs of the overhead benchmark: a scripted backend, a bare relay, and clients that measure.
//!
//! `benches/overhead.py` starts them. Load generator and backend use one thread each, so that they leave the other cores
//! to the proxy.

mod backend;
mod clients;
mod clock;
mod connect;
mod exchange;
mod hold;
mod load;
mod process;
mod relay;
mod script;
mod sink;
mod stats;
mod tls;
mod verify;

use std::io::Write;

use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};

/// Programs of the overhead benchmark.
#[derive(Debug, Parser)]
enum Command {
    /// Serve scripted responses
    Backend(backend::Args),
    /// Forward requests, without reading them
    Relay {
        #[arg(long, default_value_t = 2)]
        threads: usize,
        #[command(flatten)]
        args: relay::Args,
    },
    /// Receive telemetry over OTLP/HTTP, and count it
    Sink(sink::Args),
    /// Measure one load, and print one line of JSON
    Load(load::Args),
    /// Hold streams, and print their memory as one line of JSON
    Hold(hold::Args),
}

fn main() -> anyhow::Result<()> {
    allow_many_files()?;
    match Command::parse() {
        Command::Backend(args) => one_thread()?.block_on(backend::run(args)),
        Command::Relay { threads, args } => {
            let runtime =
                Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
            runtime.block_on(relay::run(args))
        }
        Command::Sink(args) => one_thread()?.block_on(sink::run(args)),
        Command::Load(args) => print(&one_thread()?.block_on(load::run(args))?),
        Command::Hold(args) => print(&one_thread()?.block_on(hold::run(args))?),
    }
}

fn one_thread() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Raises the soft limit of open files: 5,000 streams need more than the usual 1,024.
fn allow_many_files() -> anyhow::Result<()> {
    let hard = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard })?)
}

fn print(report: &impl Serialize) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{}", serde_json::to_string(report)?)?)
}
