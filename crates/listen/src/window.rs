//! Flow-control windows of HTTP/2, and the budget that the windows of the whole process share.
//!
//! A peer may send as many bytes as the window allows, and the proxy keeps them until they are read. A window is
//! therefore memory that a peer can occupy. Its size also limits the rate of a stream to one window per round trip.

use std::os::fd::AsFd;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

/// Window in bytes of a stream for which the budget has no room: one frame of the default size. Such a stream still
/// receives 160 KB/s over a path of 100 ms, which is several times the rate of a fast token stream.
pub const MIN_STREAM: u32 = 16 << 10;

/// Window in bytes of a stream over a short path. In a cluster, with a round trip of 1 ms, it allows 64 MB/s.
const NEAR_STREAM: u32 = 64 << 10;

/// Maximum window in bytes of a stream. A long path needs a larger window for large messages, such as images.
const MAX_STREAM: u32 = 1 << 20;

/// Rate in bytes per second that the window of a stream must allow. An image of 3 MiB then takes 0.3 s. A window is as
/// large as the data that this rate sends in one round trip (the bandwidth-delay product).
const RATE: u128 = 10 << 20;

/// Round trip above which a path is long: [`NEAR_STREAM`] no longer allows [`RATE`].
const LONG_ROUND_TRIP: Duration = Duration::from_micros(6_250);

/// Receive buffer in bytes of a connection over a short path. The kernel doubles it for its own structures. A path of
/// [`LONG_ROUND_TRIP`] still allows 20 MB/s.
const RECEIVE_BUFFER: usize = 128 << 10;

/// Window in bytes of a client's connection, in addition to what one stream has beyond [`NEAR_STREAM`]. Sixteen uploads
/// that wait for their upstreams leave the others of the same connection unaffected.
const CLIENT_CONNECTION: u32 = 1 << 20;

/// Memory in bytes for windows beyond [`MIN_STREAM`], for uploads and for responses each. Together with the observer
/// and the kept requests, both parts fit into the memory limit of a sidecar, 256 MiB.
const BUDGET: usize = 32 << 20;

/// Windows of streams of upstreams: responses that their clients have not read.
pub static RESPONSES: WindowBudget = WindowBudget(Semaphore::const_new(BUDGET));

/// Windows of connections of clients: uploads that their upstreams have not read.
pub(super) static UPLOADS: WindowBudget = WindowBudget(Semaphore::const_new(BUDGET));

/// Memory for windows. A request is never rejected for want of this memory. It gets a smaller window instead.
#[derive(Debug)]
pub struct WindowBudget(Semaphore);

/// The part of the budget that a window takes. `None` for the smallest window.
pub type WindowPermit = Option<SemaphorePermit<'static>>;

impl WindowBudget {
    /// Returns the window for one stream over a path with this round trip, and its part of the budget.
    pub fn stream(&'static self, round_trip: Duration) -> (u32, WindowPermit) {
        let sizes = [wanted(round_trip), NEAR_STREAM];
        let found = sizes.into_iter().find_map(|size| Some((size, self.another_stream(size)?)));
        found.unwrap_or((MIN_STREAM, None))
    }

    /// Takes the part of the budget for a further stream with a window of `size`. Returns `None` if the budget has no
    /// room.
    pub fn another_stream(&'static self, size: u32) -> Option<WindowPermit> {
        match size.saturating_sub(MIN_STREAM) {
            0 => Some(None),
            more => self.0.try_acquire_many(more).ok().map(Some),
        }
    }

    /// Returns the windows for a connection of a client: of each stream, and of the connection.
    pub(super) fn client(&'static self, round_trip: Duration) -> (u32, u32, WindowPermit) {
        let found = [wanted(round_trip), NEAR_STREAM].into_iter().find_map(|stream| {
            let connection = CLIENT_CONNECTION + stream - NEAR_STREAM;
            let permit = self.0.try_acquire_many(connection).ok()?;
            Some((stream, connection, Some(permit)))
        });
        found.unwrap_or((MIN_STREAM, CLIENT_CONNECTION, None))
    }
}

/// Limits the received data that the kernel buffers while the proxy does not read, if the path is short. Otherwise, the
/// kernel adapts the buffer to the rate of the sender, which can be several MiB per connection within one machine.
pub fn limit_receive_buffer(socket: &impl AsFd, round_trip: Duration) {
    if round_trip <= LONG_ROUND_TRIP {
        // If the kernel refuses the limit, it buffers more.
        drop(socket2::SockRef::from(socket).set_recv_buffer_size(RECEIVE_BUFFER));
    }
}

fn wanted(round_trip: Duration) -> u32 {
    let bytes = RATE * round_trip.as_micros() / 1_000_000;
    u32::try_from(bytes).unwrap_or(MAX_STREAM).clamp(NEAR_STREAM, MAX_STREAM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_holds_what_the_path_has_in_transit() {
        let window = |millis| wanted(Duration::from_millis(millis));
        assert_eq!([0, 1, 6].map(window), [NEAR_STREAM; 3]);
        assert_eq!(u128::from(window(50)), RATE / 20);
        assert_eq!([100, 10_000].map(window), [MAX_STREAM; 2]);
        assert_eq!(wanted(LONG_ROUND_TRIP), NEAR_STREAM);
        assert!(wanted(LONG_ROUND_TRIP + Duration::from_millis(1)) > NEAR_STREAM);
    }

    #[test]
    fn all_windows_of_streams_together_fit_into_the_budget() {
        static BUDGET: WindowBudget = WindowBudget(Semaphore::const_new(3 << 20));
        let far = Duration::from_millis(200);
        let mut open = Vec::new();
        loop {
            let (size, permit) = BUDGET.stream(far);
            if permit.is_none() {
                assert_eq!(size, MIN_STREAM, "a stream without room gets the smallest window");
                break;
            }
            open.push((size, permit));
        }
        let extra: u32 = open.iter().map(|(size, _)| size - MIN_STREAM).sum();
        assert!(extra <= 3 << 20 && extra > (3 << 20) - NEAR_STREAM, "{extra}");
        assert_eq!(open.iter().filter(|(size, _)| *size == MAX_STREAM).count(), 3);
        assert!(BUDGET.another_stream(NEAR_STREAM).is_none());
        assert!(BUDGET.another_stream(MIN_STREAM).is_some());
        open.clear();
        assert_eq!(BUDGET.stream(far).0, MAX_STREAM, "closed streams return their part");
    }

    #[test]
    fn a_client_beyond_the_budget_gets_the_smallest_windows() {
        static BUDGET: WindowBudget = WindowBudget(Semaphore::const_new(2 << 20));
        let near = Duration::ZERO;
        let (first, second) = (BUDGET.client(near), BUDGET.client(near));
        assert_eq!((first.0, second.0), (NEAR_STREAM, NEAR_STREAM));
        let (stream, connection, permit) = BUDGET.client(near);
        assert!(stream == MIN_STREAM && connection == CLIENT_CONNECTION && permit.is_none());
        drop(first);
        let (stream, connection, _permit) = BUDGET.client(Duration::from_secs(1));
        assert_eq!((stream, connection), (NEAR_STREAM, CLIENT_CONNECTION), "no room for more");
    }
}
