//! Opens the listening sockets, and serves them.

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::StartError;
use super::descriptors::{DescriptorBudget, LoweredLimits};
use crate::config::Config;
use tokengauge_listen::{Connections, Handler, Listener, Workers};
use tokengauge_telemetry::process;
use tokengauge_telemetry::self_telemetry;

/// Opens the listening sockets. First lowers their connection limits to fit into the file descriptor limit of the
/// process.
pub(super) fn bind_listeners(
    config: &Config,
) -> Result<(Vec<Listener>, DescriptorBudget), StartError> {
    let mut listeners = config.listeners.clone();
    let open_files = process::open_file_limit();
    let (descriptors, lowered) = DescriptorBudget::apply(&mut listeners, open_files);
    if let (Some(LoweredLimits { max_connections, max_requests }), Some(open_files)) =
        (lowered, open_files)
    {
        self_telemetry::limits_lowered(max_connections, max_requests, open_files);
    }
    let listeners = listeners.iter().map(Listener::bind).collect::<Result<_, _>>()?;
    Ok((listeners, descriptors))
}

/// Serves a listener until a stop is requested.
pub(super) fn serve<H: Handler>(
    listener: Listener,
    handler: H,
    workers: Workers,
    stop: &watch::Sender<bool>,
) -> JoinHandle<Connections> {
    let mut stop = stop.subscribe();
    let stopped = async move {
        // The wait also ends when the sender is dropped, together with the app.
        drop(stop.wait_for(|stop| *stop).await);
    };
    tokio::spawn(listener.serve(handler, workers, stopped))
}
