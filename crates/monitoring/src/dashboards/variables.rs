//! What a viewer chooses at the top of a dashboard.
//!
//! Every choice is made from series that are there from a process's start, and each is narrowed by those before it.

use serde_json::{Value, json};

use super::query::expanded;

/// One variable.
#[derive(Clone, Debug)]
pub struct Variable {
    name: &'static str,
    label: &'static str,
    source: Source,
    choice: Choice,
}

#[derive(Clone, Debug)]
enum Source {
    /// Grafana's data sources that speak PromQL.
    Datasource,
    /// A query of Grafana's own (`label_values(…)`, `query_result(…)`), and what to take of each of its results.
    Query { text: &'static str, regex: &'static str },
    /// Values that are given, the first one chosen.
    Given(&'static [&'static str]),
}

/// How many values can be chosen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Choice {
    One,
    /// Several, or all: then the matcher is this.
    Several {
        all: &'static str,
    },
}

/// Matches whatever a label says, and its absence.
const ANY: &str = ".*";
/// Matches whatever a label says; for labels that every series has.
const SOME: &str = ".+";

const DATASOURCE: Variable = Variable {
    name: "datasource",
    label: "Data source",
    source: Source::Datasource,
    choice: Choice::One,
};

/// Both labels that name a cluster are made one, so that the list is whole whichever way series came.
const CLUSTER: Variable = Variable::results(
    "cluster",
    "Cluster",
    "query_result(group by (cluster) (label_replace(tokengauge_self_build, \"cluster\", \"$1\", \"k8s_cluster_name\", \"(.+)\")))",
    "/cluster=\"([^\"]+)\"/",
);
const NAMESPACE: Variable = Variable::results(
    "namespace",
    "Namespace",
    "query_result(group by (namespace) (label_replace(tokengauge_self_build{cluster=~\"$cluster|\", k8s_cluster_name=~\"$cluster|\"}, \"namespace\", \"$1\", \"k8s_namespace_name\", \"(.+)\")))",
    "/namespace=\"([^\"]+)\"/",
);
const JOB: Variable = Variable::named(
    "job",
    "Job",
    "label_values(tokengauge_self_build{cluster=~\"$cluster|\", k8s_cluster_name=~\"$cluster|\", namespace=~\"$namespace|\", k8s_namespace_name=~\"$namespace|\"}, job)",
);
const INSTANCE: Variable = Variable::named(
    "instance",
    "Instance",
    "label_values(tokengauge_self_build{<fleet>}, instance)",
);
/// One at a time: the proxy beside the application and the one beside the backend see the same call.
const VANTAGE: Variable = Variable::several(
    "vantage",
    "Vantage",
    "label_values(tokengauge_active_requests{<process>}, tokengauge_vantage)",
)
.single();
const ROUTE: Variable = Variable::several(
    "route",
    "Route",
    "label_values(tokengauge_active_requests{<process>, tokengauge_vantage=\"$vantage\"}, tokengauge_route)",
);
const PROVIDER: Variable = Variable::several(
    "provider",
    "Provider",
    "label_values(tokengauge_requests_finished_total{<lane>}, gen_ai_provider_name)",
);
const MODEL: Variable = Variable::several(
    "model",
    "Model",
    "label_values(tokengauge_requests_finished_total{<lane>, gen_ai_provider_name=~\"$provider\"}, gen_ai_request_model)",
);

/// Which of the usual variables a dashboard has: those that its queries are narrowed by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// Down to the instance.
    Process,
    /// Down to the route.
    Lane,
    /// Down to the model.
    Call,
}

impl Scope {
    pub(super) fn variables(self) -> Vec<Variable> {
        let process = [DATASOURCE, CLUSTER, NAMESPACE, JOB, INSTANCE];
        let lane = [VANTAGE, ROUTE];
        let call = [PROVIDER, MODEL];
        match self {
            Self::Process => process.into(),
            Self::Lane => process.into_iter().chain(lane).collect(),
            Self::Call => process.into_iter().chain(lane).chain(call).collect(),
        }
    }
}

impl Variable {
    /// Several values of a label, or all, absence included. `text` is a query of Grafana's own; markers are replaced.
    pub const fn several(name: &'static str, label: &'static str, text: &'static str) -> Self {
        Self::query(name, label, text, "", ANY)
    }

    /// Several values of a label that every series has, or all.
    pub const fn named(name: &'static str, label: &'static str, text: &'static str) -> Self {
        Self::query(name, label, text, "", SOME)
    }

    /// Several values that `regex` takes out of results, or all.
    pub const fn results(
        name: &'static str,
        label: &'static str,
        text: &'static str,
        regex: &'static str,
    ) -> Self {
        Self::query(name, label, text, regex, ANY)
    }

    /// One of the values that are given.
    pub const fn given(
        name: &'static str,
        label: &'static str,
        values: &'static [&'static str],
    ) -> Self {
        Self { name, label, source: Source::Given(values), choice: Choice::One }
    }

    const fn query(
        name: &'static str,
        label: &'static str,
        text: &'static str,
        regex: &'static str,
        all: &'static str,
    ) -> Self {
        Self { name, label, source: Source::Query { text, regex }, choice: Choice::Several { all } }
    }

    /// One value at a time.
    #[must_use]
    pub const fn single(mut self) -> Self {
        self.choice = Choice::One;
        self
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn json(&self) -> Value {
        let (several, all) = match self.choice {
            Choice::One => (false, Value::Null),
            Choice::Several { all } => (true, json!(all)),
        };
        let current = match self.choice {
            Choice::One => json!({}),
            Choice::Several { .. } => {
                json!({"selected": true, "text": ["All"], "value": ["$__all"]})
            }
        };
        let common = json!({
            "name": self.name,
            "label": self.label,
            "hide": 0,
            "skipUrlSync": false,
            "multi": several,
            "includeAll": several,
            "allValue": all,
            "current": current,
            "options": [],
        });
        let own = match &self.source {
            Source::Datasource => json!({
                "type": "datasource", "query": "prometheus", "regex": "", "refresh": 1,
            }),
            Source::Query { text, regex } => json!({
                "type": "query",
                "datasource": super::datasource(),
                "query": expanded(text),
                "definition": expanded(text),
                "regex": regex,
                // On every change of the time range.
                "refresh": 2,
                // By name, numbers in names by value.
                "sort": 3,
            }),
            Source::Given(values) => given(values),
        };
        super::merged(common, own)
    }
}

fn given(values: &[&str]) -> Value {
    let options: Vec<Value> = values
        .iter()
        .enumerate()
        .map(|(at, value)| json!({"selected": at == 0, "text": value, "value": value}))
        .collect();
    json!({
        "type": "custom",
        "query": values.join(","),
        "current": options.first(),
        "options": options,
    })
}
