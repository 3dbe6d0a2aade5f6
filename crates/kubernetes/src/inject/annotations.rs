//! What a pod's annotations say, before what the flags say.

use std::str::FromStr;

use clap::ValueEnum;
use serde_json::{Map, Value};

use super::outcome::{Problem, Reason};
use super::settings::{Mode, OtlpProtocol, Settings, provider};
use super::value::{ClusterName, ConfigMapName, Image, OtlpUrl, PortName, PortNumber, Quantity};
use super::{Stop, record};
use tokengauge_measure::slo::Preset;
use tokengauge_types::label::Name;
use tokengauge_types::{url::Target, value::Length};

const PREFIX: &str = "tokengauge.dev/";

/// The annotations, without their prefix. The record (`injected`) is none of them: nobody writes it by hand.
const NAMES: [&str; 19] = [
    "inject",
    "mode",
    "upstream",
    "port",
    "provider",
    "objectives",
    "engine-metrics",
    "config",
    "image",
    "listen-port",
    "admin-port",
    "otlp-endpoint",
    "otlp-protocol",
    "drain",
    "native",
    "cpu-request",
    "memory-request",
    "memory-limit",
    "containers",
];

/// What is wanted of the sidecar of one pod.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) mode: Mode,
    /// Whether the pod itself says anything of the sidecar, and not the flags alone.
    pub(super) asked: bool,
    pub(super) image: Image,
    pub(super) upstream: Vec<Target>,
    pub(super) port: Option<PortName>,
    pub(super) provider: Option<Name>,
    pub(super) objectives: Option<Preset>,
    pub(super) engine_metrics: Option<bool>,
    pub(super) config: Option<ConfigMapName>,
    pub(super) listen: u16,
    /// Whether somebody chose the port, and so has seen to the Service.
    pub(super) listen_said: bool,
    pub(super) admin: u16,
    pub(super) otlp_endpoint: Option<OtlpUrl>,
    pub(super) otlp_protocol: Option<OtlpProtocol>,
    pub(super) drain: Option<Length>,
    pub(super) native: bool,
    pub(super) cluster: Option<ClusterName>,
    pub(super) cpu_request: Option<Quantity>,
    pub(super) memory_request: Option<Quantity>,
    pub(super) memory_limit: Option<Quantity>,
    /// Outbound: the containers that get variables; all where nothing is said.
    pub(super) containers: Option<Vec<String>>,
}

impl Wanted {
    /// Reads a pod template (or a pod): whether it wants a sidecar, and which.
    pub(super) fn of(object: &Value, template: &Value, settings: &Settings) -> Result<Self, Stop> {
        let annotations = Annotations::of(template)?;
        misplaced(object, template)?;
        let mode = annotations.mode(template, settings)?;
        let said = settings.clone();
        let listen = annotations.read("listen-port", from_text::<PortNumber>)?.or(said.listen_port);
        let admin = annotations.read("admin-port", from_text::<PortNumber>)?.or(said.admin_port);
        let upstream = annotations.read("upstream", targets)?.unwrap_or(said.upstream);
        let wanted = Self {
            mode,
            asked: !annotations.ours.is_empty(),
            image: annotations.read("image", from_text)?.unwrap_or(said.image),
            upstream,
            port: annotations.read("port", from_text)?.or(said.port),
            provider: annotations.read("provider", provider)?.or(said.provider),
            objectives: annotations.read("objectives", chosen)?.or(said.objectives),
            engine_metrics: annotations.read("engine-metrics", truth)?.or(said.engine_metrics),
            config: annotations.read("config", from_text)?.or(said.config),
            listen: listen.map_or(LISTEN, PortNumber::get),
            listen_said: listen.is_some(),
            admin: admin.map_or(ADMIN, PortNumber::get),
            otlp_endpoint: annotations.read("otlp-endpoint", from_text)?.or(said.otlp_endpoint),
            otlp_protocol: annotations.read("otlp-protocol", chosen)?.or(said.otlp_protocol),
            drain: annotations.read("drain", from_text)?.or(said.drain),
            native: annotations.read("native", truth)?.or(said.native).unwrap_or(true),
            cluster: said.cluster,
            cpu_request: annotations.read("cpu-request", from_text)?.or(said.cpu_request),
            memory_request: annotations.read("memory-request", from_text)?.or(said.memory_request),
            memory_limit: annotations.read("memory-limit", from_text)?.or(said.memory_limit),
            containers: annotations.read("containers", names)?,
        };
        if wanted.listen == wanted.admin {
            return Err(Problem::SamePorts { port: wanted.listen }.into());
        }
        Ok(wanted)
    }
}

/// Where requests are taken, and where health is told, unless somebody chooses otherwise.
const LISTEN: u16 = 4000;
const ADMIN: u16 = 4001;

/// Those of a pod that are ours.
struct Annotations<'a> {
    ours: Vec<(&'a str, &'a str)>,
}

impl<'a> Annotations<'a> {
    /// Unknown names are refused: a word written wrong would pass for a default.
    fn of(template: &'a Value) -> Result<Self, Problem> {
        let mut ours = Vec::new();
        for (key, value) in written(template) {
            let Some(name) = key.strip_prefix(PREFIX) else {
                continue;
            };
            if key == record::RECORD {
                continue;
            }
            let Some(known) = NAMES.into_iter().find(|known| *known == name) else {
                return Err(Problem::UnknownAnnotation {
                    name: key.clone(),
                    nearest: nearest(name),
                });
            };
            let Some(text) = value.as_str() else {
                return Err(Problem::WrongAnnotation {
                    name: known,
                    wrong: format!("{value} is no text; put it into quotes"),
                });
            };
            ours.push((known, text));
        }
        Ok(Self { ours })
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.ours.iter().find(|(key, _)| *key == name).map(|(_, text)| *text)
    }

    fn read<T>(
        &self,
        name: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Problem> {
        self.get(name)
            .map(|text| read(text.trim()).map_err(|wrong| Problem::WrongAnnotation { name, wrong }))
            .transpose()
    }

    fn mode(&self, template: &Value, settings: &Settings) -> Result<Mode, Stop> {
        let label = template.pointer("/metadata/labels/tokengauge.dev~1inject");
        let enabled = self.read("inject", switch)?;
        if enabled == Some(false) || label.and_then(Value::as_str) == Some("disabled") {
            return Err(Reason::OptedOut.into());
        }
        let mode = self.read("mode", chosen::<Mode>)?.or(settings.mode);
        match (mode, enabled) {
            (Some(mode), _) => Ok(mode),
            (None, Some(true)) => Err(Problem::ModeUnknown.into()),
            (None, _) => Err(Reason::NotAsked.into()),
        }
    }
}

fn written(holder: &Value) -> impl Iterator<Item = (&String, &Value)> {
    holder
        .pointer("/metadata/annotations")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::iter)
}

/// An annotation on the Deployment itself instead of on its pods would be without effect.
fn misplaced(object: &Value, template: &Value) -> Result<(), Problem> {
    let elsewhere = written(object).find(|(key, _)| {
        key.starts_with(PREFIX)
            && template.pointer("/metadata/annotations").and_then(|them| them.get(key)).is_none()
    });
    match elsewhere {
        Some((key, _)) => Err(Problem::MisplacedAnnotation { name: key.clone() }),
        None => Ok(()),
    }
}

fn from_text<T>(text: &str) -> Result<T, String>
where
    T: FromStr,
    T::Err: ToString,
{
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn chosen<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| {
        let names = T::value_variants()
            .iter()
            .filter_map(|value| value.to_possible_value().map(|value| value.get_name().to_owned()));
        format!("\"{text}\" is none of {}", names.collect::<Vec<_>>().join(", "))
    })
}

fn truth(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| format!("\"{text}\" is neither \"true\" nor \"false\""))
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "enabled" => Ok(true),
        "disabled" => Ok(false),
        _ => Err(format!("\"{text}\" is neither enabled nor disabled")),
    }
}

fn names(text: &str) -> Result<Vec<String>, String> {
    Ok(text.split(',').map(|name| name.trim().to_owned()).collect())
}

/// Errors do not echo the text: people put keys into URLs.
fn targets(text: &str) -> Result<Vec<Target>, String> {
    text.split(',').map(|target| from_text(target.trim())).collect()
}

/// The known name that takes the fewest changes.
fn nearest(name: &str) -> &'static str {
    NAMES.into_iter().min_by_key(|known| strsim::damerau_levenshtein(known, name)).unwrap_or("mode")
}
