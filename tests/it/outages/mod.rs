//! Plays the rows of `docs/reference/outages.md` over sockets. `/metrics` must have the outcome, the error source, the
//! SLO results and the tokens of the page.
//!
//! The page has durations of up to a minute. The test waits a fraction of a second instead, and moves each threshold
//! below or above that time, as it is on the page.

mod calls;
mod table;

use std::time::Duration;

use tokengauge_measure::slo::{CountingRules, Objective, Scope, Sli};
use tokengauge_types::label::Label;

use calls::play;
use table::{Row, rows};

/// A row of the page that has no test over sockets: the observer cannot be made to lag at a known byte.
const WITHOUT_SOCKETS: [&str; 1] = ["the observer is behind and drops a part of each response"];

/// Times of a call on the page, in seconds after the request.
#[derive(Clone, Copy)]
struct Times {
    token: f64,
    visible: f64,
    end: f64,
    /// Time without a token after the first one.
    silence: f64,
    /// Tokens per second after the first one.
    rate: f64,
}

impl Times {
    fn for_break(breaks: &str) -> Self {
        let healthy = Self { token: 0.3, visible: 0.3, end: 0.8, silence: 0.0, rate: 100.0 };
        let until = |time| Self { token: time, visible: time, end: time, ..healthy };
        match breaks {
            "no response headers, and clients leave after 60 s" => until(60.0),
            "clients leave after 0.2 s, before the response headers" => until(0.2),
            "clients leave after 2 s, before the response headers" => until(2.0),
            "clients leave after 11 s, before the response headers" => until(11.0),
            "clients leave after 2 s, while the model reasons" => {
                Self { visible: 2.0, end: 2.0, ..healthy }
            }
            "slow prefill: the first token takes 12 s" => until(12.0),
            "the queue of the proxy grows: requests wait 20 s" => until(20.0),
            "slow decode: 10 tokens per second" => Self { end: 5.3, rate: 10.0, ..healthy },
            "the response hangs after 25 tokens, and clients leave after 60 s" => {
                Self { end: 60.0, silence: 60.0, ..healthy }
            }
            "the response hangs after 25 tokens until `timeouts.idle` of 20 s" => {
                Self { end: 20.0, silence: 20.0, ..healthy }
            }
            _ => healthy,
        }
    }

    /// Returns the SLOs of the page.
    fn objectives(self) -> Vec<Objective> {
        let floor = |is_reached| if is_reached { 1e-6 } else { 1e6 };
        let slis = [
            ("availability", Sli::Availability),
            ("ttft", Sli::Ttft(threshold(0.5, self.token))),
            ("first_visible", Sli::FirstVisible(threshold(0.8, self.visible))),
            ("output_rate", Sli::OutputRate(floor(self.rate >= 30.0))),
            ("total_rate", Sli::TotalRate(floor(50.0 / self.end >= 10.0))),
            ("stall_free", Sli::StallFree),
            ("duration", Sli::Duration(threshold(10.0, self.end))),
        ];
        let objective = |(name, indicator)| Objective {
            name: Label::from_trusted(name),
            indicator,
            target: 0.9,
            window: Duration::from_secs(86_400),
            scope: Scope::default(),
            counting: CountingRules::default(),
        };
        slis.map(objective).into()
    }

    fn has_waited(self) -> bool {
        self.end > 0.8
    }
}

/// Returns a threshold that the waiting time of the test exceeds, or that no test exceeds.
fn threshold(limit: f64, time: f64) -> Duration {
    if time > limit { Duration::from_millis(10) } else { Duration::from_secs(600) }
}

#[tokio::test]
async fn every_row_of_the_page_over_sockets() {
    let all = rows();
    for name in WITHOUT_SOCKETS {
        assert!(all.iter().any(|row| row.breaks == name), "no row has the name {name:?}");
    }
    let played = all.into_iter().filter(|row| !WITHOUT_SOCKETS.contains(&row.breaks));
    let (waiting, at_once): (Vec<_>, Vec<_>) =
        played.partition(|row| Times::for_break(row.breaks).has_waited());
    let count = waiting.len() + at_once.len();
    let waiting = waiting.into_iter().map(|row| tokio::spawn(async move { compare(&row).await }));
    let waiting: Vec<_> = waiting.collect();
    let mut wrong = Vec::new();
    for row in at_once {
        wrong.extend(compare(&row).await);
    }
    for row in waiting {
        wrong.extend(row.await.unwrap());
    }
    assert!(wrong.is_empty(), "{} of {count} rows differ\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 60, "only {count} rows");
}

async fn compare(row: &Row) -> Option<String> {
    let metrics = play(row, Times::for_break(row.breaks)).await;
    let observed = table::line(row, &metrics);
    (observed != row.cells).then(|| {
        let calls = if row.stream { "streams" } else { "calls without a stream" };
        format!("{calls}: {}\n  page:    {:?}\n  sockets: {observed:?}", row.breaks, row.cells)
    })
}
