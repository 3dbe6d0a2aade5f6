//! Describes the model formats that Bedrock and SageMaker serve unchanged: Titan, Llama, Mistral's completions, Cohere,
//! Jurassic, and TGI, which SageMaker containers serve.
//!
//! One table reads all of them, because no key has two meanings.

use crate::dialect::table::{Counter, Field, Table, TableReader};
use crate::dialect::{Part, RequestFacts};

static TABLE: Table = Table::new(&[
    // Titan.
    ("outputText", Field::Text(Part::Text)),
    ("completionReason", Field::StopReason),
    ("inputTextTokenCount", Field::Count(Counter::Input)),
    ("totalOutputTextTokenCount", Field::Count(Counter::Output)),
    ("results.*.outputText", Field::Text(Part::Text)),
    ("results.*.completionReason", Field::StopReason),
    ("results.*.tokenCount", Field::Addend(Counter::Output)),
    // Llama.
    ("generation", Field::Text(Part::Text)),
    ("generation.content", Field::Text(Part::Text)),
    ("prompt_token_count", Field::Count(Counter::Input)),
    ("generation_token_count", Field::Count(Counter::Output)),
    ("stop_reason", Field::StopReason),
    // Mistral.
    ("outputs.*.text", Field::Text(Part::Text)),
    ("outputs.*.stop_reason|finish_reason", Field::StopReason),
    // Cohere. The last message of a stream may repeat the response.
    ("generation_id", Field::Id),
    ("index", Field::Choice),
    ("text", Field::Text(Part::Text)),
    ("finish_reason", Field::StopReason),
    ("generations.*.text", Field::FullText),
    ("generations.*.finish_reason", Field::StopReason),
    ("tool_call_delta.index", Field::CallIndex),
    ("tool_call_delta.parameters{}", Field::Arguments),
    ("tool_calls.*.parameters{}", Field::FullArguments),
    // Jurassic.
    ("completions.*.data.text", Field::Text(Part::Text)),
    ("completions.*.finishReason.reason", Field::StopReason),
    // TGI and servers that follow it.
    ("token.text", Field::Token),
    ("token.special", Field::SpecialToken),
    ("generated_text", Field::FullText),
    ("generated_texts.*", Field::Text(Part::Text)),
    ("details.finish_reason", Field::StopReason),
    ("details.generated_tokens", Field::Count(Counter::Output)),
    ("", Field::Report),
]);

pub fn reader(failed: bool) -> TableReader {
    TABLE.reader(&RequestFacts::default(), failed)
}
