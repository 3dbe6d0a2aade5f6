//! `tokengauge report`: evaluates request logs and checks limits.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::ValueEnum;

use super::{clickhouse, write_stderr, write_stdout};
use crate::config::{self, value::DurationValue};
use tokengauge_report::compare::Settings;
use tokengauge_report::dimension::{Dimension, Selector, SelectorError};
use tokengauge_report::focus;
use tokengauge_report::period::{self, Bound};
use tokengauge_report::read::{File, sha256};
use tokengauge_report::window::Trim;
use tokengauge_report::{Compare, Request, Side};
use tokengauge_types::clock::wall_now;

/// Evaluate request logs: throughput, latency, errors and cost, comparisons of A and B, and limits
///
/// Reads the files of `request_log`. Reports output TPS, time to first token, inter-token latency (time per output
/// token), duration, errors, tokens and cost for each group of requests. Requests, errors, tokens and cost always cover
/// the whole log. docs/how-to/reports.md has the definitions.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Read these request logs, in any order, including rotated ones. Files that end in .gz are decompressed, and - is
    /// standard input. Of several files with the same content, only the first is used
    #[arg(value_name = "FILE", required_unless_present = "clickhouse")]
    pub files: Vec<PathBuf>,

    /// Read the requests from ClickHouse instead of files: the address of its HTTP interface, such as
    /// http://127.0.0.1:8123. User and password are in CLICKHOUSE_USER and CLICKHOUSE_PASSWORD
    #[arg(long, value_name = "URL", conflicts_with = "files")]
    pub clickhouse: Option<clickhouse::ServerUrl>,

    /// Use only requests that started at this time or later: a day (2026-10-31) or a month (2026-10) from midnight UTC, a
    /// time with its zone (2026-10-31T12:00:00Z), or a duration before now (30d)
    #[arg(long, value_name = "TIME")]
    pub since: Option<Bound>,

    /// Use only requests that started before this time; same values as --since
    #[arg(long, value_name = "TIME")]
    pub until: Option<Bound>,

    /// Group requests by: day and month (UTC), model, route, variant, tenant, session, conversation, agent, sub_agent, provider,
    /// operation, stream, server, outcome, error, input_length_bucket, output_length_bucket
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "model,route,variant,tenant"
    )]
    pub by: Vec<Dimension>,

    /// Use only requests with this value; may be repeated
    #[arg(long = "where", value_name = "NAME=VALUE")]
    pub only: Vec<Selector>,

    /// Compare two sets of requests of one run: set A has the first value of NAME, and set B the second
    #[arg(long, value_name = "NAME=A,NAME=B", value_parser = parse_pair, conflicts_with = "baseline")]
    pub compare: Option<Pair>,

    /// Compare with another run: the files of this option are A, and the others are B; may be repeated
    #[arg(long, value_name = "FILE")]
    pub baseline: Vec<PathBuf>,

    /// Exclude the start of the logs from speed figures: auto (until the load is steady), a time (60s), a number of
    /// requests, or none. The default is auto with --compare, --baseline or --accept, and otherwise none
    #[arg(long, value_name = "CUT", value_parser = parse_trim)]
    pub warmup: Option<Trim>,

    /// Exclude the end of the logs from speed figures; same values and default as --warmup
    #[arg(long, value_name = "CUT", value_parser = parse_trim)]
    pub ramp_down: Option<Trim>,

    /// Check these limits (YAML). The exit status is 1 if a limit is not met
    #[arg(long, value_name = "FILE")]
    pub accept: Option<PathBuf>,

    /// Set the confidence level of intervals, as a ratio or a percentage
    #[arg(long, value_name = "RATIO", default_value = "95%", value_parser = parse_confidence)]
    pub confidence: f64,

    /// Set the number of bootstrap resamples
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    pub resamples: u32,

    /// Set the seed of random numbers; the same seed and the same input give the same report
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Print the report in this format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,

    /// Write a self-contained HTML page with tables and plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// The two sides of a comparison, A and B.
#[derive(Clone, Debug)]
pub struct Pair(Selector, Selector);

/// The format of standard output.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Format {
    Text,
    Json,
    /// A row per group
    Csv,
    /// Cost as CSV in the format FOCUS 1.2: a row per hour, tenant, provider, model and kind of token
    Focus,
    /// The load as JSON lines in the format of Mooncake, which AIPerf and guidellm replay: a line per request
    Trace,
}

const AFTER_HELP: &str = "\
Examples:
  By model and tenant:
    tokengauge report --by model,tenant requests.jsonl requests.jsonl.1

  Cost of a team in October, by day, for a spreadsheet:
    tokengauge report requests.jsonl* --since 2026-10 --until 2026-11 --where tenant=team-a --by day --format csv

  An HTML page of one benchmark run:
    tokengauge report run.jsonl --html run.html

  Compare two variants of the same traffic:
    tokengauge report requests.jsonl --compare variant=a,variant=b

  Cost of the last 30 days by tenant and model, from ClickHouse:
    tokengauge report --clickhouse http://127.0.0.1:8123 --since 30d --by tenant,model

  Check a release against limits:
    tokengauge report new.jsonl --baseline old.jsonl --accept limits.yaml

Exit status: 0 if all limits hold, 1 if one is broken or a file could not be read to its end,
2 if there is no report.";

/// Exit status if the report cannot be created. clap uses the same status for an invalid command line.
const NO_REPORT: u8 = 2;

fn parse_trim(text: &str) -> Result<Trim, String> {
    if let Ok(count) = text.parse() {
        return Ok(Trim::Requests(count));
    }
    match text {
        "auto" => Ok(Trim::Auto),
        "none" => Ok(Trim::None),
        text => {
            let length: Result<DurationValue, _> = text.parse();
            let hint = "write auto, none, a time such as 60s, or a number of requests";
            length.map(|DurationValue(length)| Trim::Time(length)).map_err(|_| hint.to_owned())
        }
    }
}

fn parse_pair(text: &str) -> Result<Pair, String> {
    let sides = text.split_once(',').ok_or("name two sides, such as variant=a,variant=b")?;
    let side = |text: &str| text.parse().map_err(|error: SelectorError| error.to_string());
    let (a, b): (Selector, Selector) = (side(sides.0)?, side(sides.1)?);
    if a == b {
        return Err(format!("both sides are {a}; name two that differ"));
    }
    Ok(Pair(a, b))
}

fn parse_confidence(text: &str) -> Result<f64, String> {
    let ratio: config::value::Ratio =
        text.parse().map_err(|error: config::value::ValueError| error.to_string())?;
    Ok(ratio.0)
}

/// Evaluates the logs and prints the report. The exit code is 0 only if all limits hold and the logs were read
/// completely.
pub(super) fn run(args: Args, environment: fn(&str) -> Option<String>) -> ExitCode {
    evaluate(args, environment).unwrap_or_else(|error| {
        write_stderr(format!("{error:#}"));
        ExitCode::from(NO_REPORT)
    })
}

fn evaluate(args: Args, environment: fn(&str) -> Option<String>) -> anyhow::Result<ExitCode> {
    let (format, html, server) = (args.format, args.html.clone(), args.clickhouse.clone());
    let request = request(args)?;
    let mut report = match server {
        Some(server) => clickhouse::report(&server, &request, environment)
            .map_err(|error| anyhow!("{error:#}"))?,
        None => tokengauge_report::evaluate(&request)?,
    };
    for warning in report.warnings() {
        write_stderr(warning);
    }
    if let Some(path) = html {
        fs::write(&path, tokengauge_report::html::render(&report))
            .map_err(|error| anyhow!("cannot write {}: {error}", path.display()))?;
    }
    write_stdout(&match format {
        Format::Text => tokengauge_report::text::render(&report),
        Format::Json => serde_json::to_string_pretty(&report)? + "\n",
        Format::Csv => tokengauge_report::csv::render(&report),
        Format::Focus => report.focus.as_ref().map(focus::render).unwrap_or_default(),
        Format::Trace => report.trace.take().map(|trace| trace.text).unwrap_or_default(),
    })?;
    // Figures of an incomplete file must not pass a gate.
    Ok(match report.accepted() {
        None | Some(true) if report.is_complete() => ExitCode::SUCCESS,
        None | Some(true | false) => ExitCode::FAILURE,
    })
}

/// Returns the dimensions of a trace.
fn sessions() -> anyhow::Result<Vec<Dimension>> {
    Ok(vec!["session".parse()?, "model".parse()?])
}

fn request(args: Args) -> anyhow::Result<Request> {
    let acceptance = args.accept.map(|path| config::acceptance(&path)).transpose()?;
    let compare = match args.compare {
        Some(Pair(a, b)) => Compare::Within { a, b },
        None if args.baseline.is_empty() => Compare::Nothing,
        None => Compare::Runs,
    };
    let compares = acceptance.as_ref().is_some_and(|(acceptance, _)| acceptance.needs_comparison());
    if compares && matches!(compare, Compare::Nothing) {
        bail!(
            "--accept: the file limits a change or a difference, but nothing is compared; \
             add --compare or --baseline"
        );
    }
    let period = period::range(args.since, args.until, wall_now())?;
    // Warm-up distorts a decision, but not the answer to what was used.
    let decides = acceptance.is_some() || !matches!(compare, Compare::Nothing);
    let trim = |given: Option<Trim>| given.unwrap_or(if decides { Trim::Auto } else { Trim::None });
    let runs = matches!(compare, Compare::Runs);
    let file = |path, side| File { path, side: if runs { side } else { Side::Neither } };
    let trace = matches!(args.format, Format::Trace);
    let server = args.clickhouse.map(|server| PathBuf::from(server.to_string()));
    let files = args.files.into_iter().chain(server);
    let baseline = args.baseline.into_iter().map(|path| file(path, Side::A));
    Ok(Request {
        files: baseline.chain(files.map(|path| file(path, Side::B))).collect(),
        by: if trace { sessions()? } else { args.by },
        focus: matches!(args.format, Format::Focus),
        trace,
        period,
        only: args.only,
        compare,
        warmup: trim(args.warmup),
        ramp_down: trim(args.ramp_down),
        settings: Settings {
            seed: args.seed,
            resamples: usize::try_from(args.resamples).unwrap_or(usize::MAX),
            confidence: args.confidence,
        },
        acceptance: acceptance.map(|(acceptance, text)| (acceptance, sha256(text.as_bytes()))),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Alone::try_parse_from(line.split(' ')).map(|alone| alone.args)
    }

    #[test]
    fn parses_arguments() {
        let line = "x a.jsonl b.gz --by session --where model=m --compare variant=a,variant=b --warmup 60s \
                    --ramp-down 5 --confidence 0.9 --seed 7";
        let args = parse(line).unwrap();
        assert_eq!(args.files.len(), 2);
        assert!(args.by.iter().map(Dimension::as_str).eq(["session"]));
        assert_eq!(
            (args.warmup, args.ramp_down),
            (Some(Trim::Time(Duration::from_secs(60))), Some(Trim::Requests(5)))
        );
        assert!((args.confidence - 0.9).abs() < 1e-12);
        let request = request(args).ok().unwrap();
        assert!(matches!(request.compare, Compare::Within { .. }));
        let defaults = parse("x log").unwrap();
        assert_eq!((defaults.by.len(), defaults.warmup), (4, None));
        let runs = request_of("x new --baseline old");
        let sides: Vec<Side> = runs.files.iter().map(|file| file.side).collect();
        assert_eq!(sides, [Side::A, Side::B]);
    }

    /// Warm-up and ramp-down are removed only where the user compares or checks limits, or asks for it.
    #[test]
    fn removes_warmup_only_to_decide() {
        let trims = |line| {
            let request = request_of(line);
            (request.warmup, request.ramp_down)
        };
        let auto = (Trim::Auto, Trim::Auto);
        assert_eq!(trims("x log"), (Trim::None, Trim::None));
        assert_eq!(trims("x log --warmup auto"), (Trim::Auto, Trim::None));
        assert_eq!(trims("x log --compare variant=a,variant=b"), auto);
        assert_eq!(trims("x log --baseline old"), auto);
        let kept = trims("x log --baseline old --warmup none --ramp-down 5");
        assert_eq!(kept, (Trim::None, Trim::Requests(5)));
    }

    #[test]
    fn reads_the_period_in_utc() {
        let period = request_of("x log --since 2026-10 --until 2026-10-31T00:00:00+02:00").period;
        assert_eq!(period.from, 1_790_812_800_000_000_000);
        assert_eq!(period.until, 1_793_397_600_000_000_000);
        let request = request(parse("x log --since 2026-11 --until 2026-10").unwrap());
        let message = request.err().unwrap().to_string();
        assert!(message.contains("--since is not before --until"), "{message}");
    }

    fn request_of(line: &str) -> Request {
        request(parse(line).unwrap()).ok().unwrap()
    }

    #[test]
    fn rejects_invalid_arguments() {
        for invalid in [
            "x",
            "x log --by colour",
            "x log --compare variant=a",
            "x log --compare variant=a,variant=a",
            "x log --compare variant=a,colour=b",
            "x log --compare variant=a,variant=b --baseline old",
            "x log --warmup soon",
            "x log --since yesterday",
            "x log --until 2026-02-30",
            "x log --confidence 2",
            "x log --resamples 1",
        ] {
            assert!(parse(invalid).is_err(), "{invalid}");
        }
    }
}
