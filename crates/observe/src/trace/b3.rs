//! Zipkin's B3 trace headers: the single header `b3`, or several `X-B3-*` headers
//! (github.com/openzipkin/b3-propagation).
//!
//! Trace ids have 64 or 128 bits. A 64-bit id is the lower half of a 128-bit id. This module always writes 128 bits.

use http::{HeaderMap, HeaderName};

use super::{Caller, Onward, id, only, put, to_hex};

const SINGLE: HeaderName = HeaderName::from_static("b3");
const TRACE_ID: HeaderName = HeaderName::from_static("x-b3-traceid");
const SPAN_ID: HeaderName = HeaderName::from_static("x-b3-spanid");
const PARENT_SPAN_ID: HeaderName = HeaderName::from_static("x-b3-parentspanid");
const SAMPLED: HeaderName = HeaderName::from_static("x-b3-sampled");
const FLAGS: HeaderName = HeaderName::from_static("x-b3-flags");

/// Parses the single header `b3`. Its value is `trace-span`, `trace-span-state`, `trace-span-state-parent`, or only
/// `state`, the sampling decision.
pub(super) fn read_single(headers: &HeaderMap) -> Option<Caller> {
    let value = only(headers, &SINGLE)?;
    if let Some(decided) = state(value) {
        return Some(decided);
    }
    let mut fields = value.split(|byte| *byte == b'-');
    let ids = (trace_id(fields.next()?)?, id(fields.next()?)?);
    let decided = match fields.next() {
        Some(field) => state(field)?,
        None => Caller::default(),
    };
    if let Some(parent) = fields.next() {
        id::<8>(parent)?;
    }
    fields.next().is_none().then_some(Caller { ids: Some(ids), ..decided })
}

/// Parses the ids and the sampling decision in the `X-B3-*` headers. A missing or malformed id invalidates all of these
/// headers. An unknown sampling decision is ignored, and the ids still count.
pub(super) fn read_multi(headers: &HeaderMap) -> Option<Caller> {
    let decided = if only(headers, &FLAGS) == Some(b"1") {
        state(b"d")
    } else {
        only(headers, &SAMPLED).and_then(|sampled| match sampled {
            // Implementations older than the specification send `true` instead of `1`.
            b"true" => state(b"1"),
            b"false" => state(b"0"),
            b"d" => None,
            sampled => state(sampled),
        })
    };
    if !headers.contains_key(TRACE_ID) && !headers.contains_key(SPAN_ID) {
        return decided;
    }
    let ids = (trace_id(only(headers, &TRACE_ID)?)?, id(only(headers, &SPAN_ID)?)?);
    Some(Caller { ids: Some(ids), ..decided.unwrap_or_default() })
}

pub(super) fn write_single(onward: Onward<'_>, headers: &mut HeaderMap) {
    let trace = to_hex(&onward.trace.trace_id);
    let span = to_hex(&onward.trace.client_span);
    let state = match (onward.carried.debug, onward.sampled) {
        (true, _) => "d",
        (false, true) => "1",
        (false, false) => "0",
    };
    put(headers, SINGLE, &format!("{trace}-{span}-{state}"));
}

pub(super) fn write_multi(onward: Onward<'_>, headers: &mut HeaderMap) {
    put(headers, TRACE_ID, &to_hex(&onward.trace.trace_id));
    put(headers, SPAN_ID, &to_hex(&onward.trace.client_span));
    headers.remove(PARENT_SPAN_ID);
    if onward.carried.debug {
        // The debug flag implies the decision to sample.
        put(headers, FLAGS, "1");
        headers.remove(SAMPLED);
    } else {
        put(headers, SAMPLED, if onward.sampled { "1" } else { "0" });
        headers.remove(FLAGS);
    }
}

fn state(word: &[u8]) -> Option<Caller> {
    let (sampled, debug) = match word {
        b"0" => (false, false),
        b"1" => (true, false),
        b"d" => (true, true),
        _ => return None,
    };
    Some(Caller { sampled: Some(sampled), debug, ..Caller::default() })
}

fn trace_id(digits: &[u8]) -> Option<[u8; 16]> {
    let short = || Some(u128::from(u64::from_be_bytes(id(digits)?)).to_be_bytes());
    id(digits).or_else(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "80f198ee56343ba864fe8b2a57d3eff7";
    const SPAN: &str = "e457b5a2e4d86bd1";
    const PARENT: &str = "05e3ac9a4f6e3b90";

    fn single(value: &str) -> Option<Caller> {
        read_single(&HeaderMap::from_iter([(SINGLE, value.parse().unwrap())]))
    }

    fn multi(lines: &[(HeaderName, &str)]) -> Option<Caller> {
        let line = |(name, value): &(HeaderName, &str)| (name.clone(), value.parse().unwrap());
        read_multi(&lines.iter().map(line).collect())
    }

    fn decision(caller: Option<Caller>) -> (Option<bool>, bool) {
        let caller = caller.unwrap();
        (caller.sampled, caller.debug)
    }

    #[test]
    fn reads_single_header() {
        let ids = single(&format!("{TRACE}-{SPAN}")).unwrap().ids.unwrap();
        assert_eq!((to_hex(&ids.0), to_hex(&ids.1)), (TRACE.into(), SPAN.into()));
        for (rest, expected) in [
            ("", (None, false)),
            ("-0", (Some(false), false)),
            ("-1", (Some(true), false)),
            ("-d", (Some(true), true)),
            (&format!("-1-{PARENT}"), (Some(true), false)),
        ] {
            let caller = single(&format!("{TRACE}-{SPAN}{rest}"));
            assert_eq!(decision(caller), expected, "{rest}");
            assert_eq!(caller.unwrap().ids, Some(ids));
        }
    }

    #[test]
    fn reads_decision_without_ids() {
        assert_eq!(decision(single("0")), (Some(false), false));
        assert_eq!(decision(single("d")), (Some(true), true));
        assert_eq!(single("1").unwrap().ids, None);
        assert_eq!(decision(multi(&[(SAMPLED, "0")])), (Some(false), false));
        assert_eq!(decision(multi(&[(FLAGS, "1")])), (Some(true), true));
        assert_eq!(multi(&[(FLAGS, "0")]), None);
    }

    #[test]
    fn extends_short_trace_id() {
        let caller = single(&format!("{SPAN}-{PARENT}-1")).unwrap();
        let (trace, _) = caller.ids.unwrap();
        assert_eq!(to_hex(&trace), format!("{}{SPAN}", "0".repeat(16)));
    }

    #[test]
    fn ignores_malformed_header() {
        for value in [
            "",
            "2",
            "-",
            SPAN,
            &format!("{TRACE}-{SPAN}-x"),
            &format!("{TRACE}-{SPAN}-1-x"),
            &format!("{TRACE}-{SPAN}-1-{PARENT}-"),
            &format!("{TRACE}-{TRACE}-1"),
            &format!("{}-{SPAN}-1", "0".repeat(32)),
            &format!("{TRACE}-{}-1", "0".repeat(16)),
            &format!("{}-{SPAN}-1", TRACE.to_uppercase()),
        ] {
            assert_eq!(single(value), None, "{value}");
        }
    }

    #[test]
    fn reads_several_headers() {
        let ids = [(TRACE_ID, TRACE), (SPAN_ID, SPAN), (PARENT_SPAN_ID, PARENT)];
        let with = |more: &[(HeaderName, &'static str)]| multi(&[&ids[..], more].concat());
        assert!(with(&[]).unwrap().ids.is_some());
        for (more, expected) in [
            (vec![], (None, false)),
            (vec![(SAMPLED, "1")], (Some(true), false)),
            (vec![(SAMPLED, "true")], (Some(true), false)),
            (vec![(SAMPLED, "false")], (Some(false), false)),
            (vec![(SAMPLED, "d")], (None, false)),
            (vec![(SAMPLED, "maybe")], (None, false)),
            (vec![(FLAGS, "1"), (SAMPLED, "0")], (Some(true), true)),
        ] {
            assert_eq!(decision(with(&more)), expected, "{more:?}");
        }
        assert_eq!(multi(&[(TRACE_ID, TRACE), (SAMPLED, "1")]), None);
        assert_eq!(multi(&[(SPAN_ID, SPAN)]), None);
        assert_eq!(multi(&[(TRACE_ID, "x"), (SPAN_ID, SPAN)]), None);
        assert_eq!(multi(&[]), None);
    }
}
