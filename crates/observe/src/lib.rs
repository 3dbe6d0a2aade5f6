//! The spine of the observation path: composes the stages (`exchange.rs`, sans-IO), keeps the exchanges in flight
//! (`board.rs`, still sans-IO) and drives them from the seam (`task.rs`).

mod anomalies;
mod answer;
mod arguments;
mod board;
mod calling;
mod coding;
mod exchange;
mod network;
mod reading;
mod socket;
mod task;
pub mod tee;

pub use board::{Board, Phase, Sinks, StreamView};
pub use exchange::Exchange;
pub use network::Ask;
pub use task::Observer;

#[cfg(test)]
mod accounting;
#[cfg(test)]
mod backend_tests;
#[cfg(test)]
mod ends;
#[cfg(test)]
mod queue_tests;
#[cfg(test)]
mod stall_tests;
#[cfg(test)]
mod tests;
