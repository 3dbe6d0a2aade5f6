//! Plain lines for a log or a pipe: one block per refresh, each line with fields `name=value`.

use crate::document::Severity;
use crate::format::{UNDEFINED, clock, count, percent, rate, seconds};
use crate::overview::{Condition, Model, Overview, Process, Slo};
use crate::text::Text;

/// Returns the block of lines for the documents at this time.
pub fn block(overview: &Overview, now_unix_ms: u64) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(&format!("t={}Z {text}\n", clock(now_unix_ms)));
    };
    overview.processes.iter().map(process).for_each(&mut line);
    overview.conditions.iter().map(condition).for_each(&mut line);
    for deviation in &overview.deviations {
        let name = serde_json::to_value(deviation.measure).unwrap_or_default();
        line(format!(
            "deviates={} measure={} value={:.3} median_of_others={:.3}",
            word(Some(&deviation.process)),
            name.as_str().unwrap_or(UNDEFINED),
            deviation.value,
            deviation.median_of_others
        ));
    }
    overview.models.iter().map(model).for_each(&mut line);
    overview.slos.iter().map(slo).for_each(&mut line);
    out
}

fn process(process: &Process) -> String {
    let name = word(Some(&process.name));
    if let Some(failure) = &process.failure {
        let since = clock(failure.since_unix_ms);
        return format!(
            "process={name} address={} state=unreachable since={since}Z reason={:?}",
            process.address,
            failure.reason.as_str()
        );
    }
    if !process.has_answered {
        return format!("process={name} address={} state=connecting", process.address);
    }
    format!(
        "process={name} state=up tps={} ttft_p95={} req_per_s={} failed={} in_flight={} queue={} stalled={}",
        dense(&rate(process.output_tokens_per_second)),
        dense(&seconds(process.time_to_first_token_p95_seconds)),
        dense(&rate(process.requests_per_second)),
        dense(&percent(process.failed_share)),
        count(process.in_flight),
        count(process.queue_depth),
        count(process.stalled)
    )
}

fn condition(condition: &Condition) -> String {
    let severity = match condition.severity {
        Severity::Critical => "critical",
        Severity::Warning => "warning",
    };
    let since =
        condition.since_unix_ms.map_or(UNDEFINED.to_owned(), |at| format!("{}Z", clock(at)));
    format!(
        "condition={severity} since={since} runbook={} text={:?}",
        word(condition.runbook.as_ref()),
        condition.text.as_str()
    )
}

fn model(model: &Model) -> String {
    format!(
        "model={} provider={} tps={} tps_per_stream={} ttft_p50={} ttft_p95={} queue={} in_flight={} req_per_s={} failed={}",
        word(model.model.as_ref()),
        word(model.provider.as_ref()),
        dense(&rate(Some(model.output_tokens_per_second))),
        dense(&rate(model.stream_output_tokens_per_second.p50)),
        dense(&seconds(model.time_to_first_token_seconds.p50)),
        dense(&seconds(model.time_to_first_token_seconds.p95)),
        model.queue_depth,
        model.in_flight,
        dense(&rate(Some(model.requests_per_second))),
        dense(&percent(model.failed_share))
    )
}

fn slo(slo: &Slo) -> String {
    let burn = slo.burn_rate.get(&Text::new("5m")).map(|rate| rate.burn_rate);
    format!(
        "slo={} good={} bad={} budget_left={} burn_5m={}",
        word(Some(&slo.name)),
        slo.good,
        slo.bad,
        dense(&percent(slo.error_budget_remaining.map(|budget| budget.remaining))),
        dense(&rate(burn))
    )
}

/// Removes spaces, so that scripts can split a line at spaces.
fn dense(text: &str) -> String {
    text.replace(' ', "")
}

/// Returns a name as one field: with quotes if it has spaces or quotes.
fn word(text: Option<&Text>) -> String {
    match text.map(Text::as_str) {
        None => UNDEFINED.to_owned(),
        Some(text) if text.contains([' ', '"', '=']) || text.is_empty() => format!("{text:?}"),
        Some(text) => text.to_owned(),
    }
}
