//! Log events of the webhook.

use std::error::Error;
use std::time::Duration;

/// A review was answered.
#[derive(Debug)]
pub struct Reviewed<'a> {
    pub outcome: &'static str,
    pub reason: &'static str,
    pub message: &'a str,
}

impl Reviewed<'_> {
    pub fn emit(&self) {
        tracing::debug!(outcome = self.outcome, reason = self.reason, "review: {}", self.message);
    }
}

/// A request was rejected with an HTTP error because it contained no usable review.
#[derive(Debug)]
pub struct RequestRejected<'a> {
    pub problem: &'a dyn Error,
}

impl RequestRejected<'_> {
    pub fn emit(&self) {
        tracing::debug!(problem = %self.problem, "request rejected");
    }
}

/// New connections use this certificate.
#[derive(Debug)]
pub struct CertificateInUse<'a> {
    /// Expiry time (RFC 3339).
    pub until: &'a str,
}

impl CertificateInUse<'_> {
    pub fn emit(&self) {
        tracing::info!(until = self.until, "certificate in use");
    }
}

/// The certificate files cannot be used.
#[derive(Debug)]
pub struct CertificateRejected<'a> {
    pub problem: &'a str,
    /// Whether an older certificate stays in use.
    pub kept: bool,
}

impl CertificateRejected<'_> {
    pub fn emit(&self) {
        let problem = self.problem;
        if self.kept {
            tracing::error!(problem, "new certificate rejected, the old one stays in use");
        } else {
            tracing::error!(problem, "no usable certificate, cannot serve reviews");
        }
    }
}

/// A new certificate was created and stored in the Secret.
#[derive(Debug)]
pub struct CertificateCreated {
    pub why: &'static str,
}

impl CertificateCreated {
    pub fn emit(&self) {
        tracing::info!(why = self.why, "certificate created");
    }
}

/// The `caBundle` of the webhook configuration was updated.
#[derive(Debug)]
pub struct CaBundleUpdated<'a> {
    pub configuration: &'a str,
}

impl CaBundleUpdated<'_> {
    pub fn emit(&self) {
        tracing::info!(configuration = self.configuration, "caBundle updated");
    }
}

/// The Secret or the `caBundle` cannot be checked. Logged once for each distinct problem.
#[derive(Debug)]
pub struct CertificateCheckFailed<'a> {
    pub problem: &'a str,
}

impl CertificateCheckFailed<'_> {
    pub fn emit(&self) {
        tracing::error!(problem = self.problem, "certificate check failed, will retry");
    }
}

/// An event cannot be sent. Logged once until sending succeeds again.
#[derive(Debug)]
pub struct EventFailed<'a> {
    pub error: &'a dyn Error,
}

impl EventFailed<'_> {
    pub fn emit(&self) {
        tracing::warn!(error = %self.error, "cannot send events");
    }
}

/// No API server is configured for events.
#[derive(Debug)]
pub struct EventsDisabled;

impl EventsDisabled {
    pub fn emit(&self) {
        tracing::warn!(
            "events disabled: KUBERNETES_SERVICE_HOST is not set and --api-server is not given"
        );
    }
}

/// The webhook received a signal to stop.
#[derive(Debug)]
pub struct Stopping {
    /// Time for which new connections are still accepted.
    pub delay: Duration,
}

impl Stopping {
    pub fn emit(&self) {
        tracing::info!(delay = ?self.delay, "stopping");
    }
}
