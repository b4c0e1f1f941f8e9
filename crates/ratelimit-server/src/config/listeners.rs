//! Checks of the addresses that the server listens on.

use std::net::SocketAddr;

use super::{invalid::InvalidConfig, resolved::Config};

impl Config {
    /// Checks that both listeners can be bound. Port 0 is a free one.
    pub(super) fn check_listeners(&self) -> Result<(), InvalidConfig> {
        let Some(admin) = self.admin_listen.filter(|admin| admin.port() != 0) else {
            return Ok(());
        };
        let (main, is_any) = (self.listen, |one: SocketAddr| one.ip().is_unspecified());
        let is_same_address = main.ip() == admin.ip() || is_any(main) || is_any(admin);
        if main.port() == admin.port() && is_same_address {
            return Err(InvalidConfig::SameListener { listen: admin });
        }
        Ok(())
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
