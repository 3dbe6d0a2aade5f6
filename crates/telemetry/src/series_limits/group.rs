//! The groups of series that combinations of labels create, and the sizes of these series on a scrape page.

use super::OverflowStep;
use crate::catalog::attributes as key;
use crate::catalog::{self, Attribute, Kind, Metric};
use crate::config::{MetricSelection, Profile};

/// Maximum size in bytes of a scrape page. VictoriaMetrics rejects larger pages by default
/// (`-promscrape.maxScrapeSize`). A series takes 1 KiB of memory, and 0.9 KiB more in each snapshot, the last of which
/// is kept. A full page has 5,000 to 30,000 series, and 60,000 if it has counters only.
pub const MAX_PAGE_BYTES: usize = 16 << 20;

/// Parts of the page, each with its own limit, for the usual series of all combinations of labels: of histograms of
/// calls, and of all other metrics. The rest is for exemplars (1 MiB at most), gauges and metrics of the process (1 MiB),
/// and rare series: a combination that has all of them takes a fifth more. Combinations whose labels were all replaced
/// by `other` are admitted even beyond these sizes.
pub const MAX_TIMING_BYTES: usize = 10 << 20;
pub const MAX_OTHER_BYTES: usize = 4 << 20;

/// Assumed length in bytes of an attribute's value that is not part of the labels of a combination.
pub const VALUE_BYTES: usize = 14;

/// Lengths in bytes of the parts of a line besides name and labels: braces, space and line end; the number; the suffix
/// `_bucket` and the label `le`.
const FRAME_BYTES: usize = 4;
const NUMBER_BYTES: usize = 5;
const BUCKET_BYTES: usize = 7 + 12;

/// Number of histograms that a call without a response model fills, such as a rejected one: its stages up to the
/// headers, its queue, and its first times.
const UNNAMED_HISTOGRAMS: usize = 8;

/// The instruments for which a combination of labels creates series.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SeriesGroup {
    Route,
    /// The counters of calls with the same labels, for the first response model.
    Call,
    /// The counters that change while a call runs, with the lean profile. [`Self::ResponseModel`] then has the other
    /// counters.
    Live,
    /// The histograms of calls with the same labels, for the first response model.
    Timings,
    /// The counters of calls with the same labels, for a further response model.
    ResponseModel,
    /// The histograms of calls with the same labels, for a further response model.
    ResponseModelTimings,
    /// The histograms of calls with the same labels, without a response model.
    UnnamedTimings,
    /// The instruments with labels for the length ranges of prompt and response.
    Lengths,
    /// The instruments of calls that depend on the error type.
    Failure,
    /// The counter of finished requests.
    Finish,
    /// The counter of finished choices.
    Choice,
    /// The HTTP metrics of the semantic conventions.
    Http,
    /// The metrics of the Model Context Protocol.
    Mcp,
}

/// The usual size of the series of one combination on a scrape page.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PageSize {
    /// Number of series.
    pub lines: usize,
    /// Length in bytes of all lines without the values of the combination's labels.
    pub bytes: usize,
}

impl SeriesGroup {
    pub const ALL: [Self; 13] = [
        Self::Route,
        Self::Call,
        Self::Live,
        Self::Timings,
        Self::ResponseModel,
        Self::ResponseModelTimings,
        Self::UnnamedTimings,
        Self::Lengths,
        Self::Failure,
        Self::Finish,
        Self::Choice,
        Self::Http,
        Self::Mcp,
    ];

    /// Returns whether combinations are admitted to this group with the profile.
    pub const fn is_used(self, profile: Profile) -> bool {
        match self {
            Self::Call => matches!(profile, Profile::Full),
            Self::Live => matches!(profile, Profile::Lean),
            Self::Route
            | Self::Timings
            | Self::ResponseModel
            | Self::ResponseModelTimings
            | Self::UnnamedTimings
            | Self::Lengths
            | Self::Failure
            | Self::Finish
            | Self::Choice
            | Self::Http
            | Self::Mcp => true,
        }
    }

    /// Returns whether each combination of the group has series of `metric`.
    pub fn contains(self, metric: &Metric) -> bool {
        let has = |attribute| metric.has(attribute);
        let is_histogram = metric.kind == Kind::Histogram;
        let is_response_model = has(key::RESPONSE_MODEL) && !has(key::FINISH_REASON);
        let is_live = has(key::OPERATION) && !has(key::RESPONSE_MODEL) && !has(key::OUTCOME);
        match self {
            Self::Route => {
                let of_requests = [key::OPERATION, key::METHOD, key::MCP_PROTOCOL_VERSION];
                has(key::ROUTE) && !of_requests.into_iter().any(has)
            }
            Self::Call => !is_histogram && (is_live || is_response_model),
            Self::Live => !is_histogram && is_live,
            Self::Timings => is_histogram && (is_live || is_response_model),
            Self::ResponseModel => !is_histogram && is_response_model,
            Self::ResponseModelTimings => is_histogram && is_response_model,
            Self::UnnamedTimings => has(key::STAGE) && has(key::RESPONSE_MODEL),
            Self::Lengths => has(key::INPUT_LENGTH_BUCKET),
            Self::Failure => has(key::RESPONSE_MODEL) && has(key::ERROR_TYPE),
            Self::Finish => has(key::OUTCOME),
            Self::Choice => has(key::FINISH_REASON),
            Self::Http => has(key::METHOD),
            Self::Mcp => has(key::MCP_PROTOCOL_VERSION),
        }
    }

    /// Returns the usual size of one combination.
    pub fn size(self, is_stream: bool, selection: MetricSelection) -> PageSize {
        self.size_of(is_stream, selection, |_| true)
    }

    /// Returns the usual size of one combination, of the metrics that `includes` selects.
    pub fn size_of(
        self,
        is_stream: bool,
        selection: MetricSelection,
        includes: impl Fn(&Metric) -> bool,
    ) -> PageSize {
        let metrics = catalog::metrics()
            .filter(|it| self.contains(it) && it.is_exported(selection) && includes(it));
        metrics.fold(PageSize::default(), |sum, metric| {
            let size = PageSize::of_series(metric, selection.profile);
            let is_unnamed = self == Self::UnnamedTimings;
            let series =
                if is_unnamed { UNNAMED_HISTOGRAMS } else { metric.usual_series(is_stream) };
            PageSize {
                lines: sum.lines + series * size.lines,
                bytes: sum.bytes + series * size.bytes,
            }
        })
    }

    /// Returns whether the series of a combination also differ in values from traffic, such as the error type.
    pub const fn has_results(self) -> bool {
        match self {
            Self::Route
            | Self::Call
            | Self::Live
            | Self::Timings
            | Self::ResponseModel
            | Self::ResponseModelTimings
            | Self::UnnamedTimings
            | Self::Lengths => false,
            Self::Failure | Self::Finish | Self::Choice | Self::Http | Self::Mcp => true,
        }
    }

    /// Returns whether the series are histograms of calls or of the Model Context Protocol.
    pub const fn is_timing(self) -> bool {
        match self {
            Self::Timings
            | Self::ResponseModelTimings
            | Self::UnnamedTimings
            | Self::Lengths
            | Self::Failure
            | Self::Mcp => true,
            Self::Route
            | Self::Call
            | Self::Live
            | Self::ResponseModel
            | Self::Finish
            | Self::Choice
            | Self::Http => false,
        }
    }

    /// Returns the maximum size in bytes of the part of the page to which the series belong.
    pub const fn max_bytes(self) -> usize {
        if self.is_timing() { MAX_TIMING_BYTES } else { MAX_OTHER_BYTES }
    }

    /// Returns the percentage of [`Self::max_bytes`] up to which new combinations are admitted at this step. Results of
    /// requests have the highest percentages, because a new status or error matters more than a new model.
    pub const fn share(self, step: OverflowStep) -> usize {
        let is_important = self.has_results() || matches!(self, Self::Route);
        let [nothing, tenant, variant, model] = match (is_important, self.is_timing()) {
            (true, _) => [93, 95, 97, 99],
            (false, true) => [30, 78, 83, 92],
            (false, false) => [70, 85, 88, 90],
        };
        match step {
            OverflowStep::Nothing => nothing,
            OverflowStep::Tenant => tenant,
            OverflowStep::Variant => variant,
            OverflowStep::Model => model,
            OverflowStep::Route => 100,
        }
    }
}

impl PageSize {
    /// Returns the size of one series.
    pub fn of_series(metric: &Metric, profile: Profile) -> Self {
        // Tenant and variant can be absent. The text of a combination includes their keys.
        let is_optional = |key: &str| key == key::TENANT.key || key == key::VARIANT.key;
        let keys = metric.attributes().filter(|attribute| !is_optional(attribute.key));
        let own_values = metric.attributes().filter(|attribute| !is_label(*attribute)).count();
        let line = metric.prometheus_name().len()
            + keys.map(label_bytes).sum::<usize>()
            + own_values * VALUE_BYTES
            + FRAME_BYTES
            + NUMBER_BYTES;
        match metric.kind {
            // The buckets, the one for infinity, the sum and the count.
            Kind::Histogram => {
                let lines = metric.buckets.of(profile).len() + 3;
                Self { lines, bytes: lines * (line + BUCKET_BYTES) }
            }
            Kind::Counter | Kind::UpDownCounter | Kind::Gauge => Self { lines: 1, bytes: line },
        }
    }

    /// Returns the size in bytes with these label values.
    pub const fn with_values(self, text_bytes: usize) -> usize {
        self.bytes + self.lines * text_bytes
    }
}

/// Returns the length of a label on the page, without its value: `key="",`.
pub const fn label_bytes(attribute: Attribute) -> usize {
    attribute.key.len() + 4
}

/// Returns whether the attribute is part of the labels of a combination.
fn is_label(attribute: Attribute) -> bool {
    key::CALL.iter().any(|label| label.key == attribute.key)
}
