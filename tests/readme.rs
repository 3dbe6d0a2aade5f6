//! Checks that everything to which the documentation refers exists: linked files and headings, options of commands,
//! admin pages and CI stages. `tests/monitoring` checks metric names.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use pages::{blocks, code_spans, read, root};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tokengauge");

const WORKFLOW: &str = ".github/workflows/ci.yml";

const COMMANDS: [&str; 14] = [
    "run",
    "ext-proc",
    "demo",
    "simulate",
    "report",
    "check",
    "schema",
    "dashboards",
    "alerts",
    "inject",
    "uninject",
    "drain",
    "probe",
    "top",
];

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let pages = pages::all();
    assert!(pages.len() > 40, "{pages:?}");
    let dead: Vec<String> = pages
        .iter()
        .flat_map(|page| {
            let dead = dead_links(page, &read(page));
            dead.into_iter().map(move |link| format!("{page}: {link}"))
        })
        .collect();
    assert!(dead.is_empty(), "\n{}", dead.join("\n"));
}

/// The last column of each table names tests.
#[test]
fn every_test_that_a_page_names_exists() {
    let page = read("docs/reference/reliability.md") + &read("SECURITY.md");
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.ends_with("` |"));
    let named: Vec<&str> =
        rows.flat_map(|row| code_spans(row.rsplit(" | ").next().unwrap())).collect();
    let named: Vec<&str> = named.into_iter().filter(|name| !name.starts_with('/')).collect();
    assert!(named.len() > 60, "{named:?}");
    let sources = rust_sources();
    let missing: Vec<&&str> =
        named.iter().filter(|name| !sources.contains(&format!("fn {name}()"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Returns the text of all Rust files of this workspace.
fn rust_sources() -> String {
    let mut text = String::new();
    let mut folders: Vec<PathBuf> = ["src", "crates", "tests"].map(|name| root().join(name)).into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                text.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    text
}

#[test]
fn every_requested_admin_page_exists() {
    let admin = read("docs/reference/admin-api.md");
    let mut asked = 0;
    for page in pages::all() {
        for path in admin_paths(&read(&page)) {
            asked += 1;
            assert!(admin.contains(&format!("| `{path}` |")), "{page}: {path}");
        }
    }
    assert!(asked > 20, "{asked}");
}

#[test]
fn every_option_in_a_command_exists() {
    let helps: BTreeMap<&str, String> = COMMANDS.map(|command| (command, help(command))).into();
    let mut shown = 0;
    for page in pages::all() {
        for (subcommand, options) in commands(&read(&page)) {
            shown += 1;
            let help = helps
                .get(subcommand.as_str())
                .unwrap_or_else(|| panic!("{page} shows `tokengauge {subcommand}`"));
            for option in options {
                assert!(
                    has_option(help, &option),
                    "{page} shows `tokengauge {subcommand} {option}`, which --help does not list"
                );
            }
        }
    }
    assert!(shown >= 10, "{shown}");
}

#[test]
fn every_option_in_the_text_exists() {
    let readme = read("README.md");
    let named: BTreeSet<&str> = code_spans(&readme)
        .flat_map(str::split_whitespace)
        .filter(|word| word.starts_with("--"))
        .collect();
    assert!(!named.is_empty());
    let helps = COMMANDS.map(help);
    for option in named {
        assert!(
            helps.iter().any(|help| has_option(help, option)),
            "README contains {option}, which no --help lists"
        );
    }
}

/// Pages whose keys are those of another file: values of the chart, and fields of admin pages.
const OTHER_KEYS: [&str; 2] = ["deploy/helm/tokengauge/README.md", "docs/reference/admin-api.md"];
/// A key of Prometheus.
const PROMETHEUS_KEY: &str = "otlp.promote_resource_attributes";

#[test]
fn every_configuration_key_on_a_page_exists() {
    let reference = read("docs/reference/configuration.md");
    let keys: BTreeSet<&str> = reference
        .lines()
        .filter(|line| line.starts_with("| `"))
        .filter_map(|line| code_spans(line).next())
        .collect();
    let sections: BTreeSet<&str> = keys
        .iter()
        .filter_map(|key| key.split_once(['.', '[']).map(|(section, _)| section))
        .collect();
    // Some fields of the request log begin with the name of a section.
    let fields = read("docs/reference/request-log.md");
    let is_known = |key: &str| {
        let prefix = key.trim_end_matches('*');
        key == PROMETHEUS_KEY
            || fields.contains(&format!("\n| `{key}` |"))
            || keys.iter().any(|known| known.starts_with(prefix))
    };
    let (mut named, mut unknown) = (0, Vec::new());
    for page in pages::all().into_iter().filter(|page| !OTHER_KEYS.contains(&page.as_str())) {
        for span in code_spans(&read(&page)) {
            let key = span.split([':', ' ']).next().unwrap_or_default();
            let section = key.split(['.', '[']).next().unwrap_or_default();
            if key == section || !sections.contains(section) {
                continue;
            }
            named += 1;
            if !is_known(key) {
                unknown.push(format!("{page}: {span}"));
            }
        }
    }
    assert!(unknown.is_empty(), "\n{}", unknown.join("\n"));
    assert!(named > 100, "{named}");
}

#[test]
fn the_first_two_commands_exist() {
    let readme = read("README.md");
    for command in ["cargo run --release -- demo", "cargo test"] {
        assert!(readme.lines().any(|line| line == command), "{command}");
    }
}

#[test]
fn every_ci_stage_on_a_page_exists() {
    let known = stages_defined();
    let mut called = 0;
    for page in pages::all().into_iter().chain(["justfile", WORKFLOW].map(str::to_owned)) {
        for stage in stages_called(&read(&page)) {
            called += 1;
            assert!(known.contains(&stage), "{page}: .ci/run {stage}");
        }
    }
    assert!(called > 30, "{called}");
}

#[test]
fn the_workflow_runs_every_stage_that_needs_no_recordings() {
    let recordings = ["replay", "replay-all", "clients", "timeline", "envoy"].map(str::to_owned);
    let workflow = read(WORKFLOW);
    let run: BTreeSet<String> = matrix(&workflow).map(str::to_owned).collect();
    let missing: Vec<String> = stages_defined()
        .into_iter()
        .filter(|stage| !run.contains(stage) && !recordings.contains(stage))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(workflow.contains(".ci/run ${{ matrix.stages }}"));
}

#[test]
fn finds_commands_and_links_on_a_page() {
    let page = "See [a](docs/a.md#part), [b](https://example.com) and `tokengauge.x`.\n\
        ```sh\nKEY=1 tokengauge run --listen 127.0.0.1:1 \\\n  --admin=5s   # --not-this\n\
        cargo run --release -- demo --for 10s\ncargo test --all\n```\n";
    assert_eq!(links(page), [("docs/a.md", "part")]);
    assert_eq!(code_spans(page).collect::<Vec<_>>(), ["tokengauge.x"]);
    let found = commands(page);
    let expected = [("run", vec!["--listen", "--admin"]), ("demo", vec!["--for"])]
        .map(|(name, options)| (name.to_owned(), options.into_iter().map(str::to_owned).collect()));
    assert_eq!(found, expected);
    assert_eq!(
        headings("# A b\n## The `x`: *y*\n```\n# no\n```\n## A b\n#no"),
        BTreeSet::from(["a-b", "the-x-y", "a-b-1"].map(str::to_owned))
    );
    let page = "[a](README.md) [b](README.md#overhead) [c](README.md#nowhere) [d](none.md) [e](#here) [f](#there)\n# Here\n";
    assert_eq!(
        dead_links("CONTRIBUTING.md", page),
        ["README.md#nowhere", "none.md#", "#here", "#there"]
    );
    assert_eq!(
        admin_paths("`curl -s http://127.0.0.1:4001/slo | jq .` and http://localhost:4001/nothing"),
        ["/slo", "/nothing"]
    );
    assert_eq!(
        stages_called(
            "`.ci/run a b-c`, `.ci/run`\n.ci/run d  # (e)\n.ci/run ${{ x.y }}\n stages:\n  - f g\n  - h\n i:\n  - j\n stages:\n  - k"
        ),
        ["a", "b-c", "d", "f", "g", "h", "k"]
    );
    assert!(has_option("  --for <TIME>  Ends by itself", "--for"));
    assert!(!has_option("  --format <F>  How", "--for"));
}

/// The stages of `.ci/run`: the files of this folder.
fn stages_defined() -> BTreeSet<String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".ci/stages");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let names = fs::read_dir(folder).unwrap().map(name);
    names.map(|name| name.into_string().unwrap()).collect()
}

/// Returns the stages that a text passes to `.ci/run`, and the stages in a workflow's matrix.
fn stages_called(text: &str) -> Vec<String> {
    let commands = text
        .split(".ci/run ")
        .skip(1)
        .map(|rest| rest.split(['`', '#', '\n', ';']).next().unwrap_or_default())
        .flat_map(str::split_whitespace)
        .filter(|word| {
            word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        })
        .filter(|word| !word.starts_with("--") && !["nightly", "all"].contains(word));
    commands.chain(matrix(text)).map(str::to_owned).collect()
}

/// Returns the stages in every `stages:` list of a workflow.
fn matrix(text: &str) -> impl Iterator<Item = &str> {
    text.split("stages:\n")
        .skip(1)
        .flat_map(|list| list.lines().map_while(|line| line.trim().strip_prefix("- ")))
        .flat_map(str::split_whitespace)
}

fn help(subcommand: &str) -> String {
    let output = Command::new(PROGRAM).args([subcommand, "--help"]).output().unwrap();
    assert!(output.status.success(), "tokengauge {subcommand} --help");
    String::from_utf8(output.stdout).unwrap()
}

fn has_option(help: &str, option: &str) -> bool {
    help.split(|c: char| c.is_whitespace() || ",=[]".contains(c)).any(|word| word == option)
}

/// Returns the targets of links to this repository. A target has a file and a heading, and each of them can be empty.
fn links(page: &str) -> Vec<(&str, &str)> {
    // Code blocks can contain brackets.
    page.split("```")
        .step_by(2)
        .flat_map(|prose| prose.split("](").skip(1))
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.split_once('#').unwrap_or((target, "")))
        .filter(|(file, _)| !file.contains("://"))
        .collect()
}

/// Returns the links of a page whose file or heading does not exist.
fn dead_links(page: &str, text: &str) -> Vec<String> {
    let folder = root().join(page).parent().unwrap().to_owned();
    links(text)
        .into_iter()
        .filter(|(file, heading)| {
            let target = match *file {
                "" => root().join(page),
                file => folder.join(file),
            };
            let headed = || {
                let there = fs::read_to_string(&target).unwrap_or_default();
                headings(&there).contains(*heading)
            };
            !target.exists() || (!heading.is_empty() && !headed())
        })
        .map(|(file, heading)| format!("{file}#{heading}"))
        .collect()
}

/// Returns the anchors of a page's headings: lower case, `-` for spaces, and otherwise only letters and digits.
fn headings(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in page.split("```").step_by(2).flat_map(str::lines) {
        let Some((_, text)) = line.split_once("# ").filter(|it| it.0.chars().all(|c| c == '#'))
        else {
            continue;
        };
        let slug: String = text
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let again = (1..).map(|n| format!("{slug}-{n}"));
        let name = std::iter::once(slug.clone()).chain(again).find(|it| !found.contains(it));
        found.extend(name);
    }
    found
}

/// Returns the admin port paths in the commands and the text of a page.
fn admin_paths(page: &str) -> Vec<String> {
    page.split(":4001/")
        .skip(1)
        .map(|rest| {
            // Only paths of the API have several segments.
            let is_api = rest.starts_with("api/");
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || is_api && c == '/'));
            format!("/{}", rest.split_at(end.unwrap_or(rest.len())).0)
        })
        .collect()
}

/// Returns the tokengauge commands in the shell blocks of a page, each with its subcommand and its options.
fn commands(page: &str) -> Vec<(String, Vec<String>)> {
    blocks(page, "sh")
        .concat()
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
