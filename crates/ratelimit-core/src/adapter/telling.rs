//! What a response is to tell, in less room than a decision takes.

use super::framework::HeaderFields;
use crate::{
    decision::Decision,
    fields::{HeaderStyle, list_field},
    policy::Policy,
};

/// What a response is to tell of a decision.
///
/// It is made when the request is judged, because a decision is dear to move about until its
/// response comes.
#[derive(Clone, Debug)]
pub(super) struct Telling<F: HeaderFields> {
    pub(super) mark: Mark,
    pub(super) numbers: Option<Numbers<F>>,
}

/// What marks tell of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) is_over: bool,
    pub(super) is_watched: bool,
    pub(super) is_denied: bool,
}

impl Mark {
    pub(super) const fn of(decision: &Decision) -> Mark {
        Mark {
            is_over: decision.is_over,
            is_watched: !decision.is_enforced,
            is_denied: !decision.is_allowed(),
        }
    }
}

/// The numbers of the limit that speaks; in a style that lists all limits, also the list.
#[derive(Clone, Debug)]
pub(super) struct Numbers<F: HeaderFields> {
    pub(super) limit: u64,
    pub(super) remaining: u64,
    pub(super) reset: u64,
    pub(super) list: Option<F::Value>,
}

impl<F: HeaderFields> Numbers<F> {
    #[inline]
    pub(super) fn of(style: HeaderStyle, policy: &Policy, decision: &Decision) -> Numbers<F> {
        let list = || F::value(list_field(policy.name(), decision).as_bytes());
        Numbers {
            limit: decision.limit,
            remaining: decision.remaining,
            reset: style.reset(decision),
            list: (style == HeaderStyle::Ietf).then(list),
        }
    }
}
