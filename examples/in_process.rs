//! Observes a service inside an application, without a proxy.
//!
//! `cargo run --example in_process` sends one request to a service that responds with a recorded stream of server-sent
//! events. The example prints the measured values. A service of axum, tonic or hyper-util is wrapped in the same way.
//! To observe a client instead, wrap the client with the layer and name the host of the API with `Endpoint::client`.

#![expect(clippy::print_stdout, reason = "the example shows its result on the terminal")]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use tokengauge_measure::record::Record;
use tokengauge_observe::tee::body::RequestBody;
use tokengauge_observe::{Endpoint, Observation};
use tokio::time::{Instant, Sleep, sleep};
use tower::{ServiceBuilder, ServiceExt, service_fn};

/// A request to OpenAI's chat API and its response, separated by a line `~~~~`.
const RECORDING: &str = include_str!("../tests/fixtures/exchanges/openai.chat/stream.http");

/// Pause between two events of the response.
const PAUSE: Duration = Duration::from_millis(20);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let observation = Observation::start(print_record)?;
    let service = ServiceBuilder::new()
        .layer(observation.layer(Endpoint::server("chat")))
        .service(service_fn(respond));

    let (request, _) = recorded_bodies()?;
    let request = Request::post("/v1/chat/completions")
        .header("content-type", "application/json")
        .body(Full::from(request))?;
    let response = service.oneshot(request).await?;
    let received = response.into_body().collect().await?.to_bytes();
    println!("received               {} bytes, unchanged", received.len());

    // `print_record` runs on the observer thread. After this call, it has processed the request.
    observation.flush();
    let metrics = observation.prometheus();
    let series = metrics.lines().filter(|line| !line.starts_with('#')).count();
    println!("Prometheus series      {series}");
    Ok(())
}

/// Serves one request: reads it, and then streams the recorded response.
async fn respond(
    request: Request<RequestBody<Full<Bytes>>>,
) -> anyhow::Result<Response<RecordedStream>> {
    request.into_body().collect().await?;
    let (_, response) = recorded_bodies()?;
    let events = response.split_inclusive("\n\n").map(Bytes::from).collect();
    let body = RecordedStream { events, pause: Box::pin(sleep(PAUSE)) };
    Ok(Response::builder().header("content-type", "text/event-stream").body(body)?)
}

fn print_record(record: &Record) {
    println!("outcome                {:?}", record.outcome);
    if let Some(time) = record.timestamps.time_to_first_token() {
        println!("time to first token    {} ms", time.as_millis());
    }
    let Some(call) = &record.call else { return };
    let text = |name: &Option<_>| name.as_ref().map_or_else(String::new, ToString::to_string);
    println!("model                  {}", text(&call.response_model));
    println!("finish reason          {}", text(&call.finish_reasons().next().cloned()));
    if let Some(output) = &call.output {
        println!("output tokens          {} ({} counted)", output.tokens, output.counted);
    }
    if let Some((input, output)) = call.usage.and_then(|usage| usage.input.zip(usage.output)) {
        println!("reported usage         {input} input tokens, {output} output tokens");
    }
    match call.rates.output {
        Some(rate) => println!("tokens per second      {rate:.1}"),
        None => println!("tokens per second      none: the stream is too short"),
    }
}

/// Returns the bodies of the recorded request and response.
fn recorded_bodies() -> anyhow::Result<(&'static str, &'static str)> {
    let (request, response) = RECORDING.split_once("\n~~~~\n").context("no separator")?;
    let (_, request) = request.split_once("\n\n").context("no request body")?;
    let (_, response) = response.split_once("\n\n").context("no response body")?;
    Ok((request, response))
}

/// A response body that pauses before each event.
struct RecordedStream {
    events: VecDeque<Bytes>,
    pause: Pin<Box<Sleep>>,
}

impl Body for RecordedStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.pause.as_mut().poll(cx));
        self.pause.as_mut().reset(Instant::now() + PAUSE);
        Poll::Ready(self.events.pop_front().map(|event| Ok(Frame::data(event))))
    }
}
