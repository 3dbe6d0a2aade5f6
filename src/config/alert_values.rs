//! The values of `tokengauge alerts --values`: read like the configuration, each error with its place.

use std::path::Path;

use super::deserialize::{self, Spanned};
use super::errors::{ConfigErrors, ErrorCollector};
use super::yaml::{Kind, Node};
use super::{file, yaml};
use tokengauge_monitoring::alerts::values::{DEFAULTS, Values};

/// The values of alerts: those of the file, and the defaults for what it leaves out.
///
/// # Errors
/// All that is wrong with the file as YAML or with its keys, and the first value that cannot be read.
pub fn alert_values(path: Option<&Path>) -> Result<Values, ConfigErrors> {
    match path {
        Some(path) => values_of(&file::read(path)?, path),
        None => values_of("", Path::new("values.yaml")),
    }
}

fn values_of(text: &str, path: &Path) -> Result<Values, ConfigErrors> {
    let mut errors = ErrorCollector::of_file(path);
    let given = yaml::parse(text, &mut errors);
    if errors.count() > 0 {
        return Err(errors.into_errors());
    }
    let defaults = yaml::parse(DEFAULTS, &mut errors);
    let merged = match (defaults, given) {
        (Some(defaults), Some(given)) => Some(over(defaults, given)),
        (defaults, given) => given.or(defaults),
    };
    let values: Option<Spanned<Values>> =
        merged.and_then(|root| deserialize::from_node(&root, &mut errors).spanned());
    match values {
        // A key that nobody knows stops nothing, and has been told.
        Some(values) => errors.into_result(values.value),
        None => Err(errors.into_errors()),
    }
}

/// `given` laid over `default`: sections key by key, anything else as a whole. What is there without a value changes
/// nothing.
fn over(default: Node, given: Node) -> Node {
    match (default.kind, given.kind) {
        (kind, Kind::Null) => Node { id: default.id, kind },
        (Kind::Section(mut entries), Kind::Section(others)) => {
            for (key, value) in others {
                match entries.iter_mut().find(|(known, _)| known.text == key.text) {
                    Some((_, node)) => *node = over(node.clone(), value),
                    None => entries.push((key, value)),
                }
            }
            Node { id: given.id, kind: Kind::Section(entries) }
        }
        (Kind::Null | Kind::Scalar { .. } | Kind::List(_) | Kind::Section(_), kind) => {
            Node { id: given.id, kind }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Values, String> {
        values_of(text, Path::new("f")).map_err(|errors| errors.to_string())
    }

    #[test]
    fn the_defaults_are_values_and_a_file_says_only_what_differs() {
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
    fn what_is_wrong_is_told_with_its_place_and_its_remedy() {
        for (text, told) in [
            (
                "slo:\n  burn_2h: 3\n",
                "f:2:3: slo.burn_2h: there is no such key; did you mean \"burn_1h\"?",
            ),
            (
                "slo: {burn_1h: fast}\n",
                "f:1:16: slo.burn_1h: \"fast\" is no number layers 0; write one, such as 3 or 14.4",
            ),
            (
                "health: {memory_share: 900%}\n",
                "f:1:24: health.memory_share: \"900%\" is no share; write one layers 0% and up to 100%, such as 5% or 0.05",
            ),
            (
                "health: {absent_for: 10}\n",
                "f:1:22: health.absent_for: \"10\" is no length of time; write a number and a unit (ms, s, m, h, d), such as 30s or 5m",
            ),
            (
                "slo: 3\n",
                "f:1:6: slo: found a single value; write keys here, each on a line of its own, indented below this one",
            ),
            (
                "slo: {min_events: -1}\n",
                "f:1:19: slo.min_events: \"-1\" is no whole number; write a whole number",
            ),
        ] {
            assert_eq!(read(text).unwrap_err(), told);
        }
        assert!(read("slo: [").unwrap_err().starts_with("f:"));
    }
}
