//! Request ids: from the client, or generated.

use std::{
    fmt::Write as _,
    hash::{BuildHasher as _, RandomState},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;

/// The header of the id, in requests and responses.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const MAX_BYTES: usize = 64;

/// The odd step from one generated id to the next: ids repeat after 2^64, and neighbours share no digits.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Makes sure that the headers carry exactly one valid id, and returns it.
///
/// The id of the client is kept if it is one line of at most 64 letters, digits and `-_.:`. Any other value could
/// forge log lines, so it is replaced.
pub(crate) fn ensure(headers: &mut HeaderMap) -> HeaderValue {
    let mut lines = headers.get_all(X_REQUEST_ID).iter();
    if let (Some(id), None) = (lines.next(), lines.next())
        && is_valid(id.as_bytes())
    {
        return id.clone();
    }
    let id = generate();
    headers.insert(X_REQUEST_ID, id.clone());
    id
}

/// The id of a request that passed [`ensure`].
pub(crate) fn of(headers: &HeaderMap) -> &str {
    let id = headers.get(X_REQUEST_ID).map(HeaderValue::to_str);
    id.and_then(Result::ok).unwrap_or_default()
}

fn is_valid(id: &[u8]) -> bool {
    let is_safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
    (1..=MAX_BYTES).contains(&id.len()) && id.iter().all(is_safe)
}

fn generate() -> HeaderValue {
    static START: LazyLock<AtomicU64> =
        LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(std::process::id())));
    let id = START.fetch_add(STEP, Ordering::Relaxed);
    let mut digits = String::with_capacity(16);
    write!(digits, "{id:016x}").expect("a string takes all text");
    HeaderValue::from_maybe_shared(Bytes::from(digits)).expect("hexadecimal digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ensured(values: &[&'static str]) -> String {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(X_REQUEST_ID, HeaderValue::from_static(value));
        }
        let id = ensure(&mut headers);
        assert_eq!(headers.get_all(X_REQUEST_ID).iter().count(), 1);
        assert_eq!(of(&headers), id.to_str().unwrap());
        id.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_short_and_safe_id_is_kept() {
        for id in ["4f1c2d3e-0a1b-4c5d-8e9f-001122334455", "a", "edge-7:42_x.y"] {
            assert_eq!(ensured(&[id]), id);
        }
    }

    #[test]
    fn any_other_id_is_replaced() {
        let long = "0123456789012345678901234567890123456789012345678901234567890123x";
        for ids in [
            &[][..],
            &[""],
            &["a b"],
            &["a\tb"],
            &["{}"],
            &[long],
            &["a", "a"],
        ] {
            let id = ensured(ids);
            assert_eq!(id.len(), 16, "{ids:?}");
        }
        assert_ne!(ensured(&[]), ensured(&[]));
    }
}
