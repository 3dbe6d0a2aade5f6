//! Finished requests: the latest ones, and the notable ones of the last 15 minutes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::document::{RecentRequests, Request, RequestLists};

/// Maximum number of requests in a list, as many as a person reads.
pub const PER_LIST: usize = 50;

/// Maximum number of latest requests that can be queried. A request takes about 1.5 KiB, so all take 3 MiB.
pub const MAX_RECENT: usize = 2_000;

/// Maximum number of requests in the result of a query.
pub const MAX_LIMIT: usize = 500;

/// Length of the window of the lists.
const WINDOW_MS: u64 = 15 * 60 * 1_000;

const MINUTE_MS: u64 = 60_000;

/// Finished requests.
#[derive(Debug, Default)]
pub struct FinishedRequests {
    recent: VecDeque<Arc<Request>>,
    slowest: Ranking,
    stalled: Ranking,
    most_expensive: Ranking,
    failed: VecDeque<Arc<Request>>,
}

/// The requests with the highest values of the window. Keeps the [`PER_LIST`] best of each minute: a request that is not
/// among the best of its minute can never be among the best of the window, and a request that leaves the window makes
/// room for one of a later minute.
#[derive(Debug, Default)]
struct Ranking {
    minutes: VecDeque<(u64, Vec<RankedRequest>)>,
}

/// A request and the value by which it is ranked.
type RankedRequest = (f64, Arc<Request>);

/// Selects requests. An absent condition selects all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestQuery {
    pub ended_from_unix_ms: Option<u64>,
    pub ended_to_unix_ms: Option<u64>,
    pub provider: Option<String>,
    pub model: Option<String>,
    pub route: Option<String>,
    pub tenant: Option<String>,
    /// Maximum number of requests in the result.
    pub limit: usize,
}

impl FinishedRequests {
    /// Adds a request that has just ended.
    pub fn record(&mut self, request: Request) {
        let request = Arc::new(request);
        let stalled: f64 = request.stalls.iter().map(|stall| stall.seconds).sum();
        let cost = request.cost.as_ref().map_or(0.0, |cost| cost.amount);
        self.slowest.record(request.duration_seconds.unwrap_or(0.0), &request);
        self.stalled.record(stalled, &request);
        self.most_expensive.record(cost, &request);
        if !matches!(&*request.outcome, "ok" | "cancelled") {
            push_bounded(&mut self.failed, Arc::clone(&request), PER_LIST);
        }
        push_bounded(&mut self.recent, request, MAX_RECENT);
    }

    /// Returns the lists of the window that ends at `now`.
    pub fn lists(&mut self, now_unix_ms: u64) -> RequestLists {
        let from = now_unix_ms.saturating_sub(WINDOW_MS);
        self.failed.retain(|request| request.ended_unix_ms >= from);
        let mut items = BTreeMap::new();
        let mut ids = |requests: Vec<Arc<Request>>| {
            let mut ids = Vec::with_capacity(requests.len());
            for request in requests {
                ids.push(request.id);
                items.insert(request.id, request);
            }
            ids
        };
        RequestLists {
            slowest: ids(self.slowest.best(from)),
            failed: ids(self.failed.iter().rev().map(Arc::clone).collect()),
            stalled: ids(self.stalled.best(from)),
            most_expensive: ids(self.most_expensive.best(from)),
            items,
        }
    }

    /// Returns the latest requests that match `query`, latest first.
    pub fn query(&self, query: &RequestQuery) -> RecentRequests {
        let mut result = RecentRequests::default();
        for request in self.recent.iter().rev().filter(|request| query.matches(request)) {
            if result.items.len() < query.limit {
                result.items.push(Arc::clone(request));
            } else {
                result.left_out += 1;
            }
        }
        result.items.sort_by_key(|request| (Reverse(request.ended_unix_ms), Reverse(request.id)));
        result
    }
}

impl Ranking {
    fn record(&mut self, value: f64, request: &Arc<Request>) {
        if value <= 0.0 {
            return;
        }
        let minute = request.ended_unix_ms / MINUTE_MS;
        if self.minutes.back().is_none_or(|(last, _)| *last < minute) {
            self.minutes.push_back((minute, Vec::new()));
            let oldest = minute.saturating_sub(WINDOW_MS / MINUTE_MS);
            while self.minutes.front().is_some_and(|(first, _)| *first < oldest) {
                self.minutes.pop_front();
            }
        }
        let Some((_, best)) = self.minutes.back_mut() else { return };
        let place = best.partition_point(|(other, _)| *other >= value);
        if place < PER_LIST {
            best.truncate(PER_LIST - 1);
            best.insert(place, (value, Arc::clone(request)));
        }
    }

    fn best(&self, from: u64) -> Vec<Arc<Request>> {
        let all = self.minutes.iter().flat_map(|(_, best)| best);
        let mut all: Vec<_> = all.filter(|(_, request)| request.ended_unix_ms >= from).collect();
        all.sort_by(|(a, one), (b, other)| b.total_cmp(a).then(other.id.cmp(&one.id)));
        all.into_iter().take(PER_LIST).map(|(_, request)| Arc::clone(request)).collect()
    }
}

impl RequestQuery {
    fn matches(&self, request: &Request) -> bool {
        let is = |wanted: &Option<String>, name: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == name)
        };
        self.ended_from_unix_ms.is_none_or(|from| request.ended_unix_ms >= from)
            && self.ended_to_unix_ms.is_none_or(|to| request.ended_unix_ms <= to)
            && is(&self.provider, &request.provider)
            && is(&self.model, &request.model)
            && is(&self.route, &request.route)
            && is(&self.tenant, request.tenant.as_deref().unwrap_or_default())
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, item: T, limit: usize) {
    if queue.len() >= limit {
        queue.pop_front();
    }
    queue.push_back(item);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::document::{ChunkStall, PricedCost};

    fn request(id: u64, ended_unix_ms: u64, seconds: f64) -> Request {
        Request {
            id,
            ended_unix_ms,
            duration_seconds: Some(seconds),
            outcome: "ok".into(),
            model: "m".into(),
            ..Request::default()
        }
    }

    #[test]
    fn lists_are_sorted_bounded_and_have_only_the_window() {
        let mut requests = FinishedRequests::default();
        for id in 0..1_000 {
            requests.record(Request {
                outcome: if id % 3 == 0 { "error" } else { "ok" }.into(),
                stalls: if id % 2 == 0 {
                    vec![ChunkStall { after_seconds: 0.1, seconds: id as f64 }]
                } else {
                    Vec::new()
                },
                cost: (id % 5 == 0).then(|| PricedCost {
                    amount: id as f64,
                    currency: "USD".into(),
                    source: "computed".into(),
                }),
                ..request(id, 1_000_000_000 + id, id as f64)
            });
        }
        let lists = requests.lists(1_000_001_000);
        assert_eq!(lists.slowest[..3], [999, 998, 997]);
        assert_eq!(lists.failed[..3], [999, 996, 993]);
        assert_eq!(lists.stalled[..3], [998, 996, 994]);
        assert_eq!(lists.most_expensive[..3], [995, 990, 985]);
        for list in [&lists.slowest, &lists.failed, &lists.stalled, &lists.most_expensive] {
            assert_eq!(list.len(), PER_LIST);
            assert!(list.iter().all(|id| lists.items[id].id == *id));
        }
        assert_eq!(requests.lists(1_000_000_000 + 2 * WINDOW_MS), RequestLists::default());
    }

    #[test]
    fn a_query_selects_the_latest_and_counts_the_rest() {
        let mut requests = FinishedRequests::default();
        for id in 0..MAX_RECENT as u64 + 500 {
            requests.record(request(id, id, 1.0));
        }
        let query = RequestQuery { limit: 3, ..RequestQuery::default() };
        let all = requests.query(&query);
        assert_eq!(all.items.iter().map(|it| it.id).collect::<Vec<_>>(), [2_499, 2_498, 2_497]);
        assert_eq!(all.left_out, 1_997, "older ones are forgotten");
        let query = RequestQuery {
            ended_from_unix_ms: Some(1_000),
            ended_to_unix_ms: Some(1_001),
            model: Some("m".to_owned()),
            ..query
        };
        assert_eq!(requests.query(&query).items.len(), 2);
        let query = RequestQuery { tenant: Some("a".to_owned()), ..query };
        assert_eq!(requests.query(&query), RecentRequests::default());
    }

    proptest! {
        #[test]
        fn the_ranking_is_exact(values in prop::collection::vec((1_u64..60_000, 1_u32..1_000), 1..600)) {
            let mut ranking = Ranking::default();
            let mut now = 0;
            let mut all = Vec::new();
            for (id, (later, value)) in (0..).zip(values) {
                now += later;
                let request = Arc::new(request(id, now, f64::from(value)));
                ranking.record(f64::from(value), &request);
                all.push((f64::from(value), request));
            }
            let from = now.saturating_sub(WINDOW_MS);
            all.retain(|(_, request)| request.ended_unix_ms >= from);
            all.sort_by(|(a, _), (b, _)| b.total_cmp(a));
            let best = ranking.best(from);
            let expected: Vec<_> = all.iter().take(PER_LIST).map(|(value, _)| *value).collect();
            let found: Vec<_> = best.iter().filter_map(|it| it.duration_seconds).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
