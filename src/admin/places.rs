//! Places that all who come share by their addresses: a full house lets the next one in for another, so that nobody is kept out by
//! one who takes all there are.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A house with so many places.
#[derive(Clone, Debug)]
pub(super) struct Places {
    most: usize,
    guests: Arc<Mutex<Guests>>,
}

#[derive(Debug, Default)]
struct Guests {
    next: u64,
    /// By their number, the oldest first.
    by_number: BTreeMap<u64, Guest>,
}

#[derive(Debug)]
struct Guest {
    from: IpAddr,
    out: Arc<Notify>,
}

/// One guest's place, free again when dropped.
#[derive(Debug)]
pub(super) struct Place {
    number: u64,
    guests: Arc<Mutex<Guests>>,
}

impl Places {
    pub(super) fn new(most: usize) -> Self {
        Self { most, guests: Arc::default() }
    }

    /// A place for one who comes `from` there. Where none is free, the address that has the most, this one counted, gives up
    /// its oldest: who has it is told by its `out`. So no address loses a place to one that has more.
    pub(super) fn take(&self, from: IpAddr, out: &Arc<Notify>) -> Place {
        let mut guests = lock(&self.guests);
        let number = guests.next;
        guests.next += 1;
        let out = Arc::clone(out);
        let guest = Guest { from, out };
        guests.by_number.insert(number, guest);
        if guests.by_number.len() > self.most
            && let Some(leaves) = guests.oldest_of_most()
            && let Some(guest) = guests.by_number.remove(&leaves)
        {
            guest.out.notify_one();
        }
        drop(guests);
        Place { number, guests: Arc::clone(&self.guests) }
    }
}

impl Guests {
    fn oldest_of_most(&self) -> Option<u64> {
        let mut places: HashMap<IpAddr, usize> = HashMap::new();
        for guest in self.by_number.values() {
            *places.entry(guest.from).or_default() += 1;
        }
        let most = places.values().copied().max()?;
        let mut guests = self.by_number.iter();
        let oldest = guests.find(|(_, guest)| places.get(&guest.from) == Some(&most));
        oldest.map(|(number, _)| *number)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.guests).by_number.remove(&self.number);
    }
}

fn lock(guests: &Mutex<Guests>) -> MutexGuard<'_, Guests> {
    guests.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    /// One who has a place, and whether it still has it.
    struct One(Arc<Notify>, #[expect(dead_code, reason = "held for its drop")] Place);

    impl One {
        fn new(places: &Places, last: u8) -> Self {
            let out = Arc::default();
            let place = places.take([10, 0, 0, last].into(), &out);
            Self(out, place)
        }

        fn is_out(&self) -> bool {
            let waiting = std::pin::pin!(self.0.notified());
            let mut nobody = Context::from_waker(Waker::noop());
            waiting.poll(&mut nobody).is_ready()
        }
    }

    #[test]
    fn who_has_the_most_makes_room_with_its_oldest() {
        let places = Places::new(4);
        let kubelet = One::new(&places, 1);
        let crowd: Vec<One> = (0..10).map(|_| One::new(&places, 2)).collect();
        let left = |crowd: &[One]| crowd.iter().filter(|one| !one.is_out()).count();
        assert_eq!(left(&crowd), 3, "of one address the newest three have a place");
        assert!(!crowd.last().unwrap().is_out() && !kubelet.is_out());
        let newcomer = One::new(&places, 3);
        assert!(crowd[7].is_out(), "a new address has a place for the oldest of the crowd");
        assert!(!newcomer.is_out() && !kubelet.is_out());
    }

    #[test]
    fn among_equals_the_oldest_goes_and_who_asks_again_goes_itself() {
        let places = Places::new(3);
        let [one, two, three] = [1, 2, 3].map(|last| One::new(&places, last));
        let again = One::new(&places, 3);
        assert!(three.is_out() && !one.is_out() && !two.is_out());
        let four = One::new(&places, 4);
        assert!(one.is_out() && !two.is_out() && !again.is_out() && !four.is_out());
    }

    #[test]
    fn a_place_that_is_given_up_is_free() {
        let places = Places::new(1);
        drop(One::new(&places, 1));
        let two = One::new(&places, 2);
        drop(One::new(&places, 2));
        assert!(two.is_out());
        assert_eq!(lock(&places.guests).by_number.len(), 0);
    }
}
