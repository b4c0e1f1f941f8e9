//! The cookie of a session of the console.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::{
    HeaderMap, HeaderValue,
    header::{COOKIE, SET_COOKIE},
};
use subtle::ConstantTimeEq as _;

use crate::{config::AdminToken, hex::to_hex, hmac::hmac_sha256};

/// How long a session lasts.
pub(crate) const SESSION_DURATION: Duration = Duration::from_secs(30 * 60);

const NAME: &str = "ratelimit_console";
/// The name over https. Browsers accept such a cookie only from the host itself, over https.
const HOST_NAME: &str = "__Host-ratelimit_console";

const CODE_DIGITS: usize = 64;
/// Cookies of these names that are verified. A browser sends one or two.
const MAX_COOKIES: usize = 4;

/// Signs and verifies the cookies of sessions.
///
/// - A cookie is `EXPIRY.CODE`: Unix seconds, and their HMAC-SHA-256 in hexadecimal digits.
/// - The key is derived from the admin token. The server keeps no sessions: every server with this token accepts the
///   cookie, and another token ends all sessions.
pub(crate) struct SessionKey([u8; 32]);

impl SessionKey {
    pub(crate) fn of(token: &AdminToken) -> SessionKey {
        SessionKey(token.derive(b"console session"))
    }

    /// Whether a cookie of these headers is of a session that has not ended.
    pub(crate) fn is_in(&self, headers: &HeaderMap) -> bool {
        self.expiry_in(headers, unix_seconds()).is_some()
    }

    /// The end of the session in Unix seconds, if a cookie is of one that has not ended at `now`.
    pub(crate) fn expiry_in(&self, headers: &HeaderMap, now: u64) -> Option<u64> {
        let values = session_values(headers).take(MAX_COOKIES);
        let expiries = values.filter_map(|value| self.verify(value));
        expiries.filter(|expiry| *expiry > now).max()
    }

    /// The value of `Set-Cookie` for a session that starts at `now`, and the end of it.
    pub(crate) fn cookie(&self, now: u64, is_https: bool) -> (HeaderValue, u64) {
        let expiry = now + SESSION_DURATION.as_secs();
        let value = format!("{expiry}.{}", self.code(expiry));
        let seconds = SESSION_DURATION.as_secs();
        (set_cookie(&value, seconds, is_https), expiry)
    }

    fn code(&self, expiry: u64) -> String {
        to_hex(&hmac_sha256(&self.0, expiry.to_string().as_bytes()))
    }

    /// The expiry of a value with the right code, compared in constant time.
    fn verify(&self, value: &[u8]) -> Option<u64> {
        let dot = value.len().checked_sub(CODE_DIGITS + 1)?;
        let (expiry, code) = value.split_at_checked(dot)?;
        let code = code.strip_prefix(b".")?;
        if !expiry.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let expiry: u64 = str::from_utf8(expiry).ok()?.parse().ok()?;
        let is_right = self.code(expiry).as_bytes().ct_eq(code);
        bool::from(is_right).then_some(expiry)
    }
}

/// The values of `Set-Cookie` that delete the cookie, over http and https.
pub(crate) fn deletions(is_https: bool) -> impl Iterator<Item = HeaderValue> {
    let host_name = is_https.then(|| set_cookie("", 0, true));
    host_name.into_iter().chain([set_cookie("", 0, false)])
}

/// Adds a value of `Set-Cookie`.
pub(crate) fn write_cookie(headers: &mut HeaderMap, cookie: HeaderValue) {
    headers.append(SET_COOKIE, cookie);
}

fn set_cookie(value: &str, max_age_secs: u64, is_https: bool) -> HeaderValue {
    let (name, secure) = if is_https {
        (HOST_NAME, "; Secure")
    } else {
        (NAME, "")
    };
    let text = format!(
        "{name}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={max_age_secs}{secure}"
    );
    HeaderValue::try_from(text).expect("digits and letters are a header value")
}

/// The values of all cookies of a session, in all `Cookie` headers.
fn session_values(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let lines = headers.get_all(COOKIE).iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    pairs.filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        let is_ours = name == NAME.as_bytes() || name == HOST_NAME.as_bytes();
        is_ours.then_some(value)
    })
}

/// The time of the system clock.
pub(crate) fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_794_840_000;

    fn key(token: &str) -> SessionKey {
        SessionKey::of(&AdminToken::from(token))
    }

    fn headers(lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(COOKIE, HeaderValue::from_str(line).unwrap());
        }
        headers
    }

    /// `NAME=VALUE` of a session that starts at [`NOW`].
    fn pair(key: &SessionKey) -> String {
        let (cookie, _) = key.cookie(NOW, false);
        cookie
            .to_str()
            .unwrap()
            .split(';')
            .next()
            .unwrap()
            .to_owned()
    }

    #[test]
    fn a_session_ends_after_half_an_hour() {
        let key = key("a token of the test");
        let (_, expiry) = key.cookie(NOW, false);
        let headers = headers(&[&pair(&key)]);

        assert_eq!(expiry, NOW + 1800);
        assert_eq!(key.expiry_in(&headers, NOW), Some(expiry));
        assert_eq!(key.expiry_in(&headers, expiry - 1), Some(expiry));
        assert_eq!(key.expiry_in(&headers, expiry), None);
    }

    #[test]
    fn another_token_ends_a_session() {
        let (old, new) = (key("a token of the test"), key("another token of it"));
        let headers = headers(&[&pair(&old)]);

        assert!(old.expiry_in(&headers, NOW).is_some());
        assert_eq!(new.expiry_in(&headers, NOW), None);
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let key = key("a token of the test");
        let pair = pair(&key);
        let value = pair.split_once('=').unwrap().1;
        let wrong = format!("{NAME}=1.{}", "0".repeat(64));

        for lines in [
            &["a=b", &pair][..],
            &[&format!("a=b;{pair} ; c=d")],
            &[&format!("{wrong}; {pair}")],
            &[&format!("{NAME}=; {NAME}; {HOST_NAME}={value}")],
            &[&"x".repeat(20_000), &pair],
        ] {
            assert!(key.expiry_in(&headers(lines), NOW).is_some(), "{lines:?}");
        }
        let many = format!("{}{pair}", format!("{wrong}; ").repeat(MAX_COOKIES));
        assert_eq!(key.expiry_in(&headers(&[&many]), NOW), None);
    }

    #[test]
    fn a_changed_cookie_is_refused() {
        let key = key("a token of the test");
        let (_, expiry) = key.cookie(NOW, false);
        let code = key.code(expiry);
        let huge = "9".repeat(50_000);
        for value in [
            String::new(),
            ".".to_owned(),
            format!("{expiry}"),
            format!("{expiry}."),
            format!("{expiry}.{}", &code[..63]),
            format!("{expiry}.{code}0"),
            format!("{expiry}.{}", code.to_uppercase()),
            format!("{}.{code}", expiry + 1),
            format!("0{}.{code}", expiry + 1),
            format!("+{expiry}.{code}"),
            format!("-1.{code}"),
            format!("{huge}.{code}"),
            format!("{expiry}.{code}.{code}"),
            format!(".{code}"),
            "\u{e9}".repeat(80),
        ] {
            let mut headers = HeaderMap::new();
            let line = HeaderValue::from_bytes(format!("{NAME}={value}").as_bytes());
            headers.append(COOKIE, line.unwrap());
            assert_eq!(key.expiry_in(&headers, NOW), None, "{value}");
        }
    }

    #[test]
    fn over_https_the_cookie_belongs_to_the_host() {
        let key = key("a token of the test");
        let (plain, _) = key.cookie(NOW, false);
        let (secure, _) = key.cookie(NOW, true);

        let attributes = "; HttpOnly; SameSite=Strict; Path=/; Max-Age=1800";
        let (plain, secure) = (plain.to_str().unwrap(), secure.to_str().unwrap());
        assert!(
            plain.starts_with("ratelimit_console=1794841800."),
            "{plain}"
        );
        assert!(plain.ends_with(attributes), "{plain}");
        assert!(secure.starts_with("__Host-ratelimit_console="), "{secure}");
        assert!(
            secure.ends_with(&format!("{attributes}; Secure")),
            "{secure}"
        );
    }
}
