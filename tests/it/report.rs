//! Tests the output, the files and the exit status of `tokengauge report`.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

/// Writes a log with one call per 100 ms. Every tenth call fails, and the two variants alternate.
fn log(folder: &Path, name: &str, requests: u64, ttft: f64, tps: f64) -> PathBuf {
    let mut text = String::new();
    for n in 0..requests {
        let (seconds, tenths) = (n / 10, n % 10);
        let (minutes, seconds) = (seconds / 60, seconds % 60);
        let outcome = if n % 10 == 9 { "error" } else { "ok" };
        let variant = if n % 2 == 0 { "a" } else { "<b>" };
        // This factor cycles through five values.
        let vary = 1.0 + (n % 5) as f64 / 100.0;
        let (first, rate) = (ttft * vary, tps * vary);
        let last = first + 100.0 / rate;
        let itl = 1.0 / rate;
        writeln!(
            text,
            r#"{{"time":"2026-01-01T10:{minutes:02}:{seconds:02}.{tenths}Z","request_number":{n},"outcome":"{outcome}","times":{{"first_token":{first},"last":{last},"end":{last}}},"route":{{"name":"main","position":"gateway"}},"identity":{{"variant":"{variant}","session":"s{}"}},"call":{{"complete":"true","labels":{{"model":"m & n","stream":true,"provider":"p","operation":"chat"}},"rates":{{"output":{rate},"time_per_output_token":{itl}}},"usage":{{"input":50,"output":100}},"output":{{"tokens":100,"source":"reported"}},"response":{{"streamed":true,"finish_reasons":["stop"]}},"choices":{{"complete":1}},"cost":{{"amount":0.001,"currency":"USD","source":"reported"}}}}}}"#,
            n % 7
        )
        .unwrap();
    }
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}

fn report(arguments: &[&str], files: &[&Path]) -> Output {
    let program = env!("CARGO_BIN_EXE_tokengauge");
    Command::new(program).arg("report").args(files).args(arguments).output().unwrap()
}

fn json(arguments: &[&str], files: &[&Path]) -> Value {
    let output = report(&[arguments, &["--format", "json"]].concat(), files);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn limits(folder: &Path, text: &str) -> String {
    let path = folder.join("limits.yaml");
    fs::write(&path, format!("version: 1\n{text}\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn reports_figures_groups_and_hashes() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(folder.path(), "log", 600, 0.2, 50.0);
    let report = json(&[], &[&log]);
    let all = &report["subjects"][0]["statistics"];
    assert_eq!((&all["requests"], &all["error_rate"]), (&600.into(), &0.1.into()));
    // The rates cycle through 50, 50.5, 51, 51.5 and 52. Every tenth request would have a rate of 52, but it fails.
    assert_eq!(all["output_tps"]["n"], 540);
    let mean = all["output_tps"]["mean"].as_f64().unwrap();
    let expected = (2.0 * (50.0 + 50.5 + 51.0 + 51.5) + 52.0) / 9.0;
    assert!((mean - expected).abs() < 1e-9, "{mean} {expected}");
    assert!((all["cost"]["USD"]["total"].as_f64().unwrap() - 0.6).abs() < 1e-9);
    assert_eq!(all["quality"]["shares"]["complete"], 1.0);
    assert_eq!(report["by"], serde_json::json!(["model", "route", "variant", "tenant"]));
    assert_eq!(report["groups"].as_array().unwrap().len(), 2);
    assert_eq!(report["groups"][0]["key"]["variant"], "a");
    assert_eq!(report["configuration"], serde_json::json!(["unknown"]));
    assert_eq!(report["inputs"][0]["sha256"].as_str().unwrap().len(), 64);
    let sessions = json(&["--by", "session", "--where", "variant=a"], &[&log]);
    assert_eq!(sessions["groups"].as_array().unwrap().len(), 7);
    assert_eq!(sessions["lines"]["filtered"], 300);
}

#[test]
fn reports_the_steady_state_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(folder.path(), "log", 600, 0.2, 50.0);
    let steady = ["--warmup", "auto", "--ramp-down", "auto"];
    let output = report(&steady, &[&log]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "Totals (requests, errors, tokens, cost, finish reasons, quality) cover all 600 requests.",
        "requests that started in the steady state, 2026-01-01T10:00:",
        "MSER-5",
        "m & n",
        "Output TPS (tokens/s)",
        "cut before",
        "type 7",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let few = self::log(folder.path(), "few", 50, 0.2, 50.0);
    let output = report(&steady, &[&few]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("No steady state was found (fewer than 100 requests)"), "{text}");
    let text = String::from_utf8(report(&[], &[&log]).stdout).unwrap();
    assert!(text.contains("All figures cover all 600 requests."), "{text}");
}

/// The question of finance: the cost of a group in a calendar month, in every format, with and without a gate.
#[test]
fn every_format_has_the_totals_of_the_whole_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(folder.path(), "log", 600, 0.2, 50.0);
    let limits = limits(folder.path(), "ttft: {p95: {max: 500ms}}");
    let page = folder.path().join("page.html");
    let select = ["--since", "2026-01", "--until", "2026-02", "--by", "month"];
    for gate in [&[][..], &["--accept", &limits]] {
        let arguments = [&select[..], gate].concat();
        let json = json(&arguments, &[&log]);
        assert_eq!(json["groups"][0]["statistics"]["cost"]["USD"]["total"], 0.6);
        assert_eq!(json["groups"][0]["statistics"]["outcomes"]["error"], 60);
        let html = ["--html", page.to_str().unwrap()];
        let text = report(&[&arguments[..], &html].concat(), &[&log]).stdout;
        let page = fs::read_to_string(&page).unwrap();
        for rendered in [String::from_utf8(text).unwrap(), page] {
            assert!(rendered.contains("0.6000 USD"), "{rendered}");
        }
        let csv = report(&[&arguments[..], &["--format", "csv"]].concat(), &[&log]).stdout;
        let csv = String::from_utf8(csv).unwrap();
        assert!(csv.contains("\r\n2026-01,600,,540,60,0,0,0,0,0.1,30000,"), "{csv}");
    }
    let none = report(&["--since", "2027-01"], &[&log]);
    assert_eq!(none.status.code(), Some(2));
    let message = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(
        message.contains("the calls of the files started from 2026-01-01T10:00:00"),
        "{message}"
    );
}

#[test]
fn compares_runs_reproducibly() {
    let folder = tempfile::tempdir().unwrap();
    let old = log(folder.path(), "old", 600, 0.2, 50.0);
    let new = log(folder.path(), "new", 600, 0.2, 40.0);
    let baseline = ["--baseline", old.to_str().unwrap(), "--resamples", "200"];
    let report = json(&baseline, &[&new]);
    let measures = report["comparison"]["measures"].as_array().unwrap();
    let tps = measures.iter().find(|measure| measure["measure"] == "output_tps").unwrap();
    let change = &tps["statistics"][0]["change"];
    let [value, low, high] = ["value", "low", "high"].map(|end| change[end].as_f64().unwrap());
    assert!((value + 0.2).abs() < 0.01 && low < value && value < high && high < -0.19, "{change}");
    assert_eq!(json(&baseline, &[&new])["comparison"], report["comparison"]);
    let seed = [&baseline[..], &["--seed", "2"]].concat();
    assert_ne!(json(&seed, &[&new])["comparison"]["measures"], report["comparison"]["measures"]);
}

#[test]
fn exit_status_reports_broken_limits() {
    let folder = tempfile::tempdir().unwrap();
    let old = log(folder.path(), "old", 600, 0.2, 50.0);
    let new = log(folder.path(), "new", 600, 0.2, 40.0);
    let old_name = old.to_str().unwrap();
    for (text, compare, status) in [
        (
            "ttft: {p95: {max: 500ms}}\nerror_rate: {max: 11%}\ncost: {USD: {max: 0.002}}",
            &[][..],
            0,
        ),
        ("ttft: {p95: {max: 100ms}}", &[], 1),
        ("quality: {complete: {min: 99%}, empty: {max: 0%}}", &[], 0),
        ("output_tps: {p50: {change: {min: -25%}}}", &["--baseline", old_name], 0),
        ("output_tps: {p50: {change: {min: -5%}}}", &["--baseline", old_name], 1),
        ("ttft: {mean: {difference: {max: 10ms}}}", &["--baseline", old_name], 0),
        ("min_requests: 5000\nttft: {p95: {max: 500ms}}", &[], 1),
        ("undecided: held\nmin_requests: 5000\nttft: {p95: {max: 500ms}}", &[], 0),
        ("ttft: {p95: {change: {max: 1%}}}", &[], 2),
        ("ttft: {p95: {most: 1s}}", &[], 2),
    ] {
        let limits = limits(folder.path(), text);
        let arguments = [&["--accept", &limits, "--resamples", "200"], compare].concat();
        let output = report(&arguments, &[&new]);
        assert_eq!(output.status.code(), Some(status), "{text}: {output:?}");
        let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output_text.contains("ACCEPTED"), status == 0, "{output_text}");
        assert_eq!(output_text.contains("REFUSED"), status == 1, "{output_text}");
        assert_eq!(output.stderr.is_empty(), status != 2);
    }
    assert_eq!(report(&[], &[Path::new("/nowhere")]).status.code(), Some(2));
    assert_eq!(report(&["--by", "colour"], &[&new]).status.code(), Some(2));
}

#[test]
fn skips_invalid_lines_and_rejects_files_without_calls() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(folder.path(), "log", 10, 0.2, 50.0);
    let mut text = fs::read(&log).unwrap();
    text.extend_from_slice(b"{\"time\": \xff\xfe}\nnonsense\n");
    fs::write(&log, text).unwrap();
    let output = report(&[], &[&log]);
    assert!(output.status.success());
    for bytes in [output.stdout, output.stderr] {
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains("2 lines skipped: not JSON"), "{text}");
    }
    let garbage = folder.path().join("garbage");
    fs::write(&garbage, "nonsense\n").unwrap();
    let output = report(&[], &[&garbage]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no call of a known API"));
}

#[test]
fn an_incomplete_file_fails_after_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(folder.path(), "log", 600, 0.2, 50.0);
    let packed = folder.path().join("log.gz");
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(&fs::read(&log).unwrap()).unwrap();
    let bytes = packer.finish().unwrap();
    fs::write(&packed, &bytes).unwrap();
    // The same log twice counts once.
    let both = json(&[], &[&log, &packed]);
    assert_eq!(
        (&both["lines"]["calls"], both["inputs"].as_array().unwrap().len()),
        (&600.into(), 2)
    );
    let output = report(&[], &[&log, &packed]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("left out: the same content as"));
    fs::write(&packed, &bytes[..bytes.len() / 2]).unwrap();
    let limits = limits(folder.path(), "ttft: {p95: {max: 500ms}}");
    for arguments in [&[][..], &["--accept", &limits]] {
        let output = report(arguments, &[&packed]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("reading stopped before the end of the file"), "{text}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("Output TPS"));
    }
}

#[test]
fn html_page_is_self_contained_and_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(folder.path(), "log", 600, 0.2, 50.0);
    let page = folder.path().join("page.html");
    let limits = limits(folder.path(), "ttft: {p95: {max: 500ms}}");
    let compare = ["--compare", "variant=a,variant=<b>", "--resamples", "200"];
    let arguments =
        [&["--html", page.to_str().unwrap(), "--accept", &limits], &compare[..]].concat();
    assert!(report(&arguments, &[&log]).status.success());
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains("m &amp; n") && page.contains("&lt;b&gt;"));
    assert!(!page.contains("<b>") && !page.contains("m & n"));
    // There are seven panels over time, and one of throughput against concurrency.
    assert_eq!(page.matches("<svg").count(), 8);
    for outside in
        ["<script", "<link", "<img", "src=", "href=", "url(", "@import", "http:", "https:"]
    {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(!page.contains("NaN") && page.contains("Accepted"));
    let tags = [
        "html", "head", "body", "style", "table", "tr", "td", "th", "p", "h1", "h2", "svg", "div",
        "text",
    ];
    for tag in tags {
        let opened =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}
