//! Types of configuration values. Types that other packages also use are re-exported.

pub use tokengauge_types::value::*;

use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::errors::suggestion;

use tokengauge_measure::engine::Engine;
use tokengauge_types::serde_as_str;

/// An address to listen on: `IP:PORT`, `localhost:PORT` or `unix:/path`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Address(pub tokengauge_listen::Address);

impl FromStr for Address {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if let Some(path) = text.strip_prefix("unix:") {
            if !Path::new(path).is_absolute() {
                return Err(ValueError::new(
                    format!("\"{path}\" is not an absolute path"),
                    "write unix:/path, such as unix:/run/tokengauge.sock",
                ));
            }
            return Ok(Self(tokengauge_listen::Address::Unix(PathBuf::from(path))));
        }
        match listen_addr(text) {
            Some(address) => Ok(Self(tokengauge_listen::Address::Tcp(address))),
            None => Err(ValueError::new(
                format!("\"{text}\" is not an address to listen on"),
                "write an IP address and a port, such as 127.0.0.1:4000, [::1]:4000 or, for all interfaces, \
                 [::]:4000; or unix:/path",
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

serde_as_str!(Address, { "type": "string", "format": "address" });

/// The path of a file.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(transparent)]
#[schemars(inline, extend("format" = "path"))]
pub struct FilePath(pub PathBuf);

/// The engine to expect, or `auto` to detect it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EngineChoice(pub Option<Engine>);

const AUTO: &str = "auto";

impl FromStr for EngineChoice {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let engine = Engine::ALL.into_iter().find(|engine| engine.as_str() == text);
        if engine.is_some() || text == AUTO {
            return Ok(Self(engine));
        }
        let known = Engine::ALL.iter().map(|engine| engine.as_str()).chain([AUTO]);
        Err(ValueError::new(format!("unknown value \"{text}\""), suggestion(text, known)))
    }
}

impl fmt::Display for EngineChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.map_or(AUTO, Engine::as_str))
    }
}

serde_as_str!(EngineChoice, {
    "type": "string",
    "enum": ["auto", "vllm", "sglang", "tgi", "tensorrt_llm", "llama_cpp", "triton", "nim"]
});

const REDACTED: &str = "***";

/// A credential, or text that may contain one. `Debug`, `Display` and `Serialize` print `***` instead.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret(Arc<str>);

impl Secret {
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the secret text, for code that sends or compares it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::new(text))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}

/// The value of a header. Treated as a secret, because many headers contain credentials.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(transparent)]
#[schemars(inline)]
pub struct HeaderValue(#[schemars(with = "String")] pub Secret);

impl<'de> Deserialize<'de> for HeaderValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // The message does not include the value: half of a key is still a leak.
        let message = "not a valid header value; write one line of ASCII";
        http::HeaderValue::from_str(&text).map_err(|_| serde::de::Error::custom(message))?;
        Ok(Self(Secret::new(&text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: FromStr<Err = ValueError> + fmt::Display>(text: &str) -> Result<String, String> {
        text.parse::<T>().map(|value| value.to_string()).map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn parses_tcp_and_unix_addresses() {
        for text in ["127.0.0.1:4000", "[::1]:0", "unix:/run/a.sock"] {
            assert_eq!(read::<Address>(text).as_deref(), Ok(text));
        }
        assert_eq!(read::<Address>("localhost:4000").as_deref(), Ok("127.0.0.1:4000"));
        for text in ["4000", ":4000", "localhost", "box:4000", "127.0.0.1", "unix:a.sock", "unix:"]
        {
            assert!(read::<Address>(text).unwrap_err().contains("unix:/"), "{text}");
        }
    }

    #[test]
    fn prints_stars_unless_exposed() {
        let secret = Secret::new("sk-live-1234");
        let printed = [
            format!("{secret}"),
            format!("{secret:?}"),
            format!("{:#?}", Some(&secret)),
            serde_json::to_string(&secret).unwrap(),
        ];
        assert!(printed.iter().all(|text| !text.contains("1234")), "{printed:?}");
        assert_eq!(secret.expose(), "sk-live-1234");
    }
}
