//! An OTLP/HTTP receiver for overhead measurements. It accepts and counts all exports without processing them.
//!
//! Start it with `cargo run --release --example otlp_sink -- 127.0.0.1:4318`. `GET /` returns the number of export
//! requests, bytes, spans and metric data points.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use tokio::net::TcpListener;

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    bytes: AtomicU64,
    spans: AtomicU64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let address: SocketAddr =
        std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:4318".into()).parse()?;
    let listener = TcpListener::bind(address).await?;
    let counts = Arc::new(Counts::default());
    loop {
        let (stream, _) = listener.accept().await?;
        let counts = Arc::clone(&counts);
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, Arc::clone(&counts)));
            // An error means that the client disconnected, which the receiver ignores.
            drop(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await,
            );
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    counts: Arc<Counts>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.method() == Method::GET {
        let told = serde_json::json!({
            "requests": counts.requests.load(Ordering::Relaxed),
            "bytes": counts.bytes.load(Ordering::Relaxed),
            "spans": counts.spans.load(Ordering::Relaxed),
        });
        return Ok(Response::new(Full::new(told.to_string().into())));
    }
    let traces = request.uri().path() == "/v1/traces";
    let body = request
        .into_body()
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    counts.requests.fetch_add(1, Ordering::Relaxed);
    counts.bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
    if traces {
        let export = ExportTraceServiceRequest::decode(body).unwrap_or_default();
        let scopes = export.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
        let spans: usize = scopes.map(|scope| scope.spans.len()).sum();
        counts.spans.fetch_add(spans as u64, Ordering::Relaxed);
    }
    Ok(Response::new(Full::new(Bytes::new())))
}
