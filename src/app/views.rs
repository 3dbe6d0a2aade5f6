//! Snapshots of the running parts. Gauges and the pages of the admin port show these snapshots.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use arc_swap::ArcSwap;
use bytes::Bytes;

use super::Core;
use crate::admin::{Objective, Page, Pages, Rendered, Scrape, Stats, StatsReading};
use crate::config::Config;
use tokengauge_listen::Load;
use tokengauge_observe::{InFlightRequests, Observed, Observer};
use tokengauge_telemetry::process::ProcessStats;
use tokengauge_telemetry::{SnapshotSource, StateSnapshot};
use tokengauge_types::clock::{self, MonotonicInstant, WallTime};
use tokengauge_types::label::CardinalityLimiter;
use tokengauge_types::sync::lock;

const JSON: &str = "application/json";

/// Returns a function that provides all gauge values. `others` returns those that do not come from the observer.
///
/// The observer owns the instruments, which call this function. To avoid a reference cycle, the function has a weak
/// reference to the observer, which is set after the observer has started.
pub(super) fn snapshot_source(
    observer: &Arc<OnceLock<Weak<Observer>>>,
    limiter: &Arc<CardinalityLimiter>,
    others: Box<dyn Fn() -> StateSnapshot + Send + Sync>,
) -> SnapshotSource {
    let (observer, limiter) = (Arc::clone(observer), Arc::clone(limiter));
    SnapshotSource::holding(move |collect| {
        let Some(observer) = observer.get().and_then(Weak::upgrade) else {
            return collect(StateSnapshot::default());
        };
        observer.with_snapshot(|observed| {
            let others = others();
            collect(StateSnapshot {
                label_overflow: limiter.refused().map(|(it, times)| (it.as_str(), times)).to_vec(),
                refused_requests: others.refused_requests,
                clients: others.clients,
                upstreams: others.upstreams,
                envoy: others.envoy,
                request_log: others.request_log,
                log: others.log,
                draining: others.draining,
                config: others.config,
                certificates: others.certificates,
                process: ProcessStats::read(),
                ..observed
            });
        });
    })
}

/// Returns a snapshot with the connections and rejected requests of all listeners.
pub(super) fn client_load(listeners: impl Iterator<Item = Load>) -> StateSnapshot {
    let mut snapshot = StateSnapshot::default();
    let StateSnapshot { refused_requests, clients, .. } = &mut snapshot;
    for load in listeners {
        *refused_requests += load.refused;
        clients.connections += load.connections as u64;
        clients.connections_limit += load.max_connections as u64;
        clients.over_limit += load.over_limit;
        clients.evicted += load.evicted;
    }
    snapshot
}

/// The pages of the admin port.
pub(super) fn admin_pages(config: &Arc<ArcSwap<Config>>, core: &Core) -> Pages {
    let telemetry = Arc::clone(&core.telemetry);
    let config = Arc::clone(config);
    let limiter = Arc::clone(&core.limiter);
    let observer = &core.observer;
    let start = process_start();
    // If the observer is late, a scrape contains metrics of an earlier one. The first one is taken at the start, when
    // the observer has nothing to do.
    drop(telemetry.scrape());
    let yaml = move || Rendered::now(config.load().yaml.clone());
    let labels = move || Rendered::now(json(&limiter.admitted()));
    Pages {
        metrics: Box::new(move |format| {
            let snapshot = telemetry.scrape();
            let age = snapshot.age;
            Scrape { pieces: Box::new(format.page(snapshot)), age }
        }),
        others: vec![
            Page { path: "/config", content_type: "application/yaml", render: Box::new(yaml) },
            observed_page(
                "/streams",
                observer,
                |requests, at| requests.streams(at),
                |streams| json(&streams),
            ),
            observed_page("/slo", observer, InFlightRequests::reading, |(_, objectives)| {
                json(&objectives.iter().map(Objective::from_reading).collect::<Vec<_>>())
            }),
            observed_page("/stats", observer, read_stats, move |reading| {
                json(&Stats::from_reading(&reading, start))
            }),
            Page { path: "/labels", content_type: JSON, render: Box::new(labels) },
            observed_page(
                "/drift",
                observer,
                |requests, _| requests.drift().saved(),
                |saved| saved.to_json(),
            ),
        ],
        console: None,
    }
}

/// Returns a page that shows a value of the requests in flight. `read` returns this value. If the observer is too busy
/// to answer in time, the page shows the previous text. The first text is rendered at the start, when the observer is
/// idle.
fn observed_page<T: 'static>(
    path: &'static str,
    observer: &Arc<Observer>,
    read: fn(&mut InFlightRequests, MonotonicInstant) -> T,
    show: impl Fn(T) -> String + Send + Sync + 'static,
) -> Page {
    let observer = Arc::clone(observer);
    let last = Mutex::new((clock::now(), Bytes::new()));
    let render = move || {
        let observed = observer.read_in_time(read);
        let now = clock::now();
        let mut last = lock(&last);
        if let Some(Observed { value, lag }) = observed {
            *last = (now.saturating_sub(lag), Bytes::from(show(value)));
        }
        let (at, body) = last.clone();
        Rendered { body, age: now.since(at) }
    };
    render();
    Page { path, content_type: JSON, render: Box::new(render) }
}

/// Returns the wall-clock time of the process start. Monotonic times count from the process start.
pub(super) fn process_start() -> WallTime {
    let uptime = clock::now().nanos();
    WallTime::from_unix_nanos(clock::wall_now().unix_nanos().saturating_sub(uptime))
}

fn read_stats(requests: &mut InFlightRequests, at: MonotonicInstant) -> StatsReading {
    let (load, _) = requests.reading(at);
    let drift = requests.drift().reading(at);
    StatsReading { at, load, drift, backends: requests.backends().readings(at) }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| "null".to_owned())
}
