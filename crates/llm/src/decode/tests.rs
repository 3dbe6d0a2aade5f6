//! Tests each coding with data that is cut at every position, with corrupt data and with decompression bombs.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use proptest::prelude::*;
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

use super::*;
use crate::budget::{Budget, Expansion, MemoryPermit};

/// Plain text of the pieces. A flush follows each piece.
const PIECES: [&str; 5] = [
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Grüß\"}}]}\n\n",
    ": keep-alive\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" Gott\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
    "data: [DONE]\n\n",
];

/// Encodes pieces with a flush after each piece. Returns the encoded bytes of each piece.
type Encode = fn(&[&[u8]]) -> Vec<Vec<u8>>;

const CODINGS: [(&str, Encode); 5] =
    [("gzip", gzip), ("deflate", zlib), ("deflate", raw), ("br", br), ("zstd", zstd)];

/// Encodes each piece with an encoder that writes to a vector. Returns the bytes that each flush wrote.
macro_rules! flushed {
    ($pieces:expr, $encoder:expr, $take:expr, $finish:expr) => {{
        let mut encoder = $encoder;
        let mut wire = Vec::new();
        for piece in $pieces {
            encoder.write_all(piece).unwrap();
            encoder.flush().unwrap();
            wire.push(std::mem::take($take(&mut encoder)));
        }
        let end: Vec<u8> = $finish(encoder);
        wire.last_mut().unwrap().extend(end);
        wire
    }};
}

fn gzip(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let encoder = GzEncoder::new(Vec::new(), Compression::default());
    flushed!(pieces, encoder, GzEncoder::get_mut, |encoder: GzEncoder<_>| {
        encoder.finish().unwrap()
    })
}

fn zlib(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    flushed!(pieces, encoder, ZlibEncoder::get_mut, |encoder: ZlibEncoder<_>| {
        encoder.finish().unwrap()
    })
}

fn raw(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    flushed!(pieces, encoder, DeflateEncoder::get_mut, |encoder: DeflateEncoder<_>| {
        encoder.finish().unwrap()
    })
}

fn br(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    type Encoder = ::brotli::CompressorWriter<Vec<u8>>;
    let encoder = Encoder::new(Vec::new(), 4096, 5, 22);
    flushed!(pieces, encoder, Encoder::get_mut, Encoder::into_inner)
}

fn zstd(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    zstd_with(pieces, 21)
}

fn zstd_with(pieces: &[&[u8]], window_log: u32) -> Vec<Vec<u8>> {
    let mut context = CCtx::create();
    context.set_parameter(CParameter::WindowLog(window_log)).unwrap();
    context.set_parameter(CParameter::ChecksumFlag(true)).unwrap();
    let last = pieces.len() - 1;
    let mut encode = |(index, piece): (usize, &&[u8])| {
        let directive = if index == last {
            ZSTD_EndDirective::ZSTD_e_end
        } else {
            ZSTD_EndDirective::ZSTD_e_flush
        };
        let mut wire = vec![0; 256 + 2 * piece.len()];
        let mut output = OutBuffer::around(&mut wire[..]);
        let mut input = InBuffer::around(piece);
        let left = context.compress_stream2(&mut output, &mut input, directive);
        assert_eq!((left, input.pos()), (Ok(0), piece.len()));
        let len = output.pos();
        wire.truncate(len);
        wire
    };
    pieces.iter().enumerate().map(&mut encode).collect()
}

fn pieces() -> Vec<&'static [u8]> {
    PIECES.iter().map(|piece| piece.as_bytes()).collect()
}

fn new(header: &str) -> Decompressor {
    Decompressor::new(header, &RequestBudget::default()).unwrap().unwrap()
}

/// Returns the output of `inflater` for `wire`, with the first error of `push`, or else the result of `finish`.
fn take(mut inflater: Decompressor, wire: &[&[u8]]) -> (Vec<u8>, Result<(), DecodeError>) {
    let mut plain = Vec::new();
    for bytes in wire {
        let pushed = inflater.push(bytes, &mut |bytes| plain.extend_from_slice(bytes));
        if pushed.is_err() {
            return (plain, pushed);
        }
    }
    (plain, inflater.finish())
}

/// Decompresses `wire`, split at the positions in `cuts`. Asserts after each push that all flushed data is
/// decompressed. `wire[i]` is the encoded form of `plain[i]`.
fn assert_visible(header: &str, plain: &[&[u8]], wire: &[Vec<u8>], cuts: &[usize]) {
    let (all, whole) = (wire.concat(), plain.concat());
    let mut inflater = new(header);
    let mut seen = Vec::new();
    let mut from = 0;
    for to in cuts.iter().copied().chain([all.len()]) {
        let pushed = inflater.push(&all[from..to], &mut |bytes| seen.extend_from_slice(bytes));
        assert_eq!(pushed, Ok(()), "{header} at {to}");
        let mut end = 0;
        let ends = wire.iter().map(|piece| {
            end += piece.len();
            end
        });
        let flushed = ends.filter(|end| *end <= to).count();
        let due = plain[..flushed].concat().len();
        assert!(seen.len() >= due, "{header}: {} of {due} at {to}", seen.len());
        assert!(whole.starts_with(&seen), "{header} at {to}");
        from = to;
    }
    assert_eq!((seen, inflater.finish()), (whole, Ok(())), "{header}");
}

fn assert_visible_for_every_cut(header: &str, plain: &[&[u8]], wire: &[Vec<u8>]) {
    let len = wire.concat().len();
    assert_visible(header, plain, wire, &[]);
    assert_visible(header, plain, wire, &(1..len).collect::<Vec<_>>());
    for cut in 0..=len {
        assert_visible(header, plain, wire, &[cut]);
    }
}

#[test]
fn flushed_data_is_visible_at_once_for_every_cut() {
    for (header, encode) in CODINGS {
        let plain = pieces();
        assert_visible_for_every_cut(header, &plain, &encode(&plain));
    }
}

#[test]
fn two_codings_are_removed_from_right_to_left() {
    for (inner, first) in CODINGS {
        for (outer, second) in CODINGS {
            let plain = pieces();
            let once = first(&plain);
            let twice = second(&once.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let header = format!("{inner}, {outer}");
            assert_visible(&header, &plain, &twice, &[]);
            let every: Vec<usize> = (1..twice.concat().len()).collect();
            assert_visible(&header, &plain, &twice, &every);
        }
    }
}

#[test]
fn output_may_exceed_the_step_buffer() {
    let numbers: String = (0..20_000).map(|number| format!("{number},")).collect();
    for (header, encode) in CODINGS {
        let wire = encode(&[numbers.as_bytes()]).concat();
        let (plain, end) = take(new(header), &[&wire]);
        assert!(plain == numbers.as_bytes() && end == Ok(()), "{header}");
    }
}

#[test]
fn identity_needs_no_decompressor_and_unknown_codings_are_errors() {
    assert!(matches!(Decompressor::new("identity", &RequestBudget::default()), Ok(None)));
    assert!(matches!(Decompressor::new("compress", &RequestBudget::default()), Err(Unsupported)));
}

#[test]
fn decodes_several_members_and_frames() {
    let skippable = [b"\x5a\x2a\x4d\x18\x05\0\0\0".as_slice(), b"empty"].concat();
    let with_all_fields =
        flate2::GzBuilder::new().filename("a name").comment("a comment").extra("extra").mtime(1);
    let mut named = with_all_fields.write(Vec::new(), Compression::fast());
    named.write_all(PIECES[1].as_bytes()).unwrap();
    let [first, second] = [PIECES[0].as_bytes(), PIECES[1].as_bytes()];
    let gzips = vec![gzip(&[first]).concat(), named.finish().unwrap()];
    assert_visible_for_every_cut("gzip", &[first, second], &gzips);
    let frames = vec![
        [skippable.clone(), zstd(&[first]).concat()].concat(),
        [skippable.clone(), zstd(&[second]).concat(), skippable].concat(),
    ];
    assert_visible_for_every_cut("zstd", &[first, second], &frames);
}

#[test]
fn deflate_is_zlib_or_raw_depending_on_its_bytes() {
    let text = PIECES[0].as_bytes();
    for level in 0..=9 {
        let level = Compression::new(level);
        let mut zlib = ZlibEncoder::new(Vec::new(), level);
        let mut bare = DeflateEncoder::new(Vec::new(), level);
        zlib.write_all(text).unwrap();
        bare.write_all(text).unwrap();
        for wire in [zlib.finish().unwrap(), bare.finish().unwrap()] {
            let single: Vec<&[u8]> = wire.chunks(1).collect();
            assert_eq!(take(new("deflate"), &[&wire]), (text.to_vec(), Ok(())));
            assert_eq!(take(new("deflate"), &single), (text.to_vec(), Ok(())));
        }
    }
    let empty = take(new("deflate"), &[b"\x03\0"]);
    assert_eq!(empty, (Vec::new(), Ok(())), "the shortest raw deflate data");
}

#[test]
fn an_empty_body_is_complete_and_takes_no_memory() {
    let budget = Budget::new(0).request();
    for (header, _) in CODINGS {
        let inflater = Decompressor::new(header, &budget).unwrap().unwrap();
        assert_eq!(take(inflater, &[b""]), (Vec::new(), Ok(())), "{header}");
    }
}

#[test]
fn a_truncated_body_is_an_error_after_its_output() {
    let plain = pieces();
    for (header, encode) in CODINGS {
        let wire = encode(&plain).concat();
        for len in 1..wire.len() {
            let (seen, end) = take(new(header), &[&wire[..len]]);
            assert!(plain.concat().starts_with(&seen), "{header} at {len}");
            assert_eq!(end, Err(DecodeError::Corrupt), "{header} at {len}");
        }
    }
}

#[test]
fn data_after_the_end_is_an_error_reported_once() {
    let plain = pieces();
    for (header, encode) in CODINGS {
        let mut wire = encode(&plain).concat();
        wire.extend(b"data: {}\n\n");
        let mut inflater = new(header);
        let mut seen = Vec::new();
        let mut push = |bytes: &[u8]| {
            let pushed = inflater.push(bytes, &mut |bytes| seen.extend_from_slice(bytes));
            (pushed, inflater.is_abandoned())
        };
        assert_eq!(push(&wire), (Err(DecodeError::Corrupt), true), "{header}");
        assert_eq!(push(&wire), (Ok(()), true), "{header}: the error is reported once");
        assert_eq!(seen, plain.concat(), "{header}");
    }
}

#[test]
fn a_wrong_checksum_is_an_error_after_the_whole_output() {
    let plain = pieces();
    // Position of the checksum, counted from the end. In gzip, the length follows the checksum.
    let checked: [(&str, Encode, usize); 3] =
        [("gzip", gzip, 8), ("deflate", zlib, 4), ("zstd", zstd, 4)];
    for (header, encode, from_end) in checked {
        let mut wire = encode(&plain).concat();
        let at = wire.len() - from_end;
        wire[at] ^= 1;
        let single: Vec<&[u8]> = wire.chunks(1).collect();
        let told = take(new(header), &single);
        assert_eq!(told, (plain.concat(), Err(DecodeError::Corrupt)), "{header}");
    }
}

#[test]
fn nothing_is_decoded_after_a_gap() {
    for (header, encode) in CODINGS {
        let wire = encode(&pieces());
        let mut inflater = new(header);
        let mut seen = Vec::new();
        for (index, bytes) in wire.iter().enumerate() {
            if index == 1 {
                inflater.abandon();
            }
            let pushed = inflater.push(bytes, &mut |bytes| seen.extend_from_slice(bytes));
            assert_eq!(pushed, Ok(()), "{header}");
        }
        assert_eq!(seen, PIECES[0].as_bytes(), "{header}");
        assert_eq!(inflater.finish(), Ok(()), "{header}");
    }
}

/// Creates a decompressor with the default bounds modified by `change`.
fn bounded(header: &str, change: impl FnOnce(&mut Bounds)) -> Decompressor {
    let mut bounds = Bounds::DEFAULT;
    change(&mut bounds);
    let limits = Limits { bounds, budget: RequestBudget::default() };
    Decompressor::with_limits(header, limits).unwrap().unwrap()
}

#[test]
fn a_bomb_is_abandoned_at_the_ratio_limit() {
    let zeros = vec![0; 1 << 20];
    for (header, encode) in CODINGS {
        let wire = encode(&[&zeros]).concat();
        let inflater = bounded(header, |bounds| {
            (bounds.unchecked, bounds.ratio) = (10_000, 50);
        });
        let (plain, end) = take(inflater, &[&wire]);
        let allowed = 10_000 + 50 * wire.len();
        assert_eq!(end, Err(DecodeError::TooLarge), "{header}");
        assert!(plain.len() <= allowed, "{header}: {} of {allowed}", plain.len());
        assert!(
            plain.len() + OUTPUT_BUFFER_BYTES > allowed,
            "{header}: abandoned before the limit"
        );
    }
}

#[test]
fn ratios_of_nested_bombs_do_not_multiply() {
    let zeros = vec![0; 1 << 20];
    for (inner, first) in CODINGS {
        for (outer, second) in CODINGS {
            let wire = second(&[&first(&[&zeros]).concat()]).concat();
            let inflater = bounded(&format!("{inner}, {outer}"), |bounds| {
                (bounds.unchecked, bounds.ratio) = (10_000, 50);
            });
            let (plain, end) = take(inflater, &[&wire]);
            assert_eq!(end, Err(DecodeError::TooLarge), "{inner}, {outer}");
            assert!(plain.len() <= 10_000 + 50 * wire.len(), "{inner}, {outer}");
        }
    }
}

#[test]
fn a_body_is_abandoned_at_the_size_limit() {
    let text: Vec<u8> = (0..40_000_u32).flat_map(u32::to_le_bytes).collect();
    for (header, encode) in CODINGS {
        let wire = encode(&[&text]).concat();
        let (plain, end) = take(bounded(header, |bounds| bounds.max = 100_000), &[&wire]);
        assert_eq!(end, Err(DecodeError::TooLarge), "{header}");
        assert!(text.starts_with(&plain) && plain.len() <= 100_000, "{header}");
        let (plain, end) = take(bounded(header, |bounds| bounds.max = 160_000), &[&wire]);
        assert!(
            plain == text && end == Ok(()),
            "{header}: a body of exactly the maximum size is accepted"
        );
    }
}

#[test]
fn default_limits_match_the_documentation() {
    let zeros = vec![0; 32 << 20];
    let wire = zstd(&[&zeros]).concat();
    let (plain, end) = take(new("zstd"), &[&wire]);
    let allowed = (4 << 20) + 250 * wire.len();
    assert_eq!(end, Err(DecodeError::TooLarge));
    assert!(plain.len() <= allowed && plain.len() + OUTPUT_BUFFER_BYTES > allowed);
    let repeated = vec![0; 4 << 20];
    let wire = zstd(&[&repeated]).concat();
    assert!(wire.len() < 1_000, "{}: the ratio must be above the limit", wire.len());
    let (plain, end) = take(new("zstd"), &[&wire]);
    assert!(plain == repeated && end == Ok(()));
}

#[test]
fn window_sizes_are_limited() {
    let text = PIECES[0].as_bytes();
    let at_most = zstd_with(&[text, text], 23).concat();
    assert_eq!(take(new("zstd"), &[&at_most]).1, Ok(()));
    let above = zstd_with(&[text, text], 24).concat();
    let given_up = (Vec::new(), Err(DecodeError::TooLarge));
    assert_eq!(take(new("zstd"), &[&above]), given_up);
    let params =
        ::brotli::enc::BrotliEncoderParams { lgwin: 26, large_window: true, ..Default::default() };
    let mut large = Vec::new();
    ::brotli::BrotliCompress(&mut &*text, &mut large, &params).unwrap();
    let refused = (Vec::new(), Err(DecodeError::Corrupt));
    assert_eq!(take(new("br"), &[&large]), refused, "the format does not allow large windows");
}

#[test]
fn memory_is_taken_from_the_budget_and_returned() {
    const MOST: usize = 2 << 20;
    let all = Budget::new(2 * MOST);
    let budget = all.request();
    let with_memory = |header: &str| Decompressor::new(header, &budget).unwrap().unwrap();
    let text: Vec<u8> = (0..50_000_u32).flat_map(u32::to_le_bytes).collect();
    for (header, encode) in CODINGS {
        let wire = encode(&[&text]).concat();
        let mut inflater = with_memory(header);
        assert_eq!(all.held_bytes(), 0, "{header}: no memory is taken before the first byte");
        inflater.push(&wire[..wire.len() / 2], &mut |_| ()).unwrap();
        let lent = all.held_bytes();
        assert!(lent >= 48 << 10, "{header}: {lent}");
        inflater.abandon();
        assert_eq!(all.held_bytes(), 0, "{header}");
    }
    for (header, encode) in CODINGS {
        let held = MemoryPermit::take(&budget.memory, MOST - (40 << 10)).unwrap();
        let wire = encode(&[&text]).concat();
        let (_, end) = take(with_memory(header), &[&wire]);
        assert_eq!(end, Err(DecodeError::OverBudget), "{header}: the budget is too small");
        drop(held);
        assert_eq!(all.held_bytes(), 0, "{header}");
    }
}

#[test]
fn bombs_exhaust_their_share_and_not_that_of_ordinary_streams() {
    let zeros = vec![0; 4 << 20];
    for (header, encode) in CODINGS {
        let budget = Budget::new(64 << 20);
        let inflate = |header: &str, wire: &[&[u8]]| {
            take(Decompressor::new(header, &budget.request()).unwrap().unwrap(), wire)
        };
        let bomb = encode(&[&zeros]).concat();
        let inflated: usize = (0..20).map(|_| inflate(header, &[&bomb]).0.len()).sum();
        // The share of bombs, and what each body may expand as ordinary.
        let allowed = (16 << 20) + 20 * (32 * bomb.len() + (16 << 10));
        assert!(inflated <= allowed, "{header}: {inflated}");
        assert_eq!(inflate(header, &[&bomb]).1, Err(DecodeError::OverBudget), "{header}");
        let plain = pieces();
        let wire = encode(&plain);
        let wire: Vec<&[u8]> = wire.iter().map(Vec::as_slice).collect();
        assert_eq!(inflate(header, &wire), (plain.concat(), Ok(())), "{header}");
    }
}

#[test]
fn flushed_streams_expand_as_is_ordinary() {
    let plain: Vec<&[u8]> = pieces().into_iter().cycle().take(5_000).collect();
    for (header, encode) in CODINGS {
        let (mut taken, mut written) = (0, 0);
        for (bytes, piece) in encode(&plain).iter().zip(&plain) {
            taken += bytes.len() as u64;
            written += piece.len() as u64;
            assert_eq!(expansion(taken, written), Expansion::Ordinary, "{header} at {written}");
        }
    }
}

/// Decompresses arbitrary bytes with small limits. Asserts that the limits hold and that nothing panics.
fn survive(header: &str, wire: &[u8], cut: usize) -> Result<(), TestCaseError> {
    let mut inflater = bounded(header, |bounds| (bounds.unchecked, bounds.ratio) = (10_000, 50));
    let mut seen = 0;
    for bytes in wire.chunks(cut.max(1)) {
        let before = inflater.is_abandoned();
        let pushed = inflater.push(bytes, &mut |plain| {
            assert!(!plain.is_empty());
            seen += plain.len();
        });
        prop_assert_eq!(pushed.is_err(), !before && inflater.is_abandoned());
    }
    prop_assert!(seen <= 10_000 + 50 * wire.len());
    prop_assert!(!inflater.is_abandoned() || inflater.finish().is_ok());
    Ok(())
}

/// Valid first bytes of each format. Decoders reject random bytes without such a beginning at once.
const BEGINNINGS: [&[u8]; 6] = [
    b"",
    b"\x1f\x8b\x08\0\0\0\0\0\0\xff",
    b"\x78\x9c",
    b"\x28\xb5\x2f\xfd\0\x58",
    b"\x28\xb5\x2f\xfd\x04\x58",
    b"\x1b",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn random_bytes_do_not_panic(
        coding in 0..CODINGS.len(),
        beginning in 0..BEGINNINGS.len(),
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        cut in 1_usize..64,
    ) {
        let wire = [BEGINNINGS[beginning], &bytes].concat();
        survive(CODINGS[coding].0, &wire, cut)?;
        survive(&format!("gzip, {}", CODINGS[coding].0), &wire, cut)?;
    }

    #[test]
    fn a_body_with_a_few_wrong_bytes_does_not_panic(
        coding in 0..CODINGS.len(),
        wrong in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in 1_usize..64,
    ) {
        let (header, encode) = CODINGS[coding];
        let mut wire = encode(&pieces()).concat();
        for (at, byte) in wrong {
            let at = at.index(wire.len());
            wire[at] = byte;
        }
        survive(header, &wire, cut)?;
    }
}
