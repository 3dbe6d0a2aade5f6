//! Tests of the local stack in `deploy/compose` that need no Docker. Mounted files must exist, images must be pinned, and
//! no service may be exposed to the network or the host.

use std::path::Path;

use super::pages::{read, root};

const FOLDER: &str = "deploy/compose";

#[test]
fn mounted_files_exist_and_images_are_pinned() {
    let compose = read(&format!("{FOLDER}/compose.yaml"));
    assert!(compose.matches("image:").count() >= 6);
    assert!(mounts(&compose).len() >= 10, "{:?}", mounts(&compose));
    assert_eq!(faults(&compose), [""; 0]);
    let from = read(&format!("{FOLDER}/Dockerfile"));
    for line in from.lines().filter(|line| line.starts_with("FROM ")) {
        assert!(pinned(line.split(' ').nth(1).unwrap()), "{line}");
    }
}

/// Grafana's home dashboard and the data source of exemplars must exist.
#[test]
fn grafana_provisioning_is_consistent() {
    let compose = read(&format!("{FOLDER}/compose.yaml"));
    let home = value(&compose, "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH");
    let file = Path::new(home).file_name().unwrap();
    assert!(root().join("dashboards").join(file).is_file(), "{home}");
    let sources = read(&format!("{FOLDER}/grafana/datasources/datasources.yaml"));
    assert!(sources.contains("datasourceUid: tempo"));
    assert!(sources.contains("uid: tempo\n"));
}

/// Rules and dashboards use these labels to separate namespaces and clusters.
#[test]
fn the_stack_and_the_examples_promote_the_same_labels() {
    let promoted = |page: &str| {
        let text = read(page);
        let list = text.split("promote_resource_attributes:\n").nth(1).unwrap();
        list.lines()
            .map(str::trim)
            .take_while(|line| line.starts_with("- "))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let here = promoted("deploy/compose/prometheus.yaml");
    assert!(here.contains(&"- k8s.namespace.name".to_owned()), "{here:?}");
    assert_eq!(here, promoted("examples/prometheus-otlp.yaml"));
}

fn faults(compose: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for line in compose.lines().map(str::trim) {
        if let Some(image) = line.strip_prefix("image: ")
            && !pinned(image)
        {
            faults.push(format!("not pinned: {image}"));
        }
        if line.starts_with("privileged") || line.contains("docker.sock") {
            faults.push(line.to_owned());
        }
    }
    for (source, options) in mounts(compose) {
        if !root().join(FOLDER).join(source).exists() {
            faults.push(format!("missing: {source}"));
        }
        if options != "ro" {
            faults.push(format!("writable: {source}"));
        }
    }
    let ports = compose
        .split("ports:\n")
        .skip(1)
        .flat_map(|rest| rest.lines().map(str::trim).take_while(|line| line.starts_with("- ")));
    faults.extend(
        ports
            .filter(|port| !port.starts_with("- \"127.0.0.1:"))
            .map(|port| format!("open to all addresses: {port}")),
    );
    faults
}

/// Returns whether an image has a tag with a number or is built locally.
fn pinned(image: &str) -> bool {
    image == "tokengauge:local"
        || (image.split_once(':')).is_some_and(|(_, tag)| tag.chars().any(|c| c.is_ascii_digit()))
}

/// Returns the mounted files and folders of the repository, with the options of each mount.
fn mounts(compose: &str) -> Vec<(&str, &str)> {
    compose
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- "))
        .filter(|mount| mount.starts_with('.'))
        .filter_map(|mount| mount.split_once(":/"))
        .map(|(source, rest)| (source, rest.split_once(':').map_or("", |it| it.1)))
        .collect()
}

fn value<'t>(text: &'t str, key: &str) -> &'t str {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(key));
    line.unwrap_or_default().trim_start_matches(':').trim()
}

#[test]
fn finds_errors_in_a_stack() {
    let compose = "services:\n  a:\n    image: a/b\n    privileged: true\n    volumes:\n      - ./nothing:/x:ro\n      \
        - ./compose.yaml:/y\n    ports:\n      - \"9090:9090\"\n  b:\n    image: a/b:latest\n";
    assert_eq!(
        faults(compose),
        [
            "not pinned: a/b",
            "privileged: true",
            "not pinned: a/b:latest",
            "missing: ./nothing",
            "writable: ./compose.yaml",
            "open to all addresses: - \"9090:9090\"",
        ]
    );
}
