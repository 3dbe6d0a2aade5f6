//! The encodings this program carries: where their tables lie in the binary, and counting a whole text at once.

use super::split::Splitter;
use super::table::Vocabulary;

/// How a family of models cuts text into tokens.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Encoding {
    /// Of GPT-4o, the o series and everything since; also the yardstick that makes models of all vendors comparable.
    O200k,
    /// Of GPT-3.5 and GPT-4.
    Cl100k,
    /// Of the Codex models and the last ones of GPT-3.
    P50k,
    /// Of GPT-2 and the first ones of GPT-3.
    R50k,
}

impl Encoding {
    pub const ALL: [Self; 4] = [Self::O200k, Self::Cl100k, Self::P50k, Self::R50k];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::O200k => "o200k_base",
            Self::Cl100k => "cl100k_base",
            Self::P50k => "p50k_base",
            Self::R50k => "r50k_base",
        }
    }

    /// How many tokens `text` has. Special tokens such as `<|endoftext|>` are ordinary text here: what a model wrote as
    /// text is text.
    pub fn count(self, text: &str) -> u64 {
        self.count_bytes(text.as_bytes())
    }

    pub(super) fn count_bytes(self, text: &[u8]) -> u64 {
        let mut tokens = 0;
        let mut rest = text;
        while let Some((piece, later)) = rest.split_at_checked(self.splitter().first_piece(rest))
            && !piece.is_empty()
        {
            tokens += self.vocabulary().count(piece);
            rest = later;
        }
        tokens
    }

    pub(super) const fn splitter(self) -> &'static Splitter {
        match self {
            Self::O200k => &O200K_SPLITTER,
            Self::Cl100k => &CL100K_SPLITTER,
            Self::P50k | Self::R50k => &P50K_SPLITTER,
        }
    }

    pub(super) const fn vocabulary(self) -> &'static Vocabulary {
        match self {
            Self::O200k => &O200K_VOCABULARY,
            Self::Cl100k => &CL100K_VOCABULARY,
            Self::P50k => &P50K_VOCABULARY,
            Self::R50k => &R50K_VOCABULARY,
        }
    }
}

/// A file that `build.rs` wrote.
macro_rules! table {
    ($name:literal) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/", $name))
    };
}

static O200K_SPLITTER: Splitter =
    Splitter::new(table!("o200k_base.classes"), table!("o200k_base.steps"));
static O200K_VOCABULARY: Vocabulary = Vocabulary::new(
    table!("o200k_base.bytes"),
    table!("o200k_base.ends"),
    table!("o200k_base.slots"),
    table!("o200k_base.pairs"),
);
static CL100K_SPLITTER: Splitter =
    Splitter::new(table!("cl100k_base.classes"), table!("cl100k_base.steps"));
static CL100K_VOCABULARY: Vocabulary = Vocabulary::new(
    table!("cl100k_base.bytes"),
    table!("cl100k_base.ends"),
    table!("cl100k_base.slots"),
    table!("cl100k_base.pairs"),
);

static P50K_SPLITTER: Splitter =
    Splitter::new(table!("p50k_base.classes"), table!("p50k_base.steps"));
static P50K_VOCABULARY: Vocabulary = P50K;
/// p50k is r50k and, behind its end, 24 runs of blanks: for code.
static R50K_VOCABULARY: Vocabulary = P50K.below(50_256);
const P50K: Vocabulary = Vocabulary::new(
    table!("p50k_base.bytes"),
    table!("p50k_base.ends"),
    table!("p50k_base.slots"),
    table!("p50k_base.pairs"),
);
