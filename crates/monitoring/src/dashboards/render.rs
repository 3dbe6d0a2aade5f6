//! Renders panels as classic Grafana JSON, schema version 39.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::panel::{Drawing, Kind, Panel, Query, Stacking, Table};
use super::query::expanded;
use super::unit::Unit;
use super::{Place, datasource, merged};

impl Panel {
    pub(super) fn json(&self, id: u32, place: Place) -> Value {
        let common = json!({
            "id": id,
            "title": self.title,
            "description": self.description,
            "type": self.type_name(),
            "gridPos": place.json(),
            "options": self.options(),
        });
        if let Kind::Text(_) = self.kind {
            return common;
        }
        let asks = json!({
            "datasource": datasource(),
            "fieldConfig": { "defaults": self.defaults(), "overrides": self.overrides() },
            "targets": self.targets(),
            "transformations": self.transformations(),
        });
        let panel = merged(common, asks);
        match self.kind {
            // Grafana 11.0 treats a chart without a version as the previous format and converts it.
            Kind::XyChart => merged(panel, json!({ "pluginVersion": "11.1.0" })),
            Kind::Stat
            | Kind::TimeSeries(_)
            | Kind::Heatmap
            | Kind::BarGauge
            | Kind::Table(_)
            | Kind::StateTimeline
            | Kind::Text(_) => panel,
        }
    }

    fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Stat => "stat",
            Kind::TimeSeries(_) => "timeseries",
            Kind::Heatmap => "heatmap",
            Kind::BarGauge => "bargauge",
            Kind::Table(_) => "table",
            Kind::XyChart => "xychart",
            Kind::StateTimeline => "state-timeline",
            Kind::Text(_) => "text",
        }
    }

    fn targets(&self) -> Value {
        (self.queries.iter().enumerate()).map(|(at, query)| self.target(at, query)).collect()
    }

    fn target(&self, at: usize, query: &Query) -> Value {
        let text = expanded(&query.text);
        let (instant, format) = match self.kind {
            Kind::Stat | Kind::BarGauge => (true, "time_series"),
            Kind::Table(_) => (true, "table"),
            Kind::Heatmap => (false, "heatmap"),
            Kind::TimeSeries(_) | Kind::XyChart | Kind::StateTimeline | Kind::Text(_) => {
                (false, "time_series")
            }
        };
        // Exemplars need a time axis, and only histograms of durations link to traces.
        let exemplar = match self.kind {
            Kind::TimeSeries(_) | Kind::Heatmap => text.contains("_seconds_bucket"),
            Kind::Stat
            | Kind::BarGauge
            | Kind::Table(_)
            | Kind::XyChart
            | Kind::StateTimeline
            | Kind::Text(_) => false,
        };
        let legend = match (query.name, &self.kind) {
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
        let mut defaults = json!({
            "unit": self.unit.as_str(),
            "noValue": self.empty,
            "mappings": self.mappings(),
            "thresholds": self.thresholds(),
            "color": { "mode": self.colour_mode() },
            "custom": self.custom(),
        });
        if let Some(fields) = defaults.as_object_mut() {
            let (least, most) = self.range;
            let optional = [
                ("min", least.map(Value::from)),
                ("max", most.map(Value::from)),
                ("decimals", self.decimals.map(Value::from)),
            ];
            for (name, value) in optional {
                if let Some(value) = value {
                    fields.insert(name.into(), value);
                }
            }
        }
        defaults
    }

    fn mappings(&self) -> Value {
        // NaN from 0 ÷ 0 is not an error: the denominator was empty.
        let nan = json!({
            "type": "special",
            "options": { "match": "nan", "result": { "index": 0, "text": self.empty } },
        });
        let words: Map<String, Value> = (self.words.iter().enumerate())
            .map(|(at, (number, word, colour))| {
                let said = json!({ "color": colour.as_str(), "index": at, "text": word });
                (number.to_string(), said)
            })
            .collect();
        if words.is_empty() {
            json!([nan])
        } else {
            json!([nan, { "type": "value", "options": words }])
        }
    }

    fn thresholds(&self) -> Value {
        let mut steps = vec![match &self.judgement {
            Some(judgement) => json!({ "color": judgement.base.as_str(), "value": null }),
            None => json!({ "color": "text", "value": null }),
        }];
        for (value, colour) in self.judgement.iter().flat_map(|judgement| &judgement.steps) {
            steps.push(json!({ "color": colour.as_str(), "value": value }));
        }
        json!({ "mode": "absolute", "steps": steps })
    }

    fn colour_mode(&self) -> &'static str {
        match self.kind {
            Kind::Stat | Kind::BarGauge | Kind::Table(_) | Kind::StateTimeline => "thresholds",
            Kind::TimeSeries(_) | Kind::Heatmap | Kind::XyChart | Kind::Text(_) => {
                "palette-classic"
            }
        }
    }

    /// Returns the field options of this panel type.
    fn custom(&self) -> Value {
        match &self.kind {
            Kind::TimeSeries(drawing) => self.drawn_as(*drawing),
            Kind::Table(_) => json!({
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
            Kind::Stat | Kind::BarGauge | Kind::Text(_) => json!({}),
        }
    }

    fn drawn_as(&self, drawing: Drawing) -> Value {
        let stacking = match drawing.stacking {
            Stacking::None => "none",
            Stacking::Normal => "normal",
            Stacking::Share => "percent",
        };
        let scale = if drawing.logarithmic {
            json!({ "type": "log", "log": 10 })
        } else {
            json!({ "type": "linear" })
        };
        let lines = (self.judgement.as_ref()).is_some_and(|judgement| judgement.lines);
        let mut custom = json!({
            "drawStyle": if drawing.bars { "bars" } else { "line" },
            "fillOpacity": if drawing.stacking == Stacking::None { 10 } else { 60 },
            "lineWidth": 1,
            "lineInterpolation": "linear",
            "pointSize": 4,
            "scaleDistribution": scale,
            "showPoints": "auto",
            "spanNulls": false,
            "stacking": { "group": "A", "mode": stacking },
            "thresholdsStyle": { "mode": if lines { "dashed" } else { "off" } },
        });
        if let (false, Some(fields)) = (drawing.logarithmic, custom.as_object_mut()) {
            fields.insert("axisSoftMin".into(), json!(0));
        }
        custom
    }

    fn overrides(&self) -> Value {
        let axes = self.axes.iter().map(|(name, unit)| {
            by_name(
                name,
                &[
                    json!({ "id": "unit", "value": unit.as_str() }),
                    json!({ "id": "custom.axisPlacement", "value": "right" }),
                ],
            )
        });
        let colours = self.colours.iter().map(|(name, colour)| {
            let fixed = json!({ "mode": "fixed", "fixedColor": colour.as_str() });
            by_name(name, &[json!({ "id": "color", "value": fixed })])
        });
        let columns = self.queries.iter().filter_map(|query| {
            let unit = query.unit?;
            Some(by_name(query.name, &[json!({ "id": "unit", "value": unit.as_str() })]))
        });
        let keys = match &self.kind {
            Kind::Table(table) => table.keys.as_slice(),
            Kind::Stat
            | Kind::TimeSeries(_)
            | Kind::Heatmap
            | Kind::BarGauge
            | Kind::XyChart
            | Kind::StateTimeline
            | Kind::Text(_) => &[],
        };
        let keys = keys.iter().map(|(_, title)| {
            by_name(title, &[json!({ "id": "unit", "value": Unit::Text.as_str() })])
        });
        let mut linked: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for link in &self.links {
            let to = json!({ "title": link.title, "url": link.url, "targetBlank": false });
            linked.entry(link.column).or_default().push(to);
        }
        let links = linked
            .into_iter()
            .map(|(column, to)| by_name(column, &[json!({ "id": "links", "value": to })]));
        axes.chain(colours).chain(columns).chain(keys).chain(links).collect()
    }

    fn transformations(&self) -> Value {
        match &self.kind {
            Kind::Table(table) => self.organised(table),
            // Joins all lines into one frame with a column each, so that one line can be the axis of another.
            Kind::XyChart => json!([
                { "id": "joinByField", "options": { "byField": "Time", "mode": "outer" } },
            ]),
            Kind::Stat
            | Kind::TimeSeries(_)
            | Kind::Heatmap
            | Kind::BarGauge
            | Kind::StateTimeline
            | Kind::Text(_) => json!([]),
        }
    }

    /// Returns the transformation to one row per key, with columns in definition order and with their titles.
    fn organised(&self, table: &Table) -> Value {
        let keys = table.keys.iter().map(|(label, title)| ((*label).to_owned(), *title));
        let values = (self.queries.iter().enumerate()).map(|(at, query)| {
            // With several queries, Grafana appends the query id to the name of the value column. With one query, it
            // does not.
            let column = match self.queries.len() {
                1 => "Value".to_owned(),
                _ => format!("Value #{}", ref_id(at)),
            };
            (column, query.name)
        });
        let mut order = Map::new();
        let mut titles = Map::new();
        for (at, (column, title)) in keys.chain(values).enumerate() {
            order.insert(column.clone(), json!(at));
            titles.insert(column, json!(title));
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
        match &self.kind {
            Kind::Stat => json!({
                "colorMode": if self.judgement.is_some() { "background" } else { "none" },
                "graphMode": "none",
                "justifyMode": "auto",
                "orientation": "auto",
                "reduceOptions": reduced,
                "textMode": "auto",
            }),
            Kind::TimeSeries(_) => json!({
                "legend": legend,
                "tooltip": { "mode": "multi", "sort": "desc" },
            }),
            Kind::Heatmap => heatmap_options(self.unit),
            Kind::BarGauge => json!({
                "displayMode": "basic",
                "orientation": "horizontal",
                "reduceOptions": reduced,
                "showUnfilled": true,
                "valueMode": "text",
            }),
            Kind::Table(_) => json!({ "cellHeight": "sm", "showHeader": true }),
            Kind::XyChart => self.xy_options(&legend),
            Kind::StateTimeline => json!({
                "alignValue": "left",
                "legend": legend,
                "mergeValues": true,
                "rowHeight": 0.9,
                "showValue": "never",
                "tooltip": { "mode": "single", "sort": "none" },
            }),
            Kind::Text(markdown) => json!({ "mode": "markdown", "content": markdown }),
        }
    }

    /// Returns chart options. Grafana reads `mapping` and `series` from version 11.1. Version 10.4 reads `dims` instead
    /// and draws every other line over its `x`.
    fn xy_options(&self, legend: &Value) -> Value {
        let by_name = |name: &str| json!({ "matcher": { "id": "byName", "options": name } });
        let mut names = self.queries.iter().map(|query| query.name);
        let x = names.next().unwrap_or_default();
        let series: Vec<Value> = names
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

fn heatmap_options(unit: Unit) -> Value {
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
        "yAxis": { "axisPlacement": "left", "reverse": false, "unit": unit.as_str() },
    })
}

/// Returns an override for the field with this name.
fn by_name(name: &str, properties: &[Value]) -> Value {
    json!({ "matcher": { "id": "byName", "options": name }, "properties": properties })
}

/// Returns Grafana's query id: A to Z, then AA.
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
    fn queries_are_counted_as_grafana_does() {
        let ids: Vec<String> = [0, 1, 25, 26, 27].into_iter().map(ref_id).collect();
        assert_eq!(ids, ["A", "B", "Z", "AA", "AB"]);
    }
}
