//! A state for each limit of a group.

use crate::algorithm::State;

/// A state for each limit; one is kept in place.
#[derive(Clone, Debug)]
pub(super) enum States {
    One(Option<State>),
    Several(Box<[Option<State>]>),
}

impl Default for States {
    fn default() -> States {
        States::One(None)
    }
}

impl States {
    pub(super) fn slots(&mut self) -> &mut [Option<State>] {
        match self {
            States::One(slot) => std::slice::from_mut(slot),
            States::Several(slots) => slots,
        }
    }

    pub(super) fn as_slice(&self) -> &[Option<State>] {
        match self {
            States::One(slot) => std::slice::from_ref(slot),
            States::Several(slots) => slots,
        }
    }

    /// The same states, as many as there are limits.
    pub(super) fn resized(&self, count: usize) -> States {
        if count == 1 {
            return States::One(self.as_slice().first().cloned().flatten());
        }
        let mut slots = self.as_slice().to_vec();
        slots.resize(count, None);
        States::Several(slots.into())
    }
}
