//! Renders the report as one HTML page without scripts, fonts or external images.
//!
//! Text from the log is escaped, because a log can contain text of clients. Colours follow the light or dark scheme of
//! the system.

mod axis;
mod plot;

use std::collections::BTreeSet;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::acceptance::AcceptanceResult;
use crate::cells::{Cells, LEGEND, comparison_rows, coverage, sections, verdict_rows};
use crate::compare::Comparison;
use crate::read::Input;
use crate::saturation_point::Point;
use crate::timeline::Timeline;
use crate::{Report, Run, Subject};
use plot::{Line, Plot};

const STYLE: &str = include_str!("style.css");

/// Renders the whole page.
pub fn render(report: &Report) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'";
                title { "tokengauge report" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Report" }
                @if let Some(judgement) = &report.acceptance { (acceptance(judgement)) }
                (head(report))
                @for run in &report.runs { (self::run(run)) }
                (plots(report))
                @for (title, rows) in sections(report) { (table(title, &rows)) }
                @if let Some(comparison) = &report.comparison { (compared(comparison)) }
                p { (LEGEND) " Percentiles: " (report.percentiles) "." }
            }
        }
    };
    // Control characters are removed: they are invisible, and HTML does not allow them.
    page.into_string().replace(|c: char| c.is_control() && c != '\n', "")
}

fn acceptance(judgement: &AcceptanceResult) -> Markup {
    let AcceptanceResult { accepted, fewest_requests, sha256, .. } = judgement;
    let (class, word) = if *accepted { ("held", "Accepted") } else { ("broken", "Refused") };
    html! {
        p class={ "verdict " (class) } { (word) }
        (table("Limits", &verdict_rows(judgement)))
        p { "Minimum requests: " (fewest_requests) ". SHA-256 of the limits: " (sha256) }
    }
}

fn head(report: &Report) -> Markup {
    let names = ["file", "side", "bytes", "SHA-256"].map(str::to_owned);
    let inputs = report.inputs.iter().map(|Input { path, side, bytes, sha256, .. }| {
        [path.clone(), side.unwrap_or_default().to_owned(), bytes.to_string(), sha256.clone()]
    });
    let rows: Vec<_> = std::iter::once(names).chain(inputs).map(Vec::from).collect();
    let Report { tokengauge, configuration, seed, lines, .. } = report;
    html! {
        (table("Input", &rows))
        @if let Some(note) = report.period_note() { p { (note) "." } }
        p {
            "tokengauge " (tokengauge) ". Configuration: " (configuration.join(", ")) ". Seed: " (seed) ". "
            (lines.read) " lines, " (lines.calls) " calls."
        }
        @for warning in report.warnings() { p { (warning) } }
    }
}

fn run(run: &Run) -> Markup {
    let Run { side, from, to, requests, .. } = run;
    html! {
        h2 { "Run" @if let Some(side) = side { " " (side) } }
        p { (from) " to " (to) ", " (requests) " requests. " (coverage(run).join(" ")) }
    }
}

fn compared(comparison: &Comparison) -> Markup {
    let Comparison { a, b, method, confidence, resamples, seed, .. } = comparison;
    html! {
        (table("B against A", &comparison_rows(comparison)))
        p {
            "A: " (a) ". B: " (b) ". " (method) "; confidence " (confidence) ", " (resamples) " resamples, seed "
            (seed) "."
        }
    }
}

/// Renders the plots: throughput, latency and errors over time, then throughput against concurrency.
fn plots(report: &Report) -> Markup {
    // If both sides are plotted, the line of all requests would only cover their lines.
    let several = report.subjects.len() > 1;
    let subjects = report.subjects.iter().filter(|subject| !several || subject.name != "all");
    let subjects: Vec<&Subject> = subjects.collect();
    let timelines = subjects.iter().filter_map(|subject| subject.timeline.as_ref());
    let currencies: BTreeSet<&String> = timelines.clone().flat_map(|it| it.cost.keys()).collect();
    let seconds = timelines.map(|it| it.slice * it.throughput.len() as f64).fold(0.0, f64::max);
    html! {
        @if seconds > 0.0 {
            h2 { "Over time" }
            p { (time_note(report)) }
            @for (title, show) in PANELS {
                (panel(report, title, lines(&subjects, *show), seconds))
            }
            @for currency in currencies {
                (panel(report, &format!("Cost per hour ({currency})"), lines(&subjects, |it| cost(it, currency)), seconds))
            }
        }
        @for run in &report.runs { (saturation(run)) }
    }
}

/// Lines of a plot. Each line has a name, and one value per time slice.
type Lines = Vec<(&'static str, Vec<Option<f64>>)>;

/// Returns the lines of a timeline that a plot shows.
type Show = fn(&Timeline) -> Lines;

const PANELS: &[(&str, Show)] = &[
    ("Output tokens/s, all streams together", |it| vec![("", defined(&it.throughput))]),
    ("Output TPS of one stream, median (tokens/s)", |it| vec![("", it.output_tps_p50.clone())]),
    ("Time to first token (s)", |it| {
        vec![("p50", it.ttft_p50.clone()), ("p95", it.ttft_p95.clone())]
    }),
    ("Duration, median (s)", |it| vec![("", it.duration_p50.clone())]),
    ("Error rate", |it| vec![("", it.error_rate.clone())]),
    ("Requests in flight", |it| vec![("", defined(&it.concurrency))]),
];

/// Returns the cost rate in one currency. Unlike the cost of a slice, the rate does not depend on the slice width.
fn cost(timeline: &Timeline, currency: &str) -> Lines {
    let per_hour = |cost: &f64| Some(cost * 3_600.0 / timeline.slice);
    let costs = timeline.cost.get(currency);
    vec![("", costs.map_or_else(Vec::new, |costs| costs.iter().map(per_hour).collect()))]
}

/// Describes the time axis. Two runs share an axis that starts with their first request.
fn time_note(report: &Report) -> &'static str {
    match (report.runs.as_slice(), shaded(report).is_empty()) {
        ([_], true) => "Times are in UTC.",
        ([_], false) => "Times are in UTC. The part that the speed figures cover is shaded.",
        (_, true) => "Time since the first request of the run.",
        (_, false) => {
            "Time since the first request of the run. The part that the speed figures cover is shaded."
        }
    }
}

fn defined(values: &[f64]) -> Vec<Option<f64>> {
    values.iter().copied().map(Some).collect()
}

/// Returns the lines of a plot for all subjects, such as side A and side B.
fn lines(subjects: &[&Subject], show: impl Fn(&Timeline) -> Lines) -> Vec<Line> {
    let mut lines = Vec::new();
    for (number, subject) in subjects.iter().enumerate() {
        let side = if subjects.len() > 1 { subject.name } else { "" };
        let Some(timeline) = &subject.timeline else { continue };
        for (name, values) in show(timeline) {
            let points = values.into_iter().enumerate();
            let middle = |place: usize| (place as f64 + 0.5) * timeline.slice;
            lines.push(Line {
                name: format!("{side} {name}").trim().to_owned(),
                colour: number,
                dashed: name == "p95",
                points: points.map(|(place, value)| Some((middle(place), value?))).collect(),
            });
        }
    }
    lines
}

fn panel(report: &Report, title: &str, lines: Vec<Line>, seconds: f64) -> Markup {
    let points = lines.iter().flat_map(|line| line.points.iter().flatten());
    let y_max = points.map(|(_, y)| *y).fold(0.0, f64::max);
    let ticks = match report.runs.as_slice() {
        [run] => axis::calendar(&run.from, seconds),
        _ => axis::elapsed(seconds),
    };
    let shaded = shaded(report);
    Plot { title, x_ticks: Some(ticks), x_max: seconds, y_max, shaded, lines, ..Plot::default() }
        .render()
}

/// Returns the start and end of each run's window, in seconds since the start of the run. Runs of which nothing is cut
/// are left out.
fn shaded(report: &Report) -> Vec<(f64, f64)> {
    let windows = report.runs.iter().map(|run| &run.window);
    let windows = windows.filter(|window| window.cut_before + window.cut_after > 0);
    windows.map(|window| (window.offset, window.offset + window.length)).collect()
}

fn saturation(run: &Run) -> Markup {
    let saturation = &run.saturation;
    let coordinates = |point: &Point| (point.concurrency, point.throughput);
    let points: Vec<(f64, f64)> = saturation.points.iter().map(coordinates).collect();
    if points.is_empty() {
        return Markup::default();
    }
    let about = match (saturation.saturation_point, saturation.no_saturation_point) {
        (Some(point), _) => format!(
            "Saturation point at {:.1} requests in flight and {:.0} output tokens/s. By: {}.",
            point.concurrency, point.throughput, saturation.method
        ),
        (None, why) => format!("No saturation point: {}.", why.map_or("", |why| why.as_str())),
    };
    let most = |axis: fn(&(f64, f64)) -> f64| points.iter().map(axis).fold(0.0, f64::max);
    let curve = saturation.curve.iter().map(coordinates).map(Some);
    let plot = Plot {
        title: "Output tokens/s by requests in flight, per slice of time",
        x_unit: "in flight",
        x_max: most(|point| point.0),
        y_max: most(|point| point.1),
        lines: vec![Line { name: "mean".to_owned(), points: curve.collect(), ..Line::default() }],
        saturation_point: saturation.saturation_point.as_ref().map(coordinates),
        points,
        ..Plot::default()
    };
    html! {
        h2 { "Throughput against concurrency" @if let Some(side) = run.side { ", " (side) } }
        p { (about) }
        (plot.render())
    }
}

/// Renders a table. The first row has the headings.
fn table(title: &str, rows: &[Cells]) -> Markup {
    html! {
        h2 { (title) }
        div.wide {
            table {
                @for (place, row) in rows.iter().enumerate() {
                    tr {
                        @for cell in row {
                            @if place == 0 { th { (cell) } } @else { td { (cell) } }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_table_cells() {
        let table =
            table("a<b", &[vec!["<i>".to_owned()], vec!["& \"y\"".to_owned()]]).into_string();
        assert!(
            table.contains("<h2>a&lt;b</h2>")
                && table.contains("<th>&lt;i&gt;</th>")
                && table.contains("<td>&amp; &quot;y&quot;</td>")
        );
    }
}
