//! Which traces are kept.
//!
//! The head decides by the sampler, and that decision is what the sampled flag sent upstream says. At the end an
//! exchange that failed or broke an objective is kept whatever the head decided; against a caller that said "not
//! sampled" only where that is asked for, since the rest of its trace is nowhere.

use crate::record::{Outcome, Record, Verdict};
use crate::wire::Trace;

/// Decides at the head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    pub root: Root,
    /// Whether a caller's own decision goes before `root`.
    pub parent_based: bool,
}

/// Decides where no caller has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Root {
    AlwaysOn,
    AlwaysOff,
    /// A share of all traces, from 0 to 1, chosen by trace id, so that every party that uses it chooses the same.
    Ratio(f64),
}

impl Default for Sampler {
    fn default() -> Self {
        Self {
            root: Root::AlwaysOn,
            parent_based: true,
        }
    }
}

/// What becomes of an exchange's spans.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decision {
    Drop,
    Keep,
    /// Kept although the head had not chosen it.
    KeepFor(&'static str),
}

impl Sampler {
    /// The head's decision.
    pub fn head(&self, trace: &Trace) -> bool {
        match (self.parent_based, trace.parent_sampled) {
            (true, Some(sampled)) => sampled,
            (true, None) | (false, _) => self.root.chooses(&trace.trace_id),
        }
    }

    /// The decision at the end. `against_parent`: whether a failure is kept even if the caller said "not sampled".
    pub fn decide(&self, record: &Record, against_parent: bool) -> Decision {
        if self.head(&record.trace) {
            return Decision::Keep;
        }
        let refused_by_parent = self.parent_based && record.trace.parent_sampled == Some(false);
        if refused_by_parent && !against_parent {
            return Decision::Drop;
        }
        match record.outcome {
            Outcome::Error | Outcome::Timeout | Outcome::Truncated | Outcome::Rejected => {
                Decision::KeepFor("error")
            }
            Outcome::Ok | Outcome::Cancelled if broke_an_objective(record) => {
                Decision::KeepFor("objective")
            }
            Outcome::Ok | Outcome::Cancelled => Decision::Drop,
        }
    }
}

impl Root {
    /// By the lower 63 bits of the trace id, as the SDKs do it.
    fn chooses(self, trace_id: &[u8; 16]) -> bool {
        match self {
            Self::AlwaysOn => true,
            Self::AlwaysOff => false,
            Self::Ratio(share) => {
                let [.., a, b, c, d, e, f, g, h] = *trace_id;
                let low = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1;
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "2^53 steps are finer than any share anybody writes"
                )]
                let position = low as f64 / (1_u64 << 63) as f64;
                position < share
            }
        }
    }
}

fn broke_an_objective(record: &Record) -> bool {
    let verdicts = record.call.iter().flat_map(|call| &call.verdicts);
    verdicts
        .into_iter()
        .any(|(_, verdict)| *verdict == Verdict::Bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::testing;
    use crate::label::Label;

    fn trace(parent_sampled: Option<bool>) -> Trace {
        Trace {
            trace_id: [0x40; 16],
            parent: parent_sampled.map(|_| [1; 8]),
            parent_sampled,
            ..Trace::default()
        }
    }

    fn ratio(share: f64, parent_based: bool) -> Sampler {
        Sampler {
            root: Root::Ratio(share),
            parent_based,
        }
    }

    #[test]
    fn the_callers_decision_goes_before_the_root_only_where_parent_based() {
        assert!(ratio(0.0, true).head(&trace(Some(true))));
        assert!(!ratio(1.0, true).head(&trace(Some(false))));
        assert!(ratio(1.0, false).head(&trace(Some(false))));
        assert!(!ratio(0.0, true).head(&trace(None)));
    }

    #[test]
    fn a_ratio_is_a_share_of_trace_ids() {
        let mut random = fastrand::Rng::with_seed(1);
        let chosen = (0..10_000)
            .filter(|_| {
                let mut trace_id = [0; 16];
                random.fill(&mut trace_id);
                Root::Ratio(0.25).chooses(&trace_id)
            })
            .count();
        assert!((2_300..2_700).contains(&chosen), "{chosen}");
        // 0x40… is at a quarter.
        assert!(Root::Ratio(0.26).chooses(&[0x40; 16]) && !Root::Ratio(0.25).chooses(&[0x40; 16]));
    }

    #[test]
    fn failures_and_broken_objectives_are_kept_and_say_so() {
        let mut record = testing::streamed();
        record.trace = trace(None);
        let sampler = ratio(0.0, true);
        assert_eq!(sampler.decide(&record, false), Decision::Drop);
        record.outcome = Outcome::Truncated;
        assert_eq!(sampler.decide(&record, false), Decision::KeepFor("error"));
        record.outcome = Outcome::Ok;
        record.call.as_mut().unwrap().verdicts = vec![(Label::known("ttft"), Verdict::Bad)];
        assert_eq!(
            sampler.decide(&record, false),
            Decision::KeepFor("objective")
        );
        assert_eq!(ratio(1.0, true).decide(&record, false), Decision::Keep);
    }

    #[test]
    fn against_an_unsampled_parent_only_on_request() {
        let mut record = testing::streamed();
        record.trace = trace(Some(false));
        record.outcome = Outcome::Error;
        assert_eq!(ratio(1.0, true).decide(&record, false), Decision::Drop);
        assert_eq!(
            ratio(1.0, true).decide(&record, true),
            Decision::KeepFor("error")
        );
    }
}
