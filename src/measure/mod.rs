//! Clock points and formulas: when things happened, and what follows from it.

pub mod points;
pub mod rates;
pub mod stream;

pub use points::{Points, Stage, Stages};
pub use rates::{Band, Rates, Unrated};
pub use stream::{Sample, Stream};
