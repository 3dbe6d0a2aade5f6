//! Numbers the tool calls of a stream.
//!
//! Pieces of a call have an `index`. Some providers leave it out, and others send the same index for every call. In
//! both cases, a new id together with a name begins the next call.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use super::chunk::ToolCall;

/// Maximum number of tool calls of a response that are tracked separately. Agents request a few dozen. Further calls
/// share one number.
const MAX_CALLS: usize = 256;

#[derive(Debug, Default)]
pub struct ToolCalls {
    calls: Vec<Call>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    choice: u32,
    index: Option<u64>,
    /// Hash of the call's id. A hash suffices, because ids are only compared.
    id: Option<u64>,
}

impl ToolCalls {
    /// Returns the number of the call within its choice, counted from 0.
    pub fn number(&mut self, choice: u32, fragment: &ToolCall<'_>) -> u32 {
        let index = fragment.index.0;
        let id = fragment.id.some().map(hash);
        let function = fragment.function.0.as_ref().or(fragment.custom.0.as_ref());
        let is_named = function.is_some_and(|function| function.name.some().is_some());
        let is_same =
            |call: &Call| call.choice == choice && (index.is_none() || call.index == index);
        let is_other = |call: &Call| is_named && id.is_some() && call.id.is_some() && call.id != id;

        let known = self.calls.iter().rposition(is_same);
        let continued = known.filter(|at| !self.calls.get(*at).is_some_and(is_other));
        let position = match continued {
            None if self.calls.len() < MAX_CALLS => {
                self.calls.push(Call { choice, index, id });
                self.calls.len() - 1
            }
            _ => continued.or(known).unwrap_or(MAX_CALLS),
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
    BuildHasherDefault::<DefaultHasher>::default().hash_one(id)
}
