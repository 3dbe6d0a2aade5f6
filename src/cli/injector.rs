//! `tokengauge injector`: runs the admission webhook until a signal stops it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::ArgGroup;

use super::run::{SECOND_SIGNAL, Stop, runtime};
use crate::config::value::DurationValue;
use crate::config::{Log, LogFormat, LogLevel};
use tokengauge_kubernetes::inject::Settings;
use tokengauge_kubernetes::webhook::{
    ApiServer, CertificateFiles, CertificateSource, Config, SERVICE_ACCOUNT, SelfSigned,
    ServiceName, WebhookServer,
};
use tokengauge_telemetry::self_telemetry;

/// Run the admission webhook that adds sidecars to new pods
///
/// Accepts AdmissionReviews at POST /inject over HTTPS and always allows the pod. Changes pods in the same way as
/// `tokengauge inject` changes manifests. See docs/how-to/webhook.md for certificates and permissions.
#[derive(Clone, Debug, clap::Args)]
#[command(group(ArgGroup::new("certificates").required(true).args(["self_signed", "cert"])))]
pub struct Args {
    /// HTTPS address for reviews from the API server
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:8443")]
    pub listen: SocketAddr,

    /// HTTP address for /livez, /readyz and /metrics
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:4001")]
    pub admin: SocketAddr,

    /// Certificate chain to serve (PEM); reloaded when the file changes
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,

    /// Private key of --cert (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,

    /// Issue certificates, store them in --secret and set the caBundle of --webhook-configuration
    #[arg(long)]
    pub self_signed: bool,

    /// Service of this webhook
    #[arg(long, value_name = "NAME", default_value = "tokengauge-injector")]
    pub service: String,

    /// Namespace of the Service and of the Secret [default: the pod's namespace]
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,

    /// MutatingWebhookConfiguration whose caBundle to set
    #[arg(long, value_name = "NAME", default_value = "tokengauge-injector")]
    pub webhook_configuration: String,

    /// Secret through which replicas share certificates; created if missing
    #[arg(long, value_name = "NAME", default_value = "tokengauge-injector-certificate")]
    pub secret: String,

    /// Interval between checks of the Secret and the caBundle
    #[arg(long, value_name = "TIME", default_value = "1m")]
    pub check_interval: DurationValue,

    /// Do not send Kubernetes events
    #[arg(long)]
    pub no_events: bool,

    /// URL of the API server [default: that of the pod's cluster]
    #[arg(long, value_name = "URL", requires_all = ["token_file", "ca_file"])]
    pub api_server: Option<String>,

    /// File with the token for --api-server; read for each request
    #[arg(long, value_name = "FILE", requires = "api_server")]
    pub token_file: Option<PathBuf>,

    /// CA certificate of --api-server (PEM)
    #[arg(long, value_name = "FILE", requires = "api_server")]
    pub ca_file: Option<PathBuf>,

    /// Continue to accept reviews for this long after SIGTERM, until all API servers use other replicas
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub shutdown_delay: DurationValue,

    /// Least severe level to log
    #[arg(long, value_name = "LEVEL", env = "TOKENGAUGE_LOG_LEVEL", default_value = "info")]
    pub log_level: LogLevel,

    /// Format of log lines
    #[arg(long, value_name = "FORMAT", env = "TOKENGAUGE_LOG_FORMAT", default_value = "text")]
    pub log_format: LogFormat,

    #[command(flatten)]
    pub settings: Settings,
}

/// Runs the webhook. `environment` looks up environment variables, some of which name the API server of the pod's
/// cluster.
pub fn run(args: Args, environment: fn(&str) -> Option<String>) -> anyhow::Result<ExitCode> {
    let log = Log { level: args.log_level, format: args.log_format };
    // Writes the last lines when the function returns.
    let _log = super::log::start(log, environment)?;
    let config = config(args, environment)?;
    let runtime = runtime()?;
    let ended = runtime.block_on(serve(config));
    runtime.shutdown_background();
    ended
}

async fn serve(config: Config) -> anyhow::Result<ExitCode> {
    // Signals are handled before the log reports the listener, because a test or a supervisor can then send one.
    let mut stop = Stop::listen()?;
    let server = WebhookServer::start(config)?;
    self_telemetry::listening(&server.address().to_string(), true);
    self_telemetry::admin_listening(&server.admin_addr().to_string(), false, false);
    stop.requested().await;
    tokio::select! {
        () = server.shutdown() => Ok(ExitCode::SUCCESS),
        () = stop.requested() => Ok(ExitCode::from(SECOND_SIGNAL)),
    }
}

fn config(args: Args, environment: fn(&str) -> Option<String>) -> anyhow::Result<Config> {
    let server = match (args.api_server, args.token_file, args.ca_file) {
        (Some(url), Some(token), Some(ca)) => {
            Some(ApiServer { url: url.trim_end_matches('/').to_owned(), token, ca })
        }
        _ => ApiServer::in_cluster(environment),
    };
    let certificate = match (args.cert, args.key) {
        (Some(certificate), Some(key)) => {
            CertificateSource::Files(CertificateFiles { certificate, key })
        }
        _ => {
            let server = server.clone().context(
                "--self-signed needs an API server, but KUBERNETES_SERVICE_HOST is not set; \
                 run in a pod, or give --api-server, --token-file and --ca-file",
            )?;
            let namespace = args.namespace.map_or_else(own_namespace, Ok)?;
            let self_signed = SelfSigned {
                service: ServiceName { service: args.service, namespace },
                secret: args.secret,
                webhook_configuration: args.webhook_configuration,
                check_interval: args.check_interval.0,
            };
            CertificateSource::SelfSigned(self_signed, server)
        }
    };
    let events = server.filter(|_| !args.no_events);
    if events.is_none() && !args.no_events {
        tracing::warn!(
            "events disabled: KUBERNETES_SERVICE_HOST is not set and --api-server is not given"
        );
    }
    Ok(Config {
        listen: args.listen,
        admin: args.admin,
        certificate,
        events,
        shutdown_delay: args.shutdown_delay.0,
        settings: args.settings,
    })
}

fn own_namespace() -> anyhow::Result<String> {
    let path = Path::new(SERVICE_ACCOUNT).join("namespace");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}; give --namespace", path.display()))?;
    Ok(text.trim().to_owned())
}
