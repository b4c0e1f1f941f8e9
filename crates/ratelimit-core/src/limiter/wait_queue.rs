//! Whose turn it is among those who wait for one budget.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, error::Elapsed, timeout_at},
};

use crate::{key::Key, policy::Policy};

const DEFAULT_MOST: usize = 10_000;

/// The queues of a process: one for each budget that somebody waits for, first come first served.
pub(super) struct WaitQueues {
    most: usize,
    queues: Mutex<HashMap<BudgetId, Queue>>,
}

/// A policy's name and a key.
type BudgetId = (Arc<str>, Key);

struct Queue {
    /// The one turn, handed on in the order in which it was asked for.
    turn: Arc<Semaphore>,
    /// How many wait, the one whose turn it is included.
    waiting: usize,
    /// When the one whose turn it is asks again.
    next: Option<Instant>,
}

/// A place in a queue, which is given up when it is dropped.
pub(super) struct Ticket {
    wait_queues: Arc<WaitQueues>,
    budget: BudgetId,
    turn: Option<OwnedSemaphorePermit>,
}

impl WaitQueues {
    /// Queues of at most `most` each.
    pub(super) fn new(most: usize) -> WaitQueues {
        WaitQueues {
            most,
            queues: Mutex::default(),
        }
    }

    /// How many wait for a budget.
    pub(super) fn waiting(&self, policy: &Policy, key: &Key) -> usize {
        let queues = self.lock();
        let queue = queues.get(&budget(policy, key));
        queue.map_or(0, |queue| queue.waiting)
    }

    /// Takes the last place in a queue, unless it is full.
    pub(super) fn enqueue(self: &Arc<WaitQueues>, policy: &Policy, key: &Key) -> Option<Ticket> {
        let budget = budget(policy, key);
        let mut queues = self.lock();
        let waiting = queues.get(&budget).map_or(0, |queue| queue.waiting);
        if waiting >= self.most {
            return None;
        }
        queues.entry(budget.clone()).or_default().waiting += 1;
        Some(Ticket {
            wait_queues: Arc::clone(self),
            budget,
            turn: None,
        })
    }

    /// The queues, also after another thread panicked: nothing between lock and unlock can.
    fn lock(&self) -> MutexGuard<'_, HashMap<BudgetId, Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

fn budget(policy: &Policy, key: &Key) -> BudgetId {
    (Arc::clone(policy.shared_name()), key.clone())
}

impl Ticket {
    /// Waits until all who came before are gone.
    ///
    /// # Errors
    ///
    /// When that takes longer than `until`.
    pub(super) async fn wait_turn(&mut self, until: Instant) -> Result<(), Elapsed> {
        let turn = Arc::clone(&self.wait_queues.lock()[&self.budget].turn);
        let turn = timeout_at(until, turn.acquire_owned()).await?;
        self.turn = Some(turn.expect("the semaphore is never closed"));
        Ok(())
    }

    /// Says when the one whose turn it is asks again.
    pub(super) fn set_next_attempt(&self, next: Instant) {
        if let Some(queue) = self.wait_queues.lock().get_mut(&self.budget) {
            queue.next = Some(next);
        }
    }

    /// When the one whose turn it is asks again, if that is known.
    pub(super) fn next_attempt(&self) -> Option<Instant> {
        self.wait_queues.lock().get(&self.budget)?.next
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut queues = self.wait_queues.lock();
        let Some(queue) = queues.get_mut(&self.budget) else {
            return;
        };
        queue.waiting -= 1;
        if self.turn.is_some() {
            queue.next = None;
        }
        if queue.waiting == 0 {
            queues.remove(&self.budget);
        }
    }
}

impl Default for WaitQueues {
    fn default() -> WaitQueues {
        WaitQueues::new(DEFAULT_MOST)
    }
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            turn: Arc::new(Semaphore::new(1)),
            waiting: 0,
            next: None,
        }
    }
}
