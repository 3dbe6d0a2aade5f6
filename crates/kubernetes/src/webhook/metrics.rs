//! Metrics of the webhook in the Prometheus text format.
//!
//! All label values are constants of this program, so requests cannot increase the number of time series.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;

use super::review::ReviewOutcome;

/// A metric of the webhook. A test checks that `docs/how-to/webhook.md` describes the same metrics.
pub struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
}

const REVIEWS: Metric = Metric {
    name: "tokengauge_injector_reviews_total",
    kind: "counter",
    help: "Admission reviews by outcome and reason.",
};
const DURATION: Metric = Metric {
    name: "tokengauge_injector_review_duration_seconds",
    kind: "histogram",
    help: "Time from the request headers of a review to its response.",
};
const EXPIRY: Metric = Metric {
    name: "tokengauge_injector_certificate_expiry_timestamp_seconds",
    kind: "gauge",
    help: "Expiry time of the serving certificate, in seconds since 1970. Absent without a certificate.",
};
pub const CERTIFICATES: Metric = Metric {
    name: "tokengauge_injector_certificate_changes_total",
    kind: "counter",
    help: "Certificates taken into use (shown), issued (made) or rejected as unusable (refused).",
};
pub const BUNDLES: Metric = Metric {
    name: "tokengauge_injector_ca_bundle_patches_total",
    kind: "counter",
    help: "Updates of caBundle in the webhook configuration.",
};
pub const API_FAILURES: Metric = Metric {
    name: "tokengauge_injector_api_failures_total",
    kind: "counter",
    help: "Failed checks of the Secret and caBundle. Failed checks are retried.",
};
pub const EVENTS: Metric = Metric {
    name: "tokengauge_injector_events_total",
    kind: "counter",
    help: "Kubernetes events sent, failed, dropped because the queue was full, or limited as repetitions.",
};

const ALL: [&Metric; 7] =
    [&REVIEWS, &DURATION, &EXPIRY, &CERTIFICATES, &BUNDLES, &API_FAILURES, &EVENTS];

/// Counters that [`Metrics::count`] increments, each with all values of its label `outcome`. The empty value means
/// that the counter has no label.
const COUNTERS: [(&Metric, &[&str]); 4] = [
    (&CERTIFICATES, &["shown", "made", "refused"]),
    (&BUNDLES, &[""]),
    (&API_FAILURES, &[""]),
    (&EVENTS, &["sent", "failed", "dropped", "limited"]),
];

/// Returns the names of all metrics. The name of a histogram has no suffix such as `_bucket`.
pub fn metric_names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|metric| metric.name)
}

/// Upper bounds of the duration buckets, in seconds. The largest bound is the webhook timeout in the chart (5 s).
const BUCKETS: [f64; 10] = [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0];

#[derive(Debug, Default)]
pub struct Metrics(Mutex<Values>);

#[derive(Debug, Default)]
struct Values {
    reviews: BTreeMap<(&'static str, &'static str), u64>,
    /// Number of reviews in each duration bucket. The last bucket has no upper bound.
    durations: [u64; BUCKETS.len() + 1],
    duration_sum: Duration,
    /// Values of the counters in [`COUNTERS`], by metric name and label value.
    counts: BTreeMap<(&'static str, &'static str), u64>,
}

impl Metrics {
    pub fn record_review(&self, outcome: ReviewOutcome, reason: &'static str, duration: Duration) {
        let mut values = self.lock();
        *values.reviews.entry((outcome.as_str(), reason)).or_default() += 1;
        let bucket = BUCKETS.iter().take_while(|bound| duration.as_secs_f64() > **bound).count();
        if let Some(count) = values.durations.get_mut(bucket) {
            *count += 1;
        }
        values.duration_sum += duration;
    }

    /// Increments a counter. `outcome` is one of the label values in [`COUNTERS`].
    pub fn count(&self, metric: &Metric, outcome: &'static str) {
        *self.lock().counts.entry((metric.name, outcome)).or_default() += 1;
    }

    /// Returns all metrics in the Prometheus text format. `expiry` is the expiry time of the webhook's certificate.
    pub fn render(&self, expiry: Option<OffsetDateTime>) -> String {
        let values = self.lock();
        let mut page = Page::default();
        page.header(&REVIEWS);
        for ((outcome, reason), count) in &values.reviews {
            let labels = format!("{{outcome=\"{outcome}\",reason=\"{reason}\"}}");
            page.sample(REVIEWS.name, &labels, count);
        }
        page.durations(&values);
        if let Some(expiry) = expiry {
            page.header(&EXPIRY);
            page.sample(EXPIRY.name, "", expiry.unix_timestamp());
        }
        for (metric, outcomes) in COUNTERS {
            page.header(metric);
            for &outcome in outcomes {
                let count = values.counts.get(&(metric.name, outcome)).copied().unwrap_or_default();
                let labels = format!("{{outcome=\"{outcome}\"}}");
                page.sample(metric.name, if outcome.is_empty() { "" } else { &labels }, count);
            }
        }
        page.0
    }

    fn lock(&self) -> MutexGuard<'_, Values> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Text of a metrics page in the Prometheus text format, to which metrics are appended.
#[derive(Default)]
struct Page(String);

impl Page {
    fn header(&mut self, Metric { name, kind, help }: &Metric) {
        self.0 += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        self.0 += &format!("{name}{labels} {value}\n");
    }

    fn durations(&mut self, values: &Values) {
        self.header(&DURATION);
        let mut cumulative = 0;
        let bounds = BUCKETS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(values.durations) {
            cumulative += count;
            let name = format!("{}_bucket", DURATION.name);
            self.sample(&name, &format!("{{le=\"{bound}\"}}"), cumulative);
        }
        self.sample(&format!("{}_sum", DURATION.name), "", values.duration_sum.as_secs_f64());
        self.sample(&format!("{}_count", DURATION.name), "", cumulative);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_recorded_values() {
        let metrics = Metrics::default();
        metrics.record_review(ReviewOutcome::Injected, "injected", Duration::from_micros(400));
        metrics.record_review(ReviewOutcome::Injected, "injected", Duration::from_secs(9));
        metrics.count(&CERTIFICATES, "refused");
        metrics.count(&EVENTS, "limited");
        let text = metrics.render(OffsetDateTime::from_unix_timestamp(17).ok());
        for line in [
            "tokengauge_injector_reviews_total{outcome=\"injected\",reason=\"injected\"} 2",
            "tokengauge_injector_review_duration_seconds_bucket{le=\"0.00025\"} 0",
            "tokengauge_injector_review_duration_seconds_bucket{le=\"0.0005\"} 1",
            "tokengauge_injector_review_duration_seconds_bucket{le=\"5\"} 1",
            "tokengauge_injector_review_duration_seconds_bucket{le=\"+Inf\"} 2",
            "tokengauge_injector_review_duration_seconds_sum 9.0004",
            "tokengauge_injector_review_duration_seconds_count 2",
            "tokengauge_injector_certificate_expiry_timestamp_seconds 17",
            "tokengauge_injector_certificate_changes_total{outcome=\"shown\"} 0",
            "tokengauge_injector_certificate_changes_total{outcome=\"refused\"} 1",
            "tokengauge_injector_events_total{outcome=\"limited\"} 1",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
        for metric in ALL {
            let header = format!("# TYPE {} {}\n", metric.name, metric.kind);
            assert!(text.contains(&header), "{header}");
        }
        assert!(!Metrics::default().render(None).contains(EXPIRY.name));
    }

    #[test]
    fn guide_lists_all_metrics() {
        let guide = include_str!("../../../../docs/how-to/webhook.md");
        let listed: Vec<_> = guide
            .lines()
            .filter_map(|line| line.strip_prefix("| `tokengauge_injector_")?.split_once("` |"))
            .map(|(name, rest)| (name, rest.trim()))
            .collect();
        assert_eq!(listed.len(), ALL.len());
        for metric in ALL {
            let short = metric.name.trim_start_matches("tokengauge_injector_");
            let row = listed.iter().find(|(name, _)| *name == short);
            let (_, rest) =
                row.unwrap_or_else(|| panic!("{short} is not in docs/how-to/webhook.md"));
            assert!(rest.starts_with(metric.kind), "{short}: {rest}");
        }
    }
}
