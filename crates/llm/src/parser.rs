//! Parses one response from the first byte to its summary: the stages of this crate, composed.

use http::Method;

use crate::count::{TokenCounter, TokenDelta, TokenTotals, Tokenizers};
use crate::decode::ContentDecoder;
use crate::dialect::{
    self, Api, DetectedApi, Event, Operation, RequestFacts, RequestReader, RequestTarget,
    ResponseReader, TextKind, Timings, Usage,
};
use crate::frame::{Framer, ParseError};
use tokengauge_types::event::{Headers, REQUEST_HEADERS, RESPONSE_HEADERS};
use tokengauge_types::label::{Label, Name};

/// Maximum number of choices that are tracked. `n` is at most 128 with every provider that documents a limit.
const MAX_CHOICES: u32 = 128;

/// Parses the response to one request and counts its tokens.
///
/// The parser accepts the body in pieces of any size, uses a bounded amount of memory, and never fails. It skips
/// malformed input and reports a [`ParseError`].
#[derive(Debug)]
pub struct ResponseParser {
    decoder: ContentDecoder,
    framer: Framer,
    reader: ResponseReader,
    response: Accumulator,
    /// Whether a part of the body was not parsed.
    is_lossy: bool,
}

impl ResponseParser {
    /// Starts to describe a request to `path`. A query after the path is ignored.
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
        }
    }

    /// Parses the next bytes of the body. Calls `out` for each event that the bytes complete, with the increase of the
    /// token counts by that event.
    pub fn push(&mut self, bytes: &[u8], mut out: impl FnMut(&Event<'_>, TokenDelta)) {
        let Self { decoder, framer, reader, response, is_lossy } = self;
        let is_decoded = decoder.push(bytes, &mut |plain| {
            framer.push(plain, &mut |frame| {
                reader.read(&frame, &mut |event| response.apply(&event, &mut out));
            });
        });
        if !is_decoded {
            framer.gap();
            *is_lossy = true;
        }
    }

    /// Records that bytes of the body were lost. Streams of events or lines resume at the next event or line. Other
    /// bodies and encoded bodies are not parsed any further.
    pub fn gap(&mut self) {
        self.decoder.gap();
        self.framer.gap();
        self.is_lossy = true;
        self.response.note(ParseError::Gap);
    }

    /// Ends the body. Calls `out` for each event that only the end of the body completes.
    pub fn finish(mut self, mut out: impl FnMut(&Event<'_>, TokenDelta)) -> ResponseSummary {
        let Self { decoder, framer, reader, response, .. } = &mut self;
        let is_short = decoder.is_short();
        decoder.end();
        if !decoder.is_unread() {
            framer.finish(&mut |frame| {
                reader.read(&frame, &mut |event| response.apply(&event, &mut out));
            });
        }
        if let Some(error) = decoder.error() {
            response.note(error);
        }
        let is_streamed = framer.is_stream().unwrap_or(false);
        let has_ended = if is_streamed { response.has_ended() } else { !is_short };
        let Accumulator { mut counter, summary, .. } = self.response;
        ResponseSummary {
            is_streamed,
            is_complete: has_ended && !self.is_lossy,
            tokens: counter.finish(),
            tokenizer: counter.tokenizer(),
            ..summary
        }
    }
}

/// Describes a request and the head of its response.
///
/// Only the path is required. Everything else has the default that most calls need: a POST request, status 200, and a
/// response whose first bytes show its framing.
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
}

impl<'a> ResponseParserBuilder<'a> {
    /// Sets the API. By default the parser detects the API by the request.
    pub fn api(self, api: Api) -> Self {
        Self { api: Some(api), ..self }
    }

    pub fn method(self, method: Method) -> Self {
        Self { method, ..self }
    }

    /// Sets the host of the upstream. Some hosts serve another API at a path that several APIs share.
    pub fn host(self, host: &'a str) -> Self {
        Self { host: Some(host), ..self }
    }

    /// Sets the headers of the request. The parser reads `anthropic-version` and `content-encoding`.
    pub fn request_headers(self, headers: &http::HeaderMap) -> Self {
        Self { request_headers: Headers::pick(headers, &REQUEST_HEADERS), ..self }
    }

    /// Sets the body of the request. It names the model, which selects the tokenizer, and it shows the API if several
    /// APIs share the path.
    pub fn request_body(self, request_body: &'a [u8]) -> Self {
        Self { request_body, ..self }
    }

    /// Sets the status of the response. The body of a status of 400 or higher is read only as an error.
    pub fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// Sets the headers of the response. Some backends report usage and timings there.
    pub fn response_headers(self, headers: &http::HeaderMap) -> Self {
        Self { response_headers: Headers::pick(headers, &RESPONSE_HEADERS), ..self }
    }

    /// Sets the content type of the response, in place of the one in its headers.
    pub fn content_type(self, content_type: &'a str) -> Self {
        Self { content_type: Some(content_type), ..self }
    }

    /// Sets the content encoding of the response, in place of the one in its headers.
    pub fn content_encoding(self, content_encoding: &'a str) -> Self {
        Self { content_encoding: Some(content_encoding), ..self }
    }

    /// Sets the tokenizers (default: the built-in encodings) and the memory budget that they share.
    pub fn tokenizers(self, tokenizers: &Tokenizers) -> Self {
        Self { tokenizers: tokenizers.clone(), ..self }
    }

    /// Creates the parser.
    ///
    /// # Errors
    ///
    /// Fails if the request is not a call of a known API, or if the API is a session over WebSocket.
    pub fn build(self) -> Result<ResponseParser, BuildError> {
        let (api, request, request_error) = self.read_request()?;
        let headers = &self.response_headers;
        let content_type = self.content_type.or_else(|| headers.get("content-type"));
        let content_encoding = self.content_encoding.or_else(|| headers.get("content-encoding"));
        let decoder = ContentDecoder::new(content_encoding);
        let is_error = dialect::is_error(self.status);
        let is_whole = request.stream != Some(true);
        let reader = ResponseReader::new(api, &request, self.status);
        let mut response = Accumulator::new(api, request, &self.tokenizers);
        response.summary.failed = is_error;
        dialect::headers::read(headers, is_error, is_whole, &mut |event| {
            response.apply(&event, &mut |_, _| {});
        });
        if let Some(error) = request_error {
            response.note(error);
        }
        Ok(ResponseParser {
            is_lossy: decoder.is_unread(),
            decoder,
            framer: Framer::new(content_type, api.json()),
            reader,
            response,
        })
    }

    /// Returns the API and the facts of the request, and the error if its body was not decoded.
    fn read_request(&self) -> Result<(Api, RequestFacts, Option<ParseError>), BuildError> {
        let headers = &self.request_headers;
        let found = dialect::detect(&RequestTarget {
            hint: self.api.map(Api::as_str),
            method: &self.method,
            host: self.host,
            path: self.path,
            anthropic: headers.get("anthropic-version").is_some(),
        });
        let found = match (self.api, found) {
            (None, found) => found.ok_or_else(|| BuildError::UnknownApi(self.path.to_owned()))?,
            // The path may name the model, but the caller has decided the API.
            (Some(_), Some(found)) => DetectedApi { body_decides: false, ..found },
            (Some(api), None) => {
                DetectedApi { api, model: None, stream: None, body_decides: false }
            }
        };
        let mut reader = RequestReader::new(&found);
        let mut decoder = ContentDecoder::new(headers.get("content-encoding"));
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

/// The facts of one response.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponseSummary {
    pub api: Api,
    pub request: RequestFacts,
    /// Whether the body is a stream of messages.
    pub is_streamed: bool,
    /// Whether the whole body was parsed and has ended as its API requires: a stream by its end mark or by a finish
    /// reason of each choice. HTTP alone shows whether the body of an API without end mark was truncated.
    pub is_complete: bool,
    /// The identifier of the response.
    pub id: Option<Name>,
    /// The model according to the response.
    pub model: Option<Name>,
    pub service_tier: Option<Name>,
    pub system_fingerprint: Option<Name>,
    /// The provider's finish reason of each choice that has one, in the order of choices.
    pub finish_reasons: Vec<(u32, Name)>,
    /// The tokens of the generated text.
    pub tokens: TokenTotals,
    /// The name of the tokenizer that counted [`TokenTotals::native`].
    pub tokenizer: Label,
    /// The token counts that the provider reports. `None` if it reports none.
    pub usage: Option<Usage>,
    /// The durations that the backend reports.
    pub timings: Option<Timings>,
    /// Whether the status is 400 or higher, or the body reports an error.
    pub failed: bool,
    /// The type or code of the error that the provider reports.
    pub error_type: Option<Name>,
    /// The kinds of parse errors, each with its count.
    pub parse_errors: Vec<(ParseError, u32)>,
}

impl ResponseSummary {
    /// Returns the tokens of each kind of generated text, without the kinds that did not occur.
    pub fn tokens_by_kind(&self) -> impl Iterator<Item = (TextKind, u64)> {
        TextKind::ALL.into_iter().zip(self.tokens.by_kind).filter(|(_, tokens)| *tokens > 0)
    }
}

/// Applies events to a summary.
#[derive(Debug)]
struct Accumulator {
    counter: TokenCounter,
    summary: ResponseSummary,
    /// Number of choices that have begun.
    choices: u32,
    is_done: bool,
}

impl Accumulator {
    fn new(api: Api, request: RequestFacts, tokenizers: &Tokenizers) -> Self {
        let mut counter = TokenCounter::new(tokenizers);
        if let Some(model) = &request.model {
            counter.set_model(model.as_str());
        }
        let summary = ResponseSummary {
            api,
            request,
            is_streamed: false,
            is_complete: false,
            id: None,
            model: None,
            service_tier: None,
            system_fingerprint: None,
            finish_reasons: Vec::new(),
            tokens: counter.finish(),
            tokenizer: counter.tokenizer(),
            usage: None,
            timings: None,
            failed: false,
            error_type: None,
            parse_errors: Vec::new(),
        };
        Self { counter, summary, choices: 0, is_done: false }
    }

    fn apply(&mut self, event: &Event<'_>, out: &mut impl FnMut(&Event<'_>, TokenDelta)) {
        let mut tokens = TokenDelta::default();
        if let Event::Text { choice, .. } | Event::Stopped { choice, .. } = event
            && *choice < MAX_CHOICES
        {
            self.choices = self.choices.max(choice + 1);
        }
        let summary = &mut self.summary;
        match event {
            Event::Started { id, model } => self.start(*id, *model),
            Event::Text { choice, part, text } => tokens = self.counter.push(*choice, *part, text),
            Event::Call { .. } => {}
            Event::Usage(usage) => summary.usage.get_or_insert_default().merge(*usage),
            Event::Stopped { choice, reason } => self.stop(*choice, reason),
            Event::Failed { kind } => {
                summary.failed = true;
                set_name(&mut summary.error_type, *kind);
            }
            Event::Tier { service_tier, system_fingerprint } => {
                set_name(&mut summary.service_tier, *service_tier);
                set_name(&mut summary.system_fingerprint, *system_fingerprint);
            }
            Event::Timings(timings) => summary.timings.get_or_insert_default().merge(*timings),
            Event::Done => self.is_done = true,
            Event::ParseError(error) => self.note(*error),
        }
        out(event, tokens);
    }

    fn start(&mut self, id: Option<&str>, model: Option<&str>) {
        if self.summary.id.is_none() {
            set_name(&mut self.summary.id, id);
        }
        let known = self.summary.model.as_ref().map(Name::as_str);
        if let Some(model) = model.filter(|model| known != Some(*model)) {
            self.counter.set_model(model);
            set_name(&mut self.summary.model, Some(model));
        }
    }

    fn stop(&mut self, choice: u32, reason: &str) {
        let reasons = &mut self.summary.finish_reasons;
        if let Some(reason) = Name::new(reason).filter(|_| choice < MAX_CHOICES) {
            reasons.retain(|(known, _)| *known != choice);
            reasons.push((choice, reason));
            reasons.sort_by_key(|(choice, _)| *choice);
        }
    }

    fn note(&mut self, error: ParseError) {
        let errors = &mut self.summary.parse_errors;
        match errors.iter_mut().find(|(known, _)| *known == error) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => errors.push((error, 1)),
        }
    }

    /// Whether the end mark of the stream, or a finish reason of each choice, was received. Streams of some APIs have
    /// neither.
    fn has_ended(&self) -> bool {
        let stopped = self.summary.finish_reasons.len();
        let all_stopped = stopped > 0 && u32::try_from(stopped) == Ok(self.choices);
        self.is_done || all_stopped || !self.summary.api.marks_end()
    }
}

fn set_name(field: &mut Option<Name>, text: Option<&str>) {
    if let Some(name) = text.and_then(Name::new) {
        *field = Some(name);
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

    /// Returns the summary of `body`, and the number of events.
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
