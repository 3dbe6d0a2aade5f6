//! Answers on their way out: bodies that write each piece when it is due, and enter what was sent into the ledger.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::ledger::{Ended, Tally};
use crate::pace::Pace;
use crate::script::{Beat, Script};
use crate::voice::{self, Voice};
use tokengauge_types::clock::{self, MonotonicInstant};

/// The body of a response.
#[derive(Debug)]
pub enum Answer {
    Whole(Box<Whole>),
    Stream(Box<Stream>),
}

type Polled = Poll<Option<Result<Frame<Bytes>, Broken>>>;

/// The connection is to break here.
#[derive(Debug, thiserror::Error)]
#[error("broken off as the simulation was told to")]
pub struct Broken;

impl Body for Answer {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.get_mut() {
            Self::Whole(whole) => whole.poll(cx),
            Self::Stream(stream) => stream.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.bytes.is_none() && !whole.cut,
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) => {
                SizeHint::with_exact(whole.bytes.as_ref().map_or(0, |it| it.len() as u64))
            }
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// An answer in one body: a whole completion, embeddings, a list, an error.
#[derive(Debug)]
pub struct Whole {
    bytes: Option<Bytes>,
    /// Whether the connection breaks in the middle.
    cut: bool,
    flushed: bool,
    /// What is entered once it is handed out.
    tokens: u64,
    ended: Ended,
    tally: Option<Tally>,
}

impl Whole {
    /// A body that nothing has to be known of afterwards.
    pub const fn plain(bytes: Bytes) -> Self {
        Self {
            bytes: Some(bytes),
            cut: false,
            flushed: false,
            tokens: 0,
            ended: Ended::Complete,
            tally: None,
        }
    }

    /// A body that was generated; `tokens` are those of its text.
    pub fn generated(bytes: Bytes, tokens: u64, tally: Tally) -> Self {
        Self { tokens, tally: Some(tally), ..Self::plain(bytes) }
    }

    pub fn failed(bytes: Bytes, status: u16, tally: Tally) -> Self {
        Self { ended: Ended::Failed(status), ..Self::generated(bytes, 0, tally) }
    }

    /// Breaks off after half of the body. What is entered as sent is then an upper bound.
    pub fn cut(mut self) -> Self {
        self.cut = true;
        self.ended = Ended::Cut;
        self
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Polled {
        let Some(mut bytes) = self.bytes.take() else {
            return self.poll_end(cx);
        };
        if let Some(tally) = &mut self.tally {
            tally.entry.ended = self.ended;
            tally.entry.tokens = self.tokens;
            if self.tokens > 0 {
                tally.token();
            }
        }
        if self.cut {
            bytes.truncate(bytes.len() / 2);
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    /// The half that came before a break must reach the socket: hyper flushes when its body is pending.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Polled {
        if !self.cut {
            return Poll::Ready(None);
        }
        if std::mem::replace(&mut self.flushed, true) {
            self.cut = false;
            return Poll::Ready(Some(Err(Broken)));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// A streamed answer.
#[derive(Debug)]
pub struct Stream {
    script: Script,
    voice: Voice,
    pace: Pace,
    faults: Faults,
    tally: Tally,
    /// Index of the beat that comes next.
    next: usize,
    /// When it is due, once that is known.
    due: Option<MonotonicInstant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// When something was sent last, for pings.
    quiet_since: MonotonicInstant,
    /// Whether a frame was handed out that the connection has not been given the time to flush.
    unflushed: bool,
}

/// What disturbs a stream beside its pace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Breaks off after so many tokens.
    pub cut: Option<u32>,
    /// Sends a comment this often while nothing else is sent.
    pub ping: Option<Duration>,
}

/// What to do once a wait is over.
enum Turn {
    Beat,
    Ping,
}

impl Stream {
    pub fn new(script: Script, voice: Voice, pace: Pace, faults: Faults, tally: Tally) -> Self {
        Self {
            script,
            voice,
            pace,
            faults,
            tally,
            next: 0,
            due: None,
            timer: None,
            quiet_since: clock::now(),
            unflushed: false,
        }
    }

    /// Hyper flushes when its body is pending. Being so once after every frame makes each chunk a write of its own,
    /// also when the next one is due already.
    fn poll(&mut self, cx: &mut Context<'_>) -> Polled {
        if std::mem::take(&mut self.unflushed) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(&beat) = self.script.beats.get(self.next) else {
            return Poll::Ready(None);
        };
        let breaks = matches!(beat, Beat::Piece { .. } | Beat::Finish { .. })
            && self.faults.cut.is_some_and(|after| self.steps_before(beat) >= after);
        let turn = ready!(self.poll_due(beat, cx));
        let bytes = match turn {
            Turn::Ping => Bytes::from_static(voice::PING),
            Turn::Beat if breaks => {
                self.tally.entry.ended = Ended::Cut;
                self.next = usize::MAX;
                return Poll::Ready(Some(Err(Broken)));
            }
            Turn::Beat => {
                self.next += 1;
                self.due = None;
                self.play(beat)
            }
        };
        self.quiet_since = clock::now();
        self.unflushed = true;
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    /// Decode steps before `beat`, whether or not its due time has been fixed.
    const fn steps_before(&self, beat: Beat) -> u32 {
        match (beat, self.due) {
            (Beat::Piece { steps, .. }, Some(_)) => self.pace.steps() - steps,
            _ => self.pace.steps(),
        }
    }

    fn poll_due(&mut self, beat: Beat, cx: &mut Context<'_>) -> Poll<Turn> {
        let Beat::Piece { steps, .. } = beat else {
            return Poll::Ready(Turn::Beat);
        };
        let due = *self.due.get_or_insert_with(|| self.pace.next(steps));
        loop {
            let now = clock::now();
            if now >= due {
                return Poll::Ready(Turn::Beat);
            }
            let ping = self.faults.ping.map(|every| self.quiet_since + every);
            if ping.is_some_and(|ping| now >= ping) {
                return Poll::Ready(Turn::Ping);
            }
            let wait = ping.map_or(due, |ping| ping.min(due)).since(now);
            let deadline = Instant::now() + wait;
            let timer =
                self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            timer.as_mut().reset(deadline);
            ready!(timer.as_mut().poll(cx));
        }
    }

    fn play(&mut self, beat: Beat) -> Bytes {
        match beat {
            Beat::Role { choice } => self.voice.role(choice),
            Beat::ToolHead { choice } => {
                let name = self.script.tool.as_deref().unwrap_or_default();
                self.voice.tool_head(choice, name)
            }
            Beat::Piece { part, end, .. } => {
                let Some(part) = self.script.parts.get_mut(part as usize) else {
                    return Bytes::new();
                };
                let (choice, kind) = (part.choice, part.kind);
                let bytes = self.voice.piece(choice, kind, part.take(end));
                self.tally.token();
                bytes
            }
            Beat::Finish { choice } => self.voice.finish(choice, self.script.finish),
            Beat::Usage => {
                let usage = self.script.usage();
                self.tally.entry.reported = Some(usage);
                self.voice.usage(usage)
            }
            Beat::Done => Bytes::from_static(voice::DONE),
        }
    }
}

/// Runs however the stream ends, so that every answer is entered once.
impl Drop for Stream {
    fn drop(&mut self) {
        self.tally.entry.tokens = self.script.sent_tokens();
        if self.next == self.script.beats.len() {
            self.tally.entry.ended = Ended::Complete;
        }
    }
}
