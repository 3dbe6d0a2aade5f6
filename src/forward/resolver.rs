//! Resolves the host names of upstreams, with one lookup at a time per host name.
//!
//! The system's function `getaddrinfo` blocks its thread until the name server answers. A server that does not answer
//! blocks the thread for 5 s to minutes (`resolv.conf`). Lookups therefore run on separate threads, and requests that
//! need the same host name share a lookup. A name server that hangs for one upstream takes no thread that another
//! upstream needs (`docs/adr/0015`).

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::sync::lock;

/// Age from which a lookup that has not ended is not shared any more, so that a lookup that never ends does not block
/// its host name. Longer than the 5 s after which the system asks a name server again.
const MAX_SHARED_AGE: Duration = Duration::from_secs(10);

/// Maximum number of lookups of one host name that run at the same time, including those that hang. Further requests
/// wait for the newest one.
const MAX_LOOKUPS_PER_HOST: usize = 4;

/// Maximum number of threads for lookups in this process: more than the hosts of a large configuration. A lookup beyond it
/// fails.
const MAX_THREADS: usize = 256;

/// Number of threads that run lookups.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// The resolver of the system, which all upstreams share.
static SYSTEM: LazyLock<Resolver> = LazyLock::new(|| Resolver::with(resolve_by_system));

/// Resolves host names with the function that was passed to [`Resolver::new`], or with that of the system. Each new
/// connection needs an answer.
#[derive(Clone)]
pub struct Resolver(Arc<SharedResolver>);

type LookupFunction = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

struct SharedResolver {
    resolve: Box<LookupFunction>,
    /// The lookups that run, by host name. Bounded, because the names come from the configuration.
    running: Mutex<HashMap<String, Vec<Lookup>>>,
}

/// A lookup that runs.
#[derive(Clone)]
struct Lookup {
    started_at: MonotonicInstant,
    answer: watch::Receiver<Option<Answer>>,
}

/// The addresses of a host, or the text of an error.
type Answer = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;

/// The right to run a thread for a lookup.
struct ThreadPermit;

impl Resolver {
    /// Returns a resolver that calls `lookup` for each lookup, on a thread that may block.
    pub fn new(lookup: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        Self::with(move |host| {
            let addresses = lookup(host)?.into_iter();
            Ok(addresses.map(|address| SocketAddr::new(address, 0)).collect())
        })
    }

    fn with(resolve: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(SharedResolver { resolve: Box::new(resolve), running: Mutex::default() }))
    }

    /// Returns the resolver of the system.
    pub(super) fn system() -> &'static Self {
        &SYSTEM
    }

    /// Returns the addresses of `host`, with `port`.
    pub(super) async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        // An address needs no lookup.
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let mut answer = self.lookup(host)?;
        let answer = answer.wait_for(Option::is_some).await.map_err(io::Error::other)?.clone();
        let mut addresses = answer
            .unwrap_or_else(|| Ok(Vec::new()))
            .map_err(|(kind, message)| io::Error::new(kind, message))?;
        for address in &mut addresses {
            address.set_port(port);
        }
        Ok(addresses)
    }

    /// Joins a lookup of `host`, or starts one.
    fn lookup(&self, host: &str) -> io::Result<watch::Receiver<Option<Answer>>> {
        let now = clock::now();
        let mut running = lock(&self.0.running);
        running.retain(|_, lookups| {
            lookups.retain(Lookup::is_running);
            !lookups.is_empty()
        });
        let of_host = running.get(host).map(Vec::as_slice).unwrap_or_default();
        if let Some(newest) = of_host.last()
            && (now.since(newest.started_at) < MAX_SHARED_AGE
                || of_host.len() >= MAX_LOOKUPS_PER_HOST)
        {
            return Ok(newest.answer.clone());
        }
        let (sender, answer) = watch::channel(None);
        let (shared, name) = (Arc::clone(&self.0), host.to_owned());
        let permit = ThreadPermit::acquire()?;
        let work = move || {
            let _permit = permit;
            let answer = (shared.resolve)(&name);
            sender.send_replace(Some(answer.map_err(|error| (error.kind(), error.to_string()))));
        };
        thread::Builder::new().name("lookup".to_owned()).spawn(work)?;
        let lookup = Lookup { started_at: now, answer: answer.clone() };
        running.entry(host.to_owned()).or_default().push(lookup);
        Ok(answer)
    }
}

impl Lookup {
    /// Returns false if the lookup has an answer, or if its thread has panicked.
    fn is_running(&self) -> bool {
        self.answer.borrow().is_none() && self.answer.has_changed().is_ok()
    }
}

fn resolve_by_system(host: &str) -> io::Result<Vec<SocketAddr>> {
    Ok((host, 0).to_socket_addrs()?.collect())
}

impl ThreadPermit {
    fn acquire() -> io::Result<Self> {
        let permit = (THREADS.fetch_add(1, Ordering::Relaxed), Self);
        match permit {
            (others, permit) if others < MAX_THREADS => Ok(permit),
            _ => Err(io::Error::other(format!("{MAX_THREADS} name lookups have no answer yet"))),
        }
    }
}

impl Drop for ThreadPermit {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

impl PartialEq for Resolver {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Resolver {}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const ANSWER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// Returns a resolver whose lookups wait for a message, and a counter of lookups.
    fn waiting() -> (Resolver, mpsc::Sender<()>, Arc<AtomicUsize>) {
        let (sender, receiver) = mpsc::channel();
        let (receiver, calls) = (Mutex::new(receiver), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&calls);
        let resolver = Resolver::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            lock(&receiver).recv().map_err(io::Error::other)?;
            Ok(vec![ANSWER])
        });
        (resolver, sender, calls)
    }

    #[tokio::test]
    async fn requests_share_a_lookup_and_later_ones_start_another() {
        let (resolver, answer, calls) = waiting();
        // Joined before the answer is sent: a request that comes after it starts a lookup of its own.
        let requests: Vec<_> =
            (0..100).map(|_| resolver.lookup("model.example").unwrap()).collect();
        answer.send(()).unwrap();
        for mut request in requests {
            let answer = request.wait_for(Option::is_some).await.unwrap();
            assert_eq!(*answer, Some(Ok(vec![SocketAddr::new(ANSWER, 0)])));
        }
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        answer.send(()).unwrap();
        let answer = resolver.resolve("model.example", 80).await.unwrap();
        assert_eq!(answer, [SocketAddr::new(ANSWER, 80)]);
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_lookup_that_hangs_is_replaced_a_few_times() {
        let (resolver, answer, _) = waiting();
        let age = |resolver: &Resolver| {
            for lookup in lock(&resolver.0.running).get_mut("model.example").unwrap() {
                lookup.started_at = lookup.started_at.saturating_sub(MAX_SHARED_AGE);
            }
        };
        let mut waiting = Vec::new();
        for _ in 0..2 * MAX_LOOKUPS_PER_HOST {
            waiting.push(resolver.lookup("model.example").unwrap());
            assert!(lock(&resolver.0.running)["model.example"].len() <= MAX_LOOKUPS_PER_HOST);
            age(&resolver);
        }
        let other = resolver.lookup("other.example").unwrap();
        for _ in 0..=MAX_LOOKUPS_PER_HOST {
            answer.send(()).unwrap();
        }
        for mut it in waiting.into_iter().chain([other]) {
            assert!(it.wait_for(Option::is_some).await.unwrap().as_ref().unwrap().is_ok());
        }
        answer.send(()).unwrap();
        resolver.resolve("model.example", 80).await.unwrap();
        assert_eq!(lock(&resolver.0.running).len(), 1, "other lookups are removed");
    }

    #[tokio::test]
    async fn a_panic_fails_one_lookup() {
        let calls = AtomicUsize::new(0);
        let resolver = Resolver::new(move |_| {
            assert!(calls.fetch_add(1, Ordering::Relaxed) > 0, "the first call panics");
            Ok(vec![ANSWER])
        });
        assert!(resolver.resolve("model.example", 80).await.is_err());
        assert!(resolver.resolve("model.example", 80).await.is_ok());
    }

    #[tokio::test]
    async fn an_error_reaches_all_requests() {
        let resolver = Resolver::new(|_| Err(io::Error::from(io::ErrorKind::NotFound)));
        let error = resolver.resolve("model.example", 80).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn an_address_needs_no_lookup() {
        let (resolver, _answer, calls) = waiting();
        for address in ["127.0.0.1", "::1"] {
            let resolved = resolver.resolve(address, 1).await.unwrap();
            assert_eq!(resolved, [SocketAddr::new(address.parse().unwrap(), 1)]);
        }
        assert_eq!(calls.load(Ordering::Relaxed), 0);
    }
}
