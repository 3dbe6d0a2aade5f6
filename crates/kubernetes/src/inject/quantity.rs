//! Parses Kubernetes quantities.

/// Units of Kubernetes quantities, with their factors.
const UNITS: [(&str, f64); 16] = [
    ("", 1.0),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("Ei", 1_152_921_504_606_846_976.0),
];

/// Parses a Kubernetes quantity, such as `50m`, `64Mi`, `0.5` or `1e3`. Returns `None` if the text is not a quantity.
pub(super) fn amount(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    let number: f64 = number.parse().ok()?;
    if let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) {
        return Some(number * factor);
    }
    let power: i8 = unit.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some(number * 10f64.powi(power.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_quantities_have_equal_amounts() {
        for (a, b) in
            [("1", "1000m"), ("1Gi", "1024Mi"), ("0.5", "500m"), ("1e3", "1k"), ("2E2", "200")]
        {
            let (a, b) = (amount(a).unwrap(), amount(b).unwrap());
            assert!((a - b).abs() < 1e-9, "{a} {b}");
        }
        for invalid in ["", "m", "1x", "-1", "1.2.3", "1e", "1 Gi"] {
            assert_eq!(amount(invalid), None, "{invalid}");
        }
    }
}
