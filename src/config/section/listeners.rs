//! Listeners of the data path, and the admin port.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{File, Layers, ReferencedFiles};
use crate::config::errors::{ErrorCollector, NodeId};
use crate::config::spanned::{List, Spanned};
use crate::config::value::{Address, FilePath, ListenAddr};
use crate::config::{RunArgs, Secret, file};
use tokengauge_listen::{self as listen, ListenerConfig};
use tokengauge_types::bounded::{HOUR, Int, MINUTE, SECOND, Time, millis};

/// Default listen address. On this loopback address, other machines cannot reach the proxy.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4000);

/// Default address of the admin port. On this loopback address, other machines cannot read `/streams` and `/config`.
const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4001);

/// Environment variable with the bearer token of the admin port. A flag would be visible to other users in `ps`.
const TOKEN_VARIABLE: &str = "TOKENGAUGE_ADMIN_TOKEN";

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["address"]))]
pub struct Listener {
    /// `IP:PORT`, `localhost:PORT` (127.0.0.1) or `unix:/path`. Without `listeners`, it is `127.0.0.1:4000`. Flag
    /// `--listen`.
    pub address: Option<Address>,
    /// `http`: clients send requests, which are forwarded. `ext-proc`: Envoy sends copies of its requests over gRPC; see
    /// [Envoy](../how-to/envoy.md). Default: `http`, and `ext-proc` for the command `ext-proc`.
    pub protocol: Option<Protocol>,
    /// Serve TLS.
    pub tls: Option<Tls>,
    /// Maximum open connections. For a further one, the connection that has waited longest for a request is closed and
    /// counted in `tokengauge.self.connections.evicted`. If every connection has a request, new ones wait in the
    /// kernel's backlog.
    pub max_connections: Option<Int<1, 1_000_000, { ListenerConfig::MAX_CONNECTIONS as u64 }>>,
    /// Maximum requests in flight, including WebSockets. Where `max_connections` is set, its value is the default.
    /// Further ones get status 503 with `Retry-After: 1`, except those of [small clients](#fair-share-of-requests).
    pub max_requests: Option<Int<1, 1_000_000, { ListenerConfig::MAX_REQUESTS as u64 }>>,
    /// Maximum time to receive the headers of an HTTP/1 request.
    // Below 100 ms, headers in two packets over a slow line would fail. Above 10 min it limits nothing.
    pub request_header_timeout:
        Time<100, { 10 * MINUTE }, { millis(ListenerConfig::HEAD_TIMEOUT) }>,
    /// Maximum time between two pieces of a request body. For gRPC and AWS event streams over HTTP/2, ten times as
    /// long, and each part of the response starts the time again.
    pub request_body_timeout: Time<100, HOUR, { millis(ListenerConfig::BODY_TIMEOUT) }>,
    /// Maximum time in which a client reads nothing of the data that waits for it. Then the proxy ends the response,
    /// HTTP/2 stream or WebSocket. A client that reads 64 KiB in this time is not ended. nginx has the same default.
    // Below 100 ms, a lost packet on a slow line would end a response.
    pub send_timeout: Time<100, HOUR, { millis(ListenerConfig::SEND_TIMEOUT) }>,
    /// How long a connection without a request stays open. Keep it above the idle timeout of a load balancer in front
    /// (60 s by default at AWS, Azure and nginx), or it sometimes responds 502.
    pub idle_timeout: Time<SECOND, HOUR, { millis(ListenerConfig::IDLE_TIMEOUT) }>,
}

/// What a listener serves.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    Http,
    ExtProc,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["certificate", "key"]))]
pub struct Tls {
    /// PEM file with the certificate chain, for TLS with HTTP/1.1 and HTTP/2 by ALPN. Flag `--tls-cert`, for all TCP
    /// listeners.
    pub certificate: Option<FilePath>,
    /// PEM file with the private key. Flag `--tls-key`.
    pub key: Option<FilePath>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// `IP:PORT` or `localhost:PORT` (127.0.0.1) of the [admin port](admin-api.md). On an address other than loopback,
    /// only the [open endpoints](admin-api.md#access) are served unless a token is set. Flag `--admin`.
    pub address: ListenAddr,
    /// File with the bearer token of the admin port. `TOKENGAUGE_ADMIN_TOKEN` takes precedence.
    pub token_file: Option<FilePath>,
    /// Bearer token for the protected pages of the admin port, such as `/config`. Without a token, these pages are
    /// served only on loopback.
    #[serde(skip)]
    pub token: Option<Secret>,
}

impl Default for Admin {
    fn default() -> Self {
        Self { address: ListenAddr(ADMIN), token_file: None, token: None }
    }
}

/// Resolves the listeners and the admin port. Flags replace the listeners of the file. The file is checked anyway.
pub fn resolve(
    File { listeners: written, admin, .. }: &mut File,
    layers: Layers<'_>,
    errors: &mut ErrorCollector,
) -> Vec<ListenerConfig> {
    if written.as_ref().is_some_and(|list| list.written_len() == 0) {
        let message = format!("the list is empty; add a listener, or remove this key for {LISTEN}");
        errors.add_key(NodeId::ROOT, "listeners", message);
    }
    let flags = &layers.args.listen;
    let is_from_file = written.is_some() && flags.is_empty();
    let at = |address| Listener { address: Some(address), ..Listener::default() };
    let default = || [at(Address(listen::Address::Tcp(LISTEN)))].into_iter().collect();
    let list = written.get_or_insert_with(default);
    let protocol = if layers.args.ext_proc { Protocol::ExtProc } else { Protocol::Http };
    let mut listeners = resolve_all(list, protocol, errors);
    if !flags.is_empty() {
        warn_of_lost_tls(&listeners, layers.args, errors);
        *list = flags.iter().cloned().map(at).collect();
        listeners = resolve_all(list, protocol, errors);
    }
    if let Some(tls) = tls_flags(layers.args, errors) {
        apply_tls(&tls, list.iter_mut().zip(&mut listeners), errors);
    }
    self::admin(admin, layers, errors);
    if let Some(message) = duplicate_address(&listeners, admin.address.0) {
        match is_from_file {
            true => errors.add_key(NodeId::ROOT, "listeners", message),
            false => errors.add_outside_file("--listen", message),
        }
    }
    listeners
}

/// Warns if `--listen` replaces listeners with TLS by listeners without TLS.
fn warn_of_lost_tls(written: &[ListenerConfig], args: &RunArgs, errors: &mut ErrorCollector) {
    let is_tcp = |Address(address): &Address| matches!(address, listen::Address::Tcp(_));
    let loses_tls = written.iter().any(|listener| listener.tls.is_some())
        && args.listen.iter().any(is_tcp)
        && args.tls_cert.is_none();
    if loses_tls {
        let message = "replaces the listeners of the file with their TLS certificates, so clients are served without \
                       TLS; add --tls-cert and --tls-key, or change the address in the file";
        errors.warn_outside_file("--listen", message.to_owned());
    }
}

/// Enables TLS on all TCP listeners. Unix sockets stay without TLS, and a warning lists them.
fn apply_tls<'a>(
    tls: &listen::Tls,
    listeners: impl Iterator<Item = (&'a mut Spanned<Listener>, &'a mut ListenerConfig)>,
    errors: &mut ErrorCollector,
) {
    let mut has_tcp = false;
    let mut without_tls = Vec::new();
    for (written, listener) in listeners {
        match &listener.address {
            listen::Address::Tcp(_) => {
                has_tcp = true;
                let listen::Tls { certificate, key } = tls.clone();
                let [certificate, key] = [certificate, key].map(|path| Some(FilePath(path)));
                written.value.tls = Some(Tls { certificate, key });
                listener.tls = Some(tls.clone());
            }
            listen::Address::Unix(path) => without_tls.push(path.display().to_string()),
        }
    }
    if !has_tcp {
        let message = "no listener has a TCP address, and Unix sockets have no TLS; remove the flag or add a TCP \
                       listener";
        errors.add_outside_file("--tls-cert", message);
    } else if !without_tls.is_empty() {
        let message = format!(
            "Unix sockets have no TLS; served without TLS: {}; with TLS: all TCP listeners",
            without_tls.join(", ")
        );
        errors.warn_outside_file("--tls-cert", message);
    }
}

fn tls_flags(args: &RunArgs, errors: &mut ErrorCollector) -> Option<listen::Tls> {
    let (flag, message) = match (args.tls_cert.clone(), args.tls_key.clone()) {
        (Some(certificate), Some(key)) => return Some(listen::Tls { certificate, key }),
        (Some(_), None) => ("--tls-cert", "the key is missing; add --tls-key"),
        (None, Some(_)) => ("--tls-key", "the certificate is missing; add --tls-cert"),
        (None, None) => return None,
    };
    errors.add_outside_file(flag, message);
    None
}

/// Resolves all listeners, and removes the invalid ones. `default` is the protocol of a listener without one.
fn resolve_all(
    list: &mut List<Listener>,
    default: Protocol,
    errors: &mut ErrorCollector,
) -> Vec<ListenerConfig> {
    let mut listeners = Vec::new();
    list.retain_mut(|Spanned { value, node }| {
        let protocol = *value.protocol.get_or_insert(default);
        if protocol == Protocol::ExtProc && !cfg!(feature = "envoy") {
            let message = "this build has no ext-proc; build it with the cargo feature `envoy`";
            errors.add_key(*node, "protocol", message);
        }
        let listener = listener(value, *node, errors);
        let is_valid = listener.is_some();
        listeners.extend(listener);
        is_valid
    });
    listeners
}

fn listener(
    value: &mut Listener,
    node: NodeId,
    errors: &mut ErrorCollector,
) -> Option<ListenerConfig> {
    let tls = value.tls.as_ref().and_then(|tls| {
        let hint = "name a PEM file";
        let certificate = errors.required(&tls.certificate, (node, "tls.certificate"), hint);
        let key = errors.required(&tls.key, (node, "tls.key"), hint);
        Some(listen::Tls { certificate: certificate?.0.clone(), key: key?.0.clone() })
    });
    let hint = "write the address to listen on, such as `address: 127.0.0.1:4000`";
    let address = errors.required(&value.address, (node, "address"), hint)?.0.clone();
    let default = value.max_connections.map_or(ListenerConfig::MAX_REQUESTS, Int::get);
    Some(ListenerConfig {
        tls,
        max_connections: value.max_connections.get_or_insert_default().get(),
        max_requests: value.max_requests.get_or_insert(Int::within(default)).get(),
        head_timeout: value.request_header_timeout.get(),
        body_timeout: value.request_body_timeout.get(),
        send_timeout: value.send_timeout.get(),
        idle_timeout: value.idle_timeout.get(),
        // The routes answer and record requests beyond the limits of headers.
        marks_large_headers: true,
        ..ListenerConfig::at(address)
    })
}

/// Returns the error for the first address that is used twice. Port 0 may be used twice, because each listener gets a
/// free port.
fn duplicate_address(listeners: &[ListenerConfig], admin: SocketAddr) -> Option<String> {
    let is_ephemeral =
        |address: &listen::Address| matches!(address, listen::Address::Tcp(tcp) if tcp.port() == 0);
    let admin = listen::Address::Tcp(admin);
    let mut used = vec![&admin];
    for listener in listeners {
        let address = &listener.address;
        if used.contains(&address) && !is_ephemeral(address) {
            let address = Address(address.clone());
            return Some(format!(
                "{address} is used twice, by two listeners or by a listener and the admin port; use another port"
            ));
        }
        used.push(address);
    }
    None
}

fn admin(admin: &mut Admin, layers: Layers<'_>, errors: &mut ErrorCollector) {
    admin.address = layers.args.admin.unwrap_or(admin.address);
    if let Some(token) = (layers.environment)(TOKEN_VARIABLE) {
        if !file::is_token(&token) {
            let message = format!("not a valid bearer token; {}", file::TOKEN_HINT);
            errors.add_outside_file(TOKEN_VARIABLE, message);
        }
        admin.token = Some(Secret::new(&token));
        admin.token_file = None;
    } else if let Some(FilePath(path)) =
        admin.token_file.as_ref().filter(|_| layers.files != ReferencedFiles::Skip)
    {
        match file::read_token(path) {
            Ok(token) => admin.token = Some(token),
            Err(message) => errors.add_key(NodeId::ROOT, "admin.token_file", message),
        }
    }
}
