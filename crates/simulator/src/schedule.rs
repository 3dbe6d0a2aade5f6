//! Computes when to send each chunk of a response, and which faults to inject into the response.

use std::time::Duration;

use fastrand::Rng;

use crate::engine::BatchSlot;
use crate::profile::Profile;
use crate::request::Overrides;
use crate::script::Script;
use tokengauge_types::clock::MonotonicInstant;

/// Faults to inject into one response.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct InjectedFaults {
    pub status: Option<u16>,
    /// Number of tokens before a pause, and the length of the pause.
    pub stall: Option<(u32, Duration)>,
    /// Number of tokens before the connection breaks.
    pub cut: Option<u32>,
}

impl InjectedFaults {
    /// Selects the faults of one response at random. Always uses three random numbers, so that the probability of one
    /// fault does not affect the others.
    pub fn draw(profile: &Profile, overrides: &Overrides, random: &mut Rng) -> Self {
        let faults = &profile.faults;
        let [fails, stalls, breaks] = [faults.failure, faults.stall, faults.cut]
            .map(|probability| random.f64() < probability);
        let stall = stalls.then_some((faults.stall_after, faults.stall_length));
        let own_stall = overrides.stall.map(|length| (overrides.stall_after.unwrap_or(1), length));
        Self {
            status: overrides.status.or(fails.then_some(faults.status)),
            stall: own_stall.or(stall),
            cut: overrides.cut_after.or(breaks.then_some(faults.cut_after)),
        }
    }
}

/// Times at which to send the chunks of one response. Each time is computed from the previous scheduled time, not from
/// the actual write. A late chunk therefore does not delay later chunks, and the average rate is correct although
/// timers have a resolution of 1 ms.
#[derive(Debug)]
pub struct TokenSchedule {
    slot: BatchSlot,
    random: Rng,
    gap: Option<Duration>,
    stall: Option<(u32, Duration)>,
    due: MonotonicInstant,
    steps: u32,
}

impl TokenSchedule {
    /// Starts the schedule at time `at`. The first token follows after the prefill and the decode steps of hidden
    /// reasoning.
    pub fn start(
        slot: BatchSlot,
        (overrides, faults): (&Overrides, InjectedFaults),
        script: &Script,
        random: Rng,
        at: MonotonicInstant,
    ) -> Self {
        let profile = slot.profile();
        let read = script.prompt_tokens - slot.look_up_prefix(script.prompt_tokens);
        let prompt = u32::try_from(read).unwrap_or(u32::MAX);
        let prefill = profile.prefill + profile.prefill_per_token.saturating_mul(prompt);
        let mut schedule =
            Self { gap: overrides.gap, stall: faults.stall, due: at, steps: 0, random, slot };
        let thinking = schedule.step().saturating_mul(script.hidden);
        schedule.due = at + overrides.first.unwrap_or(prefill + thinking);
        schedule
    }

    /// Returns the time at which to send the next chunk. The chunk takes `steps` decode steps. The first token of the
    /// response takes none, because the prefill generates this token.
    pub fn next(&mut self, steps: u32) -> MonotonicInstant {
        if let Some((_, length)) = self.stall.take_if(|(after, _)| self.steps >= *after) {
            self.due = self.due + length;
        }
        let timed = if self.steps == 0 { steps.saturating_sub(1) } else { steps };
        self.due = self.due + self.step().saturating_mul(timed);
        self.steps += steps;
        self.due
    }

    /// Returns the number of decode steps scheduled so far.
    pub const fn steps(&self) -> u32 {
        self.steps
    }

    fn step(&mut self) -> Duration {
        if let Some(gap) = self.gap {
            return gap;
        }
        let profile = self.slot.profile();
        let batch = self.slot.batch();
        let step = profile.step + profile.step_per_stream.saturating_mul(batch);
        let jitter = profile.jitter * (2.0 * self.random.f64() - 1.0);
        step.mul_f64((1.0 + jitter).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::HeaderMap;

    use super::*;
    use crate::engine::Engine;

    fn engine(text: &str) -> Arc<Engine> {
        Arc::new(Engine::new(text.parse().unwrap()))
    }

    fn schedule(
        engine: &Arc<Engine>,
        faults: InjectedFaults,
        prompt_tokens: u64,
        hidden: u32,
    ) -> TokenSchedule {
        let script = Script { prompt_tokens, hidden, ..Script::default() };
        TokenSchedule::start(
            engine.take_slot_beyond_limit(),
            (&Overrides::default(), faults),
            &script,
            Rng::with_seed(1),
            MonotonicInstant::ZERO,
        )
    }

    fn millis(at: MonotonicInstant) -> u64 {
        at.nanos() / 1_000_000
    }

    #[test]
    fn prefill_grows_with_the_prompt_and_steps_with_the_batch() {
        let engine =
            engine("m:prefill-ms=10,prefill-us-per-token=20,step-ms=5,batch-ms=1,jitter=0");
        let mut alone = schedule(&engine, InjectedFaults::default(), 1_000, 0);
        assert_eq!([millis(alone.next(1)), millis(alone.next(1))], [30, 36]);
        let others: Vec<_> = (0..9).map(|_| engine.take_slot_beyond_limit()).collect();
        assert_eq!(millis(alone.next(2)), 36 + 2 * 15);
        drop(others);
        assert_eq!(millis(alone.next(1)), 66 + 6);
    }

    #[test]
    fn a_stall_delays_all_later_chunks_once() {
        let engine = engine("m:prefill-ms=0,prefill-us-per-token=0,step-ms=10,batch-ms=0,jitter=0");
        let faults = InjectedFaults {
            stall: Some((2, Duration::from_secs(1))),
            ..InjectedFaults::default()
        };
        let mut schedule = schedule(&engine, faults, 1_000, 0);
        let due: Vec<_> = (0..4).map(|_| millis(schedule.next(1))).collect();
        assert_eq!(due, [0, 10, 1_020, 1_030]);
    }

    #[test]
    fn hidden_reasoning_precedes_the_first_token() {
        let engine = engine("m:prefill-ms=7,prefill-us-per-token=0,step-ms=10,batch-ms=0,jitter=0");
        let mut schedule = schedule(&engine, InjectedFaults::default(), 0, 5);
        assert_eq!(millis(schedule.next(1)), 57);
    }

    #[test]
    fn jitter_keeps_the_average() {
        let engine =
            engine("m:prefill-ms=0,prefill-us-per-token=0,step-ms=10,batch-ms=0,jitter=0.5");
        let mut schedule = schedule(&engine, InjectedFaults::default(), 1_000, 0);
        let last = (0..10_001).map(|_| schedule.next(1)).last().unwrap();
        let average = last.nanos() as f64 / 10_000.0 / 1e6;
        assert!((average - 10.0).abs() < 0.2, "{average} ms");
    }

    #[test]
    fn headers_override_the_profile_and_must_be_numbers() {
        let mut headers = HeaderMap::new();
        headers.insert("x-simulate-gap-us", "2000".parse().unwrap());
        headers.insert("x-simulate-status", "503".parse().unwrap());
        let overrides = Overrides::read(&headers).unwrap();
        assert_eq!(overrides.gap, Some(Duration::from_millis(2)));
        let faults =
            InjectedFaults::draw(&Profile::typical("m"), &overrides, &mut Rng::with_seed(1));
        assert_eq!(faults.status, Some(503));
        headers.insert("x-simulate-tokens", "many".parse().unwrap());
        assert_eq!(Overrides::read(&headers), Err("x-simulate-tokens"));
    }

    #[test]
    fn probabilities_come_true() {
        let profile: Profile =
            "m:fail=0.25,status=429,cut=0.5,cut-after=3,stall=1,stall-ms=9".parse().unwrap();
        let mut random = Rng::with_seed(3);
        let drawn: Vec<_> = (0..4_000)
            .map(|_| InjectedFaults::draw(&profile, &Overrides::default(), &mut random))
            .collect();
        let failed = drawn.iter().filter(|faults| faults.status == Some(429)).count();
        let cut = drawn.iter().filter(|faults| faults.cut == Some(3)).count();
        assert!((900..1_100).contains(&failed) && (1_900..2_100).contains(&cut));
        assert!(drawn.iter().all(|faults| faults.stall == Some((0, Duration::from_millis(9)))));
    }
}
