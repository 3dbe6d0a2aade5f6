//! Is it us, is it them, how bad.

use super::{Dashboard, Scope, Unit, stat};

pub(super) fn dashboard() -> Dashboard {
    Dashboard::new(
        "tokengauge-overview",
        "tokengauge · overview",
        "Is it us, is it them, how bad: one screen.",
    )
    .scope(Scope::Call)
    .row(
        "Now",
        [stat(
            "Requests",
            Unit::RequestsPerSecond,
            "Exchanges begun per second, plain HTTP too: rate(tokengauge_requests_started_total).",
        )
        .query("sum(rate(tokengauge_requests_started_total{<lane>}[$__rate_interval]))")],
    )
}
