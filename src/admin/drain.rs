//! Asking for a drain, and waiting until there is nothing left to wait for.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// How far a drain is. It goes one way.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum DrainStage {
    /// Nobody asked for one.
    #[default]
    None,
    Going,
    /// No exchange has been in flight for as long as was asked for.
    Done,
}

/// Begins a drain as the query says, or joins the one that goes on, and tells how long the one who asks waits for its end; else
/// what is wrong with the query, and what to do.
pub type Begin = Box<dyn Fn(&str) -> Result<Duration, String> + Send + Sync>;

/// Who asks for a drain: a hook of the pod, and somebody at hand. They are on this machine or have the token; those who only
/// wait may be anyone, and are bounded by their connections.
const MOST_ASKERS: usize = 8;

/// How long one who waits is kept where nobody asked for a drain. The hooks of a pod's containers run side by side, so the
/// one that waits may come before the one that asks, which on a busy node takes seconds to be started. Where an engine
/// alone is restarted, it is stopped by so much later.
const PATIENCE: Duration = Duration::from_secs(10);

/// The drain, as the admin port knows it.
pub struct Drain {
    begin: Begin,
    stage: watch::Receiver<DrainStage>,
    askers: Arc<Semaphore>,
    /// When the last of those who asked waits no longer.
    until: watch::Sender<Option<Instant>>,
}

impl std::fmt::Debug for Drain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drain").finish_non_exhaustive()
    }
}

/// What came of waiting.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum DrainOutcome {
    Drained,
    NotDraining,
    /// What was to end goes on, and the time that the drain was given is over.
    Overdue,
    /// As many have asked as may.
    Full,
    /// The query makes no sense.
    Wrong(String),
}

impl Drain {
    pub fn new(begin: Begin, stage: watch::Receiver<DrainStage>) -> Self {
        Self {
            begin,
            stage,
            askers: Arc::new(Semaphore::new(MOST_ASKERS)),
            until: watch::Sender::new(None),
        }
    }

    /// Begins the drain and waits for its end. It goes on where the one who asked does not wait.
    pub(super) async fn ask(&self, query: &str) -> DrainOutcome {
        let within = match (self.begin)(query) {
            Ok(within) => within,
            Err(wrong) => return DrainOutcome::Wrong(wrong),
        };
        let until = Instant::now() + within;
        self.until.send_modify(|latest| *latest = (*latest).max(Some(until)));
        let Ok(_place) = self.askers.try_acquire() else {
            return DrainOutcome::Full;
        };
        let done = self.reaches(DrainStage::Done);
        match tokio::time::timeout_at(until, done).await {
            Ok(()) => DrainOutcome::Drained,
            Err(_) => DrainOutcome::Overdue,
        }
    }

    /// Waits for the end of the drain, if there is one soon, or of its time: who waits for this before it stops what is behind
    /// the proxy shall have some time left to do so.
    pub(super) async fn wait(&self) -> DrainOutcome {
        let begun = self.reaches(DrainStage::Going);
        if tokio::time::timeout(PATIENCE, begun).await.is_err() {
            return DrainOutcome::NotDraining;
        }
        tokio::select! {
            biased;
            () = self.reaches(DrainStage::Done) => DrainOutcome::Drained,
            () = self.overdue() => DrainOutcome::Overdue,
        }
    }

    /// Waits until nobody of those who asked still does.
    async fn overdue(&self) {
        let mut told = self.until.subscribe();
        loop {
            let until = *told.borrow_and_update();
            let over = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = over => return,
                // Its sender is this drain's own, so another time was told.
                _ = told.changed() => {}
            }
        }
    }

    async fn reaches(&self, stage: DrainStage) {
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

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Waker};

    use super::*;

    /// A drain in which who asks says how many seconds he waits.
    fn drain() -> (Drain, watch::Sender<DrainStage>) {
        let stage = watch::Sender::new(DrainStage::None);
        let told = stage.subscribe();
        let going = stage.clone();
        let begin = move |query: &str| {
            going.send_replace(DrainStage::Going);
            Ok(Duration::from_secs(query.parse().unwrap()))
        };
        (Drain::new(Box::new(begin), told), stage)
    }

    fn is_waiting(waiting: Pin<&mut impl Future<Output = DrainOutcome>>) -> bool {
        waiting.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[tokio::test]
    async fn who_waits_is_told_when_the_last_who_asked_waits_no_longer() {
        let (drain, stage) = drain();
        let (asked, waited) = tokio::join!(drain.ask("0"), drain.wait());
        assert_eq!((asked, waited), (DrainOutcome::Overdue, DrainOutcome::Overdue));
        assert_eq!(drain.wait().await, DrainOutcome::Overdue, "nor later");
        let mut more = pin!(drain.ask("3600"));
        assert!(is_waiting(more.as_mut()));
        assert_eq!(drain.ask("0").await, DrainOutcome::Overdue);
        let mut waiting = pin!(drain.wait());
        assert!(is_waiting(waiting.as_mut()), "somebody does");
        stage.send_replace(DrainStage::Done);
        assert_eq!(more.await, DrainOutcome::Drained);
        assert_eq!(waiting.await, DrainOutcome::Drained);
    }
}
