//! `tokengauge probe`: whether the proxy beside it is well. For images without a shell, let alone an HTTP client.

use std::time::{Duration, Instant};

use http::Method;

use super::ask::Where;
use crate::config::value::Length;

/// Between two times of asking.
const PAUSE: Duration = Duration::from_millis(500);

/// What is asked, and how long for.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Whether it runs, or whether it takes requests (it does not say so while it drains)
    #[arg(value_enum, default_value_t = Page::Livez)]
    page: Page,

    #[command(flatten)]
    at: Where,

    /// How long an answer may take
    #[arg(long, value_name = "TIME", default_value = "1s")]
    timeout: Length,

    /// Ask again, twice a second, for as long as it is not well
    #[arg(long, value_name = "TIME", default_value = "0s")]
    wait: Length,
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
    let began = Instant::now();
    loop {
        let path = args.page.path();
        let answer = args.at.ask(Method::GET, path, args.timeout.0, environment);
        if answer.is_ok() || began.elapsed() + PAUSE > args.wait.0 {
            return answer;
        }
        std::thread::sleep(PAUSE);
    }
}
