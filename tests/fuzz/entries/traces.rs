//! Trace headers.
//!
//! Any headers from a caller yield a trace, and the data kept of them is bounded. The written headers parse to the same
//! trace with the proxy's span as the parent.

use http::{HeaderMap, HeaderName, HeaderValue};
use tokengauge::forward::{Propagation, Propagator};
use tokengauge_types::label::MAX_NAME_BYTES;

use super::script::Script;

/// Length in bytes of a `tracestate` that W3C Trace Context requires every participant to propagate.
const LONGEST_STATE: usize = 512;

const NAMES: [&str; 8] = [
    "traceparent",
    "tracestate",
    "baggage",
    "b3",
    "x-b3-traceid",
    "x-b3-spanid",
    "x-b3-sampled",
    "x-b3-flags",
];

pub fn traces(input: &[u8]) {
    let mut script = Script::new(input);
    let first = usize::from(script.digit());
    let mut propagators = Propagator::ALL.to_vec();
    let first = first % propagators.len();
    propagators.rotate_left(first);
    let sampled = script.flag();
    let propagation = Propagation::new(propagators, Box::new(move |_| sampled));
    let mut headers = headers(script.rest());
    let (trace, carried) = propagation.read(&headers);
    assert_ne!(trace.trace_id, [0; 16]);
    assert_ne!(trace.parent, Some([0; 8]));
    assert!(trace.state.as_ref().is_none_or(|state| state.len() <= LONGEST_STATE));
    if let Some(conversation) = propagation.conversation(&headers) {
        // Control characters become longer sequences after the cut.
        assert!(conversation.as_str().len() <= 3 * MAX_NAME_BYTES);
    }
    propagation.write(&trace, carried, &mut headers);
    let (again, _) = propagation.read(&headers);
    assert_eq!(again.trace_id, trace.trace_id);
    assert_eq!(again.parent, Some(trace.client_span));
    assert!(again.parent_sampled.is_some());
}

/// Parses one header per line, from a digit that selects the name, and the value.
fn headers(lines: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let mut line = Script::new(line);
        let name = HeaderName::from_static(line.pick(&NAMES));
        if let Ok(value) = HeaderValue::from_bytes(line.rest()) {
            headers.append(name, value);
        }
    }
    headers
}
