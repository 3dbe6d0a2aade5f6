//! Runs a fuzz target without libFuzzer for a minute, with random changes of its seeds. It finds fewer bugs than
//! libFuzzer, because it gets no feedback about code coverage.

use std::fs;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestError, TestRunner};
use tokengauge_types::clock;

use crate::Target;
use crate::seeds::{self, Seed};

const MINUTE: Duration = Duration::from_secs(60);

/// Maximum length of an input in bytes. Longer inputs are slow and cover nothing new.
const LONGEST: usize = 8_192;

/// Byte sequences to insert, each of which has a meaning for one of the readers.
const WORDS: [&[u8]; 24] = [
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b"data: ",
    b"event: ",
    b"[DONE]",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\",
    b"\\ud83d",
    b"\\u0000",
    b"null",
    b"-1",
    b"1e999",
    b"18446744073709551616",
    b"\xff",
    b"\xf0\x9f",
    b"\x00\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\x1f\x8b",
    b"#",
];

/// Runs the target on changed seeds until the minute is over or an input fails. A failing input is reduced and written
/// to a file.
pub fn drive(target: &Target) {
    let seeds = seeds::for_target(target.name);
    let begun = clock::now();
    let mut runs = 0_u64;
    while clock::now().since(begun) < MINUTE {
        let config = Config { failure_persistence: None, ..Config::with_cases(512) };
        let cases = u64::from(config.cases);
        let tried = TestRunner::new(config).run(&input(&seeds), |input| {
            (target.run)(&input);
            Ok(())
        });
        match tried {
            Ok(()) => runs += cases,
            Err(TestError::Fail(why, input)) => report(target, &input, why.message()),
            Err(TestError::Abort(why)) => panic!("{}: {why}", target.name),
        }
    }
    println!("{}: {runs} runs", target.name);
}

fn report(target: &Target, input: &[u8], why: &str) {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-found-{}", target.name));
    fs::write(&file, input).unwrap();
    panic!(
        "{why}\nthe input is {}; to play it, and keep it as a test:\n  mv {0} tests/fuzz/seeds/{}/WHAT-IT-IS\n  cargo test --test fuzz played::{2}",
        file.display(),
        target.name,
        target.name
    );
}

/// A change of an input.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    Insert(Index, &'static [u8]),
    Remove(Index, usize),
    Double(Index, usize),
    /// Replaces the rest with the rest of another input.
    Cross(Index, Index, Index),
}

fn input(seeds: &[Seed]) -> impl Strategy<Value = Vec<u8>> {
    let change = prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (any::<Index>(), prop::sample::select(WORDS.to_vec()))
            .prop_map(|(at, word)| Change::Insert(at, word)),
        (any::<Index>(), 1..40_usize).prop_map(|(at, count)| Change::Remove(at, count)),
        (any::<Index>(), 1..200_usize).prop_map(|(at, count)| Change::Double(at, count)),
        any::<(Index, Index, Index)>().prop_map(|(at, other, from)| Change::Cross(at, other, from)),
    ];
    let inputs: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.input.clone()).collect();
    let changes = prop::collection::vec(change, 0..8);
    (any::<Index>(), changes).prop_map(move |(first, changes)| {
        let mut input = inputs[first.index(inputs.len())].clone();
        for change in changes {
            change.make(&mut input, &inputs);
            input.truncate(LONGEST);
        }
        input
    })
}

impl Change {
    fn make(self, input: &mut Vec<u8>, others: &[Vec<u8>]) {
        let length = input.len();
        let place = |at: Index, length: usize| at.index(length + 1);
        match self {
            Self::Set(at, byte) => {
                if let Some(place) = input.get_mut(place(at, length)) {
                    *place = byte;
                }
            }
            Self::Insert(at, word) => {
                let at = place(at, length);
                input.splice(at..at, word.iter().copied());
            }
            Self::Remove(at, count) => {
                let at = place(at, length);
                input.drain(at..(at + count).min(length));
            }
            Self::Double(at, count) => {
                let at = place(at, length);
                let again = input[at..(at + count).min(length)].to_vec();
                input.splice(at..at, again);
            }
            Self::Cross(at, other, from) => {
                let other = &others[other.index(others.len())];
                input.truncate(place(at, length));
                input.extend(&other[place(from, other.len())..]);
            }
        }
    }
}
