//! Determines the trace of a request. A valid trace in the request headers is continued; without one, a new trace
//! begins.
//!
//! The list of propagators (header formats) decides which headers are read. If several formats carry a trace, the first
//! listed format provides the parent span. By default, trace headers are forwarded unchanged. On a route that
//! *continues* traces, the headers of every listed format are rewritten. They then contain the proxy's CLIENT span and
//! its sampling decision.

mod b3;
mod baggage;
mod tracecontext;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use tokengauge_types::event::TraceContext;
use tokengauge_types::label::Name;
use tokengauge_types::label_enum;

label_enum! {
    /// A format of trace headers, named as in `OTEL_PROPAGATORS`.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize, schemars::JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Propagator {
        /// `traceparent` and `tracestate` of the W3C.
        TraceContext = "tracecontext",
        /// `baggage` of the W3C: read for a conversation id, never written.
        Baggage = "baggage",
        /// The single `b3` header of Zipkin.
        B3 = "b3",
        /// `X-B3-TraceId` and its siblings.
        B3Multi = "b3multi",
    }
}

impl Propagator {
    /// Default propagators of the OpenTelemetry specification.
    pub const DEFAULT: [Self; 2] = [Self::TraceContext, Self::Baggage];

    fn read(self, headers: &HeaderMap) -> Option<Caller> {
        match self {
            Self::TraceContext => tracecontext::read(headers),
            Self::B3 => b3::read_single(headers),
            Self::B3Multi => b3::read_multi(headers),
            Self::Baggage => None,
        }
    }
}

/// Decides whether a trace is sampled.
pub type Sample = Box<dyn Fn(&TraceContext) -> bool + Send + Sync>;

/// Reads trace headers, and writes them on routes that continue traces.
pub struct Propagation {
    propagators: Vec<Propagator>,
    sample: Sample,
}

/// Parts of the caller's trace headers that are kept when the proxy rewrites the headers.
#[derive(Clone, Copy, Debug)]
pub struct PropagationState {
    /// W3C flag: the trace id is random. Also set for trace ids that this proxy generates.
    random: bool,
    /// Debug flag of B3, which must be kept when the headers are rewritten.
    debug: bool,
    /// Whether the caller's `tracestate` belongs to this trace.
    states: bool,
}

/// A trace that is continued upstream.
#[derive(Clone, Copy)]
struct Onward<'a> {
    trace: &'a TraceContext,
    carried: PropagationState,
    sampled: bool,
}

/// The content of the headers of one format.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Caller {
    /// Trace id and span id. `None` if the headers contain only a sampling decision, which B3 permits.
    ids: Option<([u8; 16], [u8; 8])>,
    sampled: Option<bool>,
    random: bool,
    debug: bool,
}

impl Propagation {
    pub fn new(propagators: Vec<Propagator>, sample: Sample) -> Self {
        Self { propagators, sample }
    }

    /// Returns the trace of a request with `headers`.
    pub fn read(&self, headers: &HeaderMap) -> (TraceContext, PropagationState) {
        let formats = || {
            let each = self.propagators.iter();
            each.filter_map(|propagator| Some((*propagator, propagator.read(headers)?)))
        };
        // A sampling decision without ids is used only if no format has ids.
        let caller =
            formats().find(|(_, caller)| caller.ids.is_some()).or_else(|| formats().next());
        let (propagator, caller) = caller.unzip();
        let caller = caller.unwrap_or_default();
        let states = propagator == Some(Propagator::TraceContext);
        let (trace_id, parent) = match caller.ids {
            Some((trace_id, parent)) => (trace_id, Some(parent)),
            None => (fastrand::u128(1..).to_be_bytes(), None),
        };
        let trace = TraceContext {
            trace_id,
            parent,
            parent_sampled: caller.sampled,
            server_span: fastrand::u64(1..).to_be_bytes(),
            client_span: fastrand::u64(1..).to_be_bytes(),
            state: states.then(|| tracecontext::state(headers)).flatten(),
        };
        let carried = PropagationState {
            random: caller.random || parent.is_none(),
            debug: caller.debug,
            states,
        };
        (trace, carried)
    }

    /// Replaces the caller's trace headers. The new headers name the CLIENT span of this proxy as the parent.
    pub fn write(&self, trace: &TraceContext, carried: PropagationState, headers: &mut HeaderMap) {
        let onward = Onward { trace, carried, sampled: (self.sample)(trace) };
        for propagator in &self.propagators {
            match propagator {
                Propagator::TraceContext => tracecontext::write(onward, headers),
                Propagator::B3 => b3::write_single(onward, headers),
                Propagator::B3Multi => b3::write_multi(onward, headers),
                Propagator::Baggage => {}
            }
        }
    }

    /// Returns the conversation id in the caller's baggage.
    pub fn conversation(&self, headers: &HeaderMap) -> Option<Name> {
        self.propagators
            .contains(&Propagator::Baggage)
            .then(|| baggage::conversation(headers))
            .flatten()
    }
}

impl Default for Propagation {
    /// Uses the two W3C formats. The caller's sampling decision applies. A request without such a decision is sampled.
    fn default() -> Self {
        let sample = |trace: &TraceContext| trace.parent_sampled.unwrap_or(true);
        Self::new(Propagator::DEFAULT.to_vec(), Box::new(sample))
    }
}

impl std::fmt::Debug for Propagation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Propagation").field(&self.propagators).finish()
    }
}

/// Returns the value of a header. `None` if the header is missing or occurs more than once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    let only = values.next()?;
    values.next().is_none().then(|| only.as_bytes())
}

/// Sets a header. `value` is always valid, because this module writes only ASCII without control characters.
fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

/// Parses exactly `N` bytes from lower-case hexadecimal digits.
fn from_hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            *byte = *byte << 4 | value;
        }
    }
    Some(bytes)
}

/// Parses an id that is not all zeros.
fn id<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    from_hex(digits).filter(|id| *id != [0; N])
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const W3C: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const B3: &str = "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-0";

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let line =
            |(name, value): &(&'static str, &str)| (name.parse().unwrap(), value.parse().unwrap());
        lines.iter().map(line).collect()
    }

    fn propagation(propagators: &[Propagator]) -> Propagation {
        let sample = |trace: &TraceContext| trace.parent_sampled.unwrap_or(false);
        Propagation::new(propagators.to_vec(), Box::new(sample))
    }

    /// Returns the headers that the proxy writes when it continues the trace in `lines`, sorted by name.
    fn written(propagation: &Propagation, lines: &[(&'static str, &str)]) -> Vec<(String, String)> {
        let mut headers = headers(lines);
        let (mut trace, carried) = propagation.read(&headers);
        trace.client_span = [0xcc; 8];
        if trace.parent.is_none() {
            trace.trace_id = [0xaa; 16];
        }
        propagation.write(&trace, carried, &mut headers);
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        let mut all: Vec<_> =
            headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        all.sort();
        all
    }

    fn lines(lines: &[(&str, &str)]) -> Vec<(String, String)> {
        let line = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        lines.iter().map(line).collect()
    }

    #[test]
    fn first_listed_format_is_the_parent() {
        let both = headers(&[("traceparent", W3C), ("b3", B3)]);
        let first = |propagators: &[Propagator]| {
            let (trace, _) = propagation(propagators).read(&both);
            (trace.trace_id[0], trace.parent_sampled)
        };
        assert_eq!(first(&[Propagator::TraceContext, Propagator::B3]), (0x4b, Some(true)));
        assert_eq!(first(&[Propagator::B3, Propagator::TraceContext]), (0x80, Some(false)));
        assert_eq!(first(&[Propagator::B3Multi, Propagator::B3]).0, 0x80);
    }

    #[test]
    fn skips_malformed_parents() {
        let propagation = propagation(&[Propagator::B3, Propagator::TraceContext]);
        for b3 in ["0", "nonsense"] {
            let (trace, _) = propagation.read(&headers(&[("traceparent", W3C), ("b3", b3)]));
            assert_eq!(trace.parent_sampled, Some(true), "{b3}");
            assert_eq!(trace.trace_id[0], 0x4b);
        }
        let alone = propagation.read(&headers(&[("b3", "0")])).0;
        assert_eq!((alone.parent, alone.parent_sampled), (None, Some(false)));
        assert_ne!(alone.trace_id, [0; 16]);
    }

    #[test]
    fn ignores_unlisted_formats() {
        let none = propagation(&[Propagator::Baggage]);
        let sent = [("b3", B3), ("traceparent", W3C)];
        assert_eq!(none.read(&headers(&sent)).0.parent, None);
        assert_eq!(written(&none, &sent), lines(&sent));
    }

    #[test]
    fn continues_the_trace_in_every_listed_format() {
        let all = propagation(&Propagator::ALL);
        let sent = [
            ("baggage", "a=1"),
            ("traceparent", W3C),
            ("tracestate", "v=1"),
            ("x-b3-parentspanid", "0000000000000001"),
        ];
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "cccccccccccccccc");
        let expected = [
            ("b3", format!("{trace}-{span}-1")),
            ("baggage", "a=1".to_owned()),
            ("traceparent", format!("00-{trace}-{span}-01")),
            ("tracestate", "v=1".to_owned()),
            ("x-b3-sampled", "1".to_owned()),
            ("x-b3-spanid", span.to_owned()),
            ("x-b3-traceid", trace.to_owned()),
        ];
        let expected: Vec<_> =
            expected.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        assert_eq!(written(&all, &sent), expected);
    }

    #[test]
    fn starts_a_new_trace_without_a_valid_parent() {
        let propagation = propagation(&Propagator::DEFAULT);
        let (trace, span) = ("aa".repeat(16), "cc".repeat(8));
        // This proxy generated the trace id, so it is random (flag 2).
        let new = format!("00-{trace}-{span}-02");
        assert_eq!(written(&propagation, &[]), lines(&[("traceparent", &new)]));
        let bad = [("baggage", "a=1"), ("traceparent", "00-0-0-0"), ("tracestate", "v=1")];
        assert_eq!(
            written(&propagation, &bad),
            lines(&[("baggage", "a=1"), ("traceparent", &new)])
        );
    }

    #[test]
    fn keeps_the_state_of_its_own_trace() {
        let sent = headers(&[("traceparent", W3C), ("tracestate", "v=1"), ("b3", B3)]);
        let state = |propagators: &[Propagator]| propagation(propagators).read(&sent).0.state;
        assert_eq!(state(&Propagator::DEFAULT).as_deref(), Some("v=1"));
        assert_eq!(state(&[Propagator::B3, Propagator::TraceContext]), None);
    }

    #[test]
    fn preserves_the_debug_flag() {
        let propagation = propagation(&[Propagator::B3, Propagator::B3Multi]);
        let sent = B3.replace("-0", "-d");
        let written = written(&propagation, &[("b3", &sent)]);
        let (trace, span) = ("80f198ee56343ba864fe8b2a57d3eff7", "cc".repeat(8));
        let single = format!("{trace}-{span}-d");
        let expected = [
            ("b3", single.as_str()),
            ("x-b3-flags", "1"),
            ("x-b3-spanid", &span),
            ("x-b3-traceid", trace),
        ];
        assert_eq!(written, lines(&expected));
    }
}
