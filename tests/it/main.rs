//! The one integration binary: black-box tests over loopback sockets. They assert order and bytes, never durations.

mod data_path;
mod support;
