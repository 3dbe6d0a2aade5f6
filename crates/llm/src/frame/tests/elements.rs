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
fn reads_a_stream_of_google() {
    let body = format!("[{FIRST}\n,\r\n{SECOND}\n]\n");
    assert_eq!(frames(ELEMENTS, body), [format!("|{FIRST}"), format!("|{SECOND}")]);
}

#[test]
fn accepts_any_whitespace() {
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
fn emits_an_element_at_its_closing_bracket() {
    let pieces = ["[{\"a\":", "{}", "}", "\n,", "\r\n{", "}\n]", "{}"];
    assert_eq!(counts(framer(100)(), &pieces), [0, 0, 1, 0, 0, 1, 0]);
}

#[test]
fn does_not_copy_elements_that_arrive_in_one_push() {
    assert_in_place(ELEMENTS, format!("[{FIRST}\n,\r\n{SECOND},1,\n\"a\"]").as_bytes(), 4);
}

#[test]
fn reports_an_unclosed_array() {
    for rest in ["", "\n", ",\r\n", ",{\"a\":", ",{\"a\":\"]", ",tru"] {
        assert_eq!(
            frames(ELEMENTS, format!("[{{}}{rest}")),
            ["|{}", "error unterminated"],
            "{rest}"
        );
    }
    assert_eq!(frames(ELEMENTS, "["), ["error unterminated"]);
}

#[test]
fn ignores_data_after_the_array() {
    assert_eq!(frames(ELEMENTS, "[{}] {} [{}"), ["|{}"]);
}

#[test]
fn continues_after_a_broken_element() {
    assert_eq!(frames(ELEMENTS, "[{},},{}]"), ["|{}", "|}", "|{}"]);
    assert_eq!(frames(ELEMENTS, "[{} x {},{}]"), ["|{}", "|x {}", "|{}"]);
}

#[test]
fn skips_an_element_above_the_cap_and_reports_it_once() {
    let long = "x".repeat(40);
    for element in [
        format!("{{\"a\":\"{long}]}}\"}}"),
        format!("[[{long}],[]]"),
        format!("\"{long},\""),
        long.clone(),
    ] {
        let body = format!("[{{}},\r\n{element},{{\"a\":1}}]");
        assert_eq!(cuts(framer(30), body.as_bytes()), ["|{}", "error oversize", "|{\"a\":1}"]);
    }
    assert_eq!(cuts(framer(7), b"[{\"a\":1}]"), ["|{\"a\":1}"]);
    assert_eq!(cuts(framer(6), b"[{\"a\":1}]"), ["error oversize"]);
}

#[test]
fn deep_nesting_takes_bounded_memory() {
    let deep = format!("{}{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    let body = format!("[{deep},{{}}]");
    let frames = collect(framer(MAX_FRAME_BYTES)(), &[body.as_bytes()]);
    assert_eq!(frames, [&format!("|{deep}"), "|{}"]);
    let endless = "[".repeat(MAX_FRAME_BYTES + 2);
    let frames = collect(framer(MAX_FRAME_BYTES)(), &[endless.as_bytes()]);
    assert_eq!(frames, ["error oversize", "error unterminated"]);
}

#[test]
fn ignores_the_rest_after_a_gap() {
    for before in ["[", "[{}", "[{\"a\":", "[{},"] {
        assert!(after_gap(ELEMENTS, before.as_bytes(), b"{},{}]").is_empty());
    }
}
