//! Asking for a drain, and waiting until there is nothing left to wait for.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};

/// How far a drain is. It goes one way.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Stage {
    /// Nobody asked for one.
    #[default]
    None,
    Going,
    /// No exchange has been in flight for as long as was asked for.
    Done,
}

/// Begins a drain as the query says, or joins the one that goes on; else what is wrong with the query, and what to do.
pub type Begin = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// Who waits for a drain: one pod's hooks, and somebody who looks.
const MOST_WAITERS: usize = 8;

/// How long one who waits is kept where nobody asked for a drain. The hooks of a pod's containers run side by side, so the
/// one that waits may come before the one that asks, which on a busy node takes seconds to be started. Where an engine
/// alone is restarted, it is stopped by so much later.
const PATIENCE: Duration = Duration::from_secs(10);

/// The drain, as the admin port knows it.
pub struct Drain {
    begin: Begin,
    stage: watch::Receiver<Stage>,
    /// Of those who asked for it; apart from those who only wait, since anyone may do that.
    askers: Arc<Semaphore>,
    waiters: Arc<Semaphore>,
}

impl std::fmt::Debug for Drain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drain").finish_non_exhaustive()
    }
}

/// What came of waiting.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Waited {
    Drained,
    NotDraining,
    /// As many wait as may.
    Full,
    /// The query makes no sense.
    Wrong(String),
}

impl Drain {
    pub fn new(begin: Begin, stage: watch::Receiver<Stage>) -> Self {
        Self {
            begin,
            stage,
            askers: Arc::new(Semaphore::new(MOST_WAITERS)),
            waiters: Arc::new(Semaphore::new(MOST_WAITERS)),
        }
    }

    /// Begins the drain and waits for its end. It goes on where the one who asked does not wait.
    pub(super) async fn ask(&self, query: &str) -> Waited {
        if let Err(wrong) = (self.begin)(query) {
            return Waited::Wrong(wrong);
        }
        let Ok(_place) = self.askers.try_acquire() else {
            return Waited::Full;
        };
        self.reaches(Stage::Done).await;
        Waited::Drained
    }

    /// Waits for the end of the drain, if there is one soon.
    pub(super) async fn wait(&self) -> Waited {
        let Ok(_place) = self.waiters.try_acquire() else {
            return Waited::Full;
        };
        let begun = self.reaches(Stage::Going);
        if tokio::time::timeout(PATIENCE, begun).await.is_err() {
            return Waited::NotDraining;
        }
        self.reaches(Stage::Done).await;
        Waited::Drained
    }

    async fn reaches(&self, stage: Stage) {
        let mut told = self.stage.clone();
        if told.wait_for(|reached| *reached >= stage).await.is_err() {
            // Nobody is left to begin one.
            std::future::pending::<()>().await;
        }
    }
}

/// Whether a peer is on this machine, over either family.
pub(super) fn is_local(peer: IpAddr) -> bool {
    peer.to_canonical().is_loopback()
}
