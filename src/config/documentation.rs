//! Finds the section of the configuration page that describes an invalid key.

/// The URL of the configuration page, for texts that are put together at compile time.
macro_rules! configuration_page {
    () => {
        concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/reference/configuration.md")
    };
}
pub(crate) use configuration_page;

/// A URL, because an installed program has no folder with the documentation.
const PAGE: &str = configuration_page!();

/// Each top-level key with the section of the page that describes the key.
const SECTIONS: [(&str, &str); 22] = [
    ("version", "version"),
    ("listeners", "listeners"),
    ("admin", "admin-port"),
    ("console", "console"),
    ("upstreams", "upstreams"),
    ("routes", "routes"),
    ("slos", "slos"),
    ("slo_state", "slos"),
    ("tokenizers", "tokenizers"),
    ("identity", "identity"),
    ("cost", "cost"),
    ("cardinality_limits", "cardinality-limits"),
    ("telemetry", "cardinality-limits"),
    ("otlp", "otlp-export"),
    ("limits", LIMITS),
    ("shutdown_grace_period", LIMITS),
    ("position", LIMITS),
    ("trace_context", LIMITS),
    ("propagators", LIMITS),
    ("log", LIMITS),
    ("request_log", "request-log"),
    ("workload_drift", "workload-drift"),
];

const LIMITS: &str = "limits-shutdown-position-traces-and-log";

/// Returns the page that describes the keys, with the section if one section describes all of them.
pub(super) fn page_of<'a>(keys: impl Iterator<Item = &'a str>) -> String {
    let mut sections = keys.map(section_of);
    let first = sections.next().flatten();
    match first.filter(|section| sections.all(|other| other == Some(*section))) {
        Some(section) => format!("{PAGE}#{section}"),
        None => PAGE.to_owned(),
    }
}

/// Returns the section for a key such as `routes[1].upstream`. Returns `None` for a flag or a variable.
fn section_of(key: &str) -> Option<&'static str> {
    let top = key.split(['.', '[']).next()?;
    SECTIONS.iter().find(|(known, _)| *known == top).map(|(_, section)| *section)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::{RunArgs, load, schema};

    #[test]
    fn sections_are_those_of_the_page() {
        let (_, path) = PAGE.split_once("/blob/main/").unwrap();
        let page = std::fs::read_to_string(path).unwrap();
        let mut section = String::new();
        let mut described = BTreeSet::new();
        for line in page.lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                section = heading.to_lowercase().replace(',', "").replace(' ', "-");
            }
            let key = line.strip_prefix("| `").and_then(|rest| rest.split('`').next());
            let top = key.and_then(|key| key.split(['.', '[']).next());
            described.extend(top.map(|top| (top.to_owned(), section.clone())));
        }
        for (key, section) in SECTIONS {
            let pair = (key.to_owned(), section.to_owned());
            assert!(described.contains(&pair), "{pair:?}");
        }
        let schema = schema();
        for key in schema.get("properties").unwrap().as_object().unwrap().keys() {
            assert!(section_of(key).is_some(), "{key}");
        }
    }

    #[test]
    fn names_the_section_of_the_only_wrong_part() {
        let page = |text: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            let args = RunArgs { config: Some(file.path().to_owned()), ..RunArgs::default() };
            load(&args, &|_| None).unwrap_err().with_documentation()
        };
        let one = page("upstreams: {a: {url: \"http://a\"}}\nslos: [{sli: a}, {sli: b}]\n");
        assert!(one.ends_with(&format!("\ndocumentation: {PAGE}#slos")), "{one}");
        assert_eq!(one.matches("documentation:").count(), 1);
        let several = page("upstreams: {a: {url: \"http://a\"}}\nslos: [{sli: a}]\nposition: b\n");
        assert!(several.ends_with(&format!("\ndocumentation: {PAGE}")), "{several}");
    }
}
