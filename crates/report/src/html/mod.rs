//! Renders the report as a self-contained HTML page without scripts, fonts or external images.
//!
//! Strings from a log pass through `escaped`, because a log can contain text of clients. Colours follow the light or
//! dark scheme of the system.

mod plot;

use std::fmt::Write;

use crate::acceptance::AcceptanceResult;
use crate::cells::{comparison_rows, sections, verdict_rows, visible_dimensions};
use crate::saturation_point::Point;
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
        judged(&mut out, judgement);
    }
    head(&mut out, report);
    for run in &report.runs {
        self::run(&mut out, run);
    }
    plots(&mut out, report);
    for (title, rows) in sections(report, &visible_dimensions(report)) {
        table(&mut out, title, &rows);
    }
    if let Some(comparison) = &report.comparison {
        table(&mut out, "B against A", &comparison_rows(comparison));
        let about = format!(
            "A: {}. B: {}. {}; confidence {}, {} resamples, seed {}.",
            comparison.a,
            comparison.b,
            comparison.method,
            comparison.confidence,
            comparison.resamples,
            comparison.seed
        );
        paragraph(&mut out, &about);
    }
    paragraph(
        &mut out,
        &format!(
            "Percentiles: {}. Times, rates and ITL (time per output token) cover successful requests only; n is the number of requests behind a figure.",
            report.percentiles
        ),
    );
    out.push_str("</body>\n</html>\n");
    out
}

/// Appends formatted text. The result of `write!` is ignored, because writing to a string cannot fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {
        { let _ok = write!($out, $($arg)*); }
    };
}
use put;

fn judged(out: &mut String, judgement: &AcceptanceResult) {
    let (class, word) =
        if judgement.accepted { ("held", "Accepted") } else { ("broken", "Refused") };
    put!(out, "<p class=\"verdict {class}\">{word}</p>\n");
    table(out, "Limits", &verdict_rows(judgement));
    paragraph(
        out,
        &format!(
            "Minimum requests: {}. SHA-256 of the limits: {}",
            judgement.fewest_requests, judgement.sha256
        ),
    );
}

fn head(out: &mut String, report: &Report) {
    let inputs = report.inputs.iter().map(|input| {
        vec![
            input.path.clone(),
            input.side.unwrap_or_default().to_owned(),
            input.bytes.to_string(),
            input.sha256.clone(),
        ]
    });
    let names = ["file", "side", "bytes", "SHA-256"].map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(names).chain(inputs).collect();
    table(out, "Input", &rows);
    let about = format!(
        "tokengauge {}. Configuration: {}. Seed: {}. {} lines, {} calls.",
        report.tokengauge,
        report.configuration.join(", "),
        report.seed,
        report.lines.read,
        report.lines.calls
    );
    paragraph(out, &about);
    for warning in report.warnings() {
        paragraph(out, &warning);
    }
}

fn run(out: &mut String, run: &Run) {
    let window = &run.window;
    let name = run.side.map_or(String::new(), |side| format!(" {side}"));
    put!(out, "<h2>Run{name}</h2>\n");
    let found = match window.not_found {
        Some(why) => format!("No steady state was found ({why}): all requests are used."),
        None if window.steady => format!("Steady state from {} to {}.", window.from, window.to),
        None => format!("Evaluated from {} to {}.", window.from, window.to),
    };
    paragraph(
        out,
        &format!(
            "{} to {}, {} requests. {found} {} counted, {} cut before, {} cut after. By: {}.",
            run.from,
            run.to,
            run.requests,
            window.counted,
            window.cut_before,
            window.cut_after,
            window.method
        ),
    );
}

/// Writes the plots: throughput, latency and errors over time, then throughput against concurrency.
fn plots(out: &mut String, report: &Report) {
    // If both sides are plotted, the line of all requests would only cover their lines.
    let several = report.subjects.len() > 1;
    let subjects = report.subjects.iter().filter(|subject| !several || subject.name != "all");
    let subjects: Vec<&Subject> = subjects.collect();
    let most = subjects.iter().filter_map(|subject| subject.timeline.as_ref());
    let seconds =
        most.map(|timeline| timeline.slice * timeline.throughput.len() as f64).fold(0.0, f64::max);
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

/// Lines of a panel: each has a name, and one value per time slice.
type Lines = Vec<(&'static str, Vec<Option<f64>>)>;

/// Selects the lines that a panel shows for a subject.
type Show = fn(&Subject) -> Lines;

const PANELS: &[(&str, Show)] = &[
    ("Output tokens/s, all streams together", |subject| {
        of(subject, |timeline| vec![("", timeline.throughput.iter().copied().map(Some).collect())])
    }),
    ("Output TPS of one stream, median (tokens/s)", |subject| {
        of(subject, |timeline| vec![("", timeline.output_tps_p50.clone())])
    }),
    ("Time to first token (s)", |subject| {
        of(subject, |timeline| {
            vec![("p50", timeline.ttft_p50.clone()), ("p95", timeline.ttft_p95.clone())]
        })
    }),
    ("Duration, median (s)", |subject| {
        of(subject, |timeline| vec![("", timeline.duration_p50.clone())])
    }),
    ("Error rate", |subject| of(subject, |timeline| vec![("", timeline.error_rate.clone())])),
    ("Requests in flight", |subject| {
        of(subject, |timeline| vec![("", timeline.concurrency.iter().copied().map(Some).collect())])
    }),
];

fn of(subject: &Subject, lines: impl Fn(&crate::timeline::Timeline) -> Lines) -> Lines {
    subject.timeline.as_ref().map(lines).unwrap_or_default()
}

/// Returns the lines that a panel shows for all subjects.
fn lines(subjects: &[&Subject], show: Show) -> Vec<Line> {
    let mut lines = Vec::new();
    for (number, subject) in subjects.iter().enumerate() {
        let slice = subject.timeline.as_ref().map_or(0.0, |timeline| timeline.slice);
        let side = if subjects.len() > 1 { subject.name } else { "" };
        for (name, values) in show(subject) {
            let points = values.into_iter().enumerate();
            let points = points.map(|(place, value)| Some(((place as f64 + 0.5) * slice, value?)));
            let words = [side, name].into_iter().filter(|word| !word.is_empty());
            lines.push(Line {
                name: words.collect::<Vec<_>>().join(" "),
                colour: number,
                dashed: name == "p95",
                points: points.collect(),
            });
        }
    }
    lines
}

fn panel(title: &str, lines: Vec<Line>, shaded: Vec<(f64, f64)>, seconds: f64) -> String {
    let highest = lines
        .iter()
        .flat_map(|line| line.points.iter().flatten())
        .map(|(_, y)| *y)
        .fold(0.0, f64::max);
    let plot = Plot {
        title,
        x_unit: "s",
        x_max: seconds,
        y_max: highest,
        shaded,
        lines,
        ..Plot::default()
    };
    plot.render()
}

/// Returns the evaluated part of each run, in seconds since the start of the run.
fn shaded(report: &Report) -> Vec<(f64, f64)> {
    report
        .runs
        .iter()
        .map(|run| (run.window.offset, run.window.offset + run.window.length))
        .collect()
}

fn saturation(out: &mut String, run: &Run) {
    let saturation = &run.saturation;
    let coordinates = |point: &Point| (point.concurrency, point.throughput);
    let points: Vec<(f64, f64)> = saturation.points.iter().map(coordinates).collect();
    if points.is_empty() {
        return;
    }
    let name = run.side.map_or(String::new(), |side| format!(", {side}"));
    put!(out, "<h2>Throughput against concurrency{name}</h2>\n");
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
        lines: vec![Line {
            name: "mean".to_owned(),
            colour: 0,
            dashed: false,
            points: curve.collect(),
        }],
        saturation_point: saturation.saturation_point.as_ref().map(coordinates),
        points,
        ..Plot::default()
    };
    out.push_str(&plot.render());
}

fn table(out: &mut String, title: &str, rows: &[Vec<String>]) {
    put!(out, "<h2>{}</h2>\n<div class=\"wide\"><table>\n", escaped(title));
    for (place, row) in rows.iter().enumerate() {
        let tag = if place == 0 { "th" } else { "td" };
        out.push_str("<tr>");
        for cell in row {
            put!(out, "<{tag}>{}</{tag}>", escaped(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
}

fn paragraph(out: &mut String, text: &str) {
    put!(out, "<p>{}</p>\n", escaped(text));
}

/// Escapes characters that HTML could read as a tag, an entity or the end of an attribute.
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
