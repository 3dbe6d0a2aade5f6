//! Panel definitions: visualization, unit and queries.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::query::expanded;

/// A dashboard panel.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Panel {
    pub(super) title: String,
    #[serde(rename = "type")]
    pub(super) kind: PanelKind,
    /// Unit of the values, in Grafana's notation. `count:tok/s` scales by thousands and appends `tok/s`. `suffix:×`
    /// only appends `×`.
    pub(super) unit: String,
    /// Description of the panel, which names the metrics and the formula.
    pub(super) description: String,
    /// Width in columns (of 24) and height in rows of 30 pixels. If `None`, the row or the panel type determines the
    /// size.
    pub(super) size: Option<(u32, u32)>,
    /// Labels that identify the rows of a table, with the column title of each label. The results of all queries must
    /// have these labels.
    pub(super) keys: IndexMap<String, String>,
    /// Columns of a table. A scatter chart has one column, which is the horizontal axis of all lines.
    pub(super) columns: IndexMap<String, Column>,
    /// Query of a panel that has only one query. Grafana chooses the legend.
    pub(super) query: Option<String>,
    pub(super) percentiles: Option<Percentiles>,
    /// Queries of the lines, by legend. `{{label}}` in a legend is replaced with a label value.
    pub(super) lines: IndexMap<String, String>,
    /// Lines with a different unit, whose axis is on the right side. Their legend must not contain `{{label}}`.
    pub(super) right_axis: IndexMap<String, Column>,
    pub(super) stacked: bool,
    pub(super) bars: bool,
    pub(super) logarithmic: bool,
    pub(super) thresholds: Option<Thresholds>,
    /// Values at which a horizontal line is drawn, with the colour of the line.
    pub(super) threshold_lines: Vec<(f64, Colour)>,
    /// Fixed colours of lines, by displayed legend.
    pub(super) colours: IndexMap<String, Colour>,
    /// Text and colour that are shown in place of specific values.
    pub(super) values: Vec<(f64, String, Colour)>,
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
    pub(super) decimals: Option<u32>,
    /// Column by which the rows of a table are sorted, so that the most important rows are at the top.
    pub(super) sort: Option<(String, Order)>,
    /// Widths of table columns with long texts, in pixels. The other columns share the rest.
    pub(super) widths: IndexMap<String, u32>,
    /// Colours of texts in key columns of a table: by column title, and then by text.
    pub(super) text_colours: IndexMap<String, IndexMap<String, Colour>>,
    /// Text for an absent value. If `None`, the text is `No traffic`, or `–` in a table.
    pub(super) empty: Option<String>,
    pub(super) links: Vec<Link>,
    /// Dashboards that a viewer can open from each value. The links keep the variables and the time range.
    pub(super) opens: Vec<Destination>,
}

/// A dashboard of this set to which values link.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Destination {
    Overview,
    Slo,
    Streaming,
    Saturation,
    Workload,
    Health,
}

/// Grafana's visualization types.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PanelKind {
    /// A single current value.
    Stat,
    #[default]
    #[serde(rename = "timeseries")]
    TimeSeries,
    /// A distribution over time. The panel has one query, grouped by `le`. The panel's unit applies to the bucket
    /// bounds.
    Heatmap,
    /// Current values, with one bar per line.
    #[serde(rename = "bargauge")]
    BarGauge,
    /// Current values in a table, with one row per combination of keys and one column per query.
    Table,
    /// A scatter chart.
    #[serde(rename = "xychart")]
    XyChart,
    /// States over time, with one bar per line. `Panel::values` gives the names of the states.
    StateTimeline,
}

/// A query with its own unit, which can differ from the unit of the panel.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Column {
    pub(super) unit: String,
    pub(super) query: String,
    /// Text and colour that are shown in place of specific values of a table column.
    #[serde(default)]
    pub(super) values: Vec<(f64, String, Colour)>,
    /// Colours of the texts of a table column.
    pub(super) thresholds: Option<Thresholds>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Order {
    Ascending,
    Descending,
}

/// Percentiles of a histogram over all selected series, shown as lines such as `p50`. Without events, the lines are
/// absent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Percentiles {
    /// Selector of the histogram's buckets, such as `x_seconds_bucket{<call>}`.
    pub(super) of: String,
    pub(super) at: Vec<u8>,
}

/// Colours of good and bad values. Only values that may require action have such colours.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Thresholds {
    /// Colour of values below the first step.
    pub(super) base: Colour,
    /// Colours from a given value upward.
    pub(super) steps: Vec<(f64, Colour)>,
}

/// A link on the values of a table column.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Link {
    pub(super) column: String,
    pub(super) title: String,
    pub(super) url: String,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Colour {
    Green,
    Yellow,
    Orange,
    Red,
    Blue,
    /// The colour of the surrounding text.
    Text,
}

/// A query of a panel. The result is a column in a table, and a line in any other panel.
pub(super) struct Query {
    /// Legend of a line or title of a column. If empty, Grafana chooses the legend.
    pub(super) name: String,
    /// PromQL with markers.
    pub(super) text: String,
}

impl Panel {
    pub(super) fn new(kind: PanelKind, title: &str, unit: &str, description: &str) -> Self {
        let [title, unit, description] = [title, unit, description].map(Into::into);
        Self { kind, title, unit, description, ..Self::default() }
    }

    /// Returns whether at least one query of the panel filters by the dashboard variable `variable`.
    pub(super) fn filters_by(&self, variable: &str) -> bool {
        let matcher = format!("${variable}\"");
        self.queries().iter().any(|query| expanded(&query.text).contains(&matcher))
    }

    pub(super) const fn default_size(&self) -> (u32, u32) {
        match self.kind {
            PanelKind::Stat => (4, 4),
            PanelKind::TimeSeries | PanelKind::Heatmap | PanelKind::StateTimeline => (12, 8),
            PanelKind::BarGauge => (8, 8),
            PanelKind::Table => (24, 8),
            PanelKind::XyChart => (12, 9),
        }
    }

    /// Returns all queries in display order.
    pub(super) fn queries(&self) -> Vec<Query> {
        let query =
            |(name, text): (&String, &String)| Query { name: name.clone(), text: text.clone() };
        let column = |(name, column): (&String, &Column)| Query {
            name: name.clone(),
            text: column.query.clone(),
        };
        let single = self.query.iter().map(|text| query((&String::new(), text)));
        let percentiles = self.percentiles.iter().flat_map(Percentiles::queries);
        let mut all: Vec<Query> = self.columns.iter().map(column).collect();
        all.extend(single.chain(percentiles));
        all.extend(self.lines.iter().map(query));
        all.extend(self.right_axis.iter().map(column));
        all
    }
}

impl Destination {
    const fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Slo => "SLOs",
            Self::Streaming => "Streaming quality",
            Self::Saturation => "Saturation",
            Self::Workload => "Workload and cost",
            Self::Health => "Own health",
        }
    }

    /// Returns a link that keeps all variables and the time range.
    pub(super) fn link(self) -> Value {
        let name = format!("{self:?}").to_lowercase();
        let url = format!("/d/tokengauge-{name}?${{__url_time_range}}&${{__all_variables}}");
        json!({ "title": self.title(), "url": url, "targetBlank": false })
    }
}

impl Percentiles {
    fn queries(&self) -> impl Iterator<Item = Query> {
        self.at.iter().map(|at| Query {
            name: format!("p{at}"),
            text: format!(
                "histogram_quantile({}, sum by (le) (rate({}[$__rate_interval]))) >= 0",
                f64::from(*at) / 100.0,
                self.of
            ),
        })
    }
}
