//! Splits batches into export requests that a collector accepts. Collectors limit the size of a request, and reject a
//! larger one as a whole.

use crate::export_counters::DropReason;
use crate::otlp::ExportError;
use crate::queue::Queue;

/// Takes the next batch from a queue and exports it. Counts the items that are dropped. Returns whether the collector
/// accepted the batch, or `None` if the queue is empty.
///
/// Most batches fit into one request. A batch that does not fit is halved until its parts fit. An item that alone is too
/// large is dropped.
pub async fn export<T>(
    queue: &Queue<T>,
    mut request: impl AsyncFnMut(&[T]) -> Result<(), ExportError>,
) -> Option<bool> {
    let batch = queue.take();
    if batch.is_empty() {
        return None;
    }
    let mut delivered = true;
    let mut parts = vec![batch.as_slice()];
    while let Some(part) = parts.pop() {
        match request(part).await {
            Ok(()) => {}
            Err(ExportError::TooLarge) if part.len() > 1 => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
                continue;
            }
            Err(ExportError::TooLarge) => queue.count_dropped(DropReason::TooLarge, 1),
            Err(ExportError::Failed { .. }) => {
                queue.count_dropped(DropReason::Failed, part.len());
                delivered = false;
            }
        }
        queue.finish(part.len());
    }
    Some(delivered)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::{BatchConfig, Signal};
    use crate::export_counters::ExportCounters;

    /// Exports items of that many bytes in requests with a header of two bytes. Returns the number of items and bytes of
    /// each request, and the number of items that are too large.
    fn sizes(items: &[usize], limit: usize) -> (Vec<(usize, usize)>, u64) {
        let counters = Arc::new(ExportCounters::default());
        let queue = Queue::new(Signal::Logs, BatchConfig::LOGS, Arc::clone(&counters));
        items.iter().for_each(|&item| queue.offer(item, 0));
        let mut requests = Vec::new();
        let request = async |items: &[usize]| {
            let bytes = 2 + items.iter().sum::<usize>();
            if bytes > limit {
                return Err(ExportError::TooLarge);
            }
            requests.push((items.len(), bytes));
            Ok(())
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let delivered = runtime.block_on(export(&queue, request));
        assert_eq!(delivered, (!items.is_empty()).then_some(true));
        (requests, counters.dropped(Signal::Logs, DropReason::TooLarge))
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
