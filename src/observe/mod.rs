//! The spine of the observation path: composes the stages (`exchange.rs`, sans-IO) and drives them (`task.rs`).
