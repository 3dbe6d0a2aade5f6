//! The response body of a gRPC call. Reading it reads the request body: both directions of a call are one task, and no
//! queue lies between them.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame};
use prost::Message as _;

use crate::access_log::AccessLog;
use crate::frames::{self, Message, MessageBudget, MessageReader};
use crate::processor::{Closed, Flow, Processor};
use crate::proto::{ProcessingRequest, StreamAccessLogsMessage};
use tokengauge_listen::{BodyError, ReceivedBody};
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::event::TimedResponse;

/// The status codes of gRPC that the service uses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum GrpcStatus {
    Ok = 0,
    InvalidArgument = 3,
    Unimplemented = 12,
}

impl GrpcStatus {
    fn trailers(self) -> HeaderMap {
        let code = HeaderValue::from_static(match self {
            Self::Ok => "0",
            Self::InvalidArgument => "3",
            Self::Unimplemented => "12",
        });
        HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), code)])
    }
}

/// The called method, with its state.
pub enum Call {
    Process(Box<Processor>),
    /// The future completes when the stream has to end because of a drain.
    AccessLog(AccessLog, Pin<Box<dyn Future<Output = ()> + Send>>),
    Health {
        serving: bool,
    },
    Failed(GrpcStatus),
}

impl Call {
    /// Applies one message. Returns the status if the call is finished.
    fn apply(&mut self, message: Message, answers: &mut BytesMut) -> Option<GrpcStatus> {
        let at = clock::now();
        match (self, message) {
            (Self::Process(processor), Message::Received(content)) => {
                let Ok(message) = ProcessingRequest::decode(content) else {
                    return Some(GrpcStatus::InvalidArgument);
                };
                let flow = processor.apply(at, message, answers);
                (flow == Flow::Finished).then_some(GrpcStatus::Ok)
            }
            (Self::Process(processor), Message::Dropped(bytes)) => {
                processor.skip(bytes);
                None
            }
            (Self::AccessLog(log, _), Message::Received(content)) => {
                match StreamAccessLogsMessage::decode(content) {
                    Ok(message) => log.apply(at, message),
                    Err(_) => return Some(GrpcStatus::InvalidArgument),
                }
                None
            }
            (Self::Health { serving }, _) => {
                frames::write(&[8, if *serving { 1 } else { 2 }], answers);
                Some(GrpcStatus::Ok)
            }
            (Self::AccessLog(..), Message::Dropped(_)) | (Self::Failed(_), _) => None,
        }
    }

    fn close(&self, at: MonotonicInstant, closed: Closed) {
        if let Self::Process(processor) = self {
            processor.close(at, closed);
        }
    }

    /// Returns the status of a call that ends without a message.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Option<GrpcStatus> {
        match self {
            Self::AccessLog(_, drained) => {
                drained.as_mut().poll(cx).is_ready().then_some(GrpcStatus::Ok)
            }
            Self::Failed(status) => Some(*status),
            Self::Process(_) | Self::Health { .. } => None,
        }
    }
}

/// The two directions of a gRPC call.
#[derive(Debug)]
pub struct CallBody {
    incoming: ReceivedBody,
    reader: MessageReader,
    call: Call,
    answers: BytesMut,
    end: Option<GrpcStatus>,
    is_done: bool,
}

impl CallBody {
    pub fn new(incoming: ReceivedBody, call: Call, budget: MessageBudget) -> Self {
        let reader = MessageReader::new(budget);
        Self { incoming, reader, call, answers: BytesMut::new(), end: None, is_done: false }
    }

    /// Applies all complete messages.
    fn apply_messages(&mut self) {
        while self.end.is_none() {
            match self.reader.next() {
                Ok(Some(message)) => self.end = self.call.apply(message, &mut self.answers),
                Ok(None) => return,
                Err(frames::Malformed) => self.end = Some(GrpcStatus::Unimplemented),
            }
        }
    }

    fn read(&mut self, frame: Option<Result<Frame<Bytes>, BodyError>>) {
        match frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.reader.push(data);
                    self.apply_messages();
                }
            }
            Some(Err(_)) => {
                self.call.close(clock::now(), Closed::Lost);
                self.end = Some(GrpcStatus::Ok);
            }
            None => {
                self.call.close(clock::now(), Closed::ByEnvoy);
                self.end = Some(GrpcStatus::Ok);
            }
        }
    }
}

impl Body for CallBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        loop {
            if !this.answers.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(this.answers.split().freeze()))));
            }
            if this.is_done {
                return Poll::Ready(None);
            }
            this.end = this.end.or_else(|| this.call.poll_end(cx));
            if let Some(status) = this.end {
                this.is_done = true;
                this.call.close(clock::now(), Closed::Lost);
                return Poll::Ready(Some(Ok(Frame::trailers(status.trailers()))));
            }
            match Pin::new(&mut this.incoming).poll_frame(cx) {
                Poll::Ready(frame) => this.read(frame),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_done
    }
}

/// Envoy resets the stream, or its connection is lost, while hyper does not read the body.
impl Drop for CallBody {
    fn drop(&mut self) {
        self.call.close(clock::now(), Closed::Lost);
    }
}

impl TimedResponse for CallBody {}

/// Omits the future.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(processor) => f.debug_tuple("Process").field(processor).finish(),
            Self::AccessLog(log, _) => {
                f.debug_tuple("AccessLog").field(log).finish_non_exhaustive()
            }
            Self::Health { serving } => f.debug_struct("Health").field("serving", serving).finish(),
            Self::Failed(status) => f.debug_tuple("Failed").field(status).finish(),
        }
    }
}
