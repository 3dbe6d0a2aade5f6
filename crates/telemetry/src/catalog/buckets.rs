//! Bucket bounds of histograms.
//!
//! Quantities that are compared have the same bounds, because a percentile is exact only up to its bucket. With different
//! bounds, the percentile of a part could exceed that of the whole. Metrics of the semantic conventions have these bounds,
//! too, although the conventions recommend others: each convention recommends different bounds.
//!
//! Bounds of own metrics are never integers, because the label of an integer bound depends on the path: a scrape has
//! `le="1.0"`, and Prometheus' OTLP receiver writes `le="1"`.

use crate::config::Profile;

/// Upper bounds of the buckets of a histogram in each profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    pub full: &'static [f64],
    /// A part of `full`.
    lean: &'static [f64],
}

impl Bounds {
    /// Bounds of a metric that is not a histogram.
    pub(super) const NONE: Self = Self::equal(&[]);

    /// Returns bounds that do not depend on the profile.
    pub const fn equal(bounds: &'static [f64]) -> Self {
        Self { full: bounds, lean: bounds }
    }

    pub const fn of(self, profile: Profile) -> &'static [f64] {
        match profile {
            Profile::Full => self.full,
            Profile::Lean => self.lean,
        }
    }
}

/// Seconds of a request and of its parts. From 10 ms to 10.24 s, where objectives lie, two bounds per doubling: a
/// percentile is off by at most a factor of 1.5. Below and above, one bound per doubling, up to 11 minutes (the longest
/// reasoning). Contains all bounds that the conventions recommend for durations of operations.
///
/// The lean bounds have one bound per doubling from 80 ms to 10.24 s.
pub(super) const TIMES: Bounds = Bounds {
    full: &[
        0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48, 0.64, 0.96,
        1.28, 1.92, 2.56, 3.84, 5.12, 7.68, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68, 655.36,
    ],
    lean: &[0.03, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 40.96],
};

/// Seconds of a session, from a single request to a day.
pub(super) const SESSION_TIMES: Bounds = Bounds::equal(&[
    1.5, 5.5, 15.5, 60.5, 120.5, 300.5, 600.5, 1_800.5, 3_600.5, 7_200.5, 14_400.5, 28_800.5,
    86_400.5,
]);

/// Seconds between tokens. Dense from 2 to 100 ms, the range of decode steps (10 to 500 tokens per second). Bounds above
/// 1 s are for stalls only.
///
/// The lean bounds have one bound per doubling from 4 to 50 ms.
pub(super) const GAPS: Bounds = Bounds {
    full: &[
        0.0005, 0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.0125, 0.015, 0.02, 0.025, 0.03, 0.04,
        0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.5, 2.5, 5.5, 10.5,
    ],
    lean: &[0.004, 0.008, 0.015, 0.03, 0.05, 0.1, 0.25, 1.5],
};

/// Seconds of a connection, from a round trip on one host to the connect timeout of 10 s.
pub(super) const CONNECTION_TIMES: Bounds = Bounds::equal(&[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.5, 2.5, 5.5, 10.5,
]);

/// Seconds of a delay in this process, from the resolution of a timer to a process that was stopped.
pub(super) const DELAYS: Bounds = Bounds::equal(&[
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.5, 2.5, 5.5, 10.5, 60.5,
]);

/// Tokens per second, from speech (3 to 5) and reading (about 5) to fast inference (thousands).
pub(super) const RATES: Bounds = Bounds {
    full: &[
        1.5, 2.5, 5.5, 7.5, 10.5, 15.5, 20.5, 30.5, 40.5, 60.5, 80.5, 100.5, 150.5, 250.5, 500.5,
        1_000.5, 2_500.5,
    ],
    lean: &[5.5, 10.5, 20.5, 40.5, 80.5, 150.5, 500.5],
};

/// Tokens per chunk, each 0.5 above a power of two. Speculative decoding yields 2 to 8 tokens per chunk, and providers
/// that combine chunks yield up to hundreds.
pub(super) const CHUNK_TOKENS: Bounds =
    Bounds::equal(&[1.5, 2.5, 4.5, 8.5, 16.5, 32.5, 64.5, 128.5, 256.5]);

/// Tokens of a call, as in the semantic conventions.
pub(super) const TOKENS: Bounds = Bounds::equal(&[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
]);

#[cfg(test)]
mod tests {
    use super::{Bounds, GAPS, TIMES};
    use crate::catalog::{Kind, metrics};

    #[test]
    fn bounds_of_times_are_close_where_objectives_lie() {
        for pair in TIMES.full.windows(2) {
            let most = if (0.01..10.0).contains(&pair[0]) { 1.5 } else { 2.0 };
            assert!(pair[1] / pair[0] <= most + 1e-9, "{pair:?}");
        }
    }

    /// A recording rule can then add the buckets of both profiles at these bounds.
    #[test]
    fn lean_bounds_are_a_part_of_the_full_bounds() {
        for metric in metrics() {
            let Bounds { full, lean } = metric.buckets;
            assert!(lean.iter().all(|bound| full.contains(bound)), "{}", metric.name);
        }
    }

    /// A part and its whole are compared, so that both have the same bounds.
    #[test]
    fn all_times_of_a_request_have_the_same_bounds() {
        let of_a_request = |name: &str| {
            !["network", "connect", "self", "session"]
                .iter()
                .any(|other| name.contains(&format!(".{other}.")))
        };
        for metric in
            metrics().filter(|metric| metric.kind == Kind::Histogram && metric.unit == "s")
        {
            let between_tokens =
                metric.name.contains("per_output") || metric.name.contains("inter_");
            let expected = if between_tokens { GAPS } else { TIMES };
            assert!(!of_a_request(metric.name) || metric.buckets == expected, "{}", metric.name);
        }
    }
}
