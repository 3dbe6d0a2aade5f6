//! Clock points and formulas: when things happened, and what follows from it.

pub mod edge;
pub mod pauses;
pub mod points;
pub mod rates;
pub mod stall;
pub mod stream;

pub use edge::edge_wait;
pub use pauses::Pauses;
pub use points::{Points, Stage, Stages};
pub use rates::{Band, Rates, Unrated, VOICE_RATE};
pub use stall::{Awaited, Patience, Silence, Stall, Stalls, Watch};
pub use stream::{Sample, Stream};
