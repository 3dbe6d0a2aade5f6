//! Length buckets for log lines that do not contain them.

/// Exclusive upper bound and name of each bucket. A request of four times the length is a different workload, so
/// prefill and decode within a bucket differ by less than that.
const BUCKETS: [(f64, &str); 5] = [
    (128.0, "<128"),
    (512.0, "128-512"),
    (2_048.0, "512-2k"),
    (8_192.0, "2k-8k"),
    (32_768.0, "8k-32k"),
];

/// Returns the bucket of a token count. A bound belongs to the bucket above it.
pub fn length_bucket(tokens: f64) -> &'static str {
    let found = BUCKETS.iter().find(|(above, _)| tokens < *above);
    found.map_or(">=32k", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_the_bucket_above() {
        for (tokens, bucket) in [
            (0.0, "<128"),
            (127.0, "<128"),
            (128.0, "128-512"),
            (512.0, "512-2k"),
            (2_047.9, "512-2k"),
            (8_192.0, "8k-32k"),
            (32_768.0, ">=32k"),
            (1e9, ">=32k"),
        ] {
            assert_eq!(length_bucket(tokens), bucket, "{tokens}");
        }
    }
}
