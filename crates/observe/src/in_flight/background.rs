//! Remembers responses that providers generate in the background.
//!
//! A client starts such a response with one request and fetches it with others, its *polls*. The usage is in the first
//! poll after the end of the response. Later polls repeat it.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use tokengauge_llm::dialect::Operation;
use tokengauge_measure::record::Record;

/// Maximum number of remembered responses. The oldest one is forgotten first, and its tokens are then not counted. At
/// one response per second, which takes minutes, a thousand are pending. Each takes about 20 bytes.
const MAX_PENDING: usize = 16_384;

/// The responses whose usage was not counted yet, as hashes of their ids.
#[derive(Debug, Default)]
pub(super) struct BackgroundResponses {
    pending: HashSet<u64, BuildHasherDefault<DefaultHasher>>,
    /// In order of their start. Can contain responses that were counted since.
    order: VecDeque<u64>,
}

impl BackgroundResponses {
    /// Remembers the response that the call of `record` started. If the call fetched a response that is remembered,
    /// and its usage is known, the call gets this usage.
    pub(super) fn settle(&mut self, record: &mut Record) {
        let Some(call) = &mut record.call else { return };
        let Some(id) = &call.response_id else { return };
        let key = self.pending.hasher().hash_one(id.as_str());
        if call.series.operation == Operation::FetchResponse {
            let fetched = call.fetched_usage.take().filter(|_| self.pending.remove(&key));
            call.usage = fetched.map(|usage| *usage);
        } else if call.request.background && call.usage.is_none() {
            self.insert(key);
        }
    }

    fn insert(&mut self, key: u64) {
        if !self.pending.insert(key) {
            return;
        }
        if self.order.len() == MAX_PENDING
            && let Some(oldest) = self.order.pop_front()
        {
            self.pending.remove(&oldest);
        }
        self.order.push_back(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_a_bounded_number_of_responses() {
        let mut responses = BackgroundResponses::default();
        for key in 0..100_000 {
            responses.insert(key);
            responses.insert(key);
        }
        assert_eq!((responses.pending.len(), responses.order.len()), (MAX_PENDING, MAX_PENDING));
        assert!(!responses.pending.contains(&0) && responses.pending.contains(&99_999));
    }
}
