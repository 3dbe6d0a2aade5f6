//! Panels as they are written: what each shows, in which unit, and what it asks.

use std::borrow::Cow;

use super::unit::Unit;

/// One panel.
#[derive(Clone, Debug)]
pub struct Panel {
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    pub(super) unit: Unit,
    pub(super) kind: Kind,
    /// Columns of the 24 that a dashboard has, and rows of 30 pixels.
    pub(super) size: (u32, u32),
    pub(super) queries: Vec<Query>,
    pub(super) judgement: Option<Judgement>,
    /// What stands in place of an absent number.
    pub(super) empty: &'static str,
    pub(super) range: (Option<f64>, Option<f64>),
    pub(super) decimals: Option<u32>,
    /// Lines whose unit is another one; they have an axis of their own, on the right.
    pub(super) axes: Vec<(&'static str, Unit)>,
    /// Lines that have a colour of their own.
    pub(super) colours: Vec<(&'static str, Colour)>,
    /// Words and colours in place of numbers.
    pub(super) words: Vec<(f64, &'static str, Colour)>,
    pub(super) links: Vec<Link>,
}

/// How a panel shows its numbers.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Stat,
    TimeSeries(Drawing),
    Heatmap,
    BarGauge,
    Table(Table),
    /// The first query over the others.
    XyChart,
    StateTimeline,
    /// Markdown.
    Text(&'static str),
}

/// How a time series is drawn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drawing {
    pub(super) stacking: Stacking,
    pub(super) bars: bool,
    pub(super) logarithmic: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Stacking {
    #[default]
    None,
    Normal,
    Share,
}

/// What a table's rows are named by: a label and its column's title.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) keys: Vec<(&'static str, &'static str)>,
}

/// One query. Of a table it is a column, of anything else a line.
#[derive(Clone, Debug)]
pub(super) struct Query {
    /// The legend, with `{{label}}` for a label's value; empty for Grafana's own.
    pub(super) name: &'static str,
    /// PromQL with markers.
    pub(super) text: Cow<'static, str>,
    /// Of a table's column, where it is not the panel's.
    pub(super) unit: Option<Unit>,
}

/// What is good and what is not. Only where somebody would act on it.
#[derive(Clone, Debug)]
pub(super) struct Judgement {
    pub(super) base: Colour,
    pub(super) steps: Vec<(f64, Colour)>,
    /// Whether the steps are drawn as lines.
    pub(super) lines: bool,
}

/// A link from the values of a column.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) column: &'static str,
    pub(super) title: &'static str,
    pub(super) url: &'static str,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Colour {
    Green,
    Yellow,
    Orange,
    Red,
    Blue,
    /// That of the text around it.
    Plain,
}

impl Colour {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Green => "green",
            Self::Yellow => "yellow",
            Self::Orange => "orange",
            Self::Red => "red",
            Self::Blue => "blue",
            Self::Plain => "text",
        }
    }
}

/// What a number says that is not there: an idle proxy is no error.
const NO_TRAFFIC: &str = "No traffic";

/// One number, as it is now. The description names the metric and the formula; so do those of all panels.
pub fn stat(title: &'static str, unit: Unit, description: &'static str) -> Panel {
    Panel::new(Kind::Stat, (4, 4), title, unit, description)
}

/// Lines over time.
pub fn time_series(title: &'static str, unit: Unit, description: &'static str) -> Panel {
    let kind = Kind::TimeSeries(Drawing::default());
    Panel::new(kind, (12, 8), title, unit, description)
}

/// A distribution over time: one query, by `le`. The unit is that of the buckets' bounds.
pub fn heatmap(title: &'static str, unit: Unit, description: &'static str) -> Panel {
    Panel::new(Kind::Heatmap, (12, 8), title, unit, description)
}

/// One bar for each line, as it is now.
pub fn bar_gauge(title: &'static str, unit: Unit, description: &'static str) -> Panel {
    Panel::new(Kind::BarGauge, (8, 8), title, unit, description)
}

/// A row for each combination of the [keys](Panel::key)' values, a column for each query, as it is now.
pub fn table(title: &'static str, unit: Unit, description: &'static str) -> Panel {
    let kind = Kind::Table(Table::default());
    Panel::new(kind, (24, 8), title, unit, description)
}

/// Points: the first line is the horizontal axis, each further one is drawn over it.
pub fn xy_chart(title: &'static str, unit: Unit, description: &'static str) -> Panel {
    Panel::new(Kind::XyChart, (12, 9), title, unit, description)
}

/// What was the case when: a bar for each line, by [words](Panel::word).
pub fn state_timeline(title: &'static str, unit: Unit, description: &'static str) -> Panel {
    Panel::new(Kind::StateTimeline, (12, 8), title, unit, description)
}

/// Markdown.
pub fn text(title: &'static str, description: &'static str, markdown: &'static str) -> Panel {
    let kind = Kind::Text(markdown);
    Panel::new(kind, (24, 4), title, Unit::Text, description)
}

impl Panel {
    fn new(
        kind: Kind,
        size: (u32, u32),
        title: &'static str,
        unit: Unit,
        description: &'static str,
    ) -> Self {
        Self {
            title,
            description,
            unit,
            kind,
            size,
            queries: Vec::new(),
            judgement: None,
            empty: NO_TRAFFIC,
            range: (None, None),
            decimals: None,
            axes: Vec::new(),
            colours: Vec::new(),
            words: Vec::new(),
            links: Vec::new(),
        }
    }

    /// The one query of a panel. See [`super::query`] for the markers in it.
    #[must_use]
    pub fn query(self, text: impl Into<Cow<'static, str>>) -> Self {
        self.line("", text)
    }

    /// One of several queries. In its name `{{label}}` stands for a label's value.
    #[must_use]
    pub fn line(mut self, name: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        self.queries.push(Query { name, text: text.into(), unit: None });
        self
    }

    /// A line in another unit, with an axis on the right. Its name holds no `{{label}}`.
    #[must_use]
    pub fn right(
        mut self,
        name: &'static str,
        unit: Unit,
        text: impl Into<Cow<'static, str>>,
    ) -> Self {
        self.axes.push((name, unit));
        self.line(name, text)
    }

    /// The colour of a line, where it means something. Its name holds no `{{label}}`.
    #[must_use]
    pub fn coloured(mut self, name: &'static str, colour: Colour) -> Self {
        self.colours.push((name, colour));
        self
    }

    /// A column of a table.
    #[must_use]
    pub fn column(
        mut self,
        title: &'static str,
        unit: Unit,
        text: impl Into<Cow<'static, str>>,
    ) -> Self {
        self.queries.push(Query { name: title, text: text.into(), unit: Some(unit) });
        self
    }

    /// A label that names a table's rows, and its column's title. All queries keep it.
    #[must_use]
    pub fn key(mut self, label: &'static str, title: &'static str) -> Self {
        if let Kind::Table(table) = &mut self.kind {
            table.keys.push((label, title));
        }
        self
    }

    /// A link from each value of a table's column.
    #[must_use]
    pub fn link(mut self, column: &'static str, title: &'static str, url: &'static str) -> Self {
        self.links.push(Link { column, title, url });
        self
    }

    /// Columns (of 24) and rows (of 30 pixels) that it takes.
    #[must_use]
    pub fn size(mut self, columns: u32, rows: u32) -> Self {
        self.size = (columns, rows);
        self
    }

    /// `base` holds below the first step, each step's colour from its value on.
    #[must_use]
    pub fn judged(mut self, base: Colour, steps: &[(f64, Colour)]) -> Self {
        self.judgement = Some(Judgement { base, steps: steps.to_vec(), lines: false });
        self
    }

    /// Lines to hold what is shown against.
    #[must_use]
    pub fn lines_at(mut self, steps: &[(f64, Colour)]) -> Self {
        self.judgement =
            Some(Judgement { base: Colour::Plain, steps: steps.to_vec(), lines: true });
        self
    }

    /// What stands in place of an absent number, where that is not for want of traffic.
    #[must_use]
    pub fn empty(mut self, text: &'static str) -> Self {
        self.empty = text;
        self
    }

    #[must_use]
    pub fn min(mut self, least: f64) -> Self {
        self.range.0 = Some(least);
        self
    }

    #[must_use]
    pub fn max(mut self, most: f64) -> Self {
        self.range.1 = Some(most);
        self
    }

    #[must_use]
    pub fn decimals(mut self, decimals: u32) -> Self {
        self.decimals = Some(decimals);
        self
    }

    /// A word and a colour in place of a number.
    #[must_use]
    pub fn word(mut self, number: f64, word: &'static str, colour: Colour) -> Self {
        self.words.push((number, word, colour));
        self
    }

    /// Lines stand on each other.
    #[must_use]
    pub fn stacked(self) -> Self {
        self.drawn(|drawing| drawing.stacking = Stacking::Normal)
    }

    /// Lines stand on each other, as shares of their sum.
    #[must_use]
    pub fn shares(self) -> Self {
        self.drawn(|drawing| drawing.stacking = Stacking::Share)
    }

    #[must_use]
    pub fn bars(self) -> Self {
        self.drawn(|drawing| drawing.bars = true)
    }

    #[must_use]
    pub fn logarithmic(self) -> Self {
        self.drawn(|drawing| drawing.logarithmic = true)
    }

    fn drawn(mut self, change: impl FnOnce(&mut Drawing)) -> Self {
        if let Kind::TimeSeries(drawing) = &mut self.kind {
            change(drawing);
        }
        self
    }
}
