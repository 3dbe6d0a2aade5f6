//! A collector that stores all exports unchanged.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwapOption;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::certificate::Certificate;
use super::{Backend, Raw};

/// The path and the body of each export.
type Exports = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A server for OTLP over HTTP with protobuf.
pub struct Collector {
    pub address: SocketAddr,
    exports: Exports,
    tls: Arc<ArcSwapOption<TlsAcceptor>>,
}

impl Collector {
    pub async fn start() -> Self {
        let backend = Backend::start().await;
        let address = backend.address;
        let exports = Exports::default();
        let tls = Arc::new(ArcSwapOption::<TlsAcceptor>::empty());
        let (kept, acceptor) = (Arc::clone(&exports), Arc::clone(&tls));
        tokio::spawn(async move {
            while let Ok((stream, _)) = backend.listener.accept().await {
                tokio::spawn(serve(stream, acceptor.load_full(), Arc::clone(&kept)));
            }
        });
        Self { address, exports, tls }
    }

    /// Serves new connections over TLS with this certificate.
    pub fn present(&self, certificate: &Certificate) {
        self.tls.store(Some(Arc::new(certificate.acceptor())));
    }

    pub fn spans(&self) -> Vec<Span> {
        let exports = self.exports.lock().unwrap();
        let traces = exports.iter().filter(|(path, _)| path == "/v1/traces");
        traces
            .map(|(_, body)| ExportTraceServiceRequest::decode(body.as_slice()).unwrap())
            .flat_map(|export| export.resource_spans)
            .flat_map(|resource| resource.scope_spans)
            .flat_map(|scope| scope.spans)
            .collect()
    }

    /// Returns the bytes of all exports except spans.
    pub fn metrics(&self) -> Vec<u8> {
        let exports = self.exports.lock().unwrap();
        let metrics = exports.iter().filter(|(path, _)| path != "/v1/traces");
        metrics.flat_map(|(_, body)| body.clone()).collect()
    }

    /// Returns the bytes of all exports. Protobuf stores text unchanged, so the bytes can be searched.
    pub fn bytes(&self) -> Vec<u8> {
        let exports = self.exports.lock().unwrap();
        exports.iter().flat_map(|(_, body)| body.clone()).collect()
    }
}

async fn serve(stream: TcpStream, tls: Option<Arc<TlsAcceptor>>, kept: Exports) {
    let Some(tls) = tls else { return converse(Raw(stream), kept).await };
    // A client that rejects the certificate ends the handshake.
    if let Ok(stream) = tls.accept(stream).await {
        converse(Raw(stream), kept).await;
    }
}

async fn converse<T: AsyncRead + AsyncWrite + Unpin>(mut client: Raw<T>, kept: Exports) {
    while let Some(head) = client.next_head().await {
        let path = head.split(' ').nth(1).unwrap().to_owned();
        let length = head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .map_or(0, |(_, length)| length.parse().unwrap());
        let body = client.read_exactly(length).await;
        kept.lock().unwrap().push((path, body));
        client
            .write("HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n")
            .await;
    }
}
