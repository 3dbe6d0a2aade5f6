//! Finds upstreams whose address leads back to this proxy.

use std::net::IpAddr;

use super::errors::{ErrorCollector, NodeId};
use super::section::routes::UPSTREAM_FLAG;
use crate::forward;
use tokengauge_listen::{Address, ListenerConfig};

/// Reports upstreams whose address is a listener of this proxy. A request to such an upstream would come back again and
/// again, until no file descriptor is left. `is_flag`: the upstreams come from flags.
pub(super) fn check(
    is_flag: bool,
    upstreams: &[forward::UpstreamConfig],
    listeners: &[ListenerConfig],
    errors: &mut ErrorCollector,
) {
    for upstream in upstreams.iter().filter(|upstream| upstream.proxy.is_none()) {
        let is_own = |listener: &&ListenerConfig| leads_to(upstream, &listener.address);
        let Some(listener) = listeners.iter().find(is_own) else { continue };
        let message = format!(
            "the address is the listener {} of this proxy; write the address of the backend",
            listener.address
        );
        match is_flag {
            true => errors.add_outside_file(UPSTREAM_FLAG, message),
            false => {
                errors.add_key(NodeId::ROOT, &format!("upstreams.{}.url", upstream.name), message);
            }
        }
    }
}

/// Returns whether connections to `upstream` reach the listener at `address`. Of host names, only `localhost` is
/// recognized.
fn leads_to(upstream: &forward::UpstreamConfig, address: &Address) -> bool {
    let Address::Tcp(listener) = address else { return false };
    let host = upstream.host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
    let own = listener.ip().to_canonical();
    let reaches = match host.parse::<IpAddr>() {
        Ok(ip) if own.is_unspecified() => {
            is_loopback(ip.to_canonical()) && (own.is_ipv6() || ip.to_canonical().is_ipv4())
        }
        Ok(ip) => ip.to_canonical() == own,
        Err(_) => host.eq_ignore_ascii_case("localhost") && is_loopback(own),
    };
    reaches && listener.port() == upstream.port
}
