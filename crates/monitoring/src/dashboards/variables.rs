//! Dashboard variables.
//!
//! Each variable is populated from series that exist from process start. Each variable is filtered by the preceding
//! ones.

use serde_json::{Value, json};

use super::query::expanded;

/// A dashboard variable.
#[derive(Clone, Debug)]
pub struct Variable {
    name: &'static str,
    label: &'static str,
    source: Source,
    choice: Choice,
}

#[derive(Clone, Debug)]
enum Source {
    /// Grafana data sources that support PromQL.
    Datasource,
    /// A Grafana query (`label_values(…)`, `query_result(…)`), and the regular expression applied to each of its
    /// results.
    Query { text: &'static str, regex: &'static str },
    /// Fixed values. The first one is the default.
    Given(&'static [&'static str]),
}

/// How many values a viewer can select.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Choice {
    One,
    /// Several values, or all. `all` is the matcher for all values.
    Several {
        all: &'static str,
    },
}

/// Matches any label value, including an absent label.
const ANY: &str = ".*";
/// Matches any label value. For labels that every series has.
const SOME: &str = ".+";

const DATASOURCE: Variable = Variable {
    name: "datasource",
    label: "Data source",
    source: Source::Datasource,
    choice: Choice::One,
};

/// Combines both cluster labels, so that the list is complete for scraped and OTLP series.
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
/// Single selection, because the proxy beside the application and the proxy beside the backend observe the same call.
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

/// The standard variables of a dashboard, which filter its queries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// All variables up to the instance.
    Process,
    /// All variables up to the route.
    Lane,
    /// All variables up to the model.
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
    /// Creates a variable with several label values, or all, including an absent label. `text` is a Grafana query whose
    /// markers are replaced.
    pub const fn several(name: &'static str, label: &'static str, text: &'static str) -> Self {
        Self::query(name, label, text, "", ANY)
    }

    /// Creates a variable with several values, or all, of a label that every series has.
    pub const fn named(name: &'static str, label: &'static str, text: &'static str) -> Self {
        Self::query(name, label, text, "", SOME)
    }

    /// Creates a variable with several values, or all, that `regex` extracts from the query results.
    pub const fn results(
        name: &'static str,
        label: &'static str,
        text: &'static str,
        regex: &'static str,
    ) -> Self {
        Self::query(name, label, text, regex, ANY)
    }

    /// Creates a variable with one of the fixed `values`.
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

    /// Restricts the variable to a single selected value.
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
                // Refresh on every change of the time range.
                "refresh": 2,
                // Sort by name, with numeric parts sorted by value.
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
