//! Looks after the certificates that the injector makes for itself, together with the other replicas.
//!
//! Every minute:
//!
//! 1. The Secret is read. Where there is none, it is created; where what it holds is due, it is replaced. Whoever comes
//!    second (409) takes what the first has written: all replicas show the same, under one bundle.
//! 2. The webhook configuration's `caBundle` is set where it is not the Secret's: also where somebody else changed it.
//! 3. The certificate is shown to new connections, once `caBundle` trusts it. Where a certificate is shown already, a
//!    new one under a new bundle waits for the next round: the API server may still go by the old bundle for a moment,
//!    and the new bundle trusts the old certificate.
//!
//! A round that fails is told once and tried again, after 1 s at first and a round's time at the most; what was shown
//! stays.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::api::{self, ApiClient, NoWebhook, bundle_patch};
use super::log;
use super::metrics::{CertificateChange, Metrics};
use super::resolver::{CertificateResolver, pair};
use super::self_signed::{self, Plan, ServiceName, StoredCertificates};
use super::validity::rfc3339;
use tokengauge_types::clock;

/// Where certificates are kept and announced.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SelfSigned {
    pub names: ServiceName,
    /// In the service's namespace.
    pub secret: String,
    /// The MutatingWebhookConfiguration.
    pub configuration: String,
    /// Between two rounds.
    pub interval: Duration,
}

const FIRST_RETRY: Duration = Duration::from_secs(1);

/// Rounds of one look that lose against another replica; the third has seen the winner's.
const MOST_TRIES: usize = 3;

/// RenewalReason a round failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    ApiClient(#[from] api::Error),
    #[error(transparent)]
    Authority(#[from] self_signed::Error),
    #[error("the Secret is changed by somebody else again and again")]
    Contended,
    #[error(
        "no webhook of MutatingWebhookConfiguration {configuration} leads to service {service} in namespace {namespace}"
    )]
    NoWebhook { configuration: String, service: String, namespace: String },
    #[error("what was made cannot be used: {0}")]
    Unusable(String),
}

/// Goes on as long as it is polled.
pub async fn run(
    settings: SelfSigned,
    api: Arc<ApiClient>,
    serving: Arc<CertificateResolver>,
    metrics: Arc<Metrics>,
) {
    let interval = settings.interval;
    let mut keeper = CertRotator { settings, api, serving, metrics, shown: None, announced: None };
    let mut failed: Option<(String, Duration)> = None;
    loop {
        let pause = match keeper.round().await {
            Ok(()) => {
                failed = None;
                interval
            }
            Err(error) => {
                keeper.metrics.api_failed();
                let problem = error.to_string();
                let before = failed.take();
                if before.as_ref().is_none_or(|(told, _)| *told != problem) {
                    log::CertificateKeepingFails { problem: &problem }.emit();
                }
                let pause = before.map_or(FIRST_RETRY, |(_, pause)| pause * 2);
                let pause = pause.min(interval);
                failed = Some((problem, pause));
                pause
            }
        };
        tokio::time::sleep(pause).await;
    }
}

struct CertRotator {
    settings: SelfSigned,
    api: Arc<ApiClient>,
    serving: Arc<CertificateResolver>,
    metrics: Arc<Metrics>,
    shown: Option<StoredCertificates>,
    /// The bundle as the last round left it.
    announced: Option<String>,
}

impl CertRotator {
    async fn round(&mut self) -> Result<(), Error> {
        let now = clock::wall_now().unix_nanos() / 1_000_000_000;
        let kept = self.kept(now).await?;
        self.announce(&kept).await?;
        let bundle = kept.bundle();
        let is_new = self.announced.as_ref() != Some(&bundle);
        self.announced = Some(bundle);
        let must_wait = is_new && self.shown.is_some();
        if must_wait || self.shown.as_ref() == Some(&kept) {
            return Ok(());
        }
        let pair = pair(&kept.certificate, &kept.key).map_err(Error::Unusable)?;
        let until = rfc3339(pair.validity.until);
        self.serving.show(pair);
        self.shown = Some(kept);
        self.metrics.changed(CertificateChange::Shown);
        log::CertificateShown { until: &until }.emit();
        Ok(())
    }

    /// What the Secret holds when all is well with it.
    async fn kept(&self, now: u64) -> Result<StoredCertificates, Error> {
        let SelfSigned { names, secret, .. } = &self.settings;
        for _ in 0..MOST_TRIES {
            let found = match self.api.secret(&names.namespace, secret).await {
                Ok(found) => Some(found),
                Err(error) if error.is_not_found() => None,
                Err(error) => return Err(error.into()),
            };
            let (new, why) = match self_signed::plan(
                found.as_ref().and_then(StoredCertificates::of),
                names,
                now,
            )? {
                Plan::Keep(kept) => return Ok(kept),
                Plan::Write(new, why) => (new, why),
            };
            match self.write(&new, found.as_ref()).await {
                Ok(_) => {
                    self.metrics.changed(CertificateChange::Made);
                    log::CertificateMade { why: why.as_str() }.emit();
                    return Ok(new);
                }
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Contended)
    }

    async fn write(
        &self,
        new: &StoredCertificates,
        found: Option<&Value>,
    ) -> Result<Value, api::Error> {
        let SelfSigned { names, secret, .. } = &self.settings;
        let namespace = &names.namespace;
        let Some(found) = found else {
            let made = new.secret(namespace, secret, None);
            return self.api.create_secret(namespace, &made).await;
        };
        let mut changed = new.secret(namespace, secret, None);
        // Labels and annotations are others' too; a Secret's type cannot be changed.
        for key in ["metadata", "type"] {
            if let (Some(theirs), Some(ours)) = (found.get(key), changed.get_mut(key)) {
                *ours = theirs.clone();
            }
        }
        self.api.update_secret(namespace, secret, &changed).await
    }

    /// Sets `caBundle` where it is another.
    async fn announce(&self, kept: &StoredCertificates) -> Result<(), Error> {
        let SelfSigned { names, configuration, .. } = &self.settings;
        let ServiceName { service, namespace } = names;
        let found = self.api.webhooks(configuration).await?;
        let patch = bundle_patch(&found, namespace, service, &kept.bundle());
        let patch = patch.map_err(|NoWebhook| Error::NoWebhook {
            configuration: configuration.clone(),
            service: service.clone(),
            namespace: namespace.clone(),
        })?;
        let Some(patch) = patch else {
            return Ok(());
        };
        self.api.patch_webhooks(configuration, &patch).await?;
        self.metrics.bundle_patched();
        log::BundleSet { configuration }.emit();
        Ok(())
    }
}
