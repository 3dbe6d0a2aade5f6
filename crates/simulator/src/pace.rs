//! When each piece of an answer is due, and what befalls the answer on its way.

use std::time::Duration;

use fastrand::Rng;
use http::HeaderMap;

use crate::engine::Busy;
use crate::profile::Profile;
use tokengauge_types::clock::MonotonicInstant;

/// What a single request may ask of the simulation, in headers `x-simulate-…`: they outrank the model's profile.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Overrides {
    /// `tokens`: exactly so many tokens of text.
    pub tokens: Option<u32>,
    /// `chunk-tokens`: so many of them in each chunk.
    pub chunk_tokens: Option<u32>,
    /// `gap-us`: microseconds per token, whatever the load.
    pub gap: Option<Duration>,
    /// `ttft-us`: microseconds until the first token, whatever the prompt.
    pub first: Option<Duration>,
    /// `stall-after`, `stall-ms`: silent for so long after so many tokens.
    pub stall_after: Option<u32>,
    pub stall: Option<Duration>,
    /// `status`: this error instead of an answer.
    pub status: Option<u16>,
    /// `cut-after`: the connection breaks after so many tokens.
    pub cut_after: Option<u32>,
}

impl Overrides {
    /// The name of the header that does not hold a number is the error.
    pub fn read(headers: &HeaderMap) -> Result<Self, &'static str> {
        let micros =
            |name| number(headers, name).map(|it| it.map(|it| Duration::from_micros(it.into())));
        let millis =
            |name| number(headers, name).map(|it| it.map(|it| Duration::from_millis(it.into())));
        Ok(Self {
            tokens: number(headers, "x-simulate-tokens")?,
            chunk_tokens: number(headers, "x-simulate-chunk-tokens")?,
            gap: micros("x-simulate-gap-us")?,
            first: micros("x-simulate-ttft-us")?,
            stall_after: number(headers, "x-simulate-stall-after")?,
            stall: millis("x-simulate-stall-ms")?,
            status: number(headers, "x-simulate-status")?.and_then(|it| u16::try_from(it).ok()),
            cut_after: number(headers, "x-simulate-cut-after")?,
        })
    }
}

fn number(headers: &HeaderMap, name: &'static str) -> Result<Option<u32>, &'static str> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let parsed = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    parsed.map(Some).ok_or(name)
}

/// What befalls one answer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Fate {
    pub status: Option<u16>,
    /// Silent for so long after so many tokens.
    pub stall: Option<(u32, Duration)>,
    /// Breaks off after so many tokens.
    pub cut: Option<u32>,
}

impl Fate {
    /// Always draws three times, so that one probability does not shift the luck of the others.
    pub fn draw(profile: &Profile, overrides: &Overrides, random: &mut Rng) -> Self {
        let [fails, stalls, breaks] = [
            profile.failure.probability,
            profile.stall.probability,
            profile.truncation.probability,
        ]
        .map(|probability| random.f64() < probability);
        let stall = stalls.then_some((profile.stall.after, profile.stall.length));
        Self {
            status: overrides.status.or(fails.then_some(profile.failure.status)),
            stall: overrides
                .stall
                .map(|length| (overrides.stall_after.unwrap_or(1), length))
                .or(stall),
            cut: overrides.cut_after.or(breaks.then_some(profile.truncation.after)),
        }
    }
}

/// The schedule of one answer. Due times are absolute: a piece that went out late does not delay the next, so the
/// average rate holds although timers are a millisecond coarse.
#[derive(Debug)]
pub struct Pace {
    busy: Busy,
    random: Rng,
    gap: Option<Duration>,
    stall: Option<(u32, Duration)>,
    due: MonotonicInstant,
    steps: u32,
}

impl Pace {
    /// Starts the clock: the first token is due after the prefill and `hidden` steps of thinking.
    pub fn start(
        busy: Busy,
        (overrides, fate): (&Overrides, Fate),
        work: Work,
        random: Rng,
        at: MonotonicInstant,
    ) -> Self {
        let profile = busy.profile();
        let read = work.prompt_tokens - busy.found(work.prompt_tokens);
        let prompt = u32::try_from(read).unwrap_or(u32::MAX);
        let prefill = profile.prefill + profile.prefill_per_token.saturating_mul(prompt);
        let mut pace =
            Self { gap: overrides.gap, stall: fate.stall, due: at, steps: 0, random, busy };
        let thinking = pace.step().saturating_mul(work.hidden);
        pace.due = at + overrides.first.unwrap_or(prefill + thinking);
        pace
    }

    /// When the next piece, of so many decode steps, is due. The first token comes with the prefill: it takes no step.
    pub fn next(&mut self, steps: u32) -> MonotonicInstant {
        if let Some((_, length)) = self.stall.take_if(|(after, _)| self.steps >= *after) {
            self.due = self.due + length;
        }
        let timed = if self.steps == 0 { steps.saturating_sub(1) } else { steps };
        self.due = self.due + self.step().saturating_mul(timed);
        self.steps += steps;
        self.due
    }

    /// Decode steps that have been due.
    pub const fn steps(&self) -> u32 {
        self.steps
    }

    fn step(&mut self) -> Duration {
        if let Some(gap) = self.gap {
            return gap;
        }
        let profile = self.busy.profile();
        let batch = self.busy.batch();
        let step = profile.step + profile.step_per_stream.saturating_mul(batch);
        let jitter = profile.jitter * (2.0 * self.random.f64() - 1.0);
        step.mul_f64((1.0 + jitter).max(0.0))
    }
}

/// What has to be done before the first token.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub prompt_tokens: u64,
    /// Decode steps of reasoning that is not shown.
    pub hidden: u32,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::Engine;

    const WORK: Work = Work { prompt_tokens: 1_000, hidden: 0 };

    fn engine(text: &str) -> Arc<Engine> {
        Arc::new(Engine::new(text.parse().unwrap()))
    }

    fn pace(engine: &Arc<Engine>, fate: Fate, work: Work) -> Pace {
        Pace::start(
            engine.enter_now(),
            (&Overrides::default(), fate),
            work,
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
        let mut alone = pace(&engine, Fate::default(), WORK);
        assert_eq!([millis(alone.next(1)), millis(alone.next(1))], [30, 36]);
        let others: Vec<_> = (0..9).map(|_| engine.enter_now()).collect();
        assert_eq!(millis(alone.next(2)), 36 + 2 * 15);
        drop(others);
        assert_eq!(millis(alone.next(1)), 66 + 6);
    }

    #[test]
    fn a_stall_comes_once_and_moves_everything_after_it() {
        let engine = engine("m:prefill-ms=0,prefill-us-per-token=0,step-ms=10,batch-ms=0,jitter=0");
        let fate = Fate { stall: Some((2, Duration::from_secs(1))), ..Fate::default() };
        let mut pace = pace(&engine, fate, WORK);
        let due: Vec<_> = (0..4).map(|_| millis(pace.next(1))).collect();
        assert_eq!(due, [0, 10, 1_020, 1_030]);
    }

    #[test]
    fn hidden_thinking_comes_before_the_first_token() {
        let engine = engine("m:prefill-ms=7,prefill-us-per-token=0,step-ms=10,batch-ms=0,jitter=0");
        let mut pace = pace(&engine, Fate::default(), Work { prompt_tokens: 0, hidden: 5 });
        assert_eq!(millis(pace.next(1)), 57);
    }

    #[test]
    fn jitter_keeps_the_average() {
        let engine =
            engine("m:prefill-ms=0,prefill-us-per-token=0,step-ms=10,batch-ms=0,jitter=0.5");
        let mut pace = pace(&engine, Fate::default(), WORK);
        let last = (0..10_001).map(|_| pace.next(1)).last().unwrap();
        let average = last.nanos() as f64 / 10_000.0 / 1e6;
        assert!((average - 10.0).abs() < 0.2, "{average} ms");
    }

    #[test]
    fn headers_outrank_the_profile_and_must_be_numbers() {
        let mut headers = HeaderMap::new();
        headers.insert("x-simulate-gap-us", "2000".parse().unwrap());
        headers.insert("x-simulate-status", "503".parse().unwrap());
        let overrides = Overrides::read(&headers).unwrap();
        assert_eq!(overrides.gap, Some(Duration::from_millis(2)));
        let fate = Fate::draw(&Profile::typical("m"), &overrides, &mut Rng::with_seed(1));
        assert_eq!(fate.status, Some(503));
        headers.insert("x-simulate-tokens", "many".parse().unwrap());
        assert_eq!(Overrides::read(&headers), Err("x-simulate-tokens"));
    }

    #[test]
    fn probabilities_come_true() {
        let profile: Profile =
            "m:fail=0.25,status=429,cut=0.5,cut-after=3,stall=1,stall-ms=9".parse().unwrap();
        let mut random = Rng::with_seed(3);
        let fates: Vec<_> =
            (0..4_000).map(|_| Fate::draw(&profile, &Overrides::default(), &mut random)).collect();
        let failed = fates.iter().filter(|fate| fate.status == Some(429)).count();
        let cut = fates.iter().filter(|fate| fate.cut == Some(3)).count();
        assert!((900..1_100).contains(&failed) && (1_900..2_100).contains(&cut));
        assert!(fates.iter().all(|fate| fate.stall == Some((0, Duration::from_millis(9)))));
    }
}
