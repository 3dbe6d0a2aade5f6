use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn interval(tokens: u64) -> Arc<Interval> {
    Arc::new(Interval { output_tokens: tokens, finished: tokens % 3, ..Interval::default() })
}

/// Number of intervals in the window of these tests.
const WINDOW: u64 = 6;

/// Histories that follow each other: the window moves forward, and intervals are added or change. Each step has the
/// number of intervals by which the window moves, and pairs of a group and an interval in the window.
fn histories() -> impl Strategy<Value = Vec<History>> {
    let changes = prop::collection::vec((0_u64..4, 0_u64..WINDOW), 0..4);
    let steps = prop::collection::vec((0_u64..3, changes), 2..8);
    steps.prop_map(|steps| {
        let mut groups = BTreeMap::<u64, BTreeMap<u64, u64>>::new();
        let mut first = 100;
        let mut histories = Vec::new();
        for (moved, changes) in steps {
            first += moved;
            for (group, place) in changes {
                *groups.entry(group).or_default().entry(first + place).or_default() += 1;
            }
            groups
                .values_mut()
                .for_each(|intervals| intervals.retain(|number, _| *number >= first));
            groups.retain(|_, intervals| !intervals.is_empty());
            histories.push(history(first, &groups));
        }
        histories
    })
}

fn history(first: u64, groups: &BTreeMap<u64, BTreeMap<u64, u64>>) -> History {
    let group = |(id, intervals): (&u64, &BTreeMap<u64, u64>)| Group {
        id: *id,
        model: format!("model {id}").into(),
        intervals: intervals.iter().map(|(number, it)| (*number, interval(*it))).collect(),
        ..Group::default()
    };
    History {
        first_interval: first,
        last_interval: first + WINDOW - 1,
        groups_left_out: first % 2,
        gap_before_unix_ms: first.is_multiple_of(2).then_some(first),
        groups: groups.iter().map(group).collect(),
        burn_rates: (first..first + WINDOW).filter(|it| it % 2 == 0).map(|it| (it, 1.5)).collect(),
    }
}

fn streams() -> impl Strategy<Value = Vec<Stream>> {
    let streams = prop::collection::btree_map(0_u64..8, (any::<bool>(), 0_u64..3), 0..8);
    streams.prop_map(|streams| {
        let mut streams: Vec<_> = streams
            .into_iter()
            .map(|(request_number, (stalled, tokens))| Stream {
                request_number,
                stalled,
                tokens,
                ..Stream::default()
            })
            .collect();
        streams.sort_by_key(Stream::order);
        streams
    })
}

/// Everything of a snapshot except the history.
fn snapshot() -> impl Strategy<Value = Snapshot> {
    (streams(), 0_u64..3, 0_u64..3).prop_map(|(streams, one, other)| Snapshot {
        streams,
        streams_left_out: one,
        at_unix_ms: 1_000 * other,
        now: Now { in_flight: one, ..Now::default() },
        requests: RequestLists {
            slowest: vec![one],
            items: BTreeMap::from([(one, Arc::new(Request { id: one, ..Request::default() }))]),
            ..RequestLists::default()
        },
        sessions: vec![Arc::new(Session { id: "a".into(), calls: other, ..Session::default() })],
        ..Snapshot::default()
    })
}

proptest! {
    #[test]
    fn the_changes_applied_to_a_state_give_the_next_state(
        histories in histories(),
        others in prop::collection::vec(snapshot(), 8),
    ) {
        let states = histories.into_iter().zip(others);
        let states = states.map(|(history, other)| Snapshot { history, ..other });
        let mut viewed: Option<Snapshot> = None;
        for (sequence, state) in (1..).zip(states) {
            let next = Snapshot { sequence, ..state };
            if let Some(viewed) = &mut viewed {
                // As a viewer gets them.
                let text = serde_json::to_string(&Delta::between(viewed, &next)).unwrap();
                let delta: Delta = serde_json::from_str(&text).unwrap();
                delta.apply(viewed);
                prop_assert_eq!(&*viewed, &next);
            } else {
                viewed = Some(next);
            }
        }
    }
}

#[test]
fn a_state_without_changes_is_only_a_number() {
    let state = Snapshot::default();
    let next = Snapshot { sequence: 1, at_unix_ms: 5, ..state.clone() };
    let delta = serde_json::to_value(Delta::between(&state, &next)).unwrap();
    assert_eq!(delta, serde_json::json!({"sequence": 1, "at_unix_ms": 5}));
}

#[test]
fn absent_keys_of_an_interval_mean_that_nothing_happened() {
    assert_eq!(serde_json::to_string(&Interval::default()).unwrap(), "{}");
    let read: Interval = serde_json::from_str("{\"finished\": 2}").unwrap();
    assert_eq!(read, Interval { finished: 2, ..Interval::default() });
}

#[test]
fn hostile_names_are_plain_strings() {
    let name = "</script><b>\u{2028}\"\\\u{0}";
    let session = Session { id: name.into(), ..Session::default() };
    let text = serde_json::to_string(&session).unwrap();
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read["id"], name);
}
