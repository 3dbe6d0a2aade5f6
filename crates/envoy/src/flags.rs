//! Envoy's response flags, and what each says about the end of an exchange.
//!
//! The names are those of `%RESPONSE_FLAGS%` in Envoy's access log. Flags that do not say how a request ended (delays and
//! faults that Envoy injects, cached responses, rejections by external authorization) are not in the table: the status of
//! the response then decides.

use bytes::{Buf as _, Bytes};
use tokengauge_types::event::{Ending, RejectReason, TimeoutKind, UpstreamFailure};

/// A response flag that says how a request ended.
#[derive(Clone, Copy, Debug)]
struct Flag {
    /// The bit in the attribute `response.flags`, counted from 0.
    bit: u32,
    #[cfg_attr(not(test), expect(dead_code, reason = "names the row of the table"))]
    name: &'static str,
    /// The ending before the upstream has sent response headers.
    early: Ending,
    /// The ending after them.
    late: Ending,
}

impl Flag {
    const fn new(bit: u32, name: &'static str, ending: Ending) -> Self {
        Self { bit, name, early: ending, late: ending }
    }

    /// The upstream closed or reset the connection.
    const fn of_upstream(bit: u32, name: &'static str) -> Self {
        let early = Ending::UpstreamFailed(UpstreamFailure::BeforeResponse);
        let late = Ending::UpstreamFailed(UpstreamFailure::MidBody);
        Self { bit, name, early, late }
    }
}

/// The flags in order of precedence: Envoy can set several. A flag of the client comes first, because Envoy resets the
/// upstream when the client leaves. `UF` and `UC` come before the more general `URX`.
const FLAGS: [Flag; 24] = {
    use Ending::{ClientDisconnected, Rejected, RequestBodyFailed, TimedOut, UpstreamFailed};
    use RejectReason::{NoRoute, Overload};
    use TimeoutKind::{Idle, Total};
    use UpstreamFailure::{Connect, Dns};
    [
        Flag::new(14, "DC", ClientDisconnected),
        Flag::new(28, "DR", ClientDisconnected),
        Flag::new(18, "DPE", RequestBodyFailed),
        Flag::new(2, "UT", TimedOut(Total)),
        Flag::new(19, "UMSDR", TimedOut(Total)),
        Flag::new(22, "DT", TimedOut(Total)),
        Flag::new(16, "SI", TimedOut(Idle)),
        Flag::new(26, "DF", UpstreamFailed(Dns)),
        Flag::new(5, "UF", UpstreamFailed(Connect)),
        Flag::new(0, "LH", UpstreamFailed(Connect)),
        Flag::new(1, "UH", UpstreamFailed(Connect)),
        Flag::of_upstream(6, "UC"),
        Flag::of_upstream(4, "UR"),
        Flag { early: UpstreamFailed(UpstreamFailure::Protocol), ..Flag::of_upstream(23, "UPE") },
        Flag::of_upstream(3, "LR"),
        Flag::of_upstream(15, "URX"),
        Flag::new(8, "NR", Rejected(NoRoute)),
        Flag::new(24, "NC", Rejected(NoRoute)),
        Flag::new(7, "UO", Rejected(Overload)),
        Flag::new(11, "RL", Rejected(Overload)),
        Flag::new(13, "RLSE", Rejected(Overload)),
        Flag::new(25, "OM", Rejected(Overload)),
        Flag::new(27, "DO", Rejected(Overload)),
        Flag::new(29, "UDO", Rejected(Overload)),
    ]
};

/// The flags of an access log entry that are not at the position of their bit: `downstream_remote_reset`.
const DOWNSTREAM_REMOTE_RESET_FIELD: u32 = 28;

/// Returns how a request with these flags ended. `has_head`: the upstream had sent response headers. `None` if no flag
/// says so.
pub fn ending(flags: u64, has_head: bool) -> Option<Ending> {
    let flag = FLAGS.iter().find(|flag| flags & (1 << flag.bit) != 0)?;
    Some(if has_head { flag.late } else { flag.early })
}

/// Returns how a request ended whose flags say nothing, according to `response.code_details`.
pub fn ending_of_details(details: &str) -> Option<Ending> {
    // Envoy sets these details also where a listener drains or a codec fails, and then sets no flag.
    details.starts_with("downstream_").then_some(Ending::ClientDisconnected)
}

/// Returns the flags of an access log entry, as bits of the attribute `response.flags`. `encoded` is the message
/// `ResponseFlags`, in which the field number of a flag is one more than its bit.
pub fn flags_of_log(encoded: &Bytes) -> u64 {
    let mut rest = encoded.clone();
    let mut flags = 0;
    while rest.has_remaining() {
        let Ok((field, wire)) = prost::encoding::decode_key(&mut rest) else { break };
        let context = prost::encoding::DecodeContext::default();
        if prost::encoding::skip_field(wire, field, &mut rest, context).is_err() {
            break;
        }
        let bit = if field == DOWNSTREAM_REMOTE_RESET_FIELD { field } else { field - 1 };
        flags |= 1_u64.checked_shl(bit).unwrap_or_default();
    }
    flags
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_flag_is_listed_once() {
        let bits: BTreeSet<u32> = FLAGS.iter().map(|flag| flag.bit).collect();
        let names: BTreeSet<&str> = FLAGS.iter().map(|flag| flag.name).collect();
        assert_eq!((bits.len(), names.len()), (FLAGS.len(), FLAGS.len()));
    }

    #[test]
    fn client_and_upstream_aborts_are_told_apart() {
        assert_eq!(ending(1 << 14, true), Some(Ending::ClientDisconnected));
        let late = Some(Ending::UpstreamFailed(UpstreamFailure::MidBody));
        let early = Some(Ending::UpstreamFailed(UpstreamFailure::BeforeResponse));
        assert_eq!((ending(0x40, false), ending(0x40, true)), (early, late));
        assert_eq!(ending(1 << 14 | 0x40, true), Some(Ending::ClientDisconnected));
        assert_eq!(ending(4, true), Some(Ending::TimedOut(TimeoutKind::Total)));
        assert_eq!(ending(1 << 12 | 1 << 9, false), None, "the status decides");
        assert_eq!(ending(0, true), None);
    }

    #[test]
    fn reads_the_flags_of_an_access_log_entry() {
        // Fields 15 (downstream_connection_termination) and 28 (downstream_remote_reset), and 13 with a message.
        let encoded = Bytes::from_static(&[15 << 3, 1, 0xe0, 1, 1, 13 << 3 | 2, 2, 8, 1]);
        assert_eq!(flags_of_log(&encoded), 1 << 14 | 1 << 28 | 1 << 12);
        assert_eq!(flags_of_log(&Bytes::from_static(&[15 << 3])), 0, "malformed");
        assert_eq!(flags_of_log(&Bytes::new()), 0);
    }

    /// `docs/how-to/envoy.md` has one row per flag.
    #[test]
    fn the_page_lists_every_flag() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/how-to/envoy.md");
        let page = std::fs::read_to_string(path).unwrap();
        for flag in FLAGS {
            assert!(page.contains(&format!("`{}`", flag.name)), "{} is missing", flag.name);
        }
    }
}
