use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const fn limit(max_in_flight: usize, queue: usize) -> ConcurrencyLimit {
    ConcurrencyLimit { max_in_flight, max_queue: queue, queue_timeout: Duration::from_secs(5) }
}

impl Queued {
    fn is_admitted(&self) -> bool {
        let Permit { limiter, number } = &self.permit;
        !limiter.state().waiting.contains_key(number)
    }
}

/// Returns the numbers of running and of queued requests.
fn counts(limiter: &ConcurrencyLimiter) -> (usize, usize) {
    let state = limiter.state();
    (state.running, state.waiting.len())
}

fn admitted(entry: Entry) -> Permit {
    let Entry::Admitted(permit) = entry else { panic!("not admitted: {entry:?}") };
    permit
}

fn queued(entry: Entry) -> Queued {
    let Entry::Queued(queued) = entry else { panic!("not queued: {entry:?}") };
    queued
}

#[test]
fn permits_then_queue_then_rejection() {
    let limiter = ConcurrencyLimiter::new(limit(2, 1));
    let first = admitted(limiter.enter());
    let _second = admitted(limiter.enter());
    let third = queued(limiter.enter());
    assert!(matches!(limiter.enter(), Entry::Full(full) if full == limit(2, 1)));
    assert_eq!(counts(&limiter), (2, 1));
    drop(first);
    assert_eq!(counts(&limiter), (2, 0), "the third got the permit of the first");
    assert!(third.is_admitted());
    drop(third);
    assert_eq!(counts(&limiter), (1, 0));
}

#[test]
fn admits_in_order_of_arrival() {
    let limiter = ConcurrencyLimiter::new(limit(1, 10));
    let mut before = admitted(limiter.enter());
    let mut waiting: Vec<_> = (0..10).map(|_| queued(limiter.enter())).collect();
    while !waiting.is_empty() {
        drop(before);
        let admitted_now: Vec<_> = waiting.iter().map(Queued::is_admitted).collect();
        assert!(admitted_now[0] && !admitted_now[1..].contains(&true), "{admitted_now:?}");
        before = waiting.remove(0).permit;
    }
    drop(before);
    assert_eq!(counts(&limiter), (0, 0));
}

#[test]
fn leaving_the_queue_makes_room() {
    let limiter = ConcurrencyLimiter::new(limit(1, 2));
    let first = admitted(limiter.enter());
    let (second, third) = (queued(limiter.enter()), queued(limiter.enter()));
    drop(second);
    assert_eq!(counts(&limiter), (1, 1));
    let _fourth = queued(limiter.enter());
    drop(first);
    assert!(third.is_admitted());
    assert_eq!(counts(&limiter), (1, 1));
}

#[test]
fn raised_limit_admits_at_once_and_lowered_limit_waits() {
    let limiter = ConcurrencyLimiter::new(limit(1, 9));
    let mut permits = vec![admitted(limiter.enter())];
    let waiting: Vec<_> = (0..4).map(|_| queued(limiter.enter())).collect();
    limiter.set_limit(Some(limit(3, 9)));
    assert_eq!(counts(&limiter), (3, 2));
    let (admitted_now, waiting): (Vec<_>, Vec<_>) =
        waiting.into_iter().partition(Queued::is_admitted);
    permits.extend(admitted_now.into_iter().map(|queued| queued.permit));
    limiter.set_limit(Some(limit(1, 0)));
    assert_eq!(counts(&limiter), (3, 2), "no exchange is ended");
    permits.pop();
    assert_eq!(counts(&limiter), (2, 2));
    permits.pop();
    assert_eq!(counts(&limiter), (1, 2));
    assert!(matches!(limiter.enter(), Entry::Full(_)));
    permits.pop();
    assert_eq!(counts(&limiter), (1, 1));
    limiter.set_limit(None);
    assert_eq!(counts(&limiter), (2, 0), "without a limit, all are admitted");
    let _more: Vec<_> = (0..100).map(|_| admitted(limiter.enter())).collect();
    drop(waiting);
    assert_eq!(counts(&limiter), (100, 0));
}

/// Several threads enter the limiter, wait or give up, and leave. The limit must never be exceeded, and no permit may
/// be lost.
#[test]
fn concurrent_use_loses_no_permit() {
    const MOST: usize = 2;
    let limiter = ConcurrencyLimiter::new(limit(MOST, 3));
    let inside = AtomicUsize::new(0);
    let stay = |permit: Permit| {
        assert!(inside.fetch_add(1, Ordering::SeqCst) < MOST);
        std::hint::black_box(&permit);
        inside.fetch_sub(1, Ordering::SeqCst);
    };
    let come =
        |limiter: &Arc<ConcurrencyLimiter>, stay: &dyn Fn(Permit), number: usize| match limiter
            .enter()
        {
            Entry::Admitted(permit) => stay(permit),
            Entry::Queued(queued) if number.is_multiple_of(3) => drop(queued),
            Entry::Queued(queued) => {
                while !queued.is_admitted() {
                    std::thread::yield_now();
                }
                stay(queued.permit);
            }
            Entry::Full(_) => std::thread::yield_now(),
        };
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (limiter, stay) = (&limiter, &stay);
            scope.spawn(move || (0..2_000).for_each(|round| come(limiter, stay, thread + round)));
        }
    });
    assert_eq!(counts(&limiter), (0, 0));
}

/// An operation on the limiter. `Leave` and `GiveUp` select a request by number.
#[derive(Clone, Copy, Debug)]
enum Act {
    Enter,
    Leave(usize),
    GiveUp(usize),
    Limit(usize, usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Enter),
        2 => any::<usize>().prop_map(Act::Leave),
        1 => any::<usize>().prop_map(Act::GiveUp),
        1 => (0_usize..5, 0_usize..5).prop_map(|(most, queue)| Act::Limit(most, queue)),
    ]
}

proptest! {
    #[test]
    fn behaves_like_a_list(acts in prop::collection::vec(act(), 0..80)) {
        let limiter = ConcurrencyLimiter::new(limit(2, 3));
        let mut now = limit(2, 3);
        let mut within: Vec<Permit> = Vec::new();
        let mut line: Vec<Queued> = Vec::new();
        for act in acts {
            match act {
                Act::Enter => match limiter.enter() {
                    Entry::Admitted(permit) => {
                        prop_assert!(within.len() < now.max_in_flight);
                        within.push(permit);
                    }
                    Entry::Queued(queued) => {
                        prop_assert!(within.len() >= now.max_in_flight);
                        prop_assert!(line.len() < now.max_queue);
                        line.push(queued);
                    }
                    Entry::Full(_) => {
                        prop_assert!(within.len() >= now.max_in_flight);
                        prop_assert!(line.len() >= now.max_queue);
                    }
                },
                Act::Leave(which) if !within.is_empty() => {
                    drop(within.swap_remove(which % within.len()));
                }
                Act::GiveUp(which) if !line.is_empty() => {
                    drop(line.remove(which % line.len()));
                }
                Act::Limit(most, queue) => {
                    now = limit(most, queue);
                    limiter.set_limit(Some(now));
                }
                Act::Leave(_) | Act::GiveUp(_) => {}
            }
            let admitted_now = line.iter().take_while(|queued| queued.is_admitted()).count();
            prop_assert!(line.iter().skip(admitted_now).all(|queued| !queued.is_admitted()), "the order");
            within.extend(line.drain(..admitted_now).map(|queued| queued.permit));
            prop_assert_eq!(counts(&limiter), (within.len(), line.len()));
            prop_assert!(line.is_empty() || within.len() >= now.max_in_flight, "no exchange waits while there is a free permit");
        }
        drop((within, line));
        prop_assert_eq!(counts(&limiter), (0, 0));
    }
}
