//! `deploy/kubernetes` has each workload twice: as it is written by hand, and as `tokengauge inject` makes it of that. The
//! second is held to be what the program makes today, and the first to be what `uninject` gives back.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "this is a test: what is not as expected shall end it"
)]

use std::path::Path;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tokengauge");
const FOLDER: &str = "deploy/kubernetes";

#[test]
fn injected_manifests_are_what_inject_makes() {
    for side in ["inbound", "outbound"] {
        let workload = format!("{FOLDER}/{side}/workload.yaml");
        holds(
            &format!("{FOLDER}/{side}/injected.yaml"),
            &["inject", &workload],
        );
        holds(
            &format!("{FOLDER}/no-native-sidecar/{side}/injected.yaml"),
            &["inject", "--native", "false", &workload],
        );
    }
}

#[test]
fn uninject_gives_the_workloads_back() {
    for side in ["inbound", "outbound"] {
        let workload = format!("{FOLDER}/{side}/workload.yaml");
        for folder in [FOLDER.to_owned(), format!("{FOLDER}/no-native-sidecar")] {
            let injected = format!("{folder}/{side}/injected.yaml");
            holds(&workload, &["uninject", &injected]);
        }
    }
}

/// The file is what the program writes.
fn holds(file: &str, arguments: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(PROGRAM)
        .args(arguments)
        .current_dir(root)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {told}");
    let kept = std::fs::read(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert!(
        kept == output.stdout,
        "{file} is not what is made of it today: tokengauge {} > {file}",
        arguments.join(" ")
    );
}
