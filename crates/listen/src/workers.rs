//! The threads that serve connections.

use std::convert::Infallible;
use std::io;
use std::iter;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Maximum number of threads for blocking calls, such as DNS lookups, for all workers together. Equals Tokio's default
/// for one runtime.
const MAX_BLOCKING_THREADS: usize = 512;

/// Threads that serve connections, each with a single-threaded runtime.
///
/// All tasks of a connection run on the same worker. If the upstream connection does as well, a chunk never waits until
/// another thread wakes up. A connection of a client never moves to another worker, so a new one goes to the worker with
/// the fewest open connections.
///
/// The threads end when the last clone is dropped. They drop the tasks that are still running.
#[derive(Clone, Debug)]
pub struct Workers(Arc<WorkerList>);

#[derive(Debug)]
struct WorkerList {
    first: Worker,
    others: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
    #[expect(dead_code, reason = "dropping the sender ends the thread")]
    stop: Option<oneshot::Sender<Infallible>>,
}

/// Counts one connection of a worker until it is dropped.
#[derive(Debug)]
pub(super) struct Assignment(Arc<AtomicUsize>);

impl Workers {
    /// Starts `count` threads.
    ///
    /// # Errors
    /// Returns an error if the system refuses a thread or its event queue.
    pub fn start(count: NonZeroUsize) -> io::Result<Self> {
        let max_blocking_threads = MAX_BLOCKING_THREADS.div_ceil(count.get());
        let start = || Worker::start(max_blocking_threads);
        let first = start()?;
        let others = (1..count.get()).map(|_| start()).collect::<io::Result<_>>()?;
        Ok(Self(Arc::new(WorkerList { first, others })))
    }

    /// Serves connections on the current runtime instead of separate threads.
    ///
    /// # Panics
    /// Panics outside a Tokio runtime.
    pub fn current() -> Self {
        let first = Worker::new(Handle::current(), None);
        Self(Arc::new(WorkerList { first, others: Vec::new() }))
    }

    /// Runs one task on each worker. `task` creates the task for the worker of the given index, which starts at 0.
    pub fn spawn_on_each<F>(&self, task: impl Fn(usize) -> F) -> Vec<JoinHandle<()>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let WorkerList { first, others } = &*self.0;
        let workers = iter::once(first).chain(others).enumerate();
        workers.map(|(index, worker)| worker.runtime.spawn(task(index))).collect()
    }

    /// Selects the worker with the fewest connections for a new one.
    pub(super) fn assign(&self) -> (&Handle, Assignment) {
        let WorkerList { first, others } = &*self.0;
        let load = |worker: &Worker| worker.connections.load(Ordering::Relaxed);
        let fewest = |best, other| if load(other) < load(best) { other } else { best };
        let worker = others.iter().fold(first, fewest);
        worker.connections.fetch_add(1, Ordering::Relaxed);
        (&worker.runtime, Assignment(Arc::clone(&worker.connections)))
    }
}

impl Worker {
    fn new(runtime: Handle, stop: Option<oneshot::Sender<Infallible>>) -> Self {
        Self { runtime, connections: Arc::default(), stop }
    }

    fn start(max_blocking_threads: usize) -> io::Result<Self> {
        const NAME: &str = "worker";
        let mut builder = Builder::new_current_thread();
        let runtime = builder
            .thread_name(NAME)
            .max_blocking_threads(max_blocking_threads)
            .enable_io()
            .enable_time()
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        thread::Builder::new().name(NAME.to_owned()).spawn(move || {
            drop(runtime.block_on(stopped));
            // Does not wait for DNS lookups that are still running.
            runtime.shutdown_background();
        })?;
        Ok(Self::new(handle, Some(stop)))
    }
}

impl Drop for Assignment {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_connection_goes_to_the_worker_with_the_fewest() {
        let workers = Workers::start(NonZeroUsize::new(2).unwrap()).unwrap();
        let (one, _held) = workers.assign();
        let (other, ended) = workers.assign();
        assert_ne!(one.id(), other.id());
        drop(ended);
        let (third, _held) = workers.assign();
        assert_eq!(third.id(), other.id());
    }

    #[test]
    fn tasks_of_a_worker_run_on_its_thread_until_it_is_dropped() {
        let workers = Workers::start(NonZeroUsize::new(2).unwrap()).unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        workers.spawn_on_each(|index| {
            let send = send.clone();
            async move {
                send.send((index, thread::current().id())).unwrap();
                // Keeps the sender until the runtime drops the task.
                std::future::pending::<()>().await;
                drop(send);
            }
        });
        drop(send);
        let patience = Duration::from_secs(30);
        let next = || receive.recv_timeout(patience);
        let ((index, thread), (other_index, other_thread)) = (next().unwrap(), next().unwrap());
        assert!(index != other_index && thread != other_thread);
        drop(workers);
        let error = next().unwrap_err();
        assert_eq!(error, std::sync::mpsc::RecvTimeoutError::Disconnected);
    }
}
