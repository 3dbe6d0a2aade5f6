//! The spine of the observation path: composes the stages (`exchange.rs`, sans-IO), keeps the exchanges in flight
//! (`board.rs`, still sans-IO) and drives them from the seam (`task.rs`).

mod answer;
mod board;
mod calling;
mod exchange;
mod task;

pub use board::{Board, Phase, Sinks, StreamView};
pub use exchange::Exchange;
pub use task::Observer;

#[cfg(test)]
mod tests;
