//! An OTLP/HTTP receiver that reads and counts exports, without decoding them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    listen: SocketAddr,
}

#[derive(Default)]
struct Counts {
    exports: AtomicU64,
    bytes: AtomicU64,
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    let counts = Arc::new(Counts::default());
    loop {
        let (stream, _) = listener.accept().await?;
        let counts = Arc::clone(&counts);
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, Arc::clone(&counts)));
            // An error means that the client disconnected.
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

/// Answers `GET` with the counts.
async fn answer(
    request: Request<Incoming>,
    counts: Arc<Counts>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (exports, bytes) = (&counts.exports, &counts.bytes);
    let mut text = String::new();
    if request.method() == Method::GET {
        let (exports, bytes) = (exports.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
        text = serde_json::json!({"exports": exports, "bytes": bytes}).to_string();
    } else if let Ok(body) = request.into_body().collect().await {
        let size = u64::try_from(body.to_bytes().len()).unwrap_or_default();
        exports.fetch_add(1, Ordering::Relaxed);
        bytes.fetch_add(size, Ordering::Relaxed);
    }
    Ok(Response::new(Full::from(text)))
}
