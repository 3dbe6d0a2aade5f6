//! Limits listeners and connection pools so that they fit into the file descriptor limit of the process.
//!
//! Otherwise, clients could use up all file descriptors. The admin port could then not accept the kubelet's probes, and
//! Kubernetes would restart the container.

use tokengauge_listen::ListenerConfig;

/// File descriptors that are reserved: 256 connections of the admin port, three for each of up to 16 workers, listening
/// sockets, files, exporters and scrapes.
const RESERVED: u64 = 352;

/// Part of the remaining file descriptors for client connections and their requests. The rest is for idle connections
/// to upstreams.
const LISTENER_SHARE: (u64, u64) = (7, 8);

/// File descriptors for clients and upstreams.
#[derive(Clone, Copy, Debug)]
pub(super) struct DescriptorBudget {
    /// `None` without a limit.
    available: Option<u64>,
    /// File descriptors for listeners: one per client connection, and one per request for its upstream.
    for_listeners: u64,
}

/// Totals after the limits of listeners were lowered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct LoweredLimits {
    pub(super) max_connections: usize,
    pub(super) max_requests: usize,
}

impl DescriptorBudget {
    /// Lowers the limits of all `listeners` by the same factor, so that they fit into `open_files`, the file
    /// descriptor limit of the process.
    pub(super) fn apply(
        listeners: &mut [ListenerConfig],
        open_files: Option<u64>,
    ) -> (Self, Option<LoweredLimits>) {
        let available = open_files.map(|limit| limit - RESERVED.min(limit / 2));
        let (part, whole) = LISTENER_SHARE;
        let available_for_listeners =
            available.map_or(u64::MAX, |available| available * part / whole);
        let wanted = needed(listeners);
        if wanted <= available_for_listeners {
            return (Self { available, for_listeners: wanted }, None);
        }
        let lower = |limit: &mut usize| {
            let lowered = *limit as u128 * u128::from(available_for_listeners) / u128::from(wanted);
            *limit = usize::try_from(lowered).unwrap_or(*limit).max(1);
        };
        for listener in &mut *listeners {
            lower(&mut listener.max_connections);
            lower(&mut listener.max_requests);
        }
        let lowered = LoweredLimits {
            max_connections: listeners.iter().map(|listener| listener.max_connections).sum(),
            max_requests: listeners.iter().map(|listener| listener.max_requests).sum(),
        };
        (Self { available, for_listeners: needed(listeners) }, Some(lowered))
    }

    /// Returns the maximum number of idle connections per upstream. `upstreams` is the number of upstreams.
    pub(super) fn max_pool_size(&self, upstreams: usize) -> usize {
        let Some(available) = self.available else {
            return usize::MAX;
        };
        let for_pools = available.saturating_sub(self.for_listeners);
        usize::try_from(for_pools).unwrap_or(usize::MAX) / upstreams.max(1)
    }
}

fn needed(listeners: &[ListenerConfig]) -> u64 {
    let of = |listener: &ListenerConfig| {
        listener.max_connections.saturating_add(listener.max_requests) as u64
    };
    listeners.iter().map(of).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_listen::Address;

    fn listener(max_connections: usize, max_requests: usize) -> ListenerConfig {
        let address = Address::Tcp(([127, 0, 0, 1], 0).into());
        ListenerConfig { max_connections, max_requests, ..ListenerConfig::at(address) }
    }

    #[test]
    fn limits_that_fit_are_kept() {
        for open_files in [Some(20_000), Some(1 << 20), None] {
            let defaults =
                [listener(ListenerConfig::MAX_CONNECTIONS, ListenerConfig::MAX_REQUESTS)];
            let mut listeners = defaults.clone();
            let (budget, lowered) = DescriptorBudget::apply(&mut listeners, open_files);
            assert_eq!(lowered, None, "{open_files:?}");
            assert_eq!(listeners, defaults);
            assert!(budget.max_pool_size(1) > 1_024, "{open_files:?}");
        }
    }

    #[test]
    fn all_limits_together_leave_the_reserve() {
        for open_files in [16_u64, 256, 1_024, 4_096, 16_384] {
            let mut listeners = [listener(8_192, 8_192), listener(100, 400)];
            let (budget, lowered) = DescriptorBudget::apply(&mut listeners, Some(open_files));
            let LoweredLimits { max_connections, max_requests } = lowered.unwrap();
            let pools = 3 * budget.max_pool_size(3);
            let used = (max_connections + max_requests + pools) as u64;
            let reserved = RESERVED.min(open_files / 2);
            assert!(used + reserved <= open_files, "{open_files}: {used}");
            assert!(used + reserved + 8 > open_files || open_files < 100, "{open_files}: {used}");
            let [first, second] = listeners;
            assert!(
                first.max_connections > second.max_connections || open_files == 16,
                "in proportion"
            );
        }
    }
}
