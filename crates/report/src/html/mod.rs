//! Renders the report as one HTML page without scripts, fonts or external images.
//!
//! Text from the log is escaped, because a log can contain text of clients. Colours follow the light or dark scheme of
//! the system.

mod plot;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::acceptance::AcceptanceResult;
use crate::cells::{Cells, comparison_rows, sections, verdict_rows};
use crate::compare::Comparison;
use crate::read::Input;
use crate::saturation_point::Point;
use crate::timeline::Timeline;
use crate::window::Window;
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
                p {
                    "Percentiles: " (report.percentiles) ". Times, rates and ITL (time per output token) cover "
                    "successful requests only; n is the number of requests behind a figure."
                }
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
        p {
            "tokengauge " (tokengauge) ". Configuration: " (configuration.join(", ")) ". Seed: " (seed) ". "
            (lines.read) " lines, " (lines.calls) " calls."
        }
        @for warning in report.warnings() { p { (warning) } }
    }
}

fn run(Run { side, from, to, requests, window, .. }: &Run) -> Markup {
    let found = match window.not_found {
        Some(why) => format!("No steady state was found ({why}): all requests are used."),
        None if window.steady => format!("Steady state from {} to {}.", window.from, window.to),
        None => format!("Evaluated from {} to {}.", window.from, window.to),
    };
    let Window { counted, cut_before, cut_after, method, .. } = window;
    html! {
        h2 { "Run" @if let Some(side) = side { " " (side) } }
        p {
            (from) " to " (to) ", " (requests) " requests. " (found) " " (counted) " counted, " (cut_before)
            " cut before, " (cut_after) " cut after. By: " (method) "."
        }
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
    let seconds = timelines.map(|it| it.slice * it.throughput.len() as f64).fold(0.0, f64::max);
    html! {
        @if seconds > 0.0 {
            h2 { "Over time" }
            p { "Seconds since the first request of the run. The evaluated part is shaded." }
            @for (title, show) in PANELS {
                (panel(title, lines(&subjects, *show), shaded(report), seconds))
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

fn defined(values: &[f64]) -> Vec<Option<f64>> {
    values.iter().copied().map(Some).collect()
}

/// Returns the lines of a plot for all subjects, such as side A and side B.
fn lines(subjects: &[&Subject], show: Show) -> Vec<Line> {
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

fn panel(title: &str, lines: Vec<Line>, shaded: Vec<(f64, f64)>, seconds: f64) -> Markup {
    let points = lines.iter().flat_map(|line| line.points.iter().flatten());
    let y_max = points.map(|(_, y)| *y).fold(0.0, f64::max);
    Plot { title, x_unit: "s", x_max: seconds, y_max, shaded, lines, ..Plot::default() }.render()
}

/// Returns the start and end of each run's evaluated window, in seconds since the start of the run.
fn shaded(report: &Report) -> Vec<(f64, f64)> {
    let windows = report.runs.iter().map(|run| &run.window);
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
