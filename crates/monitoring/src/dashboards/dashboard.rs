//! Defines dashboards: rows of panels and shared settings. Computes the ids and positions of panels.

use serde::Deserialize;
use serde_json::{Value, json};

use super::panel::Panel;
use super::query::expanded;
use super::variables::{self, Scope, Variable};
use super::{datasource, standard_variables};

/// Tag of every dashboard in this set. The links between dashboards use this tag.
const TAG: &str = "tokengauge";
/// Number of columns of a dashboard.
const WIDTH: u32 = 24;

/// A Grafana dashboard.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dashboard {
    /// Identifier of the dashboard in links and in its file name. Must not change, because links would break.
    pub uid: String,
    pub(super) title: String,
    pub(super) description: String,
    /// Start of the default time range in Grafana notation, such as `now-6h`.
    pub(super) from: Option<String>,
    pub(super) scope: Scope,
    /// Dashboard variables in addition to the standard variables.
    #[serde(default)]
    pub(super) variables: Vec<Variable>,
    /// Names of the variables that viewers see. Hidden variables keep the values from the link that opened the
    /// dashboard. If empty, all variables are visible.
    #[serde(default)]
    pub(super) visible: Vec<String>,
    pub(super) rows: Vec<Row>,
}

/// A row of panels, placed from left to right. Panels that do not fit continue on the next line.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Row {
    pub(super) title: String,
    /// Whether the row is collapsed and runs no queries until a viewer expands it.
    pub(super) collapsed: bool,
    /// Default size of the panels in this row. A panel can set its own size.
    pub(super) size: Option<(u32, u32)>,
    pub(super) panels: Vec<Panel>,
}

impl Dashboard {
    pub fn json(&self) -> Value {
        let standard = standard_variables().filter(|variable| variable.scope <= self.scope);
        let own = self.variables.iter().cloned();
        let others = standard.chain(own).map(|variable| {
            let visible = self.visible.is_empty() || self.visible.contains(&variable.name);
            variable.json(visible)
        });
        let variables = std::iter::once(variables::datasource()).chain(others);
        json!({
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "annotations": { "list": annotations() },
            "editable": false,
            "fiscalYearStartMonth": 0,
            "graphTooltip": 1,
            "id": null,
            "links": [links()],
            "panels": self.panels(),
            "refresh": "30s",
            "schemaVersion": 39,
            "tags": [TAG, "llm"],
            "templating": { "list": variables.collect::<Vec<_>>() },
            "time": { "from": self.from.as_deref().unwrap_or("now-1h"), "to": "now" },
            "timepicker": {},
            "timezone": "browser",
            "version": 1,
            "weekStart": "",
        })
    }

    fn panels(&self) -> Vec<Value> {
        let mut all = Vec::new();
        let mut ids = 1..;
        let mut y = 0;
        for row in &self.rows {
            let mut id = || ids.next().unwrap_or_default();
            let row_id = id();
            let mut flow = Flow { x: 0, y: y + 1, bottom: y + 1 };
            let place = |panel: &Panel| {
                let place = flow.place(row.size_of(panel));
                self.with_exclusions(panel).json(id(), &place)
            };
            let panels: Vec<Value> = row.panels.iter().map(place).collect();
            let (inside, below) =
                if row.collapsed { (panels, Vec::new()) } else { (Vec::new(), panels) };
            all.push(json!({
                "id": row_id,
                "title": row.title,
                "type": "row",
                "collapsed": row.collapsed,
                "gridPos": { "x": 0, "y": y, "w": WIDTH, "h": 1 },
                "panels": inside,
            }));
            all.extend(below);
            y = if row.collapsed { y + 1 } else { flow.bottom };
        }
        all
    }

    /// Appends ", all routes" or ", all models" to the title of a panel that ignores the selected route or model.
    /// Otherwise, viewers would misread the value.
    fn with_exclusions(&self, panel: &Panel) -> Panel {
        let ignored = match self.scope {
            Scope::Call if !panel.filters_by("route") => ", all routes",
            Scope::Call if !panel.filters_by("model") => ", all models",
            Scope::Process | Scope::Route | Scope::Call => "",
        };
        Panel { title: format!("{}{ignored}", panel.title), ..panel.clone() }
    }
}

impl Row {
    fn size_of(&self, panel: &Panel) -> (u32, u32) {
        panel.size.or(self.size).unwrap_or_else(|| panel.default_size())
    }
}

/// Position at which the next panel is placed.
struct Flow {
    x: u32,
    y: u32,
    bottom: u32,
}

impl Flow {
    /// Returns the position and the size of the next panel (`gridPos`).
    fn place(&mut self, (width, height): (u32, u32)) -> Value {
        if self.x + width > WIDTH {
            self.x = 0;
            self.y = self.bottom;
        }
        let place = json!({ "x": self.x, "y": self.y, "w": width, "h": height });
        self.x += width;
        self.bottom = self.bottom.max(self.y + height);
        place
    }
}

fn annotations() -> Value {
    json!([
        {
            "builtIn": 1,
            "datasource": { "type": "grafana", "uid": "-- Grafana --" },
            "enable": true,
            "hide": true,
            "iconColor": "rgba(0, 211, 255, 1)",
            "name": "Annotations & Alerts",
            "type": "dashboard",
        },
        {
            "datasource": datasource(),
            "enable": false,
            "expr": expanded(FIRING),
            "hide": false,
            "iconColor": "red",
            "name": "Firing alerts",
            "step": "60s",
            "tagKeys": "severity",
            "textFormat": "{{severity}}",
            "titleFormat": "{{alertname}}",
            "useValueForTime": false,
        },
        {
            "datasource": datasource(),
            "enable": false,
            "expr": expanded(DEPLOYS),
            "hide": false,
            "iconColor": "blue",
            "name": "Deploys",
            "step": "60s",
            "tagKeys": "job",
            "textFormat": "{{job}}",
            "titleFormat": "tokengauge {{tokengauge_version}}",
            "useValueForTime": false,
        },
    ])
}

/// PromQL for the minute in which an alert starts to fire. Samples of the whole duration would be drawn as a region,
/// and regions of several alerts hide the panel. An alert that fires again within five minutes is not marked again.
const FIRING: &str = "sum by (alertname, severity) (ALERTS{alertstate=\"firing\", <alert>}) \
                      unless sum by (alertname, severity) \
                      (last_over_time(ALERTS{alertstate=\"firing\", <alert>}[5m] offset 1m))";

/// PromQL for the minute in which a program version starts. A version that ran within the last hour is not new.
const DEPLOYS: &str = "group by (job, tokengauge_version) (tokengauge_build_info{<process>}) \
                       unless group by (job, tokengauge_version) \
                       (last_over_time(tokengauge_build_info{<process>}[1h] offset 1m))";

/// Returns the links to all dashboards of this set. A link keeps the selected variables and time range.
fn links() -> Value {
    json!({
        "asDropdown": true,
        "icon": "external link",
        "includeVars": true,
        "keepTime": true,
        "tags": [TAG],
        "targetBlank": false,
        "title": "Dashboards",
        "tooltip": "",
        "type": "dashboards",
        "url": "",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_never_overlap() {
        let mut flow = Flow { x: 0, y: 1, bottom: 1 };
        let places: Vec<_> = [(12, 8), (6, 4), (6, 4), (12, 8), (24, 2)]
            .into_iter()
            .map(|size| {
                let place = flow.place(size);
                (place["x"].clone(), place["y"].clone())
            })
            .collect();
        assert_eq!(
            places,
            [(0, 1), (12, 1), (18, 1), (0, 9), (0, 17)].map(|(x, y)| (x.into(), y.into()))
        );
        assert_eq!(flow.bottom, 19);
    }

    #[test]
    fn a_collapsed_row_contains_its_panels_and_takes_one_line() {
        let panel = "{title: A, type: stat, unit: none, description: a, query: \"1\"}";
        let text = format!(
            "{{uid: d, title: D, description: d, scope: process, rows: [\
             {{title: One, collapsed: true, panels: [{panel}, {panel}]}}, \
             {{title: Two, panels: [{panel}]}}]}}"
        );
        let json = serde_saphyr::from_str::<Dashboard>(&text).unwrap().json();
        let panels = json["panels"].as_array().unwrap();
        assert_eq!(panels.len(), 3);
        assert_eq!(panels[0]["panels"].as_array().unwrap().len(), 2);
        assert_eq!(panels[1]["gridPos"]["y"], 1);
        let ids =
            [&panels[0], &panels[0]["panels"][1], &panels[2]].map(|panel| panel["id"].as_u64());
        assert_eq!(ids, [Some(1), Some(3), Some(5)]);
    }
}
