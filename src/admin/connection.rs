//! Connections of the admin port.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::fair_limit::{FairLimit, Permit};
use tokengauge_types::sync::lock;

/// An open connection and the permits that it holds.
#[derive(Debug)]
pub(super) struct AdminConnection {
    pub(super) peer: IpAddr,
    /// Notified when another client takes over a permit of this connection. The connection is then closed.
    pub(super) displaced: Arc<Notify>,
    /// The permit of this connection: one of [`MAX_CONNECTIONS`](super::MAX_CONNECTIONS), or during a wait for a drain
    /// of [`MAX_WAITING_CONNECTIONS`](super::MAX_WAITING_CONNECTIONS).
    permit: Mutex<Option<Permit>>,
    /// The permit for the page in the response. Held until the next request, which shows that the client has read the
    /// page.
    page_permit: Mutex<Option<Permit>>,
}

impl AdminConnection {
    pub(super) fn new(peer: IpAddr) -> Self {
        let (permit, page_permit) = (Mutex::default(), Mutex::default());
        Self { peer, displaced: Arc::default(), permit, page_permit }
    }

    pub(super) fn hold_permit(&self, limit: &FairLimit) {
        replace(&self.permit, Some(limit.acquire(self.peer, &self.displaced)));
    }

    pub(super) fn hold_page_permit(&self, limit: &FairLimit) {
        replace(&self.page_permit, Some(limit.acquire(self.peer, &self.displaced)));
    }

    pub(super) fn release_page_permit(&self) {
        replace(&self.page_permit, None);
    }
}

fn replace(held: &Mutex<Option<Permit>>, permit: Option<Permit>) {
    *lock(held) = permit;
}
