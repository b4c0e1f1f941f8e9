//! Values of variables as Envoy's rate limit server writes them.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use crate::config::log_filter::LogFilter;

/// Units of a duration, in nanoseconds.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    // The sign for micro, and the Greek letter.
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("expected true or false, not {text:?}")),
    }
}

/// A duration above zero such as `1m30s` or `1.5s`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let nanos = nanos(text).and_then(|nanos| u64::try_from(nanos).ok());
    let nanos = nanos.filter(|nanos| *nanos > 0);
    nanos
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("expected a time above zero such as 10s or 150ms, not {text:?}"))
}

fn nanos(text: &str) -> Option<u128> {
    let is_digit = |letter: char| letter.is_ascii_digit() || letter == '.';
    let mut rest = text;
    let mut sum = 0_u128;
    while !rest.is_empty() {
        let (count, after) = rest.split_at(rest.find(|letter| !is_digit(letter))?);
        let (unit, next) = after.split_at(after.find(is_digit).unwrap_or(after.len()));
        let (_, each) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let (whole, fraction) = count.split_once('.').unwrap_or((count, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (whole, fraction) = (format!("0{whole}"), format!("{fraction}0"));
        let parts = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let fraction = fraction.parse::<u128>().ok()?.checked_mul(*each)? / parts;
        let whole = whole.parse::<u128>().ok()?.checked_mul(*each)?;
        sum = sum.checked_add(whole)?.checked_add(fraction)?;
        rest = next;
    }
    Some(sum)
}

/// The address of a host, which is an IP address or `localhost`.
pub(super) fn host(host: &str) -> Result<IpAddr, String> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let ip = match bare {
        "localhost" => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        bare => bare.parse::<IpAddr>(),
    };
    ip.map_err(|_| format!("expected an IP address or localhost, not {host:?}"))
}

pub(super) fn port(port: &str) -> Result<u16, String> {
    let number = port.parse();
    number.map_err(|_| format!("expected a port, not {port:?}"))
}

/// An address such as `:9090`, whose host is every IPv4 address of the machine.
pub(super) fn prometheus_addr(text: &str) -> Result<SocketAddr, String> {
    let (name, number) = text
        .rsplit_once(':')
        .ok_or_else(|| format!("expected an address such as :9090, not {text:?}"))?;
    let ip = if name.is_empty() { "0.0.0.0" } else { name };
    Ok((host(ip)?, port(number)?).into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_the_other_server_reads_them() {
        for (text, micros) in [
            ("10s", 10_000_000),
            ("150us", 150),
            ("1m1.5s", 61_500_000),
            ("0.25ms", 250),
            ("2h", 7_200_000_000),
            (".5s", 500_000),
            ("1.s", 1_000_000),
            ("7\u{b5}s", 7),
            ("7\u{3bc}s", 7),
        ] {
            let read = duration(text).unwrap();
            assert_eq!(read.as_micros(), micros, "{text}");
        }
        for text in ["", "10", "s", ".s", "0s", "1d", "-1s", "1..5s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
