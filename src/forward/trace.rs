//! The trace an exchange belongs to: the caller's where it sent a valid `traceparent`, else a new one. The header
//! itself is passed on untouched.

use http::HeaderMap;

use crate::wire::Trace;

/// Ids for an exchange whose request came with `headers`.
pub(super) fn of(headers: &HeaderMap) -> Trace {
    let caller = headers
        .get("traceparent")
        .and_then(|value| parse(value.as_bytes()));
    let (trace_id, parent, parent_sampled) = match caller {
        Some((trace_id, parent, sampled)) => (trace_id, Some(parent), Some(sampled)),
        None => (fastrand::u128(1..).to_be_bytes(), None, None),
    };
    Trace {
        trace_id,
        parent,
        parent_sampled,
        server_span: fastrand::u64(1..).to_be_bytes(),
        client_span: fastrand::u64(1..).to_be_bytes(),
    }
}

/// `00-<32 hex digits>-<16>-<2>`; a later version may have more behind another `-`. Ids of zeros are not valid.
fn parse(value: &[u8]) -> Option<([u8; 16], [u8; 8], bool)> {
    let mut fields = value.split(|byte| *byte == b'-');
    let [version] = hex(fields.next()?)?;
    let trace_id: [u8; 16] = hex(fields.next()?)?;
    let parent: [u8; 8] = hex(fields.next()?)?;
    let [flags] = hex(fields.next()?)?;
    let more = fields.next().is_some();
    let valid =
        version != 0xff && !(version == 0 && more) && trace_id != [0; 16] && parent != [0; 8];
    valid.then_some((trace_id, parent, flags & 1 == 1))
}

/// Exactly `N` bytes in lower-case hexadecimal digits.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn trace(header: &str) -> Trace {
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", header.parse().unwrap());
        of(&headers)
    }

    #[test]
    fn a_valid_parent_is_taken_over() {
        let trace = trace(VALID);
        assert_eq!(trace.trace_id[..2], [0x4b, 0xf9]);
        assert_eq!(
            trace.parent,
            Some([0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7])
        );
        assert_eq!(trace.parent_sampled, Some(true));
        assert_ne!(trace.server_span, trace.client_span);
    }

    #[test]
    fn the_flag_may_be_off_and_a_later_version_may_have_more() {
        assert_eq!(
            trace(&VALID.replace("-01", "-00")).parent_sampled,
            Some(false)
        );
        assert!(
            trace(&format!("{}-extra", VALID.replacen("00", "01", 1)))
                .parent
                .is_some()
        );
    }

    #[test]
    fn anything_else_makes_a_new_trace() {
        for header in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            &format!("{VALID}-extra"),
            &VALID.to_uppercase(),
            &VALID.replacen("00", "ff", 1),
            &VALID.replace("00f067aa0ba902b7", "0000000000000000"),
            &VALID.replace(
                "4bf92f3577b34da6a3ce929d0e0e4736",
                "00000000000000000000000000000000",
            ),
        ] {
            let trace = trace(header);
            assert_eq!(
                (trace.parent, trace.parent_sampled),
                (None, None),
                "{header}"
            );
            assert_ne!(trace.trace_id, [0; 16]);
        }
    }
}
