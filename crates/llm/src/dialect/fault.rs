//! What a body that is read as it goes by says of an error: its kind, never its message, which is content.
//!
//! Gateways and clouds put errors of their own in place of the API's: every shape is looked for in every body.

use super::failure::identifier;
use super::json::Step::{At, Key};
use super::json::{Short, Step, Value};

/// Every key on the way to the kind of an error.
#[cfg(test)]
pub const KEYS: [&str; 7] = ["error", "type", "code", "status", "__type", "ErrorCode", "Output"];

/// An error, as far as it has been read.
#[derive(Debug, Default)]
pub struct Fault {
    short: Short,
    seen: bool,
    /// The most particular word for it so far, and how particular that is: the less the better.
    best: Option<(u8, String)>,
}

impl Fault {
    /// Takes one value of the body.
    pub fn take(&mut self, path: &[Step], value: Value<'_>) {
        let rank = match path {
            [Key("error")] => {
                self.seen |= matches!(value, Value::Object | Value::Text(_));
                return;
            }
            [Key("errors"), At(_)] => {
                self.seen |= value == Value::Object;
                return;
            }
            [Key("error"), Key("type")] | [Key("errors"), At(0), Key("type")] => 0,
            // Google: a word, beside a number.
            [Key("error"), Key("status")] => 1,
            [Key("error"), Key("code")] | [Key("errors"), At(0), Key("code")] => 2,
            // AWS, and how it answers what it cannot route.
            [Key("__type")] | [Key("Output"), Key("__type")] => 3,
            // SageMaker, and TGI.
            [Key("ErrorCode" | "error_type")] => 4,
            [Key("type")] => 5,
            [Key("code")] => 6,
            _ => return,
        };
        let Some(word) = self.short.word(value) else {
            return;
        };
        self.seen |= matches!(rank, 3 | 4) || (rank == 5 && word == "error");
        let kind = match rank {
            3 => short_name(&word),
            _ => &word,
        };
        // `{"type": "error"}` says that it is one, not which.
        let says = identifier(kind).is_some() && !(rank == 5 && kind == "error");
        if says && self.best.as_ref().is_none_or(|(best, _)| rank < *best) {
            self.best = Some((rank, kind.to_owned()));
        }
    }

    /// Whether the body is one, whatever its status.
    pub const fn is_one(&self) -> bool {
        self.seen
    }

    pub fn kind(&self) -> Option<&str> {
        self.best.as_ref().map(|(_, kind)| kind.as_str())
    }
}

/// AWS qualifies its names: `com.amazon.coral.service#ThrottlingException`, `ThrottlingException:http://…`.
fn short_name(name: &str) -> &str {
    let name = name.rsplit_once('#').map_or(name, |(_, name)| name);
    name.split_once(':').map_or(name, |(name, _)| name)
}

/// The path without the list that some wrap an answer or an error in.
pub fn unwrapped(path: &[Step]) -> &[Step] {
    match path {
        [At(0), rest @ ..] => rest,
        _ => path,
    }
}
