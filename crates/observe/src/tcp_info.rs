//! The connections that an exchange goes over, as far as the kernel was asked about them: once while the exchange goes on,
//! when its connections are open for certain, and again at its end, when they may be closed already.

use std::sync::Arc;

use tokengauge_measure::record::{ConnectionSample, Network};
use tokengauge_types::tcp::{TcpConnection, TcpInfo};

/// Asks the kernel; nothing of a connection that is closed.
pub type TcpInfoQuery = Box<dyn FnMut(&TcpConnection) -> Option<TcpInfo> + Send>;

/// Questions between two sweeps, a quarter of a second: at 6 µs each they take no more than 1 % of a core. Exchanges
/// beyond them have no round-trip time, and their retransmits are told by the next one on the connection.
const MOST_QUESTIONS: usize = 400;

/// The kernel, where it can be asked.
#[derive(Default)]
pub(super) struct TcpInfoReader {
    ask: Option<TcpInfoQuery>,
    asked: usize,
}

/// Both sides of an exchange.
#[derive(Debug, Default)]
pub(super) struct Connections {
    pub(super) client: PeerConnection,
    pub(super) upstream: PeerConnection,
}

/// One connection, and what was last said of it.
#[derive(Debug, Default)]
pub(super) struct PeerConnection {
    connection: Option<Arc<TcpConnection>>,
    info: Option<TcpInfo>,
}

impl TcpInfoReader {
    pub(super) fn new(ask: TcpInfoQuery) -> Self {
        Self { ask: Some(ask), asked: 0 }
    }

    /// A sweep begins.
    pub(super) const fn begin(&mut self) {
        self.asked = 0;
    }

    /// Asks about both sides; unless `again`, only about what nothing is known of.
    pub(super) fn ask(&mut self, sides: &mut Connections, again: bool) {
        let Some(ask) = &mut self.ask else { return };
        for side in [&mut sides.client, &mut sides.upstream] {
            if self.asked < MOST_QUESTIONS && side.ask(again, ask) {
                self.asked += 1;
            }
        }
    }
}

impl std::fmt::Debug for TcpInfoReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpInfoReader").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl Connections {
    pub(super) fn told(&self) -> Network {
        Network { client: self.client.told(), upstream: self.upstream.told() }
    }
}

impl PeerConnection {
    /// The exchange goes over `connection` from here on.
    pub(super) fn over(&mut self, connection: Option<Arc<TcpConnection>>) {
        *self = Self { connection, info: None };
    }

    /// Whether there was anything to ask.
    fn ask(&mut self, again: bool, ask: &mut TcpInfoQuery) -> bool {
        let wanted = again || self.info.is_none();
        let Some(connection) = self.connection.as_ref().filter(|_| wanted) else {
            return false;
        };
        // Closed meanwhile: what was said before still holds.
        self.info = ask(connection).or(self.info);
        true
    }

    fn told(&self) -> Option<ConnectionSample> {
        let (connection, info) = self.connection.as_ref().zip(self.info)?;
        Some(ConnectionSample {
            rtt: info.rtt,
            least_rtt: info.least_rtt,
            retransmits: connection.tell(info.retransmits),
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
        let end = SocketAddr::from(([127, 0, 0, 1], 1));
        Some(Arc::new(TcpConnection::new(end, end)))
    }

    fn info(millis: u64, retransmits: u32) -> Option<TcpInfo> {
        Some(TcpInfo { rtt: Some(Duration::from_millis(millis)), least_rtt: None, retransmits })
    }

    /// A kernel that gives these answers, and none after them.
    fn kernel(answers: Vec<Option<TcpInfo>>) -> (TcpInfoReader, Arc<Mutex<usize>>) {
        let asked = Arc::new(Mutex::new(0));
        let count = Arc::clone(&asked);
        let mut answers = answers.into_iter();
        let ask = move |_: &TcpConnection| {
            *count.lock().unwrap() += 1;
            answers.next().flatten()
        };
        (TcpInfoReader::new(Box::new(ask)), asked)
    }

    fn upstream(connection: Option<Arc<TcpConnection>>) -> Connections {
        let mut sides = Connections::default();
        sides.upstream.over(connection);
        sides
    }

    #[test]
    fn a_connection_is_asked_about_once_on_the_way_and_once_at_the_end() {
        let (mut kernel, asked) = kernel(vec![None, info(1, 0), info(2, 3)]);
        let mut sides = upstream(connection());
        for again in [false, false, false, true] {
            kernel.ask(&mut sides, again);
        }
        assert_eq!(*asked.lock().unwrap(), 3, "until there is an answer");
        let told = sides.told().upstream.unwrap();
        assert_eq!((told.rtt, told.retransmits), (Some(Duration::from_millis(2)), 3));
        assert_eq!(sides.told().client, None);
    }

    #[test]
    fn what_was_said_before_a_close_still_holds() {
        let (mut kernel, _) = kernel(vec![info(1, 2), None]);
        let mut sides = upstream(connection());
        kernel.ask(&mut sides, false);
        kernel.ask(&mut sides, true);
        assert_eq!(sides.told().upstream.unwrap().retransmits, 2);
    }

    #[test]
    fn exchanges_of_one_connection_share_out_its_retransmits() {
        let (mut kernel, _) = kernel(vec![info(1, 2), info(1, 2), info(1, 7)]);
        let shared = connection();
        let told = [(); 3].map(|()| {
            let mut sides = upstream(shared.clone());
            kernel.ask(&mut sides, true);
            sides.told().upstream.unwrap().retransmits
        });
        assert_eq!(told, [2, 0, 5]);
    }

    #[test]
    fn another_connection_begins_anew() {
        let (mut kernel, _) = kernel(vec![info(1, 2)]);
        let mut sides = upstream(connection());
        kernel.ask(&mut sides, false);
        sides.upstream.over(connection());
        assert_eq!(sides.told().upstream, None);
    }

    #[test]
    fn questions_are_bounded_between_sweeps() {
        let (mut kernel, asked) = kernel(Vec::new());
        let mut sides = upstream(connection());
        for _ in 0..2 * MOST_QUESTIONS {
            kernel.ask(&mut sides, true);
        }
        assert_eq!(*asked.lock().unwrap(), MOST_QUESTIONS);
        kernel.begin();
        kernel.ask(&mut sides, true);
        assert_eq!(*asked.lock().unwrap(), MOST_QUESTIONS + 1);
    }
}
