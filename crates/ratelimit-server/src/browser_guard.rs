//! Refuses calls that a web page makes through the browser of a visitor.
//!
//! - A page whose own name resolves to this server (DNS rebinding) sends that name in `Host`.
//! - A page of another site sends `Sec-Fetch-Site: cross-site`, to loopback addresses and over https.
//! - A page of another site cannot send `Content-Type: application/json` without a preflight, which gets no
//!   permission here. `routes/body.rs` checks the content type.

use std::net::IpAddr;

use axum::{
    extract::Request,
    http::{HeaderMap, StatusCode, header::HOST, uri::Authority},
};
use ratelimit_http::client_ip::has_forwarding_headers;

use crate::{api_error::ApiError, app::App, client::Lines, config::Rules};

/// Headers that proxies add besides the forwarding headers.
const PROXY_HEADERS: [&str; 3] = ["via", "x-forwarded-host", "x-forwarded-proto"];

/// Checks a request of a listener. `is_loopback`: only this machine can connect to it.
pub(crate) fn admit_request(
    app: &App,
    rules: &Rules,
    is_loopback: bool,
    request: &Request,
) -> Result<(), ApiError> {
    if request.headers().get_all(HOST).iter().count() > 1 {
        return Err(ApiError::bad_request("more than one Host header"));
    }
    if is_loopback {
        check_host(app, rules, request)?;
    }
    // A proxy forwards this header of its clients, who may well come from another site. A browser cannot add a
    // forwarding header to a cross-site request without a preflight.
    if is_direct(rules, request.headers()) {
        check_site(request.headers())?;
    }
    Ok(())
}

/// Checks that a request names this server by an IP address, as `localhost` or by an allowed name.
pub(crate) fn check_host(app: &App, rules: &Rules, request: &Request) -> Result<(), ApiError> {
    let host = request.headers().get(HOST);
    let host = host.map(|value| Authority::try_from(value.as_bytes()));
    let target = request.uri().authority().cloned().map(Ok);
    for named in host.into_iter().chain(target) {
        let is_allowed = match &named {
            Ok(authority) => is_allowed_host(rules, authority.host()),
            Err(_) => false,
        };
        if !is_allowed {
            if app.warns_of_host_first_time() {
                let host = named.as_ref().map_or("", Authority::host);
                tracing::warn!(
                    host,
                    "refused a request by its Host header (421); if callers use this name, add --allowed-host"
                );
            }
            return Err(ApiError::new(
                StatusCode::MISDIRECTED_REQUEST,
                "Misdirected request",
                "the Host header must be an IP address, localhost or a name of --allowed-host",
            ));
        }
    }
    Ok(())
}

fn is_allowed_host(rules: &Rules, host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let name = host.strip_suffix('.').unwrap_or(host);
    address.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || rules.allowed_hosts.iter().any(|allowed| allowed.is(name))
}

/// Refuses a request that a page of another site caused.
pub(crate) fn check_site(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    if sites.any(|site| site.as_bytes().eq_ignore_ascii_case(b"cross-site")) {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "Cross-site request",
            "a page of another site may not call this server",
        ));
    }
    Ok(())
}

/// Whether a request has no sign of a proxy.
pub(crate) fn is_direct(rules: &Rules, headers: &HeaderMap) -> bool {
    !has_forwarding_headers(&Lines(headers))
        && !headers.contains_key(rules.chain_header.name())
        && !PROXY_HEADERS.iter().any(|name| headers.contains_key(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_localhost_or_an_allowed_name() {
        let rules = Rules {
            allowed_hosts: vec!["limits.example".parse().unwrap()],
            ..Rules::default()
        };

        for host in [
            "127.0.0.1",
            "10.1.2.3",
            "[::1]",
            "localhost",
            "LOCALHOST.",
            "Limits.Example",
        ] {
            assert!(is_allowed_host(&rules, host), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "x.limits.example",
            "",
            ".",
        ] {
            assert!(!is_allowed_host(&rules, host), "{host}");
        }
    }
}
