//! The bulkhead: how many hits are in flight, in all and of each policy. Another one bounds the tasks that give back.

use std::{
    ops::Deref,
    sync::{Arc, Mutex},
};

use ahash::HashMap;

use crate::sync::lock;

/// Permits hits, so that no policy takes all permits.
///
/// - There are twice as many permits as one policy can have alone.
/// - A policy gets a permit while it holds fewer than are free. Alone it gets half of them, two busy policies get a third
///   each, and a policy without hits in flight gets one as long as any is free.
/// - It never waits.
#[derive(Debug)]
pub(super) struct Bulkhead {
    /// Permits in all.
    permits: usize,
    held: Mutex<HeldPermits>,
}

#[derive(Debug, Default)]
struct HeldPermits {
    all: usize,
    /// By the names of policies that hold any.
    policies: HashMap<Arc<str>, usize>,
}

/// The right to have one hit in flight.
#[derive(Debug)]
pub(super) struct HitPermit<B: Deref<Target = Bulkhead>> {
    bulkhead: B,
    policy: Arc<str>,
}

impl Bulkhead {
    /// `max` permits for a policy that is alone.
    pub(super) fn new(max: usize) -> Bulkhead {
        Bulkhead {
            permits: max.saturating_mul(2),
            held: Mutex::default(),
        }
    }

    /// A permit for a hit of a policy, if it may have one more.
    pub(super) fn try_acquire(&self, policy: &Arc<str>) -> Option<HitPermit<&Bulkhead>> {
        HitPermit::acquire(self, policy)
    }

    /// The same for a task.
    pub(super) fn try_acquire_owned(
        self: Arc<Bulkhead>,
        policy: &Arc<str>,
    ) -> Option<HitPermit<Arc<Bulkhead>>> {
        HitPermit::acquire(self, policy)
    }
}

impl<B: Deref<Target = Bulkhead>> HitPermit<B> {
    fn acquire(bulkhead: B, policy: &Arc<str>) -> Option<HitPermit<B>> {
        let mut held = lock(&bulkhead.held);
        let free = bulkhead.permits.saturating_sub(held.all);
        match held.policies.get_mut(policy) {
            Some(own) if *own >= free => return None,
            Some(own) => *own += 1,
            None if free == 0 => return None,
            None => drop(held.policies.insert(Arc::clone(policy), 1)),
        }
        held.all += 1;
        drop(held);
        Some(HitPermit {
            bulkhead,
            policy: Arc::clone(policy),
        })
    }
}

impl<B: Deref<Target = Bulkhead>> Drop for HitPermit<B> {
    fn drop(&mut self) {
        let mut held = lock(&self.bulkhead.held);
        held.all -= 1;
        if let Some(own) = held.policies.get_mut(&self.policy) {
            *own -= 1;
            if *own == 0 {
                held.policies.remove(&self.policy);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acquire_all<'a>(bulkhead: &'a Bulkhead, policy: &str) -> Vec<HitPermit<&'a Bulkhead>> {
        let policy = policy.into();
        std::iter::from_fn(|| bulkhead.try_acquire(&policy)).collect()
    }

    #[test]
    fn a_policy_leaves_permits_to_others() {
        let bulkhead = Bulkhead::new(12);

        let busy = acquire_all(&bulkhead, "busy");
        let other = acquire_all(&bulkhead, "other");
        let third = acquire_all(&bulkhead, "third");

        assert_eq!((busy.len(), other.len(), third.len()), (12, 6, 3));
    }

    #[test]
    fn permits_come_back() {
        let bulkhead = Bulkhead::new(1);

        drop(acquire_all(&bulkhead, "busy"));

        assert_eq!(acquire_all(&bulkhead, "busy").len(), 1);
        assert!(lock(&bulkhead.held).policies.is_empty());
    }
}
