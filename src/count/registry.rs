//! Which encoding a model has, as far as it is public.

use tiktoken_rs::tokenizer::{Tokenizer, get_tokenizer};

use super::Encoding;

/// The model's own encoding; `None` where it is not known (other vendors do not publish theirs, or not this program's
/// two). Accepts a model's name as providers write it: behind a path (`openai/gpt-4o`), a vendor (`openai.gpt-oss-120b`),
/// before a variant (`gpt-oss:20b`), as a fine-tune (`ft:gpt-4o-mini:acme::id`).
pub fn encoding_of(model: &str) -> Option<Encoding> {
    let name = base_name(model).to_ascii_lowercase();
    if is_newer(&name) {
        return Some(Encoding::O200k);
    }
    match get_tokenizer(&name)? {
        // Harmony is o200k with more special tokens, and special tokens are never in text.
        Tokenizer::O200kBase | Tokenizer::O200kHarmony => Some(Encoding::O200k),
        Tokenizer::Cl100kBase => Some(Encoding::Cl100k),
        Tokenizer::P50kBase | Tokenizer::R50kBase | Tokenizer::P50kEdit | Tokenizer::Gpt2 => None,
    }
}

/// The name without what stands around it.
fn base_name(model: &str) -> &str {
    let (_, name) = model.rsplit_once('/').unwrap_or(("", model));
    let name = name.strip_prefix("ft:").unwrap_or(name);
    let (name, _) = name.split_once(':').unwrap_or((name, ""));
    name.strip_prefix("openai.").unwrap_or(name)
}

/// Whether it belongs to a family that tiktoken-rs does not list, or lists only in part. OpenAI has used o200k for every
/// model since GPT-4o, so its later numbers are taken to have it as well.
fn is_newer(name: &str) -> bool {
    let number = |prefix: &str| {
        let rest = name.strip_prefix(prefix)?;
        let (digits, after) = rest.split_at(
            rest.find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len()),
        );
        let ends = after.is_empty() || after.starts_with(['-', '.', '_']);
        digits.parse::<u32>().ok().filter(|_| ends)
    };
    number("gpt-").is_some_and(|number| (5..=30).contains(&number))
        || number("o").is_some_and(|number| (1..=30).contains(&number))
        || name == "gpt-oss"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_have_the_encoding_that_tiktoken_names() {
        for model in [
            "gpt-4o",
            "gpt-4o-mini-2024-07-18",
            "gpt-4.1-nano",
            "gpt-4.5-preview",
            "gpt-5",
            "gpt-5.4-mini",
            "chatgpt-4o-latest",
            "o1",
            "o3-mini",
            "o4-mini",
            "codex-mini-latest",
            "gpt-oss-120b",
        ] {
            assert_eq!(encoding_of(model), Some(Encoding::O200k), "{model}");
        }
        for model in [
            "gpt-4",
            "gpt-4-turbo",
            "gpt-4-0613",
            "gpt-3.5-turbo",
            "gpt-3.5-turbo-0125",
            "gpt-35-turbo",
            "gpt-35-turbo-16k",
            "text-embedding-3-small",
            "davinci-002",
        ] {
            assert_eq!(encoding_of(model), Some(Encoding::Cl100k), "{model}");
        }
    }

    #[test]
    fn later_numbers_of_known_families_are_taken_along() {
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
        ] {
            assert_eq!(encoding_of(model), Some(Encoding::O200k), "{model}");
        }
    }

    #[test]
    fn what_stands_around_a_name_does_not_matter() {
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
            assert_eq!(encoding_of(model), Some(Encoding::O200k), "{model}");
        }
        for model in [
            "openai/gpt-4",
            "ft:gpt-3.5-turbo-0125:acme:support:a1",
            "azure/gpt-35-turbo",
        ] {
            assert_eq!(encoding_of(model), Some(Encoding::Cl100k), "{model}");
        }
    }

    #[test]
    fn other_models_have_none() {
        for model in [
            "",
            "claude-sonnet-4-5",
            "gemini-2.5-pro",
            "meta-llama/Llama-3.3-70B-Instruct",
            "deepseek-chat",
            "gpt2",
            "text-davinci-003",
            "davinci",
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
            assert_eq!(encoding_of(model), None, "{model}");
        }
    }
}
