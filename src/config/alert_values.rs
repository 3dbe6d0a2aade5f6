//! Reads the values file of `tokengauge alerts --values`. Errors are reported as for the configuration file.

use std::path::Path;

use super::deserialize;
use super::errors::{ConfigErrors, ErrorCollector};
use super::yaml::{Kind, Node};
use super::{file, yaml};
use tokengauge_monitoring::alerts::values::{DEFAULTS, Values};

/// Reads the values of alerts from a file. Missing keys have their default.
///
/// # Errors
/// Returns all errors of the file.
pub fn alert_values(path: Option<&Path>) -> Result<Values, ConfigErrors> {
    match path {
        Some(path) => parse_values(&file::read(path)?, path),
        None => parse_values("", Path::new("values.yaml")),
    }
}

fn parse_values(text: &str, path: &Path) -> Result<Values, ConfigErrors> {
    let mut errors = ErrorCollector::for_file(path);
    let written = yaml::parse(text, &mut errors);
    if errors.count() > 0 {
        return Err(errors.into_errors());
    }
    let defaults = yaml::parse(DEFAULTS, &mut errors);
    let merged = match (defaults, written) {
        (Some(defaults), Some(written)) => Some(merge(defaults, written)),
        (defaults, written) => written.or(defaults),
    };
    match merged.and_then(|root| deserialize::from_node::<Values>(&root, &mut errors)) {
        Some(values) => errors.into_result(values),
        None => Err(errors.into_errors()),
    }
}

/// Merges `written` into `default`. Sections are merged key by key, and other values are replaced. A key without a
/// value keeps its default.
fn merge(default: Node, written: Node) -> Node {
    match (default.kind, written.kind) {
        (kind, Kind::Null) => Node { id: default.id, kind },
        (Kind::Section(mut entries), Kind::Section(others)) => {
            for (key, value) in others {
                match entries.iter_mut().find(|(known, _)| known.text == key.text) {
                    Some((_, node)) => *node = merge(node.clone(), value),
                    None => entries.push((key, value)),
                }
            }
            Node { id: written.id, kind: Kind::Section(entries) }
        }
        (Kind::Null | Kind::Scalar { .. } | Kind::List(_) | Kind::Section(_), kind) => {
            Node { id: written.id, kind }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Values, String> {
        parse_values(text, Path::new("f")).map_err(|errors| errors.to_string())
    }

    #[test]
    fn merges_the_file_over_the_defaults() {
        let defaults = read("").unwrap();
        assert_eq!(defaults.slo.burn_1h.to_string(), "14.4");
        let text = "slo: {burn_1h: 10}\njobs: [a, b]\nhealth:\nselector: 'cluster=\"prod\"'\n";
        let values = read(text).unwrap();
        assert_eq!(values.slo.burn_1h.to_string(), "10");
        assert_eq!(values.slo.burn_6h.to_string(), "6");
        assert_eq!(values.jobs.len(), 2);
        assert_eq!(values.selector.as_str(), "cluster=\"prod\"");
        assert_eq!(values.health.absent_for, defaults.health.absent_for);
    }

    #[test]
    fn reports_errors_with_position_and_hint() {
        for (text, message) in [
            ("slo:\n  burn_2h: 3\n", "f:2:3: slo.burn_2h: unknown key; did you mean \"burn_1h\"?"),
            (
                "slo: {burn_1h: fast}\n",
                "f:1:16: slo.burn_1h: \"fast\" is not a number above 0; write one, such as 3 or 14.4",
            ),
            (
                "health: {memory_share: 900%}\n",
                "f:1:24: health.memory_share: \"900%\" is not a ratio; write one above 0% and up to 100%, such as 5% or 0.05",
            ),
            (
                "health: {absent_for: 10}\n",
                "f:1:22: health.absent_for: \"10\" is not a duration; write a number and a unit (ms, s, m, h, d), such as 30s or 5m",
            ),
            (
                "slo: 3\n",
                "f:1:6: slo: found a single value; write a section of keys, one per line, indented below this key",
            ),
            (
                "slo: {min_events: -1}\n",
                "f:1:19: slo.min_events: \"-1\" is not a whole number; write digits, such as 100",
            ),
        ] {
            assert_eq!(read(text).unwrap_err(), message);
        }
        assert!(read("slo: [").unwrap_err().starts_with("f:"));
    }
}
