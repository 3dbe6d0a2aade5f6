//! Values of the configuration that need types of other crates, and those that every crate shares.

pub use tokengauge_types::value::*;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tokengauge_measure::cost::Day;
use tokengauge_types::as_text;

/// Where to listen: `IP:PORT` or `unix:/path`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Address(pub tokengauge_listen::Address);

impl FromStr for Address {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        if let Some(path) = text.strip_prefix("unix:") {
            if !Path::new(path).is_absolute() {
                return Err(Wrong::new(
                    format!("\"{path}\" is no absolute path of a socket"),
                    "write unix:/path, such as unix:/run/tokengauge.sock",
                ));
            }
            return Ok(Self(tokengauge_listen::Address::Unix(PathBuf::from(path))));
        }
        match text.parse() {
            Ok(address) => Ok(Self(tokengauge_listen::Address::Tcp(address))),
            Err(_) => Err(Wrong::new(
                format!("\"{text}\" is no address to listen on"),
                "write an IP address and a port, such as 127.0.0.1:4000, [::1]:4000 or, for all interfaces, \
                 0.0.0.0:4000; or unix:/path",
            )),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            tokengauge_listen::Address::Tcp(address) => address.fmt(f),
            tokengauge_listen::Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

as_text!(Address, { "type": "string" });

/// A day in UTC: `2026-01-31`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Date(pub Day);

impl FromStr for Date {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        text.parse().map(Self).map_err(|()| {
            let remedy = "write year, month and day, such as 2026-01-31";
            Wrong::new(format!("\"{text}\" is no day"), remedy)
        })
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

as_text!(Date, { "type": "string", "format": "date" });

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: FromStr<Err = Wrong> + fmt::Display>(text: &str) -> Result<String, String> {
        text.parse::<T>().map(|value| value.to_string()).map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn addresses_are_of_tcp_or_of_unix_sockets() {
        for text in ["127.0.0.1:4000", "[::1]:0", "unix:/run/a.sock"] {
            assert_eq!(read::<Address>(text).as_deref(), Ok(text));
        }
        for text in ["4000", ":4000", "localhost:4000", "127.0.0.1", "unix:a.sock", "unix:"] {
            assert!(read::<Address>(text).unwrap_err().contains("unix:/"), "{text}");
        }
    }
}
