use std::collections::VecDeque;
use std::convert::Infallible;

use http::HeaderMap;

use super::super::tests::{channel, open, open_with, said};
use super::*;
use crate::tee::ObservationChannel;
use tokengauge_types::event::ObserverEvent;

/// Gives what it was told to; pending once that is used up, unless it was told to end.
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
    fn of<const N: usize>(texts: [&'static str; N]) -> Self {
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

/// Polls until nothing comes any more.
fn exhaust(body: &mut (impl Body<Data = Bytes> + Unpin)) {
    let mut cx = Context::from_waker(std::task::Waker::noop());
    while let Poll::Ready(Some(Ok(_))) = Pin::new(&mut *body).poll_frame(&mut cx) {}
}

fn response(channel: &Arc<ObservationChannel>, body: Scripted) -> ResponseBody<Scripted> {
    ResponseBody::new(body, open(channel), Limits::default())
}

#[test]
fn a_response_ends_as_its_body_did() {
    let cases = [
        (Scripted::of(["a"]).ending(), vec!["Response 1", "End(Complete)"]),
        (Scripted::of(["ab"]).with_length(2), vec!["Response 2", "End(Complete)"]),
        (Scripted::of([]).with_length(0), vec!["End(Complete)"]),
        (
            Scripted::of(["a"]).with_trailers(),
            vec!["Response 1", "Trailers(Response)", "End(Complete)"],
        ),
        (Scripted::of(["a"]).failing(), vec!["Response 1", "End(UpstreamFailed(MidBody))"]),
        (Scripted::of(["a"]), vec!["Response 1", "End(ClientGone)"]),
        (Scripted::of(["a"]).with_length(2), vec!["Response 1", "End(ClientGone)"]),
    ];
    for (body, expected) in cases {
        let told = format!("{body:?}");
        let channel = channel(1 << 20);
        let mut response = response(&channel, body);
        exhaust(&mut response);
        drop(response);
        assert_eq!(said(&channel).0, expected, "{told}");
    }
}

#[test]
fn a_body_that_is_never_polled_is_complete_when_there_was_nothing_to_poll() {
    let channel = channel(1 << 20);
    drop(response(&channel, Scripted::of([]).with_length(0)));
    drop(response(&channel, Scripted::of(["a"]).with_length(1)));
    assert_eq!(said(&channel).0, ["End(Complete)", "End(ClientGone)"]);
}

#[test]
fn a_request_ends_with_its_last_byte_even_if_nobody_asks_for_more() {
    for (body, expected) in [
        (Scripted::of(["ab"]).with_length(2), vec!["Request 2", "RequestEnd"]),
        (Scripted::of(["a"]).ending(), vec!["Request 1", "RequestEnd"]),
        (Scripted::of([]).with_trailers(), vec!["Trailers(Request)", "RequestEnd"]),
        (Scripted::of(["a"]), vec!["Request 1"]),
        (Scripted::of(["a"]).failing(), vec!["Request 1", "End(ClientBroke)"]),
    ] {
        let told = format!("{body:?}");
        let channel = channel(1 << 20);
        let observer = open(&channel);
        let mut request = RequestBody::new(body, observer.clone());
        exhaust(&mut request);
        drop(request);
        assert_eq!(said(&channel).0, expected, "{told}");
    }
}

#[test]
fn wrappers_forward_what_hyper_frames_by() {
    let channel = channel(1 << 20);
    let request = RequestBody::new(Scripted::of(["ab"]).with_length(2), open(&channel));
    assert_eq!(request.size_hint().exact(), Some(2));
    assert!(!request.is_end_stream());
    let mut response = response(&channel, Scripted::of(["ab"]).with_length(2));
    assert_eq!(response.size_hint().exact(), Some(2));
    exhaust(&mut response);
    assert!(response.is_end_stream());
}

#[test]
fn the_time_a_frame_waits_for_the_client_is_told_with_the_next() {
    let channel = channel(1 << 20);
    let cell = Arc::<tokengauge_types::event::LiveState>::default();
    let observer = open_with(&channel, Arc::clone(&cell));
    let mut body = ResponseBody::new(Scripted::of(["a", "b", "c"]), observer, Limits::default());
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let mut poll = |body: &mut ResponseBody<Scripted>| {
        drop(Pin::new(body).poll_frame(&mut cx));
    };
    poll(&mut body);
    let (whom, since) = cell.waiting();
    assert_eq!(whom, WaitingFor::Client);
    while clock::now() - since < 2 * MIN_BACKPRESSURE {
        std::hint::spin_loop();
    }
    poll(&mut body);
    poll(&mut body);
    poll(&mut body);
    assert_eq!(cell.waiting().0, WaitingFor::Upstream, "the last poll was pending");
    let mut batch = crate::tee::Batch::default();
    channel.drain(0, &mut batch);
    let blocked: Vec<bool> = batch
        .entries
        .iter()
        .filter_map(|entry| {
            let ObserverEvent::Body { blocked, .. } = entry.word else {
                return None;
            };
            Some(blocked.duration() >= 2 * MIN_BACKPRESSURE)
        })
        .collect();
    assert_eq!(blocked, [false, true, false]);
}

#[tokio::test]
async fn the_idle_limit_runs_only_while_the_upstream_is_waited_for() {
    const LIMIT: Duration = Duration::from_secs(3600);
    let channel = channel(1 << 20);
    let limits = Limits { idle: Some(LIMIT), deadline: None };
    let mut body = ResponseBody::new(Scripted::of(["a"]), open(&channel), limits);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert!(Pin::new(&mut body).poll_frame(&mut cx).is_ready());
    let handed = clock::now();
    while clock::now() - handed < MIN_BACKPRESSURE {
        std::hint::spin_loop();
    }
    let asked = Instant::now();
    assert!(Pin::new(&mut body).poll_frame(&mut cx).is_pending());
    let timers = body.timers.as_ref().unwrap();
    let (_, idle) = timers.idle.as_ref().unwrap();
    assert!(idle.deadline() >= asked + LIMIT, "the client's time does not count");
}

/// Else it would never end a stream whose upstream never pauses, or whose client hardly asks.
#[tokio::test]
async fn the_total_limit_ends_a_body_that_has_more_to_give() {
    let channel = channel(1 << 20);
    let deadline = Instant::now();
    sleep_until(deadline).await;
    let limits = Limits { deadline: Some(deadline), ..Limits::default() };
    let mut body = ResponseBody::new(Scripted::of(["a", "b"]), open(&channel), limits);
    let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
    assert!(matches!(frame, Some(Err(Broken::TimedOut))));
    drop(body);
    assert_eq!(said(&channel).0, ["End(TimedOut(Total))"]);
}
