//! Limits untrusted text before it reaches telemetry: the length of names, and the number of label values of metrics.
//!
//! A client can send a million different model names. On a span, they are harmless once their length is limited
//! ([`Name`]). As a metric label, each name would create a permanent time series. Every untrusted label value therefore
//! passes through a [`CardinalityLimiter`], which admits a limited number of values per dimension and replaces all
//! others by `other`. A [`GlobPattern`] matches names in the configuration.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounded::Int;
use crate::sync::lock;

/// Defines an enum whose variants are label values. Implements `ALL`, the variants in the given order, and `as_str`,
/// which returns the label value of a variant.
#[macro_export]
macro_rules! label_enum {
    (
        $(#[$about:meta])*
        $visibility:vis enum $type:ident { $($(#[$variant_about:meta])* $variant:ident = $label:literal,)+ }
    ) => {
        $(#[$about])*
        $visibility enum $type {
            $($(#[$variant_about])* $variant,)+
        }

        impl $type {
            pub const ALL: [Self; [$($label),+].len()] = [$(Self::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $label),+
                }
            }
        }
    };
}

/// Maximum length in bytes of untrusted text. Bedrock model names (ARNs) and names of fine-tuned models reach about
/// 200.
pub const MAX_NAME_BYTES: usize = 256;

/// Label value that replaces all values beyond the limit.
pub const OTHER: &str = "other";

/// Untrusted text for spans, logs and the admin page `/streams`: at most [`MAX_NAME_BYTES`] bytes, without control
/// characters.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Name(Box<str>);

impl Name {
    /// Truncates `text` at a character boundary and replaces control characters with U+FFFD. Returns `None` if `text`
    /// is empty.
    pub fn new(text: &str) -> Option<Self> {
        cleaned(text).map(|text| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns the text of a [`Name`].
pub(crate) fn cleaned(text: &str) -> Option<Cow<'_, str>> {
    let mut end = text.len().min(MAX_NAME_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let kept = text.get(..end).filter(|kept| !kept.is_empty())?;
    // Most names are printable ASCII. A look at their bytes is faster than a look at their characters.
    let is_plain = kept.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_plain || !kept.chars().any(char::is_control) {
        return Some(kept.into());
    }
    let replaced = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    Some(kept.chars().map(replaced).collect())
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A label value of a metric. The value is a constant, comes from the configuration, or was admitted by a
/// [`CardinalityLimiter`]. Cloning is cheap, because clones share the text.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Label(Arc<str>);

impl Label {
    /// Creates a label from a constant or a configured value. Such values are few, so the cardinality limit does not
    /// apply.
    pub fn from_trusted(text: &str) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

label_enum! {
    /// The kind of a label value. Each kind has its own limit on the number of distinct values.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub enum Dimension {
        ErrorType = "error_type",
        FinishReason = "finish_reason",
        Model = "model",
        Provider = "provider",
        Tenant = "tenant",
        Tool = "tool",
        Variant = "variant",
    }
}

/// At most 1,000 values of one label. The values of all labels multiply, and more would overload a backend.
type LabelLimit<const DEFAULT: u64> = Int<1, 1_000, DEFAULT>;

/// Maximum number of distinct untrusted values per dimension, and optional additional labels.
// By default, 100 models with 4 operations, streaming or not, give 800 series. This is less than the OpenTelemetry SDK's
// limit of 2,000 series per instrument. Providers use a few dozen error codes and finish reasons. There are few tenants,
// because each has a contract or a budget. A comparison usually covers two or three variants at a time. An agent uses
// dozens of tools.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct CardinalityLimits {
    /// Distinct models.
    pub models: LabelLimit<100>,
    /// Distinct providers.
    pub providers: LabelLimit<32>,
    /// Distinct finish reasons.
    pub finish_reasons: LabelLimit<32>,
    /// Distinct error types.
    pub error_types: LabelLimit<64>,
    /// Distinct tenants.
    pub tenants: LabelLimit<100>,
    /// Distinct variants.
    pub variants: LabelLimit<16>,
    /// Distinct tools and prompts of MCP servers.
    pub tools: LabelLimit<100>,
    /// Whether output rate, total rate and the times to each timestamp also have the labels
    /// `tokengauge.input_length_bucket` and `tokengauge.output_length_bucket` (length of prompt and response). Calls
    /// have no bucket once histograms take 3 MiB of [the scrape page](telemetry.md#cardinality).
    pub length_buckets: bool,
}

impl CardinalityLimits {
    fn limit(&self, dimension: Dimension) -> usize {
        match dimension {
            Dimension::ErrorType => self.error_types.get(),
            Dimension::FinishReason => self.finish_reasons.get(),
            Dimension::Model => self.models.get(),
            Dimension::Provider => self.providers.get(),
            Dimension::Tenant => self.tenants.get(),
            Dimension::Tool => self.tools.get(),
            Dimension::Variant => self.variants.get(),
        }
    }
}

/// The admitted values of one dimension, for the admin port. Shows which values are in use and how full the limit is.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Admitted {
    pub dimension: &'static str,
    /// Maximum number of values.
    pub limit: usize,
    /// Number of times a value was replaced by [`OTHER`].
    pub other: u64,
    pub values: Vec<Label>,
}

/// Number of uses after which a value may take a reserved place. A request uses a model name twice: once from the
/// request and once from the response.
const FREQUENT_USES: usize = 8;

/// Limits the number of untrusted values of each label, because every new value creates permanent series.
///
/// An admitted value stays admitted. Three quarters of the limit are filled in order of arrival. The last quarter is
/// reserved for values that are used often, so that many names that are used once do not exclude a name that is used
/// all the time.
#[derive(Debug)]
pub struct CardinalityLimiter {
    /// In the order of [`Dimension::ALL`].
    sets: [LabelSet; Dimension::ALL.len()],
}

/// The values of one dimension.
#[derive(Debug)]
struct LabelSet {
    limit: usize,
    values: Mutex<LabelValues>,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct LabelValues {
    admitted: HashSet<Label>,
    /// Number of uses of each value that is not admitted yet. When the map is full, a new value reduces all counts by
    /// one (the algorithm of Misra and Gries). Only values that are used often therefore stay in the map.
    waiting: HashMap<Label, usize>,
}

impl LabelSet {
    fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl LabelValues {
    /// Returns whether a new value may be admitted. If only reserved places are free, counts the use and admits only a
    /// frequent value.
    fn has_place(&mut self, text: &str, limit: usize) -> bool {
        let is_full = self.admitted.len() >= limit;
        if is_full || self.admitted.len() < limit - limit / 4 {
            return !is_full;
        }
        if let Some(uses) = self.waiting.get_mut(text) {
            *uses += 1;
            let is_frequent = *uses >= FREQUENT_USES;
            if is_frequent {
                self.waiting.remove(text);
            }
            return is_frequent;
        }
        if self.waiting.len() < limit {
            self.waiting.insert(Label::from_trusted(text), 1);
        } else {
            self.waiting.retain(|_, uses| {
                *uses -= 1;
                *uses > 0
            });
        }
        false
    }
}

impl CardinalityLimiter {
    /// Creates a limiter. The `reserved` values come from the configuration and are always admitted.
    pub fn new(
        limits: CardinalityLimits,
        reserved: impl IntoIterator<Item = (Dimension, Label)>,
    ) -> Self {
        let sets = Dimension::ALL.map(|dimension| LabelSet {
            limit: limits.limit(dimension),
            values: Mutex::default(),
            refused: AtomicU64::new(0),
        });
        let limiter = Self { sets };
        for (dimension, label) in reserved {
            lock(&limiter.set(dimension).values).admitted.insert(label);
        }
        limiter
    }

    /// Returns the label for `text`. A new value is admitted if the limit allows it. If not, the function returns
    /// [`OTHER`] and counts the refusal.
    pub fn admit(&self, dimension: Dimension, text: &Name) -> Label {
        let set = self.set(dimension);
        let mut values = lock(&set.values);
        if let Some(known) = values.admitted.get(text.as_str()) {
            return known.clone();
        }
        if !values.has_place(text.as_str(), set.limit) {
            set.refused.fetch_add(1, Ordering::Relaxed);
            return Label::from_trusted(OTHER);
        }
        let label = Label::from_trusted(text.as_str());
        values.admitted.insert(label.clone());
        label
    }

    /// Returns the label for `text` if the value is already admitted. Never admits a new value, because the name may be
    /// invalid until an upstream has accepted it.
    pub fn get(&self, dimension: Dimension, text: &Name) -> Option<Label> {
        lock(&self.set(dimension).values).admitted.get(text.as_str()).cloned()
    }

    /// Returns how many times a value was refused since the process started, for each dimension.
    pub fn refused(&self) -> [(Dimension, u64); Dimension::ALL.len()] {
        Dimension::ALL.map(|dimension| (dimension, self.set(dimension).refused()))
    }

    /// Returns the admitted values of every dimension, sorted alphabetically.
    pub fn admitted(&self) -> [Admitted; Dimension::ALL.len()] {
        Dimension::ALL.map(|dimension| {
            let set = self.set(dimension);
            let mut values: Vec<Label> = lock(&set.values).admitted.iter().cloned().collect();
            values.sort_unstable();
            Admitted {
                dimension: dimension.as_str(),
                limit: set.limit,
                other: set.refused(),
                values,
            }
        })
    }

    fn set(&self, dimension: Dimension) -> &LabelSet {
        let [error_type, finish_reason, model, provider, tenant, tool, variant] = &self.sets;
        match dimension {
            Dimension::ErrorType => error_type,
            Dimension::FinishReason => finish_reason,
            Dimension::Model => model,
            Dimension::Provider => provider,
            Dimension::Tenant => tenant,
            Dimension::Tool => tool,
            Dimension::Variant => variant,
        }
    }
}

/// Allows lookups of a `&str` in a set of labels, without creating a label.
impl std::borrow::Borrow<str> for Label {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A pattern such as `gpt-*`, in which `*` matches any text, including empty text. The case of ASCII letters is
/// ignored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GlobPattern {
    /// The literal text before, between and after the `*` characters, in lower case. `gpt-*-mini` has the pieces `gpt-`
    /// and `-mini`.
    pieces: Box<[Box<[u8]>]>,
}

impl GlobPattern {
    pub fn new(pattern: &str) -> Self {
        let piece = |piece: &str| piece.to_ascii_lowercase().into_bytes().into();
        Self { pieces: pattern.split('*').map(piece).collect() }
    }

    /// Returns whether the pattern matches the whole text. It is sufficient to find each inner piece once, so the
    /// search never backtracks.
    pub fn matches(&self, text: &str) -> bool {
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

    /// Returns a sort key to choose between several matching patterns. A more specific pattern has a greater key: it
    /// has more literal characters, or the same number and fewer `*`.
    pub fn specificity(&self) -> (usize, Reverse<usize>) {
        let letters = self.pieces.iter().map(|piece| piece.len()).sum();
        (letters, Reverse(self.pieces.len()))
    }
}

/// Writes the pattern with ASCII letters in lower case.
impl fmt::Display for GlobPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, piece) in self.pieces.iter().enumerate() {
            if place > 0 {
                f.write_str("*")?;
            }
            f.write_str(&String::from_utf8_lossy(piece))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncates_names_at_a_character_and_removes_control_characters() {
        let long = "é".repeat(MAX_NAME_BYTES);
        let name = Name::new(&long).unwrap();
        assert!(name.as_str().len() <= MAX_NAME_BYTES && long.starts_with(name.as_str()));
        assert_eq!(Name::new("a\r\nb").unwrap().as_str(), "a\u{FFFD}\u{FFFD}b");
        assert_eq!(Name::new(""), None);
    }

    #[test]
    fn values_beyond_the_limit_become_other_and_are_counted() {
        let limits = CardinalityLimits { models: Int::within(2), ..CardinalityLimits::default() };
        let limiter = CardinalityLimiter::new(
            limits,
            [(Dimension::Model, Label::from_trusted("configured"))],
        );
        let label =
            |text: &str| limiter.admit(Dimension::Model, &Name::new(text).unwrap()).to_string();
        assert_eq!(
            [label("a"), label("b"), label("a"), label("configured")],
            ["a", OTHER, "a", "configured"]
        );
        assert_eq!(limiter.refused().map(|(_, n)| n), [0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(limiter.get(Dimension::Model, &Name::new("b").unwrap()), None);
        let [_, _, models, ..] = limiter.admitted();
        let expected = Admitted {
            dimension: "model",
            limit: 2,
            other: 1,
            values: ["a", "configured"].map(Label::from_trusted).to_vec(),
        };
        assert_eq!(models, expected);
    }

    #[test]
    fn a_million_names_take_a_bounded_number_of_labels() {
        let limiter = CardinalityLimiter::new(CardinalityLimits::default(), []);
        for n in 0..1_000_000 {
            limiter.admit(Dimension::Model, &Name::new(&n.to_string()).unwrap());
        }
        assert_eq!(limiter.refused().map(|(_, n)| n), [0, 0, 1_000_000 - 75, 0, 0, 0, 0]);
        assert!(lock(&limiter.set(Dimension::Model).values).waiting.len() <= 100);
    }

    #[test]
    fn names_that_are_used_once_do_not_exclude_a_frequent_one() {
        let limiter = CardinalityLimiter::new(CardinalityLimits::default(), []);
        let label = |text: &str| limiter.admit(Dimension::Model, &Name::new(text).unwrap());
        (0..120).for_each(|n| drop(label(&n.to_string())));
        let uses: Vec<_> = (0..FREQUENT_USES).map(|_| label("real").to_string()).collect();
        assert_eq!(uses.iter().filter(|label| *label == OTHER).count(), FREQUENT_USES - 1);
        assert_eq!(label("real").as_str(), "real");
        // Between two uses of the frequent name, there are ten other names.
        for n in 0..200 {
            (0..10).for_each(|junk| drop(label(&format!("{n} {junk}"))));
            label("second");
        }
        assert_eq!(label("second").as_str(), "second");
        let [_, _, models, ..] = limiter.admitted();
        assert_eq!(models.values.len(), 77);
    }

    #[test]
    fn a_star_matches_any_text() {
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
            assert_eq!(GlobPattern::new(pattern).to_string(), pattern.to_ascii_lowercase());
            let matched = GlobPattern::new(pattern).matches(text);
            assert_eq!(matched, expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn a_pattern_with_more_letters_is_narrower() {
        let specificity = |pattern: &str| GlobPattern::new(pattern).specificity();
        let rising = ["**", "*", "llama*", "*llama-3*", "llama-3*", "llama-3.1"];
        for pair in rising.windows(2) {
            assert!(specificity(pair[0]) < specificity(pair[1]), "{pair:?}");
        }
    }
}
