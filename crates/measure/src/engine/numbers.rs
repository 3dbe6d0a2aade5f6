//! Converts a metrics page to the few values that all engines report under different names.
//!
//! An engine writes one series for each model, data-parallel rank or pool. Series are combined as follows:
//!
//! - Requests are summed.
//! - For KV caches the fullest one is reported. It is the one that makes requests wait, and a mean would hide it.
//! - Counters are summed, so that their ratio weighs each cache by its use.
//! - Ratios computed by the engine are averaged, because their weights are unknown.
//! - Series that differ only in a rank that shares the work ([`names::REPLICA_LABELS`]) describe the same requests, so
//!   the greatest value is used.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use rustc_hash::FxHashMap;

use crate::engine::exposition::{Sample, samples};
use crate::engine::names::{BREAKDOWN_LABEL, Meaning, NAMES, PROCESS_START, REPLICA_LABELS};
use crate::engine::{Engine, ScrapeResult};
use tokengauge_types::clock::WallTime;

/// Maximum number of label sets of one metric name: four times the models × ranks of the largest deployments. A metric
/// with more label sets is omitted, because a partial sum would be wrong.
const MAX_SERIES: usize = 1_024;

/// Largest plausible count: 2^53, up to which an `f64` represents integers exactly. No real count reaches this limit.
const MAX_COUNT: f64 = 9_007_199_254_740_992.0;

/// Metrics of one page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineReading {
    pub engine: Engine,
    pub metrics: EngineMetrics,
    /// Number of metrics omitted from `metrics` because a value is implausible: negative, not finite, or a ratio above
    /// 1.
    pub implausible: u64,
}

/// Engine metrics. A field is `None` if the engine does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EngineMetrics {
    pub waiting: Option<u64>,
    pub running: Option<u64>,
    /// Ratio that is in use, 0 to 1.
    pub kv_cache: Option<f64>,
    pub prefix: Option<PrefixCacheUsage>,
    /// Process start time by the engine's clock.
    pub started: Option<WallTime>,
    pub asleep: Option<bool>,
}

/// Use of the prefix cache: queries and hits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PrefixCacheUsage {
    /// Totals since the engine's start, in tokens or in blocks. The recent hit ratio follows from the difference of two
    /// pages.
    Counted { queries: f64, hits: f64 },
    /// Hit ratio as the engine computes it, from 0 to 1.
    Share(f64),
}

/// Parses a metrics page. If `engine` is `None`, the engine is detected: the first of [`Engine::ALL`] with a known
/// metric name in the page.
///
/// # Errors
/// Returns [`ScrapeResult::NotMetrics`] if the page has no sample, and [`ScrapeResult::UnknownEngine`] if no sample has
/// a known name of the engine.
pub fn read(body: &[u8], engine: Option<Engine>) -> Result<EngineReading, ScrapeResult> {
    let mut metrics = PageMetrics::default();
    let mut any = false;
    for sample in samples(body).flatten() {
        any = true;
        metrics.add(&sample);
    }
    if !any {
        return Err(ScrapeResult::NotMetrics);
    }
    let known = |engine: &Engine| {
        let mut names = NAMES.iter().zip(&metrics.names);
        names.any(|(name, series)| name.engine == *engine && !series.values.is_empty())
    };
    let found = match engine {
        Some(engine) => Some(engine).filter(known),
        None => Engine::ALL.into_iter().find(known),
    };
    Ok(metrics.reading(found.ok_or(ScrapeResult::UnknownEngine)?))
}

/// Samples of each metric in [`NAMES`], and of the process start time.
#[derive(Debug)]
struct PageMetrics {
    names: [Series; NAMES.len()],
    started: Series,
}

impl Default for PageMetrics {
    fn default() -> Self {
        Self { names: std::array::from_fn(|_| Series::default()), started: Series::default() }
    }
}

/// The values of one metric, by a hash of their labels. The hash omits labels that contain the number of a parallel
/// rank, because all ranks report the same work.
#[derive(Debug, Default)]
struct Series {
    values: FxHashMap<u64, f64>,
    too_many: bool,
}

impl PageMetrics {
    fn add(&mut self, sample: &Sample<'_>) {
        if sample.name == PROCESS_START {
            self.started.add(sample);
        }
        for (name, series) in NAMES.iter().zip(&mut self.names) {
            let chosen = |(label, value)| sample.label(label) == value;
            if name.name == sample.name && name.only.is_none_or(chosen) {
                series.add(sample);
            }
        }
    }

    fn series(&self, engine: Engine, meaning: Meaning) -> Option<&Series> {
        let mut names = NAMES.iter().zip(&self.names);
        let found = names.find(|(name, series)| {
            (name.engine, name.meaning) == (engine, meaning) && !series.values.is_empty()
        });
        found.map(|(_, series)| series)
    }

    fn reading(&self, engine: Engine) -> EngineReading {
        let mut implausible = 0;
        let mut number = |meaning: Meaning, fold: fn(&Series) -> Result<f64, ImplausibleValue>| {
            let value = fold(self.series(engine, meaning)?);
            implausible += u64::from(value.is_err());
            value.ok()
        };
        let waiting = number(Meaning::Waiting, Series::sum);
        let running = number(Meaning::Running, Series::sum);
        let kv_cache = number(Meaning::KvCache, Series::fullest);
        let queries = number(Meaning::Queries, Series::sum);
        let hits = number(Meaning::Hits, Series::sum);
        let misses = number(Meaning::Misses, Series::sum);
        let share =
            number(Meaning::PrefixShare, Series::mean_share).filter(|share| !share.is_nan());
        let awake = number(Meaning::Awake, Series::fullest);
        let started = (!self.started.values.is_empty()).then(|| self.started.latest());
        implausible += u64::from(started.is_some_and(|started| started.is_err()));
        let queries = queries.or(hits.zip(misses).map(|(hits, misses)| hits + misses));
        let counted =
            queries.zip(hits).map(|(queries, hits)| PrefixCacheUsage::Counted { queries, hits });
        EngineReading {
            engine,
            metrics: EngineMetrics {
                waiting: waiting.map(round_to_integer),
                running: running.map(round_to_integer),
                kv_cache,
                prefix: counted.or(share.map(PrefixCacheUsage::Share)),
                started: started.and_then(Result::ok),
                asleep: awake.map(|awake| awake < 0.5),
            },
            implausible,
        }
    }
}

/// Error for a value that cannot be true.
#[derive(Clone, Copy, Debug)]
struct ImplausibleValue;

impl Series {
    fn add(&mut self, sample: &Sample<'_>) {
        let mut labels: Vec<_> = sample.labels().collect();
        if labels.iter().any(|(key, value)| *key == BREAKDOWN_LABEL && !value.is_empty()) {
            return;
        }
        labels.retain(|(key, _)| !REPLICA_LABELS.contains(key));
        labels.sort_unstable();
        let mut hasher = DefaultHasher::new();
        labels.hash(&mut hasher);
        let key = hasher.finish();
        if self.values.len() >= MAX_SERIES && !self.values.contains_key(&key) {
            self.too_many = true;
            return;
        }
        let known = self.values.entry(key).or_insert(sample.value);
        // NaN replaces other values, so that the whole metric counts as implausible.
        if sample.value.is_nan() || *known < sample.value {
            *known = sample.value;
        }
    }

    /// Sums current requests or counters over all series.
    fn sum(&self) -> Result<f64, ImplausibleValue> {
        let sum: f64 = self.plausible_values(MAX_COUNT)?.sum();
        if sum <= MAX_COUNT { Ok(sum) } else { Err(ImplausibleValue) }
    }

    /// Returns the greatest ratio.
    fn fullest(&self) -> Result<f64, ImplausibleValue> {
        Ok(self.plausible_values(1.0)?.fold(0.0, f64::max))
    }

    /// Returns the mean ratio, or NaN if no sample has a ratio. −1 counts as no ratio: vLLM before version 1 writes −1
    /// until its first cache query.
    fn mean_share(&self) -> Result<f64, ImplausibleValue> {
        let mut ratios = Self { values: self.values.clone(), too_many: self.too_many };
        ratios.values.retain(|_, value| (*value + 1.0).abs() >= f64::EPSILON);
        Ok(ratios.plausible_values(1.0)?.sum::<f64>() / ratios.values.len() as f64)
    }

    /// Returns the latest of the times, which are in seconds since 1970.
    fn latest(&self) -> Result<WallTime, ImplausibleValue> {
        let latest = self.plausible_values(MAX_START_TIME)?.fold(0.0, f64::max);
        let since = std::time::Duration::try_from_secs_f64(latest).map_err(|_| ImplausibleValue)?;
        Ok(WallTime::default() + since)
    }

    /// Returns all values, each between 0 and `max`.
    fn plausible_values(
        &self,
        max: f64,
    ) -> Result<impl Iterator<Item = f64> + '_, ImplausibleValue> {
        let plausible = |value: &f64| (0.0..=max).contains(value);
        if self.too_many || !self.values.values().all(plausible) {
            return Err(ImplausibleValue);
        }
        Ok(self.values.values().copied())
    }
}

/// Start of the year 2500 in seconds since 1970. Larger values are implausible, for example milliseconds.
const MAX_START_TIME: f64 = 16_725_225_600.0;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 2^53")]
fn round_to_integer(requests: f64) -> u64 {
    requests.round() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(body: &str) -> EngineMetrics {
        let reading = read(body.as_bytes(), None).unwrap();
        assert_eq!(reading.implausible, 0, "{body}");
        reading.metrics
    }

    fn implausible(line: &str) -> (EngineMetrics, u64) {
        let reading = read(line.as_bytes(), None).unwrap();
        (reading.metrics, reading.implausible)
    }

    #[test]
    fn requests_are_summed_over_models_and_ranks_and_the_fullest_cache_is_reported() {
        let body = "
vllm:num_requests_waiting{engine=\"0\",model_name=\"a\"} 3.0
vllm:num_requests_waiting{engine=\"1\",model_name=\"a\"} 4.0
vllm:kv_cache_usage_perc{engine=\"0\"} 0.25
vllm:kv_cache_usage_perc{engine=\"1\"} 0.75
vllm:prefix_cache_queries_total{engine=\"0\"} 100.0
vllm:prefix_cache_queries_total{engine=\"1\"} 300.0
vllm:prefix_cache_hits_total{engine=\"0\"} 50.0
vllm:prefix_cache_hits_total{engine=\"1\"} 30.0
";
        let metrics = numbers(body);
        assert_eq!((metrics.waiting, metrics.running), (Some(7), None));
        assert_eq!(metrics.kv_cache, Some(0.75));
        let expected = PrefixCacheUsage::Counted { queries: 400.0, hits: 80.0 };
        assert_eq!(metrics.prefix, Some(expected));
    }

    #[test]
    fn ranks_that_share_the_work_and_parts_of_a_sum_are_not_counted_twice() {
        let body = "
sglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"0\",priority=\"\"} 5
sglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"1\",priority=\"\"} 5
sglang:num_running_reqs{dp_rank=\"1\",tp_rank=\"2\",priority=\"\"} 2
sglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"0\",priority=\"1\"} 4
sglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"0\",priority=\"2\"} 1
";
        assert_eq!(numbers(body).running, Some(7));
    }

    #[test]
    fn llama_cpp_counts_prompt_tokens_with_and_without_cache() {
        let body = "llamacpp:prompt_tokens_total 75\nllamacpp:requests_deferred 0\n";
        assert_eq!(numbers(body).prefix, None, "older versions do not report hits");
        let body = format!("{body}llamacpp:prompt_tokens_cached_total 25\n");
        let expected = PrefixCacheUsage::Counted { queries: 100.0, hits: 25.0 };
        assert_eq!(numbers(&body).prefix, Some(expected));
    }

    #[test]
    fn the_newer_name_takes_precedence_over_the_older_one() {
        let body = "vllm:gpu_cache_usage_perc 0.9\nvllm:kv_cache_usage_perc 0.1\n";
        assert_eq!(numbers(body).kv_cache, Some(0.1));
    }

    #[test]
    fn only_implausible_values_are_omitted() {
        for value in ["NaN", "-1", "+Inf", "1e300"] {
            let body = format!("vllm:num_requests_waiting {value}\nvllm:num_requests_running 2\n");
            let (metrics, implausible_count) = implausible(&body);
            assert_eq!(
                (metrics.waiting, metrics.running, implausible_count),
                (None, Some(2), 1),
                "{value}"
            );
        }
        // 85 means 85 %. Read as a ratio, the cache would be 85 times full.
        let (metrics, implausible_count) = implausible(
            "vllm:kv_cache_usage_perc{engine=\"0\"} 85\nvllm:kv_cache_usage_perc{engine=\"1\"} 0\n",
        );
        assert_eq!((metrics.kv_cache, implausible_count), (None, 1));
        // The sum exceeds the range of a float, and an infinite total has no ratio.
        let huge = "trtllm_kv_cache_reused_blocks_total 1e308\ntrtllm_kv_cache_missed_blocks_total 1e308\n";
        let (metrics, implausible_count) = implausible(huge);
        assert_eq!((metrics.prefix, implausible_count), (None, 2));
        let (metrics, implausible_count) =
            implausible("vllm:num_requests_running 0\nprocess_start_time_seconds -5\n");
        assert_eq!((metrics.started, implausible_count), (None, 1));
    }

    #[test]
    fn a_hit_rate_without_lookups_is_absent() {
        let body = "vllm:gpu_prefix_cache_hit_rate -1.0\nvllm:num_requests_running 0\n";
        assert_eq!(numbers(body).prefix, None);
        assert_eq!(
            numbers("sglang:cache_hit_rate 0.5\n").prefix,
            Some(PrefixCacheUsage::Share(0.5))
        );
    }

    #[test]
    fn an_engine_is_asleep_if_all_its_parts_are_asleep() {
        let state = |awake: u8| {
            format!(
                "vllm:engine_sleep_state{{sleep_state=\"awake\"}} {awake}\nvllm:engine_sleep_state{{sleep_state=\"discard_all\"}} 0\n"
            )
        };
        assert_eq!(numbers(&state(0)).asleep, Some(true));
        assert_eq!(numbers(&state(1)).asleep, Some(false));
        assert_eq!(numbers("tgi_queue_size 1").asleep, None);
    }

    #[test]
    fn a_page_without_a_known_metric_reports_the_reason() {
        assert_eq!(read(b"<html>no</html>", None), Err(ScrapeResult::NotMetrics));
        assert_eq!(read(b"", None), Err(ScrapeResult::NotMetrics));
        assert_eq!(read(b"up 1\n", None), Err(ScrapeResult::UnknownEngine));
        assert_eq!(
            read(b"tgi_queue_size 1\n", Some(Engine::Vllm)),
            Err(ScrapeResult::UnknownEngine)
        );
        let both = b"num_requests_waiting 1\nvllm:num_requests_waiting 2\n";
        assert_eq!(read(both, None).unwrap().engine, Engine::Vllm);
        assert_eq!(read(both, Some(Engine::Nim)).unwrap().metrics.waiting, Some(1));
    }

    #[test]
    fn too_many_series_are_bounded_and_not_summed() {
        use std::fmt::Write;
        let mut body = String::from("tgi_queue_size 1\n");
        for model in 0..MAX_SERIES + 1 {
            writeln!(body, "tgi_batch_current_size{{m=\"{model}\"}} 1").unwrap();
        }
        let (metrics, implausible_count) = implausible(&body);
        assert_eq!((metrics.waiting, metrics.running, implausible_count), (Some(1), None, 1));
    }

    proptest! {
        #[test]
        fn reported_values_are_plausible_for_any_input(
            lines in proptest::collection::vec((0..NAMES.len(), any::<f64>(), 0_u8..3), 1..40),
        ) {
            let body: String = lines
                .iter()
                .map(|(at, value, rank)| {
                    let (key, chosen) = NAMES[*at].only.unwrap_or(("x", "y"));
                    format!("{}{{{key}=\"{chosen}\",dp_rank=\"{rank}\"}} {value:?}\n", NAMES[*at].name)
                })
                .collect();
            let EngineMetrics { kv_cache, prefix, .. } = read(body.as_bytes(), None).unwrap().metrics;
            prop_assert!(kv_cache.is_none_or(|share| (0.0..=1.0).contains(&share)));
            let plausible = match prefix {
                Some(PrefixCacheUsage::Share(share)) => (0.0..=1.0).contains(&share),
                Some(PrefixCacheUsage::Counted { queries, hits }) => queries >= 0.0 && hits >= 0.0,
                None => true,
            };
            prop_assert!(plausible);
        }
    }
}
