//! Prints the events, the token counts and the reported usage of a recorded chat stream.
//!
//! ```sh
//! cargo run -p tokengauge-llm --example count_stream [FILE]
//! ```
//!
//! `FILE` holds the body of a streamed response of OpenAI's chat API. The default is `chat.sse` beside this file. For
//! the stream of another API, change the path of the request.

use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use tokengauge_llm::ResponseParser;
use tokengauge_llm::count::TokenDelta;
use tokengauge_llm::dialect::Event;

/// The stream to read if no file is given.
const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/chat.sse");

/// Bytes per read. The parser accepts pieces of any size, as a network delivers them.
const PIECE: usize = 512;

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args_os().nth(1).map_or_else(|| RECORDING.into(), PathBuf::from);
    count_stream(&mut File::open(file)?, &mut io::stdout().lock())
}

/// Parses `body` and prints each event and the summary to `out`.
pub fn count_stream(body: &mut impl Read, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let mut parser = ResponseParser::builder("/v1/chat/completions")
        .content_type("text/event-stream")
        .build()?;
    let mut lines = Vec::new();
    let mut piece = [0; PIECE];
    loop {
        let length = body.read(&mut piece)?;
        let Some(bytes) = piece.get(..length).filter(|bytes| !bytes.is_empty()) else { break };
        parser.push(bytes, |event, tokens| lines.push(describe(event, tokens)));
    }
    let summary = parser.finish(|event, tokens| lines.push(describe(event, tokens)));
    for line in lines {
        writeln!(out, "{line}")?;
    }
    let or_unknown = |count: Option<u64>| count.map_or("unknown".to_owned(), |it| it.to_string());
    let usage = summary.usage.unwrap_or_default();
    writeln!(out, "model: {}", summary.model.as_ref().map_or("unknown", |it| it.as_str()))?;
    for (kind, tokens) in summary.tokens_by_kind() {
        writeln!(out, "counted {} tokens: {tokens} ({})", kind.as_str(), summary.tokenizer)?;
    }
    writeln!(out, "reported input tokens: {}", or_unknown(usage.input))?;
    writeln!(out, "reported output tokens: {}", or_unknown(usage.output))?;
    for (choice, reason) in &summary.finish_reasons {
        writeln!(out, "finish reason of choice {choice}: {reason}")?;
    }
    writeln!(out, "complete: {}", summary.is_complete)?;
    Ok(())
}

fn describe(event: &Event<'_>, tokens: TokenDelta) -> String {
    match event {
        Event::Text { part, text, .. } => {
            format!("{} {text:?}: +{} tokens", part.kind().as_str(), tokens.native)
        }
        Event::Usage(usage) => format!("usage: input {:?}, output {:?}", usage.input, usage.output),
        Event::Started { .. }
        | Event::Call { .. }
        | Event::Stopped { .. }
        | Event::Failed { .. }
        | Event::Tier { .. }
        | Event::Timings(_)
        | Event::Compacted
        | Event::Answered
        | Event::Done
        | Event::ParseError(_) => format!("{event:?}"),
    }
}
