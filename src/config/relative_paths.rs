//! Resolves relative paths of a configuration file against the folder of the file, and not against the current folder.

use std::path::{Path, PathBuf};

use super::deserialize::Field;
use super::raw;
use super::resolve::{DRIFT_BASELINES, STDOUT};

/// Joins all relative paths in `file` to `folder`. Keywords such as `stdout` stay unchanged.
pub(super) fn resolve(file: &mut raw::File, folder: &Path) {
    let in_folder = |path: &mut Field<PathBuf>, words: &[&str]| {
        if let Some(path) = path.spanned_mut()
            && !words.iter().any(|word| path.value == Path::new(word))
        {
            path.value = folder.join(&path.value);
        }
    };
    if let Some(listeners) = file.listeners.spanned_mut() {
        let listeners = listeners.value.iter_mut().filter_map(Field::spanned_mut);
        for tls in listeners.filter_map(|listener| listener.value.tls.spanned_mut()) {
            in_folder(&mut tls.value.certificate, &[]);
            in_folder(&mut tls.value.key, &[]);
        }
    }
    if let Some(admin) = file.admin.spanned_mut() {
        in_folder(&mut admin.value.token_file, &[]);
    }
    if let Some(upstreams) = file.upstreams.spanned_mut() {
        for upstream in upstreams.value.values_mut().filter_map(Field::spanned_mut) {
            in_folder(&mut upstream.value.ca_file, &[]);
        }
    }
    if let Some(tokenizers) = file.tokenizers.spanned_mut() {
        tokenizers.value.values_mut().for_each(|tokenizer| in_folder(tokenizer, &[]));
    }
    if let Some(state) = file.slo_state.spanned_mut() {
        in_folder(&mut state.value.path, &[]);
    }
    if let Some(cost) = file.cost.spanned_mut() {
        in_folder(&mut cost.value.prices, &[]);
    }
    if let Some(log) = file.request_log.spanned_mut() {
        in_folder(&mut log.value.path, &[STDOUT]);
    }
    if let Some(drift) = file.workload_drift.spanned_mut() {
        in_folder(&mut drift.value.baseline, &DRIFT_BASELINES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::deserialize;
    use crate::config::errors::ErrorCollector;
    use crate::config::yaml;

    const FILE: &str = "
listeners: [{address: \"127.0.0.1:1\", tls: {certificate: RELATIVE, key: RELATIVE}}]
admin: {token_file: RELATIVE}
upstreams: {a: {url: \"http://a\", ca_file: RELATIVE}}
tokenizers: {\"m-*\": RELATIVE}
slo_state: {path: RELATIVE}
cost: {prices: RELATIVE}
request_log: {path: RELATIVE}
workload_drift: {baseline: RELATIVE}
";

    fn resolved(path: &str) -> String {
        let mut errors = ErrorCollector::default();
        let root = yaml::parse(&FILE.replace("RELATIVE", path), &mut errors).unwrap();
        let mut file: raw::File = deserialize::from_node(&root, &mut errors).unwrap().value;
        resolve(&mut file, Path::new("/etc/tokengauge"));
        serde_saphyr::to_string(&file).unwrap()
    }

    /// `FILE` must have all keys with a path. The configuration page has the complete list, as another test checks.
    #[test]
    fn the_file_of_this_test_has_all_keys_with_a_path() {
        let page = std::fs::read_to_string("docs/reference/configuration.md").unwrap();
        let is_path = |line: &&str| {
            ["| path |", "| path or `stdout` |", "| word or path |"]
                .iter()
                .any(|it| line.contains(it))
        };
        assert_eq!(page.lines().filter(is_path).count(), FILE.matches("RELATIVE").count());
    }

    #[test]
    fn relative_paths_are_in_the_folder_of_the_file() {
        let text = resolved("a/b.pem");
        assert_eq!(text.matches("/etc/tokengauge/a/b.pem").count(), 9, "{text}");
        let text = resolved("/run/b.pem");
        assert!(!text.contains("/etc/tokengauge") && text.contains("/run/b.pem"), "{text}");
    }

    #[test]
    fn words_are_not_paths() {
        assert!(resolved("stdout").contains("path: stdout"));
        assert!(resolved("first").contains("baseline: first"));
        assert!(resolved("./first").contains("baseline: /etc/tokengauge/./first"));
    }
}
