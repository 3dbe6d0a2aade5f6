//! Maps model names to encodings, for models whose encoding is public.

use tiktoken_rs::tokenizer::{Tokenizer as Listed, get_tokenizer};

use super::Encoding;

/// Returns the model's own encoding, or `None` if it is unknown. Most providers do not publish their encodings.
///
/// Accepts the spellings of providers: after a path (`openai/gpt-4o`), after a vendor (`openai.gpt-oss-120b`), before a
/// variant (`gpt-oss:20b`), or as a fine-tuned model (`ft:gpt-4o-mini:acme::id`, `davinci:ft-acme-2023-03-01`).
pub fn encoding_for_model(model: &str) -> Option<Encoding> {
    let name = base_name(model).to_ascii_lowercase();
    if is_newer(&name) {
        return Some(Encoding::O200k);
    }
    match get_tokenizer(&name)? {
        // o200k_harmony and p50k_edit have more special tokens than o200k and p50k. Special tokens never occur in text,
        // so the counts are the same.
        Listed::O200kBase | Listed::O200kHarmony => Some(Encoding::O200k),
        Listed::Cl100kBase => Some(Encoding::Cl100k),
        Listed::P50kBase | Listed::P50kEdit => Some(Encoding::P50k),
        Listed::R50kBase | Listed::Gpt2 => Some(Encoding::R50k),
    }
}

/// Returns the model name without path, vendor, variant and additions for a fine-tuned model: `gpt-4o-mini` for
/// `ft:gpt-4o-mini:acme::id`.
fn base_name(model: &str) -> &str {
    let (_, name) = model.rsplit_once('/').unwrap_or(("", model));
    let name = name.strip_prefix("ft:").unwrap_or(name);
    let (name, _) = name.split_once(':').unwrap_or((name, ""));
    name.strip_prefix("openai.").unwrap_or(name)
}

/// Returns whether the model belongs to a family that tiktoken-rs does not list, or lists only with dates. All OpenAI
/// models since GPT-4o use o200k. Models with higher numbers are therefore assumed to use o200k, too.
fn is_newer(name: &str) -> bool {
    let number = |prefix: &str| {
        let rest = name.strip_prefix(prefix)?;
        let (digits, after) =
            rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
        let ends = after.is_empty() || after.starts_with(['-', '.', '_']);
        digits.parse::<u32>().ok().filter(|_| ends)
    };
    number("gpt-").is_some_and(|number| (5..=30).contains(&number))
        || number("o").is_some_and(|number| (1..=30).contains(&number))
        || ["gpt-oss", "gpt-4.5", "chatgpt-4o"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All names and prefixes of tiktoken 0.14.0, and Azure's spellings. Each prefix is completed with a sample suffix.
    const NAMES: [(Encoding, &[&str]); 4] = [
        (
            Encoding::O200k,
            &[
                "o1",
                "o1-preview",
                "o3",
                "o3-mini",
                "o4-mini",
                "o4-mini-2025-04-16",
                "gpt-5",
                "gpt-5-chat-latest",
                "gpt-5.4-mini",
                "gpt-4.5-preview",
                "gpt-4.1",
                "gpt-4.1-nano",
                "gpt-4o",
                "gpt-4o-mini-2024-07-18",
                "chatgpt-4o-latest",
                "codex-mini-latest",
                "gpt-oss-120b",
                "ft:gpt-4o-2024-08-06:acme::id",
            ],
        ),
        (
            Encoding::Cl100k,
            &[
                "gpt-4",
                "gpt-4-turbo",
                "gpt-4-0613",
                "gpt-4-32k",
                "gpt-3.5",
                "gpt-3.5-turbo",
                "gpt-3.5-turbo-0125",
                "gpt-35-turbo",
                "gpt-35-turbo-16k",
                "davinci-002",
                "babbage-002",
                "text-embedding-ada-002",
                "text-embedding-3-small",
                "text-embedding-3-large",
                "ft:gpt-4:acme::id",
                "ft:gpt-3.5-turbo:acme::id",
                "ft:davinci-002:acme::id",
                "ft:babbage-002:acme::id",
            ],
        ),
        (
            Encoding::P50k,
            &[
                "text-davinci-003",
                "text-davinci-002",
                "code-davinci-002",
                "code-davinci-001",
                "code-cushman-002",
                "code-cushman-001",
                "davinci-codex",
                "cushman-codex",
                "text-davinci-edit-001",
                "code-davinci-edit-001",
            ],
        ),
        (
            Encoding::R50k,
            &[
                "text-davinci-001",
                "text-curie-001",
                "text-babbage-001",
                "text-ada-001",
                "davinci",
                "curie",
                "babbage",
                "ada",
                "davinci:ft-acme-2023-03-01",
                "text-similarity-davinci-001",
                "text-similarity-curie-001",
                "text-similarity-babbage-001",
                "text-similarity-ada-001",
                "text-search-davinci-doc-001",
                "text-search-curie-doc-001",
                "text-search-babbage-doc-001",
                "text-search-ada-doc-001",
                "code-search-babbage-code-001",
                "code-search-ada-code-001",
                "gpt2",
                "gpt-2",
                "openai-community/gpt2",
            ],
        ),
    ];

    #[test]
    fn encodings_match_tiktoken() {
        for (encoding, models) in NAMES {
            for model in models {
                assert_eq!(encoding_for_model(model), Some(encoding), "{model}");
            }
        }
    }

    #[test]
    fn later_models_of_known_families_are_recognized() {
        for model in [
            "gpt-6",
            "gpt-6.1-mini",
            "gpt-6_future",
            "gpt-10",
            "o4",
            "o4-pro",
            "o5",
            "o5-mini",
            "gpt-oss",
            "gpt-4.5",
            "chatgpt-4o",
        ] {
            assert_eq!(encoding_for_model(model), Some(Encoding::O200k), "{model}");
        }
    }

    #[test]
    fn affixes_of_a_name_are_ignored() {
        for model in [
            "openai/gpt-4o",
            "openrouter/openai/gpt-4o:free",
            "azure/gpt-4o",
            "ft:gpt-4o-mini-2024-07-18:acme::a1",
            "gpt-oss:20b",
            "openai.gpt-oss-120b-1:0",
            "groq/openai/gpt-oss-20b",
            "GPT-4o",
            "openai/o5-mini",
        ] {
            assert_eq!(encoding_for_model(model), Some(Encoding::O200k), "{model}");
        }
        for model in ["openai/gpt-4", "ft:gpt-3.5-turbo-0125:acme:support:a1", "azure/gpt-35-turbo"]
        {
            assert_eq!(encoding_for_model(model), Some(Encoding::Cl100k), "{model}");
        }
    }

    #[test]
    fn other_models_have_no_encoding() {
        for model in [
            "",
            "claude-sonnet-4-5",
            "gemini-2.5-pro",
            "meta-llama/Llama-3.3-70B-Instruct",
            "deepseek-chat",
            "gpt-neo",
            "gpt-j-6b",
            "o",
            "olmo-2",
            "o1x",
            "gpt-",
            "openai/",
            "ft:",
            ":",
            "gpt-99999999999999999999",
            "qwen3:8b",
        ] {
            assert_eq!(encoding_for_model(model), None, "{model}");
        }
    }
}
