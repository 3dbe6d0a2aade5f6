//! Plays the recorded exchanges through the public layer, around a service in this process.
//!
//! Every number must equal the number that the proxy's observer computes from the same bytes.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokengauge_measure::record::Record;
use tokengauge_observe::tee::body::RequestBody;
use tokengauge_observe::{Endpoint, Observation};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::fixture::{Fixture, SWITCHING};
use super::summary;

/// Size of each frame of a response, in bytes.
const FRAME: usize = 100;

/// Returns the facts of a record that do not depend on durations.
fn facts(record: &Record) -> Value {
    let timestamps = &record.timestamps;
    json!({
        "record": summary::summarize(record),
        "status": record.http.status,
        "bytes": [record.http.request_bytes, record.http.response_bytes],
        "has_time_to_first_token": timestamps.time_to_first_token().is_some(),
        "has_head": timestamps.head.is_some(),
        "has_last_token": timestamps.last.is_some(),
        "route": record.route.name.as_str(),
        "server": record.route.server_address.as_str(),
    })
}

#[tokio::test]
async fn layer_measures_what_the_proxy_measures() {
    let (sender, records) = mpsc::channel();
    let observation =
        Observation::start(move |record| sender.send(facts(record)).unwrap()).unwrap();
    // An upgraded connection is no longer HTTP, so the layer does not observe it.
    for fixture in Fixture::all().iter().filter(|fixture| fixture.status != SWITCHING) {
        let frames: Vec<&[u8]> = fixture.body.chunks(FRAME).collect();
        let expected = facts(&fixture.play(&frames));
        let respond = |request: Request<RequestBody<Full<Bytes>>>| async move {
            let received = request.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(received, fixture.request, "{}: the request is unchanged", fixture.name());
            Ok::<_, Infallible>(fixture.http_response(Frames::from_body(&fixture.body)))
        };
        let endpoint = Endpoint::client("default", fixture.server_address(), 443);
        let service =
            ServiceBuilder::new().layer(observation.layer(endpoint)).service(service_fn(respond));
        let response: Response<_> = service.oneshot(fixture.http_request()).await.unwrap();
        let received = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(received, fixture.body, "{}: the response is unchanged", fixture.name());
        observation.flush();
        assert_eq!(records.try_recv().unwrap(), expected, "{}", fixture.name());
        assert!(records.try_recv().is_err(), "{}: one record", fixture.name());
    }
    let metrics = observation.prometheus();
    for name in ["tokengauge_requests_finished_total", "tokengauge_tokens_total"] {
        assert!(metrics.contains(name), "{name} is missing from the metrics");
    }
}

struct Frames(VecDeque<Bytes>);

impl Frames {
    fn from_body(body: &[u8]) -> Self {
        Self(body.chunks(FRAME).map(Bytes::copy_from_slice).collect())
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|data| Ok(Frame::data(data))))
    }
}
