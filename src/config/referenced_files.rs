//! Verifies the certificates and folders that a configuration names, for `tokengauge check`. The proxy itself uses them
//! when it starts.

use std::time::Duration;

use super::errors::{ErrorCollector, NodeId};
use super::section::File;
use super::{Config, file};
use crate::forward;
use tokengauge_listen::validity::{Validity, now, rfc3339};
use tokengauge_listen::{ListenerConfig, Tls};
use tokengauge_telemetry::request_log::Destination;
use tokengauge_types::error::WithCauses;

/// How long before its expiry a certificate causes a warning. ACME clients and cert-manager renew certificates of 90 days
/// after 60 days, so a certificate with less time left was not renewed.
const EXPIRY_WARNING: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// Reports certificates and keys that the proxy could not use, certificates that clients would reject, and folders that
/// do not exist.
pub(super) fn verify(config: &Config, errors: &mut ErrorCollector) {
    verify_listeners(&config.file, &config.listeners, errors);
    verify_folders(config, errors);
    for upstream in &config.upstreams {
        let Some(file) = upstream.ca_file.as_deref() else { continue };
        let key = format!("upstreams.{}.ca_file", upstream.name);
        // The digest rejects pipes, which would block `read_authorities`.
        match file::digest(file).and_then(|_| forward::read_authorities(file)) {
            Ok(authorities) => {
                let validities = authorities.iter().filter_map(|der| Validity::from_der(der));
                let expired = validities.filter(|validity| validity.not_after <= now()).count();
                if expired > 0 {
                    let (file, total) = (file.display(), authorities.len());
                    let message = format!("{file}: {expired} of {total} certificates have expired");
                    errors.warn_key(NodeId::ROOT, &key, message);
                }
            }
            Err(reason) => {
                errors.add_key(NodeId::ROOT, &key, format!("{}: {reason}", file.display()));
            }
        }
    }
}

/// Reports files that the proxy writes, whose folder does not exist.
fn verify_folders(config: &Config, errors: &mut ErrorCollector) {
    let log = config.request_log.as_ref().and_then(|log| match &log.destination {
        Destination::File(path) => Some(("request_log.path", path)),
        Destination::Stdout => None,
    });
    let state = config.slo_state().map(|path| ("slo_state.path", path));
    for (key, path) in log.into_iter().chain(state) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            let message = format!("the folder {} does not exist; create it", folder.display());
            errors.add_key(NodeId::ROOT, key, message);
        }
    }
}

/// `listeners` are those of `file`, in the same order.
fn verify_listeners(file: &File, listeners: &[ListenerConfig], errors: &mut ErrorCollector) {
    let written = file.listeners.iter().flat_map(|list| list.iter());
    for (written, listener) in written.zip(listeners) {
        let Some(tls) = &listener.tls else { continue };
        match tls.check() {
            Ok(validity) => verify_validity(tls, validity, written.node, errors),
            Err(error) => {
                let is_key = tls.key.display().to_string() == error.file();
                let key = if is_key { "tls.key" } else { "tls.certificate" };
                errors.add_key(written.node, key, WithCauses(&error).to_string());
            }
        }
    }
}

fn verify_validity(
    tls: &Tls,
    validity: Option<Validity>,
    listener: NodeId,
    errors: &mut ErrorCollector,
) {
    let key = "tls.certificate";
    let file = tls.certificate.display();
    let Some(Validity { not_before, not_after }) = validity else {
        return errors.add_key(listener, key, format!("{file}: not an X.509 certificate"));
    };
    let now = now();
    if not_after <= now {
        let message = format!("{file}: expired at {}; renew it", rfc3339(not_after));
        errors.add_key(listener, key, message);
    } else if now < not_before {
        let message = format!(
            "{file}: not valid before {}; check the clock of this machine, or use another certificate",
            rfc3339(not_before)
        );
        errors.add_key(listener, key, message);
    } else if not_after - now < EXPIRY_WARNING {
        errors.warn_key(listener, key, format!("{file}: expires at {}", rfc3339(not_after)));
    }
}
