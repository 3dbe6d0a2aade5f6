//! Reads all processes continuously, each in a task of its own, so that a slow process delays no other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::StatusCode;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::address::{AdminUrl, Endpoint};
use crate::client::{Client, ClientError, Event};
use crate::document::{LostEvents, Snapshot};
use crate::overview::{Failure, Overview, Source};
use crate::text::Text;
use tokengauge_types::clock;
use tokengauge_types::error::WithCauses;

/// Maximum number of processes. Each has a task and a document of up to some megabytes.
pub const MAX_PROCESSES: usize = 64;

/// Interval at which names are resolved again, to find new replicas.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum time to resolve a name.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which documents are read if a process accepts no more viewers.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// An unreachable process is removed this long after its name has lost its address. A killed replica stays visible.
const FORGET_MS: u64 = 5 * 60 * 1_000;

/// Which processes to read.
#[derive(Clone, Debug)]
pub struct Targets {
    pub urls: Vec<AdminUrl>,
    pub token: Option<String>,
}

/// Returns the Unix time in milliseconds.
pub fn now_unix_ms() -> u64 {
    clock::wall_now().unix_nanos() / 1_000_000
}

/// Reads the current document of each process once.
pub async fn read_once(targets: &Targets) -> Overview {
    let mut reads = JoinSet::new();
    let mut left_out = 0;
    let mut sources = Vec::new();
    for url in &targets.urls {
        match resolve(url).await {
            Ok(endpoints) => {
                for endpoint in endpoints {
                    if reads.len() >= MAX_PROCESSES {
                        left_out += 1;
                        continue;
                    }
                    let client = Client { endpoint, token: targets.token.clone() };
                    reads.spawn(async move {
                        (client.endpoint.to_string(), read_document(&client).await)
                    });
                }
            }
            Err(reason) => sources.push(failed(url.to_string(), &reason)),
        }
    }
    while let Some(read) = reads.join_next().await {
        match read {
            Ok((address, Ok(snapshot))) => {
                sources.push(Source { address, snapshot: Some(snapshot), failure: None });
            }
            Ok((address, Err(error))) => {
                sources.push(failed(address, &WithCauses(&error).to_string()))
            }
            // A task that panicked. The others are shown.
            Err(_) => {}
        }
    }
    Overview::merge(&sources, left_out)
}

/// Number of attempts to read a document from a process whose observer is busy.
const ATTEMPTS: usize = 3;

async fn read_document(client: &Client) -> Result<Snapshot, ClientError> {
    for _ in 1..ATTEMPTS {
        let result = client.snapshot().await;
        if !result.as_ref().is_err_and(is_busy) {
            return result;
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
    client.snapshot().await
}

/// Returns whether the process is healthy but cannot answer now: it has too many viewers, drains, or its observer is late.
fn is_busy(error: &ClientError) -> bool {
    matches!(error, ClientError::Status(StatusCode::SERVICE_UNAVAILABLE, _))
}

fn failed(address: String, reason: &str) -> Source {
    let failure = Failure { since_unix_ms: now_unix_ms(), reason: Text::new(reason) };
    Source { address, snapshot: None, failure: Some(failure) }
}

async fn resolve(url: &AdminUrl) -> Result<Vec<Endpoint>, String> {
    let resolved = tokio::time::timeout(RESOLVE_TIMEOUT, url.resolve()).await;
    match resolved {
        Ok(Ok(endpoints)) if endpoints.is_empty() => Err(format!("{url} has no address")),
        Ok(Ok(endpoints)) => Ok(endpoints),
        Ok(Err(error)) => Err(format!("cannot resolve the name: {error}")),
        Err(_) => Err(format!("the name was not resolved within {} s", RESOLVE_TIMEOUT.as_secs())),
    }
}

/// The processes that are being read. Dropping it ends all tasks.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Mutex<Shared>>,
    versions: watch::Receiver<u64>,
    resolvers: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// One per process, by address; also one per name that cannot be resolved.
    sources: BTreeMap<String, Source>,
    tasks: BTreeMap<String, JoinHandle<()>>,
    /// Number of addresses beyond the limit, by URL.
    left_out: BTreeMap<String, usize>,
    /// Increases with each change.
    version: watch::Sender<u64>,
}

/// Locks the state. A thread that panicked leaves whole values, so its lock stays usable.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    tokengauge_types::sync::lock(shared)
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.resolvers.iter().for_each(JoinHandle::abort);
        lock(&self.shared).tasks.values().for_each(JoinHandle::abort);
    }
}

impl Watch {
    /// Starts to read the processes. Must be called within a tokio runtime.
    pub fn start(targets: &Targets) -> Self {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let start = |url: &AdminUrl| {
            let (shared, token) = (Arc::clone(&shared), targets.token.clone());
            tokio::spawn(follow_name(shared, url.clone(), token))
        };
        let resolvers = targets.urls.iter().map(start).collect();
        let versions = lock(&shared).version.subscribe();
        Self { shared, versions, resolvers }
    }

    /// Returns a number that changes with the documents.
    pub fn version(&self) -> u64 {
        *self.versions.borrow()
    }

    /// Waits until the documents change.
    pub async fn changed(&mut self) {
        // The sender lives as long as this value.
        drop(self.versions.changed().await);
    }

    /// Merges the documents of all processes.
    pub fn overview(&self) -> Overview {
        let mut shared = lock(&self.shared);
        let left_out = shared.left_out.values().sum();
        let sources: Vec<Source> = std::mem::take(&mut shared.sources).into_values().collect();
        let overview = Overview::merge(&sources, left_out);
        shared.sources = sources.into_iter().map(|it| (it.address.clone(), it)).collect();
        overview
    }
}

/// Resolves a name again and again, and starts a task for each new address.
async fn follow_name(shared: Arc<Mutex<Shared>>, url: AdminUrl, token: Option<String>) {
    let name = url.to_string();
    let mut own: BTreeMap<String, Endpoint> = BTreeMap::new();
    loop {
        match resolve(&url).await {
            Ok(endpoints) => {
                let current: BTreeMap<String, Endpoint> =
                    endpoints.into_iter().map(|it| (it.to_string(), it)).collect();
                let mut state = lock(&shared);
                if !current.contains_key(&name) {
                    state.sources.remove(&name);
                }
                let gone: Vec<String> =
                    own.keys().filter(|address| !current.contains_key(*address)).cloned().collect();
                for address in gone.iter().filter(|address| state.forget(address)) {
                    own.remove(address);
                }
                let left_out = state.start_tasks(&shared, &current, token.as_ref());
                state.left_out.insert(name.clone(), left_out);
                state.advance();
                own.extend(current);
            }
            // The known processes stay: a failure of the name service is not one of the processes.
            Err(reason) if own.is_empty() => lock(&shared).fail(&name, &reason),
            Err(_) => {}
        }
        tokio::time::sleep(RESOLVE_INTERVAL).await;
    }
}

impl Shared {
    /// Starts a task for each endpoint without one. Returns the number of endpoints beyond the limit.
    fn start_tasks(
        &mut self,
        shared: &Arc<Mutex<Self>>,
        endpoints: &BTreeMap<String, Endpoint>,
        token: Option<&String>,
    ) -> usize {
        let mut left_out = 0;
        for (address, endpoint) in endpoints {
            if self.tasks.contains_key(address) {
                continue;
            }
            if self.tasks.len() >= MAX_PROCESSES {
                left_out += 1;
                continue;
            }
            let source = Source { address: address.clone(), ..Source::default() };
            self.sources.insert(address.clone(), source);
            let client = Client { endpoint: endpoint.clone(), token: token.cloned() };
            let task = tokio::spawn(follow_process(Arc::clone(shared), client));
            self.tasks.insert(address.clone(), task);
        }
        left_out
    }

    /// Removes a process that has no name any more, if it has been unreachable for long. Returns whether it is removed.
    fn forget(&mut self, address: &str) -> bool {
        let failure = self.sources.get(address).and_then(|source| source.failure.as_ref());
        let is_old =
            failure.is_some_and(|it| now_unix_ms().saturating_sub(it.since_unix_ms) >= FORGET_MS);
        if is_old {
            self.sources.remove(address);
            if let Some(task) = self.tasks.remove(address) {
                task.abort();
            }
        }
        is_old
    }

    fn advance(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    fn source(&mut self, address: &str) -> &mut Source {
        self.advance();
        let new = || Source { address: address.to_owned(), ..Source::default() };
        self.sources.entry(address.to_owned()).or_insert_with(new)
    }

    /// Records a failure. Its start stays until the process can be read again.
    fn fail(&mut self, address: &str, reason: &str) {
        let source = self.source(address);
        let since = source.failure.as_ref().map(|failure| failure.since_unix_ms);
        source.failure = Some(Failure {
            since_unix_ms: since.unwrap_or_else(now_unix_ms),
            reason: Text::new(reason),
        });
    }

    fn update(&mut self, address: &str, event: Event) -> Result<(), LostEvents> {
        match event {
            Event::Snapshot(snapshot) => self.store(address, *snapshot),
            Event::Delta(delta) => {
                // A stream starts with a document, so a delta without one is ignored.
                if let Some(snapshot) = &mut self.source(address).snapshot {
                    snapshot.apply(*delta)?;
                }
            }
        }
        Ok(())
    }

    fn store(&mut self, address: &str, snapshot: Snapshot) {
        let source = self.source(address);
        source.snapshot = Some(snapshot);
        source.failure = None;
    }
}

/// Reads the events of a process. If the process accepts no more viewers, reads its document every few seconds instead.
async fn follow_process(shared: Arc<Mutex<Shared>>, client: Client) {
    let address = client.endpoint.to_string();
    loop {
        let followed = client.follow(|event| lock(&shared).update(&address, event)).await;
        let error = match followed {
            Ok(never) => match never {},
            Err(error) => error,
        };
        let result = if is_busy(&error) { client.snapshot().await } else { Err(error) };
        match result {
            Ok(snapshot) => {
                lock(&shared).store(&address, snapshot);
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            // The next attempt reads the whole document.
            Err(ClientError::Lost(_)) => {}
            Err(error) => {
                lock(&shared).fail(&address, &WithCauses(&error).to_string());
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::AbortHandle;

    use super::*;
    use crate::testing::document;

    /// An admin port that answers each request with `head`, and sends one document. Aborting the task closes the port
    /// and its connections.
    async fn serve(head: &'static str, name: &str) -> (SocketAddr, AbortHandle) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let document = document(name, &[0.3; 20], 0);
        let task = tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 4096];
                let length = stream.read(&mut request).await.unwrap();
                let is_live = request[..length].starts_with(b"GET /api/v1/live ");
                let body = match is_live {
                    true => format!("event: snapshot\ndata: {document}\n\n"),
                    false => document.to_string(),
                };
                stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
                if is_live && head.contains("200") {
                    open.push(stream);
                }
            }
        });
        (address, task.abort_handle())
    }

    const OK: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";

    fn targets(addresses: &[SocketAddr]) -> Targets {
        let urls = addresses.iter().map(|address| address.to_string().parse().unwrap()).collect();
        Targets { urls, token: None }
    }

    async fn wait_for(watch: &mut Watch, condition: impl Fn(&Overview) -> bool) -> Overview {
        loop {
            let overview = watch.overview();
            if condition(&overview) {
                return overview;
            }
            watch.changed().await;
        }
    }

    #[tokio::test]
    async fn a_process_that_dies_is_unreachable_and_a_silent_one_delays_no_other() {
        let (alive, _) = serve(OK, "alive").await;
        let (mortal, process) = serve(OK, "mortal").await;
        // Accepts connections and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let start = now_unix_ms();
        let mut watch = Watch::start(&targets(&[alive, mortal, silent.local_addr().unwrap()]));
        let overview = wait_for(&mut watch, |it| it.streams.len() == 8).await;
        let silent = overview.processes.iter().find(|it| !it.has_answered).unwrap();
        assert!(silent.failure.is_none(), "still connecting");
        process.abort();
        let failed = |it: &Overview| {
            it.processes.iter().any(|it| it.name.as_str() == "mortal" && it.failure.is_some())
        };
        let overview = wait_for(&mut watch, failed).await;
        let process = overview.processes.iter().find(|it| it.name.as_str() == "mortal").unwrap();
        let first = process.failure.clone().unwrap();
        assert!((start..=now_unix_ms()).contains(&first.since_unix_ms));
        assert_eq!(overview.streams.len(), 4, "only those of the living process");
        let refused = |it: &Overview| {
            let mut failures = it.processes.iter().filter_map(|it| it.failure.as_ref());
            failures.any(|it| it.reason.as_str().contains("refused"))
        };
        let overview = wait_for(&mut watch, refused).await;
        let process = overview.processes.iter().find(|it| it.name.as_str() == "mortal").unwrap();
        let last = process.failure.clone().unwrap();
        assert_eq!(last.since_unix_ms, first.since_unix_ms, "the start of the outage stays");
    }

    #[tokio::test]
    async fn a_process_with_too_many_viewers_is_polled() {
        // The task answers both paths with 503, so the document cannot be read either, and the reason is shown.
        let busy = "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\n\r\nbusy: ";
        let (address, _) = serve(busy, "a").await;
        let mut watch = Watch::start(&targets(&[address]));
        let overview = wait_for(&mut watch, |it| it.unreachable() == 1).await;
        let failure = overview.processes[0].failure.as_ref().unwrap();
        assert!(failure.reason.as_str().starts_with("status 503: busy"), "{failure:?}");
    }

    #[tokio::test]
    async fn reads_each_process_once() {
        let (a, _) = serve(OK, "a").await;
        let (b, _) = serve(OK, "b").await;
        let (gone, _) = {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            (listener.local_addr().unwrap(), ())
        };
        let overview = read_once(&targets(&[a, b, gone])).await;
        assert_eq!(
            (overview.processes.len(), overview.unreachable(), overview.streams.len()),
            (3, 1, 8)
        );
    }

    #[tokio::test]
    async fn the_number_of_processes_is_limited() {
        let addresses: Vec<SocketAddr> =
            (1..=70).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
        let overview = read_once(&targets(&addresses)).await;
        assert_eq!((overview.processes.len(), overview.processes_left_out), (MAX_PROCESSES, 6));
    }
}
