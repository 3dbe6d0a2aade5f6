//! Tests the Helm chart without Helm.
//!
//! The files that the chart copies must equal their originals. Its schema and README are generated from the comments in
//! values.yaml, and its version is the program's version. `tests/python/chart_check.py` tests the rendered templates.
//!
//! `CHART=write cargo test --test chart` updates the copies and regenerates the schema and the README.

#![expect(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and an environment variable enables writing"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Map, Value, json};
use tokengauge::config::{self, ReferencedFiles};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tokengauge");

const CHART: &str = "deploy/helm/tokengauge";

/// Folder of the rendered objects that `tests/python/chart_check.py` writes.
const GOLDENS: &str = "tests/fixtures/chart";

/// Keys of the schema that are not in the values. Helm adds them if another chart depends on this one.
const HELMS_OWN: [&str; 2] = ["enabled", "global"];

/// Lines that begin and end the README's table.
const MARKS: [&str; 2] = [
    "<!-- values: made of the comments in values.yaml by `CHART=write cargo test --test chart` -->\n",
    "<!-- end of values -->\n",
];

/// The chart has copies, because Helm prints a warning for each symbolic link of a chart.
#[test]
fn chart_has_a_copy_of_every_rule_file_and_dashboard() {
    for (from, ending, to) in
        [("alerts", ".rules.yaml", "files/alerts"), ("dashboards", ".json", "files/dashboards")]
    {
        let to = format!("{CHART}/{to}");
        let sources = names(from, ending);
        assert!(sources.len() >= 4, "{from}: {sources:?}");
        for name in &sources {
            let [source, copy] = [from, &to].map(|folder| path(folder).join(name));
            if writes() {
                fs::copy(&source, &copy).unwrap();
            }
            assert!(!copy.is_symlink(), "{}", copy.display());
            let is_equal = fs::read(&source).unwrap() == fs::read(&copy).unwrap();
            assert!(is_equal, "{} differs; CHART=write copies it", copy.display());
        }
        assert_eq!(names(&to, ""), sources, "{to} against {from}");
    }
}

#[test]
fn chart_version_equals_the_program_version() {
    let chart = yaml("Chart.yaml");
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["apiVersion"], "v2");
}

/// Tests that the pods are replaced after a change of exactly those configuration keys that a reload cannot apply.
#[test]
fn settings_that_are_not_reloadable_replace_pods() {
    let template = read(&format!("{CHART}/templates/gateway/_gateway.tpl"));
    let list = between(&template, "(pick .Values.gateway.config ", ")");
    let picked: BTreeSet<&str> = list.split(' ').map(|it| it.trim_matches('"')).collect();
    assert_eq!(picked, BTreeSet::from(config::RESTART_KEYS));
}

/// Tests that the alerts use the job name that the monitors set.
#[test]
fn alerts_select_the_chart_job() {
    let alerts: Value = serde_saphyr::from_str(&read("alerts/values.yaml")).unwrap();
    assert_eq!(alerts["jobs"], json!([yaml("values.yaml")["monitoring"]["jobName"]]));
}

#[test]
fn the_gateway_configuration_requires_only_an_upstream() {
    let mut given = yaml("values.yaml")["gateway"]["config"].clone();
    given["upstreams"] = json!({"openai": {"url": "https://api.openai.com"}});
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), given.to_string()).unwrap();
    config::check(file.path(), ReferencedFiles::Verify).unwrap();
}

/// Tests that the program accepts every configuration in the rendered objects.
#[test]
fn the_program_accepts_rendered_configurations() {
    let mut taken = 0;
    for object in rendered() {
        let Some(text) = object["data"]["tokengauge.yaml"].as_str() else {
            continue;
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        // One configuration refers to a price file in the pod.
        config::check(file.path(), ReferencedFiles::Skip)
            .unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        taken += 1;
    }
    assert!(taken >= 3, "{taken}");
}

/// Tests that the commands that start, stop and test pods exist in the program, with all their options.
#[test]
fn rendered_commands_exist_in_the_program() {
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for object in rendered() {
        for command in commands(&object) {
            let (name, rest) = command.split_first().unwrap();
            let options = rest.iter().filter(|word| word.starts_with("--"));
            let options = options.map(|word| word.split('=').next().unwrap().to_owned());
            used.entry(name.clone()).or_default().extend(options);
        }
    }
    let names: Vec<&str> = used.keys().map(String::as_str).collect();
    assert_eq!(names, ["drain", "injector", "probe", "run"]);
    for (name, options) in used {
        let output = Command::new(PROGRAM).args([&name, "--help"]).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        for option in options {
            let known = help.split([' ', ',', '=', '[', '\n']).any(|word| word == option);
            assert!(known, "the chart uses `{name} {option}`, which --help does not list");
        }
    }
}

#[test]
fn schema_and_values_have_the_same_keys() {
    let mut seen = 0;
    let faults = compared(&yaml("values.yaml"), &schema(), &leaves(), &[], &mut seen);
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert_eq!(seen, leaves().len(), "a comment in values.yaml has no value");
}

#[test]
fn reports_values_without_comment_or_schema() {
    let leaves =
        read_leaves("## Part\n\n# Said.\na: 1\ng:\n  # Said too.\n  b:\n    deep: x\n  c: 2\n");
    let paths: Vec<String> = leaves.iter().map(|leaf| leaf.path.join(".")).collect();
    assert_eq!(paths, ["a", "g.b"]);
    let values = json!({"a": 1, "g": {"b": {"deep": "x"}, "c": 2}});
    let schema =
        json!({"properties": {"a": {}, "g": {"properties": {"b": {}, "d": {}}}, "enabled": {}}});
    assert_eq!(
        compared(&values, &schema, &leaves, &[], &mut 0),
        [
            "g: the schema allows other keys",
            "g.c: has no comment",
            "g.c: not in the schema",
            "g.d: in the schema but not in values.yaml",
        ]
    );
}

/// Tests that the schema's descriptions equal the comments, and that the configuration's schema is the program's
/// schema.
#[test]
fn schema_descriptions_equal_the_comments() {
    let file = format!("{CHART}/values.schema.json");
    let mut made = schema();
    for leaf in leaves() {
        let mut at = &mut made;
        for key in &leaf.path {
            at = &mut at["properties"][key];
        }
        at["description"] = leaf.comment.into();
    }
    made["$defs"] = json!({"config": of_the_configuration()});
    if writes() {
        fs::write(path(&file), serde_json::to_string_pretty(&made).unwrap() + "\n").unwrap();
    }
    assert!(
        schema() == made,
        "{file} differs from values.yaml and `tokengauge schema`; CHART=write regenerates it"
    );
}

#[test]
fn the_readme_has_every_value() {
    let file = format!("{CHART}/README.md");
    let text = read(&file);
    let (before, rest) = text.split_once(MARKS[0]).unwrap();
    let (_, after) = rest.split_once(MARKS[1]).unwrap();
    let made = [before, MARKS[0], &table(), MARKS[1], after].concat();
    if writes() {
        fs::write(path(&file), &made).unwrap();
    }
    assert!(read(&file) == made, "{file} differs from values.yaml; CHART=write regenerates it");
}

/// A value with a comment in values.yaml. The values below its key are its default.
#[derive(Debug)]
struct Leaf {
    part: String,
    path: Vec<String>,
    comment: String,
}

fn leaves() -> Vec<Leaf> {
    read_leaves(&read(&format!("{CHART}/values.yaml")))
}

fn read_leaves(text: &str) -> Vec<Leaf> {
    let mut found: Vec<Leaf> = Vec::new();
    let mut above: Vec<(usize, String)> = Vec::new();
    let (mut part, mut comment) = (String::new(), Vec::new());
    for line in text.lines() {
        let line_text = line.trim_start();
        if let Some(title) = line_text.strip_prefix("## ") {
            title.clone_into(&mut part);
        } else if let Some(said) = line_text.strip_prefix("# ") {
            comment.push(said);
        } else if let Some((key, _)) =
            line_text.split_once(':').filter(|_| !line_text.starts_with("- "))
        {
            let indent = line.len() - line_text.len();
            above.retain(|(other, _)| *other < indent);
            above.push((indent, key.to_owned()));
            let path: Vec<String> = above.iter().map(|(_, key)| key.clone()).collect();
            if !comment.is_empty() {
                found.push(Leaf { part: part.clone(), path, comment: comment.join(" ") });
            }
            comment.clear();
        } else {
            comment.clear();
        }
    }
    found
}

/// Returns the differences between values, comments and schema, starting at `path`.
///
/// Differences are a value without a comment or schema entry, and a schema key that is not in the values.
fn compared(
    values: &Value,
    schema: &Value,
    leaves: &[Leaf],
    path: &[String],
    seen: &mut usize,
) -> Vec<String> {
    let none = Map::new();
    let given = values.as_object().unwrap();
    let known = schema["properties"].as_object().unwrap_or(&none);
    let named = |key: &str| [path, &[key.to_owned()]].concat();
    let mut faults = Vec::new();
    if !path.is_empty() && schema["additionalProperties"] != false {
        faults.push(format!("{}: the schema allows other keys", path.join(".")));
    }
    for (key, value) in given {
        let here = named(key);
        let is_leaf = leaves.iter().any(|leaf| leaf.path == here);
        let said = known.contains_key(key);
        *seen += usize::from(is_leaf);
        if !is_leaf && value.as_object().is_some_and(|it| !it.is_empty()) {
            faults.extend(compared(
                value,
                &known.get(key).cloned().unwrap_or_default(),
                leaves,
                &here,
                seen,
            ));
        } else if !is_leaf {
            faults.push(format!("{}: has no comment", here.join(".")));
        }
        if !said {
            faults.push(format!("{}: not in the schema", here.join(".")));
        }
    }
    for key in known.keys().filter(|key| !given.contains_key(*key)) {
        if !(path.is_empty() && HELMS_OWN.contains(&key.as_str())) {
            faults.push(format!("{}: in the schema but not in values.yaml", named(key).join(".")));
        }
    }
    faults
}

/// Returns the schema of tokengauge.yaml for use inside another schema. Its references point to the nested definitions.
fn of_the_configuration() -> Value {
    let text = serde_json::to_string(&config::schema()).unwrap();
    let mut schema: Value =
        serde_json::from_str(&text.replace("\"#/$defs/", "\"#/$defs/config/$defs/")).unwrap();
    schema.as_object_mut().unwrap().remove("$schema");
    schema
}

/// Returns the table of values by part, each with its default in JSON, which is also YAML.
fn table() -> String {
    let values = yaml("values.yaml");
    let mut table = String::new();
    let mut part = String::new();
    for leaf in leaves() {
        if leaf.part != part {
            part.clone_from(&leaf.part);
            table += &format!("\n### {part}\n\n| value | default | what |\n|---|---|---|\n");
        }
        let default = leaf.path.iter().fold(&values, |at, key| &at[key]).to_string();
        let default = match default.len() {
            0..=60 => format!("`{default}`"),
            _ => "[as written](values.yaml)".to_owned(),
        };
        table += &format!(
            "| `{}` | {default} | {} |\n",
            leaf.path.join("."),
            leaf.comment.replace('|', "\\|")
        );
    }
    table + "\n"
}

/// Returns the objects in the rendered files.
fn rendered() -> Vec<Value> {
    let files = names(GOLDENS, ".yaml");
    files
        .iter()
        .flat_map(|name| {
            let text = read(&format!("{GOLDENS}/{name}"));
            let documents = text.trim_start_matches("---\n").split("\n---\n");
            documents
                .map(|document| serde_saphyr::from_str(document).unwrap())
                .collect::<Vec<Value>>()
        })
        .collect()
}

/// Returns the program's arguments anywhere in an object, both in containers and in hooks that name the program.
fn commands(object: &Value) -> Vec<Vec<String>> {
    let inside: Vec<&Value> = match object {
        Value::Object(map) => map.values().collect(),
        Value::Array(list) => list.iter().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    let mut found: Vec<_> = inside.into_iter().flat_map(commands).collect();
    let words = |list: &Value| serde_json::from_value::<Vec<String>>(list.clone()).ok();
    found.extend(words(&object["args"]));
    let hook = words(&object["exec"]["command"]).filter(|it| it[0] == "/tokengauge");
    found.extend(hook.map(|it| it[1..].to_vec()));
    found
}

fn schema() -> Value {
    serde_json::from_str(&read(&format!("{CHART}/values.schema.json"))).unwrap()
}

fn yaml(file: &str) -> Value {
    serde_saphyr::from_str(&read(&format!("{CHART}/{file}"))).unwrap()
}

fn between<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    let rest = text.split_once(from).unwrap_or_else(|| panic!("no {from}")).1;
    rest.split_once(to).unwrap_or_else(|| panic!("no {to}")).0
}

fn names(folder: &str, ending: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(path(folder))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(ending))
        .collect();
    names.sort();
    names
}

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn read(file: &str) -> String {
    fs::read_to_string(path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn writes() -> bool {
    std::env::var("CHART").is_ok_and(|it| it == "write")
}
