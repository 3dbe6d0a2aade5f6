//! `tokengauge drain`: has the proxy beside it seen off before it is stopped. For a hook before a container's end.

use std::time::Duration;

use http::Method;

use super::admin_client::{AdminAddress, RequestLimits};
use crate::config::value::DurationValue;

/// How much longer than the drain may take its answer may.
const ANSWER: Duration = Duration::from_secs(10);

/// How it is drained, and how long that may take.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    at: AdminAddress,

    /// How long everything goes on as before while not ready: what it takes until others have learned of it, up to 1h
    #[arg(long, value_name = "TIME", default_value = "5s")]
    delay: DurationValue,

    /// How long nothing shall have been in flight at the end, up to 1h
    #[arg(long, value_name = "TIME", default_value = "0s")]
    quiet: DurationValue,

    /// How long the drain may take: this command waits no longer, nor does who asked for /drained. The drain goes on without
    /// them
    #[arg(long, value_name = "TIME", default_value = "1h")]
    timeout: DurationValue,

    /// How much longer this command alone waits, for what ends when the backend is stopped: where nothing else keeps the
    /// proxy until then
    #[arg(long, value_name = "TIME", default_value = "0s")]
    linger: DurationValue,
}

pub(super) fn run(args: &Args, environment: fn(&str) -> Option<String>) -> anyhow::Result<String> {
    let Args { at, delay, quiet, timeout, linger } = args;
    let ask = |within: &DurationValue| {
        let path = format!("/drain?delay={delay}&quiet={quiet}&within={within}");
        let patience =
            RequestLimits { limit: within.0.saturating_add(ANSWER), wait: Duration::ZERO };
        at.ask(&Method::POST, &path, patience, environment)
    };
    match ask(timeout) {
        // Who waits for /drained has been told by then.
        Err(_) if !linger.0.is_zero() => ask(linger),
        told => told,
    }
}
