use std::collections::VecDeque;
use std::convert::Infallible;

use http::HeaderMap;

use super::*;
use crate::tee::ObservationChannel;
use crate::tee::tests::{channel, events, open, open_with};
use tokengauge_types::event::ObserverEvent;

/// Returns scripted frames, then stays pending.
#[derive(Debug, Default)]
struct Scripted {
    frames: VecDeque<Option<Result<Frame<Bytes>, Infallible>>>,
    failing: bool,
    length: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
#[error("broke")]
struct Broke;

impl Scripted {
    fn frames<const N: usize>(texts: [&'static str; N]) -> Self {
        let frame = |text: &'static str| Some(Ok(Frame::data(Bytes::from_static(text.as_bytes()))));
        Self { frames: texts.map(frame).into(), ..Self::default() }
    }

    fn ending(mut self) -> Self {
        self.frames.push_back(None);
        self
    }

    fn with_length(mut self, length: u64) -> Self {
        self.length = Some(length);
        self
    }

    fn failing(mut self) -> Self {
        self.failing = true;
        self
    }

    fn with_trailers(mut self) -> Self {
        self.frames.push_back(Some(Ok(Frame::trailers(HeaderMap::new()))));
        self
    }
}

impl Body for Scripted {
    type Data = Bytes;
    type Error = Broke;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broke>>> {
        match self.frames.pop_front() {
            Some(Some(Ok(frame))) => {
                let taken = frame.data_ref().map_or(0, Bytes::len) as u64;
                self.length = self.length.map(|length| length - taken);
                Poll::Ready(Some(Ok(frame)))
            }
            Some(None) => Poll::Ready(None),
            Some(Some(Err(never))) => match never {},
            None if self.failing => Poll::Ready(Some(Err(Broke))),
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.length == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Polls until the body is pending or has ended.
fn exhaust(body: &mut (impl Body<Data = Bytes> + Unpin)) {
    let mut cx = Context::from_waker(std::task::Waker::noop());
    while let Poll::Ready(Some(Ok(_))) = Pin::new(&mut *body).poll_frame(&mut cx) {}
}

fn response(channel: &Arc<ObservationChannel>, body: Scripted) -> ResponseBody<Scripted> {
    ResponseBody::new(body, open(channel))
}

#[test]
fn response_ends_as_its_body_does() {
    let cases = [
        (Scripted::frames(["a"]).ending(), vec!["Response 1", "End(Complete)"]),
        (Scripted::frames(["ab"]).with_length(2), vec!["Response 2", "End(Complete)"]),
        (Scripted::frames([]).with_length(0), vec!["End(Complete)"]),
        (
            Scripted::frames(["a"]).with_trailers(),
            vec!["Response 1", "Trailers(Response)", "End(Complete)"],
        ),
        (Scripted::frames(["a"]).failing(), vec!["Response 1", "End(UpstreamFailed(MidBody))"]),
        (Scripted::frames(["a"]), vec!["Response 1", "End(ClientDisconnected)"]),
        (Scripted::frames(["a"]).with_length(2), vec!["Response 1", "End(ClientDisconnected)"]),
    ];
    for (body, expected) in cases {
        let script = format!("{body:?}");
        let channel = channel(1 << 20);
        let mut response = response(&channel, body);
        exhaust(&mut response);
        drop(response);
        assert_eq!(events(&channel).0, expected, "{script}");
    }
}

#[test]
fn unpolled_body_is_complete_if_it_is_empty() {
    let channel = channel(1 << 20);
    drop(response(&channel, Scripted::frames([]).with_length(0)));
    drop(response(&channel, Scripted::frames(["a"]).with_length(1)));
    assert_eq!(events(&channel).0, ["End(Complete)", "End(ClientDisconnected)"]);
}

#[test]
fn request_ends_with_its_last_byte_without_another_poll() {
    for (body, expected) in [
        (Scripted::frames(["ab"]).with_length(2), vec!["Request 2", "RequestBodySent"]),
        (Scripted::frames(["a"]).ending(), vec!["Request 1", "RequestBodySent"]),
        (Scripted::frames([]).with_trailers(), vec!["Trailers(Request)", "RequestBodySent"]),
        (Scripted::frames(["a"]), vec!["Request 1"]),
        (Scripted::frames(["a"]).failing(), vec!["Request 1", "End(RequestBodyFailed)"]),
    ] {
        let script = format!("{body:?}");
        let channel = channel(1 << 20);
        let observer = open(&channel);
        let mut request = RequestBody::new(body, observer.clone());
        exhaust(&mut request);
        drop(request);
        assert_eq!(events(&channel).0, expected, "{script}");
    }
}

#[test]
fn wrappers_forward_size_and_end() {
    let channel = channel(1 << 20);
    let request = RequestBody::new(Scripted::frames(["ab"]).with_length(2), open(&channel));
    assert_eq!(request.size_hint().exact(), Some(2));
    assert!(!request.is_end_stream());
    let mut response = response(&channel, Scripted::frames(["ab"]).with_length(2));
    assert_eq!(response.size_hint().exact(), Some(2));
    exhaust(&mut response);
    assert!(response.is_end_stream());
}

#[test]
fn reports_client_backpressure_with_the_next_frame() {
    let channel = channel(1 << 20);
    let body_wait = Arc::<tokengauge_types::event::BodyWaitState>::default();
    let observer = open_with(&channel, Arc::clone(&body_wait));
    let mut body = ResponseBody::new(Scripted::frames(["a", "b", "c"]), observer);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let mut poll = |body: &mut ResponseBody<Scripted>| {
        drop(Pin::new(body).poll_frame(&mut cx));
    };
    poll(&mut body);
    let (whom, since) = body_wait.waiting();
    assert_eq!(whom, WaitingFor::Client);
    while clock::now() - since < 2 * MIN_BACKPRESSURE {
        std::hint::spin_loop();
    }
    poll(&mut body);
    poll(&mut body);
    poll(&mut body);
    assert_eq!(body_wait.waiting().0, WaitingFor::Upstream, "the last poll was pending");
    let mut batch = crate::tee::Batch::default();
    channel.drain(0, &mut batch);
    let blocked: Vec<bool> = batch
        .entries
        .iter()
        .filter_map(|entry| {
            let ObserverEvent::Body { blocked, .. } = entry.event else {
                return None;
            };
            Some(blocked.duration() >= 2 * MIN_BACKPRESSURE)
        })
        .collect();
    assert_eq!(blocked, [false, true, false]);
}
