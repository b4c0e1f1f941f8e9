//! Values of variables as Envoy's rate limit server writes them.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use crate::config::log_filter::LogFilter;

/// Units of a duration, in seconds.
const UNITS: [(&str, f64); 7] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("expected true or false, not {text:?}")),
    }
}

/// A duration above zero such as `1m30s` or `150ms`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = seconds(text).filter(|seconds| *seconds > 0.0);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| format!("expected a time above zero such as 10s or 150ms, not {text:?}"))
}

fn seconds(text: &str) -> Option<f64> {
    let mut rest = text;
    let mut sum = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (count, after) = rest.split_at(digits);
        let letters = after.find(|letter: char| letter.is_ascii_digit() || letter == '.');
        let (unit, next) = after.split_at(letters.unwrap_or(after.len()));
        let (_, each) = UNITS.iter().find(|(name, _)| *name == unit)?;
        sum += count.parse::<f64>().ok()? * each;
        rest = next;
    }
    Some(sum)
}

/// An address of a host, which is an IP address or `localhost`, and a port.
pub(super) fn addr(host: &str, port: &str) -> Result<SocketAddr, String> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let ip = match bare {
        "localhost" => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        bare => bare.parse::<IpAddr>(),
    };
    let ip = ip.map_err(|_| format!("expected an IP address, not {host:?}"))?;
    let port = port
        .parse()
        .map_err(|_| format!("expected a port, not {port:?}"))?;
    Ok(SocketAddr::new(ip, port))
}

/// An address such as `:9090`, whose host is every IPv4 address of the machine.
pub(super) fn prometheus_addr(text: &str) -> Result<SocketAddr, String> {
    let (host, port) = text
        .rsplit_once(':')
        .ok_or_else(|| format!("expected an address such as :9090, not {text:?}"))?;
    match host {
        "" => addr("0.0.0.0", port),
        host => addr(host, port),
    }
}

/// A log level. The two levels beyond `error` of that server are errors here.
pub(super) fn log_level(text: &str) -> Result<LogFilter, String> {
    let level = text.to_ascii_lowercase();
    let level = match &*level {
        "fatal" | "panic" => "error",
        "warning" => "warn",
        level => level,
    };
    level.parse()
}
