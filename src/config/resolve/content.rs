//! Content capture: of which route, how much, and what is removed of it.

use std::ops::RangeInclusive;

use crate::config::deserialize::{Field, Spanned};
use crate::config::errors::{ErrorCollector, suggestion};
use crate::config::raw;
use crate::config::value::Size;
use tokengauge_llm::content::{BUILT_IN, Policy, Problem, Redactor};

/// Less is not a sentence; more than 4 MiB, for a request and an answer each, is more than a collector takes at a time.
const SIZES: RangeInclusive<Size> = Size(1 << 10)..=Size(1 << 20);

/// Each of them goes over all text.
const MOST_PATTERNS: usize = 64;

/// `None` where the route captures nothing.
pub(super) fn resolve(written: Field<raw::Content>, errors: &mut ErrorCollector) -> Option<Policy> {
    let Spanned { value, node } = written.spanned()?;
    let remedy = "write `capture: true`, or remove the key layers";
    let capture = value.capture.required(errors, node, "capture", remedy);
    let max_bytes = super::within(value.max_bytes, SIZES, errors);
    let redact = redact(value.redact, errors);
    capture?.value.then_some(Policy {
        max_bytes: max_bytes.map_or(Policy::MAX_BYTES, |size| size.0),
        redact: redact?,
    })
}

fn redact(written: Field<Vec<Field<String>>>, errors: &mut ErrorCollector) -> Option<Redactor> {
    let Some(Spanned { value, node }) = written.spanned() else {
        return Redactor::new(&[Redactor::USUAL.to_owned()]).ok();
    };
    let entries: Vec<Spanned<String>> = value.into_iter().filter_map(Field::spanned).collect();
    if entries.len() > MOST_PATTERNS {
        errors.at(
            node,
            format!("there are {} patterns; write at most {MOST_PATTERNS}", entries.len()),
        );
    }
    let texts: Vec<String> = entries.iter().map(|entry| entry.value.clone()).collect();
    Redactor::new(&texts)
        .map_err(|(at, problem)| {
            let node = entries.get(at).map_or(node, |entry| entry.node);
            errors.at(node, told(&problem));
        })
        .ok()
}

fn told(problem: &Problem) -> String {
    match problem {
        Problem::Unknown(name) => {
            let names = BUILT_IN.iter().map(|(name, _)| *name);
            let near = suggestion(name, names);
            format!("{problem}; {near}, or write a regular expression between slashes")
        }
        Problem::Pattern(_) => {
            format!(
                "{problem}; there are no back-references and no look-around, and it must stay small"
            )
        }
        Problem::FitsNothing => format!("{problem}; write one that needs at least one character"),
    }
}
