//! Fuzzes the metrics pages of engines.
//!
//! Every response of an endpoint must be read to its end, and the reported values must be plausible. The readings of
//! two pages must yield a ratio between 0 and 1.

use std::time::Duration;

use tokengauge_measure::engine::exposition::samples;
use tokengauge_measure::engine::{
    Backend, Backends, Engine, EngineMetrics, EngineReading, PrefixCacheUsage, ScrapeResult, read,
};
use tokengauge_types::clock::{MonotonicInstant, WallTime};
use tokengauge_types::label::Label;

use super::script::Script;

/// Tests pages of engine metrics.
///
/// The first byte selects the configured engine, if any. A line of dashes separates two pages, which are read one after
/// the other.
pub fn engines(input: &[u8]) {
    let mut script = Script::new(input);
    let named = Engine::ALL.get(usize::from(script.digit())).copied();
    let rest = script.rest();
    let parted = rest.windows(4).position(|bytes| bytes == b"\n---");
    let (one, two) = rest.split_at(parted.unwrap_or(rest.len()));
    let upstream = Label::from_trusted("a");
    let mut backends = Backends::default();
    backends.replace(vec![Backend {
        upstream: upstream.clone(),
        routes: vec![Label::from_trusted("a")],
        stale_after: Some(Duration::from_secs(1)),
        warm: Some(Default::default()),
    }]);
    for page in [one, two] {
        let any = samples(page).flatten().fold(false, |_, sample| {
            assert!(!sample.name.is_empty());
            assert!(sample.labels().all(|(name, _)| !name.is_empty()));
            true
        });
        let reading = read(page, named);
        match &reading {
            Ok(reading) => check(reading, named),
            Err(failed) => assert_eq!(*failed == ScrapeResult::NotMetrics, !any),
        }
        backends.record_scrape(MonotonicInstant::ZERO, WallTime::default(), &upstream, reading);
        for reading in backends.readings(MonotonicInstant::ZERO) {
            let share = |share: Option<f64>| share.is_none_or(|share| (0.0..=1.0).contains(&share));
            assert!(share(reading.kv_cache) && share(reading.prefix_cache));
        }
    }
}

fn check(reading: &EngineReading, named: Option<Engine>) {
    assert!(named.is_none_or(|named| named == reading.engine));
    let EngineMetrics { waiting, running, kv_cache, prefix, started: _, asleep: _ } =
        reading.metrics;
    assert!([waiting, running].iter().flatten().all(|number| *number <= 1 << 53));
    assert!(kv_cache.is_none_or(|share| (0.0..=1.0).contains(&share)));
    match prefix {
        Some(PrefixCacheUsage::Share(share)) => assert!((0.0..=1.0).contains(&share)),
        Some(PrefixCacheUsage::Counted { queries, hits }) => assert!(queries >= 0.0 && hits >= 0.0),
        None => {}
    }
}
