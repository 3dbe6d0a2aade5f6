//! What gauges read, put together of what the observer and the others tell.

use std::sync::{Arc, OnceLock, Weak};

use tokengauge_observe::tee::ObservationChannel;
use tokengauge_observe::{InFlightRequests, Observer};
use tokengauge_telemetry::process::ProcessStats;
use tokengauge_telemetry::{ObserverLosses, SnapshotSource, StateSnapshot};
use tokengauge_types::label::Gate;

/// The gauges' view: the observer is brought up to date, then read; `others` tells what it does not know. Weak, or observer and instruments would hold each
/// other for ever.
pub(super) fn readings(
    desk: &Arc<OnceLock<Weak<Observer>>>,
    channel: &Arc<ObservationChannel>,
    gate: &Arc<Gate>,
    others: Box<dyn Fn() -> StateSnapshot + Send + Sync>,
) -> SnapshotSource {
    let (desk, channel, gate) = (Arc::clone(desk), Arc::clone(channel), Arc::clone(gate));
    SnapshotSource::new(move || {
        let Some(observer) = desk.get().and_then(Weak::upgrade) else {
            return StateSnapshot::default();
        };
        // Before the observer is brought up to date, or it would always be 0.
        let backlog = channel.backlog();
        let told = observer.with_current_state(InFlightRequests::snapshot);
        let lost = channel.lost();
        let losses = ObserverLosses { bytes: lost.bytes, exchanges: lost.exchanges, backlog };
        let known = others();
        StateSnapshot {
            losses,
            label_overflow: gate.refused().to_vec(),
            refused_requests: known.refused_requests,
            request_log: known.request_log,
            draining: known.draining,
            process: ProcessStats::read(),
            ..told
        }
    })
}
