//! Where throughput stops rising with concurrency: Kneedle (Satopää, Albrecht, Irwin and Raghavan, 2011), for a curve
//! that rises and flattens, with sensitivity 1.
//!
//! The curve is the mean throughput in bins of concurrency of equal width, in place of Kneedle's smoothing spline. Both
//! axes are scaled to 0 … 1; the knee is where the curve stands highest above the diagonal, if it falls by a mean step
//! of the other axis after that.

use schemars::JsonSchema;
use serde::Serialize;

use crate::statistics::whole;

/// What is told of how the knee is found.
pub const METHOD: &str =
    "Kneedle (Satopää et al., 2011), sensitivity 1, over means in bins of equal width";

/// Bins of concurrency: enough to place a knee within a twentieth of the range, and few enough that most hold slices.
const BINS: usize = 20;
/// Slices that a bin must hold to be a point: what a run passed through on its way says little.
const FEWEST_SLICES: u64 = 3;
/// A curve of fewer points has no shape.
const FEWEST: usize = 5;
/// The highest concurrency must be so many times the lowest: within less than that, noise makes the shape.
const RANGE: f64 = 2.0;
/// The least height above the diagonal, as a share of the whole rise: what a straight line with a little noise has too is no knee.
const HEIGHT: f64 = 0.1;

/// A point of throughput against concurrency.
#[derive(Clone, Copy, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Point {
    /// Mean number of requests in flight.
    pub concurrency: f64,
    /// Output tokens per second, of all streams together.
    pub throughput: f64,
}

/// Why there is no knee.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Without {
    /// Concurrency took too few different values for long enough.
    TooFewPoints,
    /// Concurrency did not at least double.
    RangeTooNarrow,
    /// Throughput went on rising, or never did.
    NoBend,
}

impl Without {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooFewPoints => "concurrency took too few different values for long enough",
            Self::RangeTooNarrow => "concurrency did not at least double",
            Self::NoBend => "throughput does not bend over the range that was seen",
        }
    }
}

/// Mean throughput in the bins of concurrency that hold some slices; slices in which nothing was in flight say nothing.
pub fn curve(points: &[Point]) -> Vec<Point> {
    let busy = points.iter().filter(|point| point.concurrency > 0.0);
    let range = busy.clone().fold(None, |range, point| {
        let (low, high) = range.unwrap_or((point.concurrency, point.concurrency));
        Some((low.min(point.concurrency), high.max(point.concurrency)))
    });
    let Some((low, high)) = range else {
        return Vec::new();
    };
    let mut bins = [(0_u64, 0.0, 0.0); BINS];
    for point in busy {
        let share = (point.concurrency - low) / (high - low);
        let place = whole(share * BINS as f64).min(BINS - 1);
        if let Some((count, concurrency, throughput)) = bins.get_mut(place) {
            *count += 1;
            *concurrency += point.concurrency;
            *throughput += point.throughput;
        }
    }
    let filled = bins.into_iter().filter(|(count, ..)| *count >= FEWEST_SLICES);
    filled
        .map(|(count, concurrency, throughput)| Point {
            concurrency: concurrency / count as f64,
            throughput: throughput / count as f64,
        })
        .collect()
}

/// The knee of a [`curve`].
pub fn knee(curve: &[Point]) -> Result<Point, Without> {
    if curve.len() < FEWEST {
        return Err(Without::TooFewPoints);
    }
    let (Some(first), Some(last)) = (curve.first(), curve.last()) else {
        return Err(Without::TooFewPoints);
    };
    if last.concurrency < RANGE * first.concurrency {
        return Err(Without::RangeTooNarrow);
    }
    let lowest = curve.iter().map(|point| point.throughput).fold(f64::INFINITY, f64::min);
    let highest = curve.iter().map(|point| point.throughput).fold(0.0, f64::max);
    if highest <= lowest {
        return Err(Without::NoBend);
    }
    let x = |point: &Point| {
        (point.concurrency - first.concurrency) / (last.concurrency - first.concurrency)
    };
    let y = |point: &Point| (point.throughput - lowest) / (highest - lowest);
    let heights: Vec<f64> = curve.iter().map(|point| y(point) - x(point)).collect();
    let (top, height) = heights.iter().enumerate().fold((0, 0.0), |best, (place, height)| {
        if *height > best.1 { (place, *height) } else { best }
    });
    let step = 1.0 / (curve.len() - 1) as f64;
    let falls = heights.iter().skip(top + 1).any(|later| *later < height - step);
    match curve.get(top) {
        Some(point) if height >= HEIGHT && falls => Ok(*point),
        Some(_) | None => Err(Without::NoBend),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(throughput: impl Fn(f64) -> f64) -> Vec<Point> {
        (3..=120)
            .map(|third| f64::from(third / 3))
            .map(|concurrency| Point { concurrency, throughput: throughput(concurrency) })
            .collect()
    }

    fn found(throughput: impl Fn(f64) -> f64) -> Result<f64, Without> {
        knee(&curve(&points(throughput))).map(|point| point.concurrency)
    }

    #[test]
    fn a_curve_that_saturates_bends_where_it_does() {
        let knee = found(|c| 50.0 * c.min(12.0)).unwrap();
        assert!((11.0..=13.5).contains(&knee), "{knee}");
        // The paper's own example, y = −1/x + 5 on 0.1 … 1: its knee is known in closed form as √(0.1·1) = 0.316.
        let shape = |x: f64| 5.0 - 1.0 / x;
        let curve: Vec<_> = (0..=18)
            .map(|step| 0.1 + 0.05 * f64::from(step))
            .map(|x| Point { concurrency: x, throughput: shape(x) })
            .collect();
        let knee = super::knee(&curve).unwrap().concurrency;
        assert!((0.29..=0.36).contains(&knee), "{knee}");
    }

    #[test]
    fn what_has_no_knee_is_given_none() {
        assert_eq!(found(|c| 50.0 * c), Err(Without::NoBend));
        assert_eq!(found(|_| 50.0), Err(Without::NoBend));
        assert_eq!(found(|c| c * c), Err(Without::NoBend));
        assert_eq!(knee(&[]), Err(Without::TooFewPoints));
        let narrow: Vec<_> = points(|c| c.min(12.0)).split_off(90);
        assert_eq!(knee(&curve(&narrow)), Err(Without::RangeTooNarrow));
    }

    #[test]
    fn idle_slices_say_nothing() {
        let idle = Point { concurrency: 0.0, throughput: 0.0 };
        assert_eq!(curve(&[idle, idle]), []);
    }
}
