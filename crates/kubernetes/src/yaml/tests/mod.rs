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

/// What becomes of a text of one document, all of which is kept otherwise.
fn edited(text: &str, operations: Value) -> String {
    let mut edited = one(text).apply(&patch(operations)).unwrap();
    edited.losses.retain(|lost| !matches!(lost.kind, LossKind::Word(_)));
    assert_eq!(edited.losses, [], "{text}");
    edited.text
}

#[expect(clippy::needless_pass_by_value, reason = "json!(…) stands where it is called")]
fn add(path: &str, value: Value) -> Value {
    json!([{"op": "add", "path": path, "value": value}])
}

#[expect(clippy::needless_pass_by_value, reason = "json!(…) stands where it is called")]
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
fn entries_and_items_are_added_where_they_belong() {
    let text = edited(
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
fn what_was_added_is_removed_without_a_trace() {
    let added = edited(POD, add("/spec/containers/-", json!({"name": "b"})));
    assert_eq!(edited(&added, remove("/spec/containers/1")), POD);
}

#[test]
fn a_last_line_without_a_line_end_takes_with_it_only_the_one_before() {
    for newline in ["\n", "\r\n"] {
        let texts = ["a: 1\nb: 2", "a: 1\n\nb: 2", "a: 1\n\n\nb: 2"];
        for text in texts.map(|text| text.replace('\n', newline)) {
            let kept = text.strip_suffix(&format!("{newline}b: 2")).unwrap();
            assert_eq!(edited(&text, remove("/b")), kept);
            let ended = format!("{text}{newline}");
            assert_eq!(edited(&ended, remove("/b")), format!("{kept}{newline}"));
        }
    }
}

#[test]
fn comments_at_the_end_belong_to_what_they_stand_in() {
    let text = "a:\n- b # b\n# of c\nc:\n  d: |\n    x\n  # d2\n\n  # d3\n# end\n";
    assert_eq!(
        edited(text, add("/a/-", json!("w"))),
        "a:\n- b # b\n- w\n# of c\nc:\n  d: |\n    x\n  # d2\n\n  # d3\n# end\n"
    );
    assert_eq!(
        edited(text, add("/c/w", json!(1))),
        "a:\n- b # b\n# of c\nc:\n  d: |\n    x\n  # d2\n\n  # d3\n  w: 1\n# end\n"
    );
    let text = "a:\n  # first\n  - b\n  # second\n  - c\n";
    assert_eq!(
        edited(text, add("/a/0", json!("w"))),
        "a:\n  - w\n  # first\n  - b\n  # second\n  - c\n"
    );
    assert_eq!(
        edited(text, add("/a/1", json!("w"))),
        "a:\n  # first\n  - b\n  - w\n  # second\n  - c\n"
    );
}

#[test]
fn the_notation_of_the_document_is_taken_up() {
    // Indented lists, four spaces, no end of the last line, CRLF.
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
        assert_eq!(edited(before, add(path, value)), after);
    }
}

#[test]
fn values_are_replaced_and_their_comments_stay() {
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
        assert_eq!(edited(before, replace(path, value)), after);
    }
}

/// Found by random manifests: the comment behind the entry before went with the entry that was added below it.
#[test]
fn an_entry_that_was_added_below_a_comment_goes_without_it() {
    let texts = [
        "{\n  a: 1 # c\n}\n",
        "{\n  a: 1, # c\n}\n",
        "{\r\n  a: 1 # c\r\n}\r\n",
        "a: [\n  1, # c\n  # d\n  ]\n",
    ];
    for text in texts {
        let list = text.starts_with('a');
        let (to, from) = if list { ("/a/-", "/a/1") } else { ("/w", "/w") };
        let added = edited(text, add(to, json!(2)));
        assert!(added.contains("# c"), "{added}");
        assert_eq!(edited(&added, remove(from)), text, "{added}");
    }
}

/// Found by random manifests: quotes, bases and words for null that would not come back were not told.
#[test]
fn a_notation_that_does_not_come_back_is_told() {
    let told = [
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
    for (text, word) in told {
        let edited = one(text).apply(&patch(replace("/a", json!(4000)))).unwrap();
        let words: Vec<LossKind> = edited.losses.into_iter().map(|lost| lost.kind).collect();
        let expected: Vec<LossKind> =
            word.map(|it| LossKind::Word(it.to_owned())).into_iter().collect();
        assert_eq!(words, expected, "{text}");
    }
}

#[test]
fn entries_are_removed_with_their_lines() {
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
        assert_eq!(edited(before, remove(path)), after, "{before}");
    }
}

#[test]
fn words_are_read_as_kubernetes_reads_them() {
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

/// What a reader of any version of YAML takes for something else stands between quotes.
#[test]
#[expect(clippy::too_many_lines, reason = "a list, one text a line")]
fn text_that_looks_like_something_else_is_quoted() {
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
        let after = edited("a: 1\n", replace("/a", json!(text)));
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
        let after = edited("a: 1\n", replace("/a", json!(text)));
        assert_eq!(after, format!("a: {text}\n"));
    }
}

#[test]
fn aliases_are_written_out_where_one_place_changes_alone() {
    let text = "a: &x # n\n  b: 1 # one\nc: *x\nd:\n  <<: *x\n  e: 2\n";
    let edit = |operations| {
        let edited = one(text).apply(&patch(operations)).unwrap();
        let lost: Vec<String> = edited.losses.iter().map(ToString::to_string).collect();
        (edited.text, lost)
    };
    let (after, lost) = edit(replace("/c/b", json!(3)));
    assert_eq!(after, "a: &x # n\n  b: 1 # one\nc:\n  b: 3\nd:\n  <<: *x\n  e: 2\n");
    assert_eq!(lost.len(), 1);
    assert!(lost[0].starts_with("line 3: the alias *x"), "{lost:?}");
    let (after, lost) = edit(replace("/a/b", json!(3)));
    assert_eq!(after, "a: &x # n\n  b: 3 # one\nc:\n  b: 1\nd:\n  b: 1\n  e: 2\n");
    assert_eq!(lost.len(), 2, "{lost:?}");
    let (after, _) = edit(remove("/d/b"));
    assert_eq!(after, "a: &x # n\n  b: 1 # one\nc: *x\nd:\n  e: 2\n");
    // What does not touch a shared value changes nothing of it.
    assert_eq!(edited(text, replace("/d/e", json!(3))), text.replace("e: 2", "e: 3"));
}

#[test]
fn comments_that_go_are_told() {
    let text = "a:\n  # one\n  b: 1\n# two\nc: 1\n";
    let edited = one(text).apply(&patch(replace("/a", json!(1)))).unwrap();
    assert_eq!(edited.text, "a: 1\n# two\nc: 1\n");
    let lost = Loss { line: 2, kind: LossKind::Comment("# one".to_owned()) };
    assert_eq!(edited.losses, [lost]);
    let text = "? a\n: - b\nc: 1\n";
    let edited = one(text).apply(&patch(replace("/a", json!(1)))).unwrap();
    assert_eq!(edited.text, "a: 1\nc: 1\n");
    assert_eq!(edited.losses, [Loss { line: 1, kind: LossKind::Notation(String::new()) }]);
}

#[test]
fn a_text_is_cut_where_documents_begin() {
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
    assert_eq!(edited("# only\n", replace("", json!({"a": 1}))), "# only\na: 1\n");
}

#[test]
fn what_cannot_be_read_is_told_with_its_line() {
    let nested = format!("a: {}{}\n", "[".repeat(200), "]".repeat(200));
    let mut aliases = "a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let of = level - 1;
        let list = [format!("*a{of}"), ", ".to_owned()].concat().repeat(8);
        aliases.push_str(&format!("a{level}: &a{level} [{list}]\n"));
    }
    let cases = [
        (
            "a: 1\n---\nb: 1\nb: 2\n",
            "line 4: the key \"b\" stands here for the second time (first in line 3)",
        ),
        ("true: 1\nyes: 2\n", "line 2: the key \"true\" stands here for the second time"),
        ("a: !x 1\n", "line 1: the tag !x is not read"),
        ("a: !!binary aGk=\n", "line 1: the tag !!binary is not read"),
        ("a: !!int x\n", "line 1: \"x\" is no int"),
        ("a: .inf\n", "line 1: .inf is a number that JSON lacks"),
        ("[a]: 1\n", "line 1: a key must be a single value"),
        ("~: 1\n", "line 1: a key must be a single value"),
        ("a: &x [*x]\n", "line 1: this alias stands within"),
        ("a: 1\n<<: 2\n", "<< merges mappings only"),
        ("a: *x\n", "line 1:4: not valid YAML"),
        ("a:\n\tb: 1\n", "line 2:"),
        (&nested, "line 1:"),
        (&aliases, "the aliases up to here stand for more than"),
        (&" ".repeat(MAX_BYTES + 1), "16777217 bytes of YAML"),
    ];
    for (text, expected) in cases {
        let error = parse_documents(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_patch_that_does_not_fit_changes_nothing() {
    let document = one("a: 1\n");
    let cases = [
        (remove("/b"), "the patch does not fit"),
        (add("/a/b", json!(1)), "the patch does not fit"),
        (json!([{"op": "move", "from": "/a", "path": "/b"}]), "another operation at \"/b\""),
    ];
    for (operations, expected) in cases {
        let error = document.apply(&patch(operations)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
