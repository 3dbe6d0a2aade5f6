//! Reads the statistics of one TCP connection on Linux with sock_diag(7) over netlink, as `ss` does.
//!
//! `getsockopt(TCP_INFO)` is not used: it needs the socket, and no maintained crate wraps it safely (`docs/adr/0005`).
//! Offsets and numbers come from `linux/netlink.h`, `linux/sock_diag.h`, `linux/inet_diag.h` and `linux/tcp.h`. The
//! kernel never changes these values.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use super::SendQueue;
use tokengauge_types::tcp::{TcpConnection, TcpInfo};

/// Sizes in bytes of `struct nlmsghdr`, `struct inet_diag_req_v2` and `struct inet_diag_msg`.
const HEADER: usize = 16;
const REQUEST: usize = 56;
const MESSAGE: usize = 72;

/// Offsets of the state, of the local port and then the remote port, and of the length of the write queue in
/// `struct inet_diag_msg`.
const STATE: usize = 1;
const PORTS: usize = 4;
const WRITE_QUEUE: usize = 60;

/// The state of a connection after the other side has sent FIN (`TCP_CLOSE_WAIT` in `linux/tcp_states.h`).
const CLOSE_WAIT: u8 = 8;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const INET_DIAG_INFO: u16 = 2;
const IPPROTO_TCP: u8 = 6;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Offsets of fields in `struct tcp_info`. `tcpi_min_rtt` exists since Linux 4.6.
const TCPI_RTT: usize = 68;
const TCPI_TOTAL_RETRANS: usize = 100;
const TCPI_MIN_RTT: usize = 148;

/// Size of the receive buffer in bytes. A response has about 400 bytes today, and future kernels may add fields.
const MAX_RESPONSE: usize = 2_048;

/// Maximum number of late responses that one query skips. A late response belongs to an earlier request.
const MAX_STALE_RESPONSES: usize = 8;

/// Number of failed kernel requests after which no more are sent, if none has succeeded yet. If a kernel module is
/// missing, each request makes the kernel search for the module on disk.
const MAX_FAILED_REQUESTS: u32 = 64;

/// A netlink socket.
#[derive(Debug)]
pub struct Kernel {
    netlink: OwnedFd,
    sequence: u32,
    /// Number of failed requests before the first success. `None` afterwards.
    failed_requests: Option<u32>,
}

impl Kernel {
    /// # Errors
    /// Returns an error if the system has no netlink sockets or a sandbox forbids them.
    pub fn open() -> io::Result<Self> {
        let netlink = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            Some(netlink::SOCK_DIAG),
        )?;
        Ok(Self { netlink, sequence: 0, failed_requests: Some(0) })
    }

    /// Reads the statistics of `connection`. Returns `None` if the connection is closed or the request fails. Takes
    /// about 6 µs. Does not block, because the kernel writes the response before the send call returns.
    pub fn query(&mut self, connection: &TcpConnection) -> Option<TcpInfo> {
        if self.failed_requests.is_some_and(|failed| failed >= MAX_FAILED_REQUESTS) {
            return None;
        }
        let response = self.request(connection, decode_tcp_info);
        match (&mut self.failed_requests, &response) {
            (Some(failed), None) => *failed += 1,
            (failed, Some(_)) => *failed = None,
            (None, None) => {}
        }
        response
    }

    /// Reads the send queue of `connection`. Returns `None` if the connection is closed or the request fails.
    pub fn send_queue(&mut self, connection: &TcpConnection) -> Option<SendQueue> {
        self.request(connection, decode_send_queue)
    }

    /// Requests the state of `connection`, and decodes the response: `struct inet_diag_msg` and its attributes.
    fn request<T>(
        &mut self,
        connection: &TcpConnection,
        decode: impl Fn(&[u8]) -> Option<T>,
    ) -> Option<T> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = encode_request(connection, self.sequence);
        send(&self.netlink, &request, SendFlags::empty()).ok()?;
        let mut buffer = [0; MAX_RESPONSE];
        for _ in 0..MAX_STALE_RESPONSES {
            let (length, _) = recv(&self.netlink, &mut buffer[..], RecvFlags::empty()).ok()?;
            let response = buffer.get(..length)?;
            if read_u32(response, 8)? == self.sequence {
                return decode(message_of(response, connection)?);
            }
        }
        None
    }
}

/// Encodes a request. Ports and addresses are in network byte order, other numbers in native byte order.
fn encode_request(connection: &TcpConnection, sequence: u32) -> Vec<u8> {
    let TcpConnection { local, remote, .. } = connection;
    let mut message = Vec::with_capacity(HEADER + REQUEST);
    let length = u32::try_from(HEADER + REQUEST).unwrap_or_default();
    message.extend(length.to_ne_bytes());
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend([0; 4]);
    let (family, scope) = match local {
        SocketAddr::V4(_) => (AF_INET, 0),
        SocketAddr::V6(local) => (AF_INET6, local.scope_id()),
    };
    message.extend([family, IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0]);
    let any_state = u32::MAX;
    message.extend(any_state.to_ne_bytes());
    message.extend(local.port().to_be_bytes());
    message.extend(remote.port().to_be_bytes());
    message.extend(address(local));
    message.extend(address(remote));
    message.extend(scope.to_ne_bytes());
    let no_cookie = u64::MAX;
    message.extend(no_cookie.to_ne_bytes());
    message
}

fn address(end: &SocketAddr) -> [u8; 16] {
    match end {
        SocketAddr::V4(end) => {
            let [a, b, c, d] = end.ip().octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        SocketAddr::V6(end) => end.ip().octets(),
    }
}

/// Returns the message in a response. Returns `None` for an error, or for a response about another socket.
fn message_of<'r>(response: &'r [u8], connection: &TcpConnection) -> Option<&'r [u8]> {
    let kind = response.get(4..6)?.try_into().ok().map(u16::from_ne_bytes)?;
    if kind != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    let message = response.get(HEADER..)?;
    // Compares the ports: for a closed connection, the kernel may return a socket that listens on the same address.
    let ports = [&connection.local, &connection.remote].map(|end| end.port().to_be_bytes());
    (message.get(PORTS..)?.get(..4)? == ports.as_flattened()).then_some(message)
}

fn decode_send_queue(message: &[u8]) -> Option<SendQueue> {
    let has_received_fin = *message.get(STATE)? == CLOSE_WAIT;
    let unacknowledged = read_u32(message, WRITE_QUEUE)?.into();
    Some(SendQueue { unacknowledged, has_received_fin })
}

/// Decodes the statistics among the attributes of a message. Returns `None` if they are missing.
fn decode_tcp_info(message: &[u8]) -> Option<TcpInfo> {
    let mut attributes = message.get(MESSAGE..)?;
    loop {
        let length = usize::from(read_u16(attributes, 0)?);
        if read_u16(attributes, 2)? == INET_DIAG_INFO {
            return Some(decode_fields(attributes.get(4..length)?));
        }
        // Attributes are aligned to 4 bytes. At least 4 bytes are skipped, because a length of 0 would loop forever.
        attributes = attributes.get(length.max(4).next_multiple_of(4)..)?;
    }
}

/// Decodes the statistics. The kernel reports an unknown time as 0 or as the maximum of its type.
fn decode_fields(info: &[u8]) -> TcpInfo {
    let micros = |at: usize| {
        read_u32(info, at)
            .filter(|micros| ![0, u32::MAX].contains(micros))
            .map(|micros| Duration::from_micros(micros.into()))
    };
    TcpInfo {
        rtt: micros(TCPI_RTT),
        least_rtt: micros(TCPI_MIN_RTT),
        retransmits: read_u32(info, TCPI_TOTAL_RETRANS).unwrap_or_default(),
    }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    four.try_into().ok().map(u32::from_ne_bytes)
}

fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at + 2)?;
    two.try_into().ok().map(u16::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Returns both ends of a connection that has sent one byte in each direction, and its listener.
    fn pair(address: &str) -> ([TcpStream; 2], TcpListener) {
        let listener = TcpListener::bind(address).unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(b"x").unwrap();
        far.read_exact(&mut [0]).unwrap();
        far.write_all(b"x").unwrap();
        near.read_exact(&mut [0]).unwrap();
        ([near, far], listener)
    }

    fn decode_response(response: &[u8], connection: &TcpConnection) -> Option<TcpInfo> {
        decode_tcp_info(message_of(response, connection)?)
    }

    fn connection(stream: &TcpStream) -> TcpConnection {
        TcpConnection::new(stream.local_addr().unwrap(), stream.peer_addr().unwrap())
    }

    #[test]
    fn reads_open_connections_only() {
        let mut kernel = Kernel::open().unwrap();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let ([near, far], _listener) = pair(address);
            for end in [&near, &far] {
                let info = kernel.query(&connection(end)).unwrap();
                let rtt = info.rtt.unwrap();
                // A loopback round trip above this would mean that the value was read at the wrong offset.
                assert!(rtt < Duration::from_secs(2), "{info:?}");
                assert!(info.least_rtt.is_some(), "{info:?}");
                assert!(info.retransmits < 100, "{info:?}");
            }
            let gone = [connection(&near), connection(&far)];
            drop((near, far));
            for end in &gone {
                assert_eq!(kernel.query(end), None);
            }
        }
    }

    #[test]
    fn reads_the_send_queue_until_a_reset() {
        let mut kernel = Kernel::open().unwrap();
        let ([mut near, far], _listener) = pair("127.0.0.1:0");
        let connection = connection(&near);
        let queue =
            |unacknowledged, has_received_fin| Some(SendQueue { unacknowledged, has_received_fin });
        assert_eq!(kernel.send_queue(&connection), queue(0, false));
        // Fills the buffers of both sides. The rest stays unacknowledged.
        near.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(length) = near.write(&[0; 1 << 16]) {
            written += length as u64;
        }
        let unread = kernel.send_queue(&connection).unwrap();
        assert!((1..=written).contains(&unread.unacknowledged), "{unread:?} of {written}");
        far.shutdown(std::net::Shutdown::Write).unwrap();
        let closed = kernel.send_queue(&connection).unwrap();
        assert!(closed.has_received_fin && closed.unacknowledged > 0, "{closed:?}");
        // Unread data makes the kernel send RST.
        drop(far);
        assert_eq!(kernel.send_queue(&connection), None);
    }

    #[test]
    fn finds_dual_stack_sockets_by_their_mapped_address() {
        let mut kernel = Kernel::open().unwrap();
        let listener = TcpListener::bind("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let _near = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (far, _) = listener.accept().unwrap();
        let far = connection(&far);
        assert!(far.local.is_ipv6(), "{far:?}");
        assert!(kernel.query(&far).unwrap().rtt.is_some());
    }

    #[test]
    fn matches_both_addresses() {
        let mut kernel = Kernel::open().unwrap();
        let ([near, _far], _listener) = pair("127.0.0.1:0");
        let TcpConnection { local, remote, .. } = connection(&near);
        let other = |end: SocketAddr| SocketAddr::from(([127, 0, 0, 9], end.port()));
        assert_eq!(kernel.query(&TcpConnection::new(local, other(remote))), None);
        assert_eq!(kernel.query(&TcpConnection::new(other(local), remote)), None);
    }

    /// A connection that does not exist.
    fn no_connection() -> TcpConnection {
        let end = SocketAddr::from(([127, 0, 0, 1], 1));
        TcpConnection::new(end, end)
    }

    /// A response with one attribute before the statistics.
    fn response(info: &[u8]) -> Vec<u8> {
        let mut response = vec![0; HEADER + MESSAGE];
        response[HEADER + PORTS..][..4].copy_from_slice(&[0, 1, 0, 1]);
        response[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        let mut attribute = |kind: u16, value: &[u8]| {
            let length = u16::try_from(4 + value.len()).unwrap();
            response.extend(length.to_ne_bytes());
            response.extend(kind.to_ne_bytes());
            response.extend(value);
            response.resize(response.len().next_multiple_of(4), 0);
        };
        attribute(8, &[0]);
        attribute(INET_DIAG_INFO, info);
        response
    }

    fn tcp_info(length: usize, fields: &[(usize, u32)]) -> Vec<u8> {
        let mut info = vec![0; length];
        for (at, value) in fields {
            info[*at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        info
    }

    #[test]
    fn decodes_the_fields() {
        let fields = [(TCPI_RTT, 20_000), (TCPI_MIN_RTT, 15_000), (TCPI_TOTAL_RETRANS, 3)];
        let expected = TcpInfo {
            rtt: Some(Duration::from_millis(20)),
            least_rtt: Some(Duration::from_millis(15)),
            retransmits: 3,
        };
        assert_eq!(
            decode_response(&response(&tcp_info(232, &fields)), &no_connection()),
            Some(expected)
        );
    }

    #[test]
    fn decodes_missing_fields() {
        let none = tcp_info(232, &[(TCPI_MIN_RTT, u32::MAX)]);
        assert_eq!(decode_response(&response(&none), &no_connection()), Some(TcpInfo::default()));
        let old =
            decode_response(&response(&tcp_info(104, &[(TCPI_RTT, 1_000)])), &no_connection())
                .unwrap();
        assert_eq!((old.rtt, old.least_rtt), (Some(Duration::from_millis(1)), None));
    }

    #[test]
    fn rejects_truncated_and_other_responses() {
        let complete = response(&tcp_info(232, &[(TCPI_RTT, 1)]));
        for end in 0..complete.len() {
            assert_eq!(decode_response(&complete[..end], &no_connection()), None, "{end}");
        }
        let mut error = complete.clone();
        error[4] = 2;
        assert_eq!(decode_response(&error, &no_connection()), None);
        let mut listens = complete.clone();
        listens[HEADER + PORTS + 3] = 0;
        assert_eq!(decode_response(&listens, &no_connection()), None);
        let mut endless = complete;
        endless[HEADER + MESSAGE..].fill(0);
        assert_eq!(decode_response(&endless, &no_connection()), None);
    }

    #[test]
    fn stops_after_too_many_failed_requests() {
        let mut kernel = Kernel::open().unwrap();
        for _ in 0..MAX_FAILED_REQUESTS {
            assert_eq!(kernel.query(&no_connection()), None);
        }
        let last_sequence = kernel.sequence;
        let ([near, _far], _listener) = pair("127.0.0.1:0");
        assert_eq!(kernel.query(&connection(&near)), None);
        assert_eq!(kernel.sequence, last_sequence);
    }
}
