//! Which traces are kept, and why.
//!
//! The head decides by the sampler; that is the one decision that an upstream can be told. At the end an exchange that
//! failed, stalled or broke an objective is kept whatever the head decided, even against a caller that said "not
//! sampled". Callers sample at a few per cent and decide before anything has happened; heeding them would throw away
//! nearly every trace that somebody will look for. What is kept then is our two spans without the caller's, and says so:
//! still the only place where one reads what became of that one call.

use tokengauge_measure::record::{Outcome, Record, Verdict};
use tokengauge_types::event::TraceContext;

/// Decides at the head, and at the end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    pub root: RootSampler,
    /// Whether a caller's own decision goes before `root`.
    pub parent_based: bool,
    /// Whether what failed, stalled or broke an objective is kept even if the caller said "not sampled".
    pub against_parent: bool,
}

/// Decides where no caller has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RootSampler {
    AlwaysOn,
    AlwaysOff,
    /// A share of all traces, from 0 to 1, chosen by trace id, so that every party that uses it chooses the same.
    Ratio(f64),
}

impl Default for Sampler {
    fn default() -> Self {
        Self { root: RootSampler::AlwaysOn, parent_based: true, against_parent: true }
    }
}

/// A trace that is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingDecision {
    pub reason: SamplingReason,
    /// Whether the caller had said "not sampled": then its own spans are nowhere.
    pub against_parent: bool,
}

/// What first spoke for a trace. The first three are the head's; the others are known only at the end, when all other
/// parties have decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SamplingReason {
    /// The caller's decision.
    Parent,
    AlwaysOn,
    /// The trace is one of this share.
    Ratio(f64),
    Error,
    Stall,
    Objective,
}

impl Sampler {
    /// The head's decision.
    pub fn head(&self, trace: &TraceContext) -> bool {
        self.chosen_by(trace).is_some()
    }

    /// The decision at the end; `None` where nothing speaks for keeping the trace.
    pub fn decide(&self, record: &Record) -> Option<SamplingDecision> {
        if let Some(reason) = self.chosen_by(&record.trace) {
            return Some(SamplingDecision { reason, against_parent: false });
        }
        let refused = self.parent_based && record.trace.parent_sampled == Some(false);
        if refused && !self.against_parent {
            return None;
        }
        Some(SamplingDecision { reason: SamplingReason::of_end(record)?, against_parent: refused })
    }

    fn chosen_by(&self, trace: &TraceContext) -> Option<SamplingReason> {
        match (self.parent_based, trace.parent_sampled) {
            (true, Some(sampled)) => sampled.then_some(SamplingReason::Parent),
            (true, None) | (false, _) => self.root.chooses(&trace.trace_id),
        }
    }
}

impl RootSampler {
    /// By the lower 63 bits of the trace id, as the SDKs do it.
    fn chooses(self, trace_id: &[u8; 16]) -> Option<SamplingReason> {
        match self {
            Self::AlwaysOn => Some(SamplingReason::AlwaysOn),
            Self::AlwaysOff => None,
            Self::Ratio(share) => {
                let [.., a, b, c, d, e, f, g, h] = *trace_id;
                let low = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1;
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "2^53 steps are finer than any share anybody writes"
                )]
                let position = low as f64 / (1_u64 << 63) as f64;
                (position < share).then_some(SamplingReason::Ratio(share))
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
            Self::Objective => "objective",
        }
    }

    /// What the end says for keeping the trace, the gravest first.
    fn of_end(record: &Record) -> Option<Self> {
        match record.outcome {
            Outcome::Error | Outcome::Timeout | Outcome::Truncated | Outcome::Rejected => {
                Some(Self::Error)
            }
            Outcome::Ok | Outcome::Cancelled if stalled(record) => Some(Self::Stall),
            Outcome::Ok | Outcome::Cancelled => {
                broke_an_objective(record).then_some(Self::Objective)
            }
        }
    }
}

impl Default for SamplingDecision {
    /// Of a sampler that keeps everything.
    fn default() -> Self {
        Self { reason: SamplingReason::AlwaysOn, against_parent: false }
    }
}

/// Whether the stream hung for longer than its route allows, be it that it went on or not.
fn stalled(record: &Record) -> bool {
    let call = record.call.as_ref();
    call.is_some_and(|call| !call.stalls.is_empty())
}

fn broke_an_objective(record: &Record) -> bool {
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

    /// A record under a caller that decided so, or under none.
    fn record(parent_sampled: Option<bool>) -> Record {
        let mut record = testing::streamed();
        record.trace = trace(parent_sampled);
        record
    }

    fn kept(reason: SamplingReason, against_parent: bool) -> Option<SamplingDecision> {
        Some(SamplingDecision { reason, against_parent })
    }

    #[test]
    fn the_callers_decision_goes_before_the_root_only_where_parent_based() {
        let (all, none) = (RootSampler::Ratio(1.0), RootSampler::Ratio(0.0));
        assert!(sampler(none, true).head(&trace(Some(true))));
        assert!(!sampler(all, true).head(&trace(Some(false))));
        assert!(sampler(all, false).head(&trace(Some(false))));
        assert!(!sampler(none, true).head(&trace(None)));
    }

    #[test]
    fn a_ratio_is_a_share_of_trace_ids() {
        let mut random = fastrand::Rng::with_seed(1);
        let chosen = (0..10_000)
            .filter(|_| {
                let mut trace_id = [0; 16];
                random.fill(&mut trace_id);
                RootSampler::Ratio(0.25).chooses(&trace_id).is_some()
            })
            .count();
        assert!((2_300..2_700).contains(&chosen), "{chosen}");
        // 0x40… is at a quarter.
        let at_a_quarter = |share| RootSampler::Ratio(share).chooses(&[0x40; 16]);
        assert_eq!(
            (at_a_quarter(0.26), at_a_quarter(0.25)),
            (Some(SamplingReason::Ratio(0.26)), None)
        );
    }

    #[test]
    fn what_the_head_chose_says_who_chose_it() {
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

    /// What the head did not choose: without a caller, and under one that said "not sampled".
    #[test]
    fn failures_and_broken_objectives_are_always_kept_and_say_why_and_against_whom() {
        for (parent, against_parent) in [(None, false), (Some(false), true)] {
            let sampler = sampler(RootSampler::AlwaysOff, true);
            let mut record = record(parent);
            assert_eq!(sampler.decide(&record), None);
            for outcome in [Outcome::Error, Outcome::Timeout, Outcome::Truncated, Outcome::Rejected]
            {
                record.outcome = outcome;
                assert_eq!(sampler.decide(&record), kept(SamplingReason::Error, against_parent));
            }
            record.call.as_mut().unwrap().verdicts = vec![(Label::known("ttft"), Verdict::Bad)];
            assert_eq!(
                sampler.decide(&record),
                kept(SamplingReason::Error, against_parent),
                "the gravest is said"
            );
            for outcome in [Outcome::Ok, Outcome::Cancelled] {
                record.outcome = outcome;
                assert_eq!(
                    sampler.decide(&record),
                    kept(SamplingReason::Objective, against_parent)
                );
            }
        }
    }

    #[test]
    fn a_stall_is_kept_whether_the_stream_went_on_or_not_and_a_failure_is_graver() {
        let sampler = sampler(RootSampler::AlwaysOff, true);
        let mut record = record(Some(false));
        let call = record.call.as_mut().unwrap();
        call.stalls.count = 1;
        call.verdicts = vec![(Label::known("ttft"), Verdict::Bad)];
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
    fn an_unsampled_parent_is_obeyed_on_request() {
        let obedient = Sampler { against_parent: false, ..Sampler::default() };
        let mut record = record(Some(false));
        record.outcome = Outcome::Error;
        assert_eq!(obedient.decide(&record), None);
        record.trace.parent_sampled = Some(true);
        assert_eq!(obedient.decide(&record), kept(SamplingReason::Parent, false));
        // Where the caller is not asked, it refused nothing.
        let alone = Sampler { parent_based: false, root: RootSampler::AlwaysOff, ..obedient };
        record.trace.parent_sampled = Some(false);
        assert_eq!(alone.decide(&record), kept(SamplingReason::Error, false));
    }

    #[test]
    fn the_registered_words_are_the_reasons() {
        let all = [
            SamplingReason::Parent,
            SamplingReason::AlwaysOn,
            SamplingReason::Ratio(0.5),
            SamplingReason::Error,
            SamplingReason::Stall,
            SamplingReason::Objective,
        ];
        let Values::Closed(words) = spans::SAMPLING_REASON.values else {
            panic!("the reasons are a closed list")
        };
        assert_eq!(words, all.map(SamplingReason::as_str));
    }
}
