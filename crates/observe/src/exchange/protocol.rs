//! What an exchange is: plain HTTP, a call of an API, a request of the Model Context Protocol, or a WebSocket.

use crate::api_call::ApiCall;
use crate::mcp::McpExchange;
use crate::websocket::{Turns, WebSocketSession};
use tokengauge_measure::timing::LiveSample;
use tokengauge_types::event::Direction;

/// What an exchange is, according to the data received so far.
#[derive(Debug)]
pub(super) enum Protocol {
    Plain,
    Call(Box<ApiCall>),
    /// Messages of the Model Context Protocol, unless the body shows that it is plain HTTP.
    Mcp(Box<McpExchange>),
    /// An upgraded connection.
    WebSocket(Box<WebSocketExchange>),
}

#[derive(Debug)]
pub(super) struct WebSocketExchange {
    pub(super) session: WebSocketSession,
    pub(super) messages: Messages,
}

/// What the messages of a WebSocket are.
#[derive(Debug)]
pub(super) enum Messages {
    Unknown,
    /// Events of one call, which lasts as long as the WebSocket.
    Session(Box<ApiCall>),
    /// Requests and responses, each pair a call of its own.
    Turns(Turns),
}

impl Protocol {
    /// The call, also if it is a session in a WebSocket.
    #[inline]
    pub(super) fn call(&self) -> Option<&ApiCall> {
        match self {
            Self::Plain | Self::Mcp(_) => None,
            Self::Call(call) => Some(call),
            Self::WebSocket(socket) => match &socket.messages {
                Messages::Session(call) => Some(call),
                Messages::Unknown | Messages::Turns(_) => None,
            },
        }
    }

    #[inline]
    pub(super) fn call_mut(&mut self) -> Option<&mut ApiCall> {
        match self {
            Self::Plain | Self::Mcp(_) => None,
            Self::Call(call) => Some(call),
            Self::WebSocket(socket) => match &mut socket.messages {
                Messages::Session(call) => Some(call),
                Messages::Unknown | Messages::Turns(_) => None,
            },
        }
    }

    #[inline]
    pub(super) fn turns_mut(&mut self) -> Option<&mut Turns> {
        match self {
            Self::Plain | Self::Call(_) | Self::Mcp(_) => None,
            Self::WebSocket(socket) => match &mut socket.messages {
                Messages::Turns(turns) => Some(turns),
                Messages::Unknown | Messages::Session(_) => None,
            },
        }
    }

    /// Removes the call. The rest is plain HTTP, or a WebSocket with unknown messages.
    pub(super) fn take_call(&mut self) -> Option<Box<ApiCall>> {
        self.call()?;
        match self {
            Self::Plain | Self::Mcp(_) => None,
            Self::Call(_) => match std::mem::replace(self, Self::Plain) {
                Self::Call(call) => Some(call),
                Self::Plain | Self::Mcp(_) | Self::WebSocket(_) => None,
            },
            Self::WebSocket(socket) => {
                match std::mem::replace(&mut socket.messages, Messages::Unknown) {
                    Messages::Session(call) => Some(call),
                    Messages::Unknown | Messages::Turns(_) => None,
                }
            }
        }
    }

    /// Removes the call if `is_wrong` says so.
    pub(super) fn take_call_if(&mut self, is_wrong: impl FnOnce(&mut ApiCall) -> bool) {
        if self.call_mut().is_some_and(is_wrong) {
            self.take_call();
        }
    }
}

impl WebSocketExchange {
    /// Parses bytes of one direction. Returns `false` if a part of them was not parsed because of the memory budget.
    pub(super) fn push(
        &mut self,
        direction: Direction,
        bytes: &[u8],
        out: &mut impl FnMut(LiveSample),
    ) -> bool {
        let Self { session, messages } = self;
        session.push(direction, bytes, &mut |text| match messages {
            Messages::Unknown => {}
            Messages::Session(call) => call.message(direction, text, out),
            Messages::Turns(turns) => turns.message(direction, text),
        })
    }

    pub(super) fn gap(&mut self, direction: Direction, bytes: u64) {
        self.session.gap(direction, bytes);
        if let Messages::Turns(turns) = &mut self.messages {
            turns.gap(direction, bytes);
        }
    }
}
