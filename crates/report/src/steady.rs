//! Which part of a run is its steady state: MSER-5 (White, 1997), from both ends.
//!
//! MSER cuts so much off the beginning of a series that the standard error of the mean of the rest is least: of all d the
//! one with the least Σ (xᵢ − x̄)² ÷ (n − d)² over i ≥ d. The 5 says that it is applied to means of five values
//! each. A d beyond half of the series means that there was no steady state to be found (Hoad, Robinson and Davies,
//! 2010). The end of a run is a beginning in reverse.

/// What is told of how the steady state is found.
pub const METHOD: &str = "MSER-5 (White, 1997) on output tokens per time slice, from the end backwards and then from \
                          the beginning, and on the mean time to the first token per slice from the beginning";

/// Values of one batch.
pub const BATCH: usize = 5;
/// The fewest batches in which a truncation point can be sought.
const FEWEST: usize = 10;

/// Whether a truncation point can be sought in a series.
pub const fn is_long_enough(series: &[f64]) -> bool {
    series.len() >= FEWEST * BATCH
}

/// How many values to cut off the beginning; `None` where no steady state is found.
pub fn truncation(series: &[f64]) -> Option<usize> {
    let batches: Vec<f64> =
        series.chunks_exact(BATCH).map(|batch| batch.iter().sum::<f64>() / BATCH as f64).collect();
    if !is_long_enough(series) {
        return None;
    }
    let half = batches.len() / 2;
    let (mut sum, mut squares) = (0.0, 0.0);
    let mut best: Option<(f64, usize)> = None;
    // Taken from the mean of all, so that the sums of squares keep their digits.
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
    (cut < half).then_some(cut * BATCH)
}

/// [`truncation`], off the end.
pub fn truncation_of_end(series: &[f64]) -> Option<usize> {
    let reversed: Vec<f64> = series.iter().rev().copied().collect();
    truncation(&reversed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Deterministic noise between −1 and 1.
    fn noise(n: usize) -> f64 {
        let scattered = (n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        scattered as f64 / (1_u64 << 23) as f64 - 1.0
    }

    #[test]
    fn a_ramp_is_cut_and_what_follows_is_not() {
        let series: Vec<f64> =
            (0..200).map(|n| f64::min(n as f64 / 40.0, 1.0) * 100.0 + noise(n)).collect();
        let cut = truncation(&series).unwrap();
        assert!((30..=45).contains(&cut), "{cut}");
        assert!(truncation_of_end(&series).is_some_and(|cut| cut <= 10));
    }

    #[test]
    fn a_worked_example() {
        // Batch means 0, 9, 10, 10, 10, 10, 10, 10, 10, 10: the least error is after the second.
        let means = [0.0, 9.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0];
        let series: Vec<f64> = means.iter().flat_map(|mean| [*mean; BATCH]).collect();
        assert_eq!(truncation(&series), Some(2 * BATCH));
    }

    #[test]
    fn what_never_settles_has_no_steady_state() {
        let rising: Vec<f64> = (0..100).map(f64::from).collect();
        assert_eq!(truncation(&rising), None);
        assert_eq!(truncation(&[1.0; 49]), None, "too short");
        assert_eq!(truncation(&[1.0; 50]), Some(0), "never changed");
    }

    proptest! {
        /// The sums that are carried along are those of the definition.
        #[test]
        fn the_cut_has_the_least_error_by_the_definition(series in proptest::collection::vec(0.0..100.0_f64, 50..120)) {
            let means: Vec<f64> = series.chunks_exact(BATCH).map(|b| b.iter().sum::<f64>() / 5.0).collect();
            let error = |cut: usize| {
                let rest = &means[cut..];
                let mean = rest.iter().sum::<f64>() / rest.len() as f64;
                rest.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (rest.len() as f64).powi(2)
            };
            let half = means.len() / 2;
            let least = (0..=half).map(error).fold(f64::INFINITY, f64::min);
            match truncation(&series) {
                Some(cut) => prop_assert!(error(cut / BATCH) <= least + 1e-9 * least.max(1.0)),
                None => prop_assert!(error(half) <= least + 1e-9 * least.max(1.0)),
            }
        }
    }
}
