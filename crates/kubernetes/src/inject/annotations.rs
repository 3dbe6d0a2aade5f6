//! Reads the sidecar configuration of one pod. Annotations of the pod override the command-line flags.

use std::str::FromStr;

use clap::ValueEnum;
use serde_json::{Map, Value};

use super::outcome::{InjectError, NoChange, SkipReason};
use super::record;
use super::resources;
use super::settings::{
    ANNOTATIONS, Mode, Settings, choice_name, parse_config_map, parse_container_port, parse_image,
    parse_otlp_url, parse_port, parse_provider, parse_quantity,
};
use tokengauge_types::url::UpstreamTarget;

const PREFIX: &str = "tokengauge.dev/";

const DEFAULT_LISTEN_PORT: u16 = 4000;

/// Default port on which the sidecar serves health checks and metrics.
pub(super) const DEFAULT_ADMIN_PORT: u16 = 4001;

#[derive(Debug)]
pub(super) struct SidecarConfig {
    pub(super) mode: Mode,
    pub(super) image: String,
    pub(super) has_annotations: bool,
    pub(super) listen: u16,
    /// Whether a flag, an annotation or an earlier injection sets the listen port. If false, the default port is used.
    pub(super) listen_is_explicit: bool,
    pub(super) admin: u16,
    pub(super) native: bool,
    /// Names of the containers that get the environment variables in outbound mode. `None` selects all
    /// containers.
    pub(super) containers: Option<Vec<String>>,
    /// Settings from the command-line flags, overridden by the annotations of the pod.
    pub(super) settings: Settings,
}

impl SidecarConfig {
    /// Reads the sidecar configuration of a pod template. Returns [`NoChange::Skipped`] if the template requests no
    /// sidecar.
    pub(super) fn resolve(
        object: &Value,
        template: &Value,
        settings: &Settings,
    ) -> Result<Self, NoChange> {
        let annotations = Annotations::from_template(template)?;
        check_placement(object, template)?;
        annotations.check_pinned(settings)?;
        let mode = annotations.mode(template, settings)?;
        let settings = annotations.override_settings(settings)?;
        let config = Self {
            mode,
            image: settings.image.clone().ok_or(InjectError::MissingImage)?,
            has_annotations: !annotations.values.is_empty(),
            listen: settings.listen_port.unwrap_or(DEFAULT_LISTEN_PORT),
            listen_is_explicit: settings.listen_port.is_some(),
            admin: settings.admin_port.unwrap_or(DEFAULT_ADMIN_PORT),
            native: settings.native.unwrap_or(true),
            containers: annotations.read("containers", parse_names)?,
            settings,
        };
        if let Some(resource) = resources::request_above_limit(&config.settings) {
            return Err(InjectError::RequestAboveLimit { resource }.into());
        }
        if config.listen == config.admin {
            return Err(InjectError::PortConflict { port: config.listen }.into());
        }
        Ok(config)
    }

    /// Returns the sidecar's two ports, each with the name of the annotation that sets it.
    pub(super) fn ports(&self) -> [(u16, &'static str); 2] {
        [(self.listen, "listen-port"), (self.admin, "admin-port")]
    }
}

struct Annotations<'a> {
    values: Vec<(&'static str, &'a str)>,
}

impl<'a> Annotations<'a> {
    /// Reads the annotations of a pod template. Returns an error for an unknown name, because a misspelled annotation
    /// would have no effect.
    fn from_template(template: &'a Value) -> Result<Self, InjectError> {
        let mut values = Vec::new();
        for (key, value) in all_annotations(template) {
            let Some(name) = key.strip_prefix(PREFIX) else { continue };
            if key == record::RECORD_ANNOTATION {
                continue;
            }
            let Some(known) = ANNOTATIONS.into_iter().find(|known| *known == name) else {
                let nearest = nearest_name(name);
                return Err(InjectError::UnknownAnnotation { name: key.clone(), nearest });
            };
            let Some(text) = value.as_str() else {
                let message = format!("{value} is not a string; put it in quotes");
                return Err(InjectError::InvalidAnnotation { name: known, message });
            };
            values.push((known, text));
        }
        Ok(Self { values })
    }

    /// Returns an error if the pod sets an annotation that the flag `--pin` forbids.
    fn check_pinned(&self, settings: &Settings) -> Result<(), InjectError> {
        let is_pinned = |name: &str| settings.pin.iter().any(|pinned| pinned == name);
        match self.values.iter().find(|(name, _)| is_pinned(name)) {
            Some((name, _)) => Err(InjectError::PinnedAnnotation { name }),
            None => Ok(()),
        }
    }

    fn read<T>(
        &self,
        name: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, InjectError> {
        let Some((_, text)) = self.values.iter().find(|(key, _)| *key == name) else {
            return Ok(None);
        };
        let invalid = |message| InjectError::InvalidAnnotation { name, message };
        parse(text.trim()).map(Some).map_err(invalid)
    }

    /// Returns a copy of the flags in which the pod's annotations override single values.
    fn override_settings(&self, flags: &Settings) -> Result<Settings, InjectError> {
        let flags = flags.clone();
        Ok(Settings {
            listen_port: self.read("listen-port", parse_port)?.or(flags.listen_port),
            admin_port: self.read("admin-port", parse_port)?.or(flags.admin_port),
            upstream: self.read("upstream", parse_targets)?.unwrap_or(flags.upstream),
            image: self.read("image", parse_image)?.or(flags.image),
            port: self.read("port", parse_container_port)?.or(flags.port),
            provider: self.read("provider", parse_provider)?.or(flags.provider),
            slos: self.read("slos", parse_choice)?.or(flags.slos),
            engine_metrics: self.read("engine-metrics", parse_bool)?.or(flags.engine_metrics),
            config: self.read("config", parse_config_map)?.or(flags.config),
            otlp_endpoint: self.read("otlp-endpoint", parse_otlp_url)?.or(flags.otlp_endpoint),
            otlp_protocol: self.read("otlp-protocol", parse_choice)?.or(flags.otlp_protocol),
            shutdown_grace_period: self
                .read("shutdown-grace-period", from_text)?
                .or(flags.shutdown_grace_period),
            native: self.read("native", parse_bool)?.or(flags.native),
            run_as_user: self.read("run-as-user", from_text)?.or(flags.run_as_user),
            cpu_limit: self.read("cpu-limit", parse_quantity)?.or(flags.cpu_limit),
            cpu_request: self.read("cpu-request", parse_quantity)?.or(flags.cpu_request),
            memory_request: self.read("memory-request", parse_quantity)?.or(flags.memory_request),
            memory_limit: self.read("memory-limit", parse_quantity)?.or(flags.memory_limit),
            mode: flags.mode,
            cluster: flags.cluster,
            pin: flags.pin,
        })
    }

    fn mode(&self, template: &Value, settings: &Settings) -> Result<Mode, NoChange> {
        let label = template.pointer("/metadata/labels/tokengauge.dev~1inject");
        let enabled = self.read("inject", parse_switch)?;
        if enabled == Some(false) || label.and_then(Value::as_str) == Some("disabled") {
            return Err(SkipReason::OptedOut.into());
        }
        let mode = self.read("mode", parse_choice::<Mode>)?.or(settings.mode);
        match (mode, enabled) {
            (Some(mode), _) => Ok(mode),
            (None, Some(true)) => Err(InjectError::MissingMode.into()),
            (None, _) => Err(SkipReason::NotRequested.into()),
        }
    }
}

fn all_annotations(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object
        .pointer("/metadata/annotations")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::iter)
}

/// Returns an error if an annotation is on the workload but not on its pod template, because it has no effect there.
fn check_placement(object: &Value, template: &Value) -> Result<(), InjectError> {
    let misplaced = all_annotations(object).find(|(key, _)| {
        key.starts_with(PREFIX) && all_annotations(template).all(|(other, _)| other != *key)
    });
    match misplaced {
        Some((key, _)) => Err(InjectError::MisplacedAnnotation { name: key.clone() }),
        None => Ok(()),
    }
}

fn from_text<T: FromStr<Err: ToString>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn parse_choice<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| {
        let names: Vec<String> = T::value_variants().iter().cloned().map(choice_name).collect();
        format!("\"{text}\" is not one of {}", names.join(", "))
    })
}

fn parse_bool(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| format!("\"{text}\" is neither \"true\" nor \"false\""))
}

fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "enabled" => Ok(true),
        "disabled" => Ok(false),
        _ => Err(format!("\"{text}\" is neither enabled nor disabled")),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the signature that Annotations::read expects")]
fn parse_names(text: &str) -> Result<Vec<String>, String> {
    Ok(text.split(',').map(|name| name.trim().to_owned()).collect())
}

/// Parses a comma-separated list of upstreams. Error messages do not repeat the text, because a URL may contain
/// credentials.
fn parse_targets(text: &str) -> Result<Vec<UpstreamTarget>, String> {
    text.split(',').map(|target| from_text(target.trim())).collect()
}

fn nearest_name(name: &str) -> &'static str {
    ANNOTATIONS
        .into_iter()
        .min_by_key(|known| strsim::damerau_levenshtein(known, name))
        .unwrap_or("mode")
}
