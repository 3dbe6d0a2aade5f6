//! Splits data into export requests that a collector accepts. Collectors limit the size of a request, and reject a
//! larger one as a whole.

use bytes::Bytes;

use crate::export_counters::DropReason;
use crate::queue::Queue;

/// Export requests for a list of items. Each request is at most as large as allowed.
#[derive(Debug, Default, PartialEq)]
pub struct Requests {
    pub requests: Vec<EncodedRequest>,
    /// Number of items that are too large for a request of their own. They are in no request.
    pub too_large: usize,
}

/// One encoded export request, and the number of its items.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedRequest {
    pub items: usize,
    pub body: Bytes,
}

impl Requests {
    /// Encodes all items in requests of at most `limit` bytes. `encode` encodes a request with some of the items.
    ///
    /// Most lists fit into one request. A list that does not fit is halved until its parts fit.
    pub fn encode<T>(items: &[T], limit: usize, encode: &impl Fn(&[T]) -> Vec<u8>) -> Self {
        let mut all = Self::default();
        all.add(items, limit, encode);
        all
    }

    /// Takes the next batch from a queue and encodes it. Counts the items that are too large. Returns `None` if the queue
    /// is empty.
    pub fn take<T>(
        queue: &Queue<T>,
        limit: usize,
        encode: &impl Fn(&[T]) -> Vec<u8>,
    ) -> Option<Vec<EncodedRequest>> {
        let batch = queue.take();
        if batch.is_empty() {
            return None;
        }
        let Self { requests, too_large } = Self::encode(&batch, limit, encode);
        queue.count_dropped(DropReason::TooLarge, too_large);
        queue.finish(too_large);
        Some(requests)
    }

    fn add<T>(&mut self, items: &[T], limit: usize, encode: &impl Fn(&[T]) -> Vec<u8>) {
        if items.is_empty() {
            return;
        }
        let body = encode(items);
        if body.len() <= limit {
            self.requests.push(EncodedRequest { items: items.len(), body: body.into() });
        } else if items.len() == 1 {
            self.too_large += 1;
        } else {
            drop(body);
            let (first, second) = items.split_at(items.len() / 2);
            self.add(first, limit, encode);
            self.add(second, limit, encode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes items as that many bytes, with a header of two bytes.
    fn encode(items: &[usize]) -> Vec<u8> {
        let header = *b"ab";
        header.into_iter().chain(items.iter().flat_map(|&item| vec![b'x'; item])).collect()
    }

    fn sizes(items: &[usize], limit: usize) -> (Vec<(usize, usize)>, usize) {
        let Requests { requests, too_large } = Requests::encode(items, limit, &encode);
        let sizes = requests.iter().map(|request| (request.items, request.body.len()));
        (sizes.collect(), too_large)
    }

    #[test]
    fn requests_stay_within_the_limit_and_contain_each_item_once() {
        assert_eq!(sizes(&[], 10), (vec![], 0));
        assert_eq!(sizes(&[3, 5], 10), (vec![(2, 10)], 0));
        assert_eq!(sizes(&[3, 6], 10), (vec![(1, 5), (1, 8)], 0));
        assert_eq!(sizes(&[1; 8], 4), (vec![(2, 4); 4], 0));
        assert_eq!(sizes(&[1, 9, 1], 10), (vec![(1, 3), (1, 3)], 1), "the second is too large");
    }
}
