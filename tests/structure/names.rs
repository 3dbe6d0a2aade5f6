//! Compares the names of the repository and of the image in all files with `repository` in `Cargo.toml`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::{Captures, Regex};

/// A place of code, images or charts, its owner and the name of the project. Names below `example` and `example.com` stand for
/// the reader's own registry, so they are not compared.
const NAME: &str = r"\b(github\.com|ghcr\.io|docker\.io|quay\.io|gitlab\.com)/([A-Za-z0-9_.-]+)/(charts/)?tokengauge\b";

/// Returns `OWNER/NAME` of the repository.
fn repository() -> &'static str {
    let path = env!("CARGO_PKG_REPOSITORY").strip_prefix("https://github.com/");
    path.expect("the repository is on GitHub, and its images on ghcr.io")
}

/// Replaces the names in a text with those of the repository.
fn renamed(text: &str, repository: &str) -> String {
    let name = Regex::new(NAME).unwrap();
    let (owner, project) = repository.split_once('/').unwrap();
    let rename = |found: &Captures<'_>| {
        let host = if &found[1] == "github.com" || &found[1] == "gitlab.com" {
            "github.com"
        } else {
            "ghcr.io"
        };
        let folder = found.get(3).map_or("", |folder| folder.as_str());
        format!("{host}/{owner}/{folder}{project}")
    };
    name.replace_all(text, rename).into_owned()
}

fn files(root: &Path) -> Vec<PathBuf> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    let names = String::from_utf8(listed.stdout).unwrap();
    let names = names.split_terminator('\0').filter(|name| *name != file!());
    names.map(|name| root.join(name)).collect()
}

/// `NAMES=write` rewrites the files instead.
#[test]
#[expect(clippy::disallowed_methods, reason = "the variable chooses what the test does")]
fn repository_and_image_have_one_name() {
    let mut wrong = Vec::new();
    let mut found = 0;
    for file in files(Path::new(env!("CARGO_MANIFEST_DIR"))) {
        // Binary files and links to folders have no names.
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let expected = renamed(&text, repository());
        found += usize::from(text.contains(repository()));
        if expected == text {
            continue;
        }
        match std::env::var_os("NAMES").is_some_and(|value| value == "write") {
            true => fs::write(&file, expected).unwrap(),
            false => wrong.push(file.display().to_string()),
        }
    }
    assert!(found > 10, "{found}");
    assert!(wrong.is_empty(), "not {}:\n{}", repository(), wrong.join("\n"));
}

/// The chart has the name without the registry, which is a value of its own.
#[test]
fn the_chart_has_the_name_of_the_image() {
    let values = fs::read_to_string("deploy/helm/tokengauge/values.yaml").unwrap();
    assert!(values.contains(&format!("\n  repository: {}\n", repository())), "image.repository");
}

#[test]
fn renames_places_of_code_and_images_only() {
    for (text, expected) in [
        ("image: ghcr.io/other/tokengauge:0.1.0", "image: ghcr.io/me/tokengauge:0.1.0"),
        ("https://gitlab.com/other/tokengauge/issues", "https://github.com/me/tokengauge/issues"),
        ("docker.io/other/tokengauge@sha256:0", "ghcr.io/me/tokengauge@sha256:0"),
        ("oci://ghcr.io/other/charts/tokengauge", "oci://ghcr.io/me/charts/tokengauge"),
        ("registry.example.com/mirror/tokengauge:1", "registry.example.com/mirror/tokengauge:1"),
        ("ghcr.io/other/vllm:1", "ghcr.io/other/vllm:1"),
    ] {
        assert_eq!(renamed(text, "me/tokengauge"), expected);
    }
}
