//! Redis URLs: one server, sentinels, or a cluster.
//!
//! | URL | [`Topology`] |
//! |---|---|
//! | `redis://`, `rediss://`, `redis+unix://` | `Single`; the redis crate parses it |
//! | `redis+sentinel://`, `rediss+sentinel://` | `Sentinel` |
//! | `redis+cluster://`, `rediss+cluster://` | `Cluster` |
//!
//! URLs with several hosts are split here, and each host is parsed as a URL of one server.

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _};

use crate::store::redis::error::InvalidRedisConfig;

/// The port of a server whose URL has none.
const DEFAULT_PORT: u16 = 6379;
/// The port of a sentinel whose URL has none.
const DEFAULT_SENTINEL_PORT: u16 = 26379;

/// The servers that a URL names. Addresses, credentials and TLS settings are valid; nothing has been connected yet.
#[derive(Clone, Debug)]
pub(super) enum Topology {
    /// One server.
    Single(ConnectionInfo),
    /// The master of a service. Each new connection looks its address up at the sentinels, so a failover is followed.
    Sentinel {
        /// At least one, in the order of the URL.
        sentinels: Vec<ConnectionInfo>,
        /// The name of the service, such as `mymaster`.
        service: String,
        /// Credentials, database and TLS settings of the master. Its address is a placeholder, which
        /// [`with_address`] replaces by the one that a sentinel names.
        master: Box<ConnectionInfo>,
    },
    /// A cluster, whose nodes are found from any seed that answers.
    Cluster {
        /// At least one, all with the same credentials, which are used for all nodes.
        seeds: Vec<ConnectionInfo>,
    },
}

impl Topology {
    /// Parses a URL. No name is resolved.
    ///
    /// # Errors
    ///
    /// - [`InvalidRedisConfig::Url`] if it is not the URL of a Redis server, or needs TLS that is not compiled in.
    /// - [`InvalidRedisConfig::NoService`] if a URL of sentinels has no path.
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

    /// Parses `[user:password@]host[:port],host[:port]`. A cluster has no database number.
    fn cluster(scheme: &str, rest: &str) -> Result<Topology, InvalidRedisConfig> {
        let (userinfo, hosts) = split_userinfo(rest.trim_end_matches('/'));
        let seeds = each_host(hosts, DEFAULT_PORT)
            .map(|host| node(&format!("{scheme}://{userinfo}{host}")))
            .collect::<Result<_, _>>()?;
        Ok(Topology::Cluster { seeds })
    }

    /// Parses `[user:password@]host[:port],host[:port]/service[/db][?sentinel_password=...]`.
    ///
    /// - User and password are those of the master. `sentinel_password` is that of all sentinels, which have no user.
    /// - Special characters in passwords are percent-encoded. An `@` may stand as it is.
    fn sentinel(scheme: &str, rest: &str) -> Result<Topology, InvalidRedisConfig> {
        let (userinfo, rest) = split_userinfo(rest);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut path = rest.split('/');
        let hosts = path.next().unwrap_or_default();
        let service = path.next().filter(|service| !service.is_empty());
        let service = service.ok_or(InvalidRedisConfig::NoService)?.to_owned();
        let db = path.next().unwrap_or("0");
        // Parsed now so that an invalid database or password is an error of the configuration.
        let master = node(&format!("{scheme}://{userinfo}127.0.0.1:1/{db}"))?;
        let full = format!("{scheme}://{rest}");
        check_parameters(&full, query, &["sentinel_password"])?;
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

/// Parses the URL of one server with the redis crate.
fn node(url: &str) -> Result<ConnectionInfo, InvalidRedisConfig> {
    let refused = |source| InvalidRedisConfig::Url {
        url: without_credentials(url),
        source: Box::new(source),
    };
    let info = url.into_connection_info().map_err(refused)?;
    let parameters: &[&str] = match info.addr() {
        ConnectionAddr::Unix(_) => &["db", "user", "pass", "protocol"],
        _ => &["protocol"],
    };
    check_parameters(
        url,
        url.split_once('?').map_or("", |(_, query)| query),
        parameters,
    )?;
    // An address that needs a feature which is not compiled in is refused here, not at the first connection.
    Client::open(info.clone()).map_err(refused)?;
    Ok(info)
}

/// Checks that every parameter of a query has an effect: the redis crate ignores the others, such as `?db=3`.
///
/// # Errors
///
/// [`InvalidRedisConfig::Url`] for any other parameter. The message does not show it, because it may be part of a password
/// that is not escaped.
fn check_parameters(url: &str, query: &str, known: &[&str]) -> Result<(), InvalidRedisConfig> {
    let query = query.split('#').next().unwrap_or_default();
    let names = query.split('&').filter(|pair| !pair.is_empty());
    let mut names = names.map(|pair| pair.split('=').next().unwrap_or_default());
    if names.all(|name| known.contains(&name)) {
        return Ok(());
    }
    let known = known.join("`, `");
    Err(InvalidRedisConfig::Url {
        url: without_credentials(url),
        source: format!("of the parameters behind `?` only `{known}` have an effect").into(),
    })
}

/// The URL without user, password and query, for messages.
fn without_credentials(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    // The last `@` of all, and not that before the query: an unescaped `?` in a password begins no query.
    let hosts = rest.rsplit('@').next().unwrap_or_default();
    let hosts = hosts.split('?').next().unwrap_or_default();
    match scheme {
        "" => hosts.to_owned(),
        scheme => format!("{scheme}://{hosts}"),
    }
}

/// Splits into the credentials with their `@`, or an empty string, and the rest. The last `@` before the query
/// separates them: a password may contain one.
fn split_userinfo(rest: &str) -> (&str, &str) {
    let query = rest.find('?').unwrap_or(rest.len());
    let end = rest[..query].rfind('@').map_or(0, |at| at + 1);
    rest.split_at(end)
}

/// The hosts of a list that is separated by commas, each with a port. IPv6 addresses are in brackets.
fn each_host(hosts: &str, default_port: u16) -> impl Iterator<Item = String> + '_ {
    hosts.split(',').map(move |host| {
        let has_port = host.rsplit_once(':').is_some_and(|(before, port)| {
            // A colon inside of an IPv6 address separates no port.
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

/// The same credentials and TLS settings for another host and port: a master that sentinels name, or a cluster node.
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
    fn the_password_of_sentinels_may_contain_an_at_sign() {
        let url = "redis+sentinel://s1/mymaster?sentinel_password=p@ss";

        let Ok(Topology::Sentinel { sentinels, .. }) = Topology::parse(url) else {
            panic!("not sentinels");
        };
        assert_eq!(addresses(&sentinels), ["s1:26379"]);
        assert_eq!(sentinels[0].redis_settings().password(), Some("p@ss"));
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
    fn an_error_names_the_url_without_its_password() {
        for (url, shown) in [
            ("http://app:s3cr3t@a:80/x", "\"http://a:80/x\""),
            ("redis://app:s3cr3t@a:b:c", "\"redis://a:b:c\""),
            ("app:s3cr3t@a", "\"a\""),
            ("redis://app:s3cr3t?x@a:6379", "\"redis://a:6379\""),
            ("redis+cluster://:s3cr3t?x@a:6379", "\"redis://a:6379"),
            (
                "redis+sentinel://a:b:c/m?sentinel_password=s3cr3t",
                "\"redis://a:b:c",
            ),
        ] {
            let error = Topology::parse(url).expect_err(url);
            // `main` prints the error that it returns with `Debug`.
            let message = format!("{error:?}");
            assert!(message.starts_with(shown), "{message}");
            assert!(!message.contains("s3cr3t"), "{message}");
        }
    }

    #[cfg(not(feature = "redis-tls"))]
    #[test]
    fn an_address_of_tls_names_the_feature_that_it_needs() {
        let error = Topology::parse("rediss://app:s3cr3t@cache:6380").expect_err("no TLS");

        assert_eq!(
            format!("{error:?}"),
            "rediss://cache:6380 needs TLS: turn on the feature redis-tls"
        );
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

    #[test]
    fn a_parameter_without_effect_is_refused() {
        for url in [
            "redis://a?db=3",
            "redis://a/3?timeout=5s",
            "redis://a?protocol=resp3&ssl=true",
            "redis+unix:///run/redis.sock?database=3",
            "redis+sentinel://a/mymaster?password=s3cr3t",
            "redis+cluster://a:1?db=3",
        ] {
            let error = Topology::parse(url).expect_err(url).to_string();
            assert!(error.contains("have an effect"), "{error}");
            assert!(!error.contains("s3cr3t"), "{error}");
        }
        for url in [
            "redis://a/3?protocol=resp3",
            "redis+unix:///run/redis.sock?db=3&pass=x",
            "redis+sentinel://a/mymaster?sentinel_password=x",
        ] {
            assert!(Topology::parse(url).is_ok(), "{url}");
        }
    }
}
