//! What the injector says about itself.

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

/// A request to the webhook was no review, or could not be received.
#[derive(Debug)]
pub struct ReviewUnanswerable<'a> {
    pub problem: &'a dyn Error,
}

impl ReviewUnanswerable<'_> {
    pub fn emit(&self) {
        tracing::debug!(problem = %self.problem, "a request has no AdmissionReview as its answer");
    }
}

/// New connections get this certificate.
#[derive(Debug)]
pub struct CertificateShown<'a> {
    /// When it ends (RFC 3339).
    pub until: &'a str,
}

impl CertificateShown<'_> {
    pub fn emit(&self) {
        tracing::info!(until = self.until, "certificate in use");
    }
}

/// The certificate's files cannot be used.
#[derive(Debug)]
pub struct CertificateRefused<'a> {
    pub problem: &'a str,
    /// Whether there is an older one that stays.
    pub kept: bool,
}

impl CertificateRefused<'_> {
    pub fn emit(&self) {
        if self.kept {
            tracing::error!(
                problem = self.problem,
                "the new certificate is refused and the old one stays"
            );
        } else {
            tracing::error!(
                problem = self.problem,
                "there is no certificate that can be used; reviews wait for one"
            );
        }
    }
}

/// A certificate was made and put into the Secret.
#[derive(Debug)]
pub struct CertificateMade {
    pub why: &'static str,
}

impl CertificateMade {
    pub fn emit(&self) {
        tracing::info!(why = self.why, "certificate made");
    }
}

/// The webhook configuration's `caBundle` was another and has been set.
#[derive(Debug)]
pub struct BundleSet<'a> {
    pub configuration: &'a str,
}

impl BundleSet<'_> {
    pub fn emit(&self) {
        tracing::info!(configuration = self.configuration, "caBundle set");
    }
}

/// Secret or `caBundle` cannot be looked after; told once for each problem, and tried again.
#[derive(Debug)]
pub struct CertificateKeepingFails<'a> {
    pub problem: &'a str,
}

impl CertificateKeepingFails<'_> {
    pub fn emit(&self) {
        tracing::error!(problem = self.problem, "certificates cannot be looked after; trying on");
    }
}

/// EventRecorder cannot be sent; told once until one can be again.
#[derive(Debug)]
pub struct EventFails<'a> {
    pub error: &'a dyn Error,
}

impl EventFails<'_> {
    pub fn emit(&self) {
        tracing::warn!(error = %self.error, "events cannot be sent");
    }
}

/// There is no API server to send events to.
#[derive(Debug)]
pub struct NoEvents;

impl NoEvents {
    pub fn emit(&self) {
        tracing::warn!(
            "no events: this is no pod of a cluster (KUBERNETES_SERVICE_HOST is not set), and there is no --api-server"
        );
    }
}

/// The injector was told to stop.
#[derive(Debug)]
pub struct Stopping {
    /// How long it still takes new connections.
    pub delay: Duration,
}

impl Stopping {
    pub fn emit(&self) {
        tracing::info!(delay = ?self.delay, "stopping");
    }
}
