//! Tests streamed JSON arrays.

use super::*;

fn framer(cap: usize) -> impl Fn() -> Framer {
    move || Framer::JsonArray(JsonValues::array(cap))
}

const FIRST: &str = r#"{
  "candidates": [
    {
      "content": {
        "parts": [
          {
            "text": "Brackets ] } and \"quotes\" , are text\\"
          }
        ],
        "role": "model"
      },
      "index": 0
    }
  ],
  "usageMetadata": {
    "promptTokenCount": 7
  },
  "modelVersion": "gemini-2.5-flash"
}"#;

const SECOND: &str =
    "{\n  \"candidates\": [],\n  \"usageMetadata\": {\n    \"totalTokenCount\": 20\n  }\n}";

#[test]
fn a_stream_as_google_writes_it() {
    let body = format!("[{FIRST}\n,\r\n{SECOND}\n]\n");
    assert_eq!(frames(ELEMENTS, body), [format!("|{FIRST}"), format!("|{SECOND}")]);
}

#[test]
fn however_it_is_printed() {
    let expected = ["|{\"a\":[1]}", "|[\"]\"]", "|\"b,]\"", "|-1.5", "|null", "|{}"];
    for body in [
        r#"[{"a":[1]},["]"],"b,]",-1.5,null,{}]"#,
        "[ {\"a\":[1]} , [\"]\"] ,\"b,]\", -1.5 ,null\n,{} ]  \r\n",
        "\n[\n{\"a\":[1]}\n,\r\n[\"]\"]\r,\"b,]\"\n,\n-1.5,\nnull,\n{}\n]",
    ] {
        assert_eq!(frames(ELEMENTS, body), expected);
    }
    assert!(frames(ELEMENTS, "[]").is_empty());
    assert_eq!(frames(ELEMENTS, "[{}{}]"), ["|{}", "|{}"]);
    assert_eq!(frames(ELEMENTS, "[{\"a\":\"line\nend\"}]"), ["|{\"a\":\"line\nend\"}"]);
}

#[test]
fn an_element_is_handed_out_with_its_closing_bracket() {
    let pieces = ["[{\"a\":", "{}", "}", "\n,", "\r\n{", "}\n]", "{}"];
    assert_eq!(counts(framer(100)(), &pieces), [0, 0, 1, 0, 0, 1, 0]);
}

#[test]
fn elements_that_lie_whole_in_a_push_are_not_copied() {
    assert_in_place(ELEMENTS, format!("[{FIRST}\n,\r\n{SECOND},1,\n\"a\"]").as_bytes(), 4);
}

#[test]
fn an_array_that_is_not_closed_is_said() {
    for rest in ["", "\n", ",\r\n", ",{\"a\":", ",{\"a\":\"]", ",tru"] {
        assert_eq!(frames(ELEMENTS, format!("[{{}}{rest}")), ["|{}", "odd unterminated"], "{rest}");
    }
    assert_eq!(frames(ELEMENTS, "["), ["odd unterminated"]);
}

#[test]
fn what_comes_after_the_array_is_not_read() {
    assert_eq!(frames(ELEMENTS, "[{}] {} [{}"), ["|{}"]);
}

#[test]
fn a_broken_element_neither_loops_nor_ends_the_array() {
    assert_eq!(frames(ELEMENTS, "[{},},{}]"), ["|{}", "|}", "|{}"]);
    assert_eq!(frames(ELEMENTS, "[{} x {},{}]"), ["|{}", "|x {}", "|{}"]);
}

#[test]
fn an_element_above_the_cap_is_skipped_to_its_end_and_said_once() {
    let long = "x".repeat(40);
    for element in [
        format!("{{\"a\":\"{long}]}}\"}}"),
        format!("[[{long}],[]]"),
        format!("\"{long},\""),
        long.clone(),
    ] {
        let body = format!("[{{}},\r\n{element},{{\"a\":1}}]");
        assert_eq!(cuts(framer(30), body.as_bytes()), ["|{}", "odd oversize", "|{\"a\":1}"]);
    }
    assert_eq!(cuts(framer(7), b"[{\"a\":1}]"), ["|{\"a\":1}"]);
    assert_eq!(cuts(framer(6), b"[{\"a\":1}]"), ["odd oversize"]);
}

#[test]
fn brackets_without_end_are_counted_and_no_more() {
    let deep = format!("{}{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    let body = format!("[{deep},{{}}]");
    let frames = collect(framer(MAX_FRAME_BYTES)(), &[body.as_bytes()]);
    assert_eq!(frames, [&format!("|{deep}"), "|{}"]);
    let endless = "[".repeat(MAX_FRAME_BYTES + 2);
    let frames = collect(framer(MAX_FRAME_BYTES)(), &[endless.as_bytes()]);
    assert_eq!(frames, ["odd oversize", "odd unterminated"]);
}

#[test]
fn after_a_gap_the_rest_is_given_up() {
    for before in ["[", "[{}", "[{\"a\":", "[{},"] {
        assert!(after_gap(ELEMENTS, before.as_bytes(), b"{},{}]").is_empty());
    }
}
