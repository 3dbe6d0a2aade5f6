//! Draws a line or point plot as SVG for the HTML page.

use maud::{Markup, html};

use super::axis::Tick;
use crate::cells::number;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 190.0;
/// Margins around the plot area, for the title and the axis labels.
const LEFT: f64 = 60.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 22.0;
/// Approximate number of grid lines.
const RULES: f64 = 4.0;
/// Number of line colours in the style sheet.
const COLOURS: usize = 3;

#[derive(Default)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) colour: usize,
    pub(super) dashed: bool,
    /// Points of the line. `None` leaves a gap.
    pub(super) points: Vec<Option<(f64, f64)>>,
}

#[derive(Default)]
pub(super) struct Plot<'a> {
    pub(super) title: &'a str,
    /// Unit of the numbers on the x axis.
    pub(super) x_unit: &'a str,
    /// Labels of the x axis. `None` labels round numbers.
    pub(super) x_ticks: Option<Vec<Tick>>,
    /// Upper end of each axis. The lower end is 0.
    pub(super) x_max: f64,
    pub(super) y_max: f64,
    /// Time ranges with a shaded background, as pairs of start and end on the x axis.
    pub(super) shaded: Vec<(f64, f64)>,
    pub(super) lines: Vec<Line>,
    pub(super) points: Vec<(f64, f64)>,
    pub(super) saturation_point: Option<(f64, f64)>,
}

impl Plot<'_> {
    pub(super) fn render(&self) -> Markup {
        html! {
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(self.title) {
                text.title x=(LEFT) y="14" { (self.title) }
                @for (from, to) in &self.shaded {
                    @let (left, right) = (self.across(*from), self.across(*to));
                    rect.shade x=(px(left)) y=(TOP) width=(px((right - left).max(0.0)))
                        height=(px(HEIGHT - TOP - BOTTOM)) {}
                }
                (self.axes())
                @for point in &self.points { (self.circle("dot", *point, 2)) }
                @for line in &self.lines { (self.line(line)) }
                @if let Some(point) = self.saturation_point { (self.circle("knee", point, 6)) }
                (self.legend())
            }
        }
    }

    fn across(&self, x: f64) -> f64 {
        LEFT + share(x, self.x_max) * (WIDTH - LEFT - RIGHT)
    }

    fn down(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - share(y, self.y_max) * (HEIGHT - TOP - BOTTOM)
    }

    fn axes(&self) -> Markup {
        html! {
            @for y in rules(self.y_max) {
                @let down = self.down(y);
                line.rule x1=(LEFT) x2=(px(WIDTH - RIGHT)) y1=(px(down)) y2=(px(down)) {}
                text x=(px(LEFT - 6.0)) y=(px(down + 4.0)) text-anchor="end" { (tick(y)) }
            }
            @for Tick { at, label } in self.x_labels() {
                text x=(px(self.across(at))) y=(px(HEIGHT - 6.0)) text-anchor="middle" { (label) }
            }
        }
    }

    fn x_labels(&self) -> Vec<Tick> {
        let number = |at| Tick { at, label: format!("{} {}", tick(at), self.x_unit) };
        self.x_ticks.clone().unwrap_or_else(|| rules(self.x_max).map(number).collect())
    }

    fn circle(&self, class: &str, (x, y): (f64, f64), radius: u8) -> Markup {
        html! { circle class=(class) cx=(px(self.across(x))) cy=(px(self.down(y))) r=(radius) {} }
    }

    fn line(&self, line: &Line) -> Markup {
        let (mut path, mut alone) = (String::new(), String::new());
        let mut drawing = false;
        for (place, point) in line.points.iter().enumerate() {
            let Some((x, y)) = *point else {
                drawing = false;
                continue;
            };
            let (x, y) = (self.across(x), self.down(y));
            if !drawing && line.points.get(place + 1).is_none_or(Option::is_none) {
                // A single point between two gaps is drawn as a dot.
                alone += &format!("M{x:.1} {y:.1}h0");
            } else {
                let command = if drawing { 'L' } else { 'M' };
                path += &format!("{command}{x:.1} {y:.1}");
                drawing = true;
            }
        }
        html! {
            path.{ "c" (line.colour()) }.dashed[line.dashed] d=(path) {}
            path.{ "c" (line.colour()) }.alone d=(alone) {}
        }
    }

    /// Renders the name of each line, from the right edge to the left.
    fn legend(&self) -> Markup {
        let named = self.lines.iter().rev().filter(|line| !line.name.is_empty());
        html! {
            @for (place, line) in named.enumerate() {
                @let right = WIDTH - RIGHT - 70.0 * place as f64;
                path.{ "c" (line.colour()) }.dashed[line.dashed] d={ "M" (px(right - 62.0)) " 10h18" } {}
                text x=(px(right)) y="14" text-anchor="end" { (line.name) }
            }
        }
    }
}

impl Line {
    /// Returns the number of the line's colour in the style sheet.
    const fn colour(&self) -> usize {
        self.colour % COLOURS
    }
}

/// Formats a position or a length.
fn px(value: f64) -> String {
    format!("{value:.1}")
}

/// Returns the positions of the grid lines between 0 and `most`. Their distance is a round number: 1, 2, 2.5 or 5
/// times a power of ten.
fn rules(most: f64) -> impl Iterator<Item = f64> {
    let wanted = most / RULES;
    let power = 10_f64.powf(wanted.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| *step >= wanted);
    // An axis without length has only the label 0.
    let step = step.filter(|step| step.is_normal()).unwrap_or(f64::MAX);
    (0..=4_u8).map(move |place| f64::from(place) * step).take_while(move |value| *value <= most)
}

/// Formats a round number without trailing zeros.
fn tick(value: f64) -> String {
    let text = number(value);
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns the position of `value` on an axis from 0 to `most`, as a ratio. Returns 0 if the axis has no length.
fn share(value: f64, most: f64) -> f64 {
    if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_points_interrupt_a_line() {
        let points = vec![Some((0.0, 0.0)), None, Some((5.0, 1.0)), Some((10.0, 2.0))];
        let plot = Plot {
            title: "a<b",
            x_unit: "s",
            x_max: 10.0,
            y_max: 2.0,
            shaded: vec![(0.0, 5.0)],
            lines: vec![Line { name: String::new(), colour: 0, dashed: false, points }],
            ..Plot::default()
        };
        let svg = plot.render().into_string();
        assert!(
            svg.contains("d=\"M474.0 96.0L888.0 24.0\"")
                && svg.contains("alone\" d=\"M60.0 168.0h0\""),
            "{svg}"
        );
        assert!(svg.contains("a&lt;b") && !svg.contains("a<b"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn axis_labels_are_round() {
        let labels = |most: f64| rules(most).collect::<Vec<_>>();
        assert_eq!(labels(273.3), [0.0, 100.0, 200.0]);
        assert_eq!(labels(10.0), [0.0, 2.5, 5.0, 7.5, 10.0]);
        assert_eq!(labels(22.39), [0.0, 10.0, 20.0]);
        assert_eq!(labels(4.0), [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(labels(0.0), [0.0]);
        assert!(labels(0.0244).len() > 2);
        let ticks = [0.0, 0.02, 2.5, 40.0, 1_000.0].map(tick);
        assert_eq!(ticks, ["0", "0.02", "2.5", "40", "1000"]);
    }

    #[test]
    fn an_empty_plot_contains_no_nan() {
        let plot = Plot {
            title: "",
            x_unit: "",
            x_max: 0.0,
            y_max: 0.0,
            shaded: Vec::new(),
            lines: Vec::new(),
            ..Plot::default()
        };
        assert!(!plot.render().into_string().contains("NaN"));
    }
}
