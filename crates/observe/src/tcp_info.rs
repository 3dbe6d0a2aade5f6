//! TCP statistics of the kernel for the connections of a request.
//!
//! Each connection is queried once while the request is open, because it may be closed at the end, and again at the
//! end.

use std::sync::Arc;

use tokengauge_measure::record::{ConnectionSample, Network};
use tokengauge_types::tcp::{TcpConnection, TcpInfo};

/// Function that queries TCP statistics of a connection from the kernel. Returns `None` for a closed connection.
pub type TcpInfoQuery = Box<dyn FnMut(&TcpConnection) -> Option<TcpInfo> + Send>;

/// Maximum number of kernel queries between two periodic checks (a quarter of a second). A query takes 6 µs, so queries
/// take at most 1 % of a core. A request beyond the limit has no round-trip time. Its retransmits count for the next
/// request on the connection.
const MAX_QUERIES: usize = 400;

/// Queries the kernel, if the platform supports that.
#[derive(Default)]
pub(super) struct TcpInfoReader {
    query: Option<TcpInfoQuery>,
    queries: usize,
}

/// Both connections of a request.
#[derive(Debug, Default)]
pub(super) struct Connections {
    pub(super) client: PeerConnection,
    pub(super) upstream: PeerConnection,
}

/// One TCP connection and its latest statistics.
#[derive(Debug, Default)]
pub(super) struct PeerConnection {
    connection: Option<Arc<TcpConnection>>,
    info: Option<TcpInfo>,
}

impl TcpInfoReader {
    pub(super) fn new(query: TcpInfoQuery) -> Self {
        Self { query: Some(query), queries: 0 }
    }

    /// Resets the number of queries. Called at the beginning of each periodic check.
    pub(super) const fn begin_sweep(&mut self) {
        self.queries = 0;
    }

    /// Returns whether a query is possible: the platform supports it, and the limit is not reached.
    pub(super) const fn may_query(&self) -> bool {
        self.query.is_some() && self.queries < MAX_QUERIES
    }

    /// Queries the connection to the client and the connection to the upstream. With `again`, a connection that was
    /// already queried is queried again.
    pub(super) fn read(&mut self, connections: &mut Connections, again: bool) {
        let Some(query) = &mut self.query else { return };
        for peer in [&mut connections.client, &mut connections.upstream] {
            if self.queries < MAX_QUERIES && peer.read(again, query) {
                self.queries += 1;
            }
        }
    }
}

impl std::fmt::Debug for TcpInfoReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpInfoReader").field("queries", &self.queries).finish_non_exhaustive()
    }
}

impl Connections {
    /// Returns whether the kernel has answered for each open connection.
    pub(super) const fn are_read(&self) -> bool {
        self.client.is_read() && self.upstream.is_read()
    }

    pub(super) fn report(&self) -> Network {
        Network { client: self.client.report(), upstream: self.upstream.report() }
    }
}

impl PeerConnection {
    /// Sets another connection, and discards the statistics of the previous one.
    pub(super) fn set(&mut self, connection: Option<Arc<TcpConnection>>) {
        *self = Self { connection, info: None };
    }

    const fn is_read(&self) -> bool {
        self.connection.is_none() || self.info.is_some()
    }

    /// Returns whether a query was made.
    fn read(&mut self, again: bool, query: &mut TcpInfoQuery) -> bool {
        let is_needed = again || self.info.is_none();
        let Some(connection) = self.connection.as_ref().filter(|_| is_needed) else {
            return false;
        };
        // If the connection was closed in the meantime, the previous answer stays.
        self.info = query(connection).or(self.info);
        true
    }

    fn report(&self) -> Option<ConnectionSample> {
        let (connection, info) = self.connection.as_ref().zip(self.info)?;
        Some(ConnectionSample {
            rtt: info.rtt,
            least_rtt: info.least_rtt,
            retransmits: connection.take_unreported_retransmits(info.retransmits),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;

    fn connection() -> Option<Arc<TcpConnection>> {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        Some(Arc::new(TcpConnection::new(address, address)))
    }

    fn info(millis: u64, retransmits: u32) -> Option<TcpInfo> {
        Some(TcpInfo { rtt: Some(Duration::from_millis(millis)), least_rtt: None, retransmits })
    }

    /// Returns a reader that gets the given answers from the kernel, and a counter of its queries.
    fn reader(answers: Vec<Option<TcpInfo>>) -> (TcpInfoReader, Arc<Mutex<usize>>) {
        let queries = Arc::new(Mutex::new(0));
        let count = Arc::clone(&queries);
        let mut answers = answers.into_iter();
        let query = move |_: &TcpConnection| {
            *count.lock().unwrap() += 1;
            answers.next().flatten()
        };
        (TcpInfoReader::new(Box::new(query)), queries)
    }

    fn upstream(connection: Option<Arc<TcpConnection>>) -> Connections {
        let mut connections = Connections::default();
        connections.upstream.set(connection);
        connections
    }

    #[test]
    fn queries_until_there_is_an_answer_and_again_at_the_end() {
        let (mut reader, queries) = reader(vec![None, info(1, 0), info(2, 3)]);
        let mut connections = upstream(connection());
        for again in [false, false, false, true] {
            reader.read(&mut connections, again);
        }
        assert_eq!(*queries.lock().unwrap(), 3);
        let report = connections.report().upstream.unwrap();
        assert_eq!((report.rtt, report.retransmits), (Some(Duration::from_millis(2)), 3));
        assert_eq!(connections.report().client, None);
    }

    #[test]
    fn keeps_the_answer_from_before_a_close() {
        let (mut reader, _) = reader(vec![info(1, 2), None]);
        let mut connections = upstream(connection());
        reader.read(&mut connections, false);
        reader.read(&mut connections, true);
        assert_eq!(connections.report().upstream.unwrap().retransmits, 2);
    }

    #[test]
    fn exchanges_on_one_connection_share_its_retransmits() {
        let (mut reader, _) = reader(vec![info(1, 2), info(1, 2), info(1, 7)]);
        let shared = connection();
        let retransmits = [(); 3].map(|()| {
            let mut connections = upstream(shared.clone());
            reader.read(&mut connections, true);
            connections.report().upstream.unwrap().retransmits
        });
        assert_eq!(retransmits, [2, 0, 5]);
    }

    #[test]
    fn another_connection_begins_without_an_answer() {
        let (mut reader, _) = reader(vec![info(1, 2)]);
        let mut connections = upstream(connection());
        reader.read(&mut connections, false);
        connections.upstream.set(connection());
        assert_eq!(connections.report().upstream, None);
    }

    #[test]
    fn bounds_queries_between_sweeps() {
        let (mut reader, queries) = reader(Vec::new());
        let mut connections = upstream(connection());
        for _ in 0..2 * MAX_QUERIES {
            reader.read(&mut connections, true);
        }
        assert_eq!(*queries.lock().unwrap(), MAX_QUERIES);
        reader.begin_sweep();
        reader.read(&mut connections, true);
        assert_eq!(*queries.lock().unwrap(), MAX_QUERIES + 1);
    }
}
