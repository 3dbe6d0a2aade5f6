//! Resolves relative paths of a configuration file against the folder of the file, and not against the current folder.

use std::path::{Path, PathBuf};

use super::section::File;
use super::section::drift::BaselineChoice;
use tokengauge_telemetry::request_log::Destination;

/// Joins all relative paths in `file` to `folder`.
pub(super) fn resolve(file: &mut File, folder: &Path) {
    let in_folder = |path: &mut PathBuf| *path = folder.join(&path);
    let listeners = file.listeners.iter_mut().flat_map(|list| list.iter_mut());
    let tls = listeners.filter_map(|listener| listener.value.tls.as_mut());
    let upstreams = file.upstreams.iter_mut().flat_map(|map| map.values_mut());
    tls.flat_map(|tls| [&mut tls.certificate, &mut tls.key])
        .chain(upstreams.map(|upstream| &mut upstream.value.ca_file))
        .chain(file.slo_state.as_mut().map(|state| &mut state.path))
        .chain([&mut file.admin.token_file])
        .flatten()
        .chain(file.cost.prices.iter_mut().map(|path| &mut path.value))
        .chain(file.tokenizers.values_mut().map(|tokenizer| &mut tokenizer.value))
        .for_each(|path| in_folder(&mut path.0));
    if let Some(Destination::File(path)) =
        file.request_log.as_mut().and_then(|log| log.path.as_mut())
    {
        in_folder(path);
    }
    if let BaselineChoice::File(path) = &mut file.workload_drift.baseline {
        in_folder(path);
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
cost: {prices: [RELATIVE]}
request_log: {path: RELATIVE}
workload_drift: {baseline: RELATIVE}
";

    fn resolved(path: &str) -> String {
        let mut errors = ErrorCollector::default();
        let root = yaml::parse(&FILE.replace("RELATIVE", path), &mut errors).unwrap();
        let mut file: File = deserialize::from_node(&root, &mut errors).unwrap();
        resolve(&mut file, Path::new("/etc/tokengauge"));
        serde_saphyr::to_string(&file).unwrap()
    }

    /// `FILE` must have all keys with a path. The configuration page has the complete list, as another test checks.
    #[test]
    fn the_file_of_this_test_has_all_keys_with_a_path() {
        let page = std::fs::read_to_string("docs/reference/configuration.md").unwrap();
        let is_path = |line: &&str| {
            ["| path |", "| path or `stdout` |", "| word or path |", "| path or list of paths |"]
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
