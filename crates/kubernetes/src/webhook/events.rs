//! EventRecorder on the owner of a pod: what was done with it, where people look for it (`kubectl describe replicaset …`).
//!
//! A review never waits for one: events go through a queue that drops and counts when it is full. A deployment that
//! makes hundreds of pods says the same once: the first event of an owner and a reason holds for ten minutes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::api::ApiClient;
use super::log;
use super::metrics::{EventOutcome, Metrics};
use super::review::{OwnerEvent, ReviewOutcome, cut};
use super::validity::rfc3339;
use tokengauge_types::clock::{self, MonotonicInstant};

/// EventRecorder that wait to be sent.
const QUEUE: usize = 256;

/// How long the same is not said again of the same owner.
const AGAIN: Duration = Duration::from_secs(600);

/// What the API server takes of an event's message.
const LONGEST_MESSAGE: usize = 1_000;

/// Owners and reasons of the last ten minutes; what is beyond is not told.
const MOST_REMEMBERED: usize = 4_096;

/// Where events are put. Without an API server, nowhere.
#[derive(Debug)]
pub struct EventRecorder {
    queue: Option<mpsc::Sender<OwnerEvent>>,
    said: Mutex<RecentEvents>,
    metrics: Arc<Metrics>,
}

impl EventRecorder {
    /// Sends on this runtime until it is dropped.
    pub fn start(api: Option<Arc<ApiClient>>, metrics: Arc<Metrics>) -> Self {
        let queue = api.map(|api| {
            let (queue, waiting) = mpsc::channel(QUEUE);
            tokio::spawn(send(api, waiting, Arc::clone(&metrics)));
            queue
        });
        Self { queue, said: Mutex::default(), metrics }
    }

    pub fn tell(&self, told: OwnerEvent) {
        let Some(queue) = &self.queue else {
            return;
        };
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = said.is_new(&told, clock::now());
        drop(said);
        if !is_new {
            self.metrics.event(EventOutcome::Limited);
        } else if queue.try_send(told).is_err() {
            self.metrics.event(EventOutcome::Dropped);
        }
    }
}

async fn send(api: Arc<ApiClient>, mut waiting: mpsc::Receiver<OwnerEvent>, metrics: Arc<Metrics>) {
    let mut failing = false;
    while let Some(told) = waiting.recv().await {
        let seconds = clock::wall_now().unix_nanos() / 1_000_000_000;
        let event = event(&told, &rfc3339(seconds));
        match api.create_event(&told.namespace, &event).await {
            Ok(()) => {
                failing = false;
                metrics.event(EventOutcome::Sent);
            }
            Err(error) => {
                metrics.event(EventOutcome::Failed);
                if !failing {
                    log::EventFails { error: &error }.emit();
                }
                failing = true;
            }
        }
    }
}

fn event(told: &OwnerEvent, now: &str) -> Value {
    let (reason, kind) = match told.outcome {
        ReviewOutcome::Injected => ("Injected", "Normal"),
        ReviewOutcome::Skipped => ("InjectionSkipped", "Normal"),
        ReviewOutcome::Refused | ReviewOutcome::Failed => ("InjectionRefused", "Warning"),
    };
    let message = cut(told.message.clone(), LONGEST_MESSAGE);
    let mut involved = told.on.clone();
    if let Some(involved) = involved.as_object_mut() {
        involved.insert("namespace".to_owned(), told.namespace.clone().into());
    }
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "tokengauge-injector-", "namespace": told.namespace},
        "involvedObject": involved,
        "reason": reason,
        "message": message,
        "type": kind,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "source": {"component": "tokengauge-injector"},
        "reportingComponent": "tokengauge-injector",
    })
}

/// What was said of late.
#[derive(Debug, Default)]
struct RecentEvents(HashMap<(String, &'static str), MonotonicInstant>);

impl RecentEvents {
    fn is_new(&mut self, told: &OwnerEvent, now: MonotonicInstant) -> bool {
        let key = (format!("{}/{}", told.namespace, told.on), told.reason);
        let holds = |at: &MonotonicInstant| now.since(*at) < AGAIN;
        if self.0.get(&key).is_some_and(holds) {
            return false;
        }
        if self.0.len() >= MOST_REMEMBERED {
            self.0.retain(|_, at| holds(at));
        }
        let room = self.0.len() < MOST_REMEMBERED;
        if room {
            self.0.insert(key, now);
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(owner: &str, reason: &'static str) -> OwnerEvent {
        OwnerEvent {
            namespace: "shop".to_owned(),
            on: json!({"kind": "ReplicaSet", "name": owner}),
            outcome: ReviewOutcome::Skipped,
            reason,
            message: "because".to_owned(),
        }
    }

    #[test]
    fn the_same_is_said_once_in_ten_minutes() {
        let mut said = RecentEvents::default();
        let start = MonotonicInstant::from_secs(1_000);
        assert!(said.is_new(&told("a", "x"), start));
        assert!(!said.is_new(&told("a", "x"), start + Duration::from_secs(599)));
        assert!(said.is_new(&told("a", "y"), start) && said.is_new(&told("b", "x"), start));
        assert!(said.is_new(&told("a", "x"), start + AGAIN));
    }

    #[test]
    fn a_storm_of_owners_is_not_remembered_without_end() {
        let mut said = RecentEvents::default();
        let start = MonotonicInstant::from_secs(1_000);
        let new = (0..10_000).filter(|n| said.is_new(&told(&n.to_string(), "x"), start)).count();
        assert_eq!((new, said.0.len()), (MOST_REMEMBERED, MOST_REMEMBERED));
        assert!(said.is_new(&told("later", "x"), start + AGAIN));
        assert_eq!(said.0.len(), 1);
    }

    #[test]
    fn an_event_names_what_it_is_about() {
        let event = event(&told("web-7d5", "disabled"), "2026-11-22T17:00:00Z");
        assert_eq!(
            (&event["reason"], &event["type"], &event["message"]),
            (&"InjectionSkipped".into(), &"Normal".into(), &"because".into())
        );
        let involved = json!({"kind": "ReplicaSet", "name": "web-7d5", "namespace": "shop"});
        assert_eq!(event["involvedObject"], involved);
    }
}
