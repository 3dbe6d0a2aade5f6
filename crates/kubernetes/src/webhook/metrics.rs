//! Metrics of the webhook in the Prometheus text format.
//!
//! All label values are constants of this program, so reviews cannot create series.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;

use super::review::ReviewOutcome;

/// A metric of `docs/how-to/webhook.md`. A test compares both.
struct Metric {
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
const CERTIFICATES: Metric = Metric {
    name: "tokengauge_injector_certificate_changes_total",
    kind: "counter",
    help: "Certificates taken into use (shown), issued (made) or rejected as unusable (refused).",
};
const BUNDLES: Metric = Metric {
    name: "tokengauge_injector_ca_bundle_patches_total",
    kind: "counter",
    help: "Updates of caBundle in the webhook configuration.",
};
const API_FAILURES: Metric = Metric {
    name: "tokengauge_injector_api_failures_total",
    kind: "counter",
    help: "Failed checks of the Secret and caBundle. Failed checks are retried.",
};
const EVENTS: Metric = Metric {
    name: "tokengauge_injector_events_total",
    kind: "counter",
    help: "Kubernetes events sent, failed, dropped because the queue was full, or limited as repetitions.",
};

const ALL: [&Metric; 7] =
    [&REVIEWS, &DURATION, &EXPIRY, &CERTIFICATES, &BUNDLES, &API_FAILURES, &EVENTS];

/// Returns the names of all metrics, without the suffixes of histogram series.
pub fn metric_names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|metric| metric.name)
}

/// Upper bounds of the duration buckets in seconds. The chart's webhook timeout is 5 s.
const BUCKETS: [f64; 10] = [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0];

/// A counted change of a certificate.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum CertificateChange {
    /// New connections use the certificate.
    Shown,
    /// The certificate was issued and stored in the Secret.
    Made,
    /// The certificate is unusable. The previous certificate stays in use.
    Refused,
}

impl CertificateChange {
    const ALL: [Self; 3] = [Self::Shown, Self::Made, Self::Refused];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Shown => "shown",
            Self::Made => "made",
            Self::Refused => "refused",
        }
    }
}

/// Result of an event.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum EventOutcome {
    Sent,
    Failed,
    /// The queue was full.
    Dropped,
    /// The event repeats a recent event.
    Limited,
}

impl EventOutcome {
    const ALL: [Self; 4] = [Self::Sent, Self::Failed, Self::Dropped, Self::Limited];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
            Self::Limited => "limited",
        }
    }
}

#[derive(Debug, Default)]
pub struct Metrics(Mutex<Values>);

#[derive(Debug, Default)]
struct Values {
    reviews: BTreeMap<(&'static str, &'static str), u64>,
    /// Reviews by bucket. The last bucket has no upper bound.
    durations: [u64; BUCKETS.len() + 1],
    duration_sum: Duration,
    certificate_changes: BTreeMap<CertificateChange, u64>,
    ca_bundle_patches: u64,
    check_failures: u64,
    events: BTreeMap<EventOutcome, u64>,
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

    pub fn record_certificate_change(&self, change: CertificateChange) {
        *self.lock().certificate_changes.entry(change).or_default() += 1;
    }

    pub fn record_ca_bundle_patch(&self) {
        self.lock().ca_bundle_patches += 1;
    }

    pub fn record_check_failure(&self) {
        self.lock().check_failures += 1;
    }

    pub fn record_event(&self, outcome: EventOutcome) {
        *self.lock().events.entry(outcome).or_default() += 1;
    }

    /// Returns the Prometheus text. `expiry` is the expiry time of the serving certificate.
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
        page.header(&CERTIFICATES);
        for change in CertificateChange::ALL {
            let count = values.certificate_changes.get(&change).copied().unwrap_or_default();
            page.sample(CERTIFICATES.name, &outcome_label(change.as_str()), count);
        }
        page.header(&BUNDLES);
        page.sample(BUNDLES.name, "", values.ca_bundle_patches);
        page.header(&API_FAILURES);
        page.sample(API_FAILURES.name, "", values.check_failures);
        page.header(&EVENTS);
        for outcome in EventOutcome::ALL {
            let count = values.events.get(&outcome).copied().unwrap_or_default();
            page.sample(EVENTS.name, &outcome_label(outcome.as_str()), count);
        }
        page.0
    }

    fn lock(&self) -> MutexGuard<'_, Values> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn outcome_label(outcome: &str) -> String {
    format!("{{outcome=\"{outcome}\"}}")
}

/// Prometheus text under construction.
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
        metrics.record_certificate_change(CertificateChange::Refused);
        metrics.record_event(EventOutcome::Limited);
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
