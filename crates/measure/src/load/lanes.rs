//! Number of requests in each phase, by route key.

use crate::load::{Load, RequestPhase, RouteKey, RouteReading, queue_depth};

/// Maximum number of route keys, ten times the routes of the largest expected configuration. At the limit, keys without
/// requests in flight are removed. Only repeated reloads that rename routes can reach the limit.
const MOST_LANES: usize = 1_024;

impl Load {
    /// Registers a route key before its first request, so that its gauges report 0 instead of being absent.
    pub fn know(&mut self, lane: &RouteKey) {
        self.active(lane);
    }

    pub fn enter(&mut self, lane: &RouteKey, state: RequestPhase) {
        *self.count(lane, state) += 1;
    }

    pub fn shift(&mut self, lane: &RouteKey, from: RequestPhase, to: RequestPhase) {
        self.leave(lane, from);
        self.enter(lane, to);
    }

    /// Records that a request left a phase. If the count of this phase is already 0, the caller has a bug. The count
    /// then stays 0 instead of wrapping to 2⁶⁴ − 1.
    pub fn leave(&mut self, lane: &RouteKey, state: RequestPhase) {
        let count = self.count(lane, state);
        debug_assert!(*count > 0, "{lane:?} has nothing {state:?} to leave");
        *count = count.saturating_sub(1);
    }

    /// Returns queued requests + streams before their first token.
    pub fn queue_depth(&self, lane: &RouteKey) -> u64 {
        self.lanes.get(lane).map_or(0, queue_depth)
    }

    /// Returns the queue depth including a request that is now in phase `state`. The request counts in any phase,
    /// because it waits for its first token.
    pub fn queue_depth_with(&self, lane: &RouteKey, state: RequestPhase) -> u64 {
        let is_counted = match state {
            RequestPhase::Queued | RequestPhase::Waiting => true,
            RequestPhase::Streaming | RequestPhase::Unstreamed => false,
        };
        self.queue_depth(lane) + u64::from(!is_counted)
    }

    /// Returns all route keys, sorted by name.
    pub(super) fn route_readings(&self) -> Vec<RouteReading> {
        let reading = |(lane, active): (&RouteKey, &[u64; RequestPhase::ALL.len()])| RouteReading {
            lane: lane.clone(),
            active: *active,
            silence: Default::default(),
            backend_waiting: None,
        };
        let mut lanes: Vec<_> = self.lanes.iter().map(reading).collect();
        lanes.sort_by(|a, b| {
            let key = |lane: &RouteKey| (lane.route.clone(), lane.position.as_str());
            key(&a.lane).cmp(&key(&b.lane))
        });
        lanes
    }

    fn count(&mut self, lane: &RouteKey, state: RequestPhase) -> &mut u64 {
        let [queued, waiting, streaming, unstreamed] = self.active(lane);
        match state {
            RequestPhase::Queued => queued,
            RequestPhase::Waiting => waiting,
            RequestPhase::Streaming => streaming,
            RequestPhase::Unstreamed => unstreamed,
        }
    }

    fn active(&mut self, lane: &RouteKey) -> &mut [u64; RequestPhase::ALL.len()] {
        if self.lanes.len() >= MOST_LANES && !self.lanes.contains_key(lane) {
            self.lanes.retain(|_, active| active.iter().any(|count| *count > 0));
        }
        self.lanes.entry(lane.clone()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_types::event::ProxyPosition;
    use tokengauge_types::label::Label;

    fn lane(route: &str) -> RouteKey {
        RouteKey { route: Label::known(route), position: ProxyPosition::Outbound }
    }

    #[test]
    fn an_exchange_is_in_one_state_at_a_time() {
        let mut lanes = Load::default();
        let chat = lane("chat");
        lanes.enter(&chat, RequestPhase::Queued);
        lanes.enter(&chat, RequestPhase::Waiting);
        lanes.enter(&chat, RequestPhase::Unstreamed);
        assert_eq!(lanes.route_readings()[0].active, [1, 1, 0, 1]);
        assert_eq!(lanes.queue_depth(&chat), 2, "what is not streamed is outside");
        lanes.leave(&chat, RequestPhase::Waiting);
        lanes.enter(&chat, RequestPhase::Streaming);
        assert_eq!(lanes.route_readings()[0].active, [1, 0, 1, 1]);
        assert_eq!((lanes.queue_depth(&chat), lanes.queue_depth(&lane("unknown"))), (1, 0));
    }

    #[test]
    fn a_known_lane_is_reported_as_zero_before_and_after_its_exchanges() {
        let mut lanes = Load::default();
        lanes.know(&lane("b"));
        lanes.enter(&lane("a"), RequestPhase::Streaming);
        lanes.leave(&lane("a"), RequestPhase::Streaming);
        let told: Vec<_> = lanes
            .route_readings()
            .into_iter()
            .map(|reading| (reading.lane.route.to_string(), reading.active))
            .collect();
        assert_eq!(
            told,
            [("a".to_owned(), [0; 4]), ("b".to_owned(), [0; 4])],
            "in the order of their names"
        );
    }

    #[test]
    fn beyond_the_limit_lanes_without_exchanges_are_removed() {
        let mut lanes = Load::default();
        lanes.enter(&lane("busy"), RequestPhase::Waiting);
        for number in 0..2 * MOST_LANES {
            lanes.know(&lane(&number.to_string()));
            assert!(lanes.lanes.len() <= MOST_LANES);
        }
        assert_eq!(lanes.queue_depth(&lane("busy")), 1);
    }
}
