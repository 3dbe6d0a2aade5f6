//! (signatures)
