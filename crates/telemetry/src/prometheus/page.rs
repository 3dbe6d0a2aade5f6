//! Renders a scrape in pieces.

use std::borrow::Borrow;
use std::fmt;
use std::{mem, vec};

use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Metric, MetricData};

use super::{Format, Kind, Series, name, series_of};
use crate::metrics_reader::MetricsSnapshot;

/// Size in bytes at which a piece of the text ends. A piece takes less than a millisecond to render. The last series of
/// a piece can exceed the size by some kilobytes.
const PIECE_BYTES: usize = 64 << 10;

/// The text of a scrape, as an iterator over pieces. Holds the series of one metric at a time.
#[derive(Debug)]
pub struct MetricsPage<S> {
    format: Format,
    snapshot: S,
    /// The metrics that are not rendered yet, with their places in the snapshot.
    families: vec::IntoIter<Family>,
    current: Option<(String, vec::IntoIter<Series>)>,
    text: String,
    is_complete: bool,
}

#[derive(Debug)]
struct Family {
    name: String,
    kind: Kind,
    place: usize,
}

impl<S: Borrow<MetricsSnapshot>> MetricsPage<S> {
    pub(super) fn new(format: Format, snapshot: S) -> Self {
        let metrics = snapshot.borrow();
        let mut text = String::new();
        // Writing to a `String` cannot fail, here and below.
        let _ok: fmt::Result = format.write_target(metrics.resource(), &mut text);
        let family = |(place, metric): (usize, &Metric)| {
            let kind = kind_of(metric);
            Family { name: name(metric.name(), metric.unit(), kind), kind, place }
        };
        let mut families: Vec<_> = metrics.metrics().enumerate().map(family).collect();
        families.sort_by(|one, other| one.name.cmp(&other.name));
        let families = families.into_iter();
        Self { format, snapshot, families, current: None, text, is_complete: false }
    }

    /// Begins the next metric. Returns `false` if no metric is left.
    fn begin_family(&mut self) -> bool {
        let Some(Family { name, kind, place }) = self.families.next() else {
            return false;
        };
        let snapshot = self.snapshot.borrow();
        if let Some(metric) = snapshot.metrics().nth(place) {
            let taken = match self.format {
                Format::Text => None,
                Format::OpenMetrics => snapshot.exemplars(),
            };
            let series = series_of(metric, taken);
            let _ok: fmt::Result =
                self.format.write_family_head(metric, (&name, kind), &mut self.text);
            self.current = Some((name, series.into_iter()));
        }
        true
    }
}

impl<S: Borrow<MetricsSnapshot>> Iterator for MetricsPage<S> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        while self.text.len() < PIECE_BYTES && !self.is_complete {
            if let Some((name, series)) = &mut self.current
                && let Some(series) = series.next()
            {
                let _ok: fmt::Result = series.write(name, &mut self.text);
            } else if !self.begin_family() {
                self.is_complete = true;
                if self.format == Format::OpenMetrics {
                    self.text.push_str("# EOF\n");
                }
            }
        }
        let piece = mem::take(&mut self.text);
        (!piece.is_empty()).then_some(piece)
    }
}

fn kind_of(metric: &Metric) -> Kind {
    match metric.data() {
        AggregatedMetrics::F64(data) => kind_of_data(data),
        AggregatedMetrics::U64(data) => kind_of_data(data),
        AggregatedMetrics::I64(data) => kind_of_data(data),
    }
}

fn kind_of_data<T: Copy>(data: &MetricData<T>) -> Kind {
    match data {
        MetricData::Gauge(_) => Kind::Gauge,
        MetricData::Sum(sum) if sum.is_monotonic() => Kind::Counter,
        MetricData::Sum(_) => Kind::Gauge,
        MetricData::Histogram(_) | MetricData::ExponentialHistogram(_) => Kind::Histogram,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Instruments;
    use crate::config::TelemetryConfig;
    use crate::snapshot::{SnapshotSource, StateSnapshot};
    use crate::testing;
    use tokengauge_types::label::{CardinalityLimiter, CardinalityLimits, Label};

    /// Returns a snapshot of calls of 60 models.
    fn snapshot() -> MetricsSnapshot {
        let limits = CardinalityLimits::default();
        let readings = SnapshotSource::new(StateSnapshot::default);
        let (instruments, reader) = Instruments::new(&TelemetryConfig::default(), limits, readings);
        let limiter = CardinalityLimiter::new(limits, []);
        for model in 0..60 {
            let mut record = testing::streamed();
            let call = record.call.as_mut().unwrap();
            call.series.model = Label::from_trusted(&format!("model-{model}"));
            instruments.record_end(&record, &limiter);
        }
        reader.scrape()
    }

    #[test]
    fn pieces_are_small_and_so_is_the_memory_for_them() {
        let snapshot = snapshot();
        let mut longest = 0;
        let mut total = 0;
        let taken = allocation_counter::measure(|| {
            for piece in Format::OpenMetrics.page(&snapshot) {
                longest = piece.len().max(longest);
                total += piece.len();
            }
        });
        assert!(total > 6 << 20, "{total}");
        assert!(longest < PIECE_BYTES + (16 << 10), "{longest}");
        assert!(taken.bytes_max < 3 << 20, "{} for {total}", taken.bytes_max);
        let text = Format::OpenMetrics.render(&snapshot);
        assert!(text.len() == total && text.ends_with("\n# EOF\n"));
    }
}
