//! W3C Trace Context: the headers `traceparent` and `tracestate`. Level 1, and the flag of Level 2 for random trace
//! ids.

use http::{HeaderMap, HeaderName};

use super::{Caller, Onward, from_hex, id, only, put, to_hex};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

const SAMPLED: u8 = 0x01;
const RANDOM: u8 = 0x02;

/// Maximum length of `tracestate` in spans, in bytes. The specification requires support for at least this length.
const MAX_STATE_BYTES: usize = 512;
const MAX_MEMBERS: usize = 32;
const MAX_PART_BYTES: usize = 256;

/// Parses `traceparent`: version, trace id, span id and flags, such as `00-<32 hex digits>-<16>-<2>`. Ids that are all
/// zero are invalid. Later versions may add more fields.
pub(super) fn read(headers: &HeaderMap) -> Option<Caller> {
    let value = only(headers, &TRACEPARENT)?;
    let mut fields = value.split(|byte| *byte == b'-');
    let [version] = from_hex(fields.next()?)?;
    let ids = (id(fields.next()?)?, id(fields.next()?)?);
    let [flags] = from_hex(fields.next()?)?;
    let more = fields.next().is_some();
    (version != 0xff && !(version == 0 && more)).then_some(Caller {
        ids: Some(ids),
        sampled: Some(flags & SAMPLED != 0),
        random: flags & RANDOM != 0,
        debug: false,
    })
}

/// Writes `traceparent`. Keeps the caller's `tracestate` if the caller's W3C trace continues, and removes it if not.
pub(super) fn write(onward: Onward<'_>, headers: &mut HeaderMap) {
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    let flags = flag(onward.sampled, SAMPLED) | flag(onward.carried.random, RANDOM);
    let trace = to_hex(&onward.trace.trace_id);
    let span = to_hex(&onward.trace.client_span);
    put(headers, TRACEPARENT, &format!("00-{trace}-{span}-{flags:02x}"));
    if !onward.carried.states {
        headers.remove(TRACESTATE);
    }
}

/// Returns the caller's `tracestate`, with the members of all header lines in order. `None` if a member is malformed or
/// there are too many. The first member that exceeds [`MAX_STATE_BYTES`] and all later members are omitted.
pub(super) fn state(headers: &HeaderMap) -> Option<Box<str>> {
    let mut kept = String::new();
    let mut members = 0;
    let mut full = false;
    for line in headers.get_all(TRACESTATE) {
        for member in line.to_str().ok()?.split(',') {
            let member = member.trim_matches([' ', '\t']);
            if member.is_empty() {
                continue;
            }
            members += 1;
            if members > MAX_MEMBERS || !is_member(member) {
                return None;
            }
            let comma = usize::from(!kept.is_empty());
            full |= kept.len() + comma + member.len() > MAX_STATE_BYTES;
            if !full {
                kept.push_str(if comma == 1 { "," } else { "" });
                kept.push_str(member);
            }
        }
    }
    (!kept.is_empty()).then(|| kept.into())
}

fn is_member(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else {
        return false;
    };
    let printable = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'=';
    is_key(key) && (1..=MAX_PART_BYTES).contains(&value.len()) && value.bytes().all(printable)
}

/// Returns whether a `tracestate` key is valid: lower-case letters, digits and `_-*/`, beginning with a letter or a
/// digit. `@` and a system name may follow.
fn is_key(key: &str) -> bool {
    let begins = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let goes_on = |byte: u8| begins(byte) || b"_-*/".contains(&byte);
    let is_part = |part: &str| part.bytes().next().is_some_and(begins) && part.bytes().all(goes_on);
    key.len() <= MAX_PART_BYTES
        && match key.split_once('@') {
            Some((tenant, system)) => is_part(tenant) && is_part(system),
            None => is_part(key),
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn headers(name: &HeaderName, values: &[&str]) -> HeaderMap {
        let line = |value: &&str| (name.clone(), value.parse().unwrap());
        let mut headers = HeaderMap::new();
        for (name, value) in values.iter().map(line) {
            headers.append(name, value);
        }
        headers
    }

    fn parent(header: &str) -> Option<Caller> {
        read(&headers(&TRACEPARENT, &[header]))
    }

    fn states(lines: &[&str]) -> Option<String> {
        state(&headers(&TRACESTATE, lines)).map(Into::into)
    }

    #[test]
    fn reads_valid_parent() {
        let caller = parent(VALID).unwrap();
        let (trace_id, span) = caller.ids.unwrap();
        assert_eq!(trace_id[..2], [0x4b, 0xf9]);
        assert_eq!(span, [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
        assert_eq!((caller.sampled, caller.random), (Some(true), false));
    }

    #[test]
    fn reads_flags_as_bits() {
        for (flags, sampled, random) in
            [("00", false, false), ("03", true, true), ("fe", false, true)]
        {
            let caller = parent(&VALID.replace("-01", &format!("-{flags}"))).unwrap();
            assert_eq!((caller.sampled, caller.random), (Some(sampled), random));
        }
    }

    #[test]
    fn accepts_later_versions() {
        let later = VALID.replacen("00", "01", 1);
        assert!(parent(&later).is_some() && parent(&format!("{later}-extra")).is_some());
    }

    #[test]
    fn rejects_malformed_parents() {
        for header in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            &format!("{VALID}-extra"),
            &VALID.to_uppercase(),
            &VALID.replacen("00", "ff", 1),
            &VALID.replace("00f067aa0ba902b7", "0000000000000000"),
            &VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", "00000000000000000000000000000000"),
        ] {
            assert_eq!(parent(header), None, "{header}");
        }
        assert_eq!(read(&headers(&TRACEPARENT, &[VALID, VALID])), None, "two");
    }

    #[test]
    fn joins_state_of_several_lines() {
        assert_eq!(states(&[]), None);
        assert_eq!(states(&["", " , "]), None);
        assert_eq!(
            states(&["b=2 , a@sys=x y", "", "c/*-_0=~!"]).as_deref(),
            Some("b=2,a@sys=x y,c/*-_0=~!")
        );
    }

    #[test]
    fn rejects_state_with_a_malformed_member() {
        let long_key = format!("{}=1", "k".repeat(257));
        let long_value = format!("k={}", "v".repeat(257));
        let many = vec!["k=1"; 33].join(",");
        for bad in [
            "A=1",
            "=1",
            "a",
            "a=",
            "a=b=c",
            "@a=1",
            "a@=1",
            "_a=1",
            "a=x\ty",
            &long_key,
            &long_value,
            &many,
        ] {
            assert_eq!(states(&["ok=1", bad]), None, "{bad}");
        }
        assert!(states(&[&vec!["k=1"; 32].join(",")]).is_some());
    }

    #[test]
    fn truncates_long_state_by_members() {
        let member = |name: char| format!("{name}={}", "v".repeat(253));
        let two = format!("{},{}", member('a'), member('b'));
        assert_eq!(two.len(), 511);
        assert_eq!(states(&[&format!("{two},c=1,d=1")]), Some(two));
    }
}
