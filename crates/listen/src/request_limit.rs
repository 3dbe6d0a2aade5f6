//! The limit of requests in flight. Clients share it by IP address when it is reached.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::Address;
use super::log_throttle::LogThrottle;
use tokengauge_types::sync::lock;

/// Part of the limit that is available in addition to it, to clients with few requests. An eighth of the default limit
/// serves a thousand requests, and needs fewer file descriptors than the process reserves for idle connections to
/// upstreams. These are few when all slots are in use.
const RESERVE_SHARE: usize = 8;

/// A number of slots for requests in flight.
///
/// Every client can use all slots. When they are in use, only a client with less than an equal share of them gets a
/// further slot, up to the reserve. A client is an IP address, and an equal share is the number of slots divided by the
/// number of clients with requests. If all slots belong to one client, its requests that end therefore make room for the
/// other clients first. No running request is aborted.
#[derive(Debug)]
pub(super) struct RequestLimit {
    max: usize,
    in_use: AtomicUsize,
    /// Number of clients with requests.
    active_clients: AtomicUsize,
    /// Clients with open connections, so at most as many as connections. The key is `None` for Unix sockets.
    clients: Mutex<HashMap<Option<IpAddr>, ConnectedClient>>,
    address: Address,
    log: LogThrottle,
}

#[derive(Debug)]
struct ConnectedClient {
    requests: Arc<ClientRequests>,
    connections: usize,
}

/// Number of requests of one client.
#[derive(Debug, Default)]
pub(super) struct ClientRequests(AtomicUsize);

/// Keeps the client of one connection known until the connection is dropped.
#[derive(Debug)]
pub(super) struct ClientMember {
    limit: Arc<RequestLimit>,
    address: Option<IpAddr>,
    requests: Arc<ClientRequests>,
}

/// The slot of one request.
#[derive(Debug)]
pub(super) struct RequestPermit {
    limit: Arc<RequestLimit>,
    requests: Arc<ClientRequests>,
}

impl RequestLimit {
    pub(super) fn new(address: &Address, max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            in_use: AtomicUsize::default(),
            active_clients: AtomicUsize::default(),
            clients: Mutex::default(),
            address: address.clone(),
            log: LogThrottle::default(),
        })
    }

    pub(super) const fn max(&self) -> usize {
        self.max
    }

    pub(super) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Registers a connection of the client at `address`.
    pub(super) fn join(self: &Arc<Self>, address: Option<IpAddr>) -> ClientMember {
        let mut clients = lock(&self.clients);
        let client = clients
            .entry(address)
            .or_insert_with(|| ConnectedClient { requests: Arc::default(), connections: 0 });
        client.connections += 1;
        let requests = Arc::clone(&client.requests);
        ClientMember { limit: Arc::clone(self), address, requests }
    }

    /// Takes a slot for a request of `client`. If the client must not get one, logs a warning and returns `None`.
    pub(super) fn try_acquire(
        self: &Arc<Self>,
        client: &Arc<ClientRequests>,
    ) -> Option<RequestPermit> {
        let in_use = self.in_use.fetch_add(1, Ordering::Relaxed);
        let requests = client.0.fetch_add(1, Ordering::Relaxed);
        if requests == 0 {
            self.active_clients.fetch_add(1, Ordering::Relaxed);
        }
        let permit = RequestPermit { limit: Arc::clone(self), requests: Arc::clone(client) };
        if in_use < self.max || self.has_reserve(in_use, requests) {
            return Some(permit);
        }
        if self.log.is_due() {
            let Self { address, max, .. } = &**self;
            let message = "max_requests reached, further requests get status 503, except a few of \
                 clients with less than an equal share";
            tracing::warn!(listener = %address, limit = max, "{message}");
        }
        None
    }

    /// Returns whether a client with this number of `requests` may use the reserve.
    fn has_reserve(&self, in_use: usize, requests: usize) -> bool {
        let reserve = (self.max / RESERVE_SHARE).max(1);
        let clients = self.active_clients.load(Ordering::Relaxed).max(1);
        in_use < self.max + reserve && requests < (self.max / clients).max(1)
    }
}

impl ClientMember {
    pub(super) const fn requests(&self) -> &Arc<ClientRequests> {
        &self.requests
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.limit.in_use.fetch_sub(1, Ordering::Relaxed);
        if self.requests.0.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.limit.active_clients.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for ClientMember {
    fn drop(&mut self) {
        if let Entry::Occupied(mut client) = lock(&self.limit.clients).entry(self.address) {
            client.get_mut().connections -= 1;
            if client.get().connections == 0 {
                client.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client with one connection and its running requests.
    struct Client {
        member: ClientMember,
        running: Vec<RequestPermit>,
    }

    impl Client {
        fn new(limit: &Arc<RequestLimit>, last_byte: u8) -> Self {
            let address = IpAddr::from([10, 0, 0, last_byte]);
            Self { member: limit.join(Some(address)), running: Vec::new() }
        }

        /// Starts up to `count` requests. Returns how many were admitted.
        fn start(&mut self, count: usize) -> usize {
            let limit = Arc::clone(&self.member.limit);
            let started = (0..count).map_while(|_| limit.try_acquire(self.member.requests()));
            let before = self.running.len();
            self.running.extend(started);
            self.running.len() - before
        }
    }

    fn limit(max: usize) -> Arc<RequestLimit> {
        RequestLimit::new(&Address::Unix("/run/s".into()), max)
    }

    #[test]
    fn a_single_client_uses_every_slot_and_no_reserve() {
        let limit = limit(400);
        let mut one = Client::new(&limit, 1);
        let mut same = Client::new(&limit, 1);
        assert_eq!((one.start(300), same.start(300)), (300, 100));
        assert_eq!(limit.in_use(), 400, "rejected requests take no slot");
        one.running.pop();
        assert_eq!((one.start(2), limit.in_use()), (1, 400));
    }

    #[test]
    fn other_clients_get_the_reserve_and_then_every_slot_that_is_returned() {
        let limit = limit(80);
        let mut hog = Client::new(&limit, 1);
        assert_eq!(hog.start(100), 80);
        let mut small = Client::new(&limit, 2);
        assert_eq!(small.start(100), 10, "the reserve");
        let mut newcomer = Client::new(&limit, 3);
        assert_eq!(newcomer.start(1), 0, "the reserve is used up");
        for round in 0..30 {
            hog.running.pop();
            assert_eq!(hog.start(1), 0, "round {round}");
            assert_eq!(small.start(1), 1, "round {round}");
        }
        assert_eq!((hog.running.len(), small.running.len()), (50, 40));
        hog.running.pop();
        assert_eq!(small.start(1), 0, "an equal share");
        assert_eq!(newcomer.start(1), 1);
    }

    #[test]
    fn forgets_clients_without_connections_and_without_requests() {
        let limit = limit(8);
        let mut client = Client::new(&limit, 1);
        let other = limit.join(None);
        assert_eq!(client.start(3), 3);
        assert_eq!(limit.active_clients.load(Ordering::Relaxed), 1);
        drop((client, other));
        assert!(lock(&limit.clients).is_empty());
        assert_eq!((limit.in_use(), limit.active_clients.load(Ordering::Relaxed)), (0, 0));
    }
}
