//! Bands of length, where the log does not name them itself.

/// The bands by the first number of tokens that lies above each. Four times as long is another workload: within a band
/// neither prefill nor decode differs by more than that.
const BANDS: [(f64, &str); 5] = [
    (128.0, "<128"),
    (512.0, "128-512"),
    (2_048.0, "512-2k"),
    (8_192.0, "2k-8k"),
    (32_768.0, "8k-32k"),
];

/// The band that so many tokens are in; a bound belongs to the band above it.
pub fn of(tokens: f64) -> &'static str {
    let found = BANDS.iter().find(|(above, _)| tokens < *above);
    found.map_or(">=32k", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_the_band_above() {
        for (tokens, band) in [
            (0.0, "<128"),
            (127.0, "<128"),
            (128.0, "128-512"),
            (512.0, "512-2k"),
            (2_047.9, "512-2k"),
            (8_192.0, "8k-32k"),
            (32_768.0, ">=32k"),
            (1e9, ">=32k"),
        ] {
            assert_eq!(of(tokens), band, "{tokens}");
        }
    }
}
