//! Detects the steady state of a run with MSER-5 (White, 1997), so that warm-up and ramp-down do not distort the
//! figures.
//!
//! MSER removes the first d of n values so that the standard error of the mean of the other values is minimal. It
//! chooses the d that minimizes Σ (xᵢ − x̄)² ÷ (n − d)². The sum covers the values xᵢ after the first d, and x̄ is
//! their mean. MSER-5 applies this rule to means of five consecutive values (batches). If d is in the second half of
//! the series, the series has no steady state (Hoad, Robinson and Davies, 2010). To find the end of the steady state,
//! the same rule is applied to the reversed series.

/// Description of the method for the report.
pub const METHOD: &str = "MSER-5 (White, 1997) on output tokens per time slice, from the end backwards and then from \
                          the beginning, and on the mean time to first token per slice from the beginning";

/// Number of values per batch.
pub const BATCH_SIZE: usize = 5;
/// Minimum number of batches. In a shorter series, no steady state is searched.
const MIN_BATCHES: usize = 10;

/// Returns whether a series has enough values to search for a steady state.
pub const fn is_long_enough(series: &[f64]) -> bool {
    series.len() >= MIN_BATCHES * BATCH_SIZE
}

/// Returns the number of values to remove from the start of a series, such as warm-up. Returns `None` if the series
/// has no steady state.
pub fn truncation(series: &[f64]) -> Option<usize> {
    let batches: Vec<f64> = series
        .chunks_exact(BATCH_SIZE)
        .map(|batch| batch.iter().sum::<f64>() / BATCH_SIZE as f64)
        .collect();
    if !is_long_enough(series) {
        return None;
    }
    let half = batches.len() / 2;
    let (mut sum, mut squares) = (0.0, 0.0);
    let mut best: Option<(f64, usize)> = None;
    // The values are relative to the overall mean, so that the sums of squares stay precise.
    let level = batches.iter().sum::<f64>() / batches.len() as f64;
    for (cut, batch) in batches.iter().enumerate().rev() {
        let value = batch - level;
        sum += value;
        squares += value * value;
        let kept = (batches.len() - cut) as f64;
        let error = f64::max(squares - sum * sum / kept, 0.0) / (kept * kept);
        if cut <= half && best.is_none_or(|(least, _)| error <= least) {
            best = Some((error, cut));
        }
    }
    let (_, cut) = best?;
    (cut < half).then_some(cut * BATCH_SIZE)
}

/// Returns the number of values to remove from the end of a series, such as ramp-down. Returns `None` if the series
/// has no steady state.
pub fn truncation_of_end(series: &[f64]) -> Option<usize> {
    let reversed: Vec<f64> = series.iter().rev().copied().collect();
    truncation(&reversed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns deterministic noise between −1 and 1.
    fn noise(n: usize) -> f64 {
        let scattered = (n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        scattered as f64 / (1_u64 << 23) as f64 - 1.0
    }

    #[test]
    fn removes_a_ramp_and_keeps_the_rest() {
        let series: Vec<f64> =
            (0..200).map(|n| f64::min(n as f64 / 40.0, 1.0) * 100.0 + noise(n)).collect();
        let cut = truncation(&series).unwrap();
        assert!((30..=45).contains(&cut), "{cut}");
        assert!(truncation_of_end(&series).is_some_and(|cut| cut <= 10));
    }

    #[test]
    fn matches_a_computed_example() {
        // The batch means are 0, 9, 10, 10, …. The error is minimal if the first two batches are removed.
        let means = [0.0, 9.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0];
        let series: Vec<f64> = means.iter().flat_map(|mean| [*mean; BATCH_SIZE]).collect();
        assert_eq!(truncation(&series), Some(2 * BATCH_SIZE));
    }

    #[test]
    fn a_rising_series_has_no_steady_state() {
        let rising: Vec<f64> = (0..100).map(f64::from).collect();
        assert_eq!(truncation(&rising), None);
        assert_eq!(truncation(&[1.0; 49]), None, "too short");
        assert_eq!(truncation(&[1.0; 50]), Some(0), "never changed");
    }

    proptest! {
        /// Compares the result of `truncation` with the definition in the module documentation.
        #[test]
        fn the_result_minimizes_the_error_of_the_definition(series in proptest::collection::vec(0.0..100.0_f64, 50..120)) {
            let means: Vec<f64> = series.chunks_exact(BATCH_SIZE).map(|b| b.iter().sum::<f64>() / 5.0).collect();
            let error = |cut: usize| {
                let rest = &means[cut..];
                let mean = rest.iter().sum::<f64>() / rest.len() as f64;
                rest.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (rest.len() as f64).powi(2)
            };
            let half = means.len() / 2;
            let least = (0..=half).map(error).fold(f64::INFINITY, f64::min);
            match truncation(&series) {
                Some(cut) => prop_assert!(error(cut / BATCH_SIZE) <= least + 1e-9 * least.max(1.0)),
                None => prop_assert!(error(half) <= least + 1e-9 * least.max(1.0)),
            }
        }
    }
}
