use super::*;
use tokengauge_llm::count::Source;
use tokengauge_llm::dialect::TextKind;
use tokengauge_types::clock::WallTime;

fn names(model: &str) -> GroupNames {
    GroupNames {
        provider: Label::from_trusted("openai"),
        model: Label::from_trusted(model),
        route: Label::from_trusted("default"),
        tenant: None,
        variant: None,
    }
}

fn tokens(tokens: u32) -> LiveSample {
    LiveSample::Tokens { kind: TextKind::Text, tokens, source: Source::Counted }
}

/// Reads at the start of the interval `current`.
fn read(history: &mut History, current: u64) -> Reading {
    let timeline = Timeline::new(MonotonicInstant::ZERO, WallTime::default());
    history.read(current, &timeline, MonotonicInstant::from_secs(5 * current))
}

#[test]
fn a_reading_has_complete_intervals_and_the_current_one_apart() {
    let mut history = History::default();
    let id = history.group(&names("a"), 1_000).unwrap();
    for (interval, count) in [(1_000, 5), (1_002, 7), (1_003, 9)] {
        history.record_sample(id, interval, tokens(count));
    }
    // A late event belongs to the interval in which it occurred.
    history.record_sample(id, 1_001, tokens(6));
    let reading = read(&mut history, 1_003);
    let document::History { groups, first_interval, last_interval, .. } = reading.history;
    assert_eq!((first_interval, last_interval), (823, 1_002));
    let found: Vec<_> =
        groups[0].intervals.iter().map(|(number, it)| (*number, it.output_tokens)).collect();
    assert_eq!(found, [(1_000, 5), (1_001, 6), (1_002, 7)]);
    assert_eq!(reading.current[0].intervals[0].1.output_tokens, 9);
}

#[test]
fn intervals_leave_the_window() {
    let mut history = History::default();
    let id = history.group(&names("a"), 0).unwrap();
    for interval in 0..1_000 {
        history.record_sample(id, interval, tokens(1));
    }
    assert!(history.slots[0].former.len() as u64 <= WINDOW_INTERVALS);
    let groups = read(&mut history, 1_000).history.groups;
    assert_eq!(groups[0].intervals.len() as u64, WINDOW_INTERVALS);
    assert_eq!(groups[0].intervals[0].0, 820);
    history.record_sample(id, 700, tokens(1));
    assert_eq!(read(&mut history, 1_000).history.groups[0].intervals[0].0, 820, "too old");
    assert!(read(&mut history, 2_000).history.groups.is_empty());
}

#[test]
fn further_groups_are_left_out_and_counted_until_a_slot_is_idle() {
    let mut history = History::default();
    for group in 0..MAX_GROUPS {
        let id = history.group(&names(&group.to_string()), 1_000).unwrap();
        history.record_sample(id, 1_000, tokens(1));
    }
    for _ in 0..2 {
        assert_eq!(history.group(&names("left out"), 1_000), None);
    }
    assert_eq!(history.group(&names("another"), 1_000), None);
    assert_eq!(read(&mut history, 1_001).history.groups_left_out, 2);
    assert_eq!(read(&mut history, 1_001).history.groups.len(), MAX_GROUPS);
    // After 15 minutes without an event, a group makes room. Its handle is then without effect.
    let old = history.group(&names("0"), 1_001).unwrap();
    let later = 1_002 + WINDOW_INTERVALS;
    let new = history.group(&names("left out"), later).unwrap();
    history.record_sample(old, later, tokens(100));
    history.record_sample(new, later, tokens(3));
    let reading = read(&mut history, later + 1).history;
    assert_eq!(reading.groups_left_out, 0);
    let sums: Vec<_> = reading.groups.iter().map(|it| it.intervals[0].1.output_tokens).collect();
    assert_eq!((sums, reading.groups[0].id), (vec![3], MAX_GROUPS as u64));
}

#[test]
fn a_document_is_rendered_again_only_after_a_change() {
    let mut history = History::default();
    let id = history.group(&names("a"), 10).unwrap();
    history.record_sample(id, 10, tokens(1));
    let first = read(&mut history, 11).history.groups[0].intervals[0].1.clone();
    let second = read(&mut history, 11).history.groups[0].intervals[0].1.clone();
    assert!(Arc::ptr_eq(&first, &second));
    history.record_sample(id, 10, tokens(1));
    let third = read(&mut history, 11).history.groups[0].intervals[0].1.clone();
    assert_eq!((first.output_tokens, third.output_tokens), (1, 2));
}
