//! Names under which requests carry secrets.

use ratelimit_core::{InvalidKey, Key};
use smallvec::SmallVec;

/// Parts of a name that make it the name of a credential, wherever they stand in it.
const PARTS: [&[u8]; 20] = [
    b"accesskey",
    b"apikey",
    b"appkey",
    b"authkey",
    b"authentic",
    b"authoriz",
    b"bearer",
    b"cookie",
    b"credential",
    b"functionskey",
    b"jwt",
    b"passcode",
    b"passw",
    b"privatekey",
    b"secret",
    b"sessid",
    b"session",
    b"signature",
    b"subscriptionkey",
    b"token",
];
/// Words that make a name that of a credential at its end: `X-Auth` is one, `X-Auth-Request-User` is not.
const LAST_WORDS: [&[u8]; 6] = [b"auth", b"otp", b"pass", b"pwd", b"sid", b"sig"];

/// Whether a header, a query parameter, a path parameter or a descriptor of this name usually carries a secret.
///
/// The key of such a value contains a digest of it and not the value: keys are stored in Redis, logged, and shown in lists
/// of offenders. This function decides it for all key extractors of named values, for limits `by NAME`, for calls to the
/// server and for descriptors of Envoy.
///
/// - Upper and lower case are equal, and characters other than letters and digits only separate words.
/// - A name that contains one of these is a credential: `accesskey` (also `access-key`), `apikey`, `appkey`, `authentic`, `authkey`,
///   `authoriz`, `bearer`, `cookie`, `credential`, `functionskey`, `jwt`, `passcode`, `passw`, `privatekey`, `secret`, `sessid`, `session`,
///   `signature`, `subscriptionkey`, `token`.
/// - So is a name whose last word is `auth`, `otp`, `pass`, `pwd`, `sid` or `sig`.
///
/// ```
/// use ratelimit_http::key::is_credential;
///
/// for name in ["Authorization", "X-Api-Key", "access_token", "Ocp-Apim-Subscription-Key", "PHPSESSID"] {
///     assert!(is_credential(name), "{name}");
/// }
/// for name in ["X-Tenant", "X-User", "X-Auth-Request-User", "X-Forwarded-For", "User-Agent"] {
///     assert!(!is_credential(name), "{name}");
/// }
/// ```
#[doc(alias = "secret")]
pub fn is_credential(name: impl AsRef<[u8]>) -> bool {
    let name = name.as_ref();
    let plain = name.iter().filter(|byte| byte.is_ascii_alphanumeric());
    let plain: SmallVec<[u8; 48]> = plain.map(u8::to_ascii_lowercase).collect();
    let begins_part = |start| PARTS.iter().any(|part| plain[start..].starts_with(part));
    let last_word = name
        .rsplit(|byte| !byte.is_ascii_alphanumeric())
        .find(|word| !word.is_empty());
    let is_last_word =
        |known: &[u8]| last_word.is_some_and(|last| last.eq_ignore_ascii_case(known));
    LAST_WORDS.into_iter().any(is_last_word) || (0..plain.len()).any(begins_part)
}

/// The key of a value that a request has under a name: `header:x-tenant:acme`, or a digest if the name is that of a
/// credential.
pub(crate) fn key_of_named(tag: &str, name: &str, value: &[u8]) -> Result<Key, InvalidKey> {
    let named = [name.as_bytes(), b":", value].concat();
    if is_credential(name) {
        Key::hashed(tag, named)
    } else {
        Key::tagged(tag, named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_credentials_however_they_are_written() {
        for secret in [
            "authorization",
            "proxy-authorization",
            "cookie",
            "X-API-Key",
            "x_api_key",
            "apikey",
            "x-auth-token",
            "X-Auth",
            "x-csrf-token",
            "X-Session-Id",
            "PHPSESSIONID",
            "x-client-secret",
            "password",
            "x-amz-security-token",
            "private-token",
            "x-functions-key",
            "x-goog-iap-jwt-assertion",
            "x-hub-signature-256",
            "client.credential",
        ] {
            assert!(is_credential(secret), "{secret}");
        }
        for plain in [
            "x-tenant",
            "x-user-id",
            "x-auth-request-email",
            "x-author",
            ":authority",
            "x-monkey",
            "x-compass",
            "x-key-id",
            "generic_key",
            "idempotency-key",
            "remote_address",
            "path",
            "-",
            "",
        ] {
            assert!(!is_credential(plain), "{plain}");
        }
    }
}
