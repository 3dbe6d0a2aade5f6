//! Values come out with their paths, however the bytes are cut, and JSON that is none never panics.

use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;

const KEYS: [&str; 5] = ["a", "b", "list", "text", "é\"\n"];

/// Everything handed out, one line each, pieces of a string joined.
fn skim(pieces: &[&[u8]]) -> (Vec<String>, Outcome, bool) {
    let mut lines: Vec<String> = Vec::new();
    let mut text = String::new();
    let mut skimmer = Skimmer::new(&KEYS).raw(&["list"]);
    let mut out = |path: &[Step], value: Value<'_>| {
        let path: String = path
            .iter()
            .map(|step| match step {
                Step::Key(key) => format!(".{key}"),
                Step::At(index) => format!("[{index}]"),
            })
            .collect();
        match value {
            Value::Text(piece) => {
                assert!(!piece.is_empty());
                text.push_str(piece);
            }
            Value::TextEnd => lines.push(format!("{path} {:?}", std::mem::take(&mut text))),
            Value::Object | Value::Array | Value::End => lines.push(format!("{path} {value:?}")),
            Value::Number(_) | Value::Bool(_) | Value::Null => {
                lines.push(format!("{path} {value:?}"));
            }
        }
    };
    for piece in pieces {
        skimmer.push(piece, &mut out);
    }
    let outcome = skimmer.finish(&mut out);
    assert!(skimmer.path.len() <= DEEPEST && skimmer.scalar.len() <= LONGEST_SCALAR + 1);
    assert!(skimmer.key.text.len() <= LONGEST_KEY);
    (lines, outcome, skimmer.lossy())
}

fn every_cut(body: &[u8]) -> (Vec<String>, Outcome, bool) {
    let whole = skim(&[body]);
    assert_eq!(skim(&body.chunks(1).collect::<Vec<_>>()), whole);
    for at in 0..=body.len() {
        let (first, second) = body.split_at(at);
        assert_eq!(skim(&[first, second]), whole, "cut at {at}");
    }
    whole
}

fn lines(body: &str) -> Vec<String> {
    let (lines, outcome, _) = every_cut(body.as_bytes());
    assert_eq!(outcome, Outcome::Complete, "{body}");
    lines
}

#[test]
fn values_come_with_their_paths() {
    assert_eq!(
        lines(r#" {"a": "x", "b":[1,-2.5e3,{"text":null},[true]], "list":[] , "text":false} "#),
        [
            " Object",
            ".a \"x\"",
            ".b Array",
            ".b[0] Number(\"1\")",
            ".b[1] Number(\"-2.5e3\")",
            ".b[2] Object",
            ".b[2].text Null",
            ".b[2] End",
            ".b[3] Array",
            ".b[3][0] Bool(true)",
            ".b[3] End",
            ".b End",
            ".list \"[]\"",
            ".text Bool(false)",
            " End",
        ]
    );
    assert_eq!(lines("17"), [" Number(\"17\")"]);
    assert_eq!(lines("\"\""), [" \"\""]);
}

#[test]
fn an_object_may_be_handed_out_as_the_text_that_it_is() {
    assert_eq!(
        lines(
            "{\"list\" : { \"k y\" :\n[ 1, \"\\\" ] }\\u00e9 é\" ]\t} , \"a\":[{\"list\":\"x\"},{\"list\":3}]}"
        ),
        [
            " Object",
            r#".list "{\"k y\":[1,\"\\\" ] }\\u00e9 é\"]}""#,
            ".a Array",
            ".a[0] Object",
            ".a[0].list \"x\"",
            ".a[0] End",
            ".a[1] Object",
            ".a[1].list Number(\"3\")",
            ".a[1] End",
            ".a End",
            " End",
        ]
    );
    let (lines, outcome, lossy) = every_cut(b"{\"list\":[\"\xF0\x9F\"]}");
    assert_eq!(lines[1], ".list \"[\\\"\u{FFFD}\\\"]\"");
    assert_eq!((outcome, lossy), (Outcome::Complete, true));
    assert_eq!(every_cut(b"{\"list\":[[1]").1, Outcome::Cut);
}

#[test]
fn what_nobody_asked_for_is_passed_over() {
    let body = r#"{"x":{"a":["}\"]{",{"a":1}]},"y":"\\","z":12,"w":NaN,"v":[[],{}],"a":1}"#;
    assert_eq!(lines(body), [" Object", ".a Number(\"1\")", " End"]);
    let long = format!("{{\"{}\":1,\"a\":2}}", "a".repeat(LONGEST_KEY * 3));
    assert_eq!(lines(&long), [" Object", ".a Number(\"2\")", " End"]);
}

#[test]
fn keys_and_texts_are_unescaped() {
    assert_eq!(
        lines(r#"{"\u00e9\"\n":"\u0041\b\f\r\t\/\\ \ud83d\ude00 é 😀","\u0061":"b"}"#),
        [" Object", ".é\"\n \"A\\u{8}\\u{c}\\r\\t/\\\\ 😀 é 😀\"", ".a \"b\"", " End"]
    );
}

#[test]
fn half_a_character_becomes_the_replacement_character() {
    for text in
        ["\\ud83d", "\\ude00", "\\ud83d\\ud83d\\ude00", "\\ud83dx", "\\ud83d\\n", "\\ud83d\\u0041"]
    {
        let (lines, outcome, lossy) = every_cut(format!("[\"{text}\"]").as_bytes());
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
        let body = [b"[\"", bytes, b"\"]"].concat();
        let expected = String::from_utf8_lossy(bytes).replace("\\n", "\n").replace("\\u0041", "A");
        let (lines, outcome, lossy) = every_cut(&body);
        assert_eq!(lines[1], format!("[0] {expected:?}"));
        assert_eq!((outcome, lossy), (Outcome::Complete, true));
    }
}

#[test]
fn what_is_not_json_is_a_state() {
    for broken in [
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
        assert_eq!(every_cut(broken.as_bytes()).1, Outcome::Broken, "{broken}");
    }
    for cut in
        ["", " ", "{", "{\"a\"", "{\"a\":", "[1", "\"x", "[\"\\", "{\"x\":[", "{\"x\":\"", "[1,"]
    {
        assert_eq!(every_cut(cut.as_bytes()).1, Outcome::Cut, "{cut}");
    }
}

#[test]
fn depth_keys_and_numbers_are_bounded() {
    let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
    let (lines, outcome, _) = skim(&[deep.as_bytes()]);
    assert_eq!((lines.len(), outcome), (2 * DEEPEST, Outcome::Complete));
    let long = format!("[{},2]", "1".repeat(100_000));
    assert_eq!(skim(&[long.as_bytes()]).0, [" Array", "[1] Number(\"2\")", " End"]);
}

/// What the skimmer should say of a parsed value whose keys are all known.
fn expect(path: &str, value: &Json, lines: &mut Vec<String>) {
    match value {
        Json::Null => lines.push(format!("{path} Null")),
        Json::Bool(flag) => lines.push(format!("{path} Bool({flag})")),
        Json::Number(number) => lines.push(format!("{path} Number(\"{number}\")")),
        Json::String(text) => lines.push(format!("{path} {text:?}")),
        Json::Array(values) => {
            lines.push(format!("{path} Array"));
            for (index, value) in values.iter().enumerate() {
                expect(&format!("{path}[{index}]"), value, lines);
            }
            lines.push(format!("{path} End"));
        }
        Json::Object(values) => {
            lines.push(format!("{path} Object"));
            for (key, value) in values {
                if key == "list" && (value.is_object() || value.is_array()) {
                    lines.push(format!("{path}.list {:?}", value.to_string()));
                } else {
                    expect(&format!("{path}.{key}"), value, lines);
                }
            }
            lines.push(format!("{path} End"));
        }
    }
}

fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<String>().prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        let key = prop::sample::select(KEYS.to_vec()).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Json::from),
            prop::collection::btree_map(key, inner, 0..4)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn it_reads_what_serde_reads(value in json(), pretty: bool, size in 1..7_usize) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let mut expected = Vec::new();
        expect("", &value, &mut expected);
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
        prop_assert_eq!(skim(&pieces), (expected, Outcome::Complete, false));
    }

    #[test]
    fn no_bytes_make_it_panic_and_no_cut_matters(words in prop::collection::vec(prop::sample::select(vec![
        "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u", "d83d", "\"a\"", "1", "true", " ", "é", "\"list\":", "\u{1}",
    ]), 0..40), noise in prop::collection::vec(any::<u8>(), 0..4), size in 1..5_usize) {
        let mut body = words.concat().into_bytes();
        body.extend(noise);
        prop_assert_eq!(skim(&body.chunks(size).collect::<Vec<_>>()), skim(&[&body]));
    }
}
