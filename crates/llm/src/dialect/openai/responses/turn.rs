//! Turns of a Responses session over a WebSocket. The client begins each turn with a message that contains the request.
//! The messages of the server are those of a stream.

use serde::Deserialize;

use crate::dialect::lenient::{Count, Text};
use crate::dialect::repair;

/// What a message of a session means for its turns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TurnMessage {
    /// The client requests a response.
    Request,
    /// The first message of a response.
    First,
    /// The last message of a response. An error can have the HTTP status that the request would have had.
    Last {
        status: Option<u16>,
    },
    Other,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Typed<'a> {
    #[serde(rename = "type")]
    kind: Text<'a>,
    status: Count,
    /// The status in messages of Codex.
    status_code: Count,
}

impl TurnMessage {
    /// Reads a message of the client.
    pub fn from_client(data: &[u8]) -> Self {
        if read(data, |message| message.kind.0 == "response.create") == Some(true) {
            Self::Request
        } else {
            Self::Other
        }
    }

    /// Reads a message of the server.
    pub fn from_server(data: &[u8]) -> Self {
        let read = read(data, |message| match &*message.kind.0 {
            "response.created" => Self::First,
            "error" => Self::Last { status: message.status() },
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled"
            | "response.done" => Self::Last { status: None },
            _ => Self::Other,
        });
        read.unwrap_or(Self::Other)
    }
}

impl Typed<'_> {
    fn status(&self) -> Option<u16> {
        let status = u16::try_from(self.status.0.or(self.status_code.0)?).ok()?;
        (400..600).contains(&status).then_some(status)
    }
}

fn read<T>(data: &[u8], result: impl FnOnce(&Typed<'_>) -> T) -> Option<T> {
    let mut buffer = None;
    repair::read::<Typed<'_>>(data.trim_ascii(), &mut buffer).map(|(message, _)| result(&message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_type_wherever_it_is() {
        for text in [
            r#"{"type":"response.create","model":"gpt-5"}"#,
            r#" {"model":"gpt-5","type":"response.cr\u0065ate"}"#,
        ] {
            assert_eq!(TurnMessage::from_client(text.as_bytes()), TurnMessage::Request, "{text}");
        }
        for text in ["", "[]", "{}", r#"{"type":"response.append"}"#, r#"{"type":7}"#] {
            assert_eq!(TurnMessage::from_client(text.as_bytes()), TurnMessage::Other, "{text}");
        }
    }

    #[test]
    fn reads_the_end_and_the_status_of_an_error() {
        let of = |text: &str| TurnMessage::from_server(text.as_bytes());
        assert_eq!(of(r#"{"type":"response.created","response":{}}"#), TurnMessage::First);
        assert_eq!(of(r#"{"type":"response.in_progress"}"#), TurnMessage::Other);
        for kind in ["completed", "incomplete", "failed"] {
            let text = format!(r#"{{"type":"response.{kind}","response":{{"status":"{kind}"}}}}"#);
            assert_eq!(of(&text), TurnMessage::Last { status: None });
        }
        let error = |status: &str| of(&format!(r#"{{"type":"error",{status}"error":{{}}}}"#));
        assert_eq!(error(r#""status":429,"#), TurnMessage::Last { status: Some(429) });
        assert_eq!(error(r#""status_code":503,"#), TurnMessage::Last { status: Some(503) });
        for odd in ["", r#""status":200,"#, r#""status":70000,"#, r#""status":"failed","#] {
            assert_eq!(error(odd), TurnMessage::Last { status: None }, "{odd}");
        }
    }
}
