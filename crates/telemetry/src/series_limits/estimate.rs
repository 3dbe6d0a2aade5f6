//! Estimates the size of a scrape page from the configuration and the expected traffic.
//!
//! The estimate counts the series that a successful call usually has, for each combination of labels that the limiter
//! admits. Rare series, such as those of stalls and failures, are left out.

use std::collections::HashSet;
use std::sync::Arc;

use super::group::{PageSize, VALUE_BYTES};
use super::{Overflow, SeriesGroup, SeriesLimiter};
use crate::catalog::attributes::{self as key, Attribute};
use crate::catalog::{self, Kind, Metric, health, tokengauge};
use crate::config::{MetricSelection, Profile};
use tokengauge_llm::dialect::Operation;
use tokengauge_measure::load::RouteKey;
use tokengauge_measure::record::{LengthBucket, MetricLabels};
use tokengauge_types::event::RouteFacts;
use tokengauge_types::label::Label;

/// The expected traffic, and the parts of the configuration that have series. Each route has calls of each combination
/// of model, tenant and variant, and all calls are streamed.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedTraffic<'a> {
    pub routes: &'a [Arc<RouteFacts>],
    pub upstreams: usize,
    pub objectives: usize,
    pub budgets: usize,
    pub models: usize,
    /// 0 if calls have no tenant.
    pub tenants: usize,
    /// 0 if calls have no variant.
    pub variants: usize,
    pub length_buckets: bool,
    /// Whether the configuration has prices.
    pub has_prices: bool,
}

/// Estimated size of a scrape page.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PageEstimate {
    pub series: usize,
    pub bytes: usize,
}

/// Metrics that a successful call does not usually have: reports of the backend or of a gateway, and stalls.
const RARE: [&Metric; 9] = [
    &tokengauge::BACKEND_STAGE_DURATION,
    &tokengauge::STALL_DURATION,
    &tokengauge::REQUESTS_UNRATED,
    &tokengauge::GATEWAY_USAGE_CALLS,
    &tokengauge::REQUESTS_UNPRICED,
    &tokengauge::TOKEN_MISMATCH_COUNTED,
    &tokengauge::TOKEN_MISMATCH_REPORTED,
    &tokengauge::REPORTED_COST,
    &tokengauge::REQUESTS_COST_MISMATCH,
];

/// Attributes of gauges that most deployments do not have: rate limits, engines that are scraped, certificates.
const RARE_ATTRIBUTES: [Attribute; 4] =
    [key::LIMIT_TYPE, key::ENGINE, key::WARMUP_STATE, key::CERTIFICATE_FILE];

/// Estimates the page after calls of this traffic. Without models, estimates the page before the first call.
pub fn estimate(selection: MetricSelection, traffic: &ExpectedTraffic<'_>) -> PageEstimate {
    let mut page = Page {
        selection,
        has_prices: traffic.has_prices,
        limiter: SeriesLimiter::new(selection),
        seen: HashSet::new(),
        estimate: PageEstimate::default(),
    };
    page.add_fixed(traffic);
    for route in traffic.routes {
        let key = RouteKey::from_route(route);
        if traffic.models > 0 {
            page.add(&key, SeriesGroup::Route, &());
            page.add(&key, SeriesGroup::Http, &());
        }
        for labels in combinations(route, traffic) {
            page.add_call(&labels, traffic.length_buckets);
        }
    }
    page.estimate
}

fn combinations(
    route: &RouteFacts,
    traffic: &ExpectedTraffic<'_>,
) -> impl Iterator<Item = MetricLabels> {
    let ExpectedTraffic { models, tenants, variants, .. } = *traffic;
    let label = |text: String| Label::from_trusted(&text);
    let values = |name: &str, count: usize| -> Vec<Option<Label>> {
        match count {
            0 => vec![None],
            count => (0..count).map(|it| Some(label(format!("{name}-{it:04}")))).collect(),
        }
    };
    let (tenants, variants) = (values("tenant", tenants), values("v", variants));
    let base = MetricLabels {
        operation: Operation::Chat,
        provider: Label::from_trusted("openai"),
        model: Label::from_trusted(""),
        stream: true,
        route: route.name.clone(),
        position: route.position,
        server_address: route.server_address.clone(),
        server_port: route.server_port,
        tenant: None,
        variant: None,
    };
    (0..models).flat_map(move |model| {
        let base = MetricLabels { model: label(format!("model-{model:08}")), ..base.clone() };
        let pairs = tenants.iter().flat_map(|tenant| variants.iter().map(move |it| (tenant, it)));
        let each = pairs.map(|(tenant, variant)| MetricLabels {
            tenant: tenant.clone(),
            variant: variant.clone(),
            ..base.clone()
        });
        each.collect::<Vec<_>>()
    })
}

struct Page {
    selection: MetricSelection,
    has_prices: bool,
    limiter: SeriesLimiter,
    /// Hashes of the combinations whose series are part of the estimate.
    seen: HashSet<u64>,
    estimate: PageEstimate,
}

impl Page {
    /// Adds the series of a combination of labels, and returns the labels that the limiter admits.
    fn add<L: Overflow>(
        &mut self,
        labels: &L,
        group: SeriesGroup,
        own: &impl std::hash::Hash,
    ) -> L {
        let (admitted, _) = self.limiter.replace_with_other(labels, group, own);
        if self.seen.insert(self.limiter.hash(&(group, &admitted, own))) {
            let has_prices = self.has_prices;
            let is_usual = |metric: &Metric| {
                let is_rare = RARE.iter().any(|rare| rare.name == metric.name);
                !is_rare && !is_state(metric) && (has_prices || !metric.has(key::CURRENCY))
            };
            let size = group.size_of(admitted.is_stream(), self.selection, is_usual);
            self.add_size(size, admitted.text_bytes());
        }
        admitted
    }

    fn add_size(&mut self, size: PageSize, text_bytes: usize) {
        self.estimate.series += size.lines;
        self.estimate.bytes += size.with_values(text_bytes);
    }

    /// Adds the series of a call, as `Instruments` creates them.
    fn add_call(&mut self, labels: &MetricLabels, length_buckets: bool) {
        let (labels, shared) = match self.selection.profile {
            Profile::Full => {
                let labels = self.add(labels, SeriesGroup::Call, &());
                (labels.clone(), labels)
            }
            Profile::Lean => {
                let labels = self.add(labels, SeriesGroup::ResponseModel, &());
                let shared = labels.without_identity();
                self.add(&shared, SeriesGroup::Live, &());
                (labels, shared)
            }
        };
        let timings = self.add(&shared, SeriesGroup::Timings, &());
        self.add(&labels, SeriesGroup::Finish, &());
        self.add(&shared, SeriesGroup::Choice, &());
        if length_buckets && self.selection.profile == Profile::Full {
            let pairs = |input| LengthBucket::ALL.into_iter().map(move |output| (input, output));
            for own in LengthBucket::ALL.into_iter().flat_map(pairs) {
                if self.limiter.admit_as_is(&timings, SeriesGroup::Lengths, &own) {
                    self.add(&timings, SeriesGroup::Lengths, &own);
                }
            }
        }
    }

    /// Adds gauges, the metrics of the process, and the comments of all metrics.
    fn add_fixed(&mut self, traffic: &ExpectedTraffic<'_>) {
        let selection = self.selection;
        for metric in catalog::metrics().filter(|metric| metric.is_exported(selection)) {
            let is_rare = RARE_ATTRIBUTES.iter().any(|attribute| metric.has(*attribute))
                || metric.name.starts_with("tokengauge.rate_limit.")
                || metric.has(key::CURRENCY) && !self.has_prices;
            if is_rare {
                continue;
            }
            self.estimate.bytes += comment_bytes(metric);
            let is_process = health::ALL.iter().any(|own| own.name == metric.name);
            if !is_state(metric) && !is_process {
                continue;
            }
            let routes = traffic.routes.len();
            let times = [
                (key::REQUEST_MODEL, routes * traffic.models),
                (key::ROUTE, routes),
                (key::SLO, traffic.objectives),
                (key::UPSTREAM, traffic.upstreams),
                (key::BUDGET, traffic.budgets),
            ];
            let times = times.into_iter().find(|(attribute, _)| metric.has(*attribute));
            let times = times.map_or(1, |(_, times)| times);
            let size = PageSize::of_series(metric, selection.profile);
            for _ in 0..times * metric.combinations() {
                self.add_size(size, VALUE_BYTES);
            }
        }
    }
}

/// Returns whether the values come from a snapshot.
const fn is_state(metric: &Metric) -> bool {
    matches!(metric.source.read, catalog::Read::State(_))
}

/// Length of the lines `# HELP` and `# TYPE`.
fn comment_bytes(metric: &Metric) -> usize {
    const FIXED: usize = "# HELP  \n# TYPE  histogram\n".len();
    let total = if metric.kind == Kind::Counter { 6 } else { 0 };
    2 * (metric.prometheus_name().len() - total) + metric.description.len() + FIXED
}
