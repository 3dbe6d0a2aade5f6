//! Evaluates requests that are stored in ClickHouse, in the tables of `deploy/clickhouse`. The caller sends the SQL.
//!
//! Small periods are answered from single requests, exactly as from a file. Larger periods are answered from hourly
//! figures: counts and sums are exact, and percentiles are estimates.

mod hourly;
mod query;

use serde::Deserialize;

use crate::row::Rows;
use crate::window::Trim;
use crate::{Compare, Request};
pub use hourly::{HourlyError, report};
pub use query::{counts, hours, lines, values};

/// Number of calls up to which a report reads single requests even if the hourly figures could answer. More take
/// longer than a user waits.
const MAX_EXACT_CALLS: u64 = 1_000_000;

/// Result of [`counts`].
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Counts {
    /// Stored calls that match, counted up to one more than the number that is read from raw rows.
    pub calls: u64,
    /// Start of the oldest stored call, in seconds since 1970; 0 without calls.
    pub oldest: u64,
    /// First hour of the period with hourly figures, in seconds since 1970; 0 without figures.
    pub oldest_hour: u64,
    /// 1 if the database has daily figures, which an older version of the tables lacks.
    pub daily_tables: u8,
}

/// What answers a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// Single requests. The text is a warning.
    Requests(Option<String>),
    /// Hourly figures.
    Hours,
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TooMany {
    #[error(
        "{reason} needs single requests, and more than {max} calls match; choose a shorter period with --since and \
         --until, or fewer calls with --where", max = Rows::MAX_ROWS
    )]
    Calls { reason: String },
}

/// Chooses what answers the request.
///
/// # Errors
/// Fails if only single requests can answer, and more match than a report reads.
pub fn choose(request: &Request, counts: Counts) -> Result<Source, TooMany> {
    let Counts { calls, oldest, oldest_hour, .. } = counts;
    // Single requests are deleted after 30 days, and hourly figures after 25 months.
    let is_older = oldest_hour > 0 && (calls == 0 || oldest_hour + SECONDS_PER_HOUR <= oldest);
    let Some(reason) = needs_requests(request) else {
        let is_exact = calls <= MAX_EXACT_CALLS && !is_older;
        return Ok(if is_exact { Source::Requests(None) } else { Source::Hours });
    };
    if calls > Rows::MAX_ROWS as u64 {
        return Err(TooMany::Calls { reason });
    }
    let warning = is_older.then(|| {
        let from = crate::time::format(oldest.saturating_mul(1_000_000_000));
        let left = if calls == 0 { "none is left".to_owned() } else { format!("the report starts at {from}") };
        format!("{reason} needs single requests, which ClickHouse keeps for a shorter time than hourly figures: {left}")
    });
    Ok(Source::Requests(warning))
}

const SECONDS_PER_HOUR: u64 = 3_600;

/// Returns the part of the request that only single requests can answer.
fn needs_requests(request: &Request) -> Option<String> {
    let Request { by, only, compare, warmup, ramp_down, focus, trace, .. } = request;
    if !matches!(compare, Compare::Nothing) {
        return Some("a comparison".to_owned());
    }
    if *focus {
        return Some("--format focus".to_owned());
    }
    if *trace {
        return Some("--format trace".to_owned());
    }
    if (*warmup, *ramp_down) != (Trim::None, Trim::None) {
        return Some("a cut of warm-up or ramp-down, which is the default of --accept,".to_owned());
    }
    let by = by.iter().map(|dimension| (dimension, "--by"));
    let mut used = by.chain(only.iter().map(|selector| (&selector.dimension, "--where")));
    let (dimension, option) =
        used.find(|(dimension, _)| query::hourly_column(**dimension).is_none())?;
    Some(format!("{option} {}", dimension.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dimension::Selector;

    fn counts(calls: u64) -> Counts {
        Counts { calls, oldest: 36_000, oldest_hour: 36_000, daily_tables: 1 }
    }

    #[test]
    fn large_periods_are_answered_from_hours() {
        let request = Request { by: vec!["tenant".parse().unwrap()], ..Request::default() };
        assert_eq!(choose(&request, counts(1_000_000)), Ok(Source::Requests(None)));
        assert_eq!(choose(&request, counts(1_000_001)), Ok(Source::Hours));
        let old = Counts { oldest: 39_600, ..counts(5) };
        assert_eq!(choose(&request, old), Ok(Source::Hours), "single requests are missing");
    }

    #[test]
    fn some_questions_need_single_requests() {
        let only: Selector = "session=a".parse().unwrap();
        let request = Request { only: vec![only], ..Request::default() };
        assert_eq!(choose(&request, counts(9_000_000)), Ok(Source::Requests(None)));
        let error = choose(&request, counts(20_000_001)).unwrap_err().to_string();
        assert!(error.starts_with("--where session needs single requests"), "{error}");
        let old = Counts { oldest: 39_600, ..counts(5) };
        let Ok(Source::Requests(Some(warning))) = choose(&request, old) else { panic!() };
        assert!(warning.ends_with("the report starts at 1970-01-01T11:00:00.000Z"), "{warning}");
        for request in [
            Request { compare: Compare::Runs, ..Request::default() },
            Request { focus: true, ..Request::default() },
            Request { trace: true, ..Request::default() },
            Request { warmup: Trim::Auto, ..Request::default() },
            Request { by: vec!["error".parse().unwrap()], ..Request::default() },
        ] {
            assert!(choose(&request, counts(20_000_001)).is_err(), "{request:?}");
        }
    }
}
