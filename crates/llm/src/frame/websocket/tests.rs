//! Tests the WebSocket parser. The same data is parsed in one piece, byte by byte, and split in two at every position.
//! The results are compared with tungstenite, another implementation.

use std::io::{self, Cursor, Read, Write};

use proptest::prelude::*;
use tungstenite::protocol::frame::Frame as PeerFrame;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

use super::super::MAX_FRAME_BYTES;
use super::*;

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// Parses `pieces` and returns a short form of the messages. An empty piece means that bytes were lost.
fn cut(mut reader: WebSocket, pieces: &[&[u8]]) -> Vec<String> {
    let mut messages = Vec::new();
    let mut out = |message: Message<'_>| messages.push(short(message));
    for piece in pieces {
        reader.push(piece, &mut out);
    }
    reader.finish(&mut out);
    messages
}

fn short(message: Message<'_>) -> String {
    match message {
        Message::Text(text) => format!("text {}", String::from_utf8_lossy(text)),
        Message::Skipped(why) => format!("{why:?}"),
        Message::Close(code) => format!("close {code:?}"),
        Message::ParseError(error) => format!("error {}", error.as_str()),
    }
}

/// Returns the messages in `bytes`. Asserts that they are the same for every split.
fn messages(reader: impl Fn() -> WebSocket, bytes: &[u8]) -> Vec<String> {
    let whole = cut(reader(), &[bytes]);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(cut(reader(), &single), whole, "byte by byte");
    for at in 0..=bytes.len() {
        let (first, second) = bytes.split_at(at);
        assert_eq!(cut(reader(), &[first, second]), whole, "cut at {at}");
    }
    whole
}

fn by_server(bytes: &[u8]) -> Vec<String> {
    messages(|| WebSocket::server(MAX_FRAME_BYTES), bytes)
}

/// Encodes one frame with this first byte and payload. Frames of a client have a mask.
fn frame(first: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let masked = if mask.is_some() { 0x80 } else { 0 };
    let mut bytes = vec![first];
    match payload.len() {
        len @ 0..=125 => bytes.push(masked | u8::try_from(len).unwrap()),
        len @ 126..=0xffff => {
            bytes.push(masked | 126);
            bytes.extend(u16::try_from(len).unwrap().to_be_bytes());
        }
        len => {
            bytes.push(masked | 127);
            bytes.extend(u64::try_from(len).unwrap().to_be_bytes());
        }
    }
    let key = mask.unwrap_or_default();
    bytes.extend(mask.iter().flatten());
    bytes.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
    bytes
}

fn server(first: u8, payload: &str) -> Vec<u8> {
    frame(first, payload.as_bytes(), None)
}

#[test]
fn reads_the_examples_of_the_standard() {
    assert_eq!(by_server(b"\x81\x05Hello"), ["text Hello"]);
    let masked = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    assert_eq!(messages(|| WebSocket::client(MAX_FRAME_BYTES), masked), ["text Hello"]);
    assert_eq!(by_server(b"\x01\x03Hel\x80\x02lo"), ["text Hello"]);
    assert_eq!(by_server(b"\x89\x05Hello"), [""; 0], "a ping is not a message");
    let binary = [&b"\x82\x7e\x01\x00"[..], &[7; 256]].concat();
    assert_eq!(by_server(&binary), ["Binary"]);
    let long = [&b"\x82\x7f\0\0\0\0\0\x01\0\0"[..], &[7; 65_536]].concat();
    assert_eq!(cut(WebSocket::server(MAX_FRAME_BYTES), &[&long]), ["Binary"]);
}

#[test]
fn accepts_control_frames_between_the_frames_of_a_message() {
    let pieces = [
        server(0x01, "a"),
        server(0x89, "ping"),
        server(0x00, ""),
        server(0x8a, ""),
        server(0x00, "b"),
        server(0x80, "c"),
        server(0x81, ""),
        frame(0x88, b"\x03\xe8bye", None),
        server(0x81, "nothing comes after the end"),
    ];
    assert_eq!(by_server(&pieces.concat()), ["text abc", "text ", "close Some(1000)"]);
}

#[test]
fn unmasks_each_client_frame_with_its_key() {
    let pieces = [
        frame(0x01, b"{\"type\":", Some(MASK)),
        frame(0x8a, b"pong", Some([9, 8, 7, 6])),
        frame(0x80, b"\"session.update\"}", Some([1, 2, 3, 4])),
        frame(0x88, &4004_u16.to_be_bytes(), Some([5, 6, 7, 8])),
    ];
    let messages = messages(|| WebSocket::client(MAX_FRAME_BYTES), &pieces.concat());
    assert_eq!(messages, ["text {\"type\":\"session.update\"}", "close Some(4004)"]);
    assert_eq!(by_server(&server(0x88, "")), ["close None"]);
}

#[test]
fn counts_compressed_messages_and_reads_the_others() {
    let pieces = [
        server(0xc1, "\u{1}\u{2}"),
        server(0x41, "\u{1}"),
        server(0x80, "\u{2}"),
        server(0x81, "plain"),
    ];
    assert_eq!(by_server(&pieces.concat()), ["Compressed", "Compressed", "text plain"]);
}

#[test]
fn counts_a_message_above_the_cap_and_reports_it_once() {
    let small = || WebSocket::server(8);
    let whole = [server(0x81, "12345678"), server(0x81, "123456789"), server(0x81, "after")];
    assert_eq!(
        messages(small, &whole.concat()),
        ["text 12345678", "error oversize", "Oversize", "text after"]
    );
    let fragments =
        [server(0x01, "12345"), server(0x00, "6789"), server(0x80, "0"), server(0x81, "after")];
    assert_eq!(messages(small, &fragments.concat()), ["error oversize", "Oversize", "text after"]);
    // Declares 2^63 - 1 bytes. The parser rejects the size before any payload arrives.
    let endless = b"\x81\x7f\x7f\xff\xff\xff\xff\xff\xff\xff";
    assert_eq!(by_server(endless), ["error oversize", "error unterminated"]);
}

#[test]
fn shortens_a_message_above_the_cap() {
    const CAP: usize = 4_096;
    let audio = "UklG+/\\/\\u00e9".repeat(400);
    let json = format!(r#"{{"type":"append","audio":"{audio}","usage":{{"total":7}}}}"#);
    let short = r#"text {"type":"append","audio":"","usage":{"total":7}}"#;
    let expected = ["error oversize", short, "text {}"];
    let (first, second) = json.split_at(3_000);
    for mask in [None, Some(MASK)] {
        let frame = |first: u8, text: &str| frame(first, text.as_bytes(), mask);
        let whole = [frame(0x81, &json), frame(0x81, "{}")].concat();
        let fragments =
            [frame(0x01, first), frame(0x89, "ping"), frame(0x80, second), frame(0x81, "{}")];
        for bytes in [whole, fragments.concat()] {
            for size in [1, 3, 1_000, 4_096, 100_000] {
                let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
                let reader = WebSocket::new(CAP, mask.is_some());
                assert_eq!(cut(reader, &pieces), expected, "{size}");
            }
        }
        let message = frame(0x81, &json);
        let mut reader = WebSocket::new(CAP, mask.is_some());
        for byte in &message {
            reader.push(&[*byte], &mut |_| {});
            assert!(reader.held_bytes() <= CAP);
        }
        assert_eq!(reader.held_bytes(), 0);
        let bytes = [message, frame(0x81, "{}")].concat();
        assert_eq!(
            lossy(WebSocket::new(CAP, mask.is_some()), &bytes, 100, 200)[1..],
            ["Lost", "text {}"]
        );
    }
}

#[test]
fn stops_at_a_protocol_violation() {
    let broken: [(&str, Vec<u8>); 9] = [
        ("a masked server", frame(0x81, b"x", Some(MASK))),
        ("an unknown opcode", server(0x83, "x")),
        ("an unknown control opcode", server(0x8b, "x")),
        ("a continuation of nothing", server(0x80, "x")),
        ("a fragmented ping", server(0x09, "x")),
        ("a long ping", server(0x89, &"x".repeat(126))),
        ("an extended close", server(0xc8, "")),
        ("half a code", server(0x88, "x")),
        ("a length of 2^63", b"\x81\x7f\x80\0\0\0\0\0\0\0".to_vec()),
    ];
    for (what, bytes) in broken {
        let bytes = [server(0x81, "before"), bytes, server(0x81, "after")].concat();
        assert_eq!(by_server(&bytes), ["text before", "error bad_frame"], "{what}");
    }
    let within = [server(0x01, "a"), server(0x81, "b")].concat();
    assert_eq!(by_server(&within), ["error bad_frame"], "a message within another");
    let bare = || WebSocket::client(MAX_FRAME_BYTES);
    assert_eq!(messages(bare, &server(0x81, "x")), ["error bad_frame"], "a client must mask");
}

#[test]
fn reports_an_unfinished_message() {
    for bytes in [&b"\x81"[..], b"\x81\x05Hel", b"\x01\x03Hel", b"\x89\x05"] {
        assert_eq!(by_server(bytes), ["error unterminated"], "{bytes:?}");
    }
}

/// Parses `bytes` without the part from `from` to `to`, which is lost.
fn lossy(mut reader: WebSocket, bytes: &[u8], from: usize, to: usize) -> Vec<String> {
    let mut messages = Vec::new();
    let mut out = |message: Message<'_>| messages.push(short(message));
    reader.push(&bytes[..from], &mut out);
    reader.gap(u64::try_from(to - from).unwrap(), &mut out);
    reader.push(&bytes[to..], &mut out);
    reader.finish(&mut out);
    messages
}

#[test]
fn lost_bytes_affect_only_their_message() {
    let bytes =
        [server(0x81, "first"), server(0x81, "second"), frame(0x88, b"\x03\xe8", None)].concat();
    let lossy = |from, to| lossy(WebSocket::server(MAX_FRAME_BYTES), &bytes, from, to);
    let spared = ["Lost", "text second", "close Some(1000)"];
    assert_eq!(lossy(3, 5), spared);
    assert_eq!(lossy(2, 7), spared, "all of its payload");
    assert_eq!(lossy(17, 18), ["text first", "text second", "close None"]);
    // The start of the next frame is no longer known.
    assert_eq!(lossy(3, 8), [""; 0]);
    assert_eq!(lossy(7, 8), ["text first"]);
    let masked = [
        frame(0x01, b"lost", Some(MASK)),
        frame(0x80, b"too", Some(MASK)),
        frame(0x81, b"kept", Some(MASK)),
    ];
    assert_eq!(
        self::lossy(WebSocket::client(MAX_FRAME_BYTES), &masked.concat(), 7, 9),
        ["Lost", "text kept"]
    );
}

#[test]
fn frees_large_buffers_and_keeps_small_ones() {
    let mut reader = WebSocket::client(MAX_FRAME_BYTES);
    let mut push = |len| {
        reader.push(&frame(0x81, &vec![b'x'; len], Some(MASK)), &mut |_| {});
        reader.held_bytes()
    };
    assert!((100..=MAX_KEPT_BYTES).contains(&push(100)));
    assert_eq!(push(MAX_KEPT_BYTES + 1), 0);
    let mut reader = WebSocket::server(MAX_FRAME_BYTES);
    reader.push(&server(0x81, "whole and plain"), &mut |_| {});
    assert_eq!(reader.held_bytes(), 0, "emitted without a copy");
}

/// Input of tungstenite. Data that tungstenite writes (pongs) is discarded.
struct Wire(Cursor<Vec<u8>>);

impl Read for Wire {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for Wire {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the messages that tungstenite reads from the same bytes, up to its first error.
fn by_peer(bytes: &[u8], masked: bool) -> Vec<String> {
    let role = if masked { Role::Server } else { Role::Client };
    let wire = Wire(Cursor::new(bytes.to_vec()));
    let config = WebSocketConfig::default();
    let mut peer = tungstenite::WebSocket::from_raw_socket(wire, role, Some(config));
    let mut messages = Vec::new();
    while let Ok(message) = peer.read() {
        match message {
            tungstenite::Message::Text(text) => messages.push(format!("text {text}")),
            tungstenite::Message::Binary(_) => messages.push("Binary".to_owned()),
            tungstenite::Message::Close(close) => {
                let code = close.map(|close| u16::from(close.code));
                messages.push(format!("close {code:?}"));
                break;
            }
            tungstenite::Message::Ping(_) | tungstenite::Message::Pong(_) => {}
            tungstenite::Message::Frame(_) => unreachable!("never read"),
        }
    }
    messages
}

/// Generates frames in a valid order, encoded by tungstenite.
fn conversation(masked: bool) -> impl Strategy<Value = Vec<u8>> {
    let text = proptest::collection::vec("\\PC{0,40}", 1..4);
    let message = (any::<bool>(), text, any::<bool>());
    let length = prop_oneof![Just(125_usize), Just(126), Just(65_535), Just(65_536)];
    let long = length.prop_map(|length| (true, vec!["x".repeat(length)], false));
    let messages = proptest::collection::vec(prop_oneof![8 => message, 1 => long], 0..6);
    (messages, proptest::option::of(any::<[u8; 4]>())).prop_map(move |(messages, key)| {
        let mut bytes = Vec::new();
        let mut write = |mut frame: PeerFrame| {
            frame.header_mut().mask = masked.then(|| key.unwrap_or(MASK));
            frame.format(&mut bytes).unwrap();
        };
        for (is_text, pieces, ping) in messages {
            let count = pieces.len();
            for (index, piece) in pieces.into_iter().enumerate() {
                let data = match index {
                    0 if is_text => Data::Text,
                    0 => Data::Binary,
                    _ => Data::Continue,
                };
                write(PeerFrame::message(piece, OpCode::Data(data), index + 1 == count));
                if ping {
                    write(PeerFrame::ping("p"));
                }
            }
        }
        let code = CloseCode::Away;
        let reason = "bye".into();
        write(PeerFrame::close(Some(CloseFrame { code, reason })));
        bytes
    })
}

fn pieces<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

proptest! {
    #[test]
    fn compressed_messages_give_the_same_result_for_every_cut(
        texts in proptest::collection::vec("[a-c]{0,60}", 1..6),
        wrong in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut sender = Deflated::new();
        let frames = texts.iter().flat_map(|text| frame(0xc1, &sender.payload(text), None));
        let mut bytes: Vec<u8> = frames.collect();
        for (place, byte) in &wrong {
            let place = place.index(bytes.len());
            bytes[place] = *byte;
        }
        let read = |pieces: &[&[u8]]| {
            let [_, reader] = inflating("permessage-deflate");
            cut(reader, pieces)
        };
        let whole = read(&[&bytes]);
        prop_assert_eq!(&read(&pieces(&bytes, &cuts)), &whole);
        if wrong.is_empty() {
            let expected: Vec<String> = texts.iter().map(|text| format!("text {text}")).collect();
            prop_assert_eq!(whole, expected);
        }
    }

    #[test]
    fn reads_the_same_messages_as_tungstenite(
        (masked, bytes) in any::<bool>().prop_flat_map(|masked| (Just(masked), conversation(masked))),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let reader = WebSocket::new(MAX_FRAME_BYTES, masked);
        prop_assert_eq!(cut(reader, &pieces(&bytes, &cuts)), by_peer(&bytes, masked));
    }

    /// Generates bytes that contain frame headers more often than random bytes do. The parser must read every message
    /// that tungstenite reads.
    #[test]
    fn any_bytes_give_the_same_result_for_every_cut(
        bytes in proptest::collection::vec(prop_oneof![
            any::<u8>(), prop::sample::select(vec![0x01, 0x80, 0x81, 0x88, 0x89, 0x02, 0x00, 0x05, 0x7e, 0x7f]),
        ], 0..200),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
        masked in any::<bool>(),
    ) {
        const SMALL: usize = 32;
        let whole = cut(WebSocket::new(SMALL, masked), &[&bytes]);
        let mut reader = WebSocket::new(SMALL, masked);
        let mut messages = Vec::new();
        for piece in pieces(&bytes, &cuts) {
            reader.push(piece, &mut |message| messages.push(short(message)));
            prop_assert!(reader.held_bytes() <= SMALL);
        }
        reader.finish(&mut |message| messages.push(short(message)));
        prop_assert_eq!(&messages, &whole);
        // The peer validates close codes more strictly and has a larger cap.
        let understood = by_peer(&bytes, masked)
            .into_iter()
            .filter(|message| message.len() < SMALL && !message.starts_with("close"));
        for (theirs, ours) in understood.zip(messages.iter().filter(|messages| !messages.starts_with("error"))) {
            prop_assert_eq!(ours, &theirs);
        }
    }
}

/// Encodes messages of a server that has agreed on `permessage-deflate`.
struct Deflated(flate2::Compress);

impl Deflated {
    fn new() -> Self {
        Self(flate2::Compress::new(flate2::Compression::default(), false))
    }

    fn payload(&mut self, text: &str) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(text.len() + 64);
        self.0.compress_vec(text.as_bytes(), &mut bytes, flate2::FlushCompress::Sync).unwrap();
        // zlib does not flush twice, so an empty message has no bytes. RFC 7692, section 7.2.3.6.
        let end = bytes.len().checked_sub(4);
        bytes.truncate(end.unwrap_or_default());
        if end.is_none() { vec![0] } else { bytes }
    }
}

fn inflating(extensions: &str) -> [WebSocket; 2] {
    let budget = crate::budget::RequestBudget::default();
    let [client, server] = MessageInflater::negotiated(extensions, &budget).unwrap();
    let readers = [WebSocket::client(MAX_FRAME_BYTES), WebSocket::server(MAX_FRAME_BYTES)];
    let [of_client, of_server] = readers;
    [of_client.with_inflater(client), of_server.with_inflater(server)]
}

#[test]
fn reads_compressed_messages_of_both_sides() {
    for (extensions, resets) in [
        ("permessage-deflate", false),
        ("permessage-deflate; client_no_context_takeover; server_no_context_takeover", true),
    ] {
        for (side, mask) in [(0, Some(MASK)), (1, None)] {
            let mut sender = Deflated::new();
            let mut bytes = Vec::new();
            for (number, text) in
                ["{\"a\":1}", "{\"a\":1}", "", "{\"a\":2}"].into_iter().enumerate()
            {
                if resets {
                    sender.0.reset();
                }
                let payload = sender.payload(text);
                let (first, second) = payload.split_at(number.min(payload.len()));
                bytes.extend(frame(0x41, first, mask));
                bytes.extend(frame(0x89, b"ping", mask));
                bytes.extend(frame(0x80, second, mask));
            }
            bytes.extend(frame(0x81, b"plain", mask));
            let reader = || {
                let [client, server] = inflating(extensions);
                if side == 0 { client } else { server }
            };
            let expected =
                ["text {\"a\":1}", "text {\"a\":1}", "text ", "text {\"a\":2}", "text plain"];
            assert_eq!(messages(reader, &bytes)[..5], expected, "{extensions} {side}");
        }
    }
}

#[test]
fn a_compressed_message_that_is_skipped_keeps_the_context() {
    let mut sender = Deflated::new();
    let text = "the same text in both messages";
    let bytes = [
        frame(0xc2, &sender.payload(text), None),
        frame(0xc1, &sender.payload(text), None),
        frame(0xc1, &sender.payload(&"x".repeat(MAX_FRAME_BYTES + 1)), None),
        frame(0xc1, &sender.payload(text), None),
        frame(0xe1, b"another extension", None),
    ];
    let [_, reader] = inflating("permessage-deflate");
    let text = format!("text {text}");
    let expected = ["Binary", &text, "error oversize", "Oversize", &text, "Compressed"];
    assert_eq!(cut(reader, &[&bytes.concat()]), expected);
}

#[test]
fn after_lost_bytes_compressed_messages_are_read_only_without_context() {
    let mut sender = Deflated::new();
    let first = frame(0xc1, &sender.payload(&"0123456789 lost words ".repeat(9)), None);
    sender.0.reset();
    let second = frame(0xc1, &sender.payload("next"), None);
    let bytes = [first, second].concat();
    let read = |extensions| {
        let [_, reader] = inflating(extensions);
        lossy(reader, &bytes, 10, 15)
    };
    assert_eq!(read("permessage-deflate"), ["Lost", "Compressed"]);
    assert_eq!(read("permessage-deflate; server_no_context_takeover"), ["Lost", "text next"]);
}
