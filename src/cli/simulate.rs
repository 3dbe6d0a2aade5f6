//! `tokengauge simulate`: the simulated backend alone.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;

use super::run::Stop;
use tokengauge_simulator::{Config, Ledger, Profile, profile};

/// Serve a simulated LLM backend that speaks OpenAI's API
///
/// Answers POST */chat/completions, */completions and */embeddings and GET */models, streaming or whole, with made-up
/// text at the pace of its models, GET /health, and GET /metrics with vLLM's names for what the engine is doing. Use it to try tokengauge, or anything else that talks to an LLM, without one.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = after_help())]
pub struct Args {
    /// AdminAddress to listen
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:18080")]
    pub listen: SocketAddr,

    /// A model to serve, with options on top of the default model of that name; may be given several times
    ///
    /// Without any: sim-typical, sim-fast, sim-slow and sim-reasoning. A request for another model is answered by the
    /// first one.
    #[arg(long = "model", value_name = "NAME[:key=value,…]")]
    pub models: Vec<Profile>,

    /// The same seed and the same request give the same answer
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

fn after_help() -> String {
    format!(
        "\
Model options:
  {}

  prefill-ms=12  prefill-us-per-token=29.6    time until the first token
  step-ms=7.5  batch-ms=1.37                  time per token = step + streams of this model × batch
  tokens=60-240  chunk-tokens=1  jitter=0.02  length, tokens per chunk, variation of the pace
  reasoning=40-120 | hidden=40-120            thinking before the answer, streamed or silent
  usage=never|on-request|always               when a stream tells its usage
  tools=true                                  calls a tool whenever one is offered
  role-chunk=false                            streams begin without a role-only chunk
  ping-ms=500                                 sends comments while it waits
  slots=8                                     answers generated at once; further requests wait their turn
  prefix-hits=0.3                             share of each prompt that is found in the prefix cache
  requests-per-minute=600                     beyond it 429; what is left stands in x-ratelimit-* headers
  stall=0.1  stall-after=20  stall-ms=3000    one in ten is silent for 3 s after 20 tokens
  fail=0.05  status=429                       one in twenty is an error
  cut=0.02  cut-after=30                      one in fifty breaks off after 30 tokens

A request can ask for its own treatment with headers:
  x-simulate-tokens, -chunk-tokens, -gap-us, -ttft-us, -stall-after, -stall-ms, -status, -cut-after

Example:
  tokengauge simulate --model sim-fast --model my-model:step-ms=20,tokens=100,fail=0.1,status=503",
        profile::KEYS
    )
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    tokio::task::spawn_blocking(tokengauge_simulator::tokens::load).await?;
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    let address = listener.local_addr()?;
    let mut config = Config { seed: args.seed, ..Config::default() };
    if !args.models.is_empty() {
        config.models = args.models;
    }
    // Before anything is said: whoever has read it may send a signal. As a container's first process it would not end by itself.
    let mut stop = Stop::listen()?;
    announce(address, &config)?;
    tokengauge_simulator::serve(listener, config, Arc::new(Ledger::default()), stop.asked()).await;
    Ok(())
}

fn announce(address: SocketAddr, config: &Config) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "simulated backend on http://{address}/v1")?;
    for model in &config.models {
        writeln!(out, "  {model}")?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn arguments_are_read_and_bad_ones_explained() {
        let args =
            Alone::parse_from(["x", "--model", "a:step-ms=3", "--model", "b", "--seed", "9"]).args;
        let names: Vec<_> = args.models.iter().map(|it| it.name.as_str()).collect();
        assert_eq!((names.as_slice(), args.seed), (["a", "b"].as_slice(), 9));
        let error = Alone::try_parse_from(["x", "--model", "a:stepms=3"]).err().unwrap();
        assert!(error.to_string().contains("unknown key `stepms`"));
    }

    #[test]
    fn the_help_explains_every_option() {
        let help = after_help();
        for key in profile::KEYS.split(", ") {
            assert!(help.contains(&format!("{key}=")), "{key}");
        }
    }
}
