//! Observes HTTP requests of the Model Context Protocol (MCP) with the transport Streamable HTTP.
//!
//! A client posts a message, or a batch of messages, and gets a JSON body or a stream of server-sent events. With GET,
//! the client opens a stream for messages of the server, and with DELETE, it ends the session. Messages that the server
//! sends on its own are not operations of the client and are skipped.

use crate::detection::sent_path;
use tokengauge_llm::budget::RequestBudget;
use tokengauge_llm::decode::ContentDecoder;
use tokengauge_llm::dialect::{McpMessage, McpReader};
use tokengauge_llm::frame::{BudgetedFramer, Frame, JsonFraming, ParseError};
use tokengauge_measure::record::{Mcp, McpOperation};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{Headers, MCP_SESSION, RequestHead, ResponseHead, SessionRule};
use tokengauge_types::label::Name;

/// Last segment of the path of an MCP endpoint.
const SEGMENT: &str = "mcp";

const PROTOCOL_VERSION: &str = "mcp-protocol-version";

/// An HTTP request to an MCP endpoint, as observed so far.
#[derive(Debug)]
pub(super) struct McpExchange {
    /// Reads the request body. `None` after its end, and after a loss of bytes.
    request: Option<McpReader>,
    request_coding: ContentDecoder,
    response: Option<Response>,
    /// Whether a header shows the protocol. Otherwise, the request body must be JSON-RPC.
    has_header: bool,
    mcp: Mcp,
    errors: Vec<(ParseError, u32)>,
    budget: RequestBudget,
}

#[derive(Debug)]
struct Response {
    coding: ContentDecoder,
    framer: BudgetedFramer,
    reader: McpReader,
}

impl McpExchange {
    /// Returns the exchange if the path and the method are those of an MCP endpoint.
    pub(super) fn detect(open: &RequestHead, budget: &RequestBudget) -> Option<Self> {
        let path = sent_path(open);
        let last = path.trim_end_matches('/').rsplit('/').next();
        let is_endpoint = last == Some(SEGMENT)
            && matches!(open.method, http::Method::POST | http::Method::GET | http::Method::DELETE);
        let header = |name| open.headers.get(name).and_then(Name::new);
        let mcp = Mcp {
            session: header(MCP_SESSION).and_then(|session| open.session_rule.recorded(session)),
            protocol_version: header(PROTOCOL_VERSION),
            operations: Vec::new(),
        };
        is_endpoint.then(|| Self {
            request: Some(McpReader::default()),
            request_coding: ContentDecoder::new(open.headers.get("content-encoding"), budget),
            response: None,
            has_header: open.headers.get(MCP_SESSION).is_some() || mcp.protocol_version.is_some(),
            mcp,
            errors: Vec::new(),
            budget: budget.clone(),
        })
    }

    /// Parses bytes of the request body. Returns `false` if they were not decoded.
    pub(super) fn request(&mut self, bytes: &[u8]) -> bool {
        let Self { request, request_coding, .. } = self;
        let Some(request) = request else { return true };
        request_coding.push(bytes, &mut |plain| request.push(plain))
    }

    /// Ends the request body.
    pub(super) fn request_end(&mut self) {
        let Some(mut request) = self.request.take() else { return };
        let (messages, is_malformed) = request.finish();
        if is_malformed {
            ParseError::BadJson.add_to(&mut self.errors);
        }
        for message in messages.into_iter().filter(|message| message.is_json_rpc) {
            self.mcp.protocol_version =
                self.mcp.protocol_version.take().or_else(|| message.protocol_version.clone());
            // A response to a request of the server is no operation of the client.
            self.has_header |= message.is_response;
            if message.method.is_some() {
                self.mcp.operations.push(McpOperation::new(message));
            }
        }
    }

    /// Applies the response headers. The server acknowledges notifications with them.
    pub(super) fn head(
        &mut self,
        at: MonotonicInstant,
        head: &ResponseHead,
        session_rule: &SessionRule,
    ) {
        self.request_end();
        let headers: &Headers = &head.headers;
        if let Some(session) = headers.get(MCP_SESSION).and_then(Name::new) {
            self.mcp.session = session_rule.recorded(session);
        }
        for operation in &mut self.mcp.operations {
            if operation.message.id.is_none() {
                operation.answered = Some(at);
            }
        }
        let kind = headers.get("content-type");
        self.response = Some(Response {
            coding: ContentDecoder::new(headers.get("content-encoding"), &self.budget),
            framer: BudgetedFramer::new(kind, JsonFraming::Single, &self.budget),
            reader: McpReader::default(),
        });
    }

    /// Parses bytes of the response body. Returns `false` if they were not decoded.
    pub(super) fn response(&mut self, at: MonotonicInstant, bytes: &[u8]) -> bool {
        let Self { response: Some(response), mcp, errors, .. } = self else { return true };
        let Response { coding, framer, reader } = response;
        coding.push(bytes, &mut |plain| {
            framer.push(plain, &mut |frame| read_frame(at, &frame, reader, mcp, errors));
        })
    }

    /// Records that bytes were lost. The rest of a request cannot be read, and a stream continues at its next event.
    pub(super) fn gap(&mut self, is_request: bool) {
        if is_request {
            self.request = None;
            self.request_coding.gap();
        } else if let Some(response) = &mut self.response {
            response.coding.gap();
            response.framer.gap();
        }
    }

    /// Ends the exchange. Returns the record and the parse errors, or `None` if the request is not MCP.
    pub(super) fn finish(mut self, at: MonotonicInstant) -> Option<(Mcp, Vec<(ParseError, u32)>)> {
        self.request_end();
        let Self { response, mcp, errors, .. } = &mut self;
        if let Some(Response { framer, reader, .. }) = response {
            framer.finish(&mut |frame| read_frame(at, &frame, reader, mcp, errors));
        }
        let response_coding = self.response.as_ref().and_then(|response| response.coding.error());
        let coding_errors = [self.request_coding.error(), response_coding];
        coding_errors.into_iter().flatten().for_each(|error| error.add_to(&mut self.errors));
        let is_mcp = self.has_header || !self.mcp.operations.is_empty();
        is_mcp.then_some((self.mcp, self.errors))
    }
}

fn read_frame(
    at: MonotonicInstant,
    frame: &Frame<'_>,
    reader: &mut McpReader,
    mcp: &mut Mcp,
    errors: &mut Vec<(ParseError, u32)>,
) {
    match frame {
        // A server can open a stream with an event without data.
        Frame::Event { data, .. } | Frame::BareJson(data) if !data.is_empty() => {
            *reader = McpReader::default();
            reader.push(data);
            apply(at, reader, mcp, errors);
        }
        Frame::BodyChunk(bytes) => reader.push(bytes),
        Frame::BodyEnd => apply(at, reader, mcp, errors),
        Frame::ParseError(error) => error.add_to(errors),
        Frame::Event { .. } | Frame::BareJson(_) | Frame::Exception { .. } => {}
    }
}

/// Assigns the responses in a document to the operations with their ids.
fn apply(
    at: MonotonicInstant,
    reader: &mut McpReader,
    mcp: &mut Mcp,
    errors: &mut Vec<(ParseError, u32)>,
) {
    let (messages, is_malformed) = reader.finish();
    if is_malformed {
        ParseError::BadJson.add_to(errors);
    }
    for response in messages.iter().filter(|message| message.is_json_rpc && message.is_response) {
        if let Some(version) = &response.protocol_version {
            mcp.protocol_version = Some(version.clone());
        }
        if let Some(operation) = find(&mut mcp.operations, response) {
            operation.answered = Some(at);
            operation.error_code = response.error_code;
            operation.is_tool_error = response.is_tool_error;
        }
    }
}

/// Returns the operation to which a response belongs. An error without an id belongs to the only request.
fn find<'a>(
    operations: &'a mut [McpOperation],
    response: &McpMessage,
) -> Option<&'a mut McpOperation> {
    if response.id.is_none() {
        return operations.first_mut().filter(|_| response.error_code.is_some());
    }
    operations.iter_mut().find(|operation| operation.message.id == response.id)
}
