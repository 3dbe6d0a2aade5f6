//! Decides which traces are exported, and records the reason.
//!
//! The first decision is made when a request starts, because only this decision can be sent upstream. When the request
//! has ended, its trace is kept regardless of this decision if the request failed, stalled or missed an SLO. This
//! applies even if the caller did not sample the trace. Callers sample a few per cent of all traces before the result
//! is known. If their decision always applied, nearly every trace that operators look for would be dropped. A trace
//! that is kept against the caller's decision contains only the two spans of this proxy and is marked.

use tokengauge_measure::record::{Outcome, Record, Verdict};
use tokengauge_types::event::TraceContext;

/// Decides whether the trace of a request is kept: when the request starts, and again when it has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    pub root: RootSampler,
    /// Whether the caller's decision takes precedence over `root`.
    pub parent_based: bool,
    /// Whether to keep traces of requests that failed, stalled or missed an SLO even if the caller did not sample them.
    pub against_parent: bool,
}

/// The sampling method for requests whose caller sent no decision. If callers' decisions are ignored, the method
/// applies to all requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RootSampler {
    AlwaysOn,
    AlwaysOff,
    /// Keeps this ratio of traces, from 0 to 1. Only the trace id decides, so all samplers with the same ratio keep the
    /// same traces.
    Ratio(f64),
}

impl Default for Sampler {
    fn default() -> Self {
        Self { root: RootSampler::AlwaysOn, parent_based: true, against_parent: true }
    }
}

/// The decision to keep a trace, with its reason. The default is the decision of a sampler that keeps all traces.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SamplingDecision {
    pub reason: SamplingReason,
    /// Whether the trace is kept although the caller did not sample it. The caller's spans are then missing in the
    /// trace.
    pub against_parent: bool,
}

/// Why a trace is kept. If several reasons apply, the first one is recorded. The first three can apply when a request
/// starts, and the others only when the request has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum SamplingReason {
    /// The caller sampled the trace.
    Parent,
    #[default]
    AlwaysOn,
    /// The trace id is within the configured ratio.
    Ratio(f64),
    Error,
    Stall,
    Slo,
}

impl Sampler {
    /// Returns whether to sample a request that starts. The result is sent upstream as the sampled flag.
    pub fn sample_at_start(&self, trace: &TraceContext) -> bool {
        self.reason_at_start(trace).is_some()
    }

    /// Returns why to keep the trace of a finished request. `None` means that the trace is dropped.
    pub fn decide(&self, record: &Record) -> Option<SamplingDecision> {
        if let Some(reason) = self.reason_at_start(&record.trace) {
            return Some(SamplingDecision { reason, against_parent: false });
        }
        let refused = self.parent_based && record.trace.parent_sampled == Some(false);
        if refused && !self.against_parent {
            return None;
        }
        Some(SamplingDecision {
            reason: SamplingReason::reason_at_end(record)?,
            against_parent: refused,
        })
    }

    fn reason_at_start(&self, trace: &TraceContext) -> Option<SamplingReason> {
        match (self.parent_based, trace.parent_sampled) {
            (true, Some(sampled)) => sampled.then_some(SamplingReason::Parent),
            (true, None) | (false, _) => self.root.select(&trace.trace_id),
        }
    }
}

impl RootSampler {
    /// Returns the reason to keep a trace. A ratio is compared with the lower 63 bits of the trace id, as in
    /// OpenTelemetry.
    fn select(self, trace_id: &[u8; 16]) -> Option<SamplingReason> {
        match self {
            Self::AlwaysOn => Some(SamplingReason::AlwaysOn),
            Self::AlwaysOff => None,
            Self::Ratio(ratio) => {
                let [.., a, b, c, d, e, f, g, h] = *trace_id;
                let low = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1;
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "2^53 steps are finer than any configured ratio"
                )]
                let position = low as f64 / (1_u64 << 63) as f64;
                (position < ratio).then_some(SamplingReason::Ratio(ratio))
            }
        }
    }
}

impl SamplingReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Parent => "parent",
            Self::AlwaysOn => "always_on",
            Self::Ratio(_) => "ratio",
            Self::Error => "error",
            Self::Stall => "stall",
            Self::Slo => "slo",
        }
    }

    /// Returns the most serious reason to keep the trace: an error, a stall or a missed SLO.
    fn reason_at_end(record: &Record) -> Option<Self> {
        match record.outcome {
            Outcome::Error | Outcome::Timeout | Outcome::Truncated | Outcome::Rejected => {
                Some(Self::Error)
            }
            Outcome::Ok | Outcome::Cancelled if stalled(record) => Some(Self::Stall),
            Outcome::Ok | Outcome::Cancelled => missed_an_objective(record).then_some(Self::Slo),
        }
    }
}

/// Returns whether the stream stalled, even if it continued later.
fn stalled(record: &Record) -> bool {
    let call = record.call.as_ref();
    call.is_some_and(|call| !call.stalls.is_empty())
}

fn missed_an_objective(record: &Record) -> bool {
    let verdicts = record.call.iter().flat_map(|call| &call.verdicts);
    verdicts.into_iter().any(|(_, verdict)| *verdict == Verdict::Bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::attributes::Values;
    use crate::catalog::spans;
    use crate::testing;
    use tokengauge_types::label::Label;

    fn trace(parent_sampled: Option<bool>) -> TraceContext {
        TraceContext {
            trace_id: [0x40; 16],
            parent: parent_sampled.map(|_| [1; 8]),
            parent_sampled,
            ..TraceContext::default()
        }
    }

    fn sampler(root: RootSampler, parent_based: bool) -> Sampler {
        Sampler { root, parent_based, ..Sampler::default() }
    }

    /// Returns a record of a request whose caller made this sampling decision. `None` means that the request has no
    /// caller.
    fn record(parent_sampled: Option<bool>) -> Record {
        let mut record = testing::streamed();
        record.trace = trace(parent_sampled);
        record
    }

    fn kept(reason: SamplingReason, against_parent: bool) -> Option<SamplingDecision> {
        Some(SamplingDecision { reason, against_parent })
    }

    #[test]
    fn the_callers_decision_wins_only_if_parent_based() {
        let (all, none) = (RootSampler::Ratio(1.0), RootSampler::Ratio(0.0));
        assert!(sampler(none, true).sample_at_start(&trace(Some(true))));
        assert!(!sampler(all, true).sample_at_start(&trace(Some(false))));
        assert!(sampler(all, false).sample_at_start(&trace(Some(false))));
        assert!(!sampler(none, true).sample_at_start(&trace(None)));
    }

    #[test]
    fn selects_the_configured_ratio_of_trace_ids() {
        let mut random = fastrand::Rng::with_seed(1);
        let chosen = (0..10_000)
            .filter(|_| {
                let mut trace_id = [0; 16];
                random.fill(&mut trace_id);
                RootSampler::Ratio(0.25).select(&trace_id).is_some()
            })
            .count();
        assert!((2_300..2_700).contains(&chosen), "{chosen}");
        // The trace id 0x40… is at a quarter of the range of ids.
        let at_a_quarter = |ratio| RootSampler::Ratio(ratio).select(&[0x40; 16]);
        assert_eq!(
            (at_a_quarter(0.26), at_a_quarter(0.25)),
            (Some(SamplingReason::Ratio(0.26)), None)
        );
    }

    #[test]
    fn a_trace_sampled_at_start_records_who_sampled_it() {
        let failed = |parent| Record { outcome: Outcome::Error, ..record(parent) };
        for record in [record, failed] {
            let decide =
                |root, parent_based, parent| sampler(root, parent_based).decide(&record(parent));
            let half = RootSampler::Ratio(0.5);
            assert_eq!(decide(half, true, Some(true)), kept(SamplingReason::Parent, false));
            assert_eq!(decide(half, true, None), kept(SamplingReason::Ratio(0.5), false));
            for parent in [None, Some(true), Some(false)] {
                assert_eq!(
                    decide(RootSampler::AlwaysOn, false, parent),
                    kept(SamplingReason::AlwaysOn, false)
                );
            }
        }
    }

    /// Tests requests without a caller, and requests whose caller did not sample the trace.
    #[test]
    fn keeps_failures_and_missed_objectives() {
        for (parent, against_parent) in [(None, false), (Some(false), true)] {
            let sampler = sampler(RootSampler::AlwaysOff, true);
            let mut record = record(parent);
            assert_eq!(sampler.decide(&record), None);
            for outcome in [Outcome::Error, Outcome::Timeout, Outcome::Truncated, Outcome::Rejected]
            {
                record.outcome = outcome;
                assert_eq!(sampler.decide(&record), kept(SamplingReason::Error, against_parent));
            }
            record.call.as_mut().unwrap().verdicts =
                vec![(Label::from_trusted("ttft"), Verdict::Bad)];
            assert_eq!(
                sampler.decide(&record),
                kept(SamplingReason::Error, against_parent),
                "the most serious reason"
            );
            for outcome in [Outcome::Ok, Outcome::Cancelled] {
                record.outcome = outcome;
                assert_eq!(sampler.decide(&record), kept(SamplingReason::Slo, against_parent));
            }
        }
    }

    #[test]
    fn keeps_stalled_streams_and_prefers_failure_as_the_reason() {
        let sampler = sampler(RootSampler::AlwaysOff, true);
        let mut record = record(Some(false));
        let call = record.call.as_mut().unwrap();
        call.stalls.count = 1;
        call.verdicts = vec![(Label::from_trusted("ttft"), Verdict::Bad)];
        for (outcome, reason) in [
            (Outcome::Ok, SamplingReason::Stall),
            (Outcome::Cancelled, SamplingReason::Stall),
            (Outcome::Truncated, SamplingReason::Error),
        ] {
            record.outcome = outcome;
            assert_eq!(sampler.decide(&record), kept(reason, true));
        }
    }

    #[test]
    fn respects_an_unsampled_parent_if_configured() {
        let obedient = Sampler { against_parent: false, ..Sampler::default() };
        let mut record = record(Some(false));
        record.outcome = Outcome::Error;
        assert_eq!(obedient.decide(&record), None);
        record.trace.parent_sampled = Some(true);
        assert_eq!(obedient.decide(&record), kept(SamplingReason::Parent, false));
        // If callers' decisions are ignored, a kept trace is not against the caller's decision.
        let alone = Sampler { parent_based: false, root: RootSampler::AlwaysOff, ..obedient };
        record.trace.parent_sampled = Some(false);
        assert_eq!(alone.decide(&record), kept(SamplingReason::Error, false));
    }

    #[test]
    fn the_catalog_lists_all_reasons() {
        let all = [
            SamplingReason::Parent,
            SamplingReason::AlwaysOn,
            SamplingReason::Ratio(0.5),
            SamplingReason::Error,
            SamplingReason::Stall,
            SamplingReason::Slo,
        ];
        let Values::Closed(words) = spans::SAMPLING_REASON.values else {
            panic!("the reasons are a closed list")
        };
        assert_eq!(words, all.map(SamplingReason::as_str));
    }
}
