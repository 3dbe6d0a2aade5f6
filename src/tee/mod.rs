//! tee
