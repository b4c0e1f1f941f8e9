//! Checks of the addresses that the server listens on.

use std::net::{IpAddr, SocketAddr};

use super::{invalid::InvalidConfig, resolved::Config};

impl Config {
    /// Checks that both listeners can be bound. Port 0 is a free one.
    pub(super) fn check_listeners(&self) -> Result<(), InvalidConfig> {
        let Some(admin) = self.admin_listen.filter(|admin| admin.port() != 0) else {
            return Ok(());
        };
        let main = self.listen;
        if main.port() == admin.port() && is_same_address(main.ip(), admin.ip()) {
            return Err(InvalidConfig::SameListener { listen: admin });
        }
        Ok(())
    }

    /// The listen address of metrics alone.
    pub(crate) fn metrics_listen(&self) -> Option<SocketAddr> {
        let listen = self.envoy.as_ref()?.metrics_listen.as_ref()?;
        Some(listen.0)
    }

    /// The path of the metrics on [`metrics_listen`](Self::metrics_listen).
    pub(crate) fn metrics_path(&self) -> Option<&str> {
        let listen = self.envoy.as_ref()?.metrics_listen.as_ref()?;
        Some(&listen.1)
    }

    /// Checks that admin calls without a token are for this machine only.
    pub(super) fn check_admin_without_token(&self) -> Result<(), InvalidConfig> {
        let listen = self.admin_listen.unwrap_or(self.listen);
        let is_exposed = !listen.ip().to_canonical().is_loopback();
        if self.admin_without_token && (is_exposed || self.rules.admin.is_some()) {
            let listen = is_exposed.then_some(listen);
            return Err(InvalidConfig::AdminWithoutToken { listen });
        }
        Ok(())
    }
}

/// Whether two listeners on these addresses cannot have the same port.
///
/// `[::]` accepts IPv4 connections too, and `0.0.0.0` only those.
fn is_same_address(one: IpAddr, other: IpAddr) -> bool {
    let (one, other) = (one.to_canonical(), other.to_canonical());
    let includes =
        |any: IpAddr, single: IpAddr| any.is_unspecified() && (any.is_ipv6() || single.is_ipv4());
    one == other || includes(one, other) || includes(other, one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_collides_with_the_addresses_that_it_includes() {
        for (one, other, expected) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("127.0.0.1", "::1", false),
            ("127.0.0.1", "::ffff:127.0.0.1", true),
            ("0.0.0.0", "127.0.0.1", true),
            ("0.0.0.0", "::ffff:127.0.0.1", true),
            ("0.0.0.0", "::1", false),
            ("::ffff:0.0.0.0", "127.0.0.1", true),
            ("::ffff:0.0.0.0", "::1", false),
            ("::", "::1", true),
            ("::", "127.0.0.1", true),
            ("::", "0.0.0.0", true),
        ] {
            let (first, second) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(is_same_address(first, second), expected, "{one} {other}");
            assert_eq!(is_same_address(second, first), expected, "{other} {one}");
        }
    }
}
