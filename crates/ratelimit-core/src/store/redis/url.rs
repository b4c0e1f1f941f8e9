//! Redis URLs: one server, sentinels, or a cluster.

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisResult};

use crate::store::redis::error::InvalidRedisConfig;

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;

/// The servers that a URL names.
#[derive(Clone, Debug)]
pub(super) enum Topology {
    Single(ConnectionInfo),
    Sentinel {
        sentinels: Vec<ConnectionInfo>,
        service: String,
        /// Credentials, database and TLS settings of the master. Sentinels name its host and port.
        master: Box<ConnectionInfo>,
    },
    Cluster {
        seeds: Vec<ConnectionInfo>,
    },
}

impl Topology {
    /// Parses a URL.
    ///
    /// # Errors
    ///
    /// [`InvalidRedisConfig`] if it is not the URL of a Redis server.
    pub(super) fn parse(url: &str) -> Result<Topology, InvalidRedisConfig> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return node(url).map(Topology::Single);
        };
        match scheme {
            "redis+cluster" | "rediss+cluster" => Topology::cluster(plain(scheme), rest),
            "redis+sentinel" | "rediss+sentinel" => Topology::sentinel(plain(scheme), rest),
            _ => node(url).map(Topology::Single),
        }
    }

    /// `[user:password@]host[:port],host[:port]`
    fn cluster(scheme: &str, rest: &str) -> Result<Topology, InvalidRedisConfig> {
        let (userinfo, hosts) = split_userinfo(rest.trim_end_matches('/'));
        let seeds = each_host(hosts, DEFAULT_PORT)
            .map(|host| node(&format!("{scheme}://{userinfo}{host}")))
            .collect::<Result<_, _>>()?;
        Ok(Topology::Cluster { seeds })
    }

    /// `[user:password@]host[:port],host[:port]/service[/db][?sentinel_password=...]`
    fn sentinel(scheme: &str, rest: &str) -> Result<Topology, InvalidRedisConfig> {
        let (userinfo, rest) = split_userinfo(rest);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut path = rest.split('/');
        let hosts = path.next().unwrap_or_default();
        let service = path.next().filter(|service| !service.is_empty());
        let service = service.ok_or(InvalidRedisConfig::NoService)?.to_owned();
        let db = path.next().unwrap_or("0");
        let master = node(&format!("{scheme}://{userinfo}127.0.0.1:1/{db}"))?;
        let password = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("sentinel_password="));
        let userinfo = password.map_or(String::new(), |password| format!(":{password}@"));
        let sentinels = each_host(hosts, DEFAULT_SENTINEL_PORT)
            .map(|host| node(&format!("{scheme}://{userinfo}{host}")))
            .collect::<Result<_, _>>()?;
        Ok(Topology::Sentinel {
            sentinels,
            service,
            master: Box::new(master),
        })
    }
}

/// The scheme of one node: `rediss` for `rediss+cluster`.
fn plain(scheme: &str) -> &str {
    scheme.split_once('+').map_or(scheme, |(plain, _)| plain)
}

fn node(url: &str) -> Result<ConnectionInfo, InvalidRedisConfig> {
    let refused = |source| InvalidRedisConfig::Url {
        source: Box::new(source),
    };
    let info = url.into_connection_info().map_err(refused)?;
    // An address that needs a feature which is not compiled in is refused here, not at the first connection.
    Client::open(info.clone()).map_err(refused)?;
    Ok(info)
}

/// Splits behind the last `@`: a password may contain one.
fn split_userinfo(rest: &str) -> (&str, &str) {
    let end = rest.rfind('@').map_or(0, |at| at + 1);
    rest.split_at(end)
}

fn each_host(hosts: &str, default_port: u16) -> impl Iterator<Item = String> + '_ {
    hosts.split(',').map(move |host| {
        let has_port = host.rsplit_once(':').is_some_and(|(before, port)| {
            let whole_address = !before.contains(':') || before.ends_with(']');
            whole_address && port.parse::<u16>().is_ok()
        });
        if has_port {
            host.to_owned()
        } else {
            format!("{host}:{default_port}")
        }
    })
}

/// The same settings for another host and port.
pub(super) fn with_address(info: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let host = host.to_owned();
    let addr = match info.addr() {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host, port),
    };
    info.clone().set_addr(addr)
}

/// The same settings with another trusted root certificate.
#[cfg(feature = "redis-tls")]
pub(super) fn with_root(info: ConnectionInfo, pem: &[u8]) -> RedisResult<ConnectionInfo> {
    let certificates = redis::TlsCertificates {
        client_tls: None,
        root_cert: Some(pem.to_vec()),
    };
    let client = Client::build_with_tls(info, certificates)?;
    Ok(client.get_connection_info().clone())
}

#[cfg(not(feature = "redis-tls"))]
#[allow(clippy::unnecessary_wraps, reason = "its twin with TLS can fail")]
pub(super) fn with_root(info: ConnectionInfo, _pem: &[u8]) -> RedisResult<ConnectionInfo> {
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(infos: &[ConnectionInfo]) -> Vec<String> {
        infos.iter().map(|info| info.addr().to_string()).collect()
    }

    #[test]
    fn a_cluster_has_seeds_with_one_set_of_credentials() {
        let parsed = Topology::parse("redis+cluster://app:s@cret@a:7000,b,[::1]:7002").unwrap();

        let Topology::Cluster { seeds } = parsed else {
            panic!("not a cluster: {parsed:?}");
        };
        assert_eq!(addresses(&seeds), ["a:7000", "b:6379", "::1:7002"]);
        assert_eq!(seeds[2].redis_settings().username(), Some("app"));
    }

    #[test]
    fn sentinels_are_asked_for_a_service() {
        let parsed = Topology::parse("redis+sentinel://:pw@s1,s2:1234/mymaster/3").unwrap();

        let Topology::Sentinel {
            sentinels,
            service,
            master,
        } = parsed
        else {
            panic!("not sentinels: {parsed:?}");
        };
        assert_eq!(addresses(&sentinels), ["s1:26379", "s2:1234"]);
        assert_eq!(service, "mymaster");
        assert_eq!(master.redis_settings().db(), 3);
        assert_eq!(sentinels[0].redis_settings().password(), None);
    }

    #[test]
    fn other_schemes_are_refused() {
        for url in [
            "http://a",
            "",
            "redis+sentinel://a:1",
            "redis+cluster://",
            "redis://a:b:c",
        ] {
            assert!(Topology::parse(url).is_err(), "{url}");
        }
    }
}
