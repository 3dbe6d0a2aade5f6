//! Arrival times of the chunks of one response.

use std::time::Duration;

/// Maximum number of ticks. With the two other fields, a value takes 256 bytes.
const MAX_TICKS: usize = 62;

/// Arrival times of chunks, thinned evenly. Recording a chunk allocates nothing.
#[derive(Clone, Copy, Debug)]
pub struct ChunkTicks {
    /// Offsets from the start of the request in units of 0.1 ms, which cover 119 hours.
    offsets: [u32; MAX_TICKS],
    len: u16,
    /// A tick is kept for every `step`-th chunk.
    step: u16,
    /// Number of chunks until the next tick.
    skip: u32,
}

impl Default for ChunkTicks {
    fn default() -> Self {
        Self { offsets: [0; MAX_TICKS], len: 0, step: 1, skip: 0 }
    }
}

impl ChunkTicks {
    /// Records a chunk that arrived `offset` after the start of the request.
    #[inline]
    pub fn record(&mut self, offset: Duration) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        self.keep(offset);
    }

    fn keep(&mut self, offset: Duration) {
        if usize::from(self.len) == MAX_TICKS {
            self.thin();
        }
        let tenths = u32::try_from(offset.as_micros() / 100).unwrap_or(u32::MAX);
        if let Some(slot) = self.offsets.get_mut(usize::from(self.len)) {
            *slot = tenths;
            self.len += 1;
        }
        self.skip = u32::from(self.step) - 1;
    }

    /// Drops every second tick, and doubles the step.
    fn thin(&mut self) {
        for place in 0..MAX_TICKS / 2 {
            let kept = self.offsets.get(2 * place).copied().unwrap_or_default();
            if let Some(slot) = self.offsets.get_mut(place) {
                *slot = kept;
            }
        }
        self.len /= 2;
        self.step = self.step.saturating_mul(2);
    }

    /// Returns the kept ticks as seconds since the start of the request.
    pub fn seconds(&self) -> impl Iterator<Item = f64> + '_ {
        let kept = self.offsets.iter().take(usize::from(self.len));
        kept.map(|tenths| f64::from(*tenths) / 10_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(chunks: u32) -> Vec<f64> {
        let mut ticks = ChunkTicks::default();
        for chunk in 0..chunks {
            ticks.record(Duration::from_millis(u64::from(chunk) * 10));
        }
        ticks.seconds().collect()
    }

    #[test]
    fn takes_256_bytes() {
        assert_eq!(size_of::<ChunkTicks>(), 256);
    }

    #[test]
    fn keeps_all_ticks_of_a_short_response() {
        assert_eq!(ticks(3), [0.0, 0.01, 0.02]);
        assert_eq!(ticks(62).len(), 62);
    }

    #[test]
    fn thins_evenly() {
        for chunks in [63, 64, 125, 1_000, 10_000, 100_000] {
            let ticks = ticks(chunks);
            assert!((31..=62).contains(&ticks.len()), "{chunks}: {}", ticks.len());
            let gaps: Vec<f64> = ticks.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(gaps.iter().all(|gap| (gap - gaps[0]).abs() < 1e-6), "{chunks}: {gaps:?}");
            let whole = f64::from(chunks - 1) / 100.0;
            assert!(ticks[0] < 1e-9 && whole - ticks[ticks.len() - 1] <= gaps[0], "{chunks}");
        }
    }
}
