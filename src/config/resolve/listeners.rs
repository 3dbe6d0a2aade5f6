//! Listeners of the data path, and the admin port.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::Layers;
use crate::config::deserialize::{Field, Spanned};
use crate::config::errors::ErrorCollector;
use crate::config::{Admin, RunArgs, Secret, file, raw, value};
use tokengauge_listen::{Address, Config, Tls};

/// Loopback, so that the proxy is not reachable from other machines by default.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4000);

/// The bearer token of the admin port. Not a flag, because flags are visible in `ps`.
const TOKEN_VARIABLE: &str = "TOKENGAUGE_ADMIN_TOKEN";

pub(super) fn resolve(
    written: Field<Vec<Field<raw::Listener>>>,
    admin: Field<raw::Admin>,
    layers: Layers<'_>,
    errors: &mut ErrorCollector,
) -> (Vec<Config>, Admin) {
    let list_node = match &written {
        Field::Present(list) if layers.args.listen.is_empty() => Some(list.node),
        Field::Present(_) | Field::Absent | Field::Invalid => None,
    };
    let listeners = listeners(written, layers.args, errors);
    let admin = self::admin(admin, layers, errors);
    if let Some(message) = duplicate_address(&listeners, &admin) {
        match list_node {
            Some(node) => errors.add(node, message),
            None => errors.add_outside_file("--listen", message),
        }
    }
    (listeners, admin)
}

fn listeners(
    written: Field<Vec<Field<raw::Listener>>>,
    args: &RunArgs,
    errors: &mut ErrorCollector,
) -> Vec<Config> {
    let mut listeners = match written {
        Field::Present(Spanned { value, node }) => {
            if value.is_empty() {
                let hint = format!("add a listener, or remove this key for {LISTEN}");
                errors.add(node, format!("the list is empty; {hint}"));
            }
            let present = value.into_iter().filter_map(Field::spanned);
            present.filter_map(|written| listener(written, errors)).collect()
        }
        Field::Absent | Field::Invalid => vec![Config::at(Address::Tcp(LISTEN))],
    };
    if !args.listen.is_empty() {
        listeners = args.listen.iter().map(|address| Config::at(address.0.clone())).collect();
    }
    match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => {
            let tls = Tls { certificate: certificate.clone(), key: key.clone() };
            let is_tcp = |listener: &&mut Config| matches!(listener.address, Address::Tcp(_));
            for listener in listeners.iter_mut().filter(is_tcp) {
                listener.tls = Some(tls.clone());
            }
        }
        (Some(_), None) => {
            errors.add_outside_file("--tls-cert", "the key is missing; add --tls-key")
        }
        (None, Some(_)) => {
            errors.add_outside_file("--tls-key", "the certificate is missing; add --tls-cert");
        }
        (None, None) => {}
    }
    listeners
}

fn listener(written: Spanned<raw::Listener>, errors: &mut ErrorCollector) -> Option<Config> {
    let Spanned { value, node } = written;
    let tls = value.tls.spanned().and_then(|tls| {
        let hint = "name a PEM file";
        let certificate = tls.value.certificate.required(errors, tls.node, "certificate", hint);
        let key = tls.value.key.required(errors, tls.node, "key", hint);
        Some(Tls { certificate: certificate?.value, key: key?.value })
    });
    let hint = "write the address to listen on, such as `address: 127.0.0.1:4000`";
    let address = value.address.required(errors, node, "address", hint)?;
    Some(Config {
        address: address.value.0,
        tls,
        max_connections: value.max_connections.or(Config::MAX_CONNECTIONS),
        head_timeout: value.head_timeout.duration().unwrap_or(Config::HEAD_TIMEOUT),
    })
}

/// The error for the first address that is used twice. Port 0 is a different port each time.
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

fn admin(written: Field<raw::Admin>, layers: Layers<'_>, errors: &mut ErrorCollector) -> Admin {
    let written = written.or_default();
    let address = layers.args.admin.or(written.address.value());
    let mut admin = Admin {
        address: address.map_or(Admin::ADDRESS, |socket| socket.0),
        token: None,
        token_file: None,
    };
    if let Some(token) = (layers.environment)(TOKEN_VARIABLE) {
        if !file::is_token(&token) {
            let message = format!("not a valid bearer token; {}", file::TOKEN_HINT);
            errors.add_outside_file(TOKEN_VARIABLE, message);
        }
        admin.token = Some(Secret::new(&token));
    } else if let Some(Spanned { value, node }) = written.token_file.spanned() {
        if layers.read_secrets {
            match file::read_token(&value) {
                Ok(token) => admin.token = Some(token),
                Err(message) => errors.add(node, message),
            }
        }
        admin.token_file = Some(value);
    }
    admin
}
