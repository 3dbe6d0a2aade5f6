//! Result of the last load of the configuration, and expiry of the certificates in use, for the metrics.

use std::path::Path;
use std::sync::Mutex;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::config::Config;
use tokengauge_listen::TlsReloader;
use tokengauge_listen::validity::Validity;
use tokengauge_telemetry::{CertificateReading, ConfigReading, StateSnapshot, self_telemetry};
use tokengauge_types::clock;
use tokengauge_types::label::Label;
use tokengauge_types::sync::lock;

/// Maximum number of files whose expiry is exported. Listeners have one each, and fleets share few authorities; each
/// file is a series per process.
const MAX_CERTIFICATES: usize = 64;

/// Maximum size of a certificate file. The root certificates of an operating system have 200 KiB.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// What the last load of configuration and certificates resulted in.
#[derive(Debug)]
pub(super) struct Reloads {
    listeners: Vec<TlsReloader>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    is_config_current: bool,
    are_certificates_current: bool,
    loaded_at: u64,
    /// Expiry of each listener's chain in use. `None` if the file has no readable certificate.
    listeners: Vec<Option<CertificateReading>>,
    authorities: Vec<CertificateReading>,
}

impl Reloads {
    /// Starts with the configuration and the certificates of the process start, which are current.
    pub(super) fn new(listeners: Vec<TlsReloader>, config: &Config) -> Self {
        let state = State {
            is_config_current: true,
            are_certificates_current: true,
            loaded_at: unix_time(),
            listeners: listeners.iter().map(|it| chain_expiry(it.certificate())).collect(),
            authorities: authorities(config),
        };
        Self { listeners, state: Mutex::new(state) }
    }

    /// Reads the certificates of the listeners again, for new connections. If one cannot be used, logs the error and
    /// keeps the previous one and returns `false`.
    pub(super) fn reload_certificates(&self) -> bool {
        let reload = |listener: &TlsReloader| match listener.reload() {
            Ok(()) => true,
            Err(error) => {
                self_telemetry::certificate_reload_failed(&error);
                false
            }
        };
        let reloaded: Vec<bool> = self.listeners.iter().map(reload).collect();
        let mut state = lock(&self.state);
        state.are_certificates_current = reloaded.iter().all(|it| *it);
        for ((listener, reloaded), expiry) in
            self.listeners.iter().zip(reloaded).zip(&mut state.listeners)
        {
            if reloaded {
                *expiry = chain_expiry(listener.certificate());
            }
        }
        state.are_certificates_current
    }

    /// Records that `config` is in use.
    pub(super) fn record_success(&self, config: &Config) {
        let authorities = authorities(config);
        let mut state = lock(&self.state);
        state.is_config_current = true;
        state.loaded_at = unix_time();
        state.authorities = authorities;
    }

    /// Records that a changed configuration has errors.
    pub(super) fn record_failure(&self) {
        lock(&self.state).is_config_current = false;
    }

    /// Adds the values of the metrics to a snapshot.
    pub(super) fn snapshot(&self, others: StateSnapshot) -> StateSnapshot {
        let state = lock(&self.state);
        let config = ConfigReading {
            is_current: state.is_config_current && state.are_certificates_current,
            loaded_at: state.loaded_at,
        };
        let all = state.listeners.iter().flatten().chain(&state.authorities);
        let mut certificates: Vec<CertificateReading> = Vec::new();
        for certificate in all {
            let is_known = certificates.iter().any(|known| known.file == certificate.file);
            if !is_known && certificates.len() < MAX_CERTIFICATES {
                certificates.push(certificate.clone());
            }
        }
        StateSnapshot { config: Some(config), certificates, ..others }
    }
}

/// Returns the expiry of each `ca_file` of an upstream. A file stays useful as long as one of its authorities is valid.
fn authorities(config: &Config) -> Vec<CertificateReading> {
    let files = config.upstreams.iter().filter_map(|upstream| upstream.ca_file.as_deref());
    let latest = |file| Some(reading(file, expiries(file).into_iter().max()?));
    files.filter_map(latest).take(MAX_CERTIFICATES).collect()
}

/// Returns the expiry of a chain: clients reject it as soon as one of its certificates has expired.
fn chain_expiry(file: &Path) -> Option<CertificateReading> {
    Some(reading(file, expiries(file).into_iter().min()?))
}

fn reading(file: &Path, expires_at: u64) -> CertificateReading {
    CertificateReading { file: Label::from_trusted(&file.display().to_string()), expires_at }
}

/// Returns when the certificates in a file expire, in seconds since 1970. Empty if the file cannot be read, which its
/// user reports.
fn expiries(file: &Path) -> Vec<u64> {
    let is_usable = |data: std::fs::Metadata| data.is_file() && data.len() <= MAX_FILE_BYTES;
    if !std::fs::metadata(file).is_ok_and(is_usable) {
        return Vec::new();
    }
    let pem = std::fs::read(file).unwrap_or_default();
    let certificates = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok);
    certificates
        .filter_map(|certificate| Validity::from_der(&certificate))
        .map(|validity| validity.not_after.unix_timestamp().try_into().unwrap_or_default())
        .collect()
}

fn unix_time() -> u64 {
    clock::wall_now().unix_nanos() / 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(year: i32) -> String {
        let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().pem()
    }

    #[test]
    fn a_chain_expires_with_its_first_certificate_and_authorities_with_their_last() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("chain.pem");
        std::fs::write(&file, format!("{}{}", certificate(2040), certificate(2030))).unwrap();
        let (first, last) = (1_893_456_000, 2_208_988_800);
        assert_eq!(expiries(&file), [last, first]);
        assert_eq!(chain_expiry(&file), Some(reading(&file, first)));
        std::fs::write(&file, "no certificate").unwrap();
        assert_eq!(chain_expiry(&file), None);
        assert_eq!(expiries(Path::new("/dev/zero")), [0; 0]);
    }
}
