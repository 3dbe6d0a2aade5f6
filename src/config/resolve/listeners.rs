//! Listeners of the data path, and the admin port.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::Layers;
use crate::config::deserialize::{Field, Spanned};
use crate::config::errors::ErrorCollector;
use crate::config::{Admin, RunArgs, Secret, file, raw, value};
use tokengauge_listen::{Address, Config, Tls};

/// Default listen address. On this loopback address, other machines cannot reach the proxy.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4000);

/// Environment variable with the bearer token of the admin port. A flag would be visible to other users in `ps`.
const TOKEN_VARIABLE: &str = "TOKENGAUGE_ADMIN_TOKEN";

pub(super) fn resolve(
    file: &mut raw::File,
    layers: Layers<'_>,
    errors: &mut ErrorCollector,
) -> (Vec<Config>, Admin) {
    let list_node = file.listeners.as_ref().map(|list| list.node);
    if let Some(node) = list_node.filter(|_| file.listeners.get().is_some_and(Vec::is_empty)) {
        let hint = format!("add a listener, or remove this key for {LISTEN}");
        errors.add(node, format!("the list is empty; {hint}"));
    }
    let at =
        |address| raw::Listener { address: Field::from_value(address), ..raw::Listener::default() };
    let default = at(value::Address(Address::Tcp(LISTEN)));
    file.listeners.or_insert(vec![Field::from_value(default)]);
    let mut listeners = listeners(&mut file.listeners, errors);
    let flags = &layers.args.listen;
    if !flags.is_empty() {
        file.listeners = flags.iter().cloned().map(at).collect();
        listeners = self::listeners(&mut file.listeners, errors);
    }
    if let Some(tls) = tls_flags(layers.args, errors) {
        apply_tls(&tls, file.listeners.entries().zip(&mut listeners), errors);
    }
    let admin = admin(file.admin.or_insert_default(), layers, errors);
    if let Some(message) = duplicate_address(&listeners, &admin) {
        match list_node.filter(|_| flags.is_empty()) {
            Some(node) => errors.add(node, message),
            None => errors.add_outside_file("--listen", message),
        }
    }
    (listeners, admin)
}

/// Enables TLS on all TCP listeners. Unix sockets stay without TLS, and a warning lists them.
fn apply_tls<'a>(
    (raw, tls): &(raw::Tls, Tls),
    listeners: impl Iterator<Item = (&'a mut Spanned<raw::Listener>, &'a mut Config)>,
    errors: &mut ErrorCollector,
) {
    let mut has_tcp = false;
    let mut without_tls = Vec::new();
    for (written, listener) in listeners {
        match &listener.address {
            Address::Tcp(_) => {
                has_tcp = true;
                written.value.tls = Field::from_value(raw.clone());
                listener.tls = Some(tls.clone());
            }
            Address::Unix(path) => without_tls.push(path.display().to_string()),
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

fn tls_flags(args: &RunArgs, errors: &mut ErrorCollector) -> Option<(raw::Tls, Tls)> {
    let (flag, message) = match (args.tls_cert.clone(), args.tls_key.clone()) {
        (Some(certificate), Some(key)) => {
            let raw = raw::Tls {
                certificate: Field::from_value(certificate.clone()),
                key: Field::from_value(key.clone()),
            };
            return Some((raw, Tls { certificate, key }));
        }
        (Some(_), None) => ("--tls-cert", "the key is missing; add --tls-key"),
        (None, Some(_)) => ("--tls-key", "the certificate is missing; add --tls-cert"),
        (None, None) => return None,
    };
    errors.add_outside_file(flag, message);
    None
}

fn listeners(
    written: &mut Field<Vec<Field<raw::Listener>>>,
    errors: &mut ErrorCollector,
) -> Vec<Config> {
    written.entries().filter_map(|written| listener(written, errors)).collect()
}

fn listener(written: &mut Spanned<raw::Listener>, errors: &mut ErrorCollector) -> Option<Config> {
    let Spanned { value, node } = written;
    let tls = value.tls.as_ref().and_then(|tls| {
        let hint = "name a PEM file";
        let certificate = tls.value.certificate.required(errors, tls.node, "certificate", hint);
        let key = tls.value.key.required(errors, tls.node, "key", hint);
        Some(Tls { certificate: certificate?.value.clone(), key: key?.value.clone() })
    });
    let hint = "write the address to listen on, such as `address: 127.0.0.1:4000`";
    let address = value.address.required(errors, *node, "address", hint)?;
    let is_set = value.max_connections.as_ref().is_some();
    let max_connections = value.max_connections.or(Config::MAX_CONNECTIONS);
    let max_requests = if is_set { max_connections } else { Config::MAX_REQUESTS };
    Some(Config {
        tls,
        max_connections,
        max_requests: value.max_requests.or(max_requests),
        head_timeout: value.request_header_timeout.or_time(Config::HEAD_TIMEOUT),
        body_timeout: value.request_body_timeout.or_time(Config::BODY_TIMEOUT),
        send_timeout: value.send_timeout.or_time(Config::SEND_TIMEOUT),
        idle_timeout: value.idle_timeout.or_time(Config::IDLE_TIMEOUT),
        ..Config::at(address.value.0.clone())
    })
}

/// Returns the error for the first address that is used twice. Port 0 may be used twice, because each listener gets a
/// free port.
fn duplicate_address(listeners: &[Config], admin: &Admin) -> Option<String> {
    let is_ephemeral = |address: &Address| matches!(address, Address::Tcp(tcp) if tcp.port() == 0);
    let admin = Address::Tcp(admin.address);
    let mut used = vec![&admin];
    for listener in listeners {
        let address = &listener.address;
        if used.contains(&address) && !is_ephemeral(address) {
            let address = value::Address(address.clone());
            return Some(format!(
                "{address} is used twice, by two listeners or by a listener and the admin port; use another port"
            ));
        }
        used.push(address);
    }
    None
}

fn admin(written: &mut raw::Admin, layers: Layers<'_>, errors: &mut ErrorCollector) -> Admin {
    if let Some(flag) = layers.args.admin {
        written.address = Field::from_value(flag);
    }
    let address = written.address.or_insert(value::ListenAddr(Admin::ADDRESS)).0;
    let mut admin = Admin { address, token: None, token_file: None };
    if let Some(token) = (layers.environment)(TOKEN_VARIABLE) {
        if !file::is_token(&token) {
            let message = format!("not a valid bearer token; {}", file::TOKEN_HINT);
            errors.add_outside_file(TOKEN_VARIABLE, message);
        }
        admin.token = Some(Secret::new(&token));
        written.token_file = Field::Absent;
    } else if let Some(Spanned { value, node }) = written.token_file.as_ref() {
        if layers.read_secrets {
            match file::read_token(value) {
                Ok(token) => admin.token = Some(token),
                Err(message) => errors.add(*node, message),
            }
        }
        admin.token_file = Some(value.clone());
    }
    admin
}
