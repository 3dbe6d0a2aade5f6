//! Data of a request in the Model Context Protocol (MCP).

use std::sync::Arc;
use std::time::Duration;

use super::Record;
use crate::timing::Timestamps;
use tokengauge_llm::dialect::McpMessage;
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::RouteFacts;
use tokengauge_types::label::Name;

/// JSON-RPC error codes with which a server rejects a wrong request. For the server, such a response is no error:
/// parse error, invalid request, method not found, invalid params, resource not found.
const CLIENT_ERRORS: [i64; 5] = [-32_700, -32_600, -32_601, -32_602, -32_002];

/// An HTTP request that carries messages of MCP.
#[derive(Clone, Debug, Default)]
pub struct Mcp {
    /// The session, from the header `Mcp-Session-Id`.
    pub session: Option<Name>,
    /// From the header `MCP-Protocol-Version`, or else as the server selects it.
    pub protocol_version: Option<Name>,
    /// Requests and notifications of the client, in order.
    pub operations: Vec<McpOperation>,
}

/// A request or a notification of an MCP client, with the response to it.
#[derive(Clone, Debug, PartialEq)]
pub struct McpOperation {
    /// The request or the notification.
    pub message: McpMessage,
    /// When the response arrived. For a notification, when the server acknowledged it.
    pub answered: Option<MonotonicInstant>,
    /// Code of the JSON-RPC error in the response.
    pub error_code: Option<i64>,
    /// Whether the tool reports an error.
    pub is_tool_error: bool,
}

/// A session of MCP that ended.
#[derive(Clone, Debug)]
pub struct McpSession {
    pub route: Arc<RouteFacts>,
    pub protocol_version: Option<Name>,
    /// From its first request to its end.
    pub duration: Duration,
    /// Kind of error if the session ended with one.
    pub error_type: Option<Name>,
}

impl McpSession {
    /// Returns the session that a request initializes. It has no duration yet.
    pub fn new(record: &Record, mcp: &Mcp) -> Self {
        Self {
            route: Arc::clone(&record.route),
            protocol_version: mcp.protocol_version.clone(),
            duration: Duration::ZERO,
            error_type: None,
        }
    }
}

impl Mcp {
    /// Returns the only operation. Returns `None` for a batch, and for a request without an operation.
    pub fn only_operation(&self) -> Option<&McpOperation> {
        match self.operations.as_slice() {
            [operation] => Some(operation),
            _ => None,
        }
    }
}

impl McpOperation {
    pub fn new(message: McpMessage) -> Self {
        Self { message, answered: None, error_code: None, is_tool_error: false }
    }

    /// Returns the tool that the operation calls.
    pub fn tool(&self) -> Option<&Name> {
        self.message.target.as_ref().filter(|_| self.is("tools/call"))
    }

    /// Returns the prompt that the operation gets.
    pub fn prompt(&self) -> Option<&Name> {
        self.message.target.as_ref().filter(|_| self.is("prompts/get"))
    }

    /// Returns whether the operation has this method.
    pub fn is(&self, method: &str) -> bool {
        self.message.method.as_ref().is_some_and(|known| known.as_str() == method)
    }

    /// Returns the kind of error for the client: the JSON-RPC error code, or `tool_error`.
    pub fn client_error(&self) -> Option<Name> {
        match self.error_code {
            Some(code) => Name::new(&code.to_string()),
            None => Name::new("tool_error").filter(|_| self.is_tool_error),
        }
    }

    /// Returns the kind of error for the server.
    pub fn server_error(&self) -> Option<Name> {
        let is_client_error = self.error_code.is_some_and(|code| CLIENT_ERRORS.contains(&code));
        self.client_error().filter(|_| !is_client_error)
    }

    /// Returns the time from `start` to the response, or else to the end of the HTTP request.
    pub fn duration(
        &self,
        start: Option<MonotonicInstant>,
        timestamps: &Timestamps,
    ) -> Option<Duration> {
        Some(self.answered.or(timestamps.end)?.since(start?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejected_request_is_an_error_only_for_the_client() {
        let error = |error_code, is_tool_error| {
            let message = McpMessage::default();
            let operation =
                McpOperation { error_code, is_tool_error, ..McpOperation::new(message) };
            [operation.client_error(), operation.server_error()]
                .map(|error| error.map(|name| name.to_string()))
        };
        let both = |text: &str| [Some(text.to_owned()), Some(text.to_owned())];
        assert_eq!(error(None, false), [None, None]);
        assert_eq!(error(Some(-32_602), false), [Some("-32602".to_owned()), None]);
        assert_eq!(error(Some(-32_603), false), both("-32603"));
        assert_eq!(error(None, true), both("tool_error"));
    }

    #[test]
    fn names_are_those_of_the_method() {
        let operation = |method| {
            let (method, target) = (Name::new(method), Name::new("x"));
            McpOperation::new(McpMessage { method, target, ..McpMessage::default() })
        };
        assert!(operation("tools/call").tool().is_some());
        assert!(operation("tools/call").prompt().is_none());
        assert!(operation("prompts/get").prompt().is_some());
        assert!(operation("prompts/get").tool().is_none());
    }
}
