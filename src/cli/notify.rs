//! Reports the state of the process to the service manager that started it (`sd_notify`, `Type=notify` of systemd).

use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Variable with the service manager's socket: a path, or `@` and a name in Linux' abstract namespace.
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";

/// Time for the last work after the grace period: aborted requests, and the flush of observer, telemetry and log. Their
/// timeouts add up to less than 3 s.
const STOP_MARGIN: Duration = Duration::from_secs(5);

/// Sends messages to the service manager. Does nothing if no service manager waits for them.
#[derive(Debug)]
pub(super) struct ServiceManager(Option<(UnixDatagram, SocketAddr)>);

impl ServiceManager {
    /// Opens the socket that [`SOCKET_VARIABLE`] names.
    ///
    /// # Errors
    /// Returns an error if the variable is set but no socket can have its value. The service manager would wait in vain.
    pub(super) fn from_env(environment: fn(&str) -> Option<String>) -> io::Result<Self> {
        let Some(name) = environment(SOCKET_VARIABLE) else { return Ok(Self(None)) };
        Self::connect(&name).map_err(|error| {
            io::Error::new(error.kind(), format!("{SOCKET_VARIABLE}=\"{name}\": {error}"))
        })
    }

    fn connect(name: &str) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        // A service manager that does not read must not stop the proxy.
        socket.set_nonblocking(true)?;
        Ok(Self(Some((socket, address(name)?))))
    }

    pub(super) fn ready(&self) {
        self.send("READY=1\nSTATUS=serving");
    }

    pub(super) fn reloading(&self) {
        self.send("RELOADING=1");
    }

    /// Ends a reload. After an error, the previous configuration stays in use.
    pub(super) fn reloaded(&self, is_valid: bool) {
        match is_valid {
            true => self.ready(),
            false => self.send("READY=1\nSTATUS=serving with the previous configuration, because the new one has errors"),
        }
    }

    /// Asks for the time of the configured grace period, which can be longer than `TimeoutStopSec`.
    pub(super) fn stopping(&self, grace_period: Duration) {
        let timeout = grace_period.saturating_add(STOP_MARGIN).as_micros();
        self.send(&format!("STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC={timeout}"));
    }

    /// Sends a message. An error is ignored: the service manager then acts on its own timeouts, and requests come first.
    fn send(&self, message: &str) {
        if let Some((socket, address)) = &self.0 {
            drop(socket.send_to_addr(message.as_bytes(), address));
        }
    }
}

#[cfg(target_os = "linux")]
fn address(name: &str) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}

#[cfg(not(target_os = "linux"))]
fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_pathname(name)
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn sends_to_a_path_and_to_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify").display().to_string();
        for name in [path, format!("@tokengauge-test-{}", std::process::id())] {
            let socket = UnixDatagram::bind_addr(&address(&name).unwrap()).unwrap();
            let manager = ServiceManager::connect(&name).unwrap();
            manager.ready();
            assert_eq!(received(&socket), "READY=1\nSTATUS=serving");
            manager.reloading();
            manager.reloaded(false);
            assert_eq!(received(&socket), "RELOADING=1");
            assert!(received(&socket).starts_with("READY=1\nSTATUS=serving with the previous"));
            manager.stopping(Duration::from_secs(30));
            assert!(received(&socket).ends_with("EXTEND_TIMEOUT_USEC=35000000"));
        }
    }

    #[test]
    fn does_nothing_without_a_service_manager_and_never_waits_for_one() {
        ServiceManager::from_env(|_| None).unwrap().ready();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("full").display().to_string();
        let _unread = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::connect(&path).unwrap();
        (0..100_000).for_each(|_| manager.ready());
    }

    #[test]
    fn a_name_that_no_socket_can_have_is_an_error() {
        let error = ServiceManager::from_env(|_| Some("x".repeat(200))).unwrap_err();
        assert!(error.to_string().starts_with("NOTIFY_SOCKET=\"xxx"), "{error}");
    }
}
