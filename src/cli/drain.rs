//! `tokengauge drain`: has the proxy beside it seen off before it is stopped. For a hook before a container's end.

use http::Method;

use super::ask::Where;
use crate::config::value::Length;

/// How it is drained, and how long that may take.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    at: Where,

    /// How long everything goes on as before while not ready: what it takes until others have learned of it, up to 1h
    #[arg(long, value_name = "TIME", default_value = "5s")]
    delay: Length,

    /// How long nothing shall have been in flight at the end, up to 1h
    #[arg(long, value_name = "TIME", default_value = "0s")]
    quiet: Length,

    /// How long this command waits. The drain goes on without it
    #[arg(long, value_name = "TIME", default_value = "1h")]
    timeout: Length,
}

pub(super) fn run(args: &Args, environment: fn(&str) -> Option<String>) -> anyhow::Result<String> {
    let Args {
        at,
        delay,
        quiet,
        timeout,
    } = args;
    let path = format!("/drain?delay={delay}&quiet={quiet}");
    at.ask(Method::POST, &path, timeout.0, environment)
}
