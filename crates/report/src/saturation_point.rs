//! Finds the concurrency at which throughput stops rising, with the Kneedle method (Satopää, Albrecht, Irwin and
//! Raghavan, 2011).
//!
//! The method looks at a curve of throughput against concurrency. This curve is the mean throughput in concurrency bins
//! of equal width. The bins replace the smoothing spline of the original method. Both axes are scaled to the range from
//! zero to one. The candidate is the point that is highest above the diagonal. The candidate is the saturation point if
//! the curve afterwards falls towards the diagonal by more than one mean step of the x axis (sensitivity 1).

use schemars::JsonSchema;
use serde::Serialize;

use crate::statistics::truncate;

/// Description of the method for the report.
pub const METHOD: &str =
    "Kneedle (Satopää et al., 2011), sensitivity 1, over means in bins of equal width";

/// Number of bins into which the concurrency range is divided. With 20 bins, the result is accurate to a twentieth of
/// the range, and most bins contain enough time slices.
const BINS: usize = 20;
/// Minimum number of time slices in a concurrency bin. With fewer slices, the mean of the bin is not meaningful.
const MIN_SLICES_PER_BIN: u64 = 3;
/// Minimum number of points of a curve. With fewer points, the shape of the curve is unknown.
const MIN_POINTS: usize = 5;
/// Minimum ratio of the highest to the lowest concurrency. In a narrower range, noise determines the shape of the
/// curve.
const MIN_CONCURRENCY_RATIO: f64 = 2.0;
/// Minimum height of the saturation point above the diagonal, where the whole curve has the height 1. A straight line
/// with a little noise stays below this minimum.
const MIN_HEIGHT: f64 = 0.1;

/// Minimum concurrency of a saturation point. With less than one request in flight on average, no request waits for
/// another one, so throughput depends only on the arrivals.
const MIN_CONCURRENCY: f64 = 1.0;

/// A point of the curve of throughput against concurrency.
#[derive(Clone, Copy, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Point {
    /// Mean number of requests in flight.
    pub concurrency: f64,
    /// Output tokens per second of all streams together.
    pub throughput: f64,
}

/// Why no saturation point was found.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoSaturationPoint {
    /// Too few concurrency levels lasted long enough.
    TooFewPoints,
    /// Concurrency did not at least double.
    RangeTooNarrow,
    /// Throughput kept rising or never rose.
    NoBend,
    /// Throughput levels off below one request in flight on average, so the proxy was idle most of the time.
    MostlyIdle,
}

impl NoSaturationPoint {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooFewPoints => "too few concurrency levels lasted long enough",
            Self::RangeTooNarrow => "concurrency did not at least double",
            Self::NoBend => "throughput does not level off in the observed range",
            Self::MostlyIdle => "less than one request was in flight on average",
        }
    }
}

/// Returns the curve of throughput against concurrency: the mean of each concurrency bin that has enough time slices.
/// Slices without open requests are ignored.
pub fn curve(points: &[Point]) -> Vec<Point> {
    let busy = points.iter().filter(|point| point.concurrency > 0.0);
    let concurrencies = busy.clone().map(|point| point.concurrency);
    let low = concurrencies.clone().fold(f64::INFINITY, f64::min);
    let high = concurrencies.fold(0.0, f64::max);
    let mut bins = [(0_u64, 0.0, 0.0); BINS];
    for point in busy {
        let share = (point.concurrency - low) / (high - low);
        let place = truncate(share * BINS as f64).min(BINS - 1);
        if let Some((count, concurrency, throughput)) = bins.get_mut(place) {
            *count += 1;
            *concurrency += point.concurrency;
            *throughput += point.throughput;
        }
    }
    let filled = bins.into_iter().filter(|(count, ..)| *count >= MIN_SLICES_PER_BIN);
    filled
        .map(|(count, concurrency, throughput)| Point {
            concurrency: concurrency / count as f64,
            throughput: throughput / count as f64,
        })
        .collect()
}

/// Returns the saturation point of a [`curve`]. Returns the reason if the curve has none.
pub fn find(curve: &[Point]) -> Result<Point, NoSaturationPoint> {
    if curve.len() < MIN_POINTS {
        return Err(NoSaturationPoint::TooFewPoints);
    }
    let (Some(first), Some(last)) = (curve.first(), curve.last()) else {
        return Err(NoSaturationPoint::TooFewPoints);
    };
    if last.concurrency < MIN_CONCURRENCY_RATIO * first.concurrency {
        return Err(NoSaturationPoint::RangeTooNarrow);
    }
    let lowest = curve.iter().map(|point| point.throughput).fold(f64::INFINITY, f64::min);
    let highest = curve.iter().map(|point| point.throughput).fold(0.0, f64::max);
    if highest <= lowest {
        return Err(NoSaturationPoint::NoBend);
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
        Some(point) if height >= MIN_HEIGHT && falls => match point.concurrency {
            concurrency if concurrency < MIN_CONCURRENCY => Err(NoSaturationPoint::MostlyIdle),
            _ => Ok(*point),
        },
        Some(_) | None => Err(NoSaturationPoint::NoBend),
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

    fn found(throughput: impl Fn(f64) -> f64) -> Result<f64, NoSaturationPoint> {
        find(&curve(&points(throughput))).map(|point| point.concurrency)
    }

    #[test]
    fn finds_the_saturation_point_of_known_curves() {
        let saturation_point = found(|c| 50.0 * c.min(12.0)).unwrap();
        assert!((11.0..=13.5).contains(&saturation_point), "{saturation_point}");
        // The example of the paper, y = −1/x + 5 for x from 0.1 to 1, has its saturation point at √(0.1·1) = 0.316. The
        // method scales both axes, so ten times the concurrency moves the point to 3.16.
        let shape = |x: f64| 5.0 - 1.0 / x;
        let curve: Vec<_> = (0..=18)
            .map(|step| 0.1 + 0.05 * f64::from(step))
            .map(|x| Point { concurrency: 10.0 * x, throughput: shape(x) })
            .collect();
        let saturation_point = find(&curve).unwrap().concurrency;
        assert!((2.9..=3.6).contains(&saturation_point), "{saturation_point}");
    }

    #[test]
    fn reports_why_there_is_no_saturation_point() {
        assert_eq!(found(|c| 50.0 * c), Err(NoSaturationPoint::NoBend));
        assert_eq!(found(|_| 50.0), Err(NoSaturationPoint::NoBend));
        assert_eq!(found(|c| c * c), Err(NoSaturationPoint::NoBend));
        assert_eq!(find(&[]), Err(NoSaturationPoint::TooFewPoints));
        let idle = |curve: &[Point]| {
            let point = |it: &Point| Point { concurrency: it.concurrency / 1_000.0, ..*it };
            curve.iter().map(point).collect::<Vec<_>>()
        };
        let saturated = curve(&points(|c| c.min(12.0)));
        assert_eq!(find(&idle(&saturated)), Err(NoSaturationPoint::MostlyIdle));
        let narrow: Vec<_> = points(|c| c.min(12.0)).split_off(90);
        assert_eq!(find(&curve(&narrow)), Err(NoSaturationPoint::RangeTooNarrow));
    }

    #[test]
    fn ignores_idle_slices() {
        let idle = Point { concurrency: 0.0, throughput: 0.0 };
        assert_eq!(curve(&[idle, idle]), []);
    }
}
