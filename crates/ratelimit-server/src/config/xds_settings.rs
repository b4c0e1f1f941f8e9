//! Settings of the xDS server that Envoy rules come from.

use std::{convert::Infallible, fmt, net::IpAddr, path::PathBuf, str::FromStr};

use axum::http::{
    Uri,
    uri::{PathAndQuery, Scheme},
};
use clap::Args;

/// The settings of the xDS server. An unset field means the default.
#[derive(Args, Clone, Debug, Default)]
#[expect(clippy::struct_field_names, reason = "fields have the names of flags")]
pub(crate) struct XdsSettings {
    /// The xDS server that Envoy rules come from, as in `http://127.0.0.1:18001` or `https://envoy-gateway:18001`
    #[arg(
        long, help_heading = "Envoy", hide_short_help = true,
        env = "RATELIMIT_ENVOY_XDS_SERVER",
        value_parser = XdsUrlText::unchecked,
        value_name = "URL",
        hide_env_values = true
    )]
    pub(super) envoy_xds_server: Option<XdsUrlText>,

    /// The name of this server in requests to --envoy-xds-server [default: envoy-ratelimit]
    #[arg(
        long,
        help_heading = "Envoy",
        hide_short_help = true,
        env = "RATELIMIT_ENVOY_XDS_NODE_ID",
        value_name = "ID"
    )]
    pub(super) envoy_xds_node_id: Option<String>,

    /// The root certificates (PEM) of an https:// xDS server; read at each connection [default: those of the system]
    #[arg(
        long,
        help_heading = "Envoy",
        hide_short_help = true,
        env = "RATELIMIT_ENVOY_XDS_CA",
        value_name = "FILE"
    )]
    pub(super) envoy_xds_ca: Option<PathBuf>,

    /// The client certificate chain (PEM) for an https:// xDS server; read at each connection
    #[arg(
        long,
        help_heading = "Envoy",
        hide_short_help = true,
        env = "RATELIMIT_ENVOY_XDS_CERT",
        value_name = "FILE"
    )]
    pub(super) envoy_xds_cert: Option<PathBuf>,

    /// The private key (PEM) of --envoy-xds-cert
    #[arg(
        long,
        help_heading = "Envoy",
        hide_short_help = true,
        env = "RATELIMIT_ENVOY_XDS_KEY",
        value_name = "FILE"
    )]
    pub(super) envoy_xds_key: Option<PathBuf>,

    /// The name in the certificate of the xDS server [default: the host of --envoy-xds-server]
    #[arg(
        long,
        help_heading = "Envoy",
        hide_short_help = true,
        env = "RATELIMIT_ENVOY_XDS_SERVER_NAME",
        value_name = "NAME"
    )]
    pub(super) envoy_xds_server_name: Option<String>,
}

impl XdsSettings {
    /// Fills unset fields from the settings of a file.
    pub(super) fn or(self, file: XdsSettings) -> XdsSettings {
        XdsSettings {
            envoy_xds_server: self.envoy_xds_server.or(file.envoy_xds_server),
            envoy_xds_node_id: self.envoy_xds_node_id.or(file.envoy_xds_node_id),
            envoy_xds_ca: self.envoy_xds_ca.or(file.envoy_xds_ca),
            envoy_xds_cert: self.envoy_xds_cert.or(file.envoy_xds_cert),
            envoy_xds_key: self.envoy_xds_key.or(file.envoy_xds_key),
            envoy_xds_server_name: self.envoy_xds_server_name.or(file.envoy_xds_server_name),
        }
    }

    /// The names of the settings that differ.
    pub(super) fn changes(&self, other: &XdsSettings) -> impl Iterator<Item = &'static str> {
        let (one, other) = (self.texts(), other.texts());
        let pairs = one.into_iter().zip(other);
        let changed = pairs.filter(|((_, one), (_, other))| one != other);
        changed.map(|((name, _), _)| name)
    }

    /// The name of the first setting that is set.
    pub(super) fn first_set(&self) -> Option<&'static str> {
        let is_set = self.envoy_xds_server.is_some();
        let server = is_set.then_some("envoy-xds-server");
        server.or_else(|| self.first_beside_server())
    }

    /// The name of the first setting beside the address that is set.
    pub(super) fn first_beside_server(&self) -> Option<&'static str> {
        let [_, others @ ..] = self.texts();
        let mut set = others.into_iter().filter(|(_, text)| text.is_some());
        set.next().map(|(name, _)| name)
    }

    /// The name of the first setting that an address without TLS has no use for.
    #[cfg(feature = "envoy")]
    pub(super) fn first_of_tls(&self) -> Option<&'static str> {
        let [_, _, of_tls @ ..] = self.texts();
        let mut set = of_tls.into_iter().filter(|(_, text)| text.is_some());
        set.next().map(|(name, _)| name)
    }

    /// The names and values: the address, the node, and the settings of TLS.
    fn texts(&self) -> [(&'static str, Option<String>); 6] {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let server = self.envoy_xds_server.as_ref();
        [
            ("envoy-xds-server", server.map(|text| text.0.clone())),
            ("envoy-xds-node-id", self.envoy_xds_node_id.clone()),
            ("envoy-xds-ca", path(&self.envoy_xds_ca)),
            ("envoy-xds-cert", path(&self.envoy_xds_cert)),
            ("envoy-xds-key", path(&self.envoy_xds_key)),
            ("envoy-xds-server-name", self.envoy_xds_server_name.clone()),
        ]
    }
}

/// The text of an [`XdsUrl`] in settings. `Debug` omits it, because a text that is refused may contain a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct XdsUrlText(String);

impl XdsUrlText {
    /// For flags and variables: an error of clap quotes the whole text with its password, so it is checked later.
    #[allow(clippy::unnecessary_wraps, reason = "clap asks for a result")]
    pub(super) fn unchecked(text: &str) -> Result<XdsUrlText, Infallible> {
        Ok(XdsUrlText(text.to_owned()))
    }

    /// The URL, or the reason why it is refused.
    pub(super) fn url(&self) -> Result<XdsUrl, &'static str> {
        self.0.parse()
    }
}

impl FromStr for XdsUrlText {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<XdsUrlText, &'static str> {
        let text = XdsUrlText(text.to_owned());
        text.url().map(|_| text)
    }
}

impl fmt::Debug for XdsUrlText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("XdsUrlText(..)")
    }
}

/// The URL of an xDS server: `http` or `https`, a host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct XdsUrl(Uri);

#[cfg_attr(
    not(feature = "envoy"),
    expect(dead_code, reason = "a server without the feature does not connect")
)]
impl XdsUrl {
    pub(crate) fn uri(&self) -> &Uri {
        &self.0
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.0.scheme() == Some(&Scheme::HTTPS)
    }

    /// The host, an IPv6 address without brackets.
    pub(crate) fn host(&self) -> &str {
        self.0.host().unwrap_or_default().trim_matches(['[', ']'])
    }

    /// Whether rules come from another machine without encryption.
    pub(crate) fn is_plain_remote(&self) -> bool {
        let is_loopback = match self.host().parse::<IpAddr>() {
            Ok(addr) => addr.to_canonical().is_loopback(),
            Err(_) => self.host().eq_ignore_ascii_case("localhost"),
        };
        !self.is_tls() && !is_loopback
    }

    pub(crate) fn port(&self) -> u16 {
        let default = if self.is_tls() { 443 } else { 80 };
        self.0.port_u16().unwrap_or(default)
    }
}

impl FromStr for XdsUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<XdsUrl, &'static str> {
        const EXPECTED: &str =
            "expected an address such as http://127.0.0.1:18001 or https://envoy-gateway:18001";
        let uri: Uri = text.parse().map_err(|_| EXPECTED)?;
        let is_http = [Some("http"), Some("https")].contains(&uri.scheme_str());
        let is_bare = uri.path_and_query().is_none_or(|path| path == &root());
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let host = uri.host().unwrap_or_default();
        if !is_http || !is_bare || host.is_empty() || authority.contains('@') {
            return Err(EXPECTED);
        }
        // `Uri` takes any text for a port and then has none.
        let after_host = authority.strip_prefix(host).unwrap_or_default();
        if !after_host.is_empty() && !after_host.strip_prefix(':').is_some_and(is_port) {
            return Err("expected a port from 1 to 65535 after the colon of the address");
        }
        Ok(XdsUrl(uri))
    }
}

fn is_port(text: &str) -> bool {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number && text.parse::<u16>().is_ok_and(|port| port > 0)
}

fn root() -> PathAndQuery {
    PathAndQuery::from_static("/")
}

impl fmt::Display for XdsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.0.scheme_str().unwrap_or_default();
        let authority = self
            .0
            .authority()
            .map_or("", |authority| authority.as_str());
        write!(f, "{scheme}://{authority}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme_a_host_and_nothing_behind_them() {
        for (text, shown, host, port) in [
            ("http://a", "http://a", "a", 80),
            ("https://a.b/", "https://a.b", "a.b", 443),
            ("https://a:18001", "https://a:18001", "a", 18001),
            ("http://[::1]:7", "http://[::1]:7", "::1", 7),
        ] {
            let url: XdsUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), shown);
            assert_eq!((url.host(), url.port()), (host, port));
        }
        for text in [
            "",
            "a:18001",
            "/a",
            "grpc://a:1",
            "http://",
            "http://a/path",
            "http://a?b",
            "http://user:secret@a",
        ] {
            let why = text.parse::<XdsUrl>().unwrap_err();
            assert!(why.starts_with("expected an address"), "{text}");
        }
    }

    #[test]
    fn a_port_is_a_number_from_1_to_65535() {
        assert_eq!("http://a:65535".parse::<XdsUrl>().unwrap().port(), 65535);
        for text in [
            "http://gw:180010",
            "http://gw:65536",
            "http://gw:abc",
            "http://gw:",
            "http://gw:/",
            "http://gw:0",
            "http://[::1]:0",
            "https://gw:0",
        ] {
            let why = text.parse::<XdsUrl>().unwrap_err();
            assert!(why.starts_with("expected a port"), "{text}: {why}");
        }
        assert!("http://gw:+80".parse::<XdsUrl>().is_err());
    }

    #[test]
    fn only_plain_http_to_another_machine_is_remote_without_encryption() {
        for (text, is_remote) in [
            ("http://gw:1", true),
            ("http://192.0.2.1:1", true),
            ("http://0.0.0.0:1", true),
            ("https://gw:1", false),
            ("http://localhost:1", false),
            ("http://127.8.0.1:1", false),
            ("http://[::1]:1", false),
            ("http://[::ffff:127.0.0.1]:1", false),
        ] {
            let url: XdsUrl = text.parse().unwrap();
            assert_eq!(url.is_plain_remote(), is_remote, "{text}");
        }
    }
}
