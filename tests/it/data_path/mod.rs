//! The data path: what goes in comes out, in time and to the byte, and each exchange says its words once.

mod bodies;
mod channel;
mod failures;
mod heads;
mod protocols;
mod traces;
mod uploads;
