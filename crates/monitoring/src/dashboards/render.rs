//! Renders panels as classic Grafana JSON, schema version 39.

use serde_json::{Map, Value, json};

use super::datasource;
use super::panel::{Colour, Kind, Link, Panel, Query};
use super::query::expanded;

/// Default text for an absent value. An idle proxy has no values, which is not an error.
const NO_TRAFFIC: &str = "No traffic";

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
            matches!(self.kind, Kind::XyChart).then(|| ("pluginVersion", "11.1.0".into()));
        with(panel, version)
    }

    fn targets(&self) -> Value {
        (self.queries().iter().enumerate()).map(|(at, query)| self.target(at, query)).collect()
    }

    fn target(&self, at: usize, query: &Query) -> Value {
        let text = expanded(&query.text);
        let (instant, format) = match self.kind {
            Kind::Stat | Kind::BarGauge => (true, "time_series"),
            Kind::Table => (true, "table"),
            Kind::Heatmap => (false, "heatmap"),
            Kind::TimeSeries | Kind::XyChart | Kind::StateTimeline => (false, "time_series"),
        };
        // Exemplars need a time axis. Only histograms of durations have exemplars that link to traces.
        let exemplar = matches!(self.kind, Kind::TimeSeries | Kind::Heatmap)
            && text.contains("_seconds_bucket");
        let legend = match (query.name.as_str(), self.kind) {
            ("", Kind::Heatmap) => "{{le}}",
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
            ("min", self.min.map(Value::from)),
            ("max", self.max.map(Value::from)),
            ("decimals", self.decimals.map(Value::from)),
        ];
        let defaults = json!({
            "unit": self.unit,
            "noValue": self.empty(),
            "mappings": self.mappings(),
            "thresholds": self.thresholds(),
            "color": { "mode": self.colour_mode() },
            "custom": self.custom(),
        });
        with(defaults, numbers.into_iter().filter_map(|(name, value)| Some((name, value?))))
    }

    fn empty(&self) -> &str {
        self.empty.as_deref().unwrap_or(NO_TRAFFIC)
    }

    fn mappings(&self) -> Value {
        // NaN is the result of 0 ÷ 0 and is not an error, because there were no events to divide by.
        let nan = json!({
            "type": "special",
            "options": { "match": "nan", "result": { "index": 0, "text": self.empty() } },
        });
        if self.values.is_empty() {
            return json!([nan]);
        }
        let values: Map<String, Value> = (self.values.iter().enumerate())
            .map(|(at, (number, text, colour))| {
                (number.to_string(), json!({ "color": colour, "index": at, "text": text }))
            })
            .collect();
        json!([nan, { "type": "value", "options": values }])
    }

    fn thresholds(&self) -> Value {
        let (base, steps) = match &self.thresholds {
            Some(thresholds) => (thresholds.base, &thresholds.steps),
            None => (Colour::Text, &self.threshold_lines),
        };
        let base = json!({ "color": base, "value": null });
        let steps = steps.iter().map(|(value, colour)| json!({ "color": colour, "value": value }));
        let steps: Vec<Value> = std::iter::once(base).chain(steps).collect();
        json!({ "mode": "absolute", "steps": steps })
    }

    const fn colour_mode(&self) -> &'static str {
        match self.kind {
            Kind::Stat | Kind::BarGauge | Kind::Table | Kind::StateTimeline => "thresholds",
            Kind::TimeSeries | Kind::Heatmap | Kind::XyChart => "palette-classic",
        }
    }

    /// Returns the field options of this panel type.
    fn custom(&self) -> Value {
        match self.kind {
            Kind::TimeSeries => self.drawing_style(),
            Kind::Table => json!({
                "align": "auto",
                "cellOptions": { "type": "auto" },
                "filterable": false,
            }),
            Kind::StateTimeline => json!({ "fillOpacity": 80, "lineWidth": 0 }),
            Kind::XyChart => json!({
                "show": "points",
                "pointSize": { "fixed": 5 },
                "axisSoftMin": 0,
            }),
            Kind::Heatmap => json!({ "scaleDistribution": { "type": "linear" } }),
            Kind::Stat | Kind::BarGauge => json!({}),
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
        with(style, (!self.logarithmic).then(|| ("axisSoftMin", 0.into())))
    }

    /// Returns the properties of single fields that differ from the properties of the panel.
    fn overrides(&self) -> Value {
        let unit = |unit: &str| json!({ "id": "unit", "value": unit });
        let axes = self.right_axis.iter().map(|(name, line)| {
            let right = json!({ "id": "custom.axisPlacement", "value": "right" });
            by_name(name, &[unit(&line.unit), right])
        });
        let colours = self.colours.iter().map(|(name, colour)| {
            let fixed = json!({ "mode": "fixed", "fixedColor": colour });
            by_name(name, &[json!({ "id": "color", "value": fixed })])
        });
        let columns =
            self.columns.iter().map(|(name, column)| by_name(name, &[unit(&column.unit)]));
        let keys = self.keys.values().map(|title| by_name(title, &[unit("string")]));
        let links = self.links.iter().map(|Link { column, title, url }| {
            let link = json!({ "title": title, "url": url, "targetBlank": false });
            by_name(column, &[json!({ "id": "links", "value": [link] })])
        });
        axes.chain(colours).chain(columns).chain(keys).chain(links).collect()
    }

    fn transformations(&self) -> Value {
        match self.kind {
            Kind::Table => self.table_columns(),
            // Joins all lines into one frame with one column per line, so that one line can be the axis of
            // another.
            Kind::XyChart => json!([
                { "id": "joinByField", "options": { "byField": "Time", "mode": "outer" } },
            ]),
            Kind::Stat
            | Kind::TimeSeries
            | Kind::Heatmap
            | Kind::BarGauge
            | Kind::StateTimeline => json!([]),
        }
    }

    /// Returns the transformation of query results into table rows. Each key gets one row, and the columns have
    /// their titles and the order of the definition.
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
        let reduced = json!({ "calcs": ["lastNotNull"], "fields": "", "values": false });
        match self.kind {
            Kind::Stat => json!({
                "colorMode": if self.thresholds.is_some() { "background" } else { "none" },
                "graphMode": "none",
                "justifyMode": "auto",
                "orientation": "auto",
                "reduceOptions": reduced,
                "textMode": "auto",
            }),
            Kind::TimeSeries => json!({
                "legend": legend,
                "tooltip": { "mode": "multi", "sort": "desc" },
            }),
            Kind::Heatmap => heatmap_options(&self.unit),
            Kind::BarGauge => json!({
                "displayMode": "basic",
                "orientation": "horizontal",
                "reduceOptions": reduced,
                "showUnfilled": true,
                "valueMode": "text",
            }),
            Kind::Table => json!({ "cellHeight": "sm", "showHeader": true }),
            Kind::XyChart => self.xy_options(&legend),
            Kind::StateTimeline => json!({
                "alignValue": "left",
                "legend": legend,
                "mergeValues": true,
                "rowHeight": 0.9,
                "showValue": "never",
                "tooltip": { "mode": "single", "sort": "none" },
            }),
        }
    }

    /// Returns the options of a scatter chart. From version 11.1, Grafana reads `mapping` and `series`. Version
    /// 10.4 reads `dims` instead, and draws every other line over the `x` of `dims`.
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

/// Adds `fields` to a JSON object.
fn with(mut object: Value, fields: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    if let Some(object) = object.as_object_mut() {
        object.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
    }
    object
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
