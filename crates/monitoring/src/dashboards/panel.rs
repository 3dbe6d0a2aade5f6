//! Panel definitions: visualization, unit and queries.

use std::borrow::Cow;

use super::unit::Unit;

/// A dashboard panel.
#[derive(Clone, Debug)]
pub struct Panel {
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    pub(super) unit: Unit,
    pub(super) kind: Kind,
    /// Width in columns (of 24) and height in rows of 30 pixels.
    pub(super) size: (u32, u32),
    pub(super) queries: Vec<Query>,
    pub(super) judgement: Option<Judgement>,
    /// Text for an absent value.
    pub(super) empty: &'static str,
    pub(super) range: (Option<f64>, Option<f64>),
    pub(super) decimals: Option<u32>,
    /// Lines with a different unit, which use a separate axis on the right.
    pub(super) axes: Vec<(&'static str, Unit)>,
    /// Lines with a fixed colour.
    pub(super) colours: Vec<(&'static str, Colour)>,
    /// Text and colour that replace specific values.
    pub(super) words: Vec<(f64, &'static str, Colour)>,
    pub(super) links: Vec<Link>,
}

/// Visualization of a panel.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Stat,
    TimeSeries(Drawing),
    Heatmap,
    BarGauge,
    Table(Table),
    /// The first query is the horizontal axis of the other queries.
    XyChart,
    StateTimeline,
    /// Markdown text.
    Text(&'static str),
}

/// Drawing style of a time series.
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

/// Labels that identify the rows of a table, each with its column title.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) keys: Vec<(&'static str, &'static str)>,
}

/// A query: a column of a table, otherwise a line.
#[derive(Clone, Debug)]
pub(super) struct Query {
    /// Legend, where `{{label}}` inserts a label value. If empty, Grafana chooses the legend.
    pub(super) name: &'static str,
    /// PromQL with markers.
    pub(super) text: Cow<'static, str>,
    /// Unit of a table column, if it differs from the unit of the panel.
    pub(super) unit: Option<Unit>,
}

/// Thresholds for good and bad values. Used only for values that require action.
#[derive(Clone, Debug)]
pub(super) struct Judgement {
    pub(super) base: Colour,
    pub(super) steps: Vec<(f64, Colour)>,
    /// Whether the thresholds are drawn as lines.
    pub(super) lines: bool,
}

/// A link on the values of a column.
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
    /// The colour of the surrounding text.
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

/// Default text for an absent value, because an idle proxy is not an error.
const NO_TRAFFIC: &str = "No traffic";

/// Creates a panel with a single current value. As for every panel, the description names the metric and the formula.
pub fn stat(title: &'static str, unit: Unit, description: &'static str) -> Panel {
    Panel::new(Kind::Stat, (4, 4), title, unit, description)
}

/// Creates a panel with lines over time.
pub fn time_series(title: &'static str, unit: Unit, description: &'static str) -> Panel {
    let kind = Kind::TimeSeries(Drawing::default());
    Panel::new(kind, (12, 8), title, unit, description)
}

/// Creates a panel with a distribution over time, from one query grouped by `le`. The unit applies to the bucket
/// bounds.
pub fn heatmap(title: &'static str, unit: Unit, description: &'static str) -> Panel {
    Panel::new(Kind::Heatmap, (12, 8), title, unit, description)
}

/// Creates a panel with a bar per line for current values.
pub fn bar_gauge(title: &'static str, unit: Unit, description: &'static str) -> Panel {
    Panel::new(Kind::BarGauge, (8, 8), title, unit, description)
}

/// Creates a table of current values: a row per combination of [key](Panel::key) values, a column per query.
pub fn table(title: &'static str, unit: Unit, description: &'static str) -> Panel {
    let kind = Kind::Table(Table::default());
    Panel::new(kind, (24, 8), title, unit, description)
}

/// Creates a scatter chart. The first line is the horizontal axis of all further lines.
pub fn xy_chart(title: &'static str, unit: Unit, description: &'static str) -> Panel {
    Panel::new(Kind::XyChart, (12, 9), title, unit, description)
}

/// Creates a panel with states over time: a bar per line, with states named by [words](Panel::word).
pub fn state_timeline(title: &'static str, unit: Unit, description: &'static str) -> Panel {
    Panel::new(Kind::StateTimeline, (12, 8), title, unit, description)
}

/// Creates a Markdown panel.
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

    /// Sets the only query of a panel. [`super::query`] documents the markers.
    #[must_use]
    pub fn query(self, text: impl Into<Cow<'static, str>>) -> Self {
        self.line("", text)
    }

    /// Adds a query. In `name`, `{{label}}` inserts a label value.
    #[must_use]
    pub fn line(mut self, name: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        self.queries.push(Query { name, text: text.into(), unit: None });
        self
    }

    /// Adds a line with a different unit and an axis on the right. The name must not contain `{{label}}`.
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

    /// Sets the colour of a line if it carries meaning. The name must not contain `{{label}}`.
    #[must_use]
    pub fn coloured(mut self, name: &'static str, colour: Colour) -> Self {
        self.colours.push((name, colour));
        self
    }

    /// Adds a table column.
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

    /// Adds a label that identifies table rows, and its column title. All queries must keep the label.
    #[must_use]
    pub fn key(mut self, label: &'static str, title: &'static str) -> Self {
        if let Kind::Table(table) = &mut self.kind {
            table.keys.push((label, title));
        }
        self
    }

    /// Adds a link to each value of a table column.
    #[must_use]
    pub fn link(mut self, column: &'static str, title: &'static str, url: &'static str) -> Self {
        self.links.push(Link { column, title, url });
        self
    }

    /// Sets the width in columns (of 24) and the height in rows of 30 pixels.
    #[must_use]
    pub fn size(mut self, columns: u32, rows: u32) -> Self {
        self.size = (columns, rows);
        self
    }

    /// Sets colour thresholds. `base` applies below the first step, and the colour of each step applies from its value
    /// upward.
    #[must_use]
    pub fn judged(mut self, base: Colour, steps: &[(f64, Colour)]) -> Self {
        self.judgement = Some(Judgement { base, steps: steps.to_vec(), lines: false });
        self
    }

    /// Draws threshold lines.
    #[must_use]
    pub fn lines_at(mut self, steps: &[(f64, Colour)]) -> Self {
        self.judgement =
            Some(Judgement { base: Colour::Plain, steps: steps.to_vec(), lines: true });
        self
    }

    /// Sets the text for an absent value whose cause is not missing traffic.
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

    /// Replaces a value by a text and a colour.
    #[must_use]
    pub fn word(mut self, number: f64, word: &'static str, colour: Colour) -> Self {
        self.words.push((number, word, colour));
        self
    }

    /// Stacks the lines.
    #[must_use]
    pub fn stacked(self) -> Self {
        self.drawn(|drawing| drawing.stacking = Stacking::Normal)
    }

    /// Stacks the lines as percentages of their sum.
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
