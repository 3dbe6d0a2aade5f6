//! The HTTP service of a connection from Envoy: finds the called gRPC method.

use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use tokio::sync::watch;

use crate::access_log::AccessLog;
use crate::body::{Call, CallBody, GrpcStatus};
use crate::counts::Counts;
use crate::frames::MessageBudget;
use crate::processor::Processor;
use crate::routes::Routes;
use crate::shared::{ReadIdentity, Shared};
use tokengauge_listen::{Peer, ReceivedBody};
use tokengauge_observe::tee::ObservationChannel;
use tokengauge_observe::trace::Propagation;

/// Parts of the program that the service uses.
pub struct Dependencies {
    pub channel: Arc<ObservationChannel>,
    pub routes: Routes,
    pub propagation: Propagation,
    pub identity: ReadIdentity,
    pub counts: Arc<Counts>,
    /// Whether health checks succeed.
    pub ready: Arc<AtomicBool>,
}

/// Serves the gRPC calls of Envoy. One instance serves the whole process.
#[derive(Clone, Debug)]
pub struct EnvoyService(Arc<Shared>);

impl EnvoyService {
    pub fn new(dependencies: Dependencies) -> Self {
        let Dependencies { channel, routes, propagation, identity, counts, ready } = dependencies;
        Self(Arc::new(Shared {
            channel,
            routes,
            propagation,
            identity,
            open: Arc::default(),
            counts,
            ready,
            budget: MessageBudget::default(),
            draining: watch::Sender::new(false),
        }))
    }

    #[cfg(test)]
    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.0)
    }

    /// Applies a changed configuration to the routes of later requests.
    pub fn reload(&self) {
        self.0.routes.reset();
    }

    /// Ends the streams of the access log as soon as no request is open. Envoy opens them again, at another replica.
    pub fn drain(&self) {
        self.0.draining.send_replace(true);
    }

    /// Returns the service of one connection.
    pub fn service(&self, _peer: Peer) -> Self {
        self.clone()
    }

    fn call(&self, path: &str) -> Call {
        let shared = &self.0;
        match path {
            "/envoy.service.ext_proc.v3.ExternalProcessor/Process" => {
                Call::Process(Box::new(Processor::new(Arc::clone(shared))))
            }
            "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs" => {
                let (open, counts) = (Arc::clone(&shared.open), Arc::clone(&shared.counts));
                let drained = drained(shared.draining.subscribe(), Arc::clone(&shared.channel));
                Call::AccessLog(AccessLog { open, counts }, Box::pin(drained))
            }
            "/grpc.health.v1.Health/Check" => {
                Call::Health { serving: shared.ready.load(Ordering::Acquire) }
            }
            _ => Call::Failed(GrpcStatus::Unimplemented),
        }
    }
}

/// Interval at which a draining access log stream looks for open requests.
const DRAIN_INTERVAL: std::time::Duration = std::time::Duration::from_millis(20);

/// Completes when a drain was requested and no request is open.
async fn drained(mut draining: watch::Receiver<bool>, channel: Arc<ObservationChannel>) {
    drop(draining.wait_for(|draining| *draining).await);
    while channel.open_exchanges() > 0 {
        tokio::time::sleep(DRAIN_INTERVAL).await;
    }
}

impl hyper::service::Service<Request<ReceivedBody>> for EnvoyService {
    type Response = Response<CallBody>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<ReceivedBody>) -> Self::Future {
        let call = self.call(request.uri().path());
        let body = CallBody::new(request.into_body(), call, self.0.budget.clone());
        let mut response = Response::new(body);
        let grpc = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(CONTENT_TYPE, grpc);
        ready(Ok(response))
    }
}

/// Omits the parts that have no representation.
impl fmt::Debug for Dependencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dependencies").field("routes", &self.routes).finish_non_exhaustive()
    }
}
