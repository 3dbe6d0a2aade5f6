//! Renders the report as one HTML page without scripts, fonts or external images.
//!
//! Text from the log is escaped, because a log can contain text of clients. Colours follow the light or dark scheme of
//! the system.

mod plot;

use crate::acceptance::AcceptanceResult;
use crate::cells::{comparison_rows, sections, verdict_rows};
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
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>tokengauge report</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>Report</h1>\n"
    );
    if let Some(judgement) = &report.acceptance {
        write_acceptance(&mut out, judgement);
    }
    head(&mut out, report);
    for run in &report.runs {
        self::run(&mut out, run);
    }
    plots(&mut out, report);
    for (title, rows) in sections(report) {
        table(&mut out, title, &rows);
    }
    if let Some(comparison) = &report.comparison {
        table(&mut out, "B against A", &comparison_rows(comparison));
        let Comparison { a, b, method, confidence, resamples, seed, .. } = comparison;
        let about = format!(
            "A: {a}. B: {b}. {method}; confidence {confidence}, {resamples} resamples, seed {seed}."
        );
        paragraph(&mut out, &about);
    }
    let about = format!(
        "Percentiles: {}. Times, rates and ITL (time per output token) cover successful requests only; n is the number \
         of requests behind a figure.",
        report.percentiles
    );
    paragraph(&mut out, &about);
    out.push_str("</body>\n</html>\n");
    out
}

fn write_acceptance(out: &mut String, judgement: &AcceptanceResult) {
    let (class, word) =
        if judgement.accepted { ("held", "Accepted") } else { ("broken", "Refused") };
    *out += &format!("<p class=\"verdict {class}\">{word}</p>\n");
    table(out, "Limits", &verdict_rows(judgement));
    let AcceptanceResult { fewest_requests, sha256, .. } = judgement;
    let about = format!("Minimum requests: {fewest_requests}. SHA-256 of the limits: {sha256}");
    paragraph(out, &about);
}

fn head(out: &mut String, report: &Report) {
    let names = ["file", "side", "bytes", "SHA-256"].map(str::to_owned);
    let inputs = report.inputs.iter().map(|Input { path, side, bytes, sha256, .. }| {
        [path.clone(), side.unwrap_or_default().to_owned(), bytes.to_string(), sha256.clone()]
    });
    let rows: Vec<_> = std::iter::once(names).chain(inputs).map(Vec::from).collect();
    table(out, "Input", &rows);
    let Report { tokengauge, configuration, seed, lines, .. } = report;
    let about = format!(
        "tokengauge {tokengauge}. Configuration: {}. Seed: {seed}. {} lines, {} calls.",
        configuration.join(", "),
        lines.read,
        lines.calls
    );
    paragraph(out, &about);
    for warning in report.warnings() {
        paragraph(out, &warning);
    }
}

fn run(out: &mut String, Run { side, from, to, requests, window, .. }: &Run) {
    let name = side.map_or(String::new(), |side| format!(" {side}"));
    *out += &format!("<h2>Run{name}</h2>\n");
    let found = match window.not_found {
        Some(why) => format!("No steady state was found ({why}): all requests are used."),
        None if window.steady => format!("Steady state from {} to {}.", window.from, window.to),
        None => format!("Evaluated from {} to {}.", window.from, window.to),
    };
    let Window { counted, cut_before, cut_after, method, .. } = window;
    let about = format!(
        "{from} to {to}, {requests} requests. {found} {counted} counted, {cut_before} cut before, {cut_after} cut \
         after. By: {method}."
    );
    paragraph(out, &about);
}

/// Writes the plots: throughput, latency and errors over time, then throughput against concurrency.
fn plots(out: &mut String, report: &Report) {
    // If both sides are plotted, the line of all requests would only cover their lines.
    let several = report.subjects.len() > 1;
    let subjects = report.subjects.iter().filter(|subject| !several || subject.name != "all");
    let subjects: Vec<&Subject> = subjects.collect();
    let timelines = subjects.iter().filter_map(|subject| subject.timeline.as_ref());
    let seconds = timelines.map(|it| it.slice * it.throughput.len() as f64).fold(0.0, f64::max);
    if seconds > 0.0 {
        out.push_str("<h2>Over time</h2>\n<p>Seconds since the first request of the run. The evaluated part is shaded.</p>\n");
        for (title, show) in PANELS {
            out.push_str(&panel(title, lines(&subjects, *show), shaded(report), seconds));
        }
    }
    for run in &report.runs {
        saturation(out, run);
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

fn panel(title: &str, lines: Vec<Line>, shaded: Vec<(f64, f64)>, seconds: f64) -> String {
    let points = lines.iter().flat_map(|line| line.points.iter().flatten());
    let y_max = points.map(|(_, y)| *y).fold(0.0, f64::max);
    Plot { title, x_unit: "s", x_max: seconds, y_max, shaded, lines, ..Plot::default() }.render()
}

/// Returns the start and end of each run's evaluated window, in seconds since the start of the run.
fn shaded(report: &Report) -> Vec<(f64, f64)> {
    let windows = report.runs.iter().map(|run| &run.window);
    windows.map(|window| (window.offset, window.offset + window.length)).collect()
}

fn saturation(out: &mut String, run: &Run) {
    let saturation = &run.saturation;
    let coordinates = |point: &Point| (point.concurrency, point.throughput);
    let points: Vec<(f64, f64)> = saturation.points.iter().map(coordinates).collect();
    if points.is_empty() {
        return;
    }
    let name = run.side.map_or(String::new(), |side| format!(", {side}"));
    *out += &format!("<h2>Throughput against concurrency{name}</h2>\n");
    let about = match (saturation.saturation_point, saturation.no_saturation_point) {
        (Some(point), _) => format!(
            "Saturation point at {:.1} requests in flight and {:.0} output tokens/s. By: {}.",
            point.concurrency, point.throughput, saturation.method
        ),
        (None, why) => format!("No saturation point: {}.", why.map_or("", |why| why.as_str())),
    };
    paragraph(out, &about);
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
    out.push_str(&plot.render());
}

fn table(out: &mut String, title: &str, rows: &[Vec<String>]) {
    *out += &format!("<h2>{}</h2>\n<div class=\"wide\"><table>\n", escaped(title));
    for (place, row) in rows.iter().enumerate() {
        let tag = if place == 0 { "th" } else { "td" };
        out.push_str("<tr>");
        for cell in row {
            *out += &format!("<{tag}>{}</{tag}>", escaped(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
}

fn paragraph(out: &mut String, text: &str) {
    *out += &format!("<p>{}</p>\n", escaped(text));
}

/// Escapes `<`, `&`, quotes and other characters that have a meaning in HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Control characters are removed: they are invisible, and HTML does not allow them.
            c if c.is_control() && c != '\n' => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_html() {
        assert_eq!(
            escaped("<script>alert('x')</script> & \"y\"\u{0}"),
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;y&quot;"
        );
    }

    #[test]
    fn escapes_table_cells() {
        let mut out = String::new();
        table(&mut out, "a<b", &[vec!["<i>".to_owned()], vec!["&".to_owned()]]);
        assert!(
            out.contains("<h2>a&lt;b</h2>")
                && out.contains("<th>&lt;i&gt;</th>")
                && out.contains("<td>&amp;</td>")
        );
    }
}
