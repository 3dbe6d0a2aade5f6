//! Runs the fuzz targets on their seeds.
//!
//! Every target runs on all its seeds, which takes seconds. The ignored tests change the seeds at random for a minute
//! each. They are for machines without libFuzzer. On other machines, `.ci/run fuzz` runs libFuzzer with the same entry
//! points (`fuzz/`).

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod drive;
mod entries;
mod seeds;

#[path = "../it/exchanges/eventstream.rs"]
mod eventstream;
#[expect(dead_code, reason = "only the tests of complete exchanges replay fixtures")]
#[path = "../it/exchanges/fixture.rs"]
mod fixture;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

/// A named entry point.
struct Target {
    name: &'static str,
    run: fn(&[u8]),
}

macro_rules! targets {
    ($($target:ident)*) => {
        const TARGETS: &[Target] = &[$(Target {
            name: stringify!($target),
            run: entries::$target,
        }),*];

        mod played {
            $(#[test]
            fn $target() {
                crate::play(stringify!($target));
            })*
        }

        mod fuzzed {
            $(#[test]
            #[ignore = "takes a minute; .ci/run fuzz runs it where libFuzzer does not"]
            fn $target() {
                crate::drive::drive(crate::target(stringify!($target)));
            })*
        }
    };
}

targets! {
    sse lines elements aws sniffed websocket
    gzip deflate br zstd codings
    dialects templates floods requests content realtime traces engines
    exchange board tokens manifests
}

fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).unwrap()
}

fn play(name: &str) {
    let seeds = seeds::for_target(name);
    assert!(!seeds.is_empty(), "{name} has no seeds");
    for seed in seeds {
        let played = catch_unwind(AssertUnwindSafe(|| (target(name).run)(&seed.input)));
        if let Err(panic) = played {
            println!("{name} fails for its seed {}", seed.name);
            resume_unwind(panic);
        }
    }
}

#[test]
fn libfuzzer_has_every_target() {
    let manifest = include_str!("../../fuzz/Cargo.toml");
    let binaries: Vec<&str> = manifest
        .split("[[bin]]\nname = \"")
        .skip(1)
        .filter_map(|binary| binary.split('"').next())
        .collect();
    let targets: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(binaries, targets);
}

/// Writes the initial corpus for libFuzzer.
#[test]
#[ignore = "writes files; .ci/run fuzz asks for it"]
fn seeds_are_written() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz-seeds");
    for target in TARGETS {
        let folder = root.join(target.name);
        fs::create_dir_all(&folder).unwrap();
        for seed in seeds::for_target(target.name) {
            fs::write(folder.join(seed.name), seed.input).unwrap();
        }
    }
}
