//! `tokengauge simulate`: runs the simulated LLM backend.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::anyhow;

use super::run::Stop;
use tokengauge_simulator::{Config, Ledger, Profile, profile};

/// Run a simulated LLM backend with OpenAI's API
///
/// Serves POST */chat/completions, */completions and */embeddings and GET */models, streaming or not, with generated
/// text at the speed of its models. Also serves GET /health, and GET /metrics with vLLM's metric names. Use it to test
/// tokengauge, or another client of an LLM API, without an LLM.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = after_help())]
pub struct Args {
    /// Listen on this address
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:18080")]
    pub listen: SocketAddr,

    /// Serve this model, with options that change the default model of that name; may be repeated
    ///
    /// Without this option: sim-typical, sim-fast, sim-slow and sim-reasoning. The first model also serves requests for
    /// unknown models.
    #[arg(long = "model", value_name = "NAME[:key=value,…]")]
    pub models: Vec<Profile>,

    /// Set the seed of random numbers; the same seed and the same request give the same response
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
  usage=never|on-request|always               when a stream reports its usage
  tools=true                                  calls a tool whenever one is offered
  role-chunk=false                            streams start without a role-only chunk
  ping-ms=500                                 sends comments while it waits
  slots=8                                     concurrent responses; further requests are queued
  prefix-hits=0.3                             ratio of each prompt found in the prefix cache
  requests-per-minute=600                     beyond it 429; x-ratelimit-* headers report the rest
  stall=0.1  stall-after=20  stall-ms=3000    one in ten stalls for 3 s after 20 tokens
  fail=0.05  status=429                       one in twenty is an error
  cut=0.02  cut-after=30                      one in fifty is cut off after 30 tokens

A request can override these with headers:
  x-simulate-tokens, -chunk-tokens, -gap-us, -ttft-us, -stall-after, -stall-ms, -status, -cut-after

Example:
  tokengauge simulate --model sim-fast --model my-model:step-ms=20,tokens=100,fail=0.1,status=503",
        profile::KEYS
    )
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    tokio::task::spawn_blocking(tokengauge_simulator::tokens::load).await?;
    let listener = tokengauge_listen::bind_tcp(args.listen).map_err(|error| {
        let hint = tokengauge_listen::bind_hint(&error);
        anyhow!("cannot listen on {}: {error}{hint}", args.listen)
    })?;
    let address = listener.local_addr()?;
    let mut config = Config { seed: args.seed, ..Config::default() };
    if !args.models.is_empty() {
        config.models = args.models;
    }
    // Signals are handled before the address is printed, because a reader of the output can then send one. The first
    // process of a container would otherwise ignore the signal.
    let mut stop = Stop::listen()?;
    print_address(address, &config)?;
    tokengauge_simulator::serve(listener, config, Arc::new(Ledger::default()), stop.requested())
        .await;
    Ok(())
}

fn print_address(address: SocketAddr, config: &Config) -> std::io::Result<()> {
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
    fn parses_arguments_and_explains_errors() {
        let args =
            Alone::parse_from(["x", "--model", "a:step-ms=3", "--model", "b", "--seed", "9"]).args;
        let names: Vec<_> = args.models.iter().map(|it| it.name.as_str()).collect();
        assert_eq!((names.as_slice(), args.seed), (["a", "b"].as_slice(), 9));
        let error = Alone::try_parse_from(["x", "--model", "a:stepms=3"]).err().unwrap();
        assert!(error.to_string().contains("unknown key `stepms`"));
    }

    #[test]
    fn help_documents_every_option() {
        let help = after_help();
        for key in profile::KEYS.split(", ") {
            assert!(help.contains(&format!("{key}=")), "{key}");
        }
    }
}
