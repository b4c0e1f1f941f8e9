//! Refuses calls that a web page makes through the browser of a visitor.
//!
//! - A page whose own name resolves to this server (DNS rebinding) sends that name in `Host`.
//! - A page of another site sends `Sec-Fetch-Site: cross-site`, to loopback addresses and over https. Browsers omit the
//!   header on other addresses, but every call that can change something has `Origin` there.
//! - A page of another site cannot send `Content-Type: application/json` without a preflight, which gets no
//!   permission here. `routes/body.rs` checks the content type.

use std::net::IpAddr;

use axum::{
    body::HttpBody as _,
    extract::Request,
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri,
        header::{HOST, ORIGIN},
        uri::{Authority, Scheme},
    },
};
use ratelimit_http::client_ip::has_forwarding_headers;

use crate::{
    api_error::ApiError,
    app::App,
    client::{Lines, OverTls, Peer},
    config::{ReloadableConfig, is_localhost},
    json_body::{is_json, not_json},
};

pub(crate) const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Headers that proxies add besides the forwarding headers.
const PROXY_HEADERS: [&str; 3] = ["via", "x-forwarded-host", "x-forwarded-proto"];

/// Checks a request of a listener. `is_loopback`: only this machine can connect to it.
pub(crate) fn admit_request(
    app: &App,
    rules: &ReloadableConfig,
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
    let headers = request.headers();
    if is_cross_site(headers) && is_direct(rules, headers) && !is_page_visit(request) {
        return Err(cross_site(
            "a page of another site may not call this server",
        ));
    }
    Ok(())
}

/// Checks that a request names this server by an IP address, as `localhost` or by an allowed name.
pub(crate) fn check_host(
    app: &App,
    rules: &ReloadableConfig,
    request: &Request,
) -> Result<(), ApiError> {
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

fn is_allowed_host(rules: &ReloadableConfig, host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let name = host.strip_suffix('.').unwrap_or(host);
    // A browser connects to this machine by `0.0.0.0`, but does not protect it like a loopback address.
    let is_specified = |ip: IpAddr| !ip.to_canonical().is_unspecified();
    address.parse().is_ok_and(is_specified)
        || is_localhost(name)
        || rules.allowed_hosts.iter().any(|allowed| allowed.is(name))
}

/// Whether a request names this server by a name below `localhost`.
pub(crate) fn is_below_localhost(request: &Request) -> bool {
    let host = request.headers().get(HOST);
    let host = host.and_then(|value| Authority::try_from(value.as_bytes()).ok());
    let mut named = host.into_iter().chain(request.uri().authority().cloned());
    named.any(|authority| {
        let name = authority.host();
        let name = name.strip_suffix('.').unwrap_or(name);
        is_localhost(name) && !name.eq_ignore_ascii_case("localhost")
    })
}

/// Whether a browser says that a page of another site caused a request.
fn is_cross_site(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
    sites.any(|site| site.as_bytes().eq_ignore_ascii_case(b"cross-site"))
}

/// Whether a browser opens the page of the console, as by a link on another page. The page is public, and its calls are
/// those of its own origin.
pub(crate) fn is_page_visit(request: &Request) -> bool {
    let is = |name: &str, expected: &str| {
        let mut values = request.headers().get_all(name).iter();
        values.next().is_some_and(|value| value == expected) && values.next().is_none()
    };
    request.method() == Method::GET
        && ["/console", "/console/"].contains(&request.uri().path())
        && is("sec-fetch-mode", "navigate")
        && is("sec-fetch-dest", "document")
}

/// Refuses a request that a page of another origin caused, also of another port or subdomain.
pub(crate) fn check_own_site(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
    let is_own = |site: &[u8]| {
        site.eq_ignore_ascii_case(b"same-origin") || site.eq_ignore_ascii_case(b"none")
    };
    if sites.any(|site| !is_own(site.as_bytes())) {
        return Err(cross_site(
            "a page of another origin may not make this call",
        ));
    }
    Ok(())
}

/// Checks a call that the browser authorised without its page: by a cookie, or by its address alone.
///
/// - `Sec-Fetch-Site: same-origin` passes. `none`, an address that a user typed, passes for reading.
/// - Without that header `Origin` must name this server. A call that reads need not have it.
/// - A body must be JSON.
pub(crate) fn check_own_origin(
    rules: &ReloadableConfig,
    request: &Request,
) -> Result<(), ApiError> {
    let headers = request.headers();
    check_own_site(headers)?;
    let is_reading = [Method::GET, Method::HEAD].contains(request.method());
    let site = headers.get(SEC_FETCH_SITE);
    let is_own = match (site, headers.contains_key(ORIGIN)) {
        (Some(site), _) => is_reading || site.as_bytes().eq_ignore_ascii_case(b"same-origin"),
        (None, true) => is_own_origin(rules, request),
        (None, false) => is_reading,
    };
    if !is_own {
        let why = "the call needs Sec-Fetch-Site: same-origin, or an Origin that equals Host";
        return Err(cross_site(why));
    }
    if !is_reading && !request.body().is_end_stream() && !is_json(headers) {
        return Err(not_json());
    }
    Ok(())
}

fn cross_site(why: &'static str) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "Cross-site request", why)
}

/// Whether the one `Origin` is the scheme and the host of the request.
fn is_own_origin(rules: &ReloadableConfig, request: &Request) -> bool {
    let headers = request.headers();
    let mut origins = headers.get_all(ORIGIN).iter();
    let (Some(origin), None) = (origins.next(), origins.next()) else {
        return false;
    };
    let host = headers.get(HOST).map(HeaderValue::as_bytes);
    let target = request.uri().authority().map(Authority::as_str);
    let host = host.or(target.map(str::as_bytes));
    let host = host.and_then(|host| Authority::try_from(host).ok());
    let (Ok(origin), Some(host)) = (Uri::try_from(origin.as_bytes()), host) else {
        return false;
    };
    let default_port = match origin.scheme() {
        Some(scheme) if *scheme == Scheme::HTTPS => 443,
        // A proxy may have ended TLS, so https is right on a plain connection, but not the reverse.
        Some(scheme) if *scheme == Scheme::HTTP && !is_https(rules, request) => 80,
        _ => return false,
    };
    let is_same_host = origin
        .host()
        .is_some_and(|name| name.eq_ignore_ascii_case(host.host()));
    let port = origin.port_u16().unwrap_or(default_port);
    is_same_host && port == host.port_u16().unwrap_or(default_port)
}

/// Whether the client uses https: to this server, or to a trusted proxy that says so.
pub(crate) fn is_https(rules: &ReloadableConfig, request: &Request) -> bool {
    if request.extensions().get::<OverTls>().is_some() {
        return true;
    }
    let peer = Peer::of(request.extensions()).map(|peer| peer.ip());
    let mut schemes = request.headers().get_all("x-forwarded-proto").iter();
    let (Some(scheme), None) = (schemes.next(), schemes.next()) else {
        return false;
    };
    scheme.as_bytes().eq_ignore_ascii_case(b"https") && rules.client.trusts(peer)
}

/// Whether a request has no sign of a proxy.
pub(crate) fn is_direct(rules: &ReloadableConfig, headers: &HeaderMap) -> bool {
    !has_forwarding_headers(&Lines(headers))
        && !headers.contains_key(rules.chain_header.name())
        && !PROXY_HEADERS.iter().any(|name| headers.contains_key(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_localhost_or_an_allowed_name() {
        let rules = ReloadableConfig {
            allowed_hosts: vec!["limits.example".parse().unwrap()],
            ..ReloadableConfig::default()
        };

        for host in [
            "127.0.0.1",
            "10.1.2.3",
            "[::1]",
            "[2001:db8::1]",
            "localhost",
            "LOCALHOST.",
            "a.b.localhost",
            "Limits.Example",
        ] {
            assert!(is_allowed_host(&rules, host), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evillocalhost",
            ".localhost",
            "0.0.0.0",
            "[::]",
            "[::ffff:0.0.0.0]",
            "\u{e9}\u{e9}\u{e9}\u{e9}ocalhost",
            "x.limits.example",
            "",
            ".",
        ] {
            assert!(!is_allowed_host(&rules, host), "{host}");
        }
    }
}
