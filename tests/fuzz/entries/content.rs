//! Fuzzes content capture. The result must be the same for every cut of a request, lists must be valid JSON, and their
//! size must be bounded.

use std::sync::Arc;

use serde_json::Value;
use tokengauge_llm::budget::RequestBudget;
use tokengauge_llm::content::{CapturePolicy, CapturedContent, Redactor, RequestCapture, assemble};
use tokengauge_llm::dialect::Api;

use super::script::{Script, however_cut};

/// Number of bytes that captured content may have in addition to the body limit.
///
/// Captured content also contains fields that do not count, and up to 4,096 parts become longer by a type and a role.
const GROWTH: usize = (4 << 10) + 4_096 * 100;

/// Factor by which redaction may lengthen the content. The replacement of a short secret is longer than the secret,
/// which has at least nine characters.
const LONGER: usize = 2;

pub fn content(input: &[u8]) {
    let mut script = Script::new(input);
    let api = script.pick(Api::ALL);
    let max_bytes = 1 << (script.digit() % 16);
    let cuts = script.cuts();
    let body = script.rest();
    let redact = Redactor::new(&[Redactor::DEFAULT_PATTERNS.to_owned()]).unwrap();
    let policy = Arc::new(CapturePolicy { max_bytes, redact });
    let content = however_cut(body, cuts, |pieces| {
        let mut asked = RequestCapture::new(&policy, &RequestBudget::default());
        pieces.iter().for_each(|piece| asked.push(piece));
        assemble(api, asked, None, &[])
    });
    let CapturedContent {
        input_messages,
        output_messages,
        system_instructions,
        tool_definitions,
        stop_sequences,
        truncated,
        left_out: _,
    } = &content;
    assert_eq!(*output_messages, None, "a request has no output messages");
    let lists = [input_messages, system_instructions, tool_definitions];
    let mut captured: usize = stop_sequences.iter().map(String::len).sum();
    for list in lists.into_iter().flatten() {
        captured += list.len();
        let list: Vec<Value> = serde_json::from_str(list).unwrap();
        assert!(!list.is_empty() && list.iter().all(Value::is_object), "{list:?}");
    }
    // A byte that JSON has to escape was also escaped in the request.
    assert!(captured <= LONGER * (max_bytes + GROWTH), "{captured} of {max_bytes}");
    assert!(body.len() <= max_bytes + (4 << 10) || *truncated, "{} of {max_bytes}", body.len());
}
