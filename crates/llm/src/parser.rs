//! Parses one response, from the first byte to its summary. This is the entry point of the crate for other programs.

use http::Method;

use crate::accumulator::ResponseAccumulator;
use crate::body::{BodyItem, BodyReader};
use crate::budget::{Budget, RequestBudget};
use crate::count::{TokenDelta, TokenTotals, Tokenizers};
use crate::decode::ContentDecoder;
use crate::dialect::{
    self, Api, DetectedApi, Event, Family, Operation, RequestFacts, RequestReader, RequestTarget,
    TextKind, Timings, Usage,
};
use crate::frame::ParseError;
use tokengauge_types::event::{Headers, REQUEST_HEADERS, RESPONSE_HEADERS};
use tokengauge_types::label::{Label, Name};

/// Parses the response to one request and counts its tokens.
///
/// The parser accepts the body in pieces of any size, uses a bounded amount of memory, and never fails. Malformed input
/// is skipped and reported as a [`ParseError`].
#[derive(Debug)]
pub struct ResponseParser {
    api: Api,
    request: RequestFacts,
    status: u16,
    body: BodyReader,
    response: ResponseAccumulator,
}

impl ResponseParser {
    /// Returns a builder for the parser of the response to a request for `path`. A query in `path` is ignored.
    pub fn builder(path: &str) -> ResponseParserBuilder<'_> {
        ResponseParserBuilder {
            path: path.split_once('?').map_or(path, |(path, _)| path),
            method: Method::POST,
            status: 200,
            host: None,
            api: None,
            request_headers: Headers::default(),
            request_body: b"",
            response_headers: Headers::default(),
            content_type: None,
            content_encoding: None,
            tokenizers: Tokenizers::default(),
            budget: Budget::default(),
        }
    }

    /// Parses the next bytes of the body. Calls `out` for each event that these bytes complete, and passes the tokens
    /// that the event adds.
    pub fn push(&mut self, bytes: &[u8], mut out: impl FnMut(&Event<'_>, TokenDelta)) {
        let Self { body, response, .. } = self;
        body.push(bytes, &mut |item| apply(response, &item, &mut out));
    }

    /// Records that bytes were lost. For server-sent events and JSON lines, parsing continues at the next event or
    /// line. The rest of any other body, and of a compressed body, is ignored.
    pub fn gap(&mut self) {
        self.body.gap();
        ParseError::Gap.add_to(&mut self.response.parse_errors);
    }

    /// Ends the body. Calls `out` for each event that is complete only at the end of the body.
    pub fn finish(self, mut out: impl FnMut(&Event<'_>, TokenDelta)) -> ResponseSummary {
        let Self { api, request, status, mut body, mut response } = self;
        body.finish(true, &mut |item| apply(&mut response, &item, &mut out));
        if let Some(error) = body.error() {
            error.add_to(&mut response.parse_errors);
        }
        response.require_answer(api, status, &body);
        let is_streamed = body.is_stream().unwrap_or(false);
        let has_ended = match is_streamed {
            // The streams of some APIs have neither an end mark nor a finish reason. After an error in the stream, an end
            // mark ends a part of the response.
            true => {
                let is_finished = response.is_finished(0) || response.has_final_usage();
                !response.failed && (is_finished || !api.marks_end())
            }
            false => !body.is_short(),
        };
        ParseError::BadCount.add_times(request.bad_counts, &mut response.parse_errors);
        let tokens = response.tokens();
        let tokenizer = response.tokenizer();
        let choices = (0..).zip(response.choices);
        ResponseSummary {
            api,
            request,
            is_streamed,
            is_complete: has_ended && !body.is_lossy() && !body.is_unread(),
            id: response.id,
            model: response.model,
            service_tier: response.service_tier,
            system_fingerprint: response.system_fingerprint,
            finish_reasons: choices
                .filter_map(|(index, choice)| Some((index, choice.finish_reason?)))
                .collect(),
            tokens,
            tokenizer,
            // The call that generated a stored response used its tokens.
            usage: response.usage.filter(|_| api.operation() != Operation::FetchResponse),
            timings: response.timings,
            failed: response.failed,
            error_type: response.error_type,
            parse_errors: response.parse_errors,
        }
    }
}

fn apply(
    response: &mut ResponseAccumulator,
    item: &BodyItem<'_>,
    out: &mut impl FnMut(&Event<'_>, TokenDelta),
) {
    match item {
        BodyItem::Event(event) => {
            let tokens = response.apply(event);
            out(event, tokens);
        }
        BodyItem::FrameEnd { .. } => response.end_frame(),
    }
}

/// Builds a [`ResponseParser`] from a request and the headers of its response.
///
/// Only the path is required. The defaults are a POST request and status 200. The first bytes of the response show its
/// framing.
#[derive(Clone, Debug)]
#[must_use = "call `build` to create the parser"]
pub struct ResponseParserBuilder<'a> {
    path: &'a str,
    method: Method,
    host: Option<&'a str>,
    api: Option<Api>,
    request_headers: Headers,
    request_body: &'a [u8],
    status: u16,
    response_headers: Headers,
    content_type: Option<&'a str>,
    content_encoding: Option<&'a str>,
    tokenizers: Tokenizers,
    budget: Budget,
}

impl<'a> ResponseParserBuilder<'a> {
    /// Sets the API. By default, the parser detects the API from the request.
    pub fn api(self, api: Api) -> Self {
        Self { api: Some(api), ..self }
    }

    pub fn method(self, method: Method) -> Self {
        Self { method, ..self }
    }

    /// Sets the host of the upstream. The host decides if several APIs share the path.
    pub fn host(self, host: &'a str) -> Self {
        Self { host: Some(host), ..self }
    }

    /// Sets the headers of the request. The parser reads only `anthropic-version` and `content-encoding`.
    pub fn request_headers(self, headers: &http::HeaderMap) -> Self {
        Self { request_headers: Headers::pick(headers, &REQUEST_HEADERS), ..self }
    }

    /// Sets the body of the request. The body names the model, which selects the tokenizer. If several APIs share the
    /// path, the body also shows the API.
    pub fn request_body(self, request_body: &'a [u8]) -> Self {
        Self { request_body, ..self }
    }

    /// Sets the status of the response. With a status of 400 or higher, the body is parsed only as an error.
    pub fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// Sets the headers of the response. Some backends report usage and timings in headers.
    pub fn response_headers(self, headers: &http::HeaderMap) -> Self {
        Self { response_headers: Headers::pick(headers, &RESPONSE_HEADERS), ..self }
    }

    /// Sets the content type of the response, which replaces the content type in the response headers.
    pub fn content_type(self, content_type: &'a str) -> Self {
        Self { content_type: Some(content_type), ..self }
    }

    /// Sets the content encoding of the response, which replaces the content encoding in the response headers.
    pub fn content_encoding(self, content_encoding: &'a str) -> Self {
        Self { content_encoding: Some(content_encoding), ..self }
    }

    /// Sets the tokenizers. The default is the built-in encodings.
    pub fn tokenizers(self, tokenizers: &Tokenizers) -> Self {
        Self { tokenizers: tokenizers.clone(), ..self }
    }

    /// Sets the budget that this parser shares with others. By default, the parser has a budget of its own.
    pub fn budget(self, budget: &Budget) -> Self {
        Self { budget: budget.clone(), ..self }
    }

    /// Creates the parser.
    ///
    /// # Errors
    ///
    /// Fails if the request is not a call of a known API, or if the API is a WebSocket session.
    pub fn build(self) -> Result<ResponseParser, BuildError> {
        let budget = self.budget.request();
        let (api, request, request_error) = self.read_request(&budget)?;
        let mut headers = self.response_headers;
        let overrides =
            [("content-type", self.content_type), ("content-encoding", self.content_encoding)];
        for (name, value) in overrides {
            if let Some(value) = value {
                headers.set(name, value);
            }
        }
        let model = request.model.as_ref();
        let mut response = ResponseAccumulator::new(model, &self.tokenizers, &budget);
        response.failed = dialect::is_error(self.status);
        let status_and_headers = (self.status, &headers);
        let body = BodyReader::new(api, &request, status_and_headers, &budget, &mut |event| {
            response.apply(&event);
        });
        if let Some(error) = request_error {
            error.add_to(&mut response.parse_errors);
        }
        Ok(ResponseParser { api, request, status: self.status, body, response })
    }

    /// Returns the API, the facts of the request, and the parse error if the request body could not be decoded.
    fn read_request(
        &self,
        budget: &RequestBudget,
    ) -> Result<(Api, RequestFacts, Option<ParseError>), BuildError> {
        let headers = &self.request_headers;
        let found = dialect::detect(&RequestTarget {
            hint: self.api.map(Api::as_str),
            method: &self.method,
            host: self.host,
            path: self.path,
            header_family: headers.get("anthropic-version").map(|_| Family::Anthropic),
        });
        let found = match (self.api, found) {
            (None, found) => found.ok_or_else(|| BuildError::UnknownApi(self.path.to_owned()))?,
            // The path may still name the model, but the caller has decided the API.
            (Some(_), Some(found)) => DetectedApi { body_decides: false, ..found },
            (Some(api), None) => {
                DetectedApi { api, model: None, stream: None, body_decides: false }
            }
        };
        let mut reader = RequestReader::new(&found);
        let mut decoder = ContentDecoder::new(headers.get("content-encoding"), budget);
        if decoder.push(self.request_body, &mut |plain| reader.push(plain)) {
            decoder.end();
        }
        let request = reader.finish();
        let decided = if found.body_decides { request.api } else { Some(found.api) };
        match decided.ok_or_else(|| BuildError::Ambiguous(self.path.to_owned()))? {
            api if api.operation() == Operation::Realtime => Err(BuildError::Session),
            api => Ok((api, request, decoder.error())),
        }
    }
}

/// Reason why a response cannot be parsed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BuildError {
    #[error("no known API for the path \"{0}\"; set the API with `api`")]
    UnknownApi(String),
    #[error(
        "several APIs share the path \"{0}\"; set the request body with `request_body`, or the API with `api`"
    )]
    Ambiguous(String),
    /// The API is a session over WebSocket, which [`Realtime`](crate::dialect::Realtime) parses.
    #[error(
        "a WebSocket session is not one response; use `frame::WebSocket` and `dialect::Realtime`"
    )]
    Session,
}

/// The facts of one response, after its end.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponseSummary {
    pub api: Api,
    pub request: RequestFacts,
    /// Whether the body is a stream of messages.
    pub is_streamed: bool,
    /// Whether the whole body was parsed and ended as the API requires. A stream needs its end marker, or a finish
    /// reason for each choice. For APIs without either, only HTTP can detect a truncated body.
    pub is_complete: bool,
    /// The identifier of the response.
    pub id: Option<Name>,
    /// The model that the response names.
    pub model: Option<Name>,
    pub service_tier: Option<Name>,
    pub system_fingerprint: Option<Name>,
    /// The provider's finish reason of each choice that has one, in the order of choices.
    pub finish_reasons: Vec<(u32, Name)>,
    /// The tokens of the generated text.
    pub tokens: TokenTotals,
    /// The name of the tokenizer that computed [`TokenTotals::native`].
    pub tokenizer: Label,
    /// The token counts that the provider reported. `None` if the provider reported none.
    pub usage: Option<Usage>,
    /// The durations that the backend reported.
    pub timings: Option<Timings>,
    /// Whether the status is 400 or higher, or the body reports an error.
    pub failed: bool,
    /// The type or code of the error that the provider reported.
    pub error_type: Option<Name>,
    /// The kinds of parse errors, and how often each occurred.
    pub parse_errors: Vec<(ParseError, u32)>,
}

impl ResponseSummary {
    /// Returns the number of tokens for each kind of generated text. Kinds without tokens are left out.
    pub fn tokens_by_kind(&self) -> impl Iterator<Item = (TextKind, u64)> {
        TextKind::ALL.into_iter().zip(self.tokens.by_kind).filter(|(_, tokens)| *tokens > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const CHAT: &str = "/v1/chat/completions";

    const STREAM: &str = "data: {\"id\":\"a\",\"model\":\"gpt-4\",\"choices\":[{\"index\":1,\"delta\":\
        {\"content\":\"Hi\"}},{\"index\":0,\"delta\":{\"content\":\"Hello\"}}]}\n\n\
        data: {\"id\":\"a\",\"choices\":[{\"index\":1,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
        data: {\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}\n\n";

    /// Returns the summary of `body` and the number of its events.
    fn parse(builder: ResponseParserBuilder<'_>, body: &[u8]) -> (ResponseSummary, usize) {
        let mut parser = builder.build().unwrap();
        let mut events = 0;
        parser.push(body, |_, _| events += 1);
        (parser.finish(|_, _| events += 1), events)
    }

    fn reasons(summary: &ResponseSummary) -> Vec<(u32, &str)> {
        summary.finish_reasons.iter().map(|(choice, reason)| (*choice, reason.as_str())).collect()
    }

    #[test]
    fn finish_reason_of_each_choice_ends_a_stream() {
        let (summary, _) = parse(ResponseParser::builder(CHAT), STREAM.as_bytes());
        assert_eq!(reasons(&summary), [(0, "length"), (1, "stop")]);
        assert_eq!(summary.tokens.native, 2);
        assert_eq!(summary.tokenizer.as_str(), "cl100k_base");
        assert!(summary.is_streamed && summary.is_complete);
        let (head, _) = STREAM.rsplit_once("data:").unwrap();
        let (summary, _) = parse(ResponseParser::builder(CHAT), head.as_bytes());
        assert_eq!(reasons(&summary), [(1, "stop")]);
        assert!(!summary.is_complete);
    }

    #[test]
    fn stream_resumes_after_a_gap_and_is_incomplete() {
        let mut parser = ResponseParser::builder(CHAT).build().unwrap();
        let (head, tail) = STREAM.split_at(STREAM.len() / 2);
        parser.push(head.as_bytes(), |_, _| {});
        parser.gap();
        parser.push(tail.as_bytes(), |_, _| {});
        let summary = parser.finish(|_, _| {});
        assert_eq!(summary.parse_errors, [(ParseError::Gap, 1)]);
        assert_eq!(reasons(&summary), [(0, "length")]);
        assert!(!summary.is_complete);
    }

    #[test]
    fn decodes_the_content_encoding() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(STREAM.as_bytes()).unwrap();
        let encoded = encoder.finish().unwrap();
        let builder = ResponseParser::builder(CHAT).content_encoding("gzip");
        let plain = parse(ResponseParser::builder(CHAT), STREAM.as_bytes());
        assert_eq!(parse(builder.clone(), &encoded), plain);
        let (short, _) = parse(builder.clone(), &encoded[..encoded.len() - 4]);
        assert_eq!(short.parse_errors, [(ParseError::Encoding, 1)]);
        assert!(short.is_complete, "every choice has its finish reason");
        let unknown = builder.content_encoding("compress");
        let (unread, events) = parse(unknown, &encoded);
        assert_eq!((unread.parse_errors.as_slice(), events), (&[(ParseError::Encoding, 1)][..], 0));
        assert!(!unread.is_complete);
    }

    #[test]
    fn body_of_an_error_status_is_an_error() {
        let body = br#"{"error": {"message": "slow down", "type": "rate_limit"}}"#;
        let (summary, _) = parse(ResponseParser::builder(CHAT).status(429), body);
        assert!(summary.failed);
        assert_eq!(summary.error_type.as_ref().map(Name::as_str), Some("rate_limit"));
        let (summary, _) = parse(ResponseParser::builder(CHAT).status(502), b"<html>");
        assert!(summary.failed);
        assert_eq!(summary.error_type, None);
    }

    #[test]
    fn only_the_end_of_a_whole_body_completes_it() {
        let body =
            br#"{"model": "gpt-4o", "choices": [{"index": 0, "message": {"content": "Hello"},
            "finish_reason": "stop"}], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}"#;
        let (summary, _) = parse(ResponseParser::builder(CHAT), body);
        assert!(!summary.is_streamed && summary.is_complete);
        assert_eq!(summary.tokens_by_kind().collect::<Vec<_>>(), [(TextKind::Text, 1)]);
        assert_eq!(summary.usage.and_then(|usage| usage.output), Some(1));
        let (summary, _) = parse(ResponseParser::builder(CHAT), &body[..40]);
        assert_eq!(summary.usage, None);
    }

    #[test]
    fn api_comes_from_the_path_the_body_or_the_caller() {
        let api = |builder: ResponseParserBuilder<'_>| {
            builder.build().map(|parser| parser.finish(|_, _| {}).api)
        };
        assert_eq!(
            api(ResponseParser::builder("/v1/messages?beta=true")),
            Ok(Api::AnthropicMessages)
        );
        let shared = ResponseParser::builder("/generate");
        assert_eq!(api(shared.clone()), Err(BuildError::Ambiguous("/generate".to_owned())));
        let body = br#"{"inputs": "Hi"}"#;
        assert_eq!(api(shared.clone().request_body(body)), Ok(Api::TgiGenerate));
        assert_eq!(api(shared.api(Api::SglangGenerate)), Ok(Api::SglangGenerate));
        let other = ResponseParser::builder("/my/own/path");
        assert_eq!(api(other.clone()), Err(BuildError::UnknownApi("/my/own/path".to_owned())));
        assert_eq!(api(other.api(Api::OllamaChat)), Ok(Api::OllamaChat));
        let session = ResponseParser::builder("/v1/realtime").method(Method::GET);
        assert_eq!(api(session), Err(BuildError::Session));
    }
}
