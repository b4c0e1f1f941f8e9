//! A state for each limit of a group, and what other versions of the group left behind.

use crate::{algorithm::State, time::Timestamp};

/// A state for each limit by position; one is kept in place.
#[derive(Clone, Debug)]
pub(super) enum States {
    One(Option<State>),
    Several(Box<[Option<State>]>),
    /// States of limits that the last hit's policy did not have, or of a budget that was reset.
    WithTail(Box<StatesWithTail>),
}

/// States and the tail behind them.
#[derive(Clone, Debug)]
pub(super) struct StatesWithTail {
    states: Box<[Option<State>]>,
    tail: Tail,
}

/// Until when the states of unknown limits and the last reset count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    pub(super) until: Timestamp,
    /// When the budget was reset: receipts up to this moment give nothing back.
    pub(super) reset_at: Option<Timestamp>,
    /// How many limits the policy had that wrote last. Its states last as long as the budget, and those behind
    /// them until `until`.
    pub(super) known: usize,
}

impl Default for States {
    fn default() -> States {
        States::One(None)
    }
}

impl States {
    pub(super) fn new(states: Vec<Option<State>>, tail: Option<Tail>) -> States {
        if let Some(tail) = tail {
            let states = states.into();
            return States::WithTail(Box::new(StatesWithTail { states, tail }));
        }
        match <[Option<State>; 1]>::try_from(states) {
            Ok([state]) => States::One(state),
            Err(states) => States::Several(states.into()),
        }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [Option<State>] {
        match self {
            States::One(state) => std::slice::from_mut(state),
            States::Several(states) => states,
            States::WithTail(tailed) => &mut tailed.states,
        }
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[Option<State>] {
        match self {
            States::One(state) => std::slice::from_ref(state),
            States::Several(states) => states,
            States::WithTail(tailed) => &tailed.states,
        }
    }

    pub(super) fn tail(&self) -> Option<Tail> {
        match self {
            States::WithTail(tailed) => Some(tailed.tail),
            States::One(_) | States::Several(_) => None,
        }
    }

    /// The same states, and empty ones up to `count`.
    pub(super) fn grown(&self, count: usize) -> States {
        let mut states = self.as_slice().to_vec();
        states.resize(count.max(states.len()), None);
        States::new(states, self.tail())
    }
}
