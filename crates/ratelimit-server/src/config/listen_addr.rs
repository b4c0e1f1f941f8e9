//! An address to listen on: TCP or a unix socket.

use std::{
    fmt,
    net::SocketAddr,
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
            let expected = "expected an address such as 127.0.0.1:8081 or unix:/run/ratelimit.sock";
            return text
                .parse()
                .map(ListenAddr::Tcp)
                .map_err(|_| expected.to_owned());
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
        let long = format!("unix:/{}", "x".repeat(100));
        for text in ["", "8081", "unix:", "unix:run.sock", "unix:/run/", &long] {
            assert!(text.parse::<ListenAddr>().is_err(), "{text}");
        }
    }
}
