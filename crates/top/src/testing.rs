//! Documents for tests.

use serde_json::{Value, json};

use crate::histogram::Histogram;
use crate::overview::{Failure, Source};
use crate::text::Text;

/// Time of all documents: 1970-01-01, 12:30:00 UTC.
pub const NOW: u64 = 45_000_000;

/// Returns the document of a process with one model, `ttft` in seconds for each of its requests of the last 60 s.
pub fn document(name: &str, ttft: &[f64], failed: u64) -> Value {
    let finished = ttft.len() as u64;
    let old = Histogram::of([0.2, 0.3, 0.25]);
    json!({
        "schema": 1, "sequence": 1, "at_unix_ms": NOW,
        "process": {"name": name, "version": "0.1.0", "started_unix_ms": NOW - 3_600_000, "uptime_seconds": 3600.0},
        "settings": {"interval_seconds": 5, "sessions_known": true},
        "now": {
            "requests_per_second": finished as f64 / 60.0,
            "error_share": {"client": 0.0, "upstream": 0.02, "proxy": 0.0},
            "output_tokens_per_second": 265.1,
            "stream_output_tokens_per_second": {"p10": 41.2, "p50": 78.9, "count": finished},
            "time_to_first_token_seconds": {"p50": 0.322, "p95": 0.911, "count": finished},
            "inter_token_latency_seconds": {"p50": 0.0126, "p95": 0.0251, "count": finished},
            "in_flight": 4, "queue_depth": 1, "stalled": 1,
            "worst_burn_rate": {"slo": "ttft", "window": "5m", "burn_rate": 2.3, "window_seconds": 2_592_000, "covered_seconds": 3600},
            "cost_per_hour": {"amount": 1.2, "currency": "USD"},
        },
        "conditions": [{"id": "ttft:openai:gpt-4o", "severity": "critical", "text": "openai · gpt-4o: TTFT p95 4.2 s, objective 2 s",
            "since_unix_ms": NOW - 300_000, "runbook": "LLMTTFTDegraded"}],
        "history": {"first_interval": 8821, "last_interval": 9000, "groups": [
            {"id": 1, "provider": "openai", "model": "gpt-4o", "route": "openai", "intervals": [
                [8880, {"finished": 3, "output_tokens": 900, "ttft": old.json(), "in_flight": 2}],
                [8940, {"finished": 3, "output_tokens": 2700, "ttft": old.json(), "in_flight": 5}],
                [9000, {"finished": finished, "errors": {"upstream": failed}, "output_tokens": 1200,
                    "ttft": Histogram::of(ttft.iter().copied()).json(),
                    "itl": Histogram::of([0.012, 0.025]).json(), "rate": Histogram::of(vec![78.9; ttft.len()]).json(),
                    "in_flight": 4, "queue_depth": 1, "stalled": 1, "cost": 0.02}]]},
            {"id": 2, "provider": "anthropic", "model": "claude-sonnet", "route": "anthropic", "tenant": "team-a", "intervals": [
                [8990, {"finished": 2, "output_tokens": 80}]]}]},
        "streams": [
            {"request_number": 12, "route": "openai", "model": "gpt-4o", "phase": "streaming", "age_seconds": 4.2, "tokens": 271,
                "time_to_first_token_seconds": 0.322, "output_tokens_per_second": 69.4, "idle_seconds": 0.011, "stalled": false, "waiting_for": "upstream",
                "stages": {"connect": 0.022, "first_token": 0.3, "reasoning": 1.2, "decode": 2.678}},
            {"request_number": 9, "route": "openai", "model": "gpt-4o", "phase": "streaming", "age_seconds": 41.0, "tokens": 30,
                "time_to_first_token_seconds": 0.9, "output_tokens_per_second": 3.0, "idle_seconds": 31.5, "stalled": true, "waiting_for": "upstream"},
            {"request_number": 14, "route": "openai", "model": "gpt-4o", "phase": "waiting", "age_seconds": 0.4, "stalled": false,
                "stages": {"admission": 0.2, "headers": 0.2}},
            {"request_number": 10, "route": "openai", "phase": "streaming", "age_seconds": 9.0, "tokens": 12, "tenant": "team-b",
                "session": "01J-agent", "stalled": false, "waiting_for": "client"}],
        "sessions": [{"id": "01J-agent", "agent": "claude-code/2.1", "tenant": "team-b", "calls": 12, "input_tokens": 210_000,
            "cached_input_tokens": 180_000, "output_tokens": 4100, "cost": {"amount": 0.42, "currency": "USD"},
            "first_unix_ms": NOW - 900_000, "last_unix_ms": NOW - 20_000}],
        "slos": [
            {"name": "availability", "sli": "availability", "threshold": null, "target": 0.99, "window_seconds": 2_592_000,
                "good": 990, "bad": 10, "excluded": 3, "error_budget_remaining": 0.0, "burn_rate": {"5m": 1.0, "1h": null},
                "window_covered_seconds": 3600, "time_to_exhaustion_seconds": null,
                "consumed_by": [{"model": "gpt-4o", "error_type": "rate_limited", "bad": 7}, {"model": "gpt-4o", "error_type": "500", "bad": 3}]},
            {"name": "ttft", "sli": "ttft", "threshold": {"value": 2.0, "unit": "s"}, "target": 0.95, "window_seconds": 2_592_000,
                "good": 400, "bad": 46, "excluded": 0, "error_budget_remaining": -1.0628, "burn_rate": {"5m": 2.3, "1h": 2.06},
                "window_covered_seconds": 3600, "time_to_exhaustion_seconds": null}],
        "engines": [], "rate_limits": [],
    })
}

/// Returns a process that can be read.
pub fn source(address: &str, document: Value) -> Source {
    let snapshot = serde_json::from_value(document).unwrap();
    Source { address: address.to_owned(), snapshot: Some(snapshot), failure: None }
}

/// Returns a process that cannot be read since a minute.
pub fn unreachable(address: &str) -> Source {
    let failure = Failure {
        since_unix_ms: NOW - 60_000,
        reason: Text::new("cannot connect: Connection refused (os error 111)"),
    };
    Source { address: address.to_owned(), snapshot: None, failure: Some(failure) }
}
