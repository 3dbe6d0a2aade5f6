//! Which formats of trace headers are read and written: the file's, else those of `OTEL_PROPAGATORS`.

use super::super::Environment;
use super::super::deserialize::{Field, Spanned};
use super::super::errors::ErrorCollector;
use crate::forward::Propagator;

/// The specification's variable, read as it says: a word that is not known is told and ignored.
const VARIABLE: &str = "OTEL_PROPAGATORS";

/// The specification's word for an empty list.
const NONE: &str = "none";

/// The formats, and the words of the variable that are ignored.
pub(super) fn resolve(
    written: Field<Vec<Field<Propagator>>>,
    environment: Environment<'_>,
    errors: &mut ErrorCollector,
) -> (Vec<Propagator>, Vec<String>) {
    let variable = environment(VARIABLE).filter(|list| !list.trim().is_empty());
    match (written, variable) {
        (Field::Present(given), _) => (listed(given.value, errors), Vec::new()),
        (Field::Absent | Field::Invalid, Some(list)) => read(&list),
        (Field::Absent | Field::Invalid, None) => (Propagator::DEFAULT.to_vec(), Vec::new()),
    }
}

fn listed(written: Vec<Field<Propagator>>, errors: &mut ErrorCollector) -> Vec<Propagator> {
    let mut listed = Vec::new();
    for Spanned { value, node } in written.into_iter().filter_map(Field::spanned) {
        if listed.contains(&value) {
            let message = format!("{} is listed twice; remove one", value.as_str());
            errors.at(node, message);
        } else {
            listed.push(value);
        }
    }
    listed
}

fn read(list: &str) -> (Vec<Propagator>, Vec<String>) {
    let (mut known, mut ignored) = (Vec::new(), Vec::new());
    for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let named = |propagator: &Propagator| propagator.as_str().eq_ignore_ascii_case(word);
        match Propagator::ALL.into_iter().find(named) {
            Some(propagator) if known.contains(&propagator) => {}
            Some(propagator) => known.push(propagator),
            None if word.eq_ignore_ascii_case(NONE) => {}
            None => ignored.push(word.to_owned()),
        }
    }
    (known, ignored)
}
