//! Kubernetes events about injections, recorded on the owner of a pod. `kubectl describe replicaset …` shows them.
//!
//! The creation of a pod never waits for events. If the queue is full, events are dropped and counted. An event with
//! the same owner and reason is sent only once in ten minutes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::api::ApiClient;
use super::metrics::{EVENTS, Metrics};
use super::review::{OwnerEvent, ReviewOutcome};
use tokengauge_listen::validity::{now, rfc3339};
use tokengauge_types::clock::{self, MonotonicInstant};

const QUEUE_LENGTH: usize = 256;

/// Minimum time between two events with the same owner and reason.
const REPEAT_INTERVAL: Duration = Duration::from_secs(600);

/// Maximum number of events that are remembered to detect repeated events. If the table is full, new events are not
/// sent.
const MAX_RECENT: usize = 4_096;

/// Queues events for the API server. Discards all events if no API server is configured.
#[derive(Debug)]
pub struct EventRecorder {
    queue: Option<mpsc::Sender<OwnerEvent>>,
    recent: Mutex<RecentEvents>,
    metrics: Arc<Metrics>,
}

impl EventRecorder {
    /// Starts a task that sends the queued events. The task ends when the recorder is dropped.
    pub fn start(api: Option<ApiClient>, metrics: Arc<Metrics>) -> Self {
        let queue = api.map(|api| {
            let (queue, events) = mpsc::channel(QUEUE_LENGTH);
            tokio::spawn(send_all(api, events, Arc::clone(&metrics)));
            queue
        });
        Self { queue, recent: Mutex::default(), metrics }
    }

    /// Queues an event. Drops the event if the queue is full or if the event repeats a recent one.
    pub fn record(&self, event: OwnerEvent) {
        let Some(queue) = &self.queue else { return };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = recent.insert(&event, clock::now());
        drop(recent);
        if !is_new {
            self.metrics.count(&EVENTS, "limited");
        } else if queue.try_send(event).is_err() {
            self.metrics.count(&EVENTS, "dropped");
        }
    }
}

async fn send_all(api: ApiClient, mut events: mpsc::Receiver<OwnerEvent>, metrics: Arc<Metrics>) {
    let mut failing = false;
    while let Some(event) = events.recv().await {
        let object = event_object(&event, &rfc3339(now()));
        let path = format!("/api/v1/namespaces/{}/events", event.namespace);
        match api.send(Method::POST, &path, Some(&object)).await {
            Ok(_) => {
                failing = false;
                metrics.count(&EVENTS, "sent");
            }
            Err(error) => {
                metrics.count(&EVENTS, "failed");
                if !failing {
                    tracing::warn!(%error, "cannot send events");
                }
                failing = true;
            }
        }
    }
}

/// Returns the Kubernetes object of an event (API version `v1`).
fn event_object(event: &OwnerEvent, now: &str) -> Value {
    let OwnerEvent { namespace, owner, outcome, message, .. } = event;
    let (reason, kind) = match outcome {
        ReviewOutcome::Injected => ("Injected", "Normal"),
        ReviewOutcome::Skipped => ("InjectionSkipped", "Normal"),
        ReviewOutcome::Refused | ReviewOutcome::Failed => ("InjectionRefused", "Warning"),
    };
    let mut involved = owner.clone();
    if let Some(involved) = involved.as_object_mut() {
        involved.insert("namespace".to_owned(), namespace.clone().into());
    }
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "tokengauge-injector-", "namespace": namespace},
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

/// Time of the last event of each owner and reason.
#[derive(Debug, Default)]
struct RecentEvents(HashMap<(String, &'static str), MonotonicInstant>);

impl RecentEvents {
    /// Returns whether to send the event. Returns false if the event repeats a recent event, or if the table is full.
    fn insert(&mut self, event: &OwnerEvent, now: MonotonicInstant) -> bool {
        let key = (format!("{}/{}", event.namespace, event.owner), event.reason);
        let is_recent = |at: &MonotonicInstant| now.since(*at) < REPEAT_INTERVAL;
        if self.0.get(&key).is_some_and(is_recent) {
            return false;
        }
        if self.0.len() >= MAX_RECENT {
            self.0.retain(|_, at| is_recent(at));
        }
        let has_room = self.0.len() < MAX_RECENT;
        if has_room {
            self.0.insert(key, now);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(owner: &str, reason: &'static str) -> OwnerEvent {
        OwnerEvent {
            namespace: "shop".to_owned(),
            owner: json!({"kind": "ReplicaSet", "name": owner}),
            outcome: ReviewOutcome::Skipped,
            reason,
            message: "because".to_owned(),
        }
    }

    #[test]
    fn limits_repeated_events() {
        let mut recent = RecentEvents::default();
        let start = MonotonicInstant::from_secs(1_000);
        assert!(recent.insert(&event("a", "x"), start));
        assert!(!recent.insert(&event("a", "x"), start + Duration::from_secs(599)));
        assert!(recent.insert(&event("a", "y"), start) && recent.insert(&event("b", "x"), start));
        assert!(recent.insert(&event("a", "x"), start + REPEAT_INTERVAL));
    }

    #[test]
    fn bounds_the_number_of_recent_events() {
        let mut recent = RecentEvents::default();
        let start = MonotonicInstant::from_secs(1_000);
        let sent = (0..10_000).filter(|n| recent.insert(&event(&n.to_string(), "x"), start));
        assert_eq!(sent.count(), MAX_RECENT);
        assert_eq!(recent.0.len(), MAX_RECENT);
        assert!(recent.insert(&event("later", "x"), start + REPEAT_INTERVAL));
        assert_eq!(recent.0.len(), 1);
    }

    #[test]
    fn event_object_refers_to_the_owner() {
        let object = event_object(&event("web-7d5", "disabled"), "2026-11-22T17:00:00Z");
        assert_eq!(
            (&object["reason"], &object["type"], &object["message"]),
            (&"InjectionSkipped".into(), &"Normal".into(), &"because".into())
        );
        let involved = json!({"kind": "ReplicaSet", "name": "web-7d5", "namespace": "shop"});
        assert_eq!(object["involvedObject"], involved);
    }
}
