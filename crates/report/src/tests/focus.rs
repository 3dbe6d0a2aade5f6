//! Tests of the output in the format FOCUS.

use super::*;

/// Calls with and without parts, reported and estimated, of two teams and two hours.
const LOG: &str = r#"
{"time":"2026-10-31T23:10:00Z","outcome":"ok","identity":{"tenant":"a"},"call":{"labels":{"model":"m","provider":"openai"},"usage":{"input":1000,"cache_read":400,"output":50,"reasoning":20},"output":{"tokens":50},"cost":{"amount":0.0031,"currency":"USD","source":"reported","parts":{"input":0.0012,"cache_read":0.0004,"output":0.0009,"reasoning":0.0006}}}}
{"time":"2026-10-31T23:50:00Z","outcome":"ok","identity":{"tenant":"a"},"call":{"labels":{"model":"m","provider":"openai"},"usage":{"input":1000,"output":50},"output":{"tokens":50},"cost":{"amount":0.0035,"currency":"USD","source":"reported","parts":{"input":0.002,"output":0.0015}}}}
{"time":"2026-11-01T00:00:00Z","outcome":"cancelled","identity":{"tenant":"a"},"call":{"labels":{"model":"m","provider":"openai"},"request":{"prompt_bytes":400},"output":{"tokens":10,"counted":10},"cost":{"amount":0.0005,"currency":"USD","source":"estimated","parts":{"input":0.0002,"output":0.0003}}}}
{"time":"2026-10-31T23:20:00Z","outcome":"ok","call":{"labels":{"model":"=m","provider":"mistral_ai"},"usage":{"input":7,"output":3},"cost":{"amount":0.3333333333337,"currency":"EUR","source":"reported"}}}
{"time":"2026-10-31T23:30:00Z","outcome":"ok","call":{"labels":{"model":"free"}}}
"#;

#[test]
fn focus_has_a_row_per_hour_tenant_model_and_kind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    fs::write(&path, LOG).unwrap();
    let files = vec![File { path, side: Side::Neither }];
    let report = evaluate(&Request { files, focus: true, ..Request::default() }).unwrap();
    let csv = crate::focus::render(report.focus.as_ref().unwrap());
    let mut rows = csv.split_terminator("\r\n").map(|row| row.split(',').collect::<Vec<_>>());
    let names = rows.next().unwrap();
    let rows: Vec<BTreeMap<&str, &str>> =
        rows.map(|row| names.iter().copied().zip(row).collect()).collect();
    let short: Vec<[&str; 6]> = rows
        .iter()
        .map(|row| {
            [
                "ChargePeriodStart",
                "x_Tenant",
                "x_TokenKind",
                "x_TokenSource",
                "ConsumedQuantity",
                "BilledCost",
            ]
            .map(|name| row[name])
        })
        .collect();
    assert_eq!(
        short,
        [
            ["2026-10-31T23:00:00Z", "unknown", "all", "reported", "10.0", "0.333333333334"],
            ["2026-10-31T23:00:00Z", "a", "input", "reported", "1600.0", "0.0032"],
            ["2026-10-31T23:00:00Z", "a", "cache_read", "reported", "400.0", "0.0004"],
            ["2026-10-31T23:00:00Z", "a", "output", "reported", "80.0", "0.0024"],
            ["2026-10-31T23:00:00Z", "a", "reasoning", "reported", "20.0", "0.0006"],
            ["2026-11-01T00:00:00Z", "a", "input", "estimated", "100.0", "0.0002"],
            ["2026-11-01T00:00:00Z", "a", "output", "estimated", "10.0", "0.0003"],
        ]
    );
    assert_eq!(rows[0]["x_Model"], "'=m");
    for (currency, total) in [("USD", "0.0071"), ("EUR", "0.333333333334")] {
        let costs = rows.iter().filter(|row| row["BillingCurrency"] == currency);
        let units = |cost: &str| money::Money::from_amount(cost.parse().unwrap());
        let sum: money::Money = costs.map(|row| units(row["BilledCost"])).sum();
        assert_eq!(sum.to_string(), total);
        let total = report.subjects[0].statistics.cost[currency].total;
        assert_eq!(sum.to_amount().to_bits(), total.to_bits());
    }
    assert!(
        report
            .warnings()
            .contains(&"calls without a cost, which are not in the output: 1".to_owned())
    );
}
