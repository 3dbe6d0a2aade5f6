//! Defines the values that are read from a request, and collects them as facts.

use std::borrow::Cow;

use serde::Deserialize;

use super::json::{Found, Paths, Row, Value};
use super::token_count::{MAX_TOKENS, parse_token_count};
use super::{Api, DetectedApi, RequestFacts, lenient};
use tokengauge_types::event::{SessionSignal, SessionSource};
use tokengauge_types::label::Name;

pub type RequestPaths = Paths<RequestField>;

pub type RequestRow = Row<RequestField>;

/// Settings that most formats have, each with the names that providers use.
pub const SETTINGS: &[RequestRow] = &[
    ("max_tokens|max_new_tokens|max_output_tokens|maximum_tokens", RequestField::MaxTokens),
    ("num_predict|n_predict", RequestField::MaxTokens),
    ("temperature", RequestField::Temperature),
    ("top_p", RequestField::TopP),
    ("top_k", RequestField::TopK),
    ("frequency_penalty", RequestField::FrequencyPenalty),
    ("presence_penalty", RequestField::PresencePenalty),
    ("dimensions", RequestField::Dimensions),
    ("seed|random_seed|sampling_seed", RequestField::Seed),
    ("n|n_cmpl", RequestField::Choices),
    ("stop|stop_sequences|stop_words", RequestField::Stop),
    ("stop|stop_sequences|stop_words.*", RequestField::Stop),
];

/// The meaning of a value in a request.
#[derive(Clone, Copy, Debug)]
pub enum RequestField {
    Model,
    /// A model that is used only if the path does not name a model.
    ModelUnlessInPath,
    Stream,
    StreamUnlessInPath,
    /// A flag that only requests for streams contain.
    StreamIfSet,
    Prompt,
    MaxTokens,
    /// A newer name of the token limit. It takes precedence over [`Self::MaxTokens`].
    MaxCompletionTokens,
    Temperature,
    TopP,
    TopK,
    FrequencyPenalty,
    PresencePenalty,
    Seed,
    Choices,
    Dimensions,
    /// A stop sequence, or a list of stop sequences.
    Stop,
    /// A reasoning level, or a reasoning budget in tokens.
    ReasoningLevel,
    ReasoningLevelUnlessGiven,
    /// A reasoning switch, or a reasoning level.
    Reasoning,
    ServiceTier,
    PreviousResponse,
    PromptName,
    PromptVersion,
    /// The type of a message part or item, one of which is a compaction.
    PartType,
    Conversation,
    /// A string that contains a session.
    Session(SessionSource),
    Background,
    EncodingFormat,
    /// Each object at this path is a tool.
    Tools,
    OutputFormat,
    /// `json`, or a JSON schema.
    JsonOutput,
    OutputSchema,
    OutputModality,
    /// A media type or modality, in Google's format.
    OutputMedia,
    /// Whether the response contains the prompt before the generated text.
    Echo,
    NoEcho,
    /// A value that only requests of this API contain.
    Api(Api),
    /// A list that only requests of this API contain.
    ApiOfList(Api),
    /// A function, for a rule that only one format has.
    Rule(fn(&mut RequestState, Found<'_>)),
}

/// The facts read from a request so far, and the state of the reader.
#[derive(Debug, Default)]
pub struct RequestState {
    pub facts: RequestFacts,
    /// Whether the request set the token limit under its newer name.
    has_newer_limit: bool,
    /// The API that the path shows, if several APIs share the path.
    pub shared_path: Option<Api>,
    /// Whether the current prompt part is not text, or the whole request is not for text.
    pub is_not_text: bool,
}

impl RequestState {
    /// Creates a state with the facts that the path of the request shows.
    pub fn new(detected: &DetectedApi) -> Self {
        let mut state = Self::default();
        state.facts.model.clone_from(&detected.model);
        state.facts.stream = detected.stream;
        state.facts.output_type = detected.api.output_type();
        state.shared_path = detected.body_decides.then_some(detected.api);
        state
    }

    pub fn read(&mut self, field: RequestField, found: Found<'_>) {
        match (field, found.value) {
            (RequestField::Prompt, value) => self.prompt(value),
            (RequestField::Tools, value) => self.facts.tools |= value == Value::Object,
            (RequestField::OutputSchema, Value::Object | Value::Text(_))
            | (RequestField::JsonOutput, Value::Object) => self.facts.output_type = Some("json"),
            (RequestField::Api(_), Value::Null | Value::End | Value::TextEnd(_)) => {}
            (RequestField::Api(api), _) | (RequestField::ApiOfList(api), Value::Array) => {
                self.facts.api = Some(api);
            }
            (RequestField::Rule(rule), _) => rule(self, found),
            (field, Value::Bool(flag)) => self.flag(field, flag),
            (field, Value::Number(number)) => self.number(field, number),
            (field, value) => {
                if let Some(word) = value.string() {
                    self.read_string(field, word);
                }
            }
        }
    }

    /// Counts the bytes of a piece of the prompt.
    pub fn prompt(&mut self, value: Value<'_>) {
        let length = match value {
            Value::Text(text) => text.len(),
            Value::TextLength(length) => length,
            _ => return,
        };
        let bytes = u64::try_from(length).unwrap_or(u64::MAX);
        self.facts.prompt_bytes = self.facts.prompt_bytes.saturating_add(bytes);
    }

    fn flag(&mut self, field: RequestField, flag: bool) {
        let facts = &mut self.facts;
        match field {
            RequestField::Stream => facts.stream = Some(flag),
            RequestField::StreamUnlessInPath => facts.stream = facts.stream.or(Some(flag)),
            RequestField::StreamIfSet if flag => facts.stream = Some(true),
            RequestField::Reasoning => facts.reasoning |= flag,
            RequestField::Background => facts.background = flag,
            RequestField::Echo => facts.echo = facts.echo.or(Some(flag)),
            RequestField::NoEcho => facts.echo = facts.echo.or(Some(!flag)),
            _ => {}
        }
    }

    /// Reads a count. Returns `None` if the count is implausible, or -1 or -2: some clients send one of these instead of
    /// leaving out the limit.
    fn count(&mut self, number: &str) -> Option<i64> {
        if matches!(number, "-1" | "-2") {
            return None;
        }
        let count = parse_token_count(number).filter(|count| *count <= MAX_TOKENS);
        if count.is_none() {
            self.facts.bad_counts = self.facts.bad_counts.saturating_add(1);
        }
        i64::try_from(count?).ok()
    }

    /// Reads a number. A number with a fraction is ignored if the field is an integer.
    fn number(&mut self, field: RequestField, number: &str) {
        let count = match field {
            RequestField::MaxTokens
            | RequestField::MaxCompletionTokens
            | RequestField::Choices
            | RequestField::Dimensions => self.count(number),
            _ => None,
        };
        let facts = &mut self.facts;
        let (integer, float) = (integer(number), number.parse::<f64>().ok());
        match field {
            RequestField::MaxTokens if !self.has_newer_limit => facts.max_tokens = count,
            RequestField::MaxCompletionTokens => {
                facts.max_tokens = count;
                self.has_newer_limit = true;
            }
            RequestField::Temperature => facts.temperature = float,
            RequestField::TopP => facts.top_p = float,
            RequestField::TopK => facts.top_k = integer,
            RequestField::FrequencyPenalty => facts.frequency_penalty = float,
            RequestField::PresencePenalty => facts.presence_penalty = float,
            RequestField::Seed => facts.seed = integer,
            RequestField::Choices => facts.choices = count.filter(|choices| *choices != 1),
            RequestField::Dimensions => facts.dimensions = count.or(facts.dimensions),
            RequestField::ReasoningLevel => facts.reasoning_level = Name::new(number),
            RequestField::ReasoningLevelUnlessGiven => {
                facts.reasoning_level = facts.reasoning_level.take().or_else(|| Name::new(number));
            }
            _ => {}
        }
    }

    fn session(&mut self, source: SessionSource, word: &str) {
        let id = match source {
            SessionSource::UserId => session_of_user(word),
            _ => Some(word.into()),
        };
        if let Some(signal) = id.and_then(|id| SessionSignal::new(source, &id)) {
            signal.prefer(&mut self.facts.session);
        }
    }

    fn read_string(&mut self, field: RequestField, word: &str) {
        let name = Name::new(word);
        let facts = &mut self.facts;
        match field {
            RequestField::Model => facts.model = name.or(facts.model.take()),
            RequestField::ModelUnlessInPath => facts.model = facts.model.take().or(name),
            RequestField::Stop => *facts.stop_sequences.get_or_insert_default() += 1,
            RequestField::ReasoningLevel | RequestField::Reasoning => facts.reasoning_level = name,
            RequestField::ReasoningLevelUnlessGiven => {
                facts.reasoning_level = facts.reasoning_level.take().or(name);
            }
            RequestField::ServiceTier => facts.service_tier = name,
            RequestField::PreviousResponse => facts.previous_response = name,
            RequestField::PromptName => facts.prompt_name = name,
            RequestField::PromptVersion => facts.prompt_version = name,
            RequestField::PartType => facts.compacted |= word == "compaction",
            RequestField::Conversation => {
                facts.conversation = name;
                self.session(SessionSource::Conversation, word);
            }
            RequestField::Session(source) => self.session(source, word),
            RequestField::EncodingFormat => {
                facts.encoding_format = facts.encoding_format.take().or(name);
            }
            RequestField::OutputModality if word == "audio" => facts.output_type = Some("speech"),
            RequestField::OutputFormat if facts.output_type != Some("speech") => {
                facts.output_type = match word {
                    "text" => Some("text"),
                    "json_object" | "json_schema" => Some("json"),
                    _ => None,
                };
            }
            RequestField::OutputMedia => {
                let media = match &*word.to_ascii_lowercase() {
                    "application/json" => Some("json"),
                    "image" => Some("image"),
                    "audio" => Some("speech"),
                    // If the request names another modality, that modality is more informative than text.
                    "text" | "text/plain" | "text/x.enum" => facts.output_type.or(Some("text")),
                    _ => None,
                };
                facts.output_type = media.or(facts.output_type);
            }
            RequestField::JsonOutput if word == "json" => facts.output_type = Some("json"),
            _ => {}
        }
    }
}

/// Returns the session in Anthropic's `metadata.user_id`: Claude Code writes `user_…_account_…_session_UUID`, and since
/// 2026 an object in a string, with the key `session_id`. Another value is the id of a user.
fn session_of_user(text: &str) -> Option<Cow<'_, str>> {
    /// A value of another type is ignored. It is not an error, because providers accept any text.
    #[derive(Deserialize)]
    struct User<'a> {
        #[serde(borrow)]
        session_id: Cow<'a, str>,
    }
    if text.starts_with('{') {
        return serde_json::from_str(text).ok().map(|user: User<'_>| user.session_id);
    }
    let (user, session) = text.rsplit_once("_session_")?;
    (user.starts_with("user_") && user.contains("_account_")).then_some(session.into())
}

/// Returns a whole number. `40.0` is accepted, too, because some schemas declare every number as a float.
fn integer(number: &str) -> Option<i64> {
    let whole = || i64::try_from(lenient::whole_number(number)?).ok();
    number.parse().ok().or_else(whole)
}
