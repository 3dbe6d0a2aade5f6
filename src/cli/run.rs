//! `tokengauge run`: the proxy, until a signal ends it.

use std::io;
use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::App;
use crate::config::{self, Config, ConfigWatcher, ExportOverrides, RunArgs};
use tokengauge_telemetry::process;
use tokengauge_telemetry::self_telemetry;

/// Threads that move bytes: as many as there are cores, up to a number beyond which a relay only pays for stealing.
const MOST_WORKERS: usize = 16;

/// By this an application says that its own prompts may be captured: not for those of all that are behind a proxy.
const CAPTURE_VARIABLE: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

/// Runs the proxy; `environment` is asked for `OTEL_*` and proxy variables.
pub fn run(args: RunArgs, environment: fn(&str) -> Option<String>) -> anyhow::Result<ExitCode> {
    process::raise_open_file_limit();
    let mut watch = ConfigWatcher::new(args, environment);
    let config = watch.load()?;
    super::log::start(config.log);
    for word in &config.ignored_propagators {
        self_telemetry::setting_ignored(
            "OTEL_PROPAGATORS",
            &format!(
                "`{word}` is ignored: it should be tracecontext, baggage, b3, b3multi or none"
            ),
        );
    }
    let export = export(&config, environment);
    let runtime = runtime()?;
    let ended = runtime.block_on(serve(config, export, watch));
    // A flush that a second signal broke off is not waited for.
    runtime.shutdown_background();
    ended
}

/// The runtime of the data path. Telemetry and observation have threads of their own.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(cores.min(MOST_WORKERS)).thread_name("relay").enable_all().build()
}

/// What the environment and the file say of export; each setting that is not understood is said once.
pub fn export(
    config: &Config,
    environment: fn(&str) -> Option<String>,
) -> tokengauge_telemetry::Config {
    let said = |name: &str| overridden(&config.export, name).or_else(|| environment(name));
    let (mut export, problems) = tokengauge_telemetry::Config::from_env(said);
    for problem in &problems {
        self_telemetry::setting_ignored(&problem.variable, &problem.message);
    }
    let captures = |value: &String| {
        let off = ["", "false", "no_content"];
        !off.contains(&value.to_ascii_lowercase().as_str())
    };
    if environment(CAPTURE_VARIABLE).filter(captures).is_some() {
        self_telemetry::setting_ignored(
            CAPTURE_VARIABLE,
            "content is captured per route only; write `content: {capture: true}` there",
        );
    }
    if let Some(names) = config.export.genai_names {
        export.gen_ai = names;
    }
    let headers =
        config.export.headers.iter().map(|(name, value)| (name.clone(), value.expose().to_owned()));
    for signal in [&mut export.metrics, &mut export.traces] {
        signal.headers.0.extend(headers.clone());
    }
    export
}

/// What the file says in the words of the environment; the per-signal forms would win over it, so they go unheard.
fn overridden(file: &ExportOverrides, name: &str) -> Option<String> {
    let setting = name.strip_prefix("OTEL_").unwrap_or(name);
    match setting.strip_prefix("EXPORTER_OTLP_").unwrap_or(setting) {
        "ENDPOINT" => file.endpoint.clone(),
        "TRACES_ENDPOINT" | "METRICS_ENDPOINT" => file.endpoint.as_ref().map(|_| String::new()),
        "PROTOCOL" => file.protocol.map(|protocol| match protocol {
            config::ExportProtocol::Grpc => "grpc".to_owned(),
            config::ExportProtocol::HttpProtobuf => "http/protobuf".to_owned(),
        }),
        "TRACES_PROTOCOL" | "METRICS_PROTOCOL" => file.protocol.map(|_| String::new()),
        "METRIC_EXPORT_INTERVAL" => file.interval.map(|interval| interval.as_millis().to_string()),
        _ => None,
    }
}

async fn serve(
    config: Config,
    export: tokengauge_telemetry::Config,
    watch: ConfigWatcher,
) -> anyhow::Result<ExitCode> {
    // Before anything is said of listening: whoever has read that may send a signal.
    let mut stop = Stop::listen()?;
    let hang_up = signal(SignalKind::hangup())?;
    let app = App::start(config, export).await?;
    announce(&app);
    tokio::select! {
        never = watch.run(hang_up, |loaded| reload(&app, loaded)) => match never {},
        () = stop.asked() => {}
    }
    // As the configuration says now, which may have been reloaded since.
    let drain = app.config().drain;
    tokio::select! {
        _ = app.shutdown(drain) => Ok(ExitCode::SUCCESS),
        () = stop.asked() => Ok(ExitCode::from(SECOND_SIGNAL)),
    }
}

/// 128 + SIGTERM, as shells tell a process that a signal ended.
pub(super) const SECOND_SIGNAL: u8 = 143;

fn announce(app: &App) {
    let config = app.config();
    for listener in &config.listeners {
        let address = match (&listener.address, app.addresses()) {
            // With port 0 in the configuration, the port that was given.
            (tokengauge_listen::Address::Tcp(wanted), [only]) if wanted.port() == 0 => {
                only.to_string()
            }
            (address, _) => address.to_string(),
        };
        self_telemetry::listening(&address, listener.tls.is_some());
    }
    let restricted = !app.admin_addr().ip().is_loopback() && config.admin.token.is_none();
    self_telemetry::admin_listening(&app.admin_addr().to_string(), restricted);
}

fn reload(app: &App, loaded: Result<Config, config::ConfigErrors>) {
    let problem = match loaded {
        Ok(new) => {
            let need_restart = config::changes_requiring_restart(&app.config(), &new);
            match app.reload(new) {
                Ok(()) => {
                    return self_telemetry::config_reloaded(&need_restart);
                }
                Err(problem) => problem.to_string(),
            }
        }
        Err(errors) => errors.to_string(),
    };
    self_telemetry::config_reload_failed(&problem);
}

/// SIGTERM and SIGINT.
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

    pub(super) async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
