//! Loads the built-in encodings, and counts the tokens of complete texts.

use std::io;
use std::sync::LazyLock;

use flate2::read::DeflateDecoder;
use tokengauge_types::label_enum;

use super::layout::Packed;
use super::split::Splitter;
use super::table::Vocabulary;

label_enum! {
    /// An encoding: the rules by which a family of models divides text into tokens.
    #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub enum Encoding {
        /// The encoding of GPT-4o, the o series and all later models. Also the standard encoding: the text of every
        /// model is counted in it, so that providers can be compared.
        O200k = "o200k_base",
        /// The encoding of GPT-3.5 and GPT-4.
        Cl100k = "cl100k_base",
        /// The encoding of the Codex models and the last GPT-3 models.
        P50k = "p50k_base",
        /// The encoding of GPT-2 and the first GPT-3 models.
        R50k = "r50k_base",
    }
}

impl Encoding {
    /// Returns the number of tokens in `text`. Special tokens such as `<|endoftext|>` count as ordinary text, because
    /// the model generated them as text.
    pub fn count(self, text: &str) -> u64 {
        self.count_bytes(text.as_bytes())
    }

    pub(super) fn count_bytes(self, text: &[u8]) -> u64 {
        self.tables().count(text)
    }

    /// Returns the tables of the encoding. The first call decompresses them, which takes 2 to 14 ms.
    pub(super) fn tables(self) -> &'static Tables {
        match self {
            Self::O200k => &O200K,
            Self::Cl100k => &CL100K,
            Self::P50k => &P50K,
            Self::R50k => &R50K,
        }
    }
}

/// The two tables of an encoding. One splits text into pieces such as words, and the other divides pieces into tokens.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) splitter: Splitter,
    pub(super) vocabulary: Vocabulary,
}

impl Tables {
    pub(super) fn count(&self, text: &[u8]) -> u64 {
        let mut tokens = 0;
        let mut rest = text;
        while let Some((piece, later)) = rest.split_at_checked(self.splitter.first_piece(rest))
            && !piece.is_empty()
        {
            tokens += self.vocabulary.count(piece);
            rest = later;
        }
        tokens
    }

    /// Unpacks the tables. Keeps only the first `ranks` tokens.
    fn unpack(packed: &[u8], ranks: usize) -> io::Result<Self> {
        let Packed { mut lengths, tokens, classes, steps } =
            Packed::read(&mut DeflateDecoder::new(packed))?;
        lengths.truncate(ranks);
        Ok(Self {
            splitter: Splitter::new(&classes, &steps),
            vocabulary: Vocabulary::new(tokens, &lengths),
        })
    }
}

/// Decompresses the tables from a file that `build.rs` created.
macro_rules! unpacked {
    ($name:literal, $ranks:expr) => {
        LazyLock::new(|| {
            let packed = include_bytes!(concat!(env!("OUT_DIR"), "/", $name));
            Tables::unpack(packed, $ranks).unwrap_or_else(|problem| {
                unreachable!("the build script packed {}: {problem}", $name)
            })
        })
    };
}

static O200K: LazyLock<Tables> = unpacked!("o200k_base", usize::MAX);
static CL100K: LazyLock<Tables> = unpacked!("cl100k_base", usize::MAX);
static P50K: LazyLock<Tables> = unpacked!("p50k_base", usize::MAX);
/// p50k consists of the tokens of r50k, followed by 24 tokens for runs of blanks. r50k is therefore the first part of
/// p50k.
static R50K: LazyLock<Tables> = unpacked!("p50k_base", 50_256);
