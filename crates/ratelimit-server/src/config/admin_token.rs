//! The admin token.

use std::{fmt, fs::File, io::Read as _, path::Path};

use axum::http::{HeaderMap, header::AUTHORIZATION};
use subtle::ConstantTimeEq as _;

use super::invalid::InvalidConfig;
use crate::{file_read::read_file, hmac::hmac_sha256};

const MIN_TOKEN_BYTES: usize = 16;

/// The token that admin calls must carry as a bearer token.
#[derive(Clone)]
pub(crate) struct AdminToken(Box<[u8]>);

impl AdminToken {
    /// Reads the token from a file and trims white space.
    pub(crate) fn read(path: &Path) -> Result<AdminToken, InvalidConfig> {
        let bytes = read_file(path).map_err(|source| InvalidConfig::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        let token = bytes.trim_ascii();
        if token.len() < MIN_TOKEN_BYTES || !token.iter().all(u8::is_ascii_graphic) {
            return Err(InvalidConfig::Token {
                path: path.to_owned(),
            });
        }
        Ok(AdminToken(token.into()))
    }

    /// A random token, and its text.
    ///
    /// # Panics
    ///
    /// Panics if `/dev/urandom` cannot be read.
    pub(crate) fn generate() -> (AdminToken, String) {
        let mut bytes = [0; 16];
        File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut bytes))
            .expect("the system gives random bytes");
        let text = format!("{:032x}", u128::from_be_bytes(bytes));
        (AdminToken(text.as_bytes().into()), text)
    }

    /// Derives a secret for one purpose. The secret does not reveal the token.
    pub(crate) fn derive(&self, purpose: &[u8]) -> [u8; 32] {
        hmac_sha256(&self.0, purpose)
    }

    /// Whether `text` is this token, compared in constant time.
    #[cfg(feature = "console")]
    pub(crate) fn is(&self, text: &str) -> bool {
        self.0.ct_eq(text.as_bytes()).into()
    }

    /// Whether an `Authorization` header carries a bearer token, right or wrong.
    pub(crate) fn is_sent(headers: &HeaderMap) -> bool {
        let mut lines = headers.get_all(AUTHORIZATION).iter();
        lines.any(|value| bearer_token(value.as_bytes()).is_some())
    }

    /// Whether the one `Authorization` header carries this token, compared in constant time.
    pub(crate) fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut lines = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (lines.next(), lines.next()) else {
            return false;
        };
        bearer_token(value.as_bytes()).is_some_and(|token| self.0.ct_eq(token).into())
    }
}

/// The token of a value of `Authorization`, which has another form for other schemes.
fn bearer_token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"Bearer ");
    is_bearer.then(|| token.trim_ascii())
}

#[cfg(test)]
impl From<&str> for AdminToken {
    fn from(token: &str) -> AdminToken {
        AdminToken(token.as_bytes().into())
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken")
    }
}
