//! Connects the console with the observer.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value};

use super::views::process_start;
use crate::admin::{Console, LiveFeed, Objective};
use crate::config::Config;
use tokengauge_console::document::{Snapshot, Text};
use tokengauge_console::requests::RequestQuery;
use tokengauge_console::{ProcessFacts, Readings, Recorder, Settings, SnapshotBuilder};
use tokengauge_measure::slo;
use tokengauge_observe::{ConsoleReading, InFlightRequests, Observer};
use tokengauge_types::clock;
use tokengauge_types::sync::lock;

/// The name of this machine, which is the name of the pod in Kubernetes.
const HOST_NAME_FILE: &str = "/proc/sys/kernel/hostname";

/// Records the history of the console from now on, unless the console is off.
pub(super) fn enable(config: &Config, requests: &mut InFlightRequests) {
    let section = &config.file.console;
    if section.enabled {
        let settings = Settings {
            trace_url: section.trace_url.as_deref().map(Text::from),
            hide_names: section.hide_names,
            has_sessions: !config.identity.session.source.headers.is_empty(),
        };
        requests.enable_console(Recorder::new(settings, clock::now(), clock::wall_now()));
    }
}

/// Returns the content of the console's endpoints. `ready` is false while the process drains.
pub(super) fn console(observer: &Arc<Observer>, ready: &Arc<AtomicBool>) -> Console {
    let builder = Mutex::new(SnapshotBuilder::new(process_facts()));
    let reader = Arc::clone(observer);
    let read = move || read_snapshot(&reader, &builder);
    let observer = Arc::clone(observer);
    Console {
        live: Arc::new(LiveFeed::new(Box::new(read), Arc::clone(ready))),
        find: Box::new(move |query: RequestQuery| {
            let found =
                observer.read_in_time(|requests, _| Some(requests.console()?.query(&query)));
            found?.value
        }),
    }
}

fn read_snapshot(observer: &Observer, builder: &Mutex<SnapshotBuilder>) -> Option<Snapshot> {
    // The lock is taken first, so that sequence numbers follow the time of the readings.
    let mut builder = lock(builder);
    let read =
        |requests: &mut InFlightRequests, at| requests.console_reading(at, clock::wall_now());
    let reading = observer.read_in_time(read)?.value?;
    Some(builder.next(readings(reading)))
}

fn readings(reading: ConsoleReading) -> Readings {
    let ConsoleReading { recorded, load, slos, streams, engines } = reading;
    let hides_names = recorded.settings.hide_names;
    Readings {
        slo_objects: slos.iter().map(|slo| slo_object(slo, hides_names)).collect(),
        engines: engines.iter().map(value).collect(),
        recorded,
        load,
        slos,
        streams,
    }
}

/// Returns the object of `/slo`. The scope of an SLO can have the name of a tenant.
fn slo_object(slo: &slo::Reading, hides_names: bool) -> Map<String, Value> {
    let mut object = object(&Objective::from_reading(slo));
    if hides_names && let Some(Value::Object(scope)) = object.get_mut("scope") {
        scope.remove("tenant");
    }
    object
}

fn value(document: &impl serde::Serialize) -> Value {
    serde_json::to_value(document).unwrap_or_default()
}

fn object(document: &impl serde::Serialize) -> Map<String, Value> {
    match value(document) {
        Value::Object(entries) => entries,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

fn process_facts() -> ProcessFacts {
    let name = std::fs::read_to_string(HOST_NAME_FILE).unwrap_or_default();
    let name = if name.trim().is_empty() { "tokengauge" } else { name.trim() };
    ProcessFacts {
        name: name.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        started_unix_ms: process_start().unix_nanos() / 1_000_000,
    }
}
