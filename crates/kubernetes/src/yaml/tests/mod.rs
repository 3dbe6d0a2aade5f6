use serde_json::json;

use super::*;

mod random;

fn patch(operations: Value) -> Patch {
    serde_json::from_value(operations).unwrap()
}

fn one(text: &str) -> Document<'_> {
    let mut documents = parse_documents(text).unwrap();
    assert_eq!(documents.len(), 1, "{text}");
    documents.remove(0)
}

/// Applies a patch to a text with one document. Fails if anything except the notation of replaced scalars is
/// lost.
fn patched(text: &str, operations: Value) -> String {
    let mut patched = one(text).apply(&patch(operations)).unwrap();
    patched.losses.retain(|loss| loss.kind != LossKind::ScalarNotation);
    assert_eq!(patched.losses, [], "{text}");
    patched.text
}

#[expect(clippy::needless_pass_by_value, reason = "callers pass json!(…)")]
fn add(path: &str, value: Value) -> Value {
    json!([{"op": "add", "path": path, "value": value}])
}

#[expect(clippy::needless_pass_by_value, reason = "callers pass json!(…)")]
fn replace(path: &str, value: Value) -> Value {
    json!([{"op": "replace", "path": path, "value": value}])
}

fn remove(path: &str) -> Value {
    json!([{"op": "remove", "path": path}])
}

const POD: &str = "\
# A pod.
apiVersion: v1
kind: Pod
metadata:
  name: app   # its name
spec:
  # What runs:
  containers:
  - name: app
    image: \"app:1\"
    ports:
    - {containerPort: 8000, name: http}
    # not yet:
    # env: []

  volumes: []
";

#[test]
fn adds_entries_and_items_in_place() {
    let text = patched(
        POD,
        json!([
            {"op": "add", "path": "/metadata/annotations", "value": {"tokengauge.dev/injected": "{\"a\":1}"}},
            {"op": "add", "path": "/spec/containers/0/env", "value": [{"name": "A", "value": "yes"}]},
            {"op": "add", "path": "/spec/initContainers", "value": [{"name": "tokengauge", "args": ["run"]}]},
            {"op": "add", "path": "/spec/containers/-", "value": {"name": "b", "image": "c"}},
            {"op": "replace", "path": "/spec/containers/0/ports/0/containerPort", "value": 4000},
            {"op": "add", "path": "/spec/volumes/-", "value": {"name": "v", "emptyDir": {}}},
        ]),
    );
    let expected = "\
# A pod.
apiVersion: v1
kind: Pod
metadata:
  name: app   # its name
  annotations:
    tokengauge.dev/injected: '{\"a\":1}'
spec:
  # What runs:
  containers:
  - name: app
    image: \"app:1\"
    ports:
    - {containerPort: 4000, name: http}
    # not yet:
    # env: []
    env:
    - name: A
      value: \"yes\"
  - name: b
    image: c

  volumes:
  - name: v
    emptyDir: {}
  initContainers:
  - name: tokengauge
    args:
    - run
";
    assert_eq!(text, expected);
}

#[test]
fn removes_an_added_item_without_a_trace() {
    let added = patched(POD, add("/spec/containers/-", json!({"name": "b"})));
    assert_eq!(patched(&added, remove("/spec/containers/1")), POD);
}

#[test]
fn removes_a_last_line_without_a_line_end() {
    for newline in ["\n", "\r\n"] {
        let texts = ["a: 1\nb: 2", "a: 1\n\nb: 2", "a: 1\n\n\nb: 2"];
        for text in texts.map(|text| text.replace('\n', newline)) {
            let kept = text.strip_suffix(&format!("{newline}b: 2")).unwrap();
            assert_eq!(patched(&text, remove("/b")), kept);
            let ended = format!("{text}{newline}");
            assert_eq!(patched(&ended, remove("/b")), format!("{kept}{newline}"));
        }
    }
}

#[test]
fn keeps_trailing_comments_in_their_collection() {
    let text = "a:\n- b # b\n# of c\nc:\n  d: |\n    x\n  # d2\n\n  # d3\n# end\n";
    assert_eq!(
        patched(text, add("/a/-", json!("w"))),
        "a:\n- b # b\n- w\n# of c\nc:\n  d: |\n    x\n  # d2\n\n  # d3\n# end\n"
    );
    assert_eq!(
        patched(text, add("/c/w", json!(1))),
        "a:\n- b # b\n# of c\nc:\n  d: |\n    x\n  # d2\n\n  # d3\n  w: 1\n# end\n"
    );
    let text = "a:\n  # first\n  - b\n  # second\n  - c\n";
    assert_eq!(
        patched(text, add("/a/0", json!("w"))),
        "a:\n  - w\n  # first\n  - b\n  # second\n  - c\n"
    );
    assert_eq!(
        patched(text, add("/a/1", json!("w"))),
        "a:\n  # first\n  - b\n  - w\n  # second\n  - c\n"
    );
}

#[test]
fn follows_the_layout_of_the_document() {
    // Each case has a different layout: indented lists, four spaces, no line end at the end of the text, or
    // CRLF.
    let cases = [
        (
            "a:\n    b:\n      - c",
            "/a/w",
            "a:\n    b:\n      - c\n    w:\n      - m: 1\n        o: x",
        ),
        ("a:\n- b", "/w", "a:\n- b\nw:\n- m: 1\n  o: x"),
        ("a:\r\n  b: c\r\n", "/w", "a:\r\n  b: c\r\nw:\r\n- m: 1\r\n  o: x\r\n"),
        ("- a: 1\n", "/0/w", "- a: 1\n  w:\n  - m: 1\n    o: x\n"),
        ("{\"a\":1}", "/w", "{\"a\":1,\"w\":[{\"m\":1,\"o\":\"x\"}]}"),
        ("{\"a\": 1}\n", "/w", "{\"a\": 1, \"w\": [{\"m\": 1, \"o\": \"x\"}]}\n"),
        (
            "{\n  \"a\": 1\n}\n",
            "/w",
            "{\n  \"a\": 1,\n  \"w\": [\n    {\n      \"m\": 1,\n      \"o\": \"x\"\n    }\n  ]\n}\n",
        ),
        ("a: {b: 1}\n", "/a/w", "a: {b: 1, w: [{m: 1, o: x}]}\n"),
        ("a: {}  # none\n", "/a/w", "a:  # none\n  w:\n  - m: 1\n    o: x\n"),
    ];
    for (before, path, after) in cases {
        let value = json!([{"m": 1, "o": "x"}]);
        assert_eq!(patched(before, add(path, value)), after);
    }
}

#[test]
fn keeps_the_comments_of_replaced_values() {
    let cases = [
        ("a: 1 # c\nb: 2\n", "/a", json!("x"), "a: x # c\nb: 2\n"),
        ("a: 1 # c\n", "/a", json!({"b": 1}), "a: # c\n  b: 1\n"),
        ("a: # c\n  b: 1\n", "/a", json!(null), "a: # c\n"),
        ("a: >-\n  b\n\n  c\nd: 1\n", "/a", json!("e"), "a: e\nd: 1\n"),
        ("- a\n- 'b' # c\n", "/1", json!([1, [2]]), "- a\n- - 1 # c\n  - - 2\n"),
        ("a:\n", "/a", json!("x\ny\n"), "a: |\n  x\n  y\n"),
        ("a: [1, 2] # c\n", "/a/1", json!("x"), "a: [1, x] # c\n"),
        ("a: \"multi\n  line\" # c\n", "/a", json!([]), "a: [] # c\n"),
        ("--- # c\na: 1\n...\n", "/a", json!(2), "--- # c\na: 2\n...\n"),
    ];
    for (before, path, value, after) in cases {
        assert_eq!(patched(before, replace(path, value)), after);
    }
}

/// Regression test for a failure with random manifests. The comment of the previous entry was removed together
/// with the added entry.
#[test]
fn removes_an_entry_but_not_the_comment_above_it() {
    let texts = [
        "{\n  a: 1 # c\n}\n",
        "{\n  a: 1, # c\n}\n",
        "{\r\n  a: 1 # c\r\n}\r\n",
        "a: [\n  1, # c\n  # d\n  ]\n",
    ];
    for text in texts {
        let list = text.starts_with('a');
        let (to, from) = if list { ("/a/-", "/a/1") } else { ("/w", "/w") };
        let added = patched(text, add(to, json!(2)));
        assert!(added.contains("# c"), "{added}");
        assert_eq!(patched(&added, remove(from)), text, "{added}");
    }
}

/// Regression test for a failure with random manifests. The loss of quotes, number bases and words for null was
/// not reported.
#[test]
fn reports_a_notation_that_cannot_be_restored() {
    let cases = [
        ("a: \"x\" # c\n", Some("\"x\"")),
        ("a: |-\n  x\n", Some("|-\n  x")),
        ("a: 0x10\n", Some("0x10")),
        ("a: ~\n", Some("~")),
        ("a: null\n", Some("null")),
        ("{a: ~}\n", Some("~")),
        ("a: x # c\n", None),
        ("a: 16\n", None),
        ("a:\nb: 1\n", None),
        ("a: # c\n", None),
        ("{\"a\": null}\n", None),
        ("{\"a\": \"x\"}\n", None),
    ];
    for (text, notation) in cases {
        let patched = one(text).apply(&patch(replace("/a", json!(4000)))).unwrap();
        let losses = patched.losses.iter().map(|loss| (loss.kind, loss.text.as_str()));
        let expected = notation.map(|text| (LossKind::ScalarNotation, text));
        assert_eq!(Vec::from_iter(losses), Vec::from_iter(expected), "{text}");
    }
}

#[test]
fn removes_entries_with_their_lines() {
    let cases = [
        ("a: 1\nb: # c\n  - x\n\nd: 1\n", "/a", "b: # c\n  - x\n\nd: 1\n"),
        ("- a: 1\n  b: 2\n", "/0/a", "- b: 2\n"),
        ("- a: 1\n  # of b\n  b: 2\n", "/0/a", "-\n  # of b\n  b: 2\n"),
        ("a: |+\n  x\n\nb: 1\n", "/a", "b: 1\n"),
        ("a:\n- b\n- c", "/a/1", "a:\n- b"),
        ("a: [b, c, d]\n", "/a/1", "a: [b, d]\n"),
        ("a: [b, c]\n", "/a/1", "a: [b]\n"),
        ("a: {b: c}\n", "/a/b", "a: {}\n"),
        ("a:\n  b:\n    c: 1\nd: 1\n", "/a/b", "a: {}\nd: 1\n"),
    ];
    for (before, path, after) in cases {
        assert_eq!(patched(before, remove(path)), after, "{before}");
    }
}

#[test]
fn reads_scalars_like_kubernetes() {
    let cases = [
        ("yes", json!(true)),
        ("n", json!(false)),
        ("Off", json!(false)),
        ("~", json!(null)),
        ("0o7", json!(7)),
        ("010", json!(8)),
        ("08", json!(8.0)),
        ("0x10", json!(16)),
        ("-0b11", json!(-3)),
        ("1_000", json!(1000)),
        ("1e3", json!(1000.0)),
        (".5", json!(0.5)),
        ("1e999", json!("1e999")),
        ("18446744073709551615", json!(u64::MAX)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("18446744073709551616", json!(18_446_744_073_709_551_616.0)),
        ("+9223372036854775808", json!(9_223_372_036_854_775_808.0)),
        ("2001-01-01", json!("2001-01-01")),
        ("12:30", json!("12:30")),
        ("'1'", json!("1")),
        ("!!str 1", json!("1")),
        ("! 1", json!("1")),
        ("!!float 1", json!(1.0)),
        ("!!int '7'", json!(7)),
    ];
    for (word, value) in cases {
        assert_eq!(*one(&format!("a: {word}\n")).value(), json!({"a": value}), "{word}");
    }
    assert_eq!(*one("yes: 1\n1.50: 2\n").value(), json!({"true": 1, "1.5": 2}));
}

/// Tests that strings are quoted if a parser of any YAML version would read them as another type.
#[test]
#[expect(clippy::too_many_lines, reason = "a list with one text per line")]
fn quotes_strings_that_look_like_other_types() {
    let quoted = [
        "yes",
        "Y",
        "off",
        "null",
        "~",
        "",
        "1",
        "0.5",
        "1e3",
        "1_0",
        "0x1f",
        "0o7",
        "12:30:45",
        "2001-01-01",
        ".inf",
        "-.NaN",
        "<<",
        "=",
        "a: b",
        "a #b",
        "- a",
        "*a",
        "&a",
        "!a",
        "%a",
        "@a",
        "`a",
        " a",
        "a ",
        "a:",
        "---",
        "[a",
        "{a",
        "'a",
        "\"a",
        "|",
        ">",
        "?",
        "\u{feff}",
        "\u{85}",
        "\u{2028}",
        "\u{7f}",
        "1:30",
        "0b1",
        "+1",
        "-1",
        "1.",
        "685_230.15",
    ];
    for text in quoted {
        let after = patched("a: 1\n", replace("/a", json!(text)));
        assert!(after.starts_with("a: \"") || after.starts_with("a: '"), "{after}");
    }
    let plain = [
        "app",
        "--flag=x",
        "-v",
        "http://127.0.0.1:4000/v1",
        "/=https://a.example",
        "200m",
        "64Mi",
        "5s",
        "$(POD).x",
        "127.0.0.1:4000",
        "a,b".trim_end_matches(",b"),
        "ghcr.io/a/b:0.1.0",
        "RuntimeDefault",
    ];
    for text in plain {
        let after = patched("a: 1\n", replace("/a", json!(text)));
        assert_eq!(after, format!("a: {text}\n"));
    }
}

#[test]
fn expands_aliases_if_only_one_place_changes() {
    let text = "a: &x # n\n  b: 1 # one\nc: *x\nd:\n  <<: *x\n  e: 2\n";
    let edit = |operations| {
        let patched = one(text).apply(&patch(operations)).unwrap();
        let losses: Vec<String> =
            patched.losses.iter().map(|loss| format!("line {}: {loss}", loss.line)).collect();
        (patched.text, losses)
    };
    let (after, losses) = edit(replace("/c/b", json!(3)));
    assert_eq!(after, "a: &x # n\n  b: 1 # one\nc:\n  b: 3\nd:\n  <<: *x\n  e: 2\n");
    assert_eq!(losses.len(), 1);
    assert!(losses[0].starts_with("line 3: alias *x"), "{losses:?}");
    let (after, losses) = edit(replace("/a/b", json!(3)));
    assert_eq!(after, "a: &x # n\n  b: 3 # one\nc:\n  b: 1\nd:\n  b: 1\n  e: 2\n");
    assert_eq!(losses.len(), 2, "{losses:?}");
    let (after, _) = edit(remove("/d/b"));
    assert_eq!(after, "a: &x # n\n  b: 1 # one\nc: *x\nd:\n  e: 2\n");
    // A change outside the shared value keeps the alias.
    assert_eq!(patched(text, replace("/d/e", json!(3))), text.replace("e: 2", "e: 3"));
}

#[test]
fn reports_lost_comments_and_notation() {
    let text = "a:\n  # one\n  b: 1\n# two\nc: 1\n";
    let patched = one(text).apply(&patch(replace("/a", json!(1)))).unwrap();
    assert_eq!(patched.text, "a: 1\n# two\nc: 1\n");
    let loss = Loss { line: 2, kind: LossKind::Comment, text: "# one".to_owned() };
    assert_eq!(patched.losses, [loss]);
    let text = "? a\n: - b\nc: 1\n";
    let patched = one(text).apply(&patch(replace("/a", json!(1)))).unwrap();
    assert_eq!(patched.text, "a: 1\nc: 1\n");
    assert_eq!(
        patched.losses,
        [Loss { line: 1, kind: LossKind::CollectionNotation, text: String::new() }]
    );
}

#[test]
fn splits_a_text_into_documents() {
    let cases: [(&str, &[&str]); 8] = [
        ("", &[]),
        ("# only\n", &["# only\n"]),
        ("a: 1\n---\nb: 1\n", &["a: 1\n", "---\nb: 1\n"]),
        ("---\n# c\n---\na: 1\n---\n", &["---\n# c\n", "---\na: 1\n", "---\n"]),
        (
            "%YAML 1.1\n---\na: 1\n...\n# of b\n%YAML 1.1\n---\nb: 1\n",
            &["%YAML 1.1\n---\na: 1\n...\n", "# of b\n%YAML 1.1\n---\nb: 1\n"],
        ),
        ("a: |\n  ---\n--- # c\nb\n", &["a: |\n  ---\n", "--- # c\nb\n"]),
        ("{\"a\": 1}\n", &["{\"a\": 1}\n"]),
        ("\u{feff}a: 1\r\n---\r\nb: 1", &["\u{feff}a: 1\r\n", "---\r\nb: 1"]),
    ];
    for (text, expected) in cases {
        let texts: Vec<&str> = parse_documents(text).unwrap().iter().map(Document::text).collect();
        assert_eq!(texts, expected);
    }
    assert_eq!(patched("# only\n", replace("", json!({"a": 1}))), "# only\na: 1\n");
}

#[test]
fn errors_have_line_numbers() {
    let nested = format!("a: {}{}\n", "[".repeat(200), "]".repeat(200));
    let mut aliases = "a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let of = level - 1;
        let list = [format!("*a{of}"), ", ".to_owned()].concat().repeat(8);
        aliases.push_str(&format!("a{level}: &a{level} [{list}]\n"));
    }
    let cases = [
        ("a: 1\n---\nb: 1\nb: 2\n", "line 4: duplicate key \"b\" (first in line 3)"),
        ("true: 1\nyes: 2\n", "line 2: duplicate key \"true\""),
        ("a: !x 1\n", "line 1: unsupported tag !x"),
        ("a: !!binary aGk=\n", "line 1: unsupported tag !!binary"),
        ("a: !!int x\n", "line 1: \"x\" is not a valid int"),
        ("a: .inf\n", "line 1: JSON does not support the number .inf"),
        ("[a]: 1\n", "line 1: a key must be a scalar"),
        ("~: 1\n", "line 1: a key must be a scalar"),
        ("a: &x [*x]\n", "line 1: the alias refers to a value that contains it"),
        ("a: 1\n<<: 2\n", "<< merges only mappings"),
        ("a: *x\n", "line 1:4: invalid YAML"),
        ("a:\n\tb: 1\n", "line 2:"),
        (&nested, "line 1:"),
        (&aliases, "the aliases up to here expand to more than"),
        (&" ".repeat(MAX_BYTES + 1), "16777217 bytes of YAML"),
    ];
    for (text, expected) in cases {
        let error = parse_documents(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn rejects_patches_that_do_not_fit() {
    let document = one("a: 1\n");
    let cases = [
        (remove("/b"), "the patch does not fit"),
        (add("/a/b", json!(1)), "the patch does not fit"),
        (
            json!([{"op": "move", "from": "/a", "path": "/b"}]),
            "unsupported patch operation at \"/b\"",
        ),
    ];
    for (operations, expected) in cases {
        let error = document.apply(&patch(operations)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
