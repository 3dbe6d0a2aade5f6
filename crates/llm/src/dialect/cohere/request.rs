//! What a request asks for. What Cohere calls by other names than OpenAI is read here, the rest as of OpenAI's formats:
//! its second version of chat is close to them, and one path is shared with somebody who speaks theirs.

use crate::dialect::asked::{Asked, float, integer};
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Step, Value};
use crate::dialect::{Api, openai};
use tokengauge_types::label::Name;

pub const KEYS: &[&str] = &[
    "message",
    "chat_history",
    "preamble",
    "documents",
    "data",
    "snippet",
    "title",
    "query",
    "texts",
    "inputs",
    "p",
    "k",
    "num_generations",
    "stop_sequences",
    "end_sequences",
    "thinking",
    "token_budget",
    "conversation_id",
    "embedding_types",
    "output_dimension",
    // As OpenAI has them.
    "model",
    "messages",
    "content",
    "text",
    "prompt",
    "stream",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "n",
    "stop",
    "reasoning_effort",
    "response_format",
    "type",
    "tools",
];

/// Takes one value of a request.
pub fn take(asked: &mut Asked, path: &[Step], value: Value<'_>) {
    if is_prompt(path) {
        asked.prompt(value);
    }
    // Where a path is shared, one key tells whose it is.
    match path {
        [Key("message")] => asked.facts.api = Some(Api::CohereV1Chat),
        [Key("prompt")] => asked.facts.api = Some(Api::CohereV1Generate),
        [Key("query")] => asked.facts.api = Some(Api::Rerank),
        _ => {}
    }
    match path {
        [Key("stop_sequences" | "end_sequences"), At(_)] => {
            if value == Value::TextEnd {
                *asked.facts.stop_sequences.get_or_insert_default() += 1;
            }
        }
        [Key("embedding_types"), At(_)] => {
            if let Some(word) = asked.word(value) {
                asked.facts.encoding_format =
                    asked.facts.encoding_format.take().or(Name::new(&word));
            }
        }
        [Key("thinking"), Key("type")] => {
            if let Some(word) = asked.word(value) {
                let level = asked.facts.reasoning_level.take();
                asked.facts.reasoning_level = level.or(Name::new(&word));
            }
        }
        [Key("thinking"), Key("token_budget")] => {
            if let Value::Number(budget) = value {
                asked.facts.reasoning_level = Name::new(budget);
            }
        }
        // Of the first version: chats that Cohere keeps.
        [Key("conversation_id")] => {
            if let Some(word) = asked.word(value) {
                asked.facts.conversation = Name::new(&word);
            }
        }
        [Key("p")] => asked.facts.top_p = float(value).or(asked.facts.top_p),
        [Key("k")] => asked.facts.top_k = integer(value).or(asked.facts.top_k),
        [Key("num_generations")] => {
            asked.facts.choices = integer(value).filter(|choices| *choices != 1);
        }
        [Key("output_dimension")] => asked.facts.dimensions = integer(value),
        _ => (openai::REQUEST.take)(asked, path, value),
    }
}

/// Whether a text of the prompt stands there that is not also where OpenAI has it.
fn is_prompt(path: &[Step]) -> bool {
    matches!(
        path,
        [Key("message" | "preamble" | "query")]
            | [Key("query"), Key("text")]
            | [Key("chat_history"), At(_), Key("message")]
            | [Key("documents" | "texts"), At(_)]
            | [Key("documents"), At(_), Key("text" | "snippet" | "title" | "data")]
            | [Key("documents"), At(_), Key("data"), Key("text" | "snippet" | "title")]
            | [Key("inputs"), At(_), Key("content"), At(_), Key("text")]
    )
}
