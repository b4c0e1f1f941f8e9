//! The text that the server prints when it starts.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use crate::{
    config::{Config, ConsoleMode, ListenAddr},
    policy_summary::{MAX_SHOWN_POLICIES, PolicySummary},
};

/// Address, store, policies, admin access, and a first command to try.
pub(crate) struct StartupBanner<'a> {
    pub(crate) config: &'a Config,
    pub(crate) listen: SocketAddr,
    pub(crate) admin_listen: Option<SocketAddr>,
    pub(crate) envoy_listen: Option<ListenAddr>,
    pub(crate) prometheus_listen: Option<SocketAddr>,
    /// The admin token that was made for this process.
    pub(crate) generated_token: Option<&'a str>,
    pub(crate) console: ConsoleMode,
}

impl StartupBanner<'_> {
    /// Whether other machines can connect.
    pub(crate) fn is_exposed(&self) -> bool {
        !self.listen.ip().to_canonical().is_loopback()
    }

    /// Whether other machines can open the console, and over plain http.
    pub(crate) fn shows_console_in_clear(&self) -> bool {
        let listen = self.admin_listen.unwrap_or(self.listen);
        let is_exposed = !listen.ip().to_canonical().is_loopback();
        is_exposed && self.console != ConsoleMode::Off && self.config.tls.is_none()
    }

    fn admin(&self) -> &'static str {
        if self.config.rules.admin.is_some() {
            "reset, refund, settle, explain and offenders need the token"
        } else if self.generated_token.is_some() {
            "reset, refund, settle, explain and offenders need the token of this run (--admin-token-file FILE sets one)"
        } else if self.config.admin_without_token {
            "reset, refund, settle, explain and offenders for direct callers on this machine, without a token"
        } else {
            "reset, refund, settle, explain and offenders are off (no token; set --admin-token-file FILE)"
        }
    }
}

impl fmt::Display for StartupBanner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.config.tls {
            Some(_) => "https",
            None => "http",
        };
        let url = format!("{scheme}://{}", reachable(self.listen));
        writeln!(f, "ratelimit-server {}", env!("CARGO_PKG_VERSION"))?;
        writeln!(f)?;
        writeln!(f, "  listening  {scheme}://{}", self.listen)?;
        if let Some(envoy) = &self.envoy_listen {
            writeln!(f, "  envoy      {envoy} (gRPC)")?;
        }
        writeln!(f, "  store      {}", self.config.store)?;
        let shown = || self.config.rules.policies.iter().take(MAX_SHOWN_POLICIES);
        let width = shown().map(|policy| policy.name().len()).max().unwrap_or(0);
        for (place, policy) in shown().enumerate() {
            let label = if place == 0 { "policies" } else { "" };
            let summary = PolicySummary(policy);
            writeln!(f, "  {label:9}  {:width$}  {summary}", policy.name())?;
        }
        let hidden = self.config.rules.policies.iter().count() - shown().count();
        if hidden > 0 {
            writeln!(f, "  {:9}  and {hidden} more", "")?;
        }
        writeln!(f, "  admin      {}", self.admin())?;
        let admin = reachable(self.admin_listen.unwrap_or(self.listen));
        if let Some(token) = self.generated_token {
            writeln!(f, "  token      {token}")?;
            let offenders = format!("{scheme}://{admin}/api/v1/rate-limit/offenders");
            writeln!(
                f,
                "             curl -H 'Authorization: Bearer {token}' '{offenders}'"
            )?;
        }
        if self.console != ConsoleMode::Off {
            write!(f, "  console    {scheme}://{admin}/console/")?;
            // The page signs in with a token in the fragment, which browsers do not send.
            match self.generated_token {
                Some(token) => writeln!(f, "#token={token}")?,
                None => writeln!(f)?,
            }
        }
        writeln!(f, "  metrics    {scheme}://{admin}/actuator/prometheus")?;
        if let (Some(listen), Some(path)) = (self.prometheus_listen, self.config.metrics_path()) {
            writeln!(f, "             http://{listen}{path}")?;
        }
        if self.is_exposed() && self.config.rules.admin.is_none() {
            writeln!(
                f,
                "  warning    whoever reaches this address can spend any key's budget"
            )?;
        }
        if self.shows_console_in_clear() {
            writeln!(
                f,
                "  warning    the console is served over plain http: token and cookie can be read on the way (--tls-cert)"
            )?;
        }
        writeln!(f)?;
        let rules = &self.config.rules;
        let configured = rules.policies.configured().next();
        let policy = configured.filter(|_| rules.requires_policy);
        let policy = policy.map_or_else(String::new, |name| format!("policy={name}&"));
        writeln!(
            f,
            "  try        curl -i '{url}/api/v1/rate-limit/check?{policy}key=user:123'"
        )
    }
}

/// The address that a program on this machine can use: loopback in place of all addresses, which `Host` may not name.
fn reachable(mut addr: SocketAddr) -> SocketAddr {
    match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => addr.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => addr.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    addr
}
