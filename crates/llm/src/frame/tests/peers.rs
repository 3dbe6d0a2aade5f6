//! Compares the framers with other implementations of the formats, on generated bodies.
//!
//! eventsource-stream follows the HTML standard with three departures, which the generated bodies avoid. It requires
//! UTF-8, it panics at a byte order mark, and it holds back a line that ends in CR until the next byte.
//! aws-smithy-eventstream is the parser of AWS's own SDK.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use aws_smithy_eventstream::frame::{DecodedFrame, MessageFrameDecoder, write_message_to};
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
use bytes::{Bytes, BytesMut};
use eventsource_stream::EventStream;
use futures_core::Stream;

use super::*;

/// The name and the data of an event.
type Read = (Vec<u8>, Vec<u8>);

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![prop::collection::vec(1..9_usize, 1..8), prop::collection::vec(1..400_usize, 1..4),]
}

/// Returns the events that this crate's framer reads, and whether it reported a parse error.
fn ours(mut framer: Framer, pieces: &[&[u8]]) -> (Vec<Read>, bool) {
    let mut events = Vec::new();
    let mut odd = false;
    let mut out = |frame: Frame<'_>| match frame {
        Frame::Event { name, data } => events.push((name.to_vec(), data.to_vec())),
        Frame::ParseError(_) => odd = true,
        Frame::BareJson(_) => {}
        Frame::Exception { .. } | Frame::BodyChunk(_) | Frame::BodyEnd => panic!("{frame:?}"),
    };
    for piece in pieces {
        framer.push(piece, &mut out);
    }
    framer.finish(&mut out);
    (events, odd)
}

/// Body pieces that are all available at once.
struct Pieces<'a>(VecDeque<&'a [u8]>);

impl<'a> Stream for Pieces<'a> {
    type Item = Result<&'a [u8], Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

fn eventsource_stream(pieces: &[&[u8]]) -> Vec<Read> {
    let mut stream = pin!(EventStream::new(Pieces(pieces.iter().copied().collect())));
    let mut context = Context::from_waker(Waker::noop());
    let mut events = Vec::new();
    while let Poll::Ready(Some(event)) = stream.as_mut().poll_next(&mut context) {
        let event = event.unwrap();
        events.push((event.event.into_bytes(), event.data.into_bytes()));
    }
    events
}

/// Generates a body whose lines are fields, comments, blank, or outside the format.
fn events() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        12 => Just("data"),
        4 => Just("event"),
        1 => Just("id"),
        1 => Just("retry"),
        1 => Just(""),
        1 => Just("{\"data\""),
        1 => Just("Data"),
        1 => Just("data\u{FEFF}"),
    ];
    let colon = prop::sample::select(vec![":", ": ", ":  ", "", ": :"]);
    let value = prop_oneof![
        4 => "[ -~]{0,12}",
        2 => "[a-zé漢🦀\u{0}\u{B}\u{2028}:\t]{0,6}",
        1 => "[0-9]{1,4}",
    ];
    let field =
        (name, colon, value).prop_map(|(name, colon, value)| format!("{name}{colon}{value}"));
    let line = prop_oneof![3 => field, 2 => Just(String::new())];
    let end = prop::sample::select(vec!["\n", "\r\n", "\r"]);
    prop::collection::vec((line, end), 0..30)
        .prop_map(|lines| lines.into_iter().map(|(line, end)| line + end).collect())
}

proptest! {
    #[test]
    fn eventsource_stream_reads_the_same_events(body in events(), sizes in sizes()) {
        // Adds a blank line at the end. Without it, this parser emits the last event and the peer does not.
        let body = format!("{body}\n\n");
        let pieces = pieces(body.as_bytes(), &sizes);
        let (mut events, odd) = ours(Framer::Sse(Sse::new(MAX_FRAME_BYTES)), &pieces);
        for (name, _) in &mut events {
            // The standard names such an event `message`.
            if name.is_empty() {
                *name = b"message".to_vec();
            }
        }
        prop_assert_eq!(events, eventsource_stream(&pieces));
        prop_assert!(!odd);
    }
}

/// Returns the messages that the AWS parser reads, up to the first one that it rejects.
fn smithy(pieces: &[&[u8]]) -> Vec<Message> {
    let mut decoder = MessageFrameDecoder::new();
    let mut buffer = BytesMut::new();
    let mut messages = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.decode_frame(&mut buffer) {
                Ok(DecodedFrame::Complete(message)) => messages.push(message),
                Ok(DecodedFrame::Incomplete) => break,
                Err(_) => return messages,
            }
        }
    }
    messages
}

fn event_of(message: &Message) -> Read {
    let name =
        message.headers().iter().rev().find(|header| header.name().as_str() == ":event-type");
    let name = name.map_or("", |header| header.value().as_string().unwrap().as_str());
    (name.as_bytes().to_vec(), message.payload().to_vec())
}

fn header_value() -> impl Strategy<Value = HeaderValue> {
    prop_oneof![
        any::<bool>().prop_map(HeaderValue::Bool),
        any::<i8>().prop_map(HeaderValue::Byte),
        any::<i16>().prop_map(HeaderValue::Int16),
        any::<i32>().prop_map(HeaderValue::Int32),
        any::<i64>().prop_map(HeaderValue::Int64),
        any::<u128>().prop_map(HeaderValue::Uuid),
        prop::collection::vec(any::<u8>(), 0..20)
            .prop_map(|bytes| HeaderValue::ByteArray(Bytes::from(bytes))),
        ".{0,20}".prop_map(|text| HeaderValue::String(text.into())),
        (-1_000_000_000..1_000_000_000_i64)
            .prop_map(|at| HeaderValue::Timestamp(aws_smithy_types::DateTime::from_secs(at))),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let other = ("[a-z-]{1,12}", header_value());
    let others = prop::collection::vec(other, 0..6);
    let name = prop::option::of("[a-zA-Z]{0,20}");
    let payload = prop::collection::vec(any::<u8>(), 0..300);
    (others, name, payload).prop_map(|(others, name, payload)| {
        let mut message = Message::new(Bytes::from(payload));
        for (name, value) in others {
            message = message.add_header(Header::new(name, value));
        }
        match name {
            Some(name) => {
                message.add_header(Header::new(":event-type", HeaderValue::String(name.into())))
            }
            None => message,
        }
    })
}

fn written(messages: &[Message]) -> Vec<u8> {
    let mut body = Vec::new();
    for message in messages {
        write_message_to(message, &mut body).unwrap();
    }
    body
}

proptest! {
    #[test]
    fn aws_reads_and_writes_the_same_messages(
        messages in prop::collection::vec(message(), 0..6),
        sizes in sizes(),
    ) {
        let body = written(&messages);
        let pieces = pieces(&body, &sizes);
        let (events, odd) = ours(Framer::AwsEventStream(AwsEventStream::new(MAX_FRAME_BYTES)), &pieces);
        prop_assert_eq!(&events, &messages.iter().map(event_of).collect::<Vec<_>>());
        prop_assert!(!odd);
        prop_assert_eq!(smithy(&pieces), messages);
    }

    #[test]
    fn aws_rejects_the_same_corruption_at_the_same_position(
        messages in prop::collection::vec(message(), 1..5),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
        sizes in sizes(),
    ) {
        let mut body = written(&messages);
        let at = at.index(body.len());
        body[at] ^= flip;
        let pieces = pieces(&body, &sizes);
        let (events, odd) = ours(Framer::AwsEventStream(AwsEventStream::new(MAX_FRAME_BYTES)), &pieces);
        let read = smithy(&pieces);
        prop_assert_eq!(&events, &read.iter().map(event_of).collect::<Vec<_>>());
        prop_assert!(odd && read.len() < messages.len());
    }

    #[test]
    fn aws_reads_messages_of_the_test_encoder(name in "[a-zA-Z]{0,20}", payload in ".{0,100}") {
        let messages = smithy(&[&encode::event(&name, &payload)]);
        let [message] = messages.as_slice() else { panic!("{messages:?}") };
        prop_assert_eq!(event_of(message), (name.into_bytes(), payload.into_bytes()));
    }
}
