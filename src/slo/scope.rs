//! Which exchanges an objective is about.

use crate::label::{Label, Pattern};
use crate::record::{Call, Record};
use crate::slo::Scope;

/// A [`Scope`] made ready for matching.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    route: Option<Label>,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::Name;
    use crate::slo::example::stream;

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
