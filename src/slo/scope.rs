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
