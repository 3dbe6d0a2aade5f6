//! A question of this proxy's own to a server: one GET, whose whole answer is wanted within a bound. It goes over a
//! connection made and closed for it, as connections to an upstream are made: by its name, its proxy, its certificates.

use std::convert::Infallible;
use std::error::Error as _;
use std::pin::pin;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST, PROXY_AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::Config;
use super::connect::{self, Connector, SetupError};

const SENT_AS: &str = concat!("tokengauge/", env!("CARGO_PKG_VERSION"));

/// Asks for one page of one server.
#[derive(Debug)]
pub struct HttpProbe {
    connector: Connector,
    target: Uri,
    headers: HeaderMap,
    longest: usize,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    #[error("connecting to it took too long")]
    TimedOut,
    /// Redirects are not followed.
    #[error("it redirects elsewhere (status {0})")]
    Redirect(StatusCode),
    #[error("it answers with status {0}")]
    Status(StatusCode),
    #[error("its answer is longer than {0} bytes")]
    TooLarge(usize),
}

impl HttpProbe {
    /// `config`'s path is what is asked for; `accept` says in which formats, `longest` how many bytes an answer may have.
    ///
    /// # Errors
    /// Where the certificates or the host cannot be used.
    pub fn new(config: &Config, accept: &'static str, longest: usize) -> Result<Self, SetupError> {
        let connector = Connector::new(config)?;
        let host = connect::host_header(config)?;
        let mut headers = HeaderMap::new();
        let path = match config.base_path.as_str() {
            "" => "/",
            path => path,
        };
        // Without TLS a proxy is handed the request as it is, and must be told for whom.
        let via = connector.via.as_ref().filter(|_| !config.tls);
        let target = match via {
            Some(_) => format!("http://{}{path}", host.to_str().unwrap_or_default()),
            None => path.to_owned(),
        };
        let refused = |_| SetupError::Host(config.name.to_string(), config.host.clone());
        if let Some(authorization) = via.and_then(|via| via.authorization.clone()) {
            headers.insert(PROXY_AUTHORIZATION, authorization);
        }
        headers.insert(HOST, host);
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        headers.insert(USER_AGENT, HeaderValue::from_static(SENT_AS));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        Ok(Self { target: Uri::try_from(target).map_err(refused)?, connector, headers, longest })
    }

    /// The answer's body. How long that may take is the caller's to limit: dropping the future closes the connection.
    ///
    /// # Errors
    /// Where there is no whole answer, or none of status 2xx.
    pub async fn ask(&self) -> Result<Bytes, ProbeError> {
        let (wire, _) = self.connector.connect().await.map_err(|error| match error {
            connect::Error::Failed(_, why) => ProbeError::Unreachable(why),
            connect::Error::TimedOut => ProbeError::TimedOut,
        })?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(wire)).await.map_err(|error| unreachable(&error))?;
        let moved = async {
            drop(connection.await);
            // What it has read is still to be taken; whoever waits for more is told by then.
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            biased;
            answer = pin!(self.answer(sender)) => answer,
            never = moved => match never {},
        }
    }

    async fn answer(
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
        let body = Limited::new(response.into_body(), self.longest);
        match body.collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(ProbeError::TooLarge(self.longest)),
            Err(error) => Err(ProbeError::Unreachable(error.to_string())),
        }
    }
}

/// hyper's own words say at what it failed, its source's say why.
fn unreachable(error: &hyper::Error) -> ProbeError {
    ProbeError::Unreachable(match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    })
}
