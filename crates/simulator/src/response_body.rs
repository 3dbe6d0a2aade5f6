//! Response bodies that write each chunk at its scheduled time, and record which data was sent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::chunk_template::{self, ChunkTemplate};
use crate::ledger::{EntryGuard, ResponseEnd};
use crate::schedule::TokenSchedule;
use crate::script::{Script, ScriptedWrite};
use tokengauge_types::clock::{self, MonotonicInstant};

#[derive(Debug)]
pub enum ResponseBody {
    FullBody(Box<FullBody>),
    StreamBody(Box<StreamBody>),
}

type FramePoll = Poll<Option<Result<Frame<Bytes>, ConnectionCut>>>;

/// Error that makes hyper break the connection.
#[derive(Debug, thiserror::Error)]
#[error("connection cut on purpose by the simulator")]
pub struct ConnectionCut;

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ConnectionCut;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> FramePoll {
        match self.get_mut() {
            Self::FullBody(body) => body.poll(cx),
            Self::StreamBody(stream) => stream.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::FullBody(body) => body.bytes.is_none() && !body.cut,
            Self::StreamBody(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::FullBody(body) => {
                SizeHint::with_exact(body.bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
            Self::StreamBody(_) => SizeHint::default(),
        }
    }
}

/// A response body that is sent in one piece: a completion, embeddings, a list or an error.
#[derive(Debug)]
pub struct FullBody {
    bytes: Option<Bytes>,
    /// Whether to break the connection in the middle of the body.
    cut: bool,
    flushed: bool,
    /// Number of tokens to record when the body is written to the connection.
    tokens: u64,
    ended: ResponseEnd,
    guard: Option<EntryGuard>,
}

impl FullBody {
    /// Creates a body for a response that is not recorded in the ledger.
    pub const fn plain(bytes: Bytes) -> Self {
        Self {
            bytes: Some(bytes),
            cut: false,
            flushed: false,
            tokens: 0,
            ended: ResponseEnd::Complete,
            guard: None,
        }
    }

    /// Creates a body with generated text of `tokens` tokens.
    pub fn generated(bytes: Bytes, tokens: u64, guard: EntryGuard) -> Self {
        Self { tokens, guard: Some(guard), ..Self::plain(bytes) }
    }

    pub fn failed(bytes: Bytes, status: u16, guard: EntryGuard) -> Self {
        Self { ended: ResponseEnd::Failed(status), ..Self::generated(bytes, 0, guard) }
    }

    /// Breaks the connection after half of the body. The recorded number of tokens still covers the whole text.
    pub fn cut(mut self) -> Self {
        self.cut = true;
        self.ended = ResponseEnd::Cut;
        self
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> FramePoll {
        let Some(mut bytes) = self.bytes.take() else { return self.poll_end(cx) };
        if let Some(guard) = &mut self.guard {
            guard.entry.ended = self.ended;
            guard.entry.tokens = self.tokens;
            if self.tokens > 0 {
                guard.token();
            }
        }
        if self.cut {
            bytes.truncate(bytes.len() / 2);
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    /// Ends the body. If the connection must break, first returns `Pending`, because hyper then writes the first half
    /// to the socket.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> FramePoll {
        if !self.cut {
            return Poll::Ready(None);
        }
        if std::mem::replace(&mut self.flushed, true) {
            self.cut = false;
            return Poll::Ready(Some(Err(ConnectionCut)));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[derive(Debug)]
pub struct StreamBody {
    script: Script,
    template: ChunkTemplate,
    schedule: TokenSchedule,
    /// Number of tokens before the connection breaks. `None` for a complete response.
    cut: Option<u32>,
    /// Interval of keep-alive comments while nothing else is sent.
    ping: Option<Duration>,
    guard: EntryGuard,
    /// Index of the next write in the script.
    next: usize,
    /// Scheduled time of the next write. `None` if it was not computed yet.
    due: Option<MonotonicInstant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Time of the last write. A keep-alive comment follows if nothing else is written for the time `ping`.
    quiet_since: MonotonicInstant,
    /// Whether the last frame may still be in hyper's buffer and must be flushed.
    unflushed: bool,
}

/// The write that is due when a wait ends.
enum NextWrite {
    ScriptedWrite,
    Ping,
}

impl StreamBody {
    pub fn new(
        script: Script,
        template: ChunkTemplate,
        schedule: TokenSchedule,
        (cut, ping): (Option<u32>, Option<Duration>),
        guard: EntryGuard,
    ) -> Self {
        Self {
            script,
            template,
            schedule,
            cut,
            ping,
            guard,
            next: 0,
            due: None,
            timer: None,
            quiet_since: clock::now(),
            unflushed: false,
        }
    }

    /// Returns the next frame. Then returns `Pending` once, so that hyper flushes its buffer. Every chunk is therefore
    /// a separate write, even if the next chunk is already due.
    fn poll(&mut self, cx: &mut Context<'_>) -> FramePoll {
        if std::mem::take(&mut self.unflushed) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(&write) = self.script.writes.get(self.next) else { return Poll::Ready(None) };
        let breaks = matches!(write, ScriptedWrite::Chunk { .. } | ScriptedWrite::Finish(_))
            && self.cut.is_some_and(|after| self.steps_before(write) >= after);
        let turn = ready!(self.poll_due(write, cx));
        let bytes = match turn {
            NextWrite::Ping => Bytes::from_static(chunk_template::PING),
            NextWrite::ScriptedWrite if breaks => {
                self.guard.entry.ended = ResponseEnd::Cut;
                self.next = usize::MAX;
                return Poll::Ready(Some(Err(ConnectionCut)));
            }
            NextWrite::ScriptedWrite => {
                self.next += 1;
                self.due = None;
                self.render(write)
            }
        };
        self.quiet_since = clock::now();
        self.unflushed = true;
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    /// Returns the number of decode steps before `write`. If the time of `write` is already scheduled, subtracts its
    /// own steps.
    const fn steps_before(&self, write: ScriptedWrite) -> u32 {
        match (write, self.due) {
            (ScriptedWrite::Chunk { steps, .. }, Some(_)) => self.schedule.steps() - steps,
            _ => self.schedule.steps(),
        }
    }

    fn poll_due(&mut self, write: ScriptedWrite, cx: &mut Context<'_>) -> Poll<NextWrite> {
        let ScriptedWrite::Chunk { steps, .. } = write else {
            return Poll::Ready(NextWrite::ScriptedWrite);
        };
        let due = *self.due.get_or_insert_with(|| self.schedule.next(steps));
        loop {
            let now = clock::now();
            if now >= due {
                return Poll::Ready(NextWrite::ScriptedWrite);
            }
            let ping = self.ping.map(|every| self.quiet_since + every);
            if ping.is_some_and(|ping| now >= ping) {
                return Poll::Ready(NextWrite::Ping);
            }
            let wait = ping.map_or(due, |ping| ping.min(due)).since(now);
            let deadline = Instant::now() + wait;
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            timer.as_mut().reset(deadline);
            ready!(timer.as_mut().poll(cx));
        }
    }

    fn render(&mut self, write: ScriptedWrite) -> Bytes {
        match write {
            ScriptedWrite::Role(choice) => self.template.role_chunk(choice),
            ScriptedWrite::ToolCallStart(choice) => {
                let name = self.script.tool.as_deref().unwrap_or_default();
                self.template.tool_call_chunk(choice, name)
            }
            ScriptedWrite::Chunk { part, end, .. } => {
                let Some(part) = self.script.parts.get_mut(part as usize) else {
                    return Bytes::new();
                };
                let (choice, kind) = (part.choice, part.kind);
                let bytes = self.template.text_chunk(choice, kind, part.take(end));
                self.guard.token();
                bytes
            }
            ScriptedWrite::Finish(choice) => self.template.finish_chunk(choice, self.script.finish),
            ScriptedWrite::Usage => {
                let usage = self.script.usage();
                self.guard.entry.reported = Some(usage);
                self.template.usage_chunk(usage)
            }
            ScriptedWrite::Done => Bytes::from_static(chunk_template::DONE),
        }
    }
}

/// Records the tokens and the result of the response in the ledger, when the stream ends for any reason.
impl Drop for StreamBody {
    fn drop(&mut self) {
        self.guard.entry.tokens = self.script.sent_tokens();
        if self.next == self.script.writes.len() {
            self.guard.entry.ended = ResponseEnd::Complete;
        }
    }
}
