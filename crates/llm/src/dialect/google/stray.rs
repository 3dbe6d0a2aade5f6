//! An error that stands among server-sent events as plain JSON, spread over lines: how Google reports that a stream
//! which has begun cannot go on.

use crate::dialect::Event;
use crate::dialect::failure::identifier;
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Short, Skimmer, Step, Value};

const KEYS: [&str; 3] = ["error", "status", "code"];

#[derive(Debug)]
pub struct Stray {
    skimmer: Skimmer,
    error: Error,
}

#[derive(Debug, Default)]
struct Error {
    short: Short,
    status: Option<String>,
    code: Option<String>,
    /// The object in which the error stands is over.
    over: bool,
}

impl Default for Stray {
    fn default() -> Self {
        Self { skimmer: Skimmer::new(&KEYS), error: Error::default() }
    }
}

impl Stray {
    /// Takes the next line, which has lost its end.
    pub fn line(&mut self, line: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let error = &mut self.error;
        let mut take = |path: &[Step], value: Value<'_>| error.take(path, value, out);
        self.skimmer.push(line, &mut take);
        self.skimmer.push(b"\n", &mut take);
        if self.error.over {
            *self = Self::default();
        }
    }
}

impl Error {
    fn take(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        let path = match path {
            [At(0), rest @ ..] => rest,
            _ => path,
        };
        match (path, value) {
            ([Key("error"), Key(key @ ("status" | "code"))], value) => {
                let word = self.short.word(value);
                match *key {
                    "status" => self.status = word.or(self.status.take()),
                    _ => self.code = word.or(self.code.take()),
                }
            }
            ([Key("error")], Value::End | Value::TextEnd) => {
                let words = [&self.status, &self.code];
                let kind = words.into_iter().find_map(|word| identifier(word.as_deref()?));
                out(Event::Failed { kind });
            }
            ([], Value::End) => self.over = true,
            _ => {}
        }
    }
}
