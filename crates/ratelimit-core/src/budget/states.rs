//! The layout of a budget: one state per limit, by position, and the tail.
//!
//! A policy changes while keys are stored: two versions share the keys during a rolling deploy, and
//! so do the tiers of one policy. A limit is known by its position only. A hit under fewer limits
//! than were written keeps the states behind its own, and a [`Tail`] bounds how long they count.
//!
//! ```text
//! written by  "10/s; 1000/h; 5/min"    [ s0 | s1 | s2 ]
//! then by     "10/s"                   [ s0 | s1 | s2 | tail: known 1, until = expiry of the first write ]
//! after until "10/s"                   [ s0 ]
//! ```
//!
//! `docs/decisions/0003-changed-limits.md` gives the law: a limit counts the same while policies of
//! one name alternate as it counts alone. `lua/README.md` describes the same layout in Redis.

use crate::{algorithm::State, time::Timestamp};

/// The states of a budget; position `i` belongs to limit `i` of the group, `None` has spent
/// nothing.
#[derive(Clone, Debug)]
pub(super) enum States {
    /// One limit and no tail: stored inline, without an allocation. Nearly every budget is of this
    /// form, and the fast path accepts no other.
    One(Option<State>),
    /// Several limits and no tail. The length is the number of limits of the policy that wrote
    /// last; never 1.
    Several(Box<[Option<State>]>),
    /// States of limits that the policy of the last hit did not have, or the time of a reset. It
    /// may have any number of states, also none.
    WithTail(Box<StatesWithTail>),
}

/// States with the tail behind them.
#[derive(Clone, Debug)]
pub(super) struct StatesWithTail {
    /// All states by position; those from [`Tail::known`] on belong to unknown limits.
    states: Box<[Option<State>]>,
    /// How long those count, and the last reset.
    tail: Tail,
}

/// The life of the states of unknown limits, and the last reset.
///
/// - The first `known` states count as long as the budget.
/// - The states behind them, and the reset, count until `until`.
/// - The budget expires no earlier than `until`.
/// - The first write after `until` drops the tail and the states of unknown limits.
///
/// In Redis the tail is the last frame of the value, 18 bytes (`lua/README.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// From this moment on the states of unknown limits and the reset count for nothing. It only
    /// grows, until the tail is dropped or replaced by a reset.
    pub(super) until: Timestamp,
    /// The time of the last reset. A receipt charged up to this moment gives nothing back.
    pub(super) reset_at: Option<Timestamp>,
    /// The number of limits of the policy that wrote last; 0 after a reset. At most the number of
    /// states.
    pub(super) known: usize,
}

impl Default for States {
    /// No state at all.
    fn default() -> States {
        States::One(None)
    }
}

impl States {
    /// Chooses the smallest layout for these states.
    pub(super) fn new(states: Vec<Option<State>>, tail: Option<Tail>) -> States {
        if let Some(tail) = tail {
            let states = states.into();
            return States::WithTail(Box::new(StatesWithTail { states, tail }));
        }
        // A single state moves into the inline layout.
        match <[Option<State>; 1]>::try_from(states) {
            Ok([state]) => States::One(state),
            Err(states) => States::Several(states.into()),
        }
    }

    /// The states by position, for a change in place.
    pub(super) fn as_mut_slice(&mut self) -> &mut [Option<State>] {
        match self {
            States::One(state) => std::slice::from_mut(state),
            States::Several(states) => states,
            States::WithTail(tailed) => &mut tailed.states,
        }
    }

    /// The states by position.
    #[inline]
    pub(super) fn as_slice(&self) -> &[Option<State>] {
        match self {
            States::One(state) => std::slice::from_ref(state),
            States::Several(states) => states,
            States::WithTail(tailed) => &tailed.states,
        }
    }

    /// The tail, if there is one.
    pub(super) fn tail(&self) -> Option<Tail> {
        match self {
            States::WithTail(tailed) => Some(tailed.tail),
            States::One(_) | States::Several(_) => None,
        }
    }

    /// A copy with at least `count` states; the new ones are empty. A policy that gained limits
    /// needs it.
    pub(super) fn grown(&self, count: usize) -> States {
        let mut states = self.as_slice().to_vec();
        // States of unknown limits stay: the budget may have more states than `count`.
        states.resize(count.max(states.len()), None);
        States::new(states, self.tail())
    }
}
