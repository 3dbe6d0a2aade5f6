//! Checks PromQL queries. Each query must parse, must use only existing series and labels, and must be able to match.
//!
//! The possible labels of a result are computed from the innermost expression to the outermost. Every label that a
//! query uses must be among them: in matchers, in `by` and `on`, as the source of `label_replace`, and as the `le` of
//! `histogram_quantile`. If two sides are matched without `on`, they must have the same labels. If a label has a closed
//! set of values, a matcher on it must match one of these values.

use std::collections::{BTreeMap, BTreeSet};

use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{
    self, AggregateExpr, BinaryExpr, Call, Expr, LabelModifier, VectorMatchCardinality,
    VectorSelector,
};
use tokengauge_monitoring::emitted::{Emitted, TARGET_LABELS, emitted};
use tokengauge_telemetry::catalog::attributes::{self, Values};
use tokengauge_telemetry::prometheus::label_name;

pub type Labels = BTreeSet<String>;

/// Checker with the known series.
pub struct Checker {
    series: Emitted,
    /// Labels with a closed set of values.
    closed: BTreeMap<String, &'static [&'static str]>,
}

/// Functions and aggregations that are missing in Prometheus 2.42, Prometheus 3 or VictoriaMetrics.
const NOT_EVERYWHERE: &[&str] = &[
    "double_exponential_smoothing",
    "histogram_avg",
    "histogram_count",
    "histogram_fraction",
    "histogram_stddev",
    "histogram_stdvar",
    "histogram_sum",
    "holt_winters",
    "info",
    "limit_ratio",
    "limitk",
    "mad_over_time",
    "sort_by_label",
    "sort_by_label_desc",
];

impl Checker {
    /// Creates a checker with the series of the metric catalog and the labels that a store adds.
    pub fn new() -> Self {
        let mut series = emitted();
        for labels in series.values_mut() {
            labels.extend(TARGET_LABELS.iter().map(|&label| label.to_owned()));
        }
        let closed = attributes::ALL
            .iter()
            .filter_map(|attribute| match attribute.values {
                Values::Closed(values) => Some((label_name(attribute.key), values)),
                Values::Gated | Values::Configured | Values::Any => None,
            })
            .collect();
        Self { series, closed }
    }

    /// Adds a series with exactly these labels: a recorded series, or a series that a store creates.
    pub fn knows(mut self, name: &str, labels: &[&str]) -> Self {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        self.series.insert(name.to_owned(), labels);
        self
    }

    /// Adds a label to every series: a label that a store adds.
    pub fn everywhere(mut self, label: &str) -> Self {
        for labels in self.series.values_mut() {
            labels.insert(label.to_owned());
        }
        self
    }

    /// Returns the faults of a dashboard query that still contains variables.
    pub fn dashboard(&self, query: &str) -> Vec<String> {
        self.rule(&substituted(query)).1
    }

    /// Returns the possible labels of the result of a rule's expression (none for a scalar), and the problems of the
    /// expression.
    pub fn rule(&self, query: &str) -> (Option<Labels>, Vec<String>) {
        match parser::parse(query) {
            Ok(expression) => {
                let mut walk = Walk { checker: self, wrong: Vec::new() };
                let labels = walk.labels(&expression);
                (labels, walk.wrong)
            }
            Err(error) => (None, vec![format!("{error}: {query}")]),
        }
    }
}

/// Replaces Grafana's interval variables with durations.
pub fn substituted(query: &str) -> String {
    query.replace("$__rate_interval", "5m").replace("$__interval", "1m").replace("$__range", "1h")
}

struct Walk<'a> {
    checker: &'a Checker,
    wrong: Vec<String>,
}

impl Walk<'_> {
    fn labels(&mut self, expression: &Expr) -> Option<Labels> {
        match expression {
            Expr::Aggregate(aggregate) => Some(self.aggregate(aggregate)),
            Expr::Unary(unary) => self.labels(&unary.expr),
            Expr::Binary(binary) => self.binary(binary),
            Expr::Paren(paren) => self.labels(&paren.expr),
            Expr::Subquery(subquery) => self.labels(&subquery.expr),
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) => None,
            Expr::VectorSelector(selector) => Some(self.selector(selector)),
            Expr::MatrixSelector(matrix) => Some(self.selector(&matrix.vs)),
            Expr::Call(call) => self.call(call),
            Expr::Extension(_) => panic!("the parser never returns this variant"),
        }
    }

    fn selector(&mut self, selector: &VectorSelector) -> Labels {
        let Some(name) = &selector.name else {
            self.wrong.push(format!("{selector}: no name"));
            return Labels::new();
        };
        let Some(labels) = self.checker.series.get(name).cloned() else {
            self.wrong.push(format!("{name}: no such series is exported"));
            return Labels::new();
        };
        if !selector.matchers.or_matchers.is_empty() {
            self.wrong.push(format!("{selector}: `or` in braces"));
        }
        for matcher in &selector.matchers.matchers {
            self.need(name, &labels, [&matcher.name]);
            self.fits(matcher);
        }
        labels
    }

    /// Checks a matcher's value. A value outside the closed set never matches.
    fn fits(&mut self, matcher: &Matcher) {
        let Some(values) = self.checker.closed.get(&matcher.name) else {
            return;
        };
        // An empty value matches an absent label.
        if matcher.value.is_empty() || matcher.value.starts_with('$') {
            return;
        }
        let fits = match &matcher.op {
            MatchOp::Equal | MatchOp::NotEqual => values.contains(&matcher.value.as_str()),
            MatchOp::Re(pattern) | MatchOp::NotRe(pattern) => {
                // Each alternative is checked separately. Otherwise, a correct alternative would hide a misspelled one.
                let plain =
                    matcher.value.chars().all(|c| c.is_ascii_alphanumeric() || "_|-".contains(c));
                if plain {
                    matcher
                        .value
                        .split('|')
                        .all(|value| value.is_empty() || values.contains(&value))
                } else {
                    values.iter().any(|value| pattern.is_match(value))
                }
            }
        };
        if !fits {
            self.wrong.push(format!("{matcher}: matches no possible value"));
        }
    }

    fn need<'n>(&mut self, of: &str, labels: &Labels, names: impl IntoIterator<Item = &'n String>) {
        for name in names {
            if !labels.contains(name) {
                self.wrong.push(format!("{of} has no label {name}"));
            }
        }
    }

    fn aggregate(&mut self, aggregate: &AggregateExpr) -> Labels {
        let operation = aggregate.op.to_string();
        self.everywhere(&operation);
        let inner = self.labels(&aggregate.expr).unwrap_or_default();
        if let Some(parameter) = &aggregate.param {
            self.labels(parameter);
        }
        let mut grouped = match &aggregate.modifier {
            None => Labels::new(),
            Some(LabelModifier::Include(by)) => {
                self.need(&operation, &inner, &by.labels);
                by.labels.iter().cloned().collect()
            }
            Some(LabelModifier::Exclude(without)) => {
                self.need(&operation, &inner, &without.labels);
                difference(&inner, &without.labels)
            }
        };
        match (operation.as_str(), aggregate.param.as_deref()) {
            ("topk" | "bottomk", _) => inner,
            ("count_values", Some(Expr::StringLiteral(label))) => {
                grouped.insert(label.val.clone());
                grouped
            }
            _ => grouped,
        }
    }

    fn call(&mut self, call: &Call) -> Option<Labels> {
        let name = call.func.name;
        self.everywhere(name);
        let all: Vec<Option<Labels>> = call.args.args.iter().map(|arg| self.labels(arg)).collect();
        let text = |at: usize| match call.args.args.get(at).map(AsRef::as_ref) {
            Some(Expr::StringLiteral(literal)) => literal.val.clone(),
            _ => String::new(),
        };
        if ["rate", "irate", "increase"].contains(&name) {
            self.counts(call);
        }
        let mut labels = all.into_iter().flatten().next();
        match name {
            "scalar" | "time" | "pi" => return None,
            "vector" => return Some(Labels::new()),
            "absent" | "absent_over_time" => {}
            "histogram_quantile" => {
                let labels = labels.as_mut()?;
                self.need(name, labels, [&"le".to_owned()]);
                labels.remove("le");
            }
            "label_replace" => {
                let source = text(3);
                let labels = labels.as_mut()?;
                if !source.is_empty() {
                    self.need(name, labels, [&source]);
                }
                labels.insert(text(1));
            }
            "label_join" => {
                let labels = labels.as_mut()?;
                let sources: Vec<String> = (3..call.args.len()).map(text).collect();
                self.need(name, labels, &sources);
                labels.insert(text(1));
            }
            _ => {}
        }
        labels
    }

    /// The increase of a gauge is meaningless, because PromQL treats each decrease as a counter reset.
    fn counts(&mut self, call: &Call) {
        const RISING: &[&str] = &["_total", "_bucket", "_sum", "_count"];
        for argument in &call.args.args {
            if let Expr::MatrixSelector(matrix) = argument.as_ref() {
                let name = matrix.vs.name.clone().unwrap_or_default();
                if !RISING.iter().any(|end| name.ends_with(end)) {
                    self.wrong.push(format!("{name} is not a counter"));
                }
            }
        }
    }

    fn everywhere(&mut self, name: &str) {
        if NOT_EVERYWHERE.contains(&name) {
            self.wrong.push(format!("{name}: not every store supports it"));
        }
    }

    fn binary(&mut self, binary: &BinaryExpr) -> Option<Labels> {
        let sides = (self.labels(&binary.lhs), self.labels(&binary.rhs));
        let (left, right) = match sides {
            (Some(left), Some(right)) => (left, right),
            (left, right) => return left.or(right),
        };
        let operation = binary.op.to_string();
        let modifier = binary.modifier.as_ref();
        let matching = modifier.and_then(|modifier| modifier.matching.as_ref());
        let on = match matching {
            Some(LabelModifier::Include(on)) => {
                self.need(&format!("left of {operation}"), &left, &on.labels);
                self.need(&format!("right of {operation}"), &right, &on.labels);
                on.labels.iter().cloned().collect()
            }
            Some(LabelModifier::Exclude(ignoring)) => {
                self.same(
                    &operation,
                    &difference(&left, &ignoring.labels),
                    &difference(&right, &ignoring.labels),
                );
                difference(&left, &ignoring.labels)
            }
            None => {
                // With `or`, each side keeps its labels, and `or` is intended for series that do not match.
                if operation != "or" {
                    self.same(&operation, &left, &right);
                }
                left.clone()
            }
        };
        Some(match (operation.as_str(), modifier.map(|modifier| &modifier.card)) {
            ("and" | "unless", _) => left,
            ("or", _) => left.union(&right).cloned().collect(),
            (_, Some(VectorMatchCardinality::ManyToOne(more))) => {
                self.need("group_left", &right, &more.labels);
                left.into_iter().chain(more.labels.iter().cloned()).collect()
            }
            (_, Some(VectorMatchCardinality::OneToMany(more))) => {
                self.need("group_right", &left, &more.labels);
                right.into_iter().chain(more.labels.iter().cloned()).collect()
            }
            _ => on,
        })
    }

    fn same(&mut self, operation: &str, left: &Labels, right: &Labels) {
        if left != right {
            let apart: Vec<_> = left.symmetric_difference(right).collect();
            self.wrong.push(format!("the sides of {operation} never match: {apart:?}"));
        }
    }
}

fn difference(labels: &Labels, without: &[String]) -> Labels {
    (labels.iter().filter(|&label| !without.contains(label)).cloned()).collect()
}

/// Returns every selector in a query.
pub fn selectors(query: &str) -> Vec<VectorSelector> {
    struct Found(Vec<VectorSelector>);
    impl promql_parser::util::ExprVisitor for Found {
        type Error = ();

        fn pre_visit(&mut self, expression: &Expr) -> Result<bool, ()> {
            if let Expr::VectorSelector(selector) = expression {
                self.0.push(selector.clone());
            }
            if let Expr::MatrixSelector(matrix) = expression {
                self.0.push(matrix.vs.clone());
            }
            Ok(true)
        }
    }
    let mut found = Found(Vec::new());
    if let Ok(expression) = parser::parse(&substituted(query)) {
        promql_parser::util::walk_expr(&mut found, &expression).unwrap();
    }
    found.0
}

#[test]
fn accepts_valid_queries() {
    let checker = Checker::new().knows("slo:x:ratio", &["job", "sloth_id"]);
    for query in [
        "sum by (tokengauge_route) (tokengauge_active_requests{job=~\"$job\"})",
        "sum(rate(tokengauge_tokens_total{gen_ai_token_type=\"output\"}[$__rate_interval]))",
        "histogram_quantile(0.9, sum by (le, job) (rate(tokengauge_time_to_first_token_seconds_bucket[$__range]))) >= 0",
        "sum by (x) (label_replace(tokengauge_active_requests, \"x\", \"$1\", \"tokengauge_route\", \"(.+)\"))",
        "sum by (job) (tokengauge_active_requests) / sum by (job) (tokengauge_active_requests > 0)",
        "slo:x:ratio * on (job) group_left (namespace) sum by (job, namespace) (tokengauge_active_requests)",
        "sum(tokengauge_active_requests) or vector(0)",
        "sum(tokengauge_active_requests{tokengauge_state=~\"queued|waiting\"}) > 3",
    ] {
        assert_eq!(checker.dashboard(query), [""; 0], "{query}");
    }
}

#[test]
fn finds_errors_in_queries() {
    let checker = Checker::new().knows("slo:x:ratio", &["job"]);
    for (query, told) in [
        ("sum(tokengauge_active_requests", "tokengauge_active_requests"),
        ("tokengauge_tokens", "tokengauge_tokens: no such series is exported"),
        ("tokengauge_time_to_first_token_seconds", "no such series is exported"),
        ("slo:y:ratio", "no such series is exported"),
        ("slo:x:ratio{instance=\"a\"}", "has no label instance"),
        (
            "tokengauge_active_requests{gen_ai_request_model=\"a\"}",
            "has no label gen_ai_request_model",
        ),
        ("tokengauge_active_requests{tokengauge_state=\"wating\"}", "matches no possible value"),
        (
            "tokengauge_active_requests{tokengauge_state=~\"queued|wating\"}",
            "matches no possible value",
        ),
        ("sum by (pod) (tokengauge_active_requests)", "sum has no label pod"),
        ("sum without (pod) (tokengauge_active_requests)", "sum has no label pod"),
        ("sum by (job) (sum by (namespace) (tokengauge_active_requests))", "sum has no label job"),
        (
            "histogram_quantile(0.5, sum by (job) (rate(tokengauge_time_to_first_token_seconds_bucket[5m])))",
            "has no label le",
        ),
        (
            "sum(tokengauge_active_requests) / tokengauge_active_requests",
            "the sides of / never match",
        ),
        (
            "sum by (job) (tokengauge_active_requests) / on (job) sum(tokengauge_active_requests)",
            "right of / has no label job",
        ),
        (
            "sum by (job) (tokengauge_active_requests) unless on (pod) tokengauge_active_requests",
            "left of unless has no label pod",
        ),
        (
            "label_replace(tokengauge_active_requests, \"a\", \"\", \"b\", \"\")",
            "label_replace has no label b",
        ),
        ("mad_over_time(tokengauge_active_requests[5m])", "not every store supports it"),
        ("topk(3, nothing)", "nothing: no such series is exported"),
        ("{job=\"a\"}", "no name"),
        ("rate(tokengauge_active_requests[5m])", "tokengauge_active_requests is not a counter"),
    ] {
        let wrong = checker.dashboard(query);
        assert!(wrong.iter().any(|wrong| wrong.contains(told)), "{query}: {wrong:?}");
    }
}
