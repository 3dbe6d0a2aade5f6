//! Accepts former names of configuration keys. A warning contains the new name.
//!
//! The values are moved to their new keys in the parsed file, before it is deserialized. All later code uses only the
//! new keys. `docs/reference/renames.csv` lists the same renames.

use super::errors::ErrorCollector;
use super::yaml::{Key, Kind, Node};

/// Renames in the order of their application: section, former key, new key. In a section, `[]` means every entry of a
/// list, and `*` means every name. In a new key, a dot separates a section from its key.
const RENAMES: [(&str, &str, &str); 33] = [
    ("", "vantage", "position"),
    ("", "trace", "trace_context"),
    ("", "drain", "shutdown_grace_period"),
    ("", "objectives", "slos"),
    ("slos.[]", "indicator", "sli"),
    ("", "labels", "cardinality_limits"),
    ("cardinality_limits", "length_bands", "length_buckets"),
    ("", "export", "otlp"),
    ("", "drift", "workload_drift"),
    ("workload_drift", "exchanges", "sample_size"),
    ("request_log.rotate", "keep", "max_files"),
    ("listeners.[]", "head_timeout", "request_header_timeout"),
    ("upstreams.*", "keep_host", "preserve_host"),
    ("upstreams.*.timeouts", "head", "response_header"),
    ("upstreams.*.pool", "idle", "idle_timeout"),
    ("upstreams.*.pool", "size", "max_idle_connections"),
    ("upstreams.*", "metrics", "engine_metrics"),
    ("upstreams.*.engine_metrics", "interval", "scrape_interval"),
    ("upstreams.*.engine_metrics", "timeout", "scrape_timeout"),
    ("upstreams.*", "warm", "warmup"),
    ("upstreams.*.warmup", "idle", "idle_timeout"),
    ("upstreams.*.warmup", "exchanges", "min_requests"),
    ("upstreams.*.warmup", "young", "startup_grace"),
    ("upstreams.*.warmup", "load", "cold_load_threshold"),
    ("routes.[]", "vantage", "position"),
    ("routes.[]", "trace", "trace_context"),
    ("routes.[]", "strip", "strip_prefix"),
    ("routes.[]", "dialect", "api_format"),
    ("routes.[]", "stall_after", "stall.inter_token_after"),
    ("routes.[]", "hung_after", "stall.first_token_after"),
    ("routes.[]", "admission", "concurrency_limit"),
    ("routes.[].concurrency_limit", "queue", "max_queue"),
    ("routes.[].concurrency_limit", "wait", "queue_timeout"),
];

/// Moves values from former keys to their new ones.
pub(super) fn apply(root: &mut Node, errors: &mut ErrorCollector) {
    for (section, former, new) in RENAMES {
        let path: Vec<&str> = section.split('.').filter(|part| !part.is_empty()).collect();
        in_sections(root, &path, &mut |entries| rename(entries, former, new, errors));
    }
}

/// The entries of a section.
type Entries = Vec<(Key, Node)>;

/// Calls `visit` with the entries of every section that `path` matches.
fn in_sections(node: &mut Node, path: &[&str], visit: &mut dyn FnMut(&mut Entries)) {
    match (&mut node.kind, path.split_first()) {
        (Kind::Section(entries), None) => visit(entries),
        (Kind::List(items), Some((&"[]", rest))) => {
            for item in items {
                in_sections(item, rest, visit);
            }
        }
        (Kind::Section(entries), Some((part, rest))) => {
            for (key, value) in entries {
                if *part == "*" || key.text == *part {
                    in_sections(value, rest, visit);
                }
            }
        }
        (Kind::Null | Kind::Scalar { .. } | Kind::List(_), _) => {}
    }
}

fn rename(entries: &mut Entries, former: &str, new: &str, errors: &mut ErrorCollector) {
    let Some(index) = entries.iter().position(|(key, _)| key.text == former) else {
        return;
    };
    let (key, value) = entries.remove(index);
    let position = key.position;
    errors.warn_at(position, former.to_owned(), format!("renamed; write `{new}` instead"));
    let (section, new) = new.split_once('.').map_or((None, new), |(a, b)| (Some(a), b));
    let moved = (Key { text: new.to_owned(), position }, value);
    let Some(section) = section else {
        return insert(entries, index, moved, errors);
    };
    match entries.iter_mut().find(|(key, _)| key.text == section) {
        Some((_, Node { kind: Kind::Section(inner), .. })) => {
            insert(inner, inner.len(), moved, errors);
        }
        Some(_) | None => {
            let id = moved.1.id;
            let node = Node { id, kind: Kind::Section(vec![moved]) };
            let key = Key { text: section.to_owned(), position };
            insert(entries, index, (key, node), errors);
        }
    }
}

fn insert(
    entries: &mut Entries,
    index: usize,
    (key, value): (Key, Node),
    errors: &mut ErrorCollector,
) {
    if entries.iter().any(|(known, _)| known.text == key.text) {
        let message = "the former name of this key is also written; remove one of them";
        return errors.add_at(key.position, key.text, message);
    }
    entries.insert(index, (key, value));
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::yaml;
    use super::*;

    fn renamed(text: &str) -> (Vec<String>, Vec<String>) {
        let mut errors = ErrorCollector::for_file(Path::new("c.yaml"));
        let mut root = yaml::parse(text, &mut errors).unwrap();
        apply(&mut root, &mut errors);
        let warnings = errors.take_warnings().iter().map(ToString::to_string).collect();
        let mut paths = Vec::new();
        leaves(&root, "", &mut paths);
        (paths, warnings)
    }

    fn leaves(node: &Node, path: &str, out: &mut Vec<String>) {
        match &node.kind {
            Kind::Section(entries) => {
                for (key, value) in entries {
                    let path = if path.is_empty() { String::new() } else { format!("{path}.") };
                    leaves(value, &format!("{path}{}", key.text), out);
                }
            }
            Kind::List(items) => {
                for item in items {
                    leaves(item, &format!("{path}[]"), out);
                }
            }
            Kind::Null | Kind::Scalar { .. } => out.push(path.to_owned()),
        }
    }

    #[test]
    fn moves_values_and_names_the_new_keys() {
        let text =
            "drain: 1s\nroutes:\n- {stall_after: 1s, hung_after: 2s, admission: {wait: 1s}}\n";
        let (paths, warnings) = renamed(text);
        assert_eq!(
            paths,
            [
                "shutdown_grace_period",
                "routes[].stall.inter_token_after",
                "routes[].stall.first_token_after",
                "routes[].concurrency_limit.queue_timeout",
            ]
        );
        assert_eq!(warnings.len(), 5);
        assert_eq!(
            warnings[0],
            "c.yaml:1:1: drain: renamed; write `shutdown_grace_period` instead"
        );
    }

    #[test]
    fn rejects_a_key_that_is_written_under_both_names() {
        let mut errors = ErrorCollector::for_file(Path::new("c.yaml"));
        let mut root = yaml::parse("vantage: inbound\nposition: outbound\n", &mut errors).unwrap();
        apply(&mut root, &mut errors);
        let message = errors.into_errors().to_string();
        assert!(message.starts_with("c.yaml:1:1: position: the former name"), "{message}");
    }

    /// The program must apply every rename that the list documents.
    #[test]
    fn applies_every_listed_rename() {
        let rows = include_str!("../../docs/reference/renames.csv").lines();
        let rows: Vec<_> =
            rows.filter_map(|row| row.strip_prefix("config,")?.split_once(',')).collect();
        assert!(rows.len() > 30, "{}", rows.len());
        for (former, new) in rows {
            let (paths, warnings) = renamed(&document(former));
            assert_eq!(paths, [new], "{former}");
            assert!(!warnings.is_empty(), "{former}");
        }
    }

    /// Returns a document such as `{a: {b: 1}}` with a value at `path`.
    fn document(path: &str) -> String {
        let mut text = "1".to_owned();
        for part in path.split('.').rev() {
            let (key, list) = part.strip_suffix("[]").map_or((part, false), |key| (key, true));
            let value = if list { format!("[{text}]") } else { text };
            text = format!("{{\"{key}\": {value}}}");
        }
        text
    }
}
