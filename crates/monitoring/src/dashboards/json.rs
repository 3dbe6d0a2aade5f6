//! Renders panels as classic Grafana JSON, schema version 39.

use serde_json::{Map, Value, json};

use super::panel::{Colour, Column, Link, Order, Panel, PanelKind, Query, Thresholds};
use super::query::expanded;
use super::variables::Scope;
use super::{datasource, standard_variables};
use crate::alerts;

/// Default text for an absent value. A proxy without requests has no values, which is not an error.
const NO_TRAFFIC: &str = "No traffic";
/// Default text for an absent cell of a table. Other cells of the same row can have values.
const NO_CELL: &str = "–";
/// Colour of an absent value: neither good nor bad.
const NEUTRAL: &str = "#808080";
/// Currencies for which Grafana has a unit. For other currencies, only the legend shows the currency.
const CURRENCIES: [&str; 5] = ["USD", "EUR", "GBP", "JPY", "INR"];
/// Minimum width of a table column in pixels. With Grafana's default of 150, a table with five or more columns needs
/// scrolling.
const NARROWEST_COLUMN: u32 = 60;
/// Lowest upper end of a percentage axis. Without this limit, Grafana draws a line of zeros on an axis up to 10,000 %.
const SMALLEST_PERCENT_AXIS: f64 = 0.01;

impl Panel {
    /// Returns the panel at the position `place`.
    pub(super) fn json(&self, id: u32, place: &Value) -> Value {
        let panel = json!({
            "id": id,
            "title": self.title,
            "description": self.description,
            "type": self.kind,
            "gridPos": place,
            "options": self.options(),
            "datasource": datasource(),
            "fieldConfig": { "defaults": self.defaults(), "overrides": self.overrides() },
            "targets": self.targets(),
            "transformations": self.transformations(),
        });
        // Without a version, Grafana 11.0 treats a scatter chart as the previous format and converts the chart.
        let version =
            matches!(self.kind, PanelKind::XyChart).then(|| ("pluginVersion", "11.1.0".into()));
        with(panel, version)
    }

    fn targets(&self) -> Value {
        (self.queries().iter().enumerate()).map(|(at, query)| self.target(at, query)).collect()
    }

    fn target(&self, at: usize, query: &Query) -> Value {
        let text = expanded(&query.text);
        let text = if self.has_sparkline() { with_gaps(&text) } else { text };
        let (instant, format) = match self.kind {
            PanelKind::Stat | PanelKind::BarGauge => (!self.has_sparkline(), "time_series"),
            PanelKind::Table => (true, "table"),
            PanelKind::Heatmap => (false, "heatmap"),
            PanelKind::TimeSeries | PanelKind::XyChart | PanelKind::StateTimeline => {
                (false, "time_series")
            }
        };
        // Only histograms of durations have exemplars that link to traces. All percentiles of a panel have the
        // same exemplars, and exemplars hide the cells of a heat map and mean nothing on an axis of ratios.
        let exemplar = at == 0
            && matches!(self.kind, PanelKind::TimeSeries)
            && self.unit == "s"
            && text.contains("_seconds_bucket");
        let legend = match (query.name.as_str(), self.kind) {
            ("", PanelKind::Heatmap) => "{{le}}",
            ("", _) => "__auto",
            (name, _) => name,
        };
        json!({
            "datasource": datasource(),
            "editorMode": "code",
            "exemplar": exemplar,
            "expr": text,
            "format": format,
            "instant": instant,
            "legendFormat": legend,
            "range": !instant,
            "refId": ref_id(at),
        })
    }

    fn defaults(&self) -> Value {
        let numbers = [
            ("min", self.min.or_else(|| self.default_min()).map(Value::from)),
            ("max", self.max.map(Value::from)),
            ("decimals", self.decimals.map(Value::from)),
        ];
        // On a logarithmic axis, Grafana up to 11.1 prints `noValue` in place of tick labels.
        let no_value = (!self.logarithmic).then(|| ("noValue", self.empty().into()));
        let defaults = json!({
            "unit": self.unit,
            "links": self.opens.iter().map(|dashboard| dashboard.link()).collect::<Vec<_>>(),
            "mappings": self.mappings(),
            "thresholds": self.thresholds(),
            "color": { "mode": self.colour_mode() },
            "custom": self.custom(),
        });
        let numbers = numbers.into_iter().filter_map(|(name, value)| Some((name, value?)));
        with(defaults, numbers.chain(no_value))
    }

    /// Returns the start of the scale. Bars start at 0, because bars that start at the lowest value have misleading
    /// lengths.
    fn default_min(&self) -> Option<f64> {
        matches!(self.kind, PanelKind::BarGauge).then_some(0.0)
    }

    /// Returns whether the panel draws the history of its value in the background. Several values leave no room.
    fn has_sparkline(&self) -> bool {
        matches!(self.kind, PanelKind::Stat) && self.query.is_some()
    }

    fn empty(&self) -> &str {
        let default = if matches!(self.kind, PanelKind::Table) { NO_CELL } else { NO_TRAFFIC };
        self.empty.as_deref().unwrap_or(default)
    }

    fn mappings(&self) -> Value {
        // Ticks of a logarithmic axis have no value, so that Grafana would label them with this text.
        if self.logarithmic {
            return json!([]);
        }
        // An absent value is not an error, and neither is NaN, the result of 0 ÷ 0. Without this mapping, Grafana
        // gives them the colour of the lowest threshold.
        let result = json!({ "index": 0, "text": self.empty(), "color": NEUTRAL });
        let absent = json!({
            "type": "special",
            "options": { "match": "null+nan", "result": result },
        });
        std::iter::once(absent).chain(named_values(&self.values)).collect()
    }

    fn thresholds(&self) -> Value {
        match &self.thresholds {
            Some(Thresholds { base, steps }) => threshold_steps(*base, steps),
            None => threshold_steps(Colour::Text, &self.threshold_lines),
        }
    }

    const fn colour_mode(&self) -> &'static str {
        match self.kind {
            PanelKind::Stat | PanelKind::BarGauge | PanelKind::Table => "thresholds",
            // The legend of a state timeline lists thresholds instead of states in the mode "thresholds".
            PanelKind::TimeSeries
            | PanelKind::Heatmap
            | PanelKind::XyChart
            | PanelKind::StateTimeline => "palette-classic",
        }
    }

    /// Returns the field options of this panel type.
    fn custom(&self) -> Value {
        match self.kind {
            PanelKind::TimeSeries => self.drawing_style(),
            PanelKind::Table => json!({
                "align": "auto",
                "cellOptions": { "type": "auto" },
                "filterable": false,
                "minWidth": NARROWEST_COLUMN,
            }),
            PanelKind::StateTimeline => json!({ "fillOpacity": 80, "lineWidth": 0 }),
            PanelKind::XyChart => json!({
                "show": "points",
                "pointSize": { "fixed": 5 },
                "axisSoftMin": 0,
            }),
            PanelKind::Heatmap => json!({ "scaleDistribution": { "type": "linear" } }),
            PanelKind::Stat | PanelKind::BarGauge => json!({}),
        }
    }

    fn drawing_style(&self) -> Value {
        let threshold_style = if self.threshold_lines.is_empty() { "off" } else { "dashed" };
        let scale = if self.logarithmic {
            json!({ "type": "log", "log": 10 })
        } else {
            json!({ "type": "linear" })
        };
        let style = json!({
            "drawStyle": if self.bars { "bars" } else { "line" },
            "fillOpacity": if self.stacked { 60 } else { 10 },
            "lineWidth": 1,
            "lineInterpolation": "linear",
            "pointSize": 4,
            "scaleDistribution": scale,
            "showPoints": "auto",
            "spanNulls": false,
            "stacking": { "group": "A", "mode": if self.stacked { "normal" } else { "none" } },
            "thresholdsStyle": { "mode": threshold_style },
        });
        let soft_min = (!self.logarithmic).then(|| ("axisSoftMin", 0.into()));
        let is_open = self.unit == "percentunit" && self.max.is_none();
        let soft_max = is_open.then(|| ("axisSoftMax", SMALLEST_PERCENT_AXIS.into()));
        with(style, soft_min.into_iter().chain(soft_max))
    }

    /// Returns the overrides of single lines or columns, such as a unit that differs from the panel's.
    fn overrides(&self) -> Value {
        let unit = |unit: &str| property("unit", &unit.into());
        let axes = self.right_axis.iter().map(|(name, line)| {
            let right = json!({ "id": "custom.axisPlacement", "value": "right" });
            by_name(name, &[unit(&line.unit), right])
        });
        let colours = self.colours.iter().map(|(name, colour)| {
            let fixed = json!({ "mode": "fixed", "fixedColor": colour });
            by_name(name, &[json!({ "id": "color", "value": fixed })])
        });
        let columns = self.columns.iter().map(|(name, column)| by_name(name, &column.properties()));
        let keys = self.keys.values().map(|title| by_name(title, &[unit("string")]));
        let texts = self.text_colours.iter().map(|(title, colours)| {
            let colour = |(index, (text, colour)): (usize, (&String, &Colour))| {
                (text.clone(), json!({ "color": colour, "index": index }))
            };
            let options: Map<String, Value> = colours.iter().enumerate().map(colour).collect();
            let mapping = json!({ "type": "value", "options": options });
            by_name(title, &[property("mappings", &json!([mapping])), coloured_text()])
        });
        let width = |(title, width): (&String, &u32)| {
            by_name(title, &[property("custom.width", &json!(width))])
        };
        let widths = self.widths.iter().map(width);
        let links = self.links.iter().map(|Link { column, title, url }| {
            let link = json!({ "title": title, "url": expanded_url(url), "targetBlank": false });
            by_name(column, &[json!({ "id": "links", "value": [link] })])
        });
        axes.chain(self.currencies())
            .chain(colours)
            .chain(columns)
            .chain(keys)
            .chain(texts)
            .chain(widths)
            .chain(links)
            .collect()
    }

    /// Returns overrides that set the currency as the unit of amounts. The legend of an amount ends with its currency.
    fn currencies(&self) -> Vec<Value> {
        if !self.lines.keys().any(|legend| legend.contains("tokengauge_currency")) {
            return Vec::new();
        }
        let currency = |code: &&str| {
            let unit = json!({ "id": "unit", "value": format!("currency{code}") });
            json!({
                "matcher": { "id": "byRegexp", "options": format!("/{code}$/") },
                "properties": [unit],
            })
        };
        CURRENCIES.iter().map(currency).collect()
    }

    fn transformations(&self) -> Value {
        match self.kind {
            PanelKind::Table => self.table_columns(),
            // Joins all lines into one frame with one column per line, so that one line can be the axis of
            // another.
            PanelKind::XyChart => json!([
                { "id": "joinByField", "options": { "byField": "Time", "mode": "outer" } },
            ]),
            PanelKind::Stat
            | PanelKind::TimeSeries
            | PanelKind::Heatmap
            | PanelKind::BarGauge
            | PanelKind::StateTimeline => json!([]),
        }
    }

    /// Returns the transformation of query results into table rows. Each combination of key labels gets one row. The
    /// columns have the titles and the order of the panel definition.
    fn table_columns(&self) -> Value {
        let keys = self.keys.iter().map(|(label, title)| (label.clone(), title));
        let values = self.columns.keys().enumerate().map(|(at, title)| {
            // With several queries, Grafana appends the query id to the name of the value column. With a single
            // query, Grafana does not append the id.
            let field = match self.columns.len() {
                1 => "Value".to_owned(),
                _ => format!("Value #{}", ref_id(at)),
            };
            (field, title)
        });
        let mut order = Map::new();
        let mut titles = Map::new();
        for (at, (field, title)) in keys.chain(values).enumerate() {
            order.insert(field.clone(), json!(at));
            titles.insert(field, json!(title));
        }
        json!([
            { "id": "merge", "options": {} },
            {
                "id": "organize",
                "options": {
                    "excludeByName": { "Time": true },
                    "indexByName": order,
                    "renameByName": titles,
                },
            },
        ])
    }

    fn options(&self) -> Value {
        let legend = json!({
            "calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": true,
        });
        // The last value of a range is the current value only if the range has a value where the query has none.
        let calculation = if self.has_sparkline() { "last" } else { "lastNotNull" };
        let reduced = json!({ "calcs": [calculation], "fields": "", "values": false });
        match self.kind {
            PanelKind::Stat => json!({
                "colorMode": self.coloured_part(),
                "graphMode": if self.has_sparkline() { "area" } else { "none" },
                "justifyMode": "auto",
                "orientation": "auto",
                "reduceOptions": reduced,
                "textMode": "auto",
            }),
            PanelKind::TimeSeries => json!({
                "legend": legend,
                "tooltip": { "mode": "multi", "sort": "desc" },
            }),
            PanelKind::Heatmap => heatmap_options(&self.unit),
            PanelKind::BarGauge => json!({
                "displayMode": "basic",
                "orientation": "horizontal",
                "reduceOptions": reduced,
                "showUnfilled": true,
                "valueMode": "text",
            }),
            PanelKind::Table => with(
                json!({ "cellHeight": "sm", "showHeader": true }),
                self.sort.as_ref().map(|(column, order)| {
                    let descending = *order == Order::Descending;
                    ("sortBy", json!([{ "displayName": column, "desc": descending }]))
                }),
            ),
            PanelKind::XyChart => self.xy_options(&legend),
            PanelKind::StateTimeline => json!({
                "alignValue": "left",
                "legend": legend,
                "mergeValues": true,
                "rowHeight": 0.9,
                "showValue": "never",
                "tooltip": { "mode": "single", "sort": "none" },
            }),
        }
    }

    /// Returns whether the threshold colour applies to the text or to the background of a value. The text colour cannot
    /// be a background.
    fn coloured_part(&self) -> &'static str {
        let Some(thresholds) = &self.thresholds else { return "none" };
        let mut colours = thresholds.steps.iter().map(|(_, colour)| *colour);
        let is_text = |colour| matches!(colour, Colour::Text);
        if is_text(thresholds.base) || colours.any(is_text) { "value" } else { "background" }
    }

    /// Returns the options of a scatter chart. From version 11.1, Grafana reads `mapping` and `series`. Version 10.4
    /// instead reads `dims`, whose `x` is the horizontal axis of all other lines.
    fn xy_options(&self, legend: &Value) -> Value {
        let by_name = |name: &str| json!({ "matcher": { "id": "byName", "options": name } });
        let x = self.columns.keys().next().map_or("", String::as_str);
        let series: Vec<Value> = (self.lines.keys())
            .map(|y| {
                json!({
                    "name": { "fixed": y },
                    "frame": { "matcher": { "id": "byIndex", "options": 0 } },
                    "x": by_name(x),
                    "y": by_name(y),
                })
            })
            .collect();
        json!({
            "dims": { "frame": 0, "x": x },
            "legend": legend,
            "mapping": "manual",
            "series": series,
            "tooltip": { "mode": "single", "sort": "none" },
        })
    }
}

impl Column {
    /// Returns the overrides of a table column: unit, texts and colours of its cells.
    fn properties(&self) -> Vec<Value> {
        let named = named_values(&self.values).map(|named| property("mappings", &json!([named])));
        let steps = |Thresholds { base, steps }: &Thresholds| threshold_steps(*base, steps);
        let steps = self.thresholds.as_ref().map(|all| property("thresholds", &steps(all)));
        let coloured = (named.is_some() || steps.is_some()).then(coloured_text);
        let unit = property("unit", &json!(self.unit));
        std::iter::once(unit).chain(named).chain(steps).chain(coloured).collect()
    }
}

fn threshold_steps(base: Colour, steps: &[(f64, Colour)]) -> Value {
    let base = json!({ "color": base, "value": null });
    let steps = steps.iter().map(|(value, colour)| json!({ "color": colour, "value": value }));
    let steps: Vec<Value> = std::iter::once(base).chain(steps).collect();
    json!({ "mode": "absolute", "steps": steps })
}

/// Returns a property of an override.
fn property(id: &str, value: &Value) -> Value {
    json!({ "id": id, "value": value })
}

/// Returns the property that colours the text of a table cell by thresholds and mappings.
fn coloured_text() -> Value {
    property("custom.cellOptions", &json!({ "type": "color-text" }))
}

fn heatmap_options(unit: &str) -> Value {
    json!({
        "calculate": false,
        "cellGap": 1,
        "color": {
            "exponent": 0.5, "fill": "dark-orange", "mode": "scheme", "reverse": false,
            "scale": "exponential", "scheme": "Oranges", "steps": 64,
        },
        "exemplars": { "color": "rgba(255,0,255,0.7)" },
        "filterValues": { "le": 1e-9 },
        "legend": { "show": true },
        "rowsFrame": { "layout": "auto" },
        "tooltip": { "mode": "single", "showColorScale": false, "yHistogram": true },
        "yAxis": { "axisPlacement": "left", "reverse": false, "unit": unit },
    })
}

/// Expands the markers of a link. `<selection>` stands for the selected time range and for all standard variables
/// except provider and model. `<runbook>` stands for the runbook of the alert in the column `Alert`.
fn expanded_url(url: &str) -> String {
    let kept = standard_variables().filter(|variable| variable.scope < Scope::Call);
    let kept = kept.map(|variable| format!("&${{{}:queryparam}}", variable.name));
    let selection =
        format!("${{__url_time_range}}&${{datasource:queryparam}}{}", kept.collect::<String>());
    let runbook = alerts::values::defaults().links.runbooks.for_alert("${__data.fields.Alert}");
    url.replace("<selection>", &selection).replace("<runbook>", &runbook)
}

/// Extends `query` to return NaN where it has no value. Without NaN, a panel would show the last value before a gap as
/// the current value.
fn with_gaps(query: &str) -> String {
    if query.contains("or vector(") { query.to_owned() } else { format!("{query} or vector(NaN)") }
}

/// Adds `fields` to a JSON object.
fn with(mut object: Value, fields: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    if let Some(object) = object.as_object_mut() {
        object.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
    }
    object
}

/// Returns the mapping of values to texts and colours, or `None` if `values` is empty.
fn named_values(values: &[(f64, String, Colour)]) -> Option<Value> {
    let named = |(at, (number, text, colour)): (usize, &(f64, String, Colour))| {
        (number.to_string(), json!({ "color": colour, "index": at, "text": text }))
    };
    let options: Map<String, Value> = values.iter().enumerate().map(named).collect();
    (!options.is_empty()).then(|| json!({ "type": "value", "options": options }))
}

/// Returns an override for the field with this name.
fn by_name(name: &str, properties: &[Value]) -> Value {
    json!({ "matcher": { "id": "byName", "options": name }, "properties": properties })
}

/// Returns Grafana's id of a query: A to Z, then AA and so on.
fn ref_id(at: usize) -> String {
    const LETTERS: &[u8; 26] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let letter = |at: usize| LETTERS.get(at % 26).copied().map_or('A', char::from);
    match at / 26 {
        0 => letter(at).to_string(),
        more => format!("{}{}", letter(more - 1), letter(at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_queries_as_grafana_does() {
        let ids: Vec<String> = [0, 1, 25, 26, 27].into_iter().map(ref_id).collect();
        assert_eq!(ids, ["A", "B", "Z", "AA", "AB"]);
    }
}
