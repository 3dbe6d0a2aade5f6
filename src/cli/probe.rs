//! `tokengauge probe`: whether the proxy beside it is well. For images without a shell, let alone an HTTP client.

use http::Method;

use super::admin_client::{AdminAddress, RequestLimits};
use crate::config::value::DurationValue;

/// What is asked, and how long for.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Whether it runs, or whether it takes requests (it does not say so while it drains)
    #[arg(value_enum, default_value_t = Page::Livez)]
    page: Page,

    #[command(flatten)]
    at: AdminAddress,

    /// How long an answer may take
    #[arg(long, value_name = "TIME", default_value = "1s")]
    timeout: DurationValue,

    /// Ask again, twice a second, for as long as it is not well
    #[arg(long, value_name = "TIME", default_value = "0s")]
    wait: DurationValue,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Page {
    Livez,
    Readyz,
}

impl Page {
    const fn path(self) -> &'static str {
        match self {
            Self::Livez => "/livez",
            Self::Readyz => "/readyz",
        }
    }
}

pub(super) fn run(args: &Args, environment: fn(&str) -> Option<String>) -> anyhow::Result<String> {
    let Args { page, at, timeout, wait } = args;
    let patience = RequestLimits { limit: timeout.0, wait: wait.0 };
    at.ask(&Method::GET, page.path(), patience, environment)
}
