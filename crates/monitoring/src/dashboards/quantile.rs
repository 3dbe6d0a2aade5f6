//! Histogram quantiles over all series that a query matches.

use super::Panel;

/// Returns PromQL for a quantile. Absent without events, never NaN. `buckets` selects the series:
/// `x_seconds_bucket{<call>}`.
pub(super) fn quantile(share: f64, buckets: &str) -> String {
    format!("histogram_quantile({share}, sum by (le) (rate({buckets}[$__rate_interval]))) >= 0")
}

impl Panel {
    /// Adds the median, the 95th and the 99th percentile.
    pub(super) fn p50_p95_p99(self, buckets: &str) -> Self {
        self.line("p50", quantile(0.5, buckets))
            .line("p95", quantile(0.95, buckets))
            .line("p99", quantile(0.99, buckets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_written_as_it_is_said() {
        let text = quantile(0.95, "x_bucket{<call>}");
        assert_eq!(
            text,
            "histogram_quantile(0.95, sum by (le) (rate(x_bucket{<call>}[$__rate_interval]))) >= 0"
        );
    }
}
