//! Token counts: `usage` of the second version, `meta` of the first, and what others call them in answers to reranking.

use serde::Deserialize;

use crate::dialect::json::Step;
use crate::dialect::lenient::{Count, Object};
use crate::dialect::{ByModality, Usage};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RawUsage {
    tokens: Object<Units>,
    billed_units: Object<Units>,
    cached_tokens: Count,
    /// Jina, Voyage, llama.cpp, vLLM.
    prompt_tokens: Count,
    total_tokens: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Units {
    input_tokens: Count,
    output_tokens: Count,
    reasoning_tokens: Count,
    image_tokens: Count,
}

impl RawUsage {
    /// Takes one number of a usage object that is read piecemeal; `path` is the way to it from that object.
    pub fn set(&mut self, path: &[Step], number: u64) {
        use Step::Key;
        let (units, key) = match path {
            [Key("tokens"), Key(key)] => (&mut self.tokens, key),
            [Key("billed_units"), Key(key)] => (&mut self.billed_units, key),
            [Key("cached_tokens")] => return self.cached_tokens = Count(Some(number)),
            [Key("prompt_tokens")] => return self.prompt_tokens = Count(Some(number)),
            [Key("total_tokens")] => return self.total_tokens = Count(Some(number)),
            _ => return,
        };
        let units = units.0.get_or_insert_default();
        let field = match *key {
            "input_tokens" => &mut units.input_tokens,
            "output_tokens" => &mut units.output_tokens,
            "reasoning_tokens" => &mut units.reasoning_tokens,
            "image_tokens" => &mut units.image_tokens,
            _ => return,
        };
        *field = Count(Some(number));
    }

    /// The counts of a generation; `None` where there are none.
    pub fn generated(&self) -> Option<Usage> {
        let tokens = self.tokens.0.as_ref()?;
        some(Usage {
            input: tokens.input_tokens.0,
            output: tokens.output_tokens.0,
            reasoning: tokens.reasoning_tokens.0,
            cache_read: self.cached_tokens.0,
            ..Usage::default()
        })
    }

    /// The counts of what only takes in: embeddings, reranking.
    pub fn taken_in(&self) -> Option<Usage> {
        let units = self.tokens.0.as_ref().or(self.billed_units.0.as_ref());
        let text = units.and_then(|units| units.input_tokens.0);
        let image = units.and_then(|units| units.image_tokens.0);
        let both = text.unwrap_or(0).saturating_add(image.unwrap_or(0));
        let input_by = image.map_or_else(ByModality::default, |image| ByModality {
            text,
            image: Some(image),
            ..ByModality::default()
        });
        some(Usage {
            input: text.or(image).map(|_| both).or(self.prompt_tokens.0).or(self.total_tokens.0),
            input_by,
            ..Usage::default()
        })
    }
}

fn some(usage: Usage) -> Option<Usage> {
    (usage != Usage::default()).then_some(usage)
}
