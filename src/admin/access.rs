//! Decides which clients may read a page or start a drain.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, StatusCode};
use subtle::ConstantTimeEq as _;

use tokengauge_types::url::bare;

/// Client addresses that count as this machine and may start a drain. Other addresses of 127.0.0.0/8 do not count,
/// because Istio forwards requests of other pods from 127.0.0.6.
const LOCAL_ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Access rules of the admin port.
#[derive(Debug)]
pub(super) struct Access {
    /// Bearer token that allows every request. `None` if no token is configured.
    pub(super) token: Option<String>,
    /// Whether the port accepts connections only from this machine.
    pub(super) is_loopback: bool,
}

/// The reason why a request is rejected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Denial {
    /// The token is missing or wrong.
    Token,
    /// The request needs a token, but no token is configured. For example, the request came from another machine.
    NotLocal,
    /// `Host` is a DNS name.
    Host,
}

impl Denial {
    pub(super) const fn response(self) -> (StatusCode, &'static str) {
        match self {
            Self::Token => (
                StatusCode::UNAUTHORIZED,
                "the admin token is missing or wrong (Authorization: Bearer …)\n",
            ),
            Self::NotLocal => (
                StatusCode::FORBIDDEN,
                "only clients on this machine may do this, because no admin token is configured; set \
                 admin.token_file or TOKENGAUGE_ADMIN_TOKEN\n",
            ),
            Self::Host => (
                StatusCode::FORBIDDEN,
                "the Host header must be an IP address or localhost, or the request needs the admin token\n",
            ),
        }
    }
}

impl Access {
    /// Checks whether a request may read a page other than health, metrics, runbooks and `/drained`.
    pub(super) fn check_page(&self, headers: &HeaderMap) -> Result<(), Denial> {
        let is_allowed = self.token.is_none() && self.is_loopback;
        self.check(headers, is_allowed)
    }

    /// Checks whether a request may start a drain. Clients on this machine need no token, because a container hook has
    /// none. Browsers, which send `Origin`, need one.
    pub(super) fn check_drain(&self, headers: &HeaderMap, peer: IpAddr) -> Result<(), Denial> {
        let is_local = LOCAL_ADDRESSES.contains(&peer.to_canonical());
        self.check(headers, is_local && !headers.contains_key(ORIGIN))
    }

    /// `is_allowed`: whether the request needs no token.
    fn check(&self, headers: &HeaderMap, is_allowed: bool) -> Result<(), Denial> {
        if self.has_token(headers) {
            return Ok(());
        }
        match (is_allowed, &self.token) {
            (true, _) if has_local_host(headers) => Ok(()),
            (true, _) => Err(Denial::Host),
            (false, Some(_)) => Err(Denial::Token),
            (false, None) => Err(Denial::NotLocal),
        }
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let sent = header.and_then(|header| header.split_once(' '));
        let sent = sent.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let tokens = sent.zip(self.token.as_deref());
        tokens.is_some_and(|((_, sent), token)| {
            // In constant time, so that timing does not reveal the token byte by byte.
            sent.trim_start_matches(' ').as_bytes().ct_eq(token.as_bytes()).into()
        })
    }
}

/// Returns whether `Host` is an IP address or `localhost`. Without this check, a web page could read responses of this
/// port. It would make the browser send requests to this machine under the host name of the page (DNS rebinding).
fn has_local_host(headers: &HeaderMap) -> bool {
    headers.get_all(HOST).iter().all(is_local_host)
}

fn is_local_host(value: &HeaderValue) -> bool {
    let Ok(authority) = Authority::try_from(value.as_bytes()) else {
        return false;
    };
    let host = authority.host();
    host.eq_ignore_ascii_case("localhost") || bare(host).parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use http::header::HeaderName;

    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let pair = |(name, value): &(HeaderName, &str)| (name.clone(), value.parse().unwrap());
        pairs.iter().map(pair).collect()
    }

    const LOCALHOST: (HeaderName, &str) = (HOST, "127.0.0.1:4001");

    #[test]
    fn only_127_0_0_1_and_its_ipv6_counterpart_drain_without_a_token() {
        let access = Access { token: None, is_loopback: false };
        let check = |peer: &str| access.check_drain(&headers(&[LOCALHOST]), peer.parse().unwrap());
        for peer in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(check(peer), Ok(()), "{peer}");
        }
        for peer in ["127.0.0.6", "::ffff:127.0.0.6", "10.0.0.7", "fe80::1"] {
            assert_eq!(check(peer), Err(Denial::NotLocal), "{peer}");
        }
        let browser = headers(&[LOCALHOST, (ORIGIN, "http://evil")]);
        assert_eq!(access.check_drain(&browser, LOCAL_ADDRESSES[0]), Err(Denial::NotLocal));
    }

    #[test]
    fn only_addresses_and_localhost_are_hosts_without_a_token() {
        let access = Access { token: None, is_loopback: true };
        for host in ["127.0.0.1:4001", "[::1]:4001", "10.0.0.7", "localhost", "LocalHost:4001"] {
            assert_eq!(access.check_page(&headers(&[(HOST, host)])), Ok(()), "{host}");
        }
        assert_eq!(access.check_page(&headers(&[])), Ok(()), "HTTP/1.0");
        for host in [
            "evil.example",
            "evil.example:4001",
            "127.0.0.1.evil.example",
            "localhost.evil",
            "",
            "a b",
        ] {
            let headers = headers(&[(HOST, host)]);
            assert_eq!(access.check_page(&headers), Err(Denial::Host), "{host}");
            assert_eq!(
                access.check_drain(&headers, LOCAL_ADDRESSES[0]),
                Err(Denial::Host),
                "{host}"
            );
        }
        let mut two = headers(&[LOCALHOST]);
        two.append(HOST, HeaderValue::from_static("evil.example"));
        assert_eq!(access.check_page(&two), Err(Denial::Host));
    }

    #[test]
    fn token_allows_any_host_and_its_scheme_any_case() {
        let access = Access { token: Some("secret".to_owned()), is_loopback: true };
        let check = |authorization: &str| {
            access.check_page(&headers(&[(HOST, "evil.example"), (AUTHORIZATION, authorization)]))
        };
        for authorization in ["Bearer secret", "bearer secret", "BEARER  secret"] {
            assert_eq!(check(authorization), Ok(()), "{authorization}");
        }
        for authorization in ["Bearer secret!", "Bearer secre", "Basic secret", "secret", "Bearer"]
        {
            assert_eq!(check(authorization), Err(Denial::Token), "{authorization}");
        }
        assert_eq!(access.check_page(&headers(&[LOCALHOST])), Err(Denial::Token));
        assert_eq!(access.check_drain(&headers(&[LOCALHOST]), LOCAL_ADDRESSES[0]), Ok(()));
        let stranger = access.check_drain(&headers(&[LOCALHOST]), [10, 0, 0, 7].into());
        assert_eq!(stranger, Err(Denial::Token));
        let open = Access { token: None, is_loopback: false };
        assert_eq!(open.check_page(&headers(&[LOCALHOST])), Err(Denial::NotLocal));
    }
}
