//! HTTP requests that the proxy sends for itself, such as scrapes. Each is a GET request with a limit on the size of
//! the response.
//!
//! Each request uses a new connection. DNS, proxy and TLS are configured as for connections to an upstream.

use std::convert::Infallible;
use std::error::Error as _;
use std::pin::pin;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST, PROXY_AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::UpstreamConfig;
use super::connect::{self, Connector, SetupError};

const USER_AGENT_NAME: &str = concat!("tokengauge/", env!("CARGO_PKG_VERSION"));

/// Fetches one page of one server.
#[derive(Debug)]
pub struct HttpProbe {
    connector: Connector,
    target: Uri,
    headers: HeaderMap,
    max_bytes: usize,
}

/// Why a probe has no response.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("cannot connect: {0}")]
    Unreachable(String),
    #[error("connecting timed out")]
    TimedOut,
    /// Redirects are not followed.
    #[error("the response is a redirect (status {0})")]
    Redirect(StatusCode),
    #[error("the response has status {0}")]
    Status(StatusCode),
    #[error("the response is longer than {0} bytes")]
    TooLarge(usize),
}

impl HttpProbe {
    /// Creates a probe for the path of `config`. `accept` is sent as the `Accept` header. A response longer than
    /// `max_bytes` is an error.
    ///
    /// # Errors
    /// If the certificates or the host cannot be used.
    pub fn new(
        config: &UpstreamConfig,
        accept: &'static str,
        max_bytes: usize,
    ) -> Result<Self, SetupError> {
        let connector = Connector::new(config.clone())?;
        let host = connect::host_header(config)?;
        let mut headers = HeaderMap::new();
        let path = match config.base_path.as_str() {
            "" => "/",
            path => path,
        };
        // Without TLS, an HTTP proxy receives the request itself, so the request line needs an absolute URL.
        let proxy = config.proxy.as_ref().filter(|_| !config.tls);
        let target = match proxy {
            Some(_) => format!("http://{}{path}", host.to_str().unwrap_or_default()),
            None => path.to_owned(),
        };
        let unusable = |_| SetupError::Host(config.name.to_string(), config.host.clone());
        if let Some(authorization) = proxy.and_then(|proxy| proxy.authorization.clone()) {
            headers.insert(PROXY_AUTHORIZATION, authorization);
        }
        headers.insert(HOST, host);
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        headers.insert(USER_AGENT, HeaderValue::from_static(USER_AGENT_NAME));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        Ok(Self { target: Uri::try_from(target).map_err(unusable)?, connector, headers, max_bytes })
    }

    /// Fetches the response body. To enforce a timeout, the caller drops the future, which closes the connection.
    ///
    /// # Errors
    /// Returns an error if the response is incomplete or its status is not 2xx.
    pub async fn fetch(&self) -> Result<Bytes, ProbeError> {
        let (stream, _) = self.connector.connect().await.map_err(|error| match error {
            connect::ConnectError::Failed(_, cause) => ProbeError::Unreachable(cause),
            connect::ConnectError::TimedOut => ProbeError::TimedOut,
        })?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(&error))?;
        let driver = async {
            drop(connection.await);
            // The connection has ended, but the response may still have buffered data. If the connection failed, the
            // reader of the body has received the error.
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            biased;
            response = pin!(self.exchange(sender)) => response,
            never = driver => match never {},
        }
    }

    async fn exchange(
        &self,
        mut sender: http1::SendRequest<Empty<Bytes>>,
    ) -> Result<Bytes, ProbeError> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = self.target.clone();
        *request.headers_mut() = self.headers.clone();
        let response = sender.send_request(request).await.map_err(|error| unreachable(&error))?;
        let status = response.status();
        if status.is_redirection() {
            return Err(ProbeError::Redirect(status));
        }
        if !status.is_success() {
            return Err(ProbeError::Status(status));
        }
        let body = Limited::new(response.into_body(), self.max_bytes);
        match body.collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(ProbeError::TooLarge(self.max_bytes))
            }
            Err(error) => Err(ProbeError::Unreachable(error.to_string())),
        }
    }
}

/// Returns an error with the failed step (hyper's message) and the reason (the source of hyper's error).
fn unreachable(error: &hyper::Error) -> ProbeError {
    ProbeError::Unreachable(match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    })
}
