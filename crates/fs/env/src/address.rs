//! Addresses on which servers listen.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Address of a server: `unix:/path/to/socket` or `tcp:host:port`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Address {
    /// Unix socket by its path.
    Unix(PathBuf),
    /// Host (name, IPv4, or IPv6 in brackets) and port.
    Tcp(String, u16),
}

/// sun_path holds 108 bytes, including the terminating zero.
const UNIX_PATH_MAX: usize = 107;

/// Error for text that is not an address.
#[derive(Debug, PartialEq, Eq)]
pub struct BadAddress(String);

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let long = self.0.strip_prefix("unix:").is_some_and(|path| path.len() > UNIX_PATH_MAX);
        let why = if long { " with a path of at most 107 bytes" } else { "" };
        write!(f, "{:?} is not an address: write unix:/path/to/socket{why} or tcp:host:port", self.0)
    }
}

impl std::error::Error for BadAddress {}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadAddress(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            if !path.starts_with('/') || path.len() > UNIX_PATH_MAX || path.contains('\0') {
                return Err(bad());
            }
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let rest = text.strip_prefix("tcp:").ok_or_else(bad)?;
        let (host, port) = rest.rsplit_once(':').ok_or_else(bad)?;
        let port = port.parse().map_err(|_| bad())?;
        let bare_v6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
        let odd = host.contains(|c: char| c.is_whitespace() || c.is_control());
        if host.is_empty() || bare_v6 || odd {
            return Err(bad());
        }
        Ok(Self::Tcp(host.to_owned(), port))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host, port) => write!(f, "tcp:{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse_as_displayed() {
        for text in ["unix:/run/weft/s0.sock", "tcp:127.0.0.1:4000", "tcp:[::1]:4000", "tcp:node7:0"] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn malformed_addresses_are_rejected() {
        let long = format!("unix:/{}", "x".repeat(107));
        for text in [
            "",
            "unix:rel",
            "tcp:host",
            "tcp::1",
            "tcp:::1:80",
            "tcp:h:70000",
            "unix:/a\0b",
            "tcp:a b:1",
            &long,
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
