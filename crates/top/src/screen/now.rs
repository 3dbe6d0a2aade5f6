//! The view Now: what is wrong, and the figures of the last 60 s.

use super::canvas::{Canvas, Piece, Tone, plain};
use super::{Context, models, processes, streams};
use crate::document::Severity;
use crate::format::{
    amount, clip, count, pad, percent, rate, seconds, since, span, sparkline, times, width,
};
use crate::overview::{Condition, Deviation, Measure, Now, Overview, Process};
use crate::ui::Ui;
use crate::window::POINTS;

/// Number of lines of the figures, title included.
const FIGURES: usize = 10;

/// Minimum number of lines for what is wrong. On a small screen, the table of processes is shorter instead.
const MIN_PROBLEMS: usize = 5;

pub fn draw(canvas: &mut Canvas<'_>, overview: &Overview, ui: &Ui, context: &Context) {
    let several = overview.processes.len() > 1;
    // Four rows of processes and their header, and two blank lines.
    let below = FIGURES + 1 + if several { overview.processes.len().min(4) + 2 } else { 0 };
    problems(canvas, overview, context, canvas.height().saturating_sub(below).max(MIN_PROBLEMS));
    canvas.blank();
    figures(canvas, &overview.now, several);
    if several {
        canvas.blank();
        let rows = overview.processes.len() + 1;
        processes::draw(&mut canvas.split_top(rows), overview, ui, context);
    }
    // The order of the tables is that of their own views.
    let unsorted = Ui::default();
    if canvas.height() > MIN_TABLE && !overview.models.is_empty() {
        canvas.blank();
        let all = canvas.height();
        let rows = (overview.models.len() + 1).min(if all > 2 * MIN_TABLE { all / 2 } else { all });
        models::draw(&mut canvas.split_top(rows), overview, &unsorted, context);
    }
    if canvas.height() > MIN_TABLE && !overview.streams.is_empty() {
        canvas.blank();
        streams::draw(canvas, overview, &unsorted, context);
    }
}

/// Minimum number of lines for another table on a large screen.
const MIN_TABLE: usize = 6;

/// Lists what is wrong in at most `lines` lines: critical conditions, unreachable processes, processes that deviate, and
/// warnings.
fn problems(canvas: &mut Canvas<'_>, overview: &Overview, context: &Context, lines: usize) {
    let of_severity = |severity: Severity| {
        let conditions = overview.conditions.iter();
        conditions.filter(move |it| it.severity == severity).map(|it| condition(it, context))
    };
    let unreachable = overview.processes.iter().filter_map(|it| unreachable(it, context));
    let problems: Vec<Problem> = of_severity(Severity::Critical)
        .chain(unreachable)
        .chain(overview.deviations.iter().map(deviation_problem))
        .chain(of_severity(Severity::Warning))
        .collect();
    if problems.is_empty() {
        let text = if overview.has_data() { "Nothing is wrong" } else { "No data yet" };
        return canvas.line([(text.to_owned(), Tone::Good)]);
    }
    let mut left = lines;
    for (shown, problem) in problems.iter().enumerate() {
        let rest = problems.len() - shown;
        let lines = problem.lines(canvas.width());
        // One line stays for the number of further problems.
        if lines.len() + usize::from(rest > 1) > left && shown > 0 {
            return canvas.line([(format!("and {rest} more"), Tone::Warning)]);
        }
        left = left.saturating_sub(lines.len());
        lines.into_iter().for_each(|line| canvas.line(line));
    }
}

/// Something that is wrong, in words.
struct Problem {
    /// The word that starts the line.
    word: &'static str,
    tone: Tone,
    text: String,
    details: String,
}

/// Width of the word that starts a line.
const WORD: usize = 12;

impl Problem {
    /// Returns one line, or two if one is too narrow. A part that is still too wide ends in `…`.
    fn lines(&self, columns: usize) -> Vec<Vec<Piece>> {
        let Self { word, tone, text, details } = self;
        let word = (pad(word, WORD, false), *tone);
        let room = columns.saturating_sub(WORD);
        if details.is_empty() {
            return vec![vec![word, plain(clip(text, room))]];
        }
        if width(text) + 3 + width(details) <= room {
            return vec![vec![word, plain(format!("{text} · {details}"))]];
        }
        let indent = plain(" ".repeat(WORD));
        let details = (clip(details, room), Tone::Faint);
        vec![vec![word, plain(clip(text, room))], vec![indent, details]]
    }
}

fn unreachable(process: &Process, context: &Context) -> Option<Problem> {
    let failure = process.failure.as_ref()?;
    // A name that several processes have contains the address.
    let name = if process.name.as_str().contains(&process.address) {
        process.name.to_string()
    } else {
        format!("{} ({})", process.name, process.address)
    };
    Some(Problem {
        word: "UNREACHABLE",
        tone: Tone::Bad,
        text: format!("{name} since {}", since(Some(failure.since_unix_ms), context.now_unix_ms)),
        details: failure.reason.to_string(),
    })
}

fn condition(condition: &Condition, context: &Context) -> Problem {
    let (word, tone) = match condition.severity {
        Severity::Critical => ("CRITICAL", Tone::Bad),
        Severity::Warning => ("WARNING", Tone::Warning),
    };
    let mut details = Vec::new();
    if condition.since_unix_ms.is_some() {
        details.push(format!("since {}", since(condition.since_unix_ms, context.now_unix_ms)));
    }
    if let Some(runbook) = &condition.runbook {
        details.push(format!("runbook {runbook}"));
    }
    if context.has_several_processes {
        let names: Vec<&str> = condition.processes.iter().map(|name| name.as_str()).collect();
        details.push(format!("in {}", names.join(", ")));
    }
    Problem { word, tone, text: condition.text.to_string(), details: details.join(" · ") }
}

fn deviation_problem(deviation: &Deviation) -> Problem {
    let Deviation { process, measure, value, median_of_others: median } = deviation;
    let factor = if *median > 0.0 {
        format!("{} the others", times(Some(value / median)))
    } else {
        "the others have none".to_owned()
    };
    let (name, value, median) = match measure {
        Measure::TimeToFirstTokenP95Seconds => {
            ("TTFT p95", seconds(Some(*value)), seconds(Some(*median)))
        }
        Measure::StreamOutputTokensPerSecondP50 => (
            "output rate of a stream p50",
            format!("{} tokens/s", rate(Some(*value))),
            rate(Some(*median)),
        ),
        Measure::FailedShare => ("failed requests", percent(Some(*value)), percent(Some(*median))),
    };
    let text = format!("{process}: {name} {value}, {factor} (median {median})");
    Problem { word: "DEVIATES", tone: Tone::Warning, text, details: String::new() }
}

/// Width of the names and of the values of the figures.
const NAME: usize = 12;
const VALUE: usize = 46;

fn figures(canvas: &mut Canvas<'_>, now: &Now, several: bool) {
    let bars = canvas.width().saturating_sub(NAME + VALUE).min(POINTS);
    let heading = pad("Last 60 seconds", NAME + VALUE, false);
    let heading = if bars > 0 { format!("{heading}15 minutes") } else { heading };
    canvas.line([(heading, Tone::Title)]);
    let lines = &now.sparklines;
    let mut figure = |name: &str, value: Vec<Piece>, values: &[Option<f64>]| {
        let used: usize = value.iter().map(|(text, _)| width(text)).sum();
        let mut pieces = vec![plain(pad(name, NAME, false))];
        pieces.extend(value);
        pieces.push(plain(" ".repeat(VALUE.saturating_sub(used))));
        pieces.push((sparkline(values, bars), Tone::Good));
        canvas.line(pieces);
    };
    let one = |text: String| vec![plain(text)];
    figure("Requests", one(format!("{} /s", rate(now.requests_per_second))), &lines.requests);
    figure("Errors", errors(now), &lines.failed);
    let output = format!("{} tokens/s", rate(now.output_tokens_per_second));
    figure("Output", one(output), &lines.output);
    let stream = now.stream_output_tokens_per_second;
    let stream = format!("p50 {} · p10 {} tokens/s", rate(stream.p50), rate(stream.p10));
    figure("One stream", one(stream), &lines.stream_rate);
    let ttft = now.time_to_first_token_seconds;
    let ttft = format!("p50 {} · p95 {}", seconds(ttft.p50), seconds(ttft.p95));
    figure("TTFT", one(ttft), &lines.ttft);
    let itl = now.inter_token_latency_seconds;
    let itl = format!("p50 {} · p95 {}", seconds(itl.p50), seconds(itl.p95));
    figure("ITL", one(itl), &lines.itl);
    figure("In flight", in_flight(now), &lines.in_flight);
    figure("Burn rate", burn_rate(now, several), &[]);
    figure("Cost", one(cost(now)), &lines.cost);
}

fn errors(now: &Now) -> Vec<Piece> {
    let tone = |share: Option<f64>| {
        if share.is_some_and(|share| share > 0.0) { Tone::Warning } else { Tone::Plain }
    };
    vec![
        (format!("upstream {}", percent(now.upstream_error_share)), tone(now.upstream_error_share)),
        (format!(" · proxy {}", percent(now.proxy_error_share)), tone(now.proxy_error_share)),
        plain(format!(" · client {}", percent(now.client_error_share))),
    ]
}

fn in_flight(now: &Now) -> Vec<Piece> {
    let stalled =
        if now.stalled.is_some_and(|stalled| stalled > 0) { Tone::Bad } else { Tone::Plain };
    vec![
        plain(format!("{} · queue {} · ", count(now.in_flight), count(now.queue_depth))),
        (format!("stalled {}", count(now.stalled)), stalled),
    ]
}

fn burn_rate(now: &Now, several: bool) -> Vec<Piece> {
    let Some(worst) = &now.worst_burn_rate else { return vec![plain("–")] };
    let tone = if worst.burn_rate > 1.0 { Tone::Warning } else { Tone::Plain };
    let mut pieces = vec![
        (times(Some(worst.burn_rate)), tone),
        plain(format!(" over {} · {}", worst.window, worst.slo)),
    ];
    if several {
        pieces.push(plain(format!(" · {}", worst.process)));
    } else if let Some((covered, window)) = worst.covered_seconds.zip(worst.window_seconds) {
        pieces.push(plain(format!(" · {} of {}", span(covered.min(window)), span(window))));
    }
    pieces
}

fn cost(now: &Now) -> String {
    let costs = now.cost_per_hour.iter();
    let costs: Vec<String> =
        costs.map(|cost| format!("{} {} per hour", amount(cost.amount), cost.currency)).collect();
    if costs.is_empty() { "–".to_owned() } else { costs.join(" + ") }
}
