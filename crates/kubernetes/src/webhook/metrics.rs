//! What the injector counts, as Prometheus text. Every label is a closed set of this program: no name from a review gets
//! into it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::review::ReviewOutcome;

/// A metric as `docs/injector.md` lists it: a test holds both together.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
}

const REVIEWS: Metric = Metric {
    name: "tokengauge_injector_reviews_total",
    kind: "counter",
    help: "Reviews, by what became of them and why.",
};
const DURATION: Metric = Metric {
    name: "tokengauge_injector_review_duration_seconds",
    kind: "histogram",
    help: "Time from a review's head to its answer.",
};
const EXPIRY: Metric = Metric {
    name: "tokengauge_injector_certificate_expiry_timestamp_seconds",
    kind: "gauge",
    help: "When the certificate that is shown ends, in seconds since 1970; absent while none is shown.",
};
const CERTIFICATES: Metric = Metric {
    name: "tokengauge_injector_certificate_changes_total",
    kind: "counter",
    help: "Certificates that were taken into use, made, or refused because they cannot be used.",
};
const BUNDLES: Metric = Metric {
    name: "tokengauge_injector_ca_bundle_patches_total",
    kind: "counter",
    help: "Times that the webhook configuration's caBundle had to be set.",
};
const API_FAILURES: Metric = Metric {
    name: "tokengauge_injector_api_failures_total",
    kind: "counter",
    help: "Rounds of looking after Secret and caBundle that failed; tried again.",
};
const EVENTS: Metric = Metric {
    name: "tokengauge_injector_events_total",
    kind: "counter",
    help: "EventRecorder, by whether they were sent, failed, were dropped because the queue was full, or were too many.",
};

const ALL: [&Metric; 7] =
    [&REVIEWS, &DURATION, &EXPIRY, &CERTIFICATES, &BUNDLES, &API_FAILURES, &EVENTS];

/// The names of all series, but for the suffixes of the histogram's.
pub fn metric_names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|metric| metric.name)
}

/// Upper bounds of the durations' buckets, in microseconds. A webhook that takes 5 s is given up.
const BOUNDS: [u64; 10] =
    [250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000, 5_000_000];

/// What became of a certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CertificateChange {
    /// New connections get it.
    Shown,
    /// Made and kept in the Secret.
    Made,
    /// It cannot be used; what was shown before stays.
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

/// What became of an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EventOutcome {
    Sent,
    Failed,
    Dropped,
    /// The same was said of late.
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
pub struct Metrics {
    reviews: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    durations: [AtomicU64; BOUNDS.len() + 1],
    duration_micros: AtomicU64,
    changes: [AtomicU64; CertificateChange::ALL.len()],
    bundles: AtomicU64,
    api_failures: AtomicU64,
    events: [AtomicU64; EventOutcome::ALL.len()],
}

impl Metrics {
    pub fn reviewed(&self, outcome: ReviewOutcome, reason: &'static str, took: Duration) {
        let mut reviews = self.reviews.lock().unwrap_or_else(PoisonError::into_inner);
        *reviews.entry((outcome.as_str(), reason)).or_default() += 1;
        drop(reviews);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.iter().position(|bound| micros <= *bound);
        if let Some(bucket) = self.durations.get(bucket.unwrap_or(BOUNDS.len())) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.duration_micros.fetch_add(micros, Ordering::Relaxed);
    }

    pub fn changed(&self, change: CertificateChange) {
        count(&self.changes, change as usize);
    }

    pub fn bundle_patched(&self) {
        self.bundles.fetch_add(1, Ordering::Relaxed);
    }

    pub fn api_failed(&self) {
        self.api_failures.fetch_add(1, Ordering::Relaxed);
    }

    pub fn event(&self, outcome: EventOutcome) {
        count(&self.events, outcome as usize);
    }

    /// Prometheus text; `until` is when the certificate ends.
    pub fn text(&self, until: Option<u64>) -> String {
        let mut page = Page(String::new());
        page.head(&REVIEWS);
        let reviews = self.reviews.lock().unwrap_or_else(PoisonError::into_inner);
        for ((outcome, reason), count) in &*reviews {
            let labels = format!("{{outcome=\"{outcome}\",reason=\"{reason}\"}}");
            page.line(REVIEWS.name, &labels, count);
        }
        drop(reviews);
        self.durations(&mut page);
        if let Some(until) = until {
            page.head(&EXPIRY);
            page.line(EXPIRY.name, "", until);
        }
        page.head(&CERTIFICATES);
        for (change, count) in CertificateChange::ALL.iter().zip(&self.changes) {
            let labels = format!("{{outcome=\"{}\"}}", change.as_str());
            page.line(CERTIFICATES.name, &labels, value(count));
        }
        page.head(&BUNDLES);
        page.line(BUNDLES.name, "", value(&self.bundles));
        page.head(&API_FAILURES);
        page.line(API_FAILURES.name, "", value(&self.api_failures));
        page.head(&EVENTS);
        for (outcome, count) in EventOutcome::ALL.iter().zip(&self.events) {
            let labels = format!("{{outcome=\"{}\"}}", outcome.as_str());
            page.line(EVENTS.name, &labels, value(count));
        }
        page.0
    }

    fn durations(&self, page: &mut Page) {
        page.head(&DURATION);
        let mut below = 0;
        let bounds = BOUNDS.iter().map(|bound| seconds(*bound));
        let bounds = bounds.chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&self.durations) {
            below += value(count);
            let name = format!("{}_bucket", DURATION.name);
            page.line(&name, &format!("{{le=\"{bound}\"}}"), below);
        }
        let sum = seconds(value(&self.duration_micros));
        page.line(&format!("{}_sum", DURATION.name), "", sum);
        page.line(&format!("{}_count", DURATION.name), "", below);
    }
}

fn count(counters: &[AtomicU64], at: usize) {
    if let Some(counter) = counters.get(at) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn value(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Microseconds as seconds, without zeros at the end.
fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    text.to_owned()
}

struct Page(String);

impl Page {
    fn head(&mut self, Metric { name, kind, help }: &Metric) {
        self.push(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn line(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        self.push(format_args!("{name}{labels} {value}\n"));
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        self.0.write_fmt(text).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_what_was_counted() {
        let metrics = Metrics::default();
        metrics.reviewed(ReviewOutcome::Injected, "injected", Duration::from_micros(400));
        metrics.reviewed(ReviewOutcome::Injected, "injected", Duration::from_secs(9));
        metrics.changed(CertificateChange::Refused);
        metrics.event(EventOutcome::Limited);
        let text = metrics.text(Some(17));
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
            let head = format!("# TYPE {} {}\n", metric.name, metric.kind);
            assert!(text.contains(&head), "{head}");
        }
        let none = Metrics::default().text(None);
        assert!(!none.contains(EXPIRY.name));
    }

    #[test]
    fn the_guide_lists_every_metric_and_no_other() {
        let guide = include_str!("../../../../docs/injector.md");
        let listed: Vec<_> = guide
            .lines()
            .filter_map(|line| line.strip_prefix("| `tokengauge_injector_")?.split_once("` |"))
            .map(|(name, rest)| (name, rest.trim()))
            .collect();
        assert_eq!(listed.len(), ALL.len());
        for metric in ALL {
            let short = metric.name.trim_start_matches("tokengauge_injector_");
            let row = listed.iter().find(|(name, _)| *name == short);
            let (_, rest) = row.unwrap_or_else(|| panic!("{short} is not in docs/injector.md"));
            assert!(rest.starts_with(metric.kind), "{short}: {rest}");
        }
    }
}
