//! Asking Linux about a connection, as `ss` does: sock_diag(7) over netlink, for exactly the connection between two
//! addresses.
//!
//! Not `getsockopt(TCP_INFO)`: it wants the socket, and no crate that is kept well wraps it safely; `docs/adr/0005` has
//! the comparison. Offsets and numbers are those of `linux/netlink.h`, `linux/sock_diag.h`, `linux/inet_diag.h` and
//! `linux/tcp.h`, which the kernel never changes.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use tokengauge_types::tcp::{TcpConnection, TcpInfo};

/// `struct nlmsghdr`, `struct inet_diag_req_v2` and `struct inet_diag_msg`.
const HEADER: usize = 16;
const REQUEST: usize = 56;
const MESSAGE: usize = 72;

/// Where a message has the ports: the local one, then the remote one.
const PORTS: usize = 4;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const INET_DIAG_INFO: u16 = 2;
const IPPROTO_TCP: u8 = 6;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Where `struct tcp_info` has them; the last is there since Linux 4.6.
const TCPI_RTT: usize = 68;
const TCPI_TOTAL_RETRANS: usize = 100;
const TCPI_MIN_RTT: usize = 148;

/// An answer takes some 400 bytes; what the kernel may add to it finds room.
const ANSWER: usize = 2_048;

/// Answers to earlier questions that are passed over. There are none unless an answer came too late to be read.
const MOST_STALE: usize = 8;

/// A kernel that has answered nothing so far is not asked again. Where the module that answers is missing, each question
/// would have the kernel look for it on disk.
const MOST_FUTILE: u32 = 64;

/// A line to the kernel.
#[derive(Debug)]
pub struct Kernel {
    netlink: OwnedFd,
    sequence: u32,
    /// Questions without an answer, until one is answered.
    futile: Option<u32>,
}

impl Kernel {
    /// # Errors
    /// Where there is no such socket to be had: a sandbox that does not know it, or forbids it.
    pub fn open() -> io::Result<Self> {
        let netlink = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            Some(netlink::SOCK_DIAG),
        )?;
        Ok(Self { netlink, sequence: 0, futile: Some(0) })
    }

    /// What is known of `connection`; nothing once it is closed. Does not wait: the answer is there when the question
    /// has been sent. Takes some 6 µs.
    pub fn ask(&mut self, connection: &TcpConnection) -> Option<TcpInfo> {
        if self.futile.is_some_and(|futile| futile >= MOST_FUTILE) {
            return None;
        }
        let answered = self.try_ask(connection);
        match (&mut self.futile, &answered) {
            (Some(futile), None) => *futile += 1,
            (futile, Some(_)) => *futile = None,
            (None, None) => {}
        }
        answered
    }

    fn try_ask(&mut self, connection: &TcpConnection) -> Option<TcpInfo> {
        self.sequence = self.sequence.wrapping_add(1);
        let question = question(connection, self.sequence);
        send(&self.netlink, &question, SendFlags::empty()).ok()?;
        let mut buffer = [0; ANSWER];
        for _ in 0..MOST_STALE {
            let (length, _) = recv(&self.netlink, &mut buffer[..], RecvFlags::empty()).ok()?;
            let answer = buffer.get(..length)?;
            if number(answer, 8)? == self.sequence {
                return info(answer, connection);
            }
        }
        None
    }
}

/// Numbers of the message in the machine's order, ports and addresses in the network's.
fn question(connection: &TcpConnection, sequence: u32) -> Vec<u8> {
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

/// What an answer says of `connection`; `None` for an error, or where the kernel has nothing to say.
fn info(answer: &[u8], connection: &TcpConnection) -> Option<TcpInfo> {
    let kind = answer.get(4..6)?.try_into().ok().map(u16::from_ne_bytes)?;
    if kind != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    // In place of a connection that is gone the kernel tells of a socket that listens at the same address.
    let ports = [&connection.local, &connection.remote].map(|end| end.port().to_be_bytes());
    if answer.get(HEADER + PORTS..)?.get(..4)? != ports.as_flattened() {
        return None;
    }
    let mut attributes = answer.get(HEADER + MESSAGE..)?;
    loop {
        let length = usize::from(short(attributes, 0)?);
        if short(attributes, 2)? == INET_DIAG_INFO {
            return Some(of_tcp_info(attributes.get(4..length)?));
        }
        // Each begins at a multiple of four; a length of nothing would never end.
        attributes = attributes.get(length.max(4).next_multiple_of(4)..)?;
    }
}

/// The kernel says 0 or the greatest number for a time that it does not know.
fn of_tcp_info(info: &[u8]) -> TcpInfo {
    let micros = |at: usize| {
        number(info, at)
            .filter(|micros| ![0, u32::MAX].contains(micros))
            .map(|micros| Duration::from_micros(micros.into()))
    };
    TcpInfo {
        rtt: micros(TCPI_RTT),
        least_rtt: micros(TCPI_MIN_RTT),
        retransmits: number(info, TCPI_TOTAL_RETRANS).unwrap_or_default(),
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    four.try_into().ok().map(u32::from_ne_bytes)
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at + 2)?;
    two.try_into().ok().map(u16::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Both ends of a connection over which a byte went each way, and who listens there still.
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

    fn connection(stream: &TcpStream) -> TcpConnection {
        TcpConnection::new(stream.local_addr().unwrap(), stream.peer_addr().unwrap())
    }

    #[test]
    fn an_open_connection_has_round_trips_and_a_closed_one_nothing() {
        let mut kernel = Kernel::open().unwrap();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let ([near, far], _listener) = pair(address);
            for end in [&near, &far] {
                let info = kernel.ask(&connection(end)).unwrap();
                let rtt = info.rtt.unwrap();
                // By the loopback interface: anything else was read at the wrong place.
                assert!(rtt < Duration::from_secs(2), "{info:?}");
                assert!(info.least_rtt.is_some(), "{info:?}");
                assert!(info.retransmits < 100, "{info:?}");
            }
            let gone = [connection(&near), connection(&far)];
            drop((near, far));
            for end in &gone {
                assert_eq!(kernel.ask(end), None);
            }
        }
    }

    #[test]
    fn a_socket_for_both_families_is_found_under_its_mapped_address() {
        let mut kernel = Kernel::open().unwrap();
        let listener = TcpListener::bind("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let _near = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (far, _) = listener.accept().unwrap();
        let far = connection(&far);
        assert!(far.local.is_ipv6(), "{far:?}");
        assert!(kernel.ask(&far).unwrap().rtt.is_some());
    }

    #[test]
    fn both_ends_must_be_those_of_the_connection() {
        let mut kernel = Kernel::open().unwrap();
        let ([near, _far], _listener) = pair("127.0.0.1:0");
        let TcpConnection { local, remote, .. } = connection(&near);
        let other = |end: SocketAddr| SocketAddr::from(([127, 0, 0, 9], end.port()));
        assert_eq!(kernel.ask(&TcpConnection::new(local, other(remote))), None);
        assert_eq!(kernel.ask(&TcpConnection::new(other(local), remote)), None);
    }

    /// From port 1 to port 1.
    fn nobody() -> TcpConnection {
        let end = SocketAddr::from(([127, 0, 0, 1], 1));
        TcpConnection::new(end, end)
    }

    /// What the kernel answers, with one attribute before the one that is looked for.
    fn answer(info: &[u8]) -> Vec<u8> {
        let mut answer = vec![0; HEADER + MESSAGE];
        answer[HEADER + PORTS..][..4].copy_from_slice(&[0, 1, 0, 1]);
        answer[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        let mut attribute = |kind: u16, value: &[u8]| {
            let length = u16::try_from(4 + value.len()).unwrap();
            answer.extend(length.to_ne_bytes());
            answer.extend(kind.to_ne_bytes());
            answer.extend(value);
            answer.resize(answer.len().next_multiple_of(4), 0);
        };
        attribute(8, &[0]);
        attribute(INET_DIAG_INFO, info);
        answer
    }

    fn tcp_info(length: usize, fields: &[(usize, u32)]) -> Vec<u8> {
        let mut info = vec![0; length];
        for (at, value) in fields {
            info[*at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        info
    }

    #[test]
    fn numbers_are_read_where_the_kernel_has_them() {
        let fields = [(TCPI_RTT, 20_000), (TCPI_MIN_RTT, 15_000), (TCPI_TOTAL_RETRANS, 3)];
        let expected = TcpInfo {
            rtt: Some(Duration::from_millis(20)),
            least_rtt: Some(Duration::from_millis(15)),
            retransmits: 3,
        };
        assert_eq!(info(&answer(&tcp_info(232, &fields)), &nobody()), Some(expected));
    }

    #[test]
    fn no_sample_is_no_time_and_an_old_kernel_knows_less() {
        let none = tcp_info(232, &[(TCPI_MIN_RTT, u32::MAX)]);
        assert_eq!(info(&answer(&none), &nobody()), Some(TcpInfo::default()));
        let old = info(&answer(&tcp_info(104, &[(TCPI_RTT, 1_000)])), &nobody()).unwrap();
        assert_eq!((old.rtt, old.least_rtt), (Some(Duration::from_millis(1)), None));
    }

    #[test]
    fn an_answer_that_is_cut_or_of_another_kind_is_nothing() {
        let whole = answer(&tcp_info(232, &[(TCPI_RTT, 1)]));
        for end in 0..whole.len() {
            assert_eq!(info(&whole[..end], &nobody()), None, "{end}");
        }
        let mut error = whole.clone();
        error[4] = 2;
        assert_eq!(info(&error, &nobody()), None);
        let mut listens = whole.clone();
        listens[HEADER + PORTS + 3] = 0;
        assert_eq!(info(&listens, &nobody()), None);
        let mut endless = whole;
        endless[HEADER + MESSAGE..].fill(0);
        assert_eq!(info(&endless, &nobody()), None);
    }

    #[test]
    fn a_kernel_that_never_answers_is_left_alone() {
        let mut kernel = Kernel::open().unwrap();
        for _ in 0..MOST_FUTILE {
            assert_eq!(kernel.ask(&nobody()), None);
        }
        let asked = kernel.sequence;
        let ([near, _far], _listener) = pair("127.0.0.1:0");
        assert_eq!(kernel.ask(&connection(&near)), None);
        assert_eq!(kernel.sequence, asked);
    }
}
