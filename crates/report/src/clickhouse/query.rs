//! Writes the SQL. The tables are those of `deploy/clickhouse`. No query changes a setting, because a user that may
//! only read often may not do so.

use crate::dimension::{Dimension, Selector};
use crate::read::MAX_GROUPS;
use crate::row::Rows;
use crate::window::StartRange;
use crate::{Compare, Request};

/// Maximum number of rows in the result of [`hours`]: all calls, and one group more than the report shows.
pub(super) const MAX_HOURLY_ROWS: usize = MAX_GROUPS + 2;

const NANOS_PER_HOUR: u64 = 3_600_000_000_000;
const NANOS_PER_DAY: u64 = 24 * NANOS_PER_HOUR;

/// Condition for the calls that a report counts.
const IS_CALL: &str =
    "is_call AND outcome IN ('ok', 'error', 'cancelled', 'timeout', 'truncated', 'rejected')";

const OUTCOMES: [&str; 6] = ["ok", "error", "cancelled", "timeout", "truncated", "rejected"];

const TOKENS: [&str; 9] = [
    "generated",
    "input",
    "input_estimated",
    "output",
    "output_estimated",
    "reasoning",
    "cached",
    "cache_written",
    "cache_written_1h",
];

const SPEEDS: [&str; 4] = ["output_tps", "ttft", "itl", "duration"];

/// Returns the expression for a dimension in the table of requests. The expression is an empty string if the request
/// has no value.
fn column(dimension: Dimension) -> &'static str {
    match dimension.as_str() {
        "day" => "toString(toDate(started_at))",
        "month" => "formatDateTime(started_at, '%Y-%m')",
        "stream" => "if(stream IS NULL, '', if(stream, 'true', 'false'))",
        "error" => "error_type",
        same => same,
    }
}

/// Returns the expression for a dimension in the hourly table. Returns `None` if the table does not have the dimension.
pub(super) fn hourly_column(dimension: Dimension) -> Option<&'static str> {
    match dimension.as_str() {
        "day" => Some("toString(toDate(hour))"),
        "month" => Some("formatDateTime(hour, '%Y-%m')"),
        same @ ("model" | "route" | "variant" | "tenant" | "provider" | "agent") => Some(same),
        _ => None,
    }
}

/// Returns the query for [`Counts`](super::Counts).
pub fn counts(request: &Request) -> String {
    let limit = Rows::MAX_ROWS + 1;
    format!(
        "SELECT toFloat64((SELECT count() FROM (SELECT 1 FROM tokengauge.requests WHERE {} LIMIT {limit}))) AS calls, \
         toUnixTimestamp((SELECT toDateTime(min(started_at)) FROM tokengauge.requests)) AS oldest, \
         toUnixTimestamp((SELECT min(hour) FROM tokengauge.requests_hourly WHERE {})) AS oldest_hour, \
         toUInt8((SELECT count() FROM system.tables WHERE database = 'tokengauge' AND name = 'requests_daily')) AS daily_tables \
         FORMAT JSONEachRow",
        condition(request),
        all(&hour_range(request.period)),
    )
}

/// Returns the query for the matching requests, as lines of a request log.
pub fn lines(request: &Request) -> String {
    let limit = Rows::MAX_ROWS + 1;
    // The resamples of a comparison depend on the order of the requests. Otherwise, no result depends on the order.
    let order = match request.compare {
        Compare::Nothing => "",
        Compare::Within { .. } | Compare::Runs => "ORDER BY started_at, trace_id ",
    };
    format!(
        "SELECT line FROM tokengauge.request_lines WHERE {} {order}LIMIT {limit} FORMAT TSVRaw",
        condition(request)
    )
}

/// Returns the query for values of a dimension in the period, for the message that no call matches.
pub fn values(request: &Request, dimension: Dimension) -> String {
    const MAX_VALUES: usize = 11;
    let column = column(dimension);
    let period = all(&period(request.period));
    format!(
        "SELECT DISTINCT {column} FROM tokengauge.requests WHERE {period} AND {column} != '' LIMIT {MAX_VALUES} FORMAT TSVRaw"
    )
}

/// Returns the query for the hourly figures: one row for all calls that match, whose key is empty, and one for each group.
/// The largest row is the first. With daily figures, these replace the hours of whole days.
pub fn hours(request: &Request, has_days: bool) -> String {
    let by = &request.by;
    let keys = by.iter().filter_map(|dimension| hourly_column(*dimension));
    let keys: Vec<String> = keys.map(|column| format!("toString({column})")).collect();
    let sums = OUTCOMES.iter().map(|name| format!("toFloat64(sum(h.{name})) AS {name}"));
    let tokens = TOKENS.iter().map(|name| format!("sum(h.tokens_{name}) AS {name}"));
    let speeds = SPEEDS.iter().map(|name| {
        format!(
            "tuple(toFloat64(sum({name}_n)), coalesce(sum({name}_sum), 0), \
             quantilesTDigestMerge(0.05, 0.5, 0.95, 0.99)({name})) AS {name}_speed"
        )
    });
    let figures: Vec<String> = sums.chain(tokens).chain(speeds).collect();
    // A rollup merges the groups, so that each row of the table is merged only once.
    let (keys, group) = match keys.is_empty() {
        true => ("[]::Array(String)".to_owned(), String::new()),
        false => (format!("[{}]", keys.join(", ")), "GROUP BY key WITH ROLLUP ".to_owned()),
    };
    format!(
        "SELECT {keys} AS key, toFloat64(sum(h.requests)) AS requests, {figures}, \
         sumMap(map(toString(h.currency), priced)) AS cost_n, \
         mapApply((name, units) -> (name, toString(units)), sumMap(map(toString(h.currency), cost_units))) AS cost, \
         mapApply((name, units) -> (name, toString(units)), sumMap(map(toString(h.currency), reported_units))) AS cost_reported, \
         sumMap(map(toString(h.currency), h.cost_tokens)) AS cost_tokens, \
         mapApply((name, n) -> (name, toFloat64(n)), sumMap(h.finish)) AS finish, \
         toFloat64(sum(h.quality_n)) AS quality_n, \
         mapApply((name, n) -> (name, toFloat64(n)), sumMap(h.quality)) AS quality, \
         groupUniqArrayArray(16)(h.configurations) AS configurations, \
         toString(toUnixTimestamp64Nano(min(h.first_start))) AS first_start, \
         toString(toUnixTimestamp64Nano(max(h.last_end))) AS last_end \
         FROM (SELECT *, toFloat64(cost_n) AS priced, toInt128(coalesce(cost, 0) * 1000000000000) AS cost_units, \
         toInt128(coalesce(cost_reported, 0) * 1000000000000) AS reported_units FROM ({table})) AS h \
         {group}ORDER BY requests DESC LIMIT {MAX_HOURLY_ROWS} FORMAT JSONEachRow",
        figures = figures.join(", "),
        table = rows(request, has_days),
    )
}

/// Returns the query for the matching rows of the hourly table, or of the daily table for whole days.
///
/// A day is whole if the daily table has as many calls of this day as the hourly table, and the same cost, which is a
/// decimal. A day can be incomplete if requests arrived while the daily table was created.
fn rows(request: &Request, has_days: bool) -> String {
    let selected = request.only.iter().filter_map(|selector| {
        let column = hourly_column(selector.dimension)?;
        Some(format!("{column} = {}", literal(&selector.value)))
    });
    let conditions =
        all(&hour_range(request.period).into_iter().chain(selected).collect::<Vec<_>>());
    let hours = format!("SELECT * FROM tokengauge.requests_hourly WHERE {conditions}");
    if !has_days {
        return hours;
    }
    let within = all(&hour_range(whole_days(request.period)));
    let days = format!(
        "SELECT day FROM (SELECT toDate(hour) AS day, sum(requests) AS calls, coalesce(sum(cost), 0) AS total \
         FROM tokengauge.requests_hourly WHERE {within} GROUP BY day) WHERE (day, calls, total) IN \
         (SELECT day, sum(requests), coalesce(sum(cost), 0) FROM tokengauge.requests_daily GROUP BY day)"
    );
    format!(
        "{hours} AND toDate(hour) NOT IN ({days}) UNION ALL SELECT toDateTime(day, 'UTC') AS hour, * EXCEPT day \
         FROM tokengauge.requests_daily WHERE {conditions} AND day IN ({days})"
    )
}

fn condition(request: &Request) -> String {
    let mut conditions = vec![IS_CALL.to_owned()];
    conditions.extend(period(request.period));
    conditions.extend(request.only.iter().map(selected));
    all(&conditions)
}

fn selected(Selector { dimension, value }: &Selector) -> String {
    let (column, literal) = (column(*dimension), literal(value));
    match dimension.as_str() {
        // Without a logged bucket, the report computes it from the tokens.
        "input_length_bucket" | "output_length_bucket" => format!("{column} IN ({literal}, '')"),
        _ => format!("{column} = {literal}"),
    }
}

fn period(StartRange { from, until }: StartRange) -> Vec<String> {
    let bound = |operator: &str, nanos: u64| {
        format!("started_at {operator} fromUnixTimestamp64Nano({nanos}, 'UTC')")
    };
    let from = (from != StartRange::ALL.from).then(|| bound(">=", from));
    let until = (until != StartRange::ALL.until).then(|| bound("<", until));
    from.into_iter().chain(until).collect()
}

fn hour_range(range: StartRange) -> Vec<String> {
    let StartRange { from, until } = whole_hours(range);
    let bound = |operator: &str, nanos: u64| {
        format!("hour {operator} toDateTime({}, 'UTC')", nanos / 1_000_000_000)
    };
    let from = (from != StartRange::ALL.from).then(|| bound(">=", from));
    let until = (until != StartRange::ALL.until).then(|| bound("<", until));
    from.into_iter().chain(until).collect()
}

/// Returns the whole hours that contain the range.
pub(super) fn whole_hours(StartRange { from, until }: StartRange) -> StartRange {
    let end = until.div_ceil(NANOS_PER_HOUR).checked_mul(NANOS_PER_HOUR);
    StartRange {
        from: from / NANOS_PER_HOUR * NANOS_PER_HOUR,
        until: end.unwrap_or(StartRange::ALL.until),
    }
}

/// Returns the whole days within the range.
fn whole_days(StartRange { from, until }: StartRange) -> StartRange {
    let whole = until / NANOS_PER_DAY * NANOS_PER_DAY;
    StartRange {
        from: from.div_ceil(NANOS_PER_DAY).saturating_mul(NANOS_PER_DAY),
        until: if until == StartRange::ALL.until { until } else { whole },
    }
}

fn all(conditions: &[String]) -> String {
    if conditions.is_empty() { "true".to_owned() } else { conditions.join(" AND ") }
}

/// Returns a string literal of ClickHouse.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(only: &str, from: u64, until: u64) -> Request {
        Request {
            only: vec![only.parse().unwrap()],
            period: StartRange { from, until },
            ..Request::default()
        }
    }

    #[test]
    fn quotes_values() {
        let sql = lines(&request(r"tenant=a' OR '\'='", 0, u64::MAX));
        assert!(sql.contains(r"tenant = 'a\' OR \'\\\'=\'' LIMIT"), "{sql}");
    }

    #[test]
    fn selects_the_period_and_whole_hours() {
        let request = request("month=2026-10", 3_599_000_000_000, 7_200_000_000_001);
        let sql = lines(&request);
        assert!(
            sql.contains("started_at >= fromUnixTimestamp64Nano(3599000000000, 'UTC')"),
            "{sql}"
        );
        assert!(sql.contains("formatDateTime(started_at, '%Y-%m') = '2026-10'"), "{sql}");
        let sql = hours(&Request { by: vec!["tenant".parse().unwrap()], ..request }, false);
        assert!(
            sql.contains(
                "hour < toDateTime(10800, 'UTC') AND formatDateTime(hour, '%Y-%m') = '2026-10'"
            ),
            "{sql}"
        );
        assert!(!sql.contains("hour >= toDateTime"), "{sql}");
        assert!(!sql.contains("requests_daily"), "{sql}");
    }

    #[test]
    fn days_replace_the_hours_of_whole_days() {
        const DAY: u64 = 86_400;
        let nanos = |seconds: u64| seconds * 1_000_000_000;
        let request = request("tenant=a", nanos(DAY + 3_600), nanos(5 * DAY - 1));
        let sql = hours(&request, true);
        let edges = "hour >= toDateTime(90000, 'UTC') AND hour < toDateTime(432000, 'UTC') AND tenant = 'a'";
        assert_eq!(sql.matches(edges).count(), 2, "{sql}");
        let within = "WHERE hour >= toDateTime(172800, 'UTC') AND hour < toDateTime(345600, 'UTC') GROUP BY day";
        assert_eq!(sql.matches(within).count(), 2, "{sql}");
        assert_eq!(whole_days(StartRange::ALL), StartRange::ALL);
    }

    #[test]
    fn every_dimension_has_a_column() {
        for (name, is_hourly) in
            [("tenant", true), ("day", true), ("session", false), ("error", false)]
        {
            assert_eq!(hourly_column(name.parse().unwrap()).is_some(), is_hourly, "{name}");
        }
    }
}
