//! Provides the seeds (initial inputs) of each fuzz target.
//!
//! Some seeds are files in `tests/fuzz/seeds/TARGET/`: hostile inputs written by hand, and inputs that a fuzzer found.
//! The others are derived from the fixtures of whole exchanges.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use tokengauge_llm::dialect::Api;
use tokengauge_llm::frame::{Frame, Framer, JsonFraming};

use crate::entries::{CODINGS, CONTENT_TYPES, Framed, HEAD_STATUSES, JSON, STATUSES};
use crate::fixture::Fixture;

/// Shape of the fixtures whose bodies are compressed, and the number of bytes of each, which is enough for a few
/// blocks.
const CODED: (&str, usize) = ("stream", 600);

/// Number of bytes of a body that are used as text.
const TEXT: usize = 300;

/// An input and its origin.
#[derive(Debug)]
pub struct Seed {
    pub name: String,
    pub input: Vec<u8>,
}

/// Returns all seeds of one target.
pub fn for_target(target: &str) -> Vec<Seed> {
    // The target `board` uses the inputs of `exchange`.
    let folder = if target == "board" { "exchange" } else { target };
    let mut seeds = written(folder);
    for fixture in Fixture::all() {
        let name = fixture.name().replace('/', "-");
        for (index, input) in made(target, &fixture).into_iter().enumerate() {
            let name = format!("{name}-{index}");
            seeds.push(Seed { name, input });
        }
    }
    seeds
}

fn written(target: &str) -> Vec<Seed> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds");
    let Ok(entries) = fs::read_dir(folder.join(target)) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let seed = |file: PathBuf| Seed {
        name: file.file_name().unwrap().to_string_lossy().into_owned(),
        input: fs::read(&file).unwrap(),
    };
    files.into_iter().map(seed).collect()
}

/// Returns the target's inputs for the fixture, in pieces of ten and twenty bytes without losses.
fn made(target: &str, fixture: &Fixture) -> Vec<Vec<u8>> {
    let body = &fixture.body;
    let (shape, most) = CODED;
    let coded_from = (fixture.shape == shape).then(|| &body[..body.len().min(most)]);
    let framed = |kind: &str| fixture.framing() == Some(kind);
    let framer = |fits: bool| fits.then(|| [b"09C0", &body[..]].concat());
    match target {
        "sse" => framer(framed("server-sent events")).into_iter().collect(),
        "lines" => framer(framed("JSON lines")).into_iter().collect(),
        "elements" => framer(framed("a JSON array, streamed")).into_iter().collect(),
        "aws" => framer(framed("AWS event-stream")).into_iter().collect(),
        "sniffed" => {
            let json = fixture.detected().map_or(JsonFraming::Single, Api::json);
            let said = [content_type(fixture), pick(&JSON, &json)];
            vec![[&said, &b"9C0"[..], body].concat()]
        }
        "gzip" | "deflate" | "br" | "zstd" => {
            coded_from.map(|body| [b"9C", &coded(target, body)[..]].concat()).into_iter().collect()
        }
        "codings" => coded_from.map(twice).unwrap_or_default(),
        "dialects" => answers(fixture),
        "templates" => streamed(fixture).into_iter().collect(),
        "floods" => floods(fixture),
        "requests" => vec![request(fixture)],
        // The capture limit is 32 KiB in one input, which fits the whole request, and 16 bytes in the other.
        "content" => [b'?', b'4']
            .map(|kept| [&[api(fixture), kept, b'9', b'C'], &fixture.request[..]].concat())
            .to_vec(),
        "exchange" | "board" => ["", "gzip"].map(|coding| scene(fixture, coding)).to_vec(),
        "tokens" => vec![[b"013", &body[..body.len().min(TEXT)]].concat()],
        "websocket" | "realtime" | "traces" | "engines" | "manifests" => Vec::new(),
        other => panic!("no seeds from fixtures are defined for {other}"),
    }
}

/// Returns the byte that makes the script choose this element.
fn pick<T: PartialEq>(from: &[T], wanted: &T) -> u8 {
    let index = from.iter().position(|one| one == wanted).unwrap_or(0);
    b'0'.wrapping_add(u8::try_from(index).unwrap())
}

/// Returns the byte that makes the script choose the fixture's content type.
fn content_type(fixture: &Fixture) -> u8 {
    let wanted = fixture.header("content-type").map(essence);
    pick(&CONTENT_TYPES.map(|known| known.map(essence)), &wanted)
}

fn essence(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default()
}

fn api(fixture: &Fixture) -> u8 {
    let of_folder = |api: &&Api| api.as_str() == fixture.api;
    let api = Api::ALL.iter().find(of_folder).unwrap();
    pick(Api::ALL, api)
}

/// Returns the response unchanged, and its messages one per line, for another framing.
fn answers(fixture: &Fixture) -> Vec<Vec<u8>> {
    let call = |framed: Framed| {
        let status = pick(&STATUSES, &fixture.status);
        let framed = pick(&Framed::ALL, &framed);
        [api(fixture), status, b'0', content_type(fixture), framed]
    };
    let raw = [&call(Framed::Raw), &b"9C"[..], &fixture.body].concat();
    let messages = messages(fixture).map(|(framed, messages)| {
        let call = call(framed);
        [&call, &b"9C"[..], &messages].concat()
    });
    [raw].into_iter().chain(messages).collect()
}

/// Returns the messages of a stream, one per line, for the framing that the fixture has.
fn streamed(fixture: &Fixture) -> Option<Vec<u8>> {
    let (framed, messages) = messages(fixture)?;
    let framed = pick(&Framed::ALL, &framed);
    let call = [api(fixture), b'0', b'0', content_type(fixture), framed];
    Some([&call, &messages[..]].concat())
}

/// Returns a stream's messages, a few at a time, with a placeholder for the round's number in place of each digit.
fn floods(fixture: &Fixture) -> Vec<Vec<u8>> {
    let Some((framed, messages)) = messages(fixture) else {
        return Vec::new();
    };
    let framed = pick(&Framed::ALL, &framed);
    let call = [api(fixture), b'0', b'0', content_type(fixture), framed];
    let numbered = |byte: &u8| if byte.is_ascii_digit() { b'#' } else { *byte };
    let messages: Vec<u8> = messages.iter().map(numbered).collect();
    let lines: Vec<&[u8]> = messages.split(|byte| *byte == b'\n').collect();
    let few = lines.chunks(3);
    few.map(|few| [&call, &few.join(&b'\n')[..]].concat()).collect()
}

/// Returns the messages of a stream, one on each line, each with its name in front.
fn messages(fixture: &Fixture) -> Option<(Framed, Vec<u8>)> {
    let json = fixture.detected()?.json();
    let mut framer = Framer::new(fixture.header("content-type"), json);
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let mut line = |frame: Frame<'_>| {
        if let Frame::Event { name, data } = frame {
            let name = if name.is_empty() { Vec::new() } else { [name, b" "].concat() };
            lines.push([&name, data].concat());
        }
    };
    framer.push(&fixture.body, &mut line);
    framer.finish(&mut line);
    let framed = match framer {
        Framer::Sse(_) => Framed::Sse,
        Framer::JsonArray(_) => Framed::Elements,
        Framer::AwsEventStream(_) => Framed::Aws,
        Framer::JsonLines(_) => Framed::Raw,
        Framer::Unknown(_) | Framer::SingleMessage(_) => return None,
    };
    Some((framed, lines.join(&b'\n')))
}

fn request(fixture: &Fixture) -> Vec<u8> {
    let path = u8::try_from(fixture.path.len()).unwrap();
    // The script selects the API by the path, leaves streaming open, lets the body decide, and loses no bytes.
    let found = [&[b'1', api(fixture), b'0', path], fixture.path.as_bytes()].concat();
    [&found, &b"10"[..], b"0", b"9C", &fixture.request].concat()
}

/// Returns the whole exchange as a script with a fixed delay between events.
fn scene(fixture: &Fixture, coding: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    let kind = fixture.header("content-type").unwrap_or_default();
    let mut scene = b"9C00".to_vec();
    scene.push(if fixture.method == http::Method::GET { b'1' } else { b'0' });
    scene.extend(b"0");
    scene.push(b'0' + u8::from(fixture.api.starts_with("anthropic")));
    scene.push(length(&fixture.path));
    scene.extend(fixture.path.as_bytes());
    scene.push(0);
    scene.extend(b"a\0s\x01");
    arrivals(&mut scene, b'q', &fixture.request);
    scene.extend(b"r\x02h\x30");
    scene.push(pick(&HEAD_STATUSES, &fixture.status));
    scene.extend([b'0', length(kind)]);
    scene.extend(kind.as_bytes());
    scene.push(pick(&CODINGS, &coding));
    scene.extend(b"00\0");
    arrivals(&mut scene, b'R', &coded(coding, &fixture.body));
    scene
}

/// Adds arrivals of 400 bytes, each 50 ms after the previous one.
fn arrivals(scene: &mut Vec<u8>, letter: u8, bytes: &[u8]) {
    for piece in bytes.chunks(400) {
        scene.extend([letter, 50, b'0']);
        scene.extend(u16::try_from(piece.len()).unwrap().to_be_bytes());
        scene.extend(piece);
    }
}

fn twice(body: &[u8]) -> Vec<Vec<u8>> {
    let inner = coded("gzip", body);
    let headers = [("br", b"042"), ("zstd", b"043"), ("deflate", b"041")];
    let coded =
        |(outer, header): (&str, &[u8; 3])| [header, &b"9C"[..], &coded(outer, &inner)].concat();
    headers.into_iter().map(coded).collect()
}

fn coded(coding: &str, body: &[u8]) -> Vec<u8> {
    let best = flate2::Compression::default();
    match coding {
        "gzip" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), best);
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
        "deflate" => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), best);
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
        "br" => {
            let mut coded = Vec::new();
            let params = brotli::enc::BrotliEncoderParams::default();
            brotli::BrotliCompress(&mut &body[..], &mut coded, &params).unwrap();
            coded
        }
        "zstd" => {
            let mut coded = vec![0; zstd_safe::compress_bound(body.len())];
            let length = zstd_safe::compress(&mut coded[..], body, 3).unwrap();
            coded.truncate(length);
            coded
        }
        _ => body.to_vec(),
    }
}
