//! A dashboard: rows of panels and shared settings. The builder computes ids and positions.

use serde_json::{Value, json};

use super::panel::Panel;
use super::query::expanded;
use super::variables::{Scope, Variable};
use super::{Place, datasource};

/// Tag of every dashboard, used for links between them.
const TAG: &str = "tokengauge";
/// Number of columns of a dashboard.
const WIDTH: u32 = 24;

/// A Grafana dashboard.
#[derive(Clone, Debug)]
pub struct Dashboard {
    uid: &'static str,
    title: &'static str,
    description: &'static str,
    variables: Vec<Variable>,
    rows: Vec<Row>,
    /// Start of the default time range in Grafana notation: `now-1h`.
    from: &'static str,
}

#[derive(Clone, Debug)]
struct Row {
    title: &'static str,
    panels: Vec<Panel>,
    folded: bool,
}

impl Dashboard {
    /// Creates a dashboard. `uid` names the dashboard in links and names its file, so it must not change.
    pub fn new(uid: &'static str, title: &'static str, description: &'static str) -> Self {
        Self { uid, title, description, variables: Vec::new(), rows: Vec::new(), from: "now-1h" }
    }

    /// Adds the standard variables up to `scope`.
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Self {
        self.variables.extend(scope.variables());
        self
    }

    /// Adds a variable.
    #[must_use]
    pub fn variable(mut self, variable: Variable) -> Self {
        self.variables.push(variable);
        self
    }

    #[must_use]
    pub fn from(mut self, from: &'static str) -> Self {
        self.from = from;
        self
    }

    /// Adds a row with panels from left to right, wrapped to further lines if they do not fit.
    #[must_use]
    pub fn row(mut self, title: &'static str, panels: impl IntoIterator<Item = Panel>) -> Self {
        self.rows.push(Row { title, panels: panels.into_iter().collect(), folded: false });
        self
    }

    /// Adds a collapsed row, which runs no queries until a viewer expands it.
    #[must_use]
    pub fn folded(mut self, title: &'static str, panels: impl IntoIterator<Item = Panel>) -> Self {
        self = self.row(title, panels);
        if let Some(row) = self.rows.last_mut() {
            row.folded = true;
        }
        self
    }

    pub fn uid(&self) -> &'static str {
        self.uid
    }

    pub fn json(&self) -> Value {
        let variables: Vec<Value> = self.variables.iter().map(Variable::json).collect();
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
            "templating": { "list": variables },
            "time": { "from": self.from, "to": "now" },
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
            let id = ids.next().unwrap_or_default();
            let mut panels = Vec::new();
            let top = y;
            y += 1;
            let mut flow = Flow::from(y);
            for panel in &row.panels {
                panels.push(panel.json(ids.next().unwrap_or_default(), flow.place(panel.size)));
            }
            let (inside, beside) = if row.folded {
                (panels, Vec::new())
            } else {
                y = flow.bottom;
                (Vec::new(), panels)
            };
            all.push(json!({
                "id": id,
                "title": row.title,
                "type": "row",
                "collapsed": row.folded,
                "gridPos": Place { x: 0, y: top, width: WIDTH, height: 1 }.json(),
                "panels": inside,
            }));
            all.extend(beside);
        }
        all
    }
}

/// Position of the next panel.
struct Flow {
    x: u32,
    y: u32,
    bottom: u32,
}

impl Flow {
    fn from(y: u32) -> Self {
        Self { x: 0, y, bottom: y }
    }

    fn place(&mut self, (width, height): (u32, u32)) -> Place {
        if self.x + width > WIDTH {
            self.x = 0;
            self.y = self.bottom;
        }
        let place = Place { x: self.x, y: self.y, width, height };
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
            "enable": true,
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
            "enable": true,
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

/// Firing alerts of the rules in `alerts/`.
const FIRING: &str = "sum by (alertname, severity) (ALERTS{alertstate=\"firing\", <alert>})";

/// Versions that did not run five minutes earlier.
const DEPLOYS: &str = "group by (job, tokengauge_version) (tokengauge_self_build{<process>}) \
                       unless group by (job, tokengauge_version) (tokengauge_self_build{<process>} offset 5m)";

/// Returns links to all dashboards of this set that keep the selected variables and time range.
fn links() -> Value {
    json!({
        "asDropdown": false,
        "icon": "external link",
        "includeVars": true,
        "keepTime": true,
        "tags": [TAG],
        "targetBlank": false,
        "title": "",
        "tooltip": "",
        "type": "dashboards",
        "url": "",
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Unit, stat};
    use super::*;

    #[test]
    fn panels_flow_and_never_overlap() {
        let mut flow = Flow::from(1);
        let places: Vec<_> = [(12, 8), (6, 4), (6, 4), (12, 8), (24, 2)]
            .into_iter()
            .map(|size| {
                let place = flow.place(size);
                (place.x, place.y)
            })
            .collect();
        assert_eq!(places, [(0, 1), (12, 1), (18, 1), (0, 9), (0, 17)]);
        assert_eq!(flow.bottom, 19);
    }

    #[test]
    fn a_folded_row_holds_its_panels_and_takes_one_line() {
        let panel = || stat("A", Unit::Number, "a").query("1");
        let json = Dashboard::new("d", "D", "d")
            .folded("One", [panel(), panel()])
            .row("Two", [panel()])
            .json();
        let panels = json["panels"].as_array().unwrap();
        assert_eq!(panels.len(), 3);
        assert_eq!(panels[0]["panels"].as_array().unwrap().len(), 2);
        assert_eq!(panels[1]["gridPos"]["y"], 1);
        let ids =
            [&panels[0], &panels[0]["panels"][1], &panels[2]].map(|panel| panel["id"].as_u64());
        assert_eq!(ids, [Some(1), Some(3), Some(5)]);
    }
}
