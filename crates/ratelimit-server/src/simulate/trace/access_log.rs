//! A line of an access log.

use std::{fmt, net::IpAddr};

use ratelimit_core::{Key, Timestamp};

use super::TraceHit;

/// The bits that tell IPv6 clients apart, as in the server without `--ipv6-prefix`.
const IPV6_PREFIX: u8 = 64;

const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// Parses a line in the common or combined log format, of which it reads the client and the time:
/// `203.0.113.9 - - [16/Nov/2026:14:55:02 +0000] "GET / HTTP/1.1" 200 1`.
///
/// The key is that of the client in the server: `ip:203.0.113.9`, `ip:2001:db8:1:2::/64`. A host name is a key of its own.
pub(super) fn parse(line: &[u8]) -> Result<TraceHit, InvalidAccessLine> {
    let head = before_request(line).ok_or(InvalidAccessLine::Format)?;
    let mut words = head.splitn(2, |byte| *byte == b' ');
    let host = words.next().unwrap_or_default();
    let key = key_of_host(host).ok_or(InvalidAccessLine::Host)?;
    // The name of a user, before the time, may contain any text.
    let head = head.trim_ascii_end();
    let inside = head.strip_suffix(b"]").ok_or(InvalidAccessLine::Format)?;
    let start = inside.iter().rposition(|byte| *byte == b'[');
    let start = start.ok_or(InvalidAccessLine::Format)?;
    let at_micros = unix_micros(&inside[start + 1..]).ok_or(InvalidAccessLine::Time)?;
    Ok(TraceHit {
        at_micros,
        key,
        cost: None,
    })
}

/// The part of a line before the quoted request. A backslash escapes a quote in the name of a user.
fn before_request(line: &[u8]) -> Option<&[u8]> {
    let mut is_escaped = false;
    let quote = line.iter().position(|byte| {
        let is_quote = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_quote
    });
    line.get(..quote?)
}

fn key_of_host(host: &[u8]) -> Option<String> {
    let host = str::from_utf8(host).ok()?;
    if let Ok(address) = host.parse::<IpAddr>() {
        let prefix = match address.to_canonical() {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => IPV6_PREFIX,
        };
        return Some(Key::network(address, prefix).as_str().to_owned());
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let is_named = host.starts_with(|start: char| start.is_ascii_alphanumeric());
    (is_named && host.bytes().all(is_name)).then(|| host.to_owned())
}

/// The Unix time of `16/Nov/2026:14:55:02 +0000`.
fn unix_micros(text: &[u8]) -> Option<u64> {
    let [
        d1,
        d2,
        b'/',
        m1,
        m2,
        m3,
        b'/',
        y1,
        y2,
        y3,
        y4,
        b':',
        h1,
        h2,
        b':',
        n1,
        n2,
        b':',
        s1,
        s2,
        b' ',
        sign,
        zh1,
        zh2,
        zm1,
        zm2,
    ] = *text
    else {
        return None;
    };
    let month = MONTHS.iter().position(|name| *name == [m1, m2, m3])?;
    let (day, year) = (digits(&[d1, d2])?, digits(&[y1, y2, y3, y4])?);
    let (hour, minute) = (digits(&[h1, h2])?, digits(&[n1, n2])?);
    let second = digits(&[s1, s2])?;
    let (zone_hours, zone_minutes) = (digits(&[zh1, zh2])?, digits(&[zm1, zm2])?);
    let month = i64::try_from(month).ok()? + 1;
    // A leap second is the 60th.
    let is_valid = (1..=days_in_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60
        && zone_hours < 24
        && zone_minutes < 60;
    if !is_valid {
        return None;
    }
    let east = match sign {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let local = days_from_epoch(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    let seconds = local - east * (zone_hours * 3_600 + zone_minutes * 60);
    let micros = u64::try_from(seconds).ok()?.checked_mul(1_000_000)?;
    (micros <= Timestamp::MAX.as_micros()).then_some(micros)
}

fn digits(text: &[u8]) -> Option<i64> {
    text.iter().try_fold(0, |number, digit| {
        digit
            .is_ascii_digit()
            .then(|| number * 10 + i64::from(digit - b'0'))
    })
}

const fn is_leap_year(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

const fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap_year(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1 January 1970. The year begins in March, so that a leap day is its last.
const fn days_from_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// A line that is not one of an access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InvalidAccessLine {
    Format,
    Host,
    Time,
}

impl fmt::Display for InvalidAccessLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InvalidAccessLine::Format => {
                "expected {\"t\":0.5}, or a line of an access log as in \
                 203.0.113.9 - - [16/Nov/2026:14:55:02 +0000] \"GET / HTTP/1.1\" 200 1"
            }
            InvalidAccessLine::Host => "the line must begin with an address or a host name",
            InvalidAccessLine::Time => {
                "expected a time from 1970 to 2255 as in [16/Nov/2026:14:55:02 +0000]"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str) -> Option<u64> {
        unix_micros(time.as_bytes()).map(|micros| micros / 1_000_000)
    }

    #[test]
    fn times_are_read_with_their_zones() {
        assert_eq!(at("16/Nov/2026:14:55:02 +0000"), Some(1_794_840_902));
        assert_eq!(at("16/Nov/2026:15:55:02 +0100"), Some(1_794_840_902));
        assert_eq!(at("16/Nov/2026:11:25:02 -0330"), Some(1_794_840_902));
        assert_eq!(at("01/Jan/1970:00:00:00 +0000"), Some(0));
        assert_eq!(at("29/Feb/2000:23:59:60 +0000"), Some(951_868_800));
        assert_eq!(at("01/Mar/2100:00:00:00 +0000"), Some(4_107_542_400));
        assert_eq!(at("31/Dec/1999:23:59:59 +0000"), Some(946_684_799));
    }

    #[test]
    fn a_time_that_is_none_is_an_error() {
        for wrong in [
            "29/Feb/2100:00:00:00 +0000",
            "32/Jan/2026:00:00:00 +0000",
            "00/Jan/2026:00:00:00 +0000",
            "01/jan/2026:00:00:00 +0000",
            "01/Jan/2026:24:00:00 +0000",
            "01/Jan/2026:00:60:00 +0000",
            "01/Jan/2026:00:00:61 +0000",
            "01/Jan/2026:00:00:00 0000",
            "01/Jan/2026:00:00:00 *0000",
            "01/Jan/1970:00:00:00 +0100",
            "01/Jan/9999:00:00:00 +0000",
            "1/Jan/2026:00:00:00 +0000",
            "",
        ] {
            assert_eq!(at(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_client_is_the_key() {
        let rest =
            " - - [16/Nov/2026:14:55:02 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"curl/8 \\\"x\\\"\"";
        for (host, key) in [
            ("203.0.113.9", "ip:203.0.113.9"),
            ("::ffff:203.0.113.9", "ip:203.0.113.9"),
            ("2001:db8:1:2:3:4:5:6", "ip:2001:db8:1:2::/64"),
            ("client.example", "client.example"),
        ] {
            let hit = parse(format!("{host}{rest}").as_bytes()).unwrap();
            assert_eq!((&*hit.key, hit.cost), (key, None));
        }
        assert_eq!(
            parse(format!("-{rest}").as_bytes()),
            Err(InvalidAccessLine::Host)
        );
    }

    #[test]
    fn the_name_of_a_user_is_no_time() {
        let line = br#"10.0.0.1 - a [01/Jan/1999:00:00:00 +0000] \" b [16/Nov/2026:14:55:02 +0000] "GET /[x] HTTP/1.1" 200 1"#;

        assert_eq!(parse(line).unwrap().at_micros, 1_794_840_902_000_000);
    }

    #[test]
    fn a_line_without_request_or_time_is_an_error() {
        for line in [
            "203.0.113.9 - - [16/Nov/2026:14:55:02 +0000]",
            "203.0.113.9 - - \"GET / HTTP/1.1\" 200 1",
            "[]",
            "\"",
        ] {
            assert!(parse(line.as_bytes()).is_err(), "{line}");
        }
        let line = "203.0.113.9 - - [yesterday] \"GET / HTTP/1.1\" 200 1";
        assert_eq!(parse(line.as_bytes()), Err(InvalidAccessLine::Time));
    }
}
