use std::sync::mpsc;

use super::*;
use tokengauge_types::clock::{self, Wall};
use tokengauge_types::event::{
    Blocked, Cell, Connected, Direction, Ending, Failure, Headers, RouteFacts, Scheme, Trace,
    Vantage, Who, Word,
};
use tokengauge_types::label::{Label, Name};

pub(super) fn seam(budget_bytes: usize) -> Arc<Seam> {
    Arc::new(Seam::new(Config { shards: 1, budget_bytes }))
}

pub(super) fn open(seam: &Arc<Seam>) -> Tap {
    open_with(seam, Arc::default())
}

pub(super) fn open_with(seam: &Arc<Seam>, cell: Arc<Cell>) -> Tap {
    let facts = RouteFacts {
        name: Label::known("test"),
        vantage: Vantage::Outbound,
        server_address: Label::known("localhost"),
        server_port: 80,
        provider: None,
        dialect: None,
        stripped: 0,
        base_path: Label::known(""),
        stall_after: Duration::from_secs(2),
        hung_after: Duration::from_secs(30),
    };
    let open = Open {
        wall: Wall::default(),
        method: http::Method::GET,
        path: Name::new("/").unwrap(),
        model: None,
        host: None,
        version: http::Version::HTTP_11,
        scheme: Scheme::Http,
        headers: Headers::default(),
        length: None,
        client: None,
        route: Arc::new(facts),
        trace: Trace::default(),
        conversation: None,
        who: Who::default(),
        connection: None,
        cell,
    };
    seam.open(open, clock::now())
}

/// The words since the last drain, without `Open`, and their bytes.
pub(super) fn said(seam: &Seam) -> (Vec<String>, Vec<u8>) {
    let mut batch = Batch::default();
    seam.drain(0, &mut batch);
    let words = batch
        .entries
        .iter()
        .filter(|entry| !matches!(entry.word, Word::Open(_)))
        .map(|entry| {
            if let Word::Arrival { direction, len, .. } = entry.word {
                format!("{direction:?} {len}")
            } else {
                format!("{:?}", entry.word)
            }
        })
        .collect();
    (words, batch.bytes)
}

fn arrive(tap: &Tap, bytes: &[u8]) {
    tap.arrival(Direction::Response, clock::now(), bytes, Blocked::default());
}

#[test]
fn nothing_is_said_after_the_end_and_the_end_once() {
    let seam = seam(1 << 20);
    let tap = open(&seam);
    let other = tap.clone();
    arrive(&tap, b"abc");
    arrive(&tap, b"");
    tap.end(clock::now(), Ending::UpstreamFailed(Failure::MidBody));
    assert!(other.is_ended());
    arrive(&other, b"late");
    other.connected(clock::now(), Connected::default());
    other.end(clock::now(), Ending::Complete);
    drop((tap, other));
    let (words, bytes) = said(&seam);
    assert_eq!(words, ["Response 3", "End(UpstreamFailed(MidBody))"]);
    assert_eq!(bytes, b"abc");
    assert_eq!(seam.open_exchanges(), 0);
}

#[test]
fn a_tap_dropped_without_an_end_was_left_by_its_client_or_cut() {
    let seam = seam(1 << 20);
    let tap = open(&seam);
    let clone = tap.clone();
    drop(tap);
    assert_eq!(said(&seam).0, [""; 0], "a clone is left");
    drop(clone);
    assert_eq!(said(&seam).0, ["End(ClientGone)"]);
    let tap = open(&seam);
    seam.cut();
    drop(tap);
    assert_eq!(said(&seam).0, ["End(Drained)"]);
}

#[test]
fn the_request_ends_once() {
    let seam = seam(1 << 20);
    let tap = open(&seam);
    assert!(!tap.uploaded());
    tap.request_end(clock::now());
    tap.request_end(clock::now());
    assert!(tap.uploaded());
    assert_eq!(said(&seam).0, ["RequestEnd"]);
}

#[test]
fn bytes_beyond_the_budget_are_one_gap_said_before_what_comes_next() {
    let seam = seam(32 * 1024);
    let tap = open(&seam);
    let chunk = vec![b'x'; 4 * 1024];
    for _ in 0..10 {
        arrive(&tap, &chunk);
    }
    let (words, bytes) = said(&seam);
    assert_eq!(words, ["Response 4096"; 3], "the half in front of the observer's own");
    assert_eq!(bytes.len(), 3 * 4096);
    assert_eq!(seam.lost().bytes, 7 * 4096);
    arrive(&tap, b"again");
    tap.end(clock::now(), Ending::Complete);
    let (words, bytes) = said(&seam);
    let gap = "Gap { direction: Response, bytes: 28672 }";
    assert_eq!(words, [gap, "Response 5", "End(Complete)"]);
    assert_eq!(bytes, b"again");
}

#[test]
fn a_chunk_of_one_byte_weighs_what_its_word_does() {
    let seam = seam(64 * 1024);
    let tap = open(&seam);
    for _ in 0..100_000 {
        arrive(&tap, b"x");
    }
    let mut batch = Batch::default();
    seam.drain(0, &mut batch);
    assert!(batch.entries.len() * size_of::<Entry>() <= 32 * 1024);
    assert_eq!(seam.lost().bytes, 100_000 - batch.bytes.len() as u64);
}

#[test]
fn a_full_shard_has_taken_no_more_room_than_its_budget() {
    for len in [1, 1_000] {
        let seam = seam(64 * 1024);
        let tap = open(&seam);
        for _ in 0..100_000 {
            arrive(&tap, &vec![b'x'; len]);
        }
        let mut batch = Batch::default();
        seam.drain(0, &mut batch);
        assert!(seam.lost().bytes > 0, "it is full");
        assert!(batch.bytes.capacity() <= 32 * 1024);
        assert!(batch.entries.capacity() * size_of::<Entry>() <= 32 * 1024);
    }
}

#[test]
fn a_shard_nearly_full_takes_no_new_exchange_but_goes_on_with_its_own() {
    let seam = seam(64 * 1024);
    let first = open(&seam);
    arrive(&first, &vec![b'x'; 25 * 1024]);
    let second = open(&seam);
    arrive(&second, b"unseen");
    second.end(clock::now(), Ending::Complete);
    arrive(&first, b"seen");
    let (words, _) = said(&seam);
    assert_eq!(words, ["Response 25600", "Response 4"]);
    let lost = Lost { bytes: 0, exchanges: 1 };
    assert_eq!(seam.lost(), lost);
    assert_eq!(seam.open_exchanges(), 1, "the mute one is counted while it is open");
    arrive(&open(&seam), b"welcome again");
    assert!(said(&seam).0.contains(&"Response 13".to_owned()));
}

#[test]
fn what_a_burst_took_is_given_back() {
    let seam = seam(64 << 20);
    let tap = open(&seam);
    arrive(&tap, &vec![0; 8 << 20]);
    let mut batch = Batch::default();
    seam.drain(0, &mut batch);
    assert!(batch.bytes.capacity() >= 8 << 20);
    for _ in 0..4 {
        arrive(&tap, b"quiet");
        seam.drain(0, &mut batch);
    }
    let mut other = Batch::default();
    seam.drain(0, &mut other);
    assert!(batch.bytes.capacity() + other.bytes.capacity() < 2 << 20);
}

/// Parks with a timeout far beyond the test's patience, until told to stop; reports each return.
fn observer(seam: &Arc<Seam>) -> (mpsc::Receiver<()>, thread::JoinHandle<()>) {
    let (returned, returns) = mpsc::channel();
    let seam = Arc::clone(seam);
    let parking = thread::spawn(move || {
        while returned.send(()).is_ok() {
            seam.park(Duration::from_secs(3600));
        }
    });
    (returns, parking)
}

#[test]
fn the_observer_is_woken_by_the_first_exchange_and_by_a_half_full_shard() {
    let patience = Duration::from_secs(30);
    let seam = seam(64 * 1024);
    let (returns, parking) = observer(&seam);
    for _ in 0..2 {
        returns.recv_timeout(patience).expect("the first park only registers");
    }
    let first = open(&seam);
    returns.recv_timeout(patience).expect("an exchange opened after none was");
    let _second = open(&seam);
    arrive(&first, &vec![b'x'; 1024]);
    assert!(returns.try_recv().is_err(), "no chunk wakes it, nor a second exchange");
    arrive(&first, &vec![b'x'; 16 * 1024]);
    returns.recv_timeout(patience).expect("its shard is half full");
    drop(returns);
    seam.wake();
    parking.join().unwrap();
}
