//! Which tool call of a choice a fragment of arguments belongs to.
//!
//! The format numbers calls by `index`, but some providers leave it out and some send every call under the same one.
//! Then a new id beside a name tells where the next call begins.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::chunk::ToolCall;

/// The most calls that are told apart in one answer; more are counted with the last. Agents ask for a few dozen.
const MOST_CALLS: usize = 256;

#[derive(Debug, Default)]
pub struct Tools {
    calls: Vec<Call>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    choice: u32,
    index: Option<u64>,
    /// A hash: only whether it is the same is asked.
    id: Option<u64>,
}

impl Tools {
    /// The number of the call within its choice, from 0.
    pub fn number(&mut self, choice: u32, fragment: &ToolCall<'_>) -> u32 {
        let index = fragment.index.0;
        let id = fragment.id.some().map(hash);
        let function = fragment.function.0.as_ref().or(fragment.custom.0.as_ref());
        let named = function.is_some_and(|function| function.name.some().is_some());
        let same = |call: &Call| call.choice == choice && (index.is_none() || call.index == index);
        let another = |call: &Call| named && id.is_some() && call.id.is_some() && call.id != id;

        let known = self.calls.iter().rposition(same);
        let continued = known.filter(|at| !self.calls.get(*at).is_some_and(another));
        let position = match continued {
            None if self.calls.len() < MOST_CALLS => {
                self.calls.push(Call { choice, index, id });
                self.calls.len() - 1
            }
            _ => continued.or(known).unwrap_or(MOST_CALLS),
        };
        if let Some(call) = self.calls.get_mut(position) {
            call.id = call.id.or(id);
        }
        let before = self.calls.iter().take(position);
        let number = before.filter(|call| call.choice == choice).count();
        u32::try_from(number).unwrap_or(u32::MAX)
    }
}

fn hash(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}
