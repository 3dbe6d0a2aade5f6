//! The drain endpoints: starting a drain, and waiting for its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// Progress of the drain. Never goes back.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum DrainStage {
    #[default]
    None,
    Draining,
    /// No exchange has been in flight for the requested time.
    Drained,
}

/// Starts a drain with the options of the query string, or joins the one in progress. Returns how long the caller waits
/// for its end, or an error message about the query.
pub type StartDrain = Box<dyn Fn(&str) -> Result<Duration, String> + Send + Sync>;

/// Enough for a pod's hook and a few people. Callers are on this machine or have the token. Requests that only wait are
/// limited by their connections.
const MAX_DRAIN_REQUESTS: usize = 8;

/// How long `/drained` waits for a drain to start. The hooks of a pod's containers run concurrently, so the one that
/// waits may come before the one that starts the drain, which takes seconds on a busy node. If only the engine is
/// restarted, it stops later by this time.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// The drain, as seen by the admin port.
pub struct Drain {
    start: StartDrain,
    stage: watch::Receiver<DrainStage>,
    requests: Arc<Semaphore>,
    /// The latest time until which a caller waits.
    deadline: watch::Sender<Option<Instant>>,
}

impl std::fmt::Debug for Drain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drain").finish_non_exhaustive()
    }
}

/// The result of waiting for a drain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum DrainOutcome {
    Drained,
    NotDraining,
    /// Exchanges continue after the time given to the drain.
    Overdue,
    TooManyRequests,
    InvalidQuery(String),
}

impl Drain {
    pub fn new(start: StartDrain, stage: watch::Receiver<DrainStage>) -> Self {
        let requests = Arc::new(Semaphore::new(MAX_DRAIN_REQUESTS));
        Self { start, stage, requests, deadline: watch::Sender::new(None) }
    }

    /// Starts the drain and waits for its end. The drain continues if the caller disconnects.
    pub(super) async fn start(&self, query: &str) -> DrainOutcome {
        let timeout = match (self.start)(query) {
            Ok(timeout) => timeout,
            Err(message) => return DrainOutcome::InvalidQuery(message),
        };
        let deadline = Instant::now() + timeout;
        self.deadline.send_modify(|latest| *latest = (*latest).max(Some(deadline)));
        let Ok(_permit) = self.requests.try_acquire() else {
            return DrainOutcome::TooManyRequests;
        };
        let drained = self.reaches(DrainStage::Drained);
        match tokio::time::timeout_at(deadline, drained).await {
            Ok(()) => DrainOutcome::Drained,
            Err(_) => DrainOutcome::Overdue,
        }
    }

    /// Waits for the end of the drain or of its time, so that a caller that stops the backend afterwards has some time
    /// left. Returns early if no drain starts soon.
    pub(super) async fn wait(&self) -> DrainOutcome {
        let started = self.reaches(DrainStage::Draining);
        if tokio::time::timeout(START_TIMEOUT, started).await.is_err() {
            return DrainOutcome::NotDraining;
        }
        tokio::select! {
            biased;
            () = self.reaches(DrainStage::Drained) => DrainOutcome::Drained,
            () = self.passes_deadline() => DrainOutcome::Overdue,
        }
    }

    /// Waits until no caller of [`start`](Self::start) waits any longer.
    async fn passes_deadline(&self) {
        let mut latest = self.deadline.subscribe();
        loop {
            let deadline = *latest.borrow_and_update();
            let passed = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = passed => return,
                // `self` holds the sender, so this is a later deadline.
                _ = latest.changed() => {}
            }
        }
    }

    async fn reaches(&self, stage: DrainStage) {
        let mut reached = self.stage.clone();
        if reached.wait_for(|reached| *reached >= stage).await.is_err() {
            // Without a sender there will be no drain.
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Waker};

    use super::*;

    /// A drain whose query is the number of seconds to wait.
    fn drain() -> (Drain, watch::Sender<DrainStage>) {
        let stage = watch::Sender::new(DrainStage::None);
        let receiver = stage.subscribe();
        let sender = stage.clone();
        let start = move |query: &str| {
            sender.send_replace(DrainStage::Draining);
            Ok(Duration::from_secs(query.parse().unwrap()))
        };
        (Drain::new(Box::new(start), receiver), stage)
    }

    fn is_waiting(waiting: Pin<&mut impl Future<Output = DrainOutcome>>) -> bool {
        waiting.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[tokio::test]
    async fn drained_waits_as_long_as_the_last_drain_request() {
        let (drain, stage) = drain();
        let (started, waited) = tokio::join!(drain.start("0"), drain.wait());
        assert_eq!((started, waited), (DrainOutcome::Overdue, DrainOutcome::Overdue));
        assert_eq!(drain.wait().await, DrainOutcome::Overdue, "also later");
        let mut more = pin!(drain.start("3600"));
        assert!(is_waiting(more.as_mut()));
        assert_eq!(drain.start("0").await, DrainOutcome::Overdue);
        let mut waiting = pin!(drain.wait());
        assert!(is_waiting(waiting.as_mut()), "another request still waits");
        stage.send_replace(DrainStage::Drained);
        assert_eq!(more.await, DrainOutcome::Drained);
        assert_eq!(waiting.await, DrainOutcome::Drained);
    }
}
