//! `tokengauge run`: runs the proxy until a signal stops it.

use std::io;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use anyhow::anyhow;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::App;
use crate::cli::log::InstalledLog;
use crate::cli::notify::ServiceManager;
use crate::config::{self, Config, ConfigWatcher, Otlp, RunArgs};
use tokengauge_listen::Workers;
use tokengauge_telemetry::process;
use tokengauge_telemetry::self_telemetry;
use tokengauge_types::error::WithCauses;

/// Maximum number of worker threads. One thread forwards tens of thousands of chunks per second.
const MAX_WORKERS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(15);

/// Environment variable that enables content capture in instrumented applications. The proxy ignores it, because a
/// proxy serves several applications.
const CAPTURE_VARIABLE: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

/// Runs the proxy. `environment` looks up environment variables, such as `OTEL_*` and `HTTPS_PROXY`.
pub fn run(args: RunArgs, environment: fn(&str) -> Option<String>) -> anyhow::Result<ExitCode> {
    process::raise_open_file_limit();
    let mut watcher = ConfigWatcher::new(args, environment);
    let config = watcher.load().map_err(|errors| anyhow!(errors.with_documentation()))?;
    let log = super::log::start(config.file.log, environment)?;
    log_warnings(&config);
    for word in &config.ignored_propagators {
        self_telemetry::setting_ignored(
            "OTEL_PROPAGATORS",
            &format!(
                "`{word}` is ignored: it should be tracecontext, baggage, b3, b3multi or none"
            ),
        );
    }
    log_misspelt_variables();
    let export = export(&config, environment);
    watcher.watch_also(export.tls_files().cloned());
    let workers = workers()?;
    let runtime = main_runtime()?;
    let manager = ServiceManager::from_env(environment)?;
    let proxy = Proxy { config, export, watcher, workers };
    let result = runtime.block_on(serve(proxy, &log, &manager));
    // The shutdown does not wait for a flush that a second signal has interrupted.
    runtime.shutdown_background();
    result
}

/// Creates the runtime of the main thread, which accepts connections and serves the admin port. Workers, observer and
/// exporters have other threads.
fn main_runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().thread_name("main").enable_all().build()
}

/// Starts the threads that forward requests, one per core.
pub fn workers() -> io::Result<Workers> {
    Workers::start(worker_count())
}

/// Creates a runtime for the commands that do not forward requests.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(worker_count().get()).enable_all().build()
}

fn worker_count() -> NonZeroUsize {
    std::thread::available_parallelism().map_or(NonZeroUsize::MIN, |cores| cores.min(MAX_WORKERS))
}

/// Merges the export settings of the environment and the configuration file. Logs each setting that is invalid or
/// ambiguous.
pub fn export(
    config: &Config,
    environment: fn(&str) -> Option<String>,
) -> tokengauge_telemetry::TelemetryConfig {
    let setting = |name: &str| overridden(&config.file.otlp, name).or_else(|| environment(name));
    let (mut export, problems) = tokengauge_telemetry::TelemetryConfig::from_env(setting);
    for problem in &problems {
        match problem.is_ignored {
            true => self_telemetry::setting_ignored(&problem.variable, &problem.message),
            false => self_telemetry::setting_ambiguous(&problem.variable, &problem.message),
        }
    }
    let is_enabled = |value: &String| {
        let off = ["", "false", "no_content"];
        !off.contains(&value.to_ascii_lowercase().as_str())
    };
    if environment(CAPTURE_VARIABLE).filter(is_enabled).is_some() {
        self_telemetry::setting_ignored(
            CAPTURE_VARIABLE,
            "content is captured per route only; write `content: {capture: true}` there",
        );
    }
    if let Some(names) = config.file.otlp.genai_names {
        export.gen_ai = names;
    }
    export.profile = config.file.telemetry.profile;
    let headers = config.file.otlp.headers.iter();
    let headers = headers.map(|(name, value)| (name.clone(), value.value.0.expose().to_owned()));
    for signal in [&mut export.logs, &mut export.metrics, &mut export.traces] {
        signal.headers.0.extend(headers.clone());
        signal.proxy = signal
            .host_and_port()
            .and_then(|(host, port)| config.proxies.for_host(signal.uses_tls(), &host, port));
    }
    export
}

/// Returns the value of the configuration file for the variable `name`. A variable of a single signal becomes empty,
/// because it would take precedence over the file.
fn overridden(file: &Otlp, name: &str) -> Option<String> {
    let setting = name.strip_prefix("OTEL_").unwrap_or(name);
    match setting.strip_prefix("EXPORTER_OTLP_").unwrap_or(setting) {
        "ENDPOINT" => file.endpoint.as_ref().map(ToString::to_string),
        "TRACES_ENDPOINT" | "METRICS_ENDPOINT" | "LOGS_ENDPOINT" => {
            file.endpoint.as_ref().map(|_| String::new())
        }
        "PROTOCOL" => file.protocol.map(|protocol| match protocol {
            config::ExportProtocol::Grpc => "grpc".to_owned(),
            config::ExportProtocol::HttpProtobuf => "http/protobuf".to_owned(),
        }),
        "TRACES_PROTOCOL" | "METRICS_PROTOCOL" | "LOGS_PROTOCOL" => {
            file.protocol.map(|_| String::new())
        }
        "METRIC_EXPORT_INTERVAL" => {
            file.interval.map(|interval| interval.get().as_millis().to_string())
        }
        _ => None,
    }
}

/// The parts from which [`serve`] starts a proxy.
struct Proxy {
    config: Config,
    export: tokengauge_telemetry::TelemetryConfig,
    watcher: ConfigWatcher,
    workers: Workers,
}

async fn serve(
    proxy: Proxy,
    log: &InstalledLog,
    manager: &ServiceManager,
) -> anyhow::Result<ExitCode> {
    let Proxy { config, export, watcher, workers } = proxy;
    // Signals are handled before the log reports that the proxy listens, because a reader of the log can then send one.
    let mut stop = Stop::listen()?;
    let hang_up = signal(SignalKind::hangup())?;
    let app = App::start(config, export, workers, log.line_counters()).await?;
    if let Some(emitter) = app.log_emitter() {
        log.export_to(emitter);
    }
    log_addresses(&app);
    manager.ready();
    let apply = |loaded| {
        manager.reloading();
        manager.reloaded(reload(&app, loaded));
    };
    tokio::select! {
        never = watcher.run(hang_up, apply) => match never {},
        () = stop.requested() => {}
    }
    // The configuration can have changed since the start.
    let grace_period = app.config().file.shutdown_grace_period.get();
    manager.stopping(grace_period);
    tokio::select! {
        _ = app.shutdown(grace_period) => Ok(ExitCode::SUCCESS),
        () = stop.requested() => Ok(ExitCode::from(SECOND_SIGNAL)),
    }
}

/// Exit status after a second signal: 128 + 15 (SIGTERM), as shells report a process that SIGTERM ended.
pub(super) const SECOND_SIGNAL: u8 = 143;

fn log_warnings(config: &Config) {
    for warning in &config.warnings {
        self_telemetry::config_warning(&warning.to_string());
    }
}

fn log_misspelt_variables() {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names {
        if let Some(meant) = config::misspelt_variable(&name) {
            let reason = format!("no setting has this name; did you mean {meant}?");
            self_telemetry::setting_ignored(&name, &reason);
        }
    }
}

fn log_addresses(app: &App) {
    for (address, tls) in app.listeners() {
        self_telemetry::listening(&address.to_string(), *tls);
    }
    let config = app.config();
    let restricted = !app.admin_addr().ip().is_loopback() || config.file.admin.token.is_some();
    let admin = app.admin_addr().to_string();
    self_telemetry::admin_listening(&admin, restricted, app.has_console());
}

/// Applies a changed configuration, or logs its errors. Returns whether it is in use.
fn reload(app: &App, loaded: Result<Config, config::ConfigErrors>) -> bool {
    // Certificates do not depend on the configuration, so an error in one does not affect the other.
    let with_certificates = app.reload_certificates();
    let problem = match loaded {
        Ok(new) => {
            let need_restart = app.config().file.changed_restart_keys(&new.file);
            log_warnings(&new);
            match app.reload(new) {
                Ok(()) => {
                    self_telemetry::config_reloaded(&need_restart, with_certificates);
                    return true;
                }
                Err(problem) => WithCauses(&problem).to_string(),
            }
        }
        Err(errors) => errors.to_string(),
    };
    app.record_failed_reload();
    self_telemetry::config_reload_failed(&problem);
    false
}

/// Waits for SIGTERM or SIGINT.
pub(super) struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(super) async fn requested(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
