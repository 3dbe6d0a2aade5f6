//! Rotation of self-signed certificates, coordinated between replicas through a Secret.
//!
//! Each check (once a minute by default) performs these steps:
//!
//! 1. Read the Secret. If it is missing, create it. If its certificates expire soon, replace them. If another replica
//!    wrote the Secret first (409), use that replica's certificates. All replicas thus serve the same certificate under
//!    one bundle.
//! 2. Set the `caBundle` of the webhook configuration if it differs from the CAs in the Secret for any reason.
//! 3. Serve the certificate once `caBundle` trusts it. If another certificate is in use, a new certificate under a new
//!    bundle waits for the next check. The API server may use the old bundle for a moment, but the new bundle also
//!    trusts the old certificate.
//!
//! A failed check is retried after 1 s, with exponential backoff up to the check interval. Until a check
//! succeeds, the server keeps the certificate in use.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::api::ApiClient;
use super::certificate::{CertificateResolver, ServingCertificate};
use super::metrics::{API_FAILURES, BUNDLES, CERTIFICATES, Metrics};
use super::self_signed::{self, ServiceName, StoredCertificates};
use tokengauge_listen::validity::now;
use tokengauge_types::error::WithCauses;

/// Configuration of self-signed certificates.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SelfSigned {
    pub service: ServiceName,
    /// Name of the Secret that stores the certificates. The Secret is in the namespace of the webhook's Service.
    pub secret: String,
    /// Name of the MutatingWebhookConfiguration object.
    pub webhook_configuration: String,
    pub check_interval: Duration,
}

const WEBHOOK_CONFIGURATIONS: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

const FIRST_RETRY: Duration = Duration::from_secs(1);

/// Maximum number of attempts to write the Secret in one check. If another replica writes the Secret first, the next
/// attempt usually reads the certificates of that replica.
const MAX_ATTEMPTS: usize = 3;

/// Reason why a check failed, for the log.
type Error = Box<dyn std::error::Error + Send + Sync>;

/// Checks the certificates regularly and renews them, until the returned future is dropped.
pub async fn run(
    config: SelfSigned,
    api: ApiClient,
    resolver: Arc<CertificateResolver>,
    metrics: Arc<Metrics>,
) {
    let check_interval = config.check_interval;
    let mut rotator = CertRotator { config, api, resolver, metrics, in_use: None, bundle: None };
    let mut last_failure: Option<(String, Duration)> = None;
    loop {
        let Err(error) = rotator.check().await else {
            last_failure = None;
            tokio::time::sleep(check_interval).await;
            continue;
        };
        rotator.metrics.count(&API_FAILURES, "");
        let problem = WithCauses(&*error).to_string();
        if last_failure.as_ref().is_none_or(|(last, _)| *last != problem) {
            tracing::error!(problem, "certificate check failed, will retry");
        }
        let delay = last_failure.map_or(FIRST_RETRY, |(_, delay)| delay * 2).min(check_interval);
        last_failure = Some((problem, delay));
        tokio::time::sleep(delay).await;
    }
}

struct CertRotator {
    config: SelfSigned,
    api: ApiClient,
    resolver: Arc<CertificateResolver>,
    metrics: Arc<Metrics>,
    in_use: Option<StoredCertificates>,
    /// Value of `caBundle` after the last check.
    bundle: Option<String>,
}

impl CertRotator {
    async fn check(&mut self) -> Result<(), Error> {
        let stored = self.read_or_issue().await?;
        let bundle = stored.ca_bundle();
        self.publish_bundle(&bundle).await?;
        let is_new_bundle = self.bundle.replace(bundle) != self.bundle;
        let must_wait = is_new_bundle && self.in_use.is_some();
        if must_wait || self.in_use.as_ref() == Some(&stored) {
            return Ok(());
        }
        let certificate = ServingCertificate::from_pem(&stored.certificate, &stored.key)
            .map_err(|problem| format!("cannot use the new certificate: {problem}"))?;
        self.resolver.set(certificate, &self.metrics);
        self.in_use = Some(stored);
        Ok(())
    }

    /// Returns the certificates in the Secret. If they are missing, invalid or expire soon, first replaces them.
    async fn read_or_issue(&self) -> Result<StoredCertificates, Error> {
        let SelfSigned { service, secret: name, .. } = &self.config;
        let namespace = &service.namespace;
        let secrets = format!("/api/v1/namespaces/{namespace}/secrets");
        let path = format!("{secrets}/{name}");
        for _ in 0..MAX_ATTEMPTS {
            let existing = match self.api.send(Method::GET, &path, None).await {
                Ok(secret) => Some(secret),
                Err(error) if error.status == Some(StatusCode::NOT_FOUND) => None,
                Err(error) => return Err(error.into()),
            };
            let stored = existing.as_ref().and_then(StoredCertificates::from_secret);
            let (new, reason) = self_signed::renew(stored.as_ref(), service, now())?;
            let Some(why) = reason else { return Ok(new) };
            let secret = new.to_secret(namespace, name, existing.as_ref());
            let (method, path) = match existing {
                None => (Method::POST, &secrets),
                Some(_) => (Method::PUT, &path),
            };
            match self.api.send(method, path, Some(&secret)).await {
                Ok(_) => {
                    self.metrics.count(&CERTIFICATES, "made");
                    tracing::info!(why, "certificate created");
                    return Ok(new);
                }
                Err(error) if error.status == Some(StatusCode::CONFLICT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err("another client keeps changing the Secret".into())
    }

    async fn publish_bundle(&self, bundle: &str) -> Result<(), Error> {
        let SelfSigned { service, webhook_configuration: name, .. } = &self.config;
        let path = format!("{WEBHOOK_CONFIGURATIONS}/{name}");
        let configuration = self.api.send(Method::GET, &path, None).await?;
        let patch = ca_bundle_patch(&configuration, service, bundle).ok_or_else(|| {
            let ServiceName { service, namespace } = service;
            format!(
                "no webhook of MutatingWebhookConfiguration {name} refers to service {service} in namespace {namespace}"
            )
        })?;
        if patch.is_empty() {
            return Ok(());
        }
        self.api.send(Method::PATCH, &path, Some(&Value::Array(patch))).await?;
        self.metrics.count(&BUNDLES, "");
        tracing::info!(configuration = name, "caBundle updated");
        Ok(())
    }
}

/// Returns a JSON Patch that corrects `caBundle` in each webhook that calls the Service. The patch can be empty.
/// Returns `None` if no webhook calls the Service.
///
/// The list of webhooks may have changed since it was read. The patch therefore tests the name of each webhook before
/// the change.
fn ca_bundle_patch(
    configuration: &Value,
    ServiceName { service, namespace }: &ServiceName,
    bundle: &str,
) -> Option<Vec<Value>> {
    let webhooks = configuration.get("webhooks").and_then(Value::as_array)?;
    let field = |webhook: &Value, path: &str| {
        webhook.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let ours = webhooks.iter().enumerate().filter(|(_, webhook)| {
        field(webhook, "/clientConfig/service/name") == *service
            && field(webhook, "/clientConfig/service/namespace") == *namespace
    });
    let ours: Vec<_> = ours.collect();
    if ours.is_empty() {
        return None;
    }
    let outdated =
        ours.into_iter().filter(|(_, webhook)| field(webhook, "/clientConfig/caBundle") != bundle);
    let operations = outdated.flat_map(|(index, webhook)| {
        let path = format!("/webhooks/{index}");
        [
            json!({"op": "test", "path": format!("{path}/name"), "value": webhook.get("name")}),
            json!({"op": "add", "path": format!("{path}/clientConfig/caBundle"), "value": bundle}),
        ]
    });
    Some(operations.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_only_webhooks_of_the_service() {
        let service = |namespace: &str| ServiceName {
            service: "injector".to_owned(),
            namespace: namespace.to_owned(),
        };
        let webhook = |name: &str, service: &str, bundle: Option<&str>| {
            let mut webhook = json!({"name": name, "clientConfig": {"service": {"name": service, "namespace": "tg"}}});
            if let Some(bundle) = bundle {
                webhook["clientConfig"]["caBundle"] = bundle.into();
            }
            webhook
        };
        let configuration = json!({"webhooks": [
            webhook("a", "other", None),
            webhook("b", "injector", None),
            webhook("c", "injector", Some("Q0E=")),
            webhook("d", "injector", Some("b2xk")),
        ]});
        let patch = ca_bundle_patch(&configuration, &service("tg"), "Q0E=");
        assert_eq!(
            patch.unwrap(),
            [
                json!({"op": "test", "path": "/webhooks/1/name", "value": "b"}),
                json!({"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "Q0E="}),
                json!({"op": "test", "path": "/webhooks/3/name", "value": "d"}),
                json!({"op": "add", "path": "/webhooks/3/clientConfig/caBundle", "value": "Q0E="}),
            ]
        );
        let current = json!({"webhooks": [webhook("c", "injector", Some("Q0E="))]});
        assert_eq!(ca_bundle_patch(&current, &service("tg"), "Q0E="), Some(Vec::new()));
        for other in [json!({}), json!({"webhooks": []}), json!({"webhooks": 7}), current] {
            assert_eq!(ca_bundle_patch(&other, &service("another"), "Q0E="), None, "{other}");
        }
    }
}
