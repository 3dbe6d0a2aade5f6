//! `tokengauge injector`: the admission webhook, until a signal ends it.

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

/// Run the admission webhook that gives pods their sidecar when they are created
///
/// Takes AdmissionReviews at POST /inject over HTTPS and always allows the pod. What it does with a pod is what
/// `tokengauge inject` does with a manifest. docs/injector.md says what it needs.
#[derive(Clone, Debug, clap::Args)]
#[command(group(ArgGroup::new("certificates").required(true).args(["self_signed", "cert"])))]
pub struct Args {
    /// Where the API server sends reviews (HTTPS)
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    pub listen: SocketAddr,

    /// Where /livez, /readyz and /metrics are served (HTTP)
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:4001")]
    pub admin: SocketAddr,

    /// Serve this certificate chain (PEM); read again when it changes
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,

    /// The private key of --cert (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,

    /// Make certificates, keep them in --secret and put their authority into --webhook-configuration
    #[arg(long)]
    pub self_signed: bool,

    /// The Service that leads here
    #[arg(long, value_name = "NAME", default_value = "tokengauge-injector")]
    pub service: String,

    /// The Service's namespace, in which the Secret is kept [default: the pod's]
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,

    /// The MutatingWebhookConfiguration whose caBundle is set
    #[arg(long, value_name = "NAME", default_value = "tokengauge-injector")]
    pub webhook_configuration: String,

    /// The Secret that replicas share their certificate by; made where there is none
    #[arg(long, value_name = "NAME", default_value = "tokengauge-injector-certificate")]
    pub secret: String,

    /// How often Secret and caBundle are looked at
    #[arg(long, value_name = "TIME", default_value = "1m")]
    pub check_interval: DurationValue,

    /// Send no events
    #[arg(long)]
    pub no_events: bool,

    /// The API server [default: the cluster's that this pod runs in]
    #[arg(long, value_name = "URL", requires_all = ["token_file", "ca_file"])]
    pub api_server: Option<String>,

    /// The token for --api-server; read again for each request
    #[arg(long, value_name = "FILE", requires = "api_server")]
    pub token_file: Option<PathBuf>,

    /// The CA certificate of --api-server (PEM)
    #[arg(long, value_name = "FILE", requires = "api_server")]
    pub ca_file: Option<PathBuf>,

    /// How long reviews are still taken after SIGTERM, until every API server has heard of it
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub shutdown_delay: DurationValue,

    /// The least severe level that is logged
    #[arg(long, value_name = "LEVEL", env = "TOKENGAUGE_LOG_LEVEL", default_value = "info")]
    pub log_level: LogLevel,

    /// How log lines are written
    #[arg(long, value_name = "FORMAT", env = "TOKENGAUGE_LOG_FORMAT", default_value = "text")]
    pub log_format: LogFormat,

    #[command(flatten)]
    pub settings: Settings,
}

/// Runs the webhook; `environment` is asked where the API server is.
pub fn run(args: Args, environment: fn(&str) -> Option<String>) -> anyhow::Result<ExitCode> {
    super::log::start(Log { level: args.log_level, format: args.log_format });
    let config = config(args, environment)?;
    let runtime = runtime()?;
    let ended = runtime.block_on(serve(config));
    runtime.shutdown_background();
    ended
}

async fn serve(config: Config) -> anyhow::Result<ExitCode> {
    // Before anything is said of listening: whoever has read that may send a signal.
    let mut stop = Stop::listen()?;
    let injector = WebhookServer::start(config)?;
    self_telemetry::listening(&injector.address().to_string(), true);
    self_telemetry::admin_listening(&injector.admin_addr().to_string(), false);
    stop.requested().await;
    tokio::select! {
        () = injector.shutdown() => Ok(ExitCode::SUCCESS),
        () = stop.requested() => Ok(ExitCode::from(SECOND_SIGNAL)),
    }
}

fn config(args: Args, environment: fn(&str) -> Option<String>) -> anyhow::Result<Config> {
    let server = match (args.api_server, args.token_file, args.ca_file) {
        (Some(url), Some(token), Some(authority)) => {
            Some(ApiServer { url: url.trim_end_matches('/').to_owned(), token, authority })
        }
        _ => ApiServer::in_cluster(environment),
    };
    let certificate = match (args.cert, args.key) {
        (Some(certificate), Some(key)) => {
            CertificateSource::Files(CertificateFiles { certificate, key })
        }
        _ => {
            let server = server.clone().context(
                "--self-signed needs an API server: this is no pod of a cluster (KUBERNETES_SERVICE_HOST is not set); \
                 say where it is with --api-server, --token-file and --ca-file",
            )?;
            let namespace = args.namespace.map_or_else(own_namespace, Ok)?;
            let names = ServiceName { service: args.service, namespace };
            let made = SelfSigned {
                names,
                secret: args.secret,
                configuration: args.webhook_configuration,
                interval: args.check_interval.0,
            };
            CertificateSource::SelfSigned(made, server)
        }
    };
    let events = server.filter(|_| !args.no_events);
    if events.is_none() && !args.no_events {
        tokengauge_kubernetes::webhook::log::NoEvents.emit();
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
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!("--namespace is not given, and {} cannot be read", path.display())
    })?;
    Ok(text.trim().to_owned())
}
