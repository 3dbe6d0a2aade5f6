//! Models of the code that several threads use without a lock, or with a lock for each step only.
//!
//! loom runs each model with all interleavings of its threads, up to `LOOM_MAX_PREEMPTIONS` (3) preemptions, and with
//! all values that the memory orderings allow. The source files are those of the workspace. Only their module
//! `tokengauge_types::sync` is another one. Run all models, or those whose names contain a word:
//!
//! ```sh
//! cargo run --manifest-path loom/Cargo.toml
//! cargo run --manifest-path loom/Cargo.toml -- notifier
//! ```

// The included files import this crate by the name of the real one.
extern crate self as tokengauge_types;

pub mod sync;
pub use tokengauge_types_real::{clock, event, label};

#[expect(dead_code, reason = "the models use a part of it")]
#[path = "../../crates/listen/src/flush_signal.rs"]
mod flush_signal;
#[expect(dead_code, reason = "the models use a part of it")]
#[path = "../../crates/types/src/notifier.rs"]
mod notifier;
#[expect(dead_code, unused_imports, reason = "the models use a part of it")]
#[path = "../../crates/observe/src/tee/mod.rs"]
mod tee;

mod channel_models;
mod signal_models;

type Model = (&'static str, fn());

fn main() {
    let word = std::env::args().nth(1).unwrap_or_default();
    let models = signal_models::MODELS.iter().chain(&channel_models::MODELS);
    let mut count = 0;
    for (name, model) in models.filter(|(name, _)| name.contains(&word)) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(3);
        builder.check(*model);
        println!("{name}: ok");
        count += 1;
    }
    assert!(count > 0, "no model has {word:?} in its name");
}
