//! The formats that OpenAI began and most others speak: chat completions, completions, embeddings.
//!
//! Each provider has habits of its own (where usage stands, where reasoning is, which fields are null, doubled or left
//! out). They are told by the message alone, never by who sent it: a proxy in front may hide that.

mod body;
mod chunk;
mod repair;
mod request;
mod stream;
mod tools;
mod usage;

pub use body::Body;
pub use request::Request;
pub use stream::Stream;

use super::Event;

/// The longest word that is taken for the kind of an error. Longer ones are sentences.
const LONGEST_KIND: usize = 64;

/// An error's kind, if it is an identifier and not a message.
fn identifier(kind: &str) -> Option<&str> {
    let short = kind.len() <= LONGEST_KIND;
    let word = kind.bytes().all(|byte| byte.is_ascii_graphic());
    (short && word && !kind.is_empty()).then_some(kind)
}

/// What every message of an answer repeats is said once.
#[derive(Debug, Default)]
struct Once {
    id: bool,
    model: bool,
    service_tier: bool,
    system_fingerprint: bool,
}

impl Once {
    fn started(&mut self, id: Option<&str>, model: Option<&str>, out: &mut impl FnMut(Event<'_>)) {
        let id = id.filter(|_| !self.id);
        let model = model.filter(|_| !self.model);
        self.id |= id.is_some();
        self.model |= model.is_some();
        if id.is_some() || model.is_some() {
            out(Event::Started { id, model });
        }
    }

    fn tier(
        &mut self,
        service_tier: Option<&str>,
        system_fingerprint: Option<&str>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        let service_tier = service_tier.filter(|_| !self.service_tier);
        let system_fingerprint = system_fingerprint.filter(|_| !self.system_fingerprint);
        self.service_tier |= service_tier.is_some();
        self.system_fingerprint |= system_fingerprint.is_some();
        if service_tier.is_some() || system_fingerprint.is_some() {
            out(Event::Tier {
                service_tier,
                system_fingerprint,
            });
        }
    }
}

#[cfg(test)]
mod tests;
