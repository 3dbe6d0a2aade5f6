//! Tests the scanner: it finds the same values wherever the input is split, and no input causes a panic.

use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;

const ROWS: &[Row<&str>] = &[
    ("", "root"),
    ("a", "a"),
    ("a.a|b", "a.a|b"),
    ("b.*", "b.*"),
    ("b.*.text", "b.*.text"),
    ("b.*.*", "b.*.*"),
    ("list{}", "list"),
    ("b.*.list{}", "b.*.list"),
    ("text", "text"),
    ("é\"\n", "escaped"),
];

static PATHS: Paths<&str> = Paths::new(ROWS).unwraps(&["wrapped"]);

/// Returns every value on its own line. The pieces of a string are joined.
fn scan(pieces: &[&[u8]]) -> (Vec<String>, Outcome, bool) {
    let mut lines: Vec<String> = Vec::new();
    let mut text = String::new();
    let mut scanner = JsonScanner::new(&PATHS);
    let mut out = |label: &str, Found { position, value, .. }: Found<'_>| {
        let lists = [position.roots, position.lists].concat();
        match value {
            Value::Text(piece) => {
                assert!(!piece.is_empty());
                text.push_str(piece);
            }
            Value::TextEnd(word) => {
                let text = std::mem::take(&mut text);
                assert_eq!(word, text);
                lines.push(line(label, &lists, &format!("{text:?}")));
            }
            value => lines.push(line(label, &lists, &format!("{value:?}"))),
        }
    };
    for piece in pieces {
        scanner.push(piece, &mut out);
    }
    let outcome = scanner.finish(&mut out);
    assert!(scanner.levels.len() <= MAX_DEPTH && scanner.scalar.len() <= MAX_SCALAR_BYTES + 1);
    assert!(scanner.key.as_str().len() <= MAX_KEY_BYTES);
    (lines, outcome, scanner.is_lossy())
}

fn line(label: &str, lists: &[u32], value: &str) -> String {
    format!("{label}{lists:?} {value}").replace("[]", "")
}

fn every_cut(body: &[u8]) -> (Vec<String>, Outcome, bool) {
    let whole = scan(&[body]);
    assert_eq!(scan(&body.chunks(1).collect::<Vec<_>>()), whole);
    for at in 0..=body.len() {
        let (first, second) = body.split_at(at);
        assert_eq!(scan(&[first, second]), whole, "cut at {at}");
    }
    whole
}

fn lines(body: &str) -> Vec<String> {
    let (lines, outcome, _) = every_cut(body.as_bytes());
    assert_eq!(outcome, Outcome::Complete, "{body}");
    lines
}

#[test]
fn delivers_values_with_their_positions() {
    assert_eq!(
        lines(r#" {"a": "x", "b":[1,-2.5e3,{"text":null},[true]], "text":false} "#),
        [
            "root Object",
            "a \"x\"",
            "b.*[0] Number(\"1\")",
            "b.*[1] Number(\"-2.5e3\")",
            "b.*[2] Object",
            "b.*.text[2] Null",
            "b.*[2] End",
            "b.*[3] Array",
            "b.*.*[3, 0] Bool(true)",
            "b.*[3] End",
            "text Bool(false)",
            "root End",
        ]
    );
    assert_eq!(lines(r#"{"a":{"b":1,"c":2}}"#)[2], "a.a|b Number(\"1\")");
    assert_eq!(lines("17"), ["root Number(\"17\")"]);
    assert_eq!(lines("\"\""), ["root \"\""]);
}

#[test]
fn reads_lists_and_wrappers_of_the_root_as_the_root() {
    let expected = ["root Object", "root[0] Array", "root[0] Object", "text[0] Number(\"1\")"];
    let wrapped = lines(r#"{"wrapped":[{"text":1}]}"#);
    assert_eq!(wrapped[1], "root Array");
    assert_eq!(wrapped[2..4], expected[2..]);
    assert_eq!(lines(r#"[{"b":[7]},{"text":1}]"#)[2], "b.*[0, 0] Number(\"7\")");
}

#[test]
fn delivers_an_object_as_text() {
    assert_eq!(
        lines(
            "{\"list\" : { \"k y\" :\n[ 1, \"\\\" ] \" ]\t} , \"b\":[{\"list\":\"x\"},{\"list\":3}]}"
        ),
        [
            "root Object",
            r#"list "{\"k y\":[1,\"\\\" ] \"]}""#,
            "b.*[0] Object",
            "b.*.list[0] \"x\"",
            "b.*[0] End",
            "b.*[1] Object",
            "b.*.list[1] Number(\"3\")",
            "b.*[1] End",
            "root End",
        ]
    );
    let (lines, outcome, lossy) = every_cut(b"{\"list\":[\"\xF0\x9F\"]}");
    assert_eq!(lines[1], "list \"[\\\"\u{FFFD}\\\"]\"");
    assert_eq!((outcome, lossy), (Outcome::Complete, true));
    assert_eq!(every_cut(b"{\"list\":[[1]").1, Outcome::Cut);
}

#[test]
fn skips_values_that_no_row_reads() {
    let body = r#"{"x":{"a":["}\"]{",{"a":1}]},"y":"\\","z":12,"w":NaN,"v":[[],{}],"a":1}"#;
    assert_eq!(lines(body), ["root Object", "a Number(\"1\")", "root End"]);
    let long = format!("{{\"{}\":1,\"a\":2}}", "a".repeat(MAX_KEY_BYTES * 3));
    assert_eq!(lines(&long), ["root Object", "a Number(\"2\")", "root End"]);
}

#[test]
fn unescapes_keys_and_strings() {
    assert_eq!(
        lines(r#"{"\u00e9\"\n":"\u0041\b\f\r\t\/\\ \ud83d\ude00 é 😀","\u0061":"b"}"#),
        ["root Object", "escaped \"A\\u{8}\\u{c}\\r\\t/\\\\ 😀 é 😀\"", "a \"b\"", "root End"]
    );
}

#[test]
fn replaces_incomplete_characters() {
    for text in
        ["\\ud83d", "\\ude00", "\\ud83d\\ud83d\\ude00", "\\ud83dx", "\\ud83d\\n", "\\ud83d\\u0041"]
    {
        let (lines, outcome, lossy) = every_cut(format!("{{\"a\":\"{text}\"}}").as_bytes());
        assert_eq!(lines[1].matches('\u{FFFD}').count(), 1, "{text}: {lines:?}");
        assert_eq!((outcome, lossy), (Outcome::Complete, true));
    }
    for bytes in [
        &b"\xF0\x9F\x98"[..],
        b"\xFF",
        b"\xE9x",
        b"\xF0\x9F\xE9\x80\x80",
        b"\x80\\n",
        b"\xC3\\u0041",
    ] {
        let body = [b"{\"a\":\"", bytes, b"\"}"].concat();
        let expected = String::from_utf8_lossy(bytes).replace("\\n", "\n").replace("\\u0041", "A");
        let (lines, outcome, lossy) = every_cut(&body);
        assert_eq!(lines[1], format!("a {expected:?}"));
        assert_eq!((outcome, lossy), (Outcome::Complete, true));
    }
}

#[test]
fn reports_malformed_and_cut_documents() {
    for malformed in [
        "{a:1}",
        "[1,]x",
        "{\"a\" 1}",
        "[1 2]",
        "[}",
        "{]",
        "nope",
        "[1]]",
        "[1] 2",
        "\"\\x\"",
        "[tru]",
        "{\"a\":1,}",
        "\"\\u12x4\"",
        "<html>",
        "[NaN]",
        "]",
        ",",
    ] {
        assert_eq!(every_cut(malformed.as_bytes()).1, Outcome::Malformed, "{malformed}");
    }
    for cut in
        ["", " ", "{", "{\"a\"", "{\"a\":", "[1", "\"x", "[\"\\", "{\"x\":[", "{\"x\":\"", "[1,"]
    {
        assert_eq!(every_cut(cut.as_bytes()).1, Outcome::Cut, "{cut}");
    }
}

#[test]
fn bounds_depth_keys_and_numbers() {
    let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
    let (lines, outcome, _) = scan(&[deep.as_bytes()]);
    assert_eq!((lines.len(), outcome), (2 * MAX_DEPTH, Outcome::Complete));
    let long = format!("[{},2]", "1".repeat(100_000));
    assert_eq!(scan(&[long.as_bytes()]).0, ["root Array", "root[1] Number(\"2\")", "root End"]);
}

/// A step of a path: a key or an index in a list.
#[derive(Clone, Debug)]
enum Step {
    Key(String),
    At(u32),
}

/// Returns whether a row matches a path, by comparing step by step.
fn matches(row: &str, path: &[Step]) -> bool {
    let row: Vec<&str> = row.split('.').filter(|step| !step.is_empty()).collect();
    let same = |(row, step): (&&str, &Step)| match step {
        Step::Key(key) => row.trim_end_matches("{}").split('|').any(|known| known == key),
        Step::At(_) => *row == "*",
    };
    row.len() == path.len() && row.iter().zip(path).all(same)
}

/// Adds the expected lines for a parsed value.
fn expect(roots: &[u32], path: &[Step], value: &Json, lines: &mut Vec<String>) {
    let rows: Vec<_> = ROWS.iter().filter(|(row, _)| matches(row, path)).collect();
    let positions = path.iter().filter_map(|step| match step {
        Step::At(position) => Some(*position),
        Step::Key(_) => None,
    });
    let positions: Vec<u32> = roots.iter().copied().chain(positions).collect();
    let mut add = |value: &str| {
        lines.extend(rows.iter().map(|(_, label)| line(label, &positions, value)));
    };
    let is_raw = rows.iter().any(|(row, _)| row.ends_with("{}"));
    match value {
        Json::Null => add("Null"),
        Json::Bool(flag) => add(&format!("Bool({flag})")),
        Json::Number(number) => add(&format!("Number(\"{number}\")")),
        Json::String(text) => add(&format!("{text:?}")),
        Json::Array(_) | Json::Object(_) if is_raw => add(&format!("{:?}", value.to_string())),
        // One object without its list, and a list in place of one object.
        Json::Object(_) if next_steps(path).is_some_and(|(elements, keys)| elements && !keys) => {
            add("Object");
            expect(roots, &[path, &[Step::At(0)]].concat(), value, lines);
            end(&rows, &positions, lines);
        }
        Json::Array(values) if next_steps(path).is_some_and(|(elements, _)| !elements) => {
            add("Array");
            if let Some(first) = values.first() {
                expect(roots, path, first, lines);
            }
            end(&rows, &positions, lines);
        }
        Json::Array(values) => {
            add("Array");
            for (index, value) in (0..).zip(values) {
                if path.is_empty() {
                    expect(&[roots, &[index]].concat(), path, value, lines);
                } else {
                    expect(roots, &[path, &[Step::At(index)]].concat(), value, lines);
                }
            }
            if continues(path) {
                end(&rows, &positions, lines);
            }
        }
        Json::Object(values) => {
            add("Object");
            for (key, value) in values {
                expect(roots, &[path, &[Step::Key(key.clone())]].concat(), value, lines);
            }
            if continues(path) {
                end(&rows, &positions, lines);
            }
        }
    }
}

/// Returns whether any path continues after `path` with the elements of a list, and whether any continues with a key.
/// Returns `None` for the root, and if no path continues.
fn next_steps(path: &[Step]) -> Option<(bool, bool)> {
    let next = ROWS.iter().filter_map(|(row, _)| {
        let steps: Vec<&str> = row.split('.').collect();
        let step = steps.get(path.len())?;
        matches(&steps[..path.len()].join("."), path).then(|| *step == "*")
    });
    let next: Vec<bool> = next.collect();
    let is_some = !path.is_empty() && !next.is_empty();
    is_some.then(|| (next.contains(&true), next.contains(&false)))
}

fn end(rows: &[&Row<&str>], positions: &[u32], lines: &mut Vec<String>) {
    lines.extend(rows.iter().map(|(_, label)| line(label, positions, "End")));
}

/// Returns whether the path of any row starts with this path.
fn continues(path: &[Step]) -> bool {
    path.is_empty()
        || ROWS.iter().any(|(row, _)| {
            let steps: Vec<&str> = row.split('.').collect();
            steps.len() > path.len() && matches(&steps[..path.len()].join("."), path)
        })
}

fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<String>().prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        let key = prop::sample::select(vec!["a", "b", "list", "text", "other", "é\"\n"]);
        let key = key.prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Json::from),
            prop::collection::btree_map(key, inner, 0..4)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn delivers_what_serde_parses(value in json(), pretty: bool, size in 1..7_usize) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let mut expected = Vec::new();
        expect(&[], &[], &value, &mut expected);
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
        prop_assert_eq!(scan(&pieces), (expected, Outcome::Complete, false));
    }

    #[test]
    fn never_panics_and_ignores_cuts(words in prop::collection::vec(prop::sample::select(vec![
        "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u", "d83d", "\"a\"", "1", "true", " ", "é", "\"list\":", "\u{1}",
    ]), 0..40), noise in prop::collection::vec(any::<u8>(), 0..4), size in 1..5_usize) {
        let mut body = words.concat().into_bytes();
        body.extend(noise);
        prop_assert_eq!(scan(&body.chunks(size).collect::<Vec<_>>()), scan(&[&body]));
    }
}
