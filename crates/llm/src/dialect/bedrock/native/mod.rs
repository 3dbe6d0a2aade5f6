//! The formats of the models that Bedrock and SageMaker serve as they are: Titan, Llama, Mistral's completions, Cohere,
//! Jurassic, and that of the text generation server (TGI), which SageMaker's containers speak.

mod body;
mod chunk;

use chunk::{Chunk, Output};

use crate::dialect::failure::Failure;
use crate::dialect::lenient::List;
use crate::dialect::once::Once;
use crate::dialect::shapes::{Messages, Shapes, say};
use crate::dialect::{Event, Part, Usage};

/// Reads an answer in any of these formats.
pub type Response = Shapes<Stream, body::Message>;

#[derive(Debug, Default)]
pub struct Stream {
    once: Once,
    /// Whether anything came piece by piece: what comes whole at the end says the same again.
    spoken: bool,
    /// The same of tool calls.
    called: bool,
}

impl Messages for Stream {
    type Message<'a> = Chunk<'a>;

    fn message(&mut self, _name: &[u8], chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        self.once.started(chunk.generation_id.some(), None, out);
        self.texts(chunk, out);
        self.tools(chunk, out);
        let details = chunk.details.0.as_ref();
        let reason = chunk
            .completion_reason
            .some()
            .or(chunk.stop_reason.some())
            .or(chunk.finish_reason.some())
            .or(details.and_then(|details| details.finish_reason.some()));
        if let Some(reason) = reason {
            out(Event::Stopped { choice: choice(chunk), reason });
        }
        let usage = Usage {
            input: chunk.input_text_token_count.0.or(chunk.prompt_token_count.0),
            output: chunk
                .total_output_text_token_count
                .0
                .or(chunk.generation_token_count.0)
                .or(details.and_then(|details| details.generated_tokens.0)),
            ..Usage::default()
        };
        if usage != Usage::default() {
            out(Event::Usage(usage));
        }
    }

    fn error<'m>(chunk: &'m Chunk<'_>) -> &'m Failure<'m> {
        &chunk.error
    }
}

impl Stream {
    fn texts(&mut self, chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        let token = chunk.token.0.as_ref().filter(|token| !token.special.0);
        let pieces = [
            chunk.output_text.some(),
            chunk.generation.some(),
            chunk.text.some(),
            token.and_then(|token| token.text.some()),
        ];
        for text in pieces.into_iter().flatten() {
            self.spoken = true;
            say(Part::Text, choice(chunk), text, out);
        }
        self.spoken |= outputs(&chunk.outputs, out);
        if !self.spoken {
            outputs(&chunk.generations, out);
            say(Part::Text, 0, &chunk.generated_text.0, out);
        }
    }

    fn tools(&mut self, chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        if let Some(call) = &chunk.tool_call_delta.0 {
            self.called = true;
            let number = call.index.0.and_then(|index| u32::try_from(index).ok());
            let part = Part::Tool(number.unwrap_or(0));
            say(part, 0, &call.parameters.0, out);
        }
        for (number, call) in (0..).zip(chunk.tool_calls.iter()) {
            if !self.called {
                say(Part::Tool(number), 0, &call.parameters.0, out);
            }
        }
    }
}

/// Says what each of the choices has; whether that is any text.
fn outputs(outputs: &List<Output<'_>>, out: &mut impl FnMut(Event<'_>)) -> bool {
    let mut spoken = false;
    for (choice, output) in (0..).zip(outputs.iter()) {
        spoken |= output.text.some().is_some();
        say(Part::Text, choice, &output.text.0, out);
        let reason = output.stop_reason.some().or(output.finish_reason.some());
        if let Some(reason) = reason {
            out(Event::Stopped { choice, reason });
        }
    }
    spoken
}

/// Which of several choices a message is of. Where TGI has the same name, it numbers the tokens.
fn choice(chunk: &Chunk<'_>) -> u32 {
    let numbered = chunk.token.0.is_none();
    let index = chunk.index.0.filter(|_| numbered);
    index.and_then(|index| u32::try_from(index).ok()).unwrap_or(0)
}

#[cfg(test)]
pub fn keys() -> &'static [&'static str] {
    use crate::dialect::shapes::Body;
    body::Message::KEYS
}
