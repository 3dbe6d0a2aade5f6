//! Snapshots of the running parts, for gauges and for the pages of the admin port.

use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;

use super::Core;
use crate::admin::{Objective, Page, Pages, Stats, StatsSource};
use crate::config::Config;
use tokengauge_listen::Load;
use tokengauge_observe::tee::ObservationChannel;
use tokengauge_observe::{InFlightRequests, Observer};
use tokengauge_telemetry::process::ProcessStats;
use tokengauge_telemetry::{ObserverLosses, SnapshotSource, StateSnapshot};
use tokengauge_types::clock::{self, MonotonicInstant, WallTime};
use tokengauge_types::label::CardinalityLimiter;

const JSON: &str = "application/json";

/// Returns the source of gauge values. `others` provides the values that the observer does not have.
///
/// The reference to the observer is weak, because the observer holds the instruments that read this source. It is set
/// after the observer has started.
pub(super) fn snapshot_source(
    observer: &Arc<OnceLock<Weak<Observer>>>,
    channel: &Arc<ObservationChannel>,
    gate: &Arc<CardinalityLimiter>,
    others: Box<dyn Fn() -> StateSnapshot + Send + Sync>,
) -> SnapshotSource {
    let (observer, channel, gate) = (Arc::clone(observer), Arc::clone(channel), Arc::clone(gate));
    SnapshotSource::new(move || {
        let Some(observer) = observer.get().and_then(Weak::upgrade) else {
            return StateSnapshot::default();
        };
        // The backlog is read before the observer processes its events. Otherwise the backlog would always be 0.
        let backlog = channel.backlog();
        let observed = observer.with_current_state(InFlightRequests::snapshot);
        let lost = channel.lost();
        let others = others();
        StateSnapshot {
            losses: ObserverLosses { bytes: lost.bytes, exchanges: lost.exchanges, backlog },
            label_overflow: gate.refused().to_vec(),
            refused_requests: others.refused_requests,
            clients: others.clients,
            upstreams: others.upstreams,
            request_log: others.request_log,
            draining: others.draining,
            process: ProcessStats::read(),
            ..observed
        }
    })
}

/// Returns a snapshot that holds only the load of the listeners.
pub(super) fn client_load(listeners: impl Iterator<Item = Load>) -> StateSnapshot {
    let mut snapshot = StateSnapshot::default();
    let StateSnapshot { refused_requests, clients, .. } = &mut snapshot;
    for load in listeners {
        *refused_requests += load.refused;
        clients.connections += load.connections as u64;
        clients.connections_limit += load.max_connections as u64;
        clients.over_limit += load.over_limit;
    }
    snapshot
}

/// The pages of the admin port.
pub(super) fn admin_pages(config: &Arc<ArcSwap<Config>>, core: &Core) -> Pages {
    let page = |path, content_type, render| Page { path, content_type, render };
    let json_page = |path, render: fn(&Observer) -> String| {
        let observer = Arc::clone(&core.observer);
        page(path, JSON, Box::new(move || render(&observer)))
    };
    let telemetry = Arc::clone(&core.telemetry);
    let config = Arc::clone(config);
    let gate = Arc::clone(&core.gate);
    let (observer, start) = (Arc::clone(&core.observer), process_start());
    Pages {
        metrics: Box::new(move |format| telemetry.prometheus(format)),
        others: vec![
            page("/config", "application/yaml", Box::new(move || config.load().yaml.clone())),
            json_page("/streams", |observer| {
                json(&observer.with_current_state(|requests, at| requests.streams(at)))
            }),
            json_page("/slo", |observer| {
                let (_, objectives) = observer.with_current_state(InFlightRequests::reading);
                json(&objectives.iter().map(Objective::of).collect::<Vec<_>>())
            }),
            page("/stats", JSON, Box::new(move || stats(&observer, start))),
            page("/labels", JSON, Box::new(move || json(&gate.admitted()))),
            json_page("/drift", |observer| {
                observer.with_current_state(|requests, _| requests.drift.saved()).to_json()
            }),
        ],
    }
}

/// Returns the wall-clock time of the process start. Monotonic times count from this moment.
fn process_start() -> WallTime {
    let uptime = clock::now().nanos();
    WallTime::from_unix_nanos(clock::wall_now().unix_nanos().saturating_sub(uptime))
}

fn stats(observer: &Observer, start: WallTime) -> String {
    let (at, (load, _), drift, backends) = observer.with_current_state(|requests, at| {
        let (reading, drift) = (requests.reading(at), requests.drift.reading(at));
        (at, reading, drift, requests.backends.readings(at))
    });
    json(&Stats::of(StatsSource {
        started: start,
        uptime: at.since(MonotonicInstant::ZERO),
        load: &load,
        drift: &drift,
        backends: &backends,
    }))
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| "null".to_owned())
}
