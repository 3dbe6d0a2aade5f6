//! Reads the state and the statistics of open TCP connections from the kernel.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod peek;
#[cfg(target_os = "linux")]
pub use self::{linux::Kernel, peek::is_silent};
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{Kernel, is_silent};
