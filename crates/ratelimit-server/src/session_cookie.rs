//! The cookie of a session of the console.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::{
    HeaderMap, HeaderValue,
    header::{COOKIE, SET_COOKIE},
};
use subtle::ConstantTimeEq as _;

use crate::{config::AdminToken, hex::to_hex, hmac::hmac_sha256};

/// How long a session lasts after its start and after each renewal.
const SESSION_DURATION: Duration = Duration::from_secs(30 * 60);
/// How long a session lasts with all renewals.
const MAX_SESSION_DURATION: Duration = Duration::from_secs(12 * 60 * 60);

const NAME: &str = "ratelimit_console";
/// The name over https. Browsers accept such a cookie only from the host itself, over https.
const HOST_NAME: &str = "__Host-ratelimit_console";

const CODE_DIGITS: usize = 64;
/// The digits of `u64::MAX`.
const MAX_TIME_DIGITS: usize = 20;
/// Cookies of the right form that are verified. A browser sends one, unless another site of the same host or domain has
/// set some for paths of its choice.
const MAX_COOKIES: usize = 64;

/// The times of a session, in Unix seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) start: u64,
    pub(crate) expiry: u64,
}

impl Session {
    pub(crate) fn starting_at(now: u64) -> Session {
        Session {
            start: now,
            expiry: now + SESSION_DURATION.as_secs(),
        }
    }

    /// The session with a later end, if less than half of its time remains and 12 hours have not passed since its start.
    pub(crate) fn renewed_at(self, now: u64) -> Option<Session> {
        let is_due = self.expiry.saturating_sub(now) < SESSION_DURATION.as_secs() / 2;
        let end = self.start.saturating_add(MAX_SESSION_DURATION.as_secs());
        let expiry = end.min(now + SESSION_DURATION.as_secs());
        let start = self.start;
        (is_due && expiry > self.expiry).then_some(Session { start, expiry })
    }
}

/// Signs and verifies the cookies of sessions.
///
/// - A cookie is `START.EXPIRY.CODE`: Unix seconds, and the HMAC-SHA-256 of `START.EXPIRY` in hexadecimal digits.
/// - The key is derived from the admin token. The server keeps no sessions: every server with this token accepts the
///   cookie, and another token ends all sessions.
/// - A copy of a cookie can be renewed like the cookie itself, until 12 hours after the sign-in.
pub(crate) struct SessionKey([u8; 32]);

impl SessionKey {
    pub(crate) fn of(token: &AdminToken) -> SessionKey {
        SessionKey(token.derive(b"console session"))
    }

    /// The session of a cookie, if it has not ended at `now`. Over https only cookies of the host itself count.
    pub(crate) fn find(&self, headers: &HeaderMap, is_https: bool, now: u64) -> Option<Session> {
        let values = session_values(headers, is_https);
        let signed = values.filter_map(SignedSession::parse).take(MAX_COOKIES);
        let sessions = signed.filter_map(|signed| self.verify(&signed));
        let lasting = sessions.filter(|session| session.expiry > now);
        lasting.max_by_key(|session| session.expiry)
    }

    /// The value of `Set-Cookie` for a session, at `now`.
    pub(crate) fn cookie(&self, session: Session, now: u64, is_https: bool) -> HeaderValue {
        let Session { start, expiry } = session;
        let value = format!("{start}.{expiry}.{}", self.code(session));
        set_cookie(&value, expiry.saturating_sub(now), is_https)
    }

    fn code(&self, Session { start, expiry }: Session) -> String {
        to_hex(&hmac_sha256(
            &self.0,
            format!("{start}.{expiry}").as_bytes(),
        ))
    }

    /// The session of a value with the right code, compared in constant time.
    fn verify(&self, signed: &SignedSession<'_>) -> Option<Session> {
        let is_right = self.code(signed.session).as_bytes().ct_eq(signed.code);
        bool::from(is_right).then_some(signed.session)
    }
}

/// A value of the right form, with a code that may be wrong.
struct SignedSession<'a> {
    session: Session,
    code: &'a [u8],
}

impl SignedSession<'_> {
    fn parse(value: &[u8]) -> Option<SignedSession<'_>> {
        let mut parts = value.splitn(3, |byte| *byte == b'.');
        let (start, expiry, code) = (parts.next()?, parts.next()?, parts.next()?);
        let (start, expiry) = (parse_time(start)?, parse_time(expiry)?);
        (code.len() == CODE_DIGITS).then_some(SignedSession {
            session: Session { start, expiry },
            code,
        })
    }
}

fn parse_time(digits: &[u8]) -> Option<u64> {
    let is_time = digits.len() <= MAX_TIME_DIGITS && digits.iter().all(u8::is_ascii_digit);
    let digits = is_time.then(|| str::from_utf8(digits).ok())?;
    digits?.parse().ok()
}

/// The values of `Set-Cookie` that delete the cookies of http and of https. A browser ignores the one of https over http.
pub(crate) fn deletions() -> [HeaderValue; 2] {
    [false, true].map(|is_https| set_cookie("", 0, is_https))
}

/// Adds a value of `Set-Cookie`.
pub(crate) fn write_cookie(headers: &mut HeaderMap, cookie: HeaderValue) {
    headers.append(SET_COOKIE, cookie);
}

const fn cookie_name(is_https: bool) -> &'static str {
    if is_https { HOST_NAME } else { NAME }
}

fn set_cookie(value: &str, max_age_secs: u64, is_https: bool) -> HeaderValue {
    let name = cookie_name(is_https);
    let secure = if is_https { "; Secure" } else { "" };
    let text = format!(
        "{name}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={max_age_secs}{secure}"
    );
    HeaderValue::try_from(text).expect("digits and letters are a header value")
}

/// The values of all cookies of a session, in all `Cookie` headers.
fn session_values(headers: &HeaderMap, is_https: bool) -> impl Iterator<Item = &[u8]> {
    let expected = cookie_name(is_https).as_bytes();
    let lines = headers.get_all(COOKIE).iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        (name == expected).then_some(value)
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

    /// `NAME=VALUE` of a session.
    fn pair(key: &SessionKey, session: Session, is_https: bool) -> String {
        let cookie = key.cookie(session, NOW, is_https);
        let pair = cookie.to_str().unwrap().split(';').next().unwrap();
        pair.to_owned()
    }

    /// `NAME=VALUE` of a session that starts at [`NOW`].
    fn new_pair(key: &SessionKey) -> String {
        pair(key, Session::starting_at(NOW), false)
    }

    #[test]
    fn a_session_ends_after_half_an_hour() {
        let key = key("a token of the test");
        let session = Session::starting_at(NOW);
        let headers = headers(&[&new_pair(&key)]);

        assert_eq!(session.expiry, NOW + 1800);
        assert_eq!(key.find(&headers, false, NOW), Some(session));
        let last = session.expiry - 1;
        assert_eq!(key.find(&headers, false, last), Some(session));
        assert_eq!(key.find(&headers, false, session.expiry), None);
    }

    #[test]
    fn a_session_ends_twelve_hours_after_its_start_whatever_renews_it() {
        let mut session = Session::starting_at(NOW);
        assert_eq!(session.renewed_at(NOW + 900), None);
        for minutes in 0..13 * 60 {
            let renewed = session.renewed_at(NOW + minutes * 60);
            session = renewed.unwrap_or(session);
            assert_eq!(session.start, NOW);
        }

        assert_eq!(session.expiry, NOW + 12 * 60 * 60);
        assert_eq!(session.renewed_at(session.expiry - 1), None);
    }

    #[test]
    fn another_token_ends_a_session() {
        let (old, new) = (key("a token of the test"), key("another token of it"));
        let headers = headers(&[&new_pair(&old)]);

        assert!(old.find(&headers, false, NOW).is_some());
        assert_eq!(new.find(&headers, false, NOW), None);
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let key = key("a token of the test");
        let pair = new_pair(&key);
        let wrong = format!("{NAME}=1.2.{}", "0".repeat(64));
        let junk = format!("{NAME}=x; ").repeat(500);

        for lines in [
            &["a=b", &pair][..],
            &[&format!("a=b;{pair} ; c=d")],
            &[&format!("{NAME}=; {NAME}; {pair}")],
            &[&format!("{}{pair}", format!("{wrong}; ").repeat(63))],
            &[&format!("{junk}{pair}")],
            &[&"x".repeat(20_000), &pair],
        ] {
            assert!(key.find(&headers(lines), false, NOW).is_some(), "{lines:?}");
        }
        let many = format!("{}{pair}", format!("{wrong}; ").repeat(MAX_COOKIES));
        assert_eq!(key.find(&headers(&[&many]), false, NOW), None);
    }

    /// A page of http can set the plain cookie for the pages of https on its host.
    #[test]
    fn over_https_only_the_cookie_of_the_host_counts() {
        let key = key("a token of the test");
        let session = Session::starting_at(NOW);
        let (plain, secure) = (pair(&key, session, false), pair(&key, session, true));

        let over = |pair: &str, is_https| key.find(&headers(&[pair]), is_https, NOW).is_some();
        assert!(over(&plain, false) && over(&secure, true));
        assert!(!over(&plain, true) && !over(&secure, false));
    }

    #[test]
    fn a_changed_cookie_is_refused() {
        let key = key("a token of the test");
        let session = Session::starting_at(NOW);
        let (Session { start, expiry }, code) = (session, key.code(session));
        let huge = "9".repeat(50_000);
        for value in [
            String::new(),
            ".".to_owned(),
            "..".to_owned(),
            format!("{start}.{expiry}"),
            format!("{start}.{expiry}."),
            format!("{start}.{expiry}.{}", &code[..63]),
            format!("{start}.{expiry}.{code}0"),
            format!("{start}.{expiry}.{}", code.to_uppercase()),
            format!("{start}.{}.{code}", expiry + 1),
            format!("{}.{expiry}.{code}", start + 1),
            format!("{start}.0{}.{code}", expiry + 1),
            format!("{start}.+{expiry}.{code}"),
            format!("{start}.-1.{code}"),
            format!("{start}.{huge}.{code}"),
            format!("{start}.{expiry}.{code}.{code}"),
            format!("{expiry}.{code}"),
            format!("..{code}"),
            "\u{e9}".repeat(80),
        ] {
            let mut headers = HeaderMap::new();
            let line = HeaderValue::from_bytes(format!("{NAME}={value}").as_bytes());
            headers.append(COOKIE, line.unwrap());
            assert_eq!(key.find(&headers, false, NOW), None, "{value}");
        }
    }

    #[test]
    fn over_https_the_cookie_belongs_to_the_host() {
        let key = key("a token of the test");
        let session = Session::starting_at(NOW);
        let (plain, secure) = (
            key.cookie(session, NOW, false),
            key.cookie(session, NOW, true),
        );

        let attributes = "; HttpOnly; SameSite=Strict; Path=/; Max-Age=1800";
        let (plain, secure) = (plain.to_str().unwrap(), secure.to_str().unwrap());
        assert!(
            plain.starts_with("ratelimit_console=1794840000.1794841800."),
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
