//! Addresses to listen on: TCP or a unix socket.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    str::FromStr,
};

const UNIX: &str = "unix:";

/// The longest path of a unix socket in bytes. Linux has 108 with a final NUL; a new socket has the number of its process
/// behind its name for a moment.
const MAX_PATH_BYTES: usize = 96;

/// An address such as `127.0.0.1:8081` or `unix:/run/ratelimit.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenAddr {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for ListenAddr {
    type Err = String;

    fn from_str(text: &str) -> Result<ListenAddr, String> {
        let Some(path) = text.strip_prefix(UNIX) else {
            let addr = tcp_addr(text).map(ListenAddr::Tcp);
            return addr.map_err(|why| format!("{why}; or unix:/PATH"));
        };
        if !Path::new(path).is_absolute() || path.ends_with('/') {
            return Err(format!(
                "expected an absolute path after unix:, not {path:?}"
            ));
        }
        if path.len() > MAX_PATH_BYTES {
            return Err(format!(
                "the path of a unix socket has at most {MAX_PATH_BYTES} bytes"
            ));
        }
        Ok(ListenAddr::Unix(path.into()))
    }
}

/// Reads a TCP address such as `127.0.0.1:8080`, or `localhost:8080`, which is the same.
///
/// Other host names are refused: what they resolve to can change, and a server on another address may be open to others.
pub(crate) fn tcp_addr(text: &str) -> Result<SocketAddr, String> {
    if let Ok(addr) = text.parse() {
        return Ok(addr);
    }
    let expected = "expected an IP address and a port such as 127.0.0.1:8080, or 0.0.0.0:8080 for all addresses";
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    match port.parse() {
        Ok(port) if host.eq_ignore_ascii_case("localhost") => {
            Ok((Ipv4Addr::LOCALHOST, port).into())
        }
        Ok(_) if !host.is_empty() => Err(format!(
            "{host} is not an IP address, and host names other than localhost are not resolved: {expected}"
        )),
        _ => Err(expected.to_owned()),
    }
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddr::Tcp(addr) => addr.fmt(f),
            ListenAddr::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_tcp_or_an_absolute_path() {
        for text in ["127.0.0.1:8081", "[::]:8081", "unix:/run/ratelimit.sock"] {
            let addr: ListenAddr = text.parse().unwrap();
            assert_eq!(addr.to_string(), text);
        }
        let localhost: ListenAddr = "localhost:8081".parse().unwrap();
        assert_eq!(localhost.to_string(), "127.0.0.1:8081");
        let why = tcp_addr("limits.example:8081").unwrap_err();
        assert!(
            why.starts_with("limits.example is not an IP address"),
            "{why}"
        );
        for text in ["8081", ":8081", "localhost", "localhost:x"] {
            let why = tcp_addr(text).unwrap_err();
            assert!(
                why.starts_with("expected an IP address and a port"),
                "{why}"
            );
        }
        let long = format!("unix:/{}", "x".repeat(100));
        for text in ["", "8081", "unix:", "unix:run.sock", "unix:/run/", &long] {
            assert!(text.parse::<ListenAddr>().is_err(), "{text}");
        }
    }
}
