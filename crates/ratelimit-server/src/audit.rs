//! Log lines about admin calls.

use std::net::SocketAddr;

use axum::{extract::Request, http::Method};
use ratelimit_core::{KeySet, Policy};

use crate::{admin_auth::Caller, check_keys::no_own_key, client::Peer, request_id};

/// The target of lines about admin calls.
const TARGET: &str = "ratelimit_server::audit";

/// An admin call that passed authorisation. Dropping it logs one line, also if the client has left.
///
/// The console repeats its reading calls every few seconds, so their lines have the level `debug`.
pub(crate) struct Audit {
    call: &'static str,
    by: Caller,
    peer: Option<SocketAddr>,
    request_id: String,
    policy: Option<String>,
    key: Option<String>,
    /// The keys of limits `by NAME`, as in `ip=sha256~...`.
    keys: Option<String>,
    is_repeated: bool,
    is_done: bool,
}

impl Audit {
    pub(crate) fn new(call: &'static str, by: Caller, request: &Request) -> Audit {
        Audit {
            call,
            by,
            peer: Peer::of(request.extensions()),
            request_id: request_id::of(request.headers()).to_owned(),
            policy: None,
            key: None,
            keys: None,
            is_repeated: matches!(by, Caller::Console) && request.method() == Method::GET,
            is_done: false,
        }
    }

    /// Adds the policy, and the keys by their fingerprints.
    pub(crate) fn about(&mut self, policy: &Policy, keys: &KeySet) {
        let own = keys.primary();
        let named = policy.key_names().filter(|name| keys.get(name) != own);
        let named = named.map(|name| format!("{name}={}", keys.get(name).fingerprint()));
        let named: Vec<String> = named.collect();
        self.policy = Some(policy.name().to_owned());
        self.key = (*own != no_own_key()).then(|| own.fingerprint().to_string());
        self.keys = (!named.is_empty()).then(|| named.join(" "));
    }

    /// Marks the call as successful.
    pub(crate) const fn succeed(&mut self) {
        self.is_done = true;
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        macro_rules! log {
            ($level:ident) => {
                tracing::$level!(
                    target: TARGET,
                    call = self.call,
                    by = self.by.as_str(),
                    peer = self.peer.map(tracing::field::display),
                    policy = self.policy,
                    key = self.key,
                    keys = self.keys,
                    result = if self.is_done { "ok" } else { "failed" },
                    request_id = self.request_id,
                    "admin call"
                )
            };
        }
        if self.is_repeated {
            log!(debug);
        } else {
            log!(info);
        }
    }
}
