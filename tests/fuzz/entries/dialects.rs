//! Fuzzes the API formats.
//!
//! The events must be the same for every cut of a response, and no text may be empty. An error response must yield only
//! an error, and memory must not grow with the response.

use tokengauge_llm::budget::{Budget, RequestBudget};
use tokengauge_llm::dialect::{Api, Event, Family, Part, RequestFacts, ResponseReader, is_error};
use tokengauge_llm::frame::{Frame, Framer, MAX_FRAME_BYTES};
use tokengauge_types::label::Name;

use super::frames::CONTENT_TYPES;
use super::memory::{Meter, aside};
use super::messages::{Framed, flood};
use super::script::{Script, however_cut};

pub const STATUSES: [u16; 6] = [200, 200, 201, 400, 429, 503];

const MODELS: [Option<&str>; 6] = [
    None,
    Some("gpt-4o"),
    Some("anthropic.claude-3-haiku-20240307-v1:0"),
    Some("amazon.titan-text-express-v1"),
    Some("meta.llama3-8b-instruct-v1:0"),
    Some("cohere.command-r-v1:0"),
];

/// Number of repetitions of an endless response's messages that fill the tables of choices, tool calls and texts. Each
/// table has at most 1,024 entries.
const FILLING: usize = 1_100;

/// Maximum number of bytes that a reader may hold during a response. The most are the counts of 128 results.
const STATE: usize = 96 << 10;

/// Number of bytes by which a reader may grow after its tables are full, for the buffer of the last message.
const ROOM: usize = 512;

/// Maximum length in bytes of the messages of an endless response. More bytes would be slow and test nothing new.
const LONGEST: usize = 600;

/// Tests a response in any framing, of any API.
pub fn dialects(input: &[u8]) {
    let mut script = Script::new(input);
    let call = Call::parse(&mut script);
    let cuts = script.cuts();
    let body = call.framed.body(script.rest());
    let said = however_cut(&body, cuts, |pieces| call.said(pieces));
    let is_odd = |line: &&String| line.starts_with("ParseError(");
    let odd = said.iter().filter(is_odd).count();
    assert!(odd <= body.len() + 1, "more parse errors than bytes");
    if is_error(call.status) {
        // An error may arrive as a stream with an end marker.
        let known = |line: &&String| line.starts_with("Failed") || *line == "Done";
        let other = said.iter().find(|line| !known(line) && !is_odd(line));
        assert_eq!(other, None, "an error response has only errors");
    }
}

/// Tests that messages which a template of the previous message reads have the events that the format reads from them.
pub fn templates(input: &[u8]) {
    let mut script = Script::new(input);
    let call = Call::parse(&mut script);
    if call.api.family() == Family::Bedrock {
        // SageMaker messages contain another framer, which needs memory.
        return;
    }
    let body = call.framed.body(script.rest());
    // Without memory, no template is kept.
    let [parsed, by_template] = [0, MAX_FRAME_BYTES].map(|memory| {
        let mut reader = call.reader(&Budget::new(memory).request());
        let mut events = Vec::new();
        let mut framer = call.framer();
        framer.push(&body, &mut |frame| {
            reader.read(&frame, &mut |event| events.push(format!("{event:?}")));
        });
        events
    });
    assert_eq!(by_template, parsed);
}

/// Tests an endless response. The memory of the framer does not count.
pub fn floods(input: &[u8]) {
    let mut script = Script::new(input);
    let call = Call::parse(&mut script);
    let messages = script.rest();
    let messages = messages.get(..LONGEST).unwrap_or(messages);
    // SageMaker messages contain another framer.
    let framed_within = if call.api.family() == Family::Bedrock { MAX_FRAME_BYTES } else { 0 };
    let (mut framer, mut reader) = (call.framer(), call.reader(&RequestBudget::default()));
    let mut meter = Meter::default();
    let mut go_on = |rounds| {
        flood(messages, rounds, |messages| {
            framer.push(&call.framed.body(messages), &mut |frame| {
                meter.during(|| reader.read(&frame, &mut |_| {}));
            });
        });
        meter.held()
    };
    let filled = go_on(0..FILLING);
    let still = go_on(FILLING..2 * FILLING);
    let name = call.api.as_str();
    assert!(filled <= STATE + framed_within, "{name} holds {filled}");
    let most = filled + ROOM + framed_within;
    assert!(still <= most, "{name} holds {filled}, then {still}");
}

/// Properties of a response besides its body.
#[derive(Debug)]
struct Call {
    api: Api,
    status: u16,
    model: Option<Name>,
    content_type: Option<&'static str>,
    framed: Framed,
}

impl Call {
    fn parse(script: &mut Script<'_>) -> Self {
        Self {
            api: script.pick(Api::ALL),
            status: script.pick(&STATUSES),
            model: script.pick(&MODELS).and_then(Name::new),
            content_type: script.pick(&CONTENT_TYPES),
            framed: script.pick(&Framed::ALL),
        }
    }

    fn framer(&self) -> Framer {
        Framer::new(self.content_type, self.api.json())
    }

    fn reader(&self, budget: &RequestBudget) -> ResponseReader {
        // If the script sets a model, the request also asks for the prompt before the generated text.
        let asked = RequestFacts {
            model: self.model.clone(),
            echo: self.model.is_some().then_some(true),
            prompt_bytes: 3,
            ..RequestFacts::default()
        };
        ResponseReader::new(self.api, &asked, self.status, budget)
    }

    /// Returns the events of a response whose body arrives in these pieces. Adjacent texts of one part are joined.
    fn said(&self, pieces: &[&[u8]]) -> Vec<String> {
        let (mut framer, mut reader) = (self.framer(), self.reader(&RequestBudget::default()));
        let mut meter = Meter::default();
        let mut said = Said::default();
        let mut read = |frame: Frame<'_>| {
            reader.read(&frame, &mut |event| aside(|| said.note(&event)));
        };
        for piece in pieces {
            meter.during(|| framer.push(piece, &mut read));
            meter.assert_holds_at_most(MAX_FRAME_BYTES + STATE, self.api.as_str());
        }
        framer.finish(&mut read);
        said.finish()
    }
}

/// Events as lines.
#[derive(Default)]
pub struct Said {
    lines: Vec<String>,
    open: Option<(u32, Part, String)>,
}

impl Said {
    pub fn note(&mut self, event: &Event<'_>) {
        if let Event::Text { choice, part, text } = event {
            assert!(!text.is_empty(), "a text event is empty");
            match &mut self.open {
                Some((known, of, joined)) if (*known, *of) == (*choice, *part) => {
                    joined.push_str(text);
                }
                _ => {
                    self.close();
                    self.open = Some((*choice, *part, (*text).to_owned()));
                }
            }
            return;
        }
        self.close();
        self.lines.push(format!("{event:?}"));
    }

    pub fn finish(mut self) -> Vec<String> {
        self.close();
        self.lines
    }

    fn close(&mut self) {
        if let Some((choice, part, text)) = self.open.take() {
            self.lines.push(format!("{choice} {part:?} {text:?}"));
        }
    }
}
