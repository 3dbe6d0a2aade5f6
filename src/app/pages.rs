//! What the admin port shows, made of the running parts.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::Core;
use crate::admin::{Facts, Objective, Pages, Stats};
use crate::config::Config;
use tokengauge_observe::{InFlightRequests, Observer};
use tokengauge_types::clock::{self, Moment, Wall};

pub(super) fn pages(config: &Arc<ArcSwap<Config>>, core: &Core) -> Pages {
    let observer = || Arc::clone(&core.observer);
    Pages {
        metrics: {
            let telemetry = Arc::clone(&core.telemetry);
            Box::new(move |format| telemetry.prometheus(format))
        },
        config: {
            let config = Arc::clone(config);
            Box::new(move || config.load().to_yaml())
        },
        streams: {
            let observer = observer();
            Box::new(move || {
                json(&observer.with_current_state(|requests, at| requests.streams(at)))
            })
        },
        slo: {
            let observer = observer();
            Box::new(move || {
                let (_, objectives) = observer.with_current_state(InFlightRequests::reading);
                json(&objectives.iter().map(Objective::of).collect::<Vec<_>>())
            })
        },
        stats: {
            let (observer, started) = (observer(), started());
            Box::new(move || stats(&observer, started))
        },
        labels: {
            let gate = Arc::clone(&core.gate);
            Box::new(move || json(&gate.admitted()))
        },
        drift: {
            let observer = observer();
            Box::new(move || {
                observer.with_current_state(|requests, _| requests.lengths()).to_json()
            })
        },
    }
}

/// Moments count from the process's start.
fn started() -> Wall {
    let run = clock::now().nanos();
    Wall::from_unix_nanos(clock::wall_now().unix_nanos().saturating_sub(run))
}

fn stats(observer: &Observer, started: Wall) -> String {
    let (at, (load, _), drift, backends) = observer.with_current_state(|requests, at| {
        let (reading, drift) = (requests.reading(at), requests.drift(at));
        (at, reading, drift, requests.backends(at))
    });
    json(&Stats::of(Facts {
        started,
        uptime: at.since(Moment::ZERO),
        load: &load,
        drift: &drift,
        backends: &backends,
    }))
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| "null".to_owned())
}
