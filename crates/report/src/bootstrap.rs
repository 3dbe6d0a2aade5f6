//! Estimates confidence intervals for the difference of two sides with the stratified bootstrap (Efron, 1979).
//!
//! Each side is a list of strata, one per length bucket. A stratum has the same weight on both sides. An estimate is
//! the weighted mean or a weighted quantile of all values of a side.
//!
//! A resample draws values from each stratum at random, with replacement, and computes the estimates again. The
//! variation between resamples shows how uncertain the estimate is. Normally a resample draws as many values as the
//! stratum has. A side with more than 10,000 values draws only m of its n values to limit the run time. The deviations
//! are then multiplied by √(m ÷ n), as in the m-out-of-n bootstrap of Bickel, Götze and van Zwet (1997).

use crate::statistics::{LEVELS, truncate};

/// Maximum number of values in one random sample of a side. With 10,000 values, a hundred are above the 99th
/// percentile, so this percentile is stable. A comparison takes about a second.
const MAX_DRAWS: usize = 10_000;
/// Number of bins for the sorted values of a side. The quantiles of a random sample are read from these bins. With
/// more than 10,000 values, the rank of a quantile is accurate to 0.01 %.
const MAX_BINS: usize = 10_000;

/// Estimates of one side: the mean, and then the quantiles at [`LEVELS`].
pub type Estimates = [f64; 1 + LEVELS.len()];

/// Random number generator SplitMix64 (Steele, Lea and Flood, 2014). The algorithm is part of this crate, so that a
/// seed gives the same numbers in every version.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a generator for one of several independent sequences. The sequences have the same `seed` and different
    /// values of `number`.
    pub const fn stream(seed: u64, number: u64) -> Self {
        let mut mixer = Self(seed ^ number.wrapping_mul(0xD134_2543_DE82_EF95));
        Self::new(mixer.next())
    }

    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a random number below `bound`, which must be less than 2³². The bias is then less than 1 in 2³².
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from((u128::from(self.next()) * bound as u128) >> 64).unwrap_or_default()
    }
}

/// Values of one side in one length bucket (stratum). The weights of all strata of a side add up to 1.
#[derive(Clone, Debug)]
pub struct Stratum {
    pub values: Vec<f64>,
    pub weight: f64,
}

/// The values of one side, prepared for fast resampling.
#[derive(Debug)]
pub struct Sampler {
    strata: Vec<SampledStratum>,
    /// The representative value of each bin.
    bins: Vec<f64>,
    /// Factor that corrects the spread of a sample that is smaller than the data. For m drawn values of n, the factor
    /// is √(m ÷ n).
    scale: f64,
    estimates: Estimates,
}

#[derive(Debug)]
struct SampledStratum {
    /// Each value and the number of its bin.
    values: Vec<(f64, usize)>,
    draws: usize,
    /// Weight of each drawn value.
    weight: f64,
}

impl Sampler {
    /// Prepares a side for sampling. Returns `None` without strata, or if a stratum is empty.
    pub fn new(strata: &[Stratum]) -> Option<Self> {
        if strata.is_empty() || strata.iter().any(|stratum| stratum.values.is_empty()) {
            return None;
        }
        let mut sorted: Vec<(f64, usize, usize)> = Vec::new();
        for (number, stratum) in strata.iter().enumerate() {
            let places = stratum.values.iter().enumerate();
            sorted.extend(places.map(|(place, value)| (*value, number, place)));
        }
        sorted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let count = sorted.len();
        let bin_count = count.min(MAX_BINS);
        let share = (MAX_DRAWS as f64 / count as f64).min(1.0);
        let mut drawn: Vec<SampledStratum> =
            strata.iter().map(|stratum| SampledStratum::new(stratum, share)).collect();
        let mut bins = vec![0.0; bin_count];
        let mut weights = Vec::with_capacity(count);
        for (rank, (value, number, place)) in sorted.into_iter().enumerate() {
            let bin = rank * bin_count / count;
            if let Some(slot) = bins.get_mut(bin) {
                // The largest value represents its bin, because a quantile is the value at which the cumulative weight
                // reaches the level.
                *slot = value;
            }
            let stratum = drawn.get_mut(number)?;
            *stratum.values.get_mut(place)? = (value, bin);
            weights.push((value, strata.get(number)?.weight / stratum.values.len() as f64));
        }
        Some(Self {
            strata: drawn,
            bins,
            scale: share.sqrt(),
            estimates: estimates(mean(strata), weights.into_iter()),
        })
    }

    /// Returns the estimates from all values of the side.
    pub const fn estimates(&self) -> Estimates {
        self.estimates
    }

    /// Draws one random sample and returns its estimates. Multiplies their deviations from the estimates of all values
    /// by `scale`. `weights` is a reusable buffer.
    fn resampled_estimates(&self, random: &mut Random, weights: &mut Vec<f64>) -> Estimates {
        weights.clear();
        weights.resize(self.bins.len(), 0.0);
        let mut mean = 0.0;
        for stratum in &self.strata {
            let mut sum = 0.0;
            for _ in 0..stratum.draws {
                let place = random.below(stratum.values.len());
                let Some((value, bin)) = stratum.values.get(place) else { continue };
                sum += value;
                if let Some(weight) = weights.get_mut(*bin) {
                    *weight += stratum.weight;
                }
            }
            mean += sum * stratum.weight;
        }
        let drawn = estimates(mean, self.bins.iter().copied().zip(weights.iter().copied()));
        let mut scaled = self.estimates;
        for (estimate, resampled) in scaled.iter_mut().zip(drawn) {
            *estimate += self.scale * (resampled - *estimate);
        }
        scaled
    }
}

impl SampledStratum {
    fn new(stratum: &Stratum, share: f64) -> Self {
        let draws = truncate((stratum.values.len() as f64 * share).ceil()).max(1);
        Self {
            values: vec![(0.0, 0); stratum.values.len()],
            draws,
            weight: stratum.weight / draws as f64,
        }
    }
}

fn mean(strata: &[Stratum]) -> f64 {
    let parts = strata.iter().map(|stratum| {
        stratum.weight * stratum.values.iter().sum::<f64>() / stratum.values.len() as f64
    });
    parts.sum()
}

/// Returns `mean`, and a weighted quantile for each of [`LEVELS`]. The quantile is the first value at which the sum of
/// the weights reaches the level. `weighted` contains pairs of value and weight, in ascending order of values.
fn estimates(mean: f64, weighted: impl Iterator<Item = (f64, f64)>) -> Estimates {
    /// Tolerance for rounding errors in sums of weights.
    const ROUNDING_TOLERANCE: f64 = 1e-9;
    let mut quantiles = [None; LEVELS.len()];
    let (mut reached, mut last) = (0.0, 0.0);
    for (value, weight) in weighted {
        if weight <= 0.0 {
            continue;
        }
        reached += weight;
        last = value;
        for (quantile, level) in quantiles.iter_mut().zip(LEVELS) {
            if quantile.is_none() && reached >= level - ROUNDING_TOLERANCE {
                *quantile = Some(value);
            }
        }
    }
    let [p5, p50, p95, p99] = quantiles.map(|quantile| quantile.unwrap_or(last));
    [mean, p5, p50, p95, p99]
}

/// Draws `resamples` random samples of each side. Returns the estimates of both sides for each draw.
pub fn resample(
    a: &Sampler,
    b: &Sampler,
    resamples: usize,
    mut random: Random,
) -> Vec<(Estimates, Estimates)> {
    let mut weights = Vec::new();
    let mut draw = |side: &Sampler| side.resampled_estimates(&mut random, &mut weights);
    (0..resamples).map(|_| (draw(a), draw(b))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::percentile;

    fn sampler(values: Vec<f64>) -> Sampler {
        Sampler::new(&[Stratum { values, weight: 1.0 }]).unwrap()
    }

    /// Returns numbers uniformly distributed between 0 and 1.
    fn uniform(count: usize, seed: u64) -> Vec<f64> {
        let mut random = Random::new(seed);
        (0..count).map(|_| random.next() as f64 / u64::MAX as f64).collect()
    }

    #[test]
    fn random_numbers_match_the_reference() {
        // First outputs of the reference implementation for seed 1234567.
        let mut random = Random::new(1_234_567);
        let first = [0; 3].map(|_| random.next());
        assert_eq!(
            first,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn strata_have_the_given_weights() {
        // Means 1 and 10 with weights 3/4 and 1/4. Values up to 1 have 3/4 of the weight.
        let strata = [
            Stratum { values: vec![1.0], weight: 0.75 },
            Stratum { values: vec![9.0, 11.0], weight: 0.25 },
        ];
        let [mean, p5, p50, p95, p99] = Sampler::new(&strata).unwrap().estimates();
        assert!((mean - 3.25).abs() < 1e-12);
        let found = [p5, p50, p95, p99].map(|value| format!("{value}"));
        assert_eq!(found, ["1", "1", "11", "11"]);
        assert!(Sampler::new(&[]).is_none());
        assert!(Sampler::new(&[Stratum { values: Vec::new(), weight: 1.0 }]).is_none());
    }

    /// Checks the spread of means against theory: σ ÷ √n, where σ of uniform numbers is √(1/12).
    #[test]
    fn the_spread_matches_theory_even_with_fewer_draws() {
        for count in [400, 40_000] {
            let (a, b) = (sampler(uniform(count, 1)), sampler(uniform(count, 2)));
            let resampled = resample(&a, &b, 600, Random::new(3));
            let means: Vec<f64> = resampled.iter().map(|(a, _)| a[0]).collect();
            let mean = means.iter().sum::<f64>() / means.len() as f64;
            let variance =
                means.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / means.len() as f64;
            let expected = (1.0 / 12.0 / count as f64).sqrt();
            let ratio = variance.sqrt() / expected;
            assert!((0.85..1.15).contains(&ratio), "{count}: {ratio}");
            // The standard error of the median of uniform numbers is 1 ÷ (2 √n).
            let mut medians: Vec<f64> = resampled.iter().map(|(a, _)| a[2]).collect();
            medians.sort_by(f64::total_cmp);
            let width = percentile(&medians, 0.975).unwrap() - percentile(&medians, 0.025).unwrap();
            let ratio = width / (2.0 * 1.96 * 0.5 / (count as f64).sqrt());
            assert!((0.75..1.25).contains(&ratio), "{count}: {ratio}");
        }
    }

    #[test]
    fn equal_seeds_give_equal_results() {
        let (a, b) = (sampler(uniform(50, 1)), sampler(uniform(50, 2)));
        let of = |seed| resample(&a, &b, 3, Random::new(seed));
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
        assert_ne!(Random::stream(1, 1).next(), Random::stream(1, 2).next());
    }
}
