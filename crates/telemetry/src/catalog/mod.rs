//! The catalog of every metric and attribute that this program exports. If an attribute has a fixed set of values, the
//! catalog lists the values, too.
//!
//! All instruments are built from the catalog. Documentation, dashboards, alerts and tests are generated from the
//! catalog or checked against it. A metric has the same Prometheus name over OTLP and in a scrape, because its name and
//! unit follow rules. A name contains a unit word (`seconds`, `per_second`, `total`) only at its end, where the
//! translators to Prometheus add such words. Counters of things have a unit such as `{token}`, and only gauges have the
//! unit 1.

use std::slice;

use opentelemetry::InstrumentationScope;

use crate::config::{GenAiNames, MetricSelection, Profile};
use crate::prometheus_names;
use tokengauge_types::label_enum;

/// Declares a table of attributes, and a list of all attributes in the table.
macro_rules! attributes {
    ($(#[$about:meta])* $all:ident; $($name:ident $key:literal $values:expr, $description:literal;)*) => {
        $(
            #[doc = $description]
            pub const $name: Attribute = Attribute { key: $key, description: $description, values: $values };
        )*
        $(#[$about])*
        pub const $all: &[Attribute] = &[$($name),*];
    };
}

/// Declares a table of metrics, and a list of all metrics in the table. Columns: constant, name, kind, unit, groups of
/// attributes, attributes that split the value, buckets, combinations, usual series, names, profile, description, source.
macro_rules! metrics {
    (
        $(#[$about:meta])* $all:ident;
        $(
            $constant:ident $name:literal $kind:ident $unit:literal
            $(by [$($attributes:expr),*])? $(split [$($split:expr),*])? $(buckets $buckets:ident)?
            $(times $times:literal)? $(usually [$whole:literal, $streamed:literal])? $(named $names:ident)?
            $(profile $profile:ident)?,
            $description:literal $(, $source:expr)?;
        )*
    ) => {
        $(
            #[doc = $description]
            pub static $constant: Metric = Metric {
                $(attributes: &[$($attributes),*],)?
                $(split: &[$($split),*],)?
                $(buckets: $buckets,)?
                $(times: Some($times),)?
                $(usual: Some([$whole, $streamed]),)?
                $(names: Some($crate::config::GenAiNames::$names),)?
                $(profile: $crate::config::Profile::$profile,)?
                $(source: $source,)?
                ..Metric::new($name, Kind::$kind, $unit, $description)
            };
        )*
        $(#[$about])*
        pub static $all: &[&Metric] = &[$(&$constant),*];
    };
}

/// The source of a metric that is read from each entry of a group of the snapshot. After `each`, the function returns
/// one value for each label.
macro_rules! state {
    ($group:ident, each $values:expr) => {
        $crate::catalog::Source {
            labels: Some($crate::catalog::state_labels(&$group, $values)),
            read: $crate::catalog::Read::State(|registrar, metric| {
                registrar.each(metric, &$group, $values);
            }),
        }
    };
    ($group:ident, $value:expr) => {
        $crate::catalog::Source {
            labels: None,
            read: $crate::catalog::Read::State(|registrar, metric| {
                registrar.one(metric, &$group, $value);
            }),
        }
    };
}

/// The source of a metric with a value of each finished request. The function gets the record and its call, which is
/// `None` for plain HTTP. After `each`, it returns one value for each label.
macro_rules! finished {
    (each $values:expr) => {
        $crate::catalog::Source {
            labels: Some($crate::catalog::finished_labels($values)),
            read: $crate::catalog::Read::Finished(|record, call, emit| {
                emit.each(record, call, $values);
            }),
        }
    };
    ($value:expr) => {
        $crate::catalog::Source {
            labels: None,
            read: $crate::catalog::Read::Finished(|record, call, emit| {
                emit.one(record, call, $value);
            }),
        }
    };
}

pub mod attributes;
mod buckets;
pub mod health;
#[cfg(test)]
mod registry;
pub mod semconv;
pub mod spans;
pub(crate) mod state;
pub mod tokengauge;
pub(crate) mod values;

pub use attributes::Attribute;
use attributes::Values;
pub use buckets::Bounds;
use state::{Group, Registrar};
use tokengauge_measure::record::{Call, Record};
use values::Emit;

/// Instrumentation scope of all telemetry.
pub const SCOPE: &str = "tokengauge";

/// Schema of all telemetry in the scope: the version of the GenAI semantic conventions, which include the core
/// conventions that they depend on.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/gen-ai/0.1.0";

/// Schema of the resource attributes: the version of the core conventions on which the GenAI conventions depend.
pub const RESOURCE_SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.45.0";

/// Returns the scope of all telemetry.
pub(crate) fn scope() -> InstrumentationScope {
    let scope = InstrumentationScope::builder(SCOPE).with_version(env!("CARGO_PKG_VERSION"));
    scope.with_schema_url(SCHEMA_URL).build()
}

#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub unit: &'static str,
    /// The measured quantity and its formula. Exported with the metric.
    pub description: &'static str,
    /// The attributes of the metric, in groups that many metrics share.
    pub attributes: &'static [&'static [Attribute]],
    /// Further attributes. Each value of the metric comes with one label for each of them.
    pub split: &'static [Attribute],
    /// Upper bounds of a histogram's buckets.
    pub buckets: Bounds,
    /// See [`Self::combinations`]. `None` if it follows from the labels.
    pub(crate) times: Option<usize>,
    /// See [`Self::usual_series`]. `None` for [`Self::combinations`].
    pub(crate) usual: Option<[usize; 2]>,
    /// The names of the GenAI conventions to which the metric belongs. `None` for other metrics.
    pub(crate) names: Option<GenAiNames>,
    /// The smallest profile that has the metric.
    pub profile: Profile,
    pub(crate) source: Source,
}

/// What determines the values of a metric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub read: Read,
    /// Number of labels with which the values come. `None` for a single value without a label.
    pub labels: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Read {
    /// The module `instruments` records the values while requests run.
    Recorded,
    /// A value of each finished request. The function passes the value on.
    Finished(fn(&Record, Option<&Call>, &mut Emit<'_>)),
    /// A value in each snapshot. The function registers the metric.
    State(fn(&Registrar<'_>, &'static Metric)),
}

/// The labels of one value: one label for each attribute after `split`.
pub trait Labels: Copy + 'static {
    fn as_slice(&self) -> &[&'static str];
}

impl Labels for &'static str {
    fn as_slice(&self) -> &[&'static str] {
        slice::from_ref(self)
    }
}

impl<const N: usize> Labels for [&'static str; N] {
    fn as_slice(&self) -> &[&'static str] {
        self
    }
}

/// Values with their labels. A value that is `None` is not recorded.
pub(crate) type Labelled<L, T, const N: usize> = [(L, Option<T>); N];

type FinishedValues<T, const N: usize> =
    fn(&Record, Option<&Call>) -> Option<Labelled<&'static str, T, N>>;

const fn finished_labels<T, const N: usize>(_: FinishedValues<T, N>) -> usize {
    N
}

const fn state_labels<R, L, T, const N: usize>(
    _: &Group<R>,
    _: fn(&R) -> Option<Labelled<L, T, N>>,
) -> usize {
    N
}

label_enum! {
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum Kind {
        Counter = "counter",
        UpDownCounter = "up-down counter",
        Gauge = "gauge",
        Histogram = "histogram",
    }
}

impl Kind {
    /// Returns the type on a scrape page. An up-down counter becomes a gauge.
    pub const fn prometheus(self) -> prometheus_names::Kind {
        match self {
            Self::Counter => prometheus_names::Kind::Counter,
            Self::UpDownCounter | Self::Gauge => prometheus_names::Kind::Gauge,
            Self::Histogram => prometheus_names::Kind::Histogram,
        }
    }
}

impl Metric {
    const fn new(
        name: &'static str,
        kind: Kind,
        unit: &'static str,
        description: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            unit,
            description,
            attributes: &[],
            split: &[],
            buckets: Bounds::NONE,
            times: None,
            usual: None,
            names: None,
            profile: Profile::Lean,
            source: Source { read: Read::Recorded, labels: None },
        }
    }

    /// Returns the maximum number of series per combination of [`attributes::CALL`] or [`attributes::ROUTE_KEY`].
    /// Multiplied by the number of calls or routes, it bounds the series of the metric. By default, this is the number
    /// of labels with which the values come.
    pub fn combinations(&self) -> usize {
        let values = |attribute: &Attribute| match attribute.values {
            Values::Closed(values) => values.len(),
            Values::Gated | Values::Configured | Values::Any => 1,
        };
        let labels = self.times.or(self.source.labels);
        labels.unwrap_or_else(|| self.split.iter().map(values).product())
    }

    /// Returns the number of series that a combination usually has.
    pub(crate) fn usual_series(&self, is_stream: bool) -> usize {
        match self.usual {
            Some([_, streamed]) if is_stream => streamed,
            Some([whole, _]) => whole,
            None => self.combinations(),
        }
    }

    /// Returns whether the metric is exported.
    pub(crate) fn is_exported(&self, MetricSelection { gen_ai, profile }: MetricSelection) -> bool {
        let has_names = match self.names {
            None => true,
            Some(GenAiNames::Latest) => gen_ai.latest(),
            Some(GenAiNames::Legacy) => gen_ai.legacy(),
            Some(GenAiNames::Both) => gen_ai != GenAiNames::Off,
            Some(GenAiNames::Off) => false,
        };
        has_names && self.profile <= profile
    }

    /// Returns whether the lean profile has the metric.
    pub fn is_lean(&self) -> bool {
        self.names.is_none() && self.profile == Profile::Lean
    }

    /// Returns whether the metric has the labels for tenant and variant with the lean profile: counters that are
    /// recorded at the end of a call.
    pub fn is_lean_by_tenant(&self) -> bool {
        let is_of_end = self.has(attributes::RESPONSE_MODEL)
            && !self.has(attributes::FINISH_REASON)
            || self.has(attributes::OUTCOME);
        self.kind != Kind::Histogram && self.has(attributes::TENANT) && is_of_end
    }

    pub fn attributes(&self) -> impl Iterator<Item = Attribute> {
        self.attributes.iter().copied().flatten().chain(self.split).copied()
    }

    /// Returns the name of the metric on a scrape page, without the suffixes of a histogram's lines.
    pub fn prometheus_name(&self) -> String {
        prometheus_names::name(self.name, self.unit, self.kind.prometheus())
    }

    pub fn has(&self, attribute: Attribute) -> bool {
        self.attributes().any(|candidate| candidate.key == attribute.key)
    }
}

/// Returns all metrics, those of the semantic conventions first.
pub fn metrics() -> impl Iterator<Item = &'static Metric> {
    [semconv::ALL, tokengauge::ALL, health::ALL].into_iter().flatten().copied()
}

/// Returns the metric named `name`.
pub fn metric(name: &str) -> Option<&'static Metric> {
    metrics().find(|metric| metric.name == name)
}

#[cfg(test)]
mod tests {
    use std::fmt::{self, Write};

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_translate_equally_by_both_translators() {
        for metric in metrics() {
            let (name, unit) = (metric.name, metric.unit);
            let parts: Vec<_> = name.split(['.', '_']).collect();
            // A translator does not append the unit's word again if the name ends with it.
            let units = [("seconds", "s"), ("ratio", "1"), ("bytes", "By")];
            for (word, of) in units {
                let inside = parts.iter().rev().skip(1).any(|part| *part == word);
                let ends = parts.last() == Some(&word);
                assert!(!inside && (!ends || unit == of), "{name}");
            }
            // The translators treat `total` specially only as the last word, and in counters.
            assert_ne!(parts.last(), Some(&"total"), "{name}");
            let counts = metric.kind == Kind::Counter;
            assert!(!counts || !parts.contains(&"total"), "{name}");
            assert!(!name.contains("per_second"), "{name}");
            assert!(unit != "1" || metric.kind == Kind::Gauge, "{name}: only gauges have unit 1");
            let thing = unit.starts_with('{') || unit == "s" || unit == "By";
            assert!(thing || metric.kind == Kind::Gauge, "{name}: {unit}");
            let bounds = metric.buckets.full;
            assert_eq!(metric.kind == Kind::Histogram, !bounds.is_empty(), "{name}");
            assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]), "{name}");
            assert!(metric.combinations() > 0, "{name}");
        }
    }

    #[test]
    fn names_are_unique_and_not_namespaces() {
        let names: Vec<_> = metrics().map(|metric| metric.name).collect();
        let distinct: BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
        for name in names.iter().filter(|name| name.starts_with("tokengauge.")) {
            let inside = format!("{name}.");
            assert!(!names.iter().any(|other| other.starts_with(&inside)), "{name}");
        }
        let keys: Vec<_> = attributes::ALL.iter().map(|attribute| attribute.key).collect();
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
    }

    #[test]
    fn own_bucket_bounds_are_not_integers() {
        for metric in tokengauge::ALL.iter().chain(health::ALL) {
            for bound in metric.buckets.full {
                assert!(
                    bound.fract() > 0.0,
                    "{}: le=\"{bound}\" is written differently by different stores",
                    metric.name
                );
            }
        }
    }

    #[test]
    fn metrics_use_only_cataloged_attributes() {
        for metric in metrics() {
            for attribute in metric.attributes() {
                assert!(
                    attributes::ALL.iter().any(|known| known.key == attribute.key),
                    "{}",
                    attribute.key
                );
            }
        }
    }

    fn shown(values: Values) -> String {
        match values {
            Values::Closed(values) => {
                values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ")
            }
            Values::Gated => "from traffic; bounded, further ones are `other`".into(),
            Values::Configured => "from the configuration".into(),
            Values::Any => "any".into(),
        }
    }

    /// Returns the tables of `docs/reference/telemetry.md` in Markdown.
    fn tables() -> String {
        let mut text = String::new();
        // Writing to a `String` cannot fail.
        let _ok: fmt::Result = write_tables(&mut text);
        text
    }

    fn write_tables(out: &mut String) -> fmt::Result {
        for (title, all) in [
            ("Standard metrics", semconv::ALL),
            ("Own metrics", tokengauge::ALL),
            ("The proxy's own health", health::ALL),
        ] {
            writeln!(
                out,
                "### {title}\n\n| name | kind, unit | what | attributes |\n|---|---|---|---|"
            )?;
            for metric in all {
                let keys: Vec<_> =
                    metric.attributes().map(|attribute| format!("`{}`", attribute.key)).collect();
                let keys = if keys.is_empty() { "–".into() } else { keys.join(", ") };
                writeln!(
                    out,
                    "| `{}` | {}, `{}` | {} | {keys} |",
                    metric.name,
                    metric.kind.as_str(),
                    metric.unit,
                    metric.description
                )?;
            }
            writeln!(out)?;
        }
        for (title, all) in
            [("Metric attributes", attributes::ALL), ("Span attributes", spans::ALL)]
        {
            writeln!(out, "### {title}\n\n| key | what | values |\n|---|---|---|")?;
            for attribute in all {
                writeln!(
                    out,
                    "| `{}` | {} | {} |",
                    attribute.key,
                    attribute.description,
                    shown(attribute.values)
                )?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    #[test]
    fn documentation_has_exactly_these_tables() {
        let documentation = include_str!("../../../../docs/reference/telemetry.md");
        assert!(
            documentation.contains(tables().trim_end()),
            "docs/reference/telemetry.md does not hold the registry as it is; its tables should read:\n{}",
            tables()
        );
    }
}
