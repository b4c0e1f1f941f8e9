//! FIFO queues of the waiters for one budget (feature `acquire`).
//!
//! One mutex guards the map of all queues. It is held for a lookup and a few writes, never across an await. The turn of a
//! queue is the single permit of a tokio semaphore, which is fair: permits go to waiters in the order of their requests.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, error::Elapsed, timeout_at},
};

use crate::{key::Key, policy::Policy, sync::lock};

/// Waiters of one queue, unless [`Limiter::max_waiters`](crate::Limiter::max_waiters) is set.
const DEFAULT_MAX_WAITERS: usize = 10_000;

/// The queues of one limiter: one for each budget with waiters.
///
/// - A queue exists from its first waiter until its last one is gone, so idle budgets take no memory.
/// - The waiter at the front has the turn. It checks, and the others sleep.
/// - Waiters of all tiers of a policy share one queue, because they share the policy's name.
pub(super) struct WaitQueues {
    /// Maximum number of waiters in each queue.
    max_waiters: usize,
    /// Locked for a lookup only; never held across an await.
    queues: Mutex<HashMap<BudgetId, Queue>>,
}

/// Identifies a queue: the name of a policy, and a key.
type BudgetId = (Arc<str>, Key);

/// The waiters for one budget.
struct Queue {
    /// One permit: the turn. The semaphore hands it on in FIFO order.
    turn: Arc<Semaphore>,
    /// Number of tickets, including that of the waiter with the turn; at least 1 while the queue is in the map.
    waiting: usize,
    /// When the waiter with the turn checks again; `None` while that is unknown.
    next: Option<Instant>,
}

/// A place in a queue.
///
/// Dropping it leaves the queue: a waiter whose future is dropped passes its turn to the next, and the last one removes the
/// queue from the map.
pub(super) struct Ticket {
    wait_queues: Arc<WaitQueues>,
    budget: BudgetId,
    /// The turn, once this ticket has it.
    turn: Option<OwnedSemaphorePermit>,
}

impl WaitQueues {
    /// No queues yet; each will hold at most `max_waiters`.
    pub(super) fn new(max_waiters: usize) -> WaitQueues {
        WaitQueues {
            max_waiters,
            queues: Mutex::default(),
        }
    }

    /// The number of waiters for a budget.
    pub(super) fn waiting(&self, policy: &Policy, key: &Key) -> usize {
        let queues = self.lock();
        let queue = queues.get(&budget(policy, key));
        queue.map_or(0, |queue| queue.waiting)
    }

    /// Takes the last place in a queue, or returns `None` if the queue is full.
    ///
    /// The place counts towards [`waiting`](WaitQueues::waiting) immediately. Its order among the waiters is that of
    /// [`Ticket::wait_turn`], which asks the semaphore.
    pub(super) fn enqueue(self: &Arc<WaitQueues>, policy: &Policy, key: &Key) -> Option<Ticket> {
        let budget = budget(policy, key);
        let mut queues = self.lock();
        let waiting = queues.get(&budget).map_or(0, |queue| queue.waiting);
        if waiting >= self.max_waiters {
            return None;
        }
        queues.entry(budget.clone()).or_default().waiting += 1;
        Some(Ticket {
            wait_queues: Arc::clone(self),
            budget,
            turn: None,
        })
    }

    /// Locks the map, also after a panic of another thread: no code under the lock leaves it inconsistent.
    fn lock(&self) -> MutexGuard<'_, HashMap<BudgetId, Queue>> {
        lock(&self.queues)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

/// The queue of a policy and a key.
fn budget(policy: &Policy, key: &Key) -> BudgetId {
    (Arc::clone(policy.shared_name()), key.clone())
}

impl Ticket {
    /// Waits until all earlier waiters have left the queue.
    ///
    /// Dropping the future keeps the ticket, but loses its order in the semaphore.
    ///
    /// # Errors
    ///
    /// [`Elapsed`] when that takes longer than `until`.
    pub(super) async fn wait_turn(&mut self, until: Instant) -> Result<(), Elapsed> {
        // The lock is released before the await; the ticket keeps the queue in the map.
        let turn = Arc::clone(&self.wait_queues.lock()[&self.budget].turn);
        let turn = timeout_at(until, turn.acquire_owned()).await?;
        self.turn = Some(turn.expect("the semaphore is never closed"));
        Ok(())
    }

    /// Publishes when this waiter, which has the turn, checks again.
    ///
    /// A new waiter with an earlier deadline fails immediately in place of waiting in vain.
    pub(super) fn set_next_attempt(&self, next: Instant) {
        if let Some(queue) = self.wait_queues.lock().get_mut(&self.budget) {
            queue.next = Some(next);
        }
    }

    /// When the waiter with the turn checks again, if that is known.
    pub(super) fn next_attempt(&self) -> Option<Instant> {
        self.wait_queues.lock().get(&self.budget)?.next
    }
}

impl Drop for Ticket {
    /// Leaves the queue. The permit is released after this, when the fields are dropped, and wakes the next waiter.
    fn drop(&mut self) {
        let mut queues = self.wait_queues.lock();
        let Some(queue) = queues.get_mut(&self.budget) else {
            return;
        };
        queue.waiting -= 1;
        if self.turn.is_some() {
            // The next waiter has not announced its attempt yet.
            queue.next = None;
        }
        if queue.waiting == 0 {
            queues.remove(&self.budget);
        }
    }
}

impl Default for WaitQueues {
    fn default() -> WaitQueues {
        WaitQueues::new(DEFAULT_MAX_WAITERS)
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
