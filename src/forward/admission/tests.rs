use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tokio::sync::watch;
use tokio::time::Instant;

use super::*;
use crate::forward::forwarder::ShutdownState;
use tokengauge_types::event::{Ending, RejectReason};

const fn limits(max_in_flight: usize, queue: usize) -> ConcurrencyLimit {
    ConcurrencyLimit { max_in_flight, max_queue: queue, queue_timeout: Duration::from_secs(5) }
}

impl Permit {
    pub(super) fn is_inside(&self) -> bool {
        !self.door.state().waiting.contains_key(&self.number)
    }
}

/// Inside, and in the queue.
fn counts(door: &ConcurrencyLimiter) -> (usize, usize) {
    let state = door.state();
    (state.inside, state.waiting.len())
}

fn inside(entry: Result<Entry, Full>) -> Permit {
    match entry {
        Ok(Entry::Inside(place)) => place,
        other => panic!("not let in: {other:?}"),
    }
}

fn queued(entry: Result<Entry, Full>) -> Queued {
    match entry {
        Ok(Entry::Queued(queued)) => queued,
        other => panic!("not in the queue: {other:?}"),
    }
}

#[test]
fn places_then_the_queue_then_nothing() {
    let door = ConcurrencyLimiter::new(limits(2, 1));
    let first = inside(door.enter());
    let _second = inside(door.enter());
    let third = queued(door.enter());
    assert!(matches!(door.enter(), Err(Full(told)) if told == limits(2, 1)));
    assert_eq!(counts(&door), (2, 1));
    drop(first);
    assert_eq!(counts(&door), (2, 0), "the third has the first one's place");
    assert!(third.is_let_in());
    drop(third);
    assert_eq!(counts(&door), (1, 0));
}

#[test]
fn the_first_come_is_the_first_let_in() {
    let door = ConcurrencyLimiter::new(limits(1, 10));
    let mut before = inside(door.enter());
    let mut waiting: Vec<_> = (0..10).map(|_| queued(door.enter())).collect();
    while !waiting.is_empty() {
        drop(before);
        let let_in: Vec<_> = waiting.iter().map(Queued::is_let_in).collect();
        assert!(let_in[0] && !let_in[1..].contains(&true), "{let_in:?}");
        before = waiting.remove(0).into_place();
    }
    drop(before);
    assert_eq!(counts(&door), (0, 0));
}

#[test]
fn who_leaves_the_queue_leaves_its_place_there_to_another() {
    let door = ConcurrencyLimiter::new(limits(1, 2));
    let first = inside(door.enter());
    let (second, third) = (queued(door.enter()), queued(door.enter()));
    drop(second);
    assert_eq!(counts(&door), (1, 1));
    let _fourth = queued(door.enter());
    drop(first);
    assert!(third.is_let_in());
    assert_eq!(counts(&door), (1, 1));
}

#[test]
fn a_higher_limit_lets_in_at_once_and_a_lower_one_nobody_before_enough_have_left() {
    let door = ConcurrencyLimiter::new(limits(1, 9));
    let mut places = vec![inside(door.enter())];
    let waiting: Vec<_> = (0..4).map(|_| queued(door.enter())).collect();
    door.limit(Some(limits(3, 9)));
    assert_eq!(counts(&door), (3, 2));
    let (let_in, waiting): (Vec<_>, Vec<_>) = waiting.into_iter().partition(Queued::is_let_in);
    places.extend(let_in.into_iter().map(Queued::into_place));
    door.limit(Some(limits(1, 0)));
    assert_eq!(counts(&door), (3, 2), "nobody is sent away");
    places.pop();
    assert_eq!(counts(&door), (2, 2));
    places.pop();
    assert_eq!(counts(&door), (1, 2));
    assert!(matches!(door.enter(), Err(Full(_))));
    places.pop();
    assert_eq!(counts(&door), (1, 1));
    door.limit(None);
    assert_eq!(counts(&door), (2, 0), "without a limit all are let in");
    let _more: Vec<_> = (0..100).map(|_| inside(door.enter())).collect();
    drop(waiting);
    assert_eq!(counts(&door), (100, 0));
}

/// The waiting ends by whatever comes first; whichever it was, no place is lost.
#[tokio::test]
async fn the_waiting_is_bounded_by_the_clock_the_deadline_and_the_proxys_own_end() {
    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(3_600);
    let (phase, _) = watch::channel(ShutdownState::Serving);
    let door = ConcurrencyLimiter::new(limits(1, 9));
    let place = inside(door.enter());
    let waiting = |wait: Duration, deadline: Option<Duration>| {
        let meanwhile = WaitInterrupt {
            body: None,
            deadline: deadline.map(|after| Instant::now() + after),
            phase: phase.subscribe(),
        };
        door.limit(Some(ConcurrencyLimit { queue_timeout: wait, ..limits(1, 9) }));
        queued(door.enter()).turn(meanwhile)
    };
    let begun = Instant::now();
    let failed = waiting(SHORT, None).await.unwrap_err();
    assert_eq!(failed.ending, Ending::Rejected(RejectReason::Overload));
    assert_eq!(failed.retry_after, Some(SHORT));
    assert!(begun.elapsed() >= SHORT);
    let failed = waiting(LONG, Some(SHORT)).await.unwrap_err();
    assert_eq!(failed.ending, Ending::Rejected(RejectReason::Overload));
    assert_eq!(counts(&door), (1, 0));
    let waits = waiting(LONG, None);
    phase.send_replace(ShutdownState::Draining);
    let failed = waits.await.unwrap_err();
    assert_eq!(failed.ending, Ending::Rejected(RejectReason::Draining));
    assert_eq!(counts(&door), (1, 0));
    // Its turn goes before the drain: the place is there.
    let waits = waiting(LONG, None);
    drop(place);
    let place = waits.await.unwrap();
    assert_eq!(counts(&door), (1, 0));
    drop(place);
    assert_eq!(counts(&door), (0, 0));
}

/// Threads that come, wait or give up, and leave: never more inside than may be, and nothing is left of them.
#[test]
fn from_many_threads_at_once_no_place_is_lost_or_won() {
    const MOST: usize = 2;
    let door = ConcurrencyLimiter::new(limits(MOST, 3));
    let inside = AtomicUsize::new(0);
    let stay = |place: Permit| {
        assert!(inside.fetch_add(1, Ordering::SeqCst) < MOST);
        std::hint::black_box(&place);
        inside.fetch_sub(1, Ordering::SeqCst);
    };
    let come =
        |door: &Arc<ConcurrencyLimiter>, stay: &dyn Fn(Permit), number: usize| match door.enter() {
            Ok(Entry::Inside(place)) => stay(place),
            Ok(Entry::Queued(queued)) if number.is_multiple_of(3) => drop(queued),
            Ok(Entry::Queued(queued)) => {
                while !queued.is_let_in() {
                    std::thread::yield_now();
                }
                stay(queued.into_place());
            }
            Err(Full(_)) => std::thread::yield_now(),
        };
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (door, stay) = (&door, &stay);
            scope.spawn(move || (0..2_000).for_each(|round| come(door, stay, thread + round)));
        }
    });
    assert_eq!(counts(&door), (0, 0));
}

/// What may happen at a door; numbers choose among those there are.
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
    fn a_door_does_what_a_list_would(acts in prop::collection::vec(act(), 0..80)) {
        let door = ConcurrencyLimiter::new(limits(2, 3));
        let mut now = limits(2, 3);
        let mut within: Vec<Permit> = Vec::new();
        let mut line: Vec<Queued> = Vec::new();
        for act in acts {
            match act {
                Act::Enter => match door.enter() {
                    Ok(Entry::Inside(place)) => {
                        prop_assert!(within.len() < now.max_in_flight);
                        within.push(place);
                    }
                    Ok(Entry::Queued(queued)) => {
                        prop_assert!(within.len() >= now.max_in_flight);
                        prop_assert!(line.len() < now.max_queue);
                        line.push(queued);
                    }
                    Err(Full(_)) => {
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
                    now = limits(most, queue);
                    door.limit(Some(now));
                }
                Act::Leave(_) | Act::GiveUp(_) => {}
            }
            let let_in = line.iter().take_while(|queued| queued.is_let_in()).count();
            prop_assert!(line.iter().skip(let_in).all(|queued| !queued.is_let_in()), "the order");
            within.extend(line.drain(..let_in).map(Queued::into_place));
            prop_assert_eq!(counts(&door), (within.len(), line.len()));
            prop_assert!(line.is_empty() || within.len() >= now.max_in_flight, "nobody waits beside a place");
        }
        drop((within, line));
        prop_assert_eq!(counts(&door), (0, 0));
    }
}
