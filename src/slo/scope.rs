//! Which exchanges an objective is about.

use crate::record::{Call, Record};
use crate::slo::Scope;

/// A [`Scope`] made ready for matching.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    route: Option<crate::label::Label>,
    model: Option<Pattern>,
}

impl Filter {
    pub(super) fn new(scope: &Scope) -> Self {
        let Scope { route, model } = scope;
        Self {
            route: route.clone(),
            model: model.as_deref().map(Pattern::new),
        }
    }

    /// The model is the one that was asked for: that is the name people write into a configuration, and the only one
    /// that failed exchanges have.
    pub(super) fn matches(&self, record: &Record, call: &Call) -> bool {
        let route = self.route.as_ref();
        let model = call.request.model.as_ref();
        let model = model.map_or(call.series.model.as_str(), |name| name.as_str());
        route.is_none_or(|route| *route == record.route.name)
            && self
                .model
                .as_ref()
                .is_none_or(|wanted| wanted.matches(model))
    }
}

/// Text in which `*` stands for any text, also none. ASCII letters match in either case.
#[derive(Clone, Debug)]
struct Pattern {
    /// What stands before the first `*`, between them, and after the last; one piece where there is none.
    pieces: Box<[Box<[u8]>]>,
}

impl Pattern {
    fn new(pattern: &str) -> Self {
        let piece = |piece: &str| piece.to_ascii_lowercase().into_bytes().into();
        Self {
            pieces: pattern.split('*').map(piece).collect(),
        }
    }

    /// The first place of each inner piece is as good as any later one, so nothing is ever tried twice.
    fn matches(&self, text: &str) -> bool {
        let text = text.to_ascii_lowercase();
        let (first, inner, last) = match &*self.pieces {
            [] => return text.is_empty(),
            [whole] => return text.as_bytes() == &**whole,
            [first, inner @ .., last] => (first, inner, last),
        };
        let Some(rest) = text.as_bytes().strip_prefix(&**first) else {
            return false;
        };
        let Some(mut rest) = rest.strip_suffix(&**last) else {
            return false;
        };
        for piece in inner {
            let Some(found) = memchr::memmem::find(rest, piece) else {
                return false;
            };
            rest = rest.get(found + piece.len()..).unwrap_or_default();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::{Label, Name};
    use crate::slo::example::stream;

    #[test]
    fn a_star_stands_for_any_text_anywhere() {
        for (pattern, text, expected) in [
            ("gpt-4o", "gpt-4o", true),
            ("gpt-4o", "gpt-4o-mini", false),
            ("gpt-4o*", "gpt-4o-mini", true),
            ("gpt-4o*", "gpt-4o", true),
            ("*mini", "gpt-4o-mini", true),
            ("*mini", "gpt-4o-mini-tts", false),
            ("*llama*70b*", "meta/llama-3.3-70b-instruct", true),
            ("*llama*70b*", "70b-llama", false),
            ("a*b*c", "abc", true),
            ("a*b*c", "ac", false),
            ("ab*ba", "aba", false),
            ("ab*ba", "abba", true),
            ("**", "", true),
            ("*", "anything", true),
            ("", "", true),
            ("", "x", false),
            ("GPT-*", "gpt-4O", true),
            ("gpt-*", "GPT-4o", true),
            ("*é*", "café", true),
        ] {
            let matched = Pattern::new(pattern).matches(text);
            assert_eq!(matched, expected, "{pattern} on {text}");
        }
    }

    fn in_scope(route: Option<&str>, model: Option<&str>, record: &Record) -> bool {
        let scope = Scope {
            route: route.map(Label::known),
            model: model.map(str::to_owned),
        };
        Filter::new(&scope).matches(record, record.call.as_ref().unwrap())
    }

    #[test]
    fn an_empty_scope_takes_all_and_a_full_one_wants_both() {
        let record = stream();
        assert!(in_scope(None, None, &record));
        assert!(in_scope(Some("default"), None, &record));
        assert!(!in_scope(Some("Default"), None, &record));
        assert!(in_scope(Some("default"), Some("gpt-*"), &record));
        assert!(!in_scope(Some("default"), Some("claude-*"), &record));
        assert!(!in_scope(Some("other"), Some("gpt-*"), &record));
    }

    #[test]
    fn the_model_is_the_one_asked_for_and_else_its_label() {
        let mut record = stream();
        assert!(!in_scope(None, Some("gpt-4o-2024*"), &record));
        let call = record.call.as_mut().unwrap();
        call.request.model = Name::new("team/gpt-4o");
        assert!(in_scope(None, Some("team/*"), &record));
        let call = record.call.as_mut().unwrap();
        call.request.model = None;
        assert!(in_scope(None, Some("gpt-4o"), &record));
    }
}
