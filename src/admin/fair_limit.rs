//! A limit that clients share fairly by IP address, so that a single client cannot lock out the others. When the limit
//! is reached, a new client takes over a permit of the address with the most permits.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use tokengauge_types::sync::lock;

/// A fixed number of permits.
#[derive(Clone, Debug)]
pub(super) struct FairLimit {
    max: usize,
    holders: Arc<Mutex<Holders>>,
}

#[derive(Debug, Default)]
struct Holders {
    next_id: u64,
    /// By id, the oldest first.
    by_id: BTreeMap<u64, Holder>,
}

#[derive(Debug)]
struct Holder {
    address: IpAddr,
    displaced: Arc<Notify>,
}

/// One permit, released when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    id: u64,
    holders: Arc<Mutex<Holders>>,
}

impl FairLimit {
    pub(super) fn new(max: usize) -> Self {
        Self { max, holders: Arc::default() }
    }

    /// Acquires a permit for a client at `address`. If no permit is free, the address with the most permits loses its
    /// oldest permit and is notified through `displaced`. That can be `address` itself. Therefore no address loses a
    /// permit to an address with more permits.
    pub(super) fn acquire(&self, address: IpAddr, displaced: &Arc<Notify>) -> Permit {
        let mut holders = lock(&self.holders);
        let id = holders.next_id;
        holders.next_id += 1;
        holders.by_id.insert(id, Holder { address, displaced: Arc::clone(displaced) });
        if holders.by_id.len() > self.max
            && let Some(oldest) = holders.oldest_of_largest_address()
            && let Some(holder) = holders.by_id.remove(&oldest)
        {
            holder.displaced.notify_one();
        }
        drop(holders);
        Permit { id, holders: Arc::clone(&self.holders) }
    }
}

impl Holders {
    fn oldest_of_largest_address(&self) -> Option<u64> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for holder in self.by_id.values() {
            *counts.entry(holder.address).or_default() += 1;
        }
        let largest = counts.values().copied().max()?;
        let mut holders = self.by_id.iter();
        let oldest = holders.find(|(_, holder)| counts.get(&holder.address) == Some(&largest));
        oldest.map(|(id, _)| *id)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.holders).by_id.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    /// A client with a permit.
    struct Client(
        Arc<Notify>,
        #[expect(dead_code, reason = "dropping it returns the permit")] Permit,
    );

    impl Client {
        fn new(limit: &FairLimit, last_byte: u8) -> Self {
            let displaced = Arc::default();
            let permit = limit.acquire([10, 0, 0, last_byte].into(), &displaced);
            Self(displaced, permit)
        }

        fn is_displaced(&self) -> bool {
            let notified = std::pin::pin!(self.0.notified());
            notified.poll(&mut Context::from_waker(Waker::noop())).is_ready()
        }
    }

    #[test]
    fn displaces_the_oldest_of_the_largest_address() {
        let limit = FairLimit::new(4);
        let kubelet = Client::new(&limit, 1);
        let crowd: Vec<Client> = (0..10).map(|_| Client::new(&limit, 2)).collect();
        let left = crowd.iter().filter(|client| !client.is_displaced()).count();
        assert_eq!(left, 3, "the newest three connections of one address remain");
        assert!(!crowd.last().unwrap().is_displaced() && !kubelet.is_displaced());
        let newcomer = Client::new(&limit, 3);
        assert!(
            crowd[7].is_displaced(),
            "a new address displaces a connection of the largest address"
        );
        assert!(!newcomer.is_displaced() && !kubelet.is_displaced());
    }

    #[test]
    fn displaces_the_oldest_among_equal_addresses() {
        let limit = FairLimit::new(3);
        let [one, two, three] = [1, 2, 3].map(|last| Client::new(&limit, last));
        let again = Client::new(&limit, 3);
        assert!(three.is_displaced() && !one.is_displaced() && !two.is_displaced());
        let four = Client::new(&limit, 4);
        assert!(one.is_displaced() && !two.is_displaced());
        assert!(!again.is_displaced() && !four.is_displaced());
    }

    #[test]
    fn a_dropped_permit_is_free() {
        let limit = FairLimit::new(1);
        drop(Client::new(&limit, 1));
        let two = Client::new(&limit, 2);
        drop(Client::new(&limit, 2));
        assert!(two.is_displaced());
        assert_eq!(lock(&limit.holders).by_id.len(), 0);
    }
}
