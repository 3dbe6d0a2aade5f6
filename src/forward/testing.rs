//! Test support: an observed request.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;

use tokengauge_observe::tee::{self, ObservationChannel, RequestObserver};
use tokengauge_observe::{Endpoint, EndpointOpener, OpenExchange};

/// Returns the observer of a request whose body was not sent yet.
pub(super) fn observer() -> RequestObserver {
    let channel = Arc::new(ObservationChannel::new(tee::ChannelConfig::default()));
    let opener = EndpointOpener::new(channel, Endpoint::client("test", "localhost", 80));
    opener.open(http::Request::new(Full::new(Bytes::from_static(b"x")))).1
}
