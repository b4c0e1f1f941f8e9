//! The address of Redis from several variables.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{Variables, refuse};
use crate::config::invalid::InvalidConfig;

/// The URL of the servers that `REDIS_URL` and `REDIS_TYPE` name; `None` without `REDIS_URL`.
pub(super) fn redis_url<F: Fn(&str) -> Option<String>>(
    variables: &Variables<F>,
) -> Result<Option<String>, InvalidConfig> {
    let Some(servers) = variables.get("REDIS_URL") else {
        return Ok(None);
    };
    let is_tls = variables.is_true("REDIS_TLS")?;
    let scheme = if is_tls { "rediss" } else { "redis" };
    let auth = variables.get("REDIS_AUTH");
    let userinfo = auth.as_deref().map_or(String::new(), userinfo);
    let kind = variables.or("REDIS_TYPE", "SINGLE").to_uppercase();
    let is_path = servers.starts_with('/');
    if let Some(socket) = variables.get("REDIS_SOCKET_TYPE") {
        check_socket_type(&socket, kind == "SINGLE", is_path)?;
    }
    let url = match &*kind {
        "SINGLE" if servers.contains("://") => whole_url(&servers, scheme, &userinfo),
        "SINGLE" if is_path && is_tls => {
            let message = "TLS to a unix socket is not supported: name a host in REDIS_URL";
            return Err(refuse("REDIS_TLS", message));
        }
        "SINGLE" if is_path => unix_url(&servers, auth.as_deref()),
        "SINGLE" => format!("{scheme}://{userinfo}{servers}"),
        "CLUSTER" => format!("{scheme}+cluster://{userinfo}{}", hosts(&servers)?),
        "SENTINEL" => {
            let Some((service, sentinels)) = servers.split_once(',') else {
                let message = "expected the name of the master and its sentinels, joined by commas";
                return Err(refuse("REDIS_URL", message));
            };
            if service.is_empty() || service.contains(['/', '?', '@']) {
                let message = "the name of the master is empty, or has one of / ? @";
                return Err(refuse("REDIS_URL", message));
            }
            let sentinels = hosts(sentinels)?;
            let password = sentinel_password(variables.get("REDIS_SENTINEL_AUTH"))?;
            format!("{scheme}+sentinel://{userinfo}{sentinels}/{service}{password}")
        }
        _ => {
            let message = format!("expected SINGLE, SENTINEL or CLUSTER, not {kind:?}");
            return Err(refuse("REDIS_TYPE", message));
        }
    };
    Ok(Some(url))
}

/// Whether a `REDIS_URL` has credentials of its own, which go before `REDIS_AUTH`.
pub(super) fn has_credentials(url: &str) -> bool {
    url.split_once("://")
        .is_some_and(|(_, rest)| rest.contains('@'))
}

/// Checks that the type of the socket is that of the address. A cluster and sentinels are over TCP, whatever it says.
fn check_socket_type(socket: &str, is_single: bool, is_path: bool) -> Result<(), InvalidConfig> {
    let message = match (socket, is_path) {
        ("unix", false) if is_single => "REDIS_URL is not the path of a unix socket",
        ("tcp" | "tcp4" | "tcp6", true) => "REDIS_URL is the path of a unix socket",
        ("unix" | "tcp" | "tcp4" | "tcp6", _) => return Ok(()),
        _ => "expected tcp or unix",
    };
    Err(refuse("REDIS_SOCKET_TYPE", message))
}

/// The hosts of a list, without the scheme that each may have.
fn hosts(list: &str) -> Result<String, InvalidConfig> {
    let hosts = list.split(',');
    let hosts = hosts.map(|host| host.strip_prefix("redis://").unwrap_or(host));
    let hosts: Vec<&str> = hosts.collect();
    let is_invalid = |host: &&str| host.is_empty() || host.contains(['/', '@', '?']);
    if hosts.iter().any(is_invalid) {
        let message =
            "expected hosts with ports, joined by commas; REDIS_AUTH has user and password";
        return Err(refuse("REDIS_URL", message));
    }
    Ok(hosts.join(","))
}

/// The query with the password of the sentinels.
fn sentinel_password(auth: Option<String>) -> Result<String, InvalidConfig> {
    let Some(auth) = auth else {
        return Ok(String::new());
    };
    let password = match auth.split_once(':') {
        Some(("" | "default", password)) => password,
        Some(_) => {
            let message = "the server sends a password to the sentinels and no user";
            return Err(refuse("REDIS_SENTINEL_AUTH", message));
        }
        None => &auth,
    };
    Ok(format!("?sentinel_password={}", escaped(password)))
}

/// A URL with TLS and the credentials, unless it has its own.
fn whole_url(url: &str, scheme: &str, userinfo: &str) -> String {
    let (given, rest) = url.split_once("://").unwrap_or((scheme, url));
    let scheme = if given == "redis" { scheme } else { given };
    let userinfo = if has_credentials(url) { "" } else { userinfo };
    format!("{scheme}://{userinfo}{rest}")
}

/// The credentials of `user:password` or `password`, with their `@`.
fn userinfo(auth: &str) -> String {
    let (user, password) = auth.split_once(':').unwrap_or(("", auth));
    format!("{}:{}@", escaped(user), escaped(password))
}

fn unix_url(path: &str, auth: Option<&str>) -> String {
    let Some(auth) = auth else {
        return format!("redis+unix://{path}");
    };
    match auth.split_once(':') {
        Some((user, password)) => format!(
            "redis+unix://{path}?user={}&pass={}",
            escaped(user),
            escaped(password)
        ),
        None => format!("redis+unix://{path}?pass={}", escaped(auth)),
    }
}

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
