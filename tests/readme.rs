//! What the README tells a reader to type or to open is there: every file that it links to, every option of every
//! command in it, every metric that it names.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "this is a test: what is not as expected shall end it"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tokengauge");

#[test]
fn every_linked_file_exists() {
    for page in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "docs/adr/README.md",
    ] {
        let folder = root().join(page).parent().unwrap().to_owned();
        let links = links(&read(page));
        assert!(!links.is_empty(), "{page} links to nothing");
        for link in links {
            assert!(folder.join(&link).exists(), "{page} links to {link}");
        }
    }
}

#[test]
fn every_option_shown_with_a_command_is_an_option_of_that_command() {
    let commands = commands(&read("README.md"));
    assert!(commands.len() >= 5, "{commands:?}");
    for (subcommand, options) in commands {
        let help = help(&subcommand);
        for option in options {
            assert!(
                has_option(&help, &option),
                "README shows `tokengauge {subcommand} {option}`, which --help does not know"
            );
        }
    }
}

#[test]
fn every_option_named_in_the_text_is_an_option_of_some_command() {
    let readme = read("README.md");
    let named: BTreeSet<&str> = code_spans(&readme)
        .flat_map(str::split_whitespace)
        .filter(|word| word.starts_with("--"))
        .collect();
    assert!(!named.is_empty());
    let helps = ["run", "demo", "simulate", "report", "check", "schema"].map(help);
    for option in named {
        assert!(
            helps.iter().any(|help| has_option(help, option)),
            "README names {option}, which no --help knows"
        );
    }
}

#[test]
fn every_metric_named_is_documented() {
    let documented = read("docs/telemetry.md");
    let readme = read("README.md");
    let names: BTreeSet<&str> = code_spans(&readme)
        .filter(|span| span.starts_with("tokengauge."))
        .collect();
    assert!(names.len() >= 8, "{names:?}");
    for name in names {
        assert!(
            documented.contains(&format!("`{name}`")),
            "docs/telemetry.md does not know {name}"
        );
    }
}

#[test]
fn the_two_first_commands_are_there() {
    let readme = read("README.md");
    for command in ["cargo run --release -- demo", "cargo test"] {
        assert!(readme.lines().any(|line| line == command), "{command}");
    }
}

#[test]
fn the_reading_of_a_page_finds_commands_and_links() {
    let page = "See [a](docs/a.md#part), [b](https://example.com) and `tokengauge.x`.\n\
        ```sh\nKEY=1 tokengauge run --listen 127.0.0.1:1 \\\n  --drain=5s   # --not-this\n\
        cargo run --release -- demo --for 10s\ncargo test --all\n```\n";
    assert_eq!(links(page), ["docs/a.md"]);
    assert_eq!(code_spans(page).collect::<Vec<_>>(), ["tokengauge.x"]);
    let found = commands(page);
    let expected = [
        ("run", vec!["--listen", "--drain"]),
        ("demo", vec!["--for"]),
    ]
    .map(|(name, options)| {
        (
            name.to_owned(),
            options.into_iter().map(str::to_owned).collect(),
        )
    });
    assert_eq!(found, expected);
    assert!(has_option("  --for <TIME>  Ends by itself", "--for"));
    assert!(!has_option("  --format <F>  How", "--for"));
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

fn help(subcommand: &str) -> String {
    let output = Command::new(PROGRAM)
        .args([subcommand, "--help"])
        .output()
        .unwrap();
    assert!(output.status.success(), "tokengauge {subcommand} --help");
    String::from_utf8(output.stdout).unwrap()
}

fn has_option(help: &str, option: &str) -> bool {
    help.split(|c: char| c.is_whitespace() || ",=[]".contains(c))
        .any(|word| word == option)
}

/// Targets of links to files, without their fragment.
fn links(page: &str) -> Vec<String> {
    page.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.split('#').next().unwrap_or_default().to_owned())
        .filter(|target| !target.is_empty() && !target.contains("://"))
        .collect()
}

/// Text in single backticks outside code blocks.
fn code_spans(page: &str) -> impl Iterator<Item = &str> {
    let prose = page.split("```").step_by(2);
    prose.flat_map(|text| text.split('`').skip(1).step_by(2))
}

/// Every command of ours in the page's code blocks: its subcommand, and the options given to it.
fn commands(page: &str) -> Vec<(String, Vec<String>)> {
    let blocks = page.split("```").skip(1).step_by(2).collect::<String>();
    blocks
        .replace("\\\n", " ")
        .lines()
        .filter_map(|line| {
            let line = line.split(" #").next().unwrap_or_default();
            let (_, arguments) = line
                .split_once("tokengauge ")
                .or_else(|| line.split_once("cargo run --release -- "))?;
            let mut words = arguments.split_whitespace();
            let subcommand = words.next()?.to_owned();
            let options = words
                .filter(|word| word.starts_with("--"))
                .map(|word| word.split('=').next().unwrap_or(word).to_owned())
                .collect();
            Some((subcommand, options))
        })
        .collect()
}
