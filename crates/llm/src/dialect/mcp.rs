//! Reads the JSON-RPC messages of the Model Context Protocol (MCP).
//!
//! A message is a request, a notification, or the response to a request. A body is one message or a batch of messages.
//! Only the facts that telemetry reports are kept. Arguments and results of tools are content and are skipped.

use super::json::{Found, JsonScanner, Outcome, Paths, Value};
use tokengauge_types::label::Name;

/// Maximum number of messages of a batch that are read. Protocol versions after 2025-03-26 have no batches.
pub const MAX_MESSAGES: usize = 64;

/// One JSON-RPC message. A value that the message does not contain is absent.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct McpMessage {
    /// Whether the message has the member `jsonrpc`, without which it is not JSON-RPC.
    pub is_json_rpc: bool,
    /// Id of the request, as text. Notifications have none.
    pub id: Option<Name>,
    /// Method of a request or a notification. Responses have none.
    pub method: Option<Name>,
    /// Name of the tool or of the prompt that the request names.
    pub target: Option<Name>,
    /// URI of the resource that the request names.
    pub resource: Option<Name>,
    /// Protocol version that the peer proposes or selects while it initializes the session.
    pub protocol_version: Option<Name>,
    /// Code of the JSON-RPC error.
    pub error_code: Option<i64>,
    /// Whether the result of a tool is an error.
    pub is_tool_error: bool,
    /// Whether the message is a response, because it has a result or an error.
    pub is_response: bool,
}

#[derive(Clone, Copy, Debug)]
enum Field {
    JsonRpc,
    Id,
    Method,
    Target,
    Resource,
    ProtocolVersion,
    Response,
    ErrorCode,
    ToolError,
}

static MESSAGE: Paths<Field> = Paths::new(&[
    ("jsonrpc", Field::JsonRpc),
    ("id", Field::Id),
    ("method", Field::Method),
    ("params.name", Field::Target),
    ("params.uri", Field::Resource),
    ("params.protocolVersion", Field::ProtocolVersion),
    ("result", Field::Response),
    ("result.protocolVersion", Field::ProtocolVersion),
    ("result.isError", Field::ToolError),
    ("error", Field::Response),
    ("error.code", Field::ErrorCode),
]);

/// Reads a JSON document with one message or a batch, in pieces of any size.
#[derive(Debug)]
pub struct McpReader {
    scanner: JsonScanner<Field>,
    messages: Vec<McpMessage>,
}

impl Default for McpReader {
    fn default() -> Self {
        Self { scanner: JsonScanner::new(&MESSAGE), messages: Vec::new() }
    }
}

impl McpReader {
    /// Reads the next bytes of the document.
    pub fn push(&mut self, bytes: &[u8]) {
        let Self { scanner, messages } = self;
        scanner.push(bytes, &mut |field, found: Found<'_>| read(messages, field, found));
    }

    /// Returns the messages that were read so far.
    pub fn messages(&self) -> &[McpMessage] {
        &self.messages
    }

    /// Ends the document. Returns its messages, and whether the document is malformed.
    pub fn finish(&mut self) -> (Vec<McpMessage>, bool) {
        let Self { scanner, messages } = self;
        let outcome = scanner.finish(&mut |field, found: Found<'_>| read(messages, field, found));
        (std::mem::take(messages), outcome == Outcome::Malformed)
    }
}

fn read(messages: &mut Vec<McpMessage>, field: Field, found: Found<'_>) {
    let index = usize::try_from(found.position.root()).unwrap_or(usize::MAX);
    if index >= MAX_MESSAGES {
        return;
    }
    if messages.len() <= index {
        messages.resize_with(index + 1, McpMessage::default);
    }
    let Some(message) = messages.get_mut(index) else { return };
    let word = found.value.word();
    match (field, found.value) {
        (Field::JsonRpc, _) => message.is_json_rpc |= word.is_some(),
        (Field::Id, _) => message.id = word.and_then(Name::new).or(message.id.take()),
        (Field::Method, _) => message.method = word.and_then(Name::new).or(message.method.take()),
        (Field::Target, _) => message.target = word.and_then(Name::new).or(message.target.take()),
        (Field::Resource, _) => {
            message.resource = word.and_then(Name::new).or(message.resource.take());
        }
        (Field::ProtocolVersion, _) => {
            message.protocol_version = word.and_then(Name::new).or(message.protocol_version.take());
        }
        // JSON-RPC allows any result, and MCP only objects.
        (Field::Response, value) => message.is_response |= value != Value::Null,
        (Field::ErrorCode, Value::Number(number)) => message.error_code = number.parse().ok(),
        (Field::ToolError, Value::Bool(flag)) => message.is_tool_error = flag,
        (Field::ErrorCode | Field::ToolError, _) => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<McpMessage>, bool) {
        let mut reader = McpReader::default();
        pieces.into_iter().for_each(|piece| reader.push(piece));
        reader.finish()
    }

    /// Returns the messages of a document. Asserts that cuts make no difference.
    fn messages(document: &str) -> Vec<McpMessage> {
        let bytes = document.as_bytes();
        let (whole, is_malformed) = read_pieces([bytes]);
        assert!(!is_malformed, "{document}");
        assert_eq!(read_pieces(bytes.chunks(1)).0, whole);
        whole
    }

    fn request(id: &str, method: &str) -> McpMessage {
        McpMessage {
            is_json_rpc: true,
            id: Name::new(id),
            method: Name::new(method),
            ..McpMessage::default()
        }
    }

    #[test]
    fn reads_a_call_of_a_tool_without_its_arguments() {
        let call = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get-weather",
            "arguments":{"name":"no","uri":"no","city":"Rome"},"_meta":{"progressToken":1}}}"#;
        let expected =
            McpMessage { target: Name::new("get-weather"), ..request("7", "tools/call") };
        assert_eq!(messages(call), [expected]);
        let read = r#"{"method":"resources/read","params":{"uri":"file:///a"},"id":"r-1","jsonrpc":"2.0"}"#;
        let expected =
            McpMessage { resource: Name::new("file:///a"), ..request("r-1", "resources/read") };
        assert_eq!(messages(read), [expected]);
    }

    #[test]
    fn reads_responses_and_errors() {
        let response = |id: &str| McpMessage {
            is_json_rpc: true,
            id: Name::new(id),
            is_response: true,
            ..McpMessage::default()
        };
        let selected = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}"#;
        let version = Name::new("2025-06-18");
        assert_eq!(messages(selected), [McpMessage { protocol_version: version, ..response("1") }]);
        let failed = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"Unknown tool","data":{"code":1}}}"#;
        assert_eq!(messages(failed), [McpMessage { error_code: Some(-32_602), ..response("2") }]);
        let tool =
            r#"{"jsonrpc":"2.0","id":3,"result":{"content":[{"isError":false}],"isError":true}}"#;
        assert_eq!(messages(tool), [McpMessage { is_tool_error: true, ..response("3") }]);
        assert_eq!(messages(r#"{"jsonrpc":"2.0","id":4,"result":{}}"#), [response("4")]);
    }

    #[test]
    fn reads_notifications_and_batches() {
        let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let expected = McpMessage { id: None, ..request("x", "notifications/initialized") };
        assert_eq!(messages(notification), std::slice::from_ref(&expected));
        let batch = format!(r#"[{notification},{{"jsonrpc":"2.0","id":1,"method":"ping"}}]"#);
        assert_eq!(messages(&batch), [expected, request("1", "ping")]);
        assert_eq!(messages("[]"), []);
        let many = format!("[{}]", vec![notification; 200].join(","));
        assert_eq!(messages(&many).len(), MAX_MESSAGES);
    }

    #[test]
    fn other_json_is_no_message() {
        for document in
            [r#"{"query":"{ me }"}"#, r#"{"model":"m","messages":[]}"#, "7", "\"jsonrpc\""]
        {
            let all = messages(document);
            assert!(all.iter().all(|message| !message.is_json_rpc), "{document}");
        }
        assert!(read_pieces([b"{]".as_slice()]).1, "malformed");
    }

    proptest! {
        #[test]
        fn any_bytes_cut_anywhere_give_the_same_bounded_messages(
            body in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..200),
                r#"(\[|\{|\}|\]|,|:|"(jsonrpc|id|method|params|name|result|error|code|isError)"|-?[0-9]{1,4}|true|null|"x"){0,60}"#
                    .prop_map(String::into_bytes),
            ],
            at in any::<prop::sample::Index>(),
        ) {
            let (first, second) = body.split_at(at.index(body.len() + 1));
            let whole = read_pieces([body.as_slice()]);
            prop_assert_eq!(&read_pieces([first, second]), &whole);
            prop_assert!(whole.0.len() <= MAX_MESSAGES);
        }
    }
}
