//! Number of requests in each phase, by route key.

use crate::load::{Load, RequestPhase, RouteKey, RouteReading, queue_depth};

/// Maximum number of route keys, ten times the routes of the largest expected configuration. At the limit, keys without
/// requests in flight are removed. Only repeated reloads that rename routes can reach the limit.
const MAX_ROUTE_KEYS: usize = 1_024;

impl Load {
    /// Registers a route key before its first request, so that its gauges report 0 instead of being absent.
    pub fn register(&mut self, route_key: &RouteKey) {
        self.active(route_key);
    }

    pub fn enter(&mut self, route_key: &RouteKey, state: RequestPhase) {
        *self.count(route_key, state) += 1;
    }

    pub fn transition(&mut self, route_key: &RouteKey, from: RequestPhase, to: RequestPhase) {
        self.leave(route_key, from);
        self.enter(route_key, to);
    }

    /// Records that a request left a phase. If the count of this phase is already 0, the caller has a bug. The count
    /// then stays 0 instead of wrapping to 2⁶⁴ − 1.
    pub fn leave(&mut self, route_key: &RouteKey, state: RequestPhase) {
        let count = self.count(route_key, state);
        debug_assert!(*count > 0, "{route_key:?} has nothing {state:?} to leave");
        *count = count.saturating_sub(1);
    }

    /// Returns queued requests + streams before their first token.
    pub fn queue_depth(&self, route_key: &RouteKey) -> u64 {
        self.routes.get(route_key).map_or(0, queue_depth)
    }

    /// Returns the queue depth including a request that is now in phase `state`. The request counts in any phase,
    /// because it waits for its first token.
    pub fn queue_depth_with(&self, route_key: &RouteKey, state: RequestPhase) -> u64 {
        let is_counted = match state {
            RequestPhase::Queued | RequestPhase::Waiting => true,
            RequestPhase::Streaming | RequestPhase::Unstreamed => false,
        };
        self.queue_depth(route_key) + u64::from(!is_counted)
    }

    /// Returns all route keys, sorted by name.
    pub(super) fn route_readings(&self) -> Vec<RouteReading> {
        let reading =
            |(route_key, active): (&RouteKey, &[u64; RequestPhase::ALL.len()])| RouteReading {
                route_key: route_key.clone(),
                active: *active,
                stalled_streams: Default::default(),
                backend_waiting: None,
            };
        let mut routes: Vec<_> = self.routes.iter().map(reading).collect();
        routes.sort_by(|a, b| {
            let key = |route_key: &RouteKey| (route_key.route.clone(), route_key.position.as_str());
            key(&a.route_key).cmp(&key(&b.route_key))
        });
        routes
    }

    fn count(&mut self, route_key: &RouteKey, state: RequestPhase) -> &mut u64 {
        let [queued, waiting, streaming, unstreamed] = self.active(route_key);
        match state {
            RequestPhase::Queued => queued,
            RequestPhase::Waiting => waiting,
            RequestPhase::Streaming => streaming,
            RequestPhase::Unstreamed => unstreamed,
        }
    }

    fn active(&mut self, route_key: &RouteKey) -> &mut [u64; RequestPhase::ALL.len()] {
        if self.routes.len() >= MAX_ROUTE_KEYS && !self.routes.contains_key(route_key) {
            self.routes.retain(|_, active| active.iter().any(|count| *count > 0));
        }
        self.routes.entry(route_key.clone()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_types::event::ProxyPosition;
    use tokengauge_types::label::Label;

    fn route_key(route: &str) -> RouteKey {
        RouteKey { route: Label::from_trusted(route), position: ProxyPosition::Outbound }
    }

    #[test]
    fn an_exchange_is_in_one_state_at_a_time() {
        let mut load = Load::default();
        let chat = route_key("chat");
        load.enter(&chat, RequestPhase::Queued);
        load.enter(&chat, RequestPhase::Waiting);
        load.enter(&chat, RequestPhase::Unstreamed);
        assert_eq!(load.route_readings()[0].active, [1, 1, 0, 1]);
        assert_eq!(load.queue_depth(&chat), 2, "what is not streamed is outside");
        load.leave(&chat, RequestPhase::Waiting);
        load.enter(&chat, RequestPhase::Streaming);
        assert_eq!(load.route_readings()[0].active, [1, 0, 1, 1]);
        assert_eq!((load.queue_depth(&chat), load.queue_depth(&route_key("unknown"))), (1, 0));
    }

    #[test]
    fn a_registered_route_is_reported_as_zero_before_and_after_its_exchanges() {
        let mut load = Load::default();
        load.register(&route_key("b"));
        load.enter(&route_key("a"), RequestPhase::Streaming);
        load.leave(&route_key("a"), RequestPhase::Streaming);
        let readings: Vec<_> = load
            .route_readings()
            .into_iter()
            .map(|reading| (reading.route_key.route.to_string(), reading.active))
            .collect();
        assert_eq!(
            readings,
            [("a".to_owned(), [0; 4]), ("b".to_owned(), [0; 4])],
            "in the order of their names"
        );
    }

    #[test]
    fn beyond_the_limit_routes_without_exchanges_are_removed() {
        let mut load = Load::default();
        load.enter(&route_key("busy"), RequestPhase::Waiting);
        for number in 0..2 * MAX_ROUTE_KEYS {
            load.register(&route_key(&number.to_string()));
            assert!(load.routes.len() <= MAX_ROUTE_KEYS);
        }
        assert_eq!(load.queue_depth(&route_key("busy")), 1);
    }
}
