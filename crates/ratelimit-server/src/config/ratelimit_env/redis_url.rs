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
    let scheme = if variables.is_true("REDIS_TLS")? {
        "rediss"
    } else {
        "redis"
    };
    let auth = variables.get("REDIS_AUTH");
    let userinfo = auth.as_deref().map_or(String::new(), userinfo);
    let kind = variables.or("REDIS_TYPE", "SINGLE").to_uppercase();
    let url = match &*kind {
        "SINGLE" if servers.contains("://") => whole_url(&servers, scheme, &userinfo),
        "SINGLE" if servers.starts_with('/') => unix_url(&servers, auth.as_deref()),
        "SINGLE" => format!("{scheme}://{userinfo}{servers}"),
        "CLUSTER" => format!("{scheme}+cluster://{userinfo}{servers}"),
        "SENTINEL" => {
            let Some((service, sentinels)) = servers.split_once(',') else {
                let message = "expected the name of the master and its sentinels, joined by commas";
                return Err(refuse("REDIS_URL", message));
            };
            let password = variables.get("REDIS_SENTINEL_AUTH");
            // The sentinels have no user here.
            let password = password.map_or(String::new(), |auth| {
                let password = auth
                    .split_once(':')
                    .map_or(&*auth, |(_, password)| password);
                format!("?sentinel_password={}", escaped(password))
            });
            format!("{scheme}+sentinel://{userinfo}{sentinels}/{service}{password}")
        }
        _ => {
            let message = format!("expected SINGLE, SENTINEL or CLUSTER, not {kind:?}");
            return Err(refuse("REDIS_TYPE", message));
        }
    };
    Ok(Some(url))
}

/// A URL with TLS and the credentials, unless it has its own.
fn whole_url(url: &str, scheme: &str, userinfo: &str) -> String {
    let (given, rest) = url.split_once("://").unwrap_or((scheme, url));
    let scheme = if given == "redis" { scheme } else { given };
    let userinfo = if rest.contains('@') { "" } else { userinfo };
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
