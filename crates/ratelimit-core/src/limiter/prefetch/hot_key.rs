//! One hot key: the block that its hits spend, the next one, and the task that takes and returns blocks.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, Weak},
    task::Poll,
    time::{Duration, Instant},
};

use smallvec::SmallVec;
use tokio::sync::Notify;

use super::{
    WarnedPolicies,
    block::Block,
    clock::{AgeClock, Moment},
};
use crate::{
    budget::Adjustment,
    decision::Decision,
    key::Key,
    limiter::{Limiter, LimiterInner},
    metrics::PrefetchMetrics,
    policy::Policy,
    store::{Hit, OwnedHit, Receipt, Settlement, Store, StoreFuture},
    sync::lock,
};

/// The blocks of a key.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// The blocks to spend, the older one first. Two at most.
    ready: SmallVec<[Block; 2]>,
    /// Blocks that are not spent any more, with units to return.
    unused: Vec<Block>,
    /// Whether the next block is wanted, or on its way.
    is_wanted: bool,
    /// Whether the store denied the last block, or did not reply: there will be no further one.
    is_last: bool,
    /// Whether the key was reset, is idle or was given up. It gets no blocks any more.
    is_ended: bool,
}

/// What the task of a key does next.
#[derive(Debug)]
enum NextStep {
    Take,
    /// Returns one of the unused blocks.
    Return,
    /// Waits for this many microseconds, or until it is woken.
    Wait(u64),
    End,
}

impl Blocks {
    /// Pays a hit by one block. Returns also whether to wake the task.
    fn try_spend(&mut self, cost: u64, now: Moment) -> (Option<Decision>, bool) {
        let mut blocks = self.ready.iter_mut().enumerate();
        let paid = blocks.find_map(|(index, block)| Some((index, block.try_spend(cost, now)?)));
        let Some((paying, decision)) = paid else {
            return (None, false);
        };
        // A rest that does not pay a hit is returned.
        let passed_over = self
            .ready
            .drain(..paying)
            .filter(|block| block.unspent() > 0);
        self.unused.extend(passed_over);
        let is_half_used = self.ready.len() == 1 && self.ready[0].is_half_used();
        let wants_next = is_half_used && !self.is_wanted && !self.is_last;
        self.is_wanted |= wants_next;
        if self.ready[0].left(now) == 0 && self.ready[0].unspent() == 0 {
            self.ready.remove(0);
        }
        let is_used_up = self.ready.is_empty() && !self.is_wanted;
        (Some(decision), wants_next || is_used_up)
    }

    /// The units that may be spent.
    pub(super) fn left(&mut self, now: Moment) -> u64 {
        self.ready.iter_mut().map(|block| block.left(now)).sum()
    }

    /// Adds a block that the store charged, or the lack of one. Returns the block if the key has ended.
    fn add(&mut self, block: Option<Block>) -> Option<Block> {
        self.is_wanted = false;
        self.is_last = block.is_none();
        if self.is_ended {
            return block;
        }
        self.ready.extend(block);
        None
    }

    /// Ends the key, and returns its blocks.
    pub(super) fn end(&mut self) -> Vec<Block> {
        self.is_ended = true;
        let mut blocks = std::mem::take(&mut self.unused);
        blocks.extend(self.ready.drain(..));
        blocks.retain(|block| block.unspent() > 0);
        blocks
    }

    fn next_step(&mut self, now: Moment) -> NextStep {
        let mut index = 0;
        while let Some(block) = self.ready.get_mut(index) {
            if block.left(now) > 0 {
                index += 1;
            } else {
                self.unused.push(self.ready.remove(index));
            }
        }
        if self.is_wanted && !self.is_ended {
            return NextStep::Take;
        }
        if !self.unused.is_empty() {
            return NextStep::Return;
        }
        if let Some(life) = self.ready.iter().map(|block| block.life_left(now)).min() {
            return NextStep::Wait(life);
        }
        self.is_ended = true;
        NextStep::End
    }
}

/// A hot key in the table. It lives as long as its task.
pub(super) struct HotKey {
    pub(super) hash: u64,
    /// The policy and the key, where there is one key.
    single: Option<(Policy, Key)>,
    /// The hit that charges a block.
    pub(super) hit: OwnedHit,
    pub(super) blocks: Mutex<Blocks>,
    /// Wakes the task.
    pub(super) wake: Notify,
    /// Held while a call of the task is under way.
    pub(super) calling: tokio::sync::Mutex<()>,
    pub(super) metrics: PrefetchMetrics,
}

impl HotKey {
    /// A key whose task takes the first block at once.
    pub(super) fn new(hash: u64, hit: Hit<'_>) -> HotKey {
        HotKey {
            hash,
            single: match hit.policy.groups() {
                [group] => Some((hit.policy.clone(), hit.key_for(group).clone())),
                _ => None,
            },
            hit: OwnedHit::new(hit),
            blocks: Mutex::new(Blocks {
                is_wanted: true,
                ..Blocks::default()
            }),
            wake: Notify::new(),
            calling: tokio::sync::Mutex::default(),
            metrics: PrefetchMetrics::new(hit.policy.shared_name()),
        }
    }

    /// Whether a hit spends from the same budgets under equal limits.
    ///
    /// Fast path: the very policy and one key, which spares the comparison of all limits.
    #[inline]
    pub(super) fn is_of(&self, hit: &Hit<'_>) -> bool {
        if let (Some((policy, key)), [group]) = (&self.single, hit.policy.groups())
            && policy.is_same_as(hit.policy)
        {
            return key.as_str() == hit.key_for(group).as_str();
        }
        hit.same_budgets_as(&self.hit.as_hit())
    }

    /// Pays a hit by a block.
    pub(super) fn try_spend(&self, cost: u64, now: Moment) -> Option<Decision> {
        let (decision, wakes) = lock(&self.blocks).try_spend(cost, now);
        if wakes {
            self.wake.notify_one();
        }
        if decision.is_some() {
            self.metrics.count_hit();
        }
        decision
    }

    /// Refunds what is left of a block by `settle`. If the refund is lost, the units stay charged until time restores them.
    pub(super) async fn return_block(
        &self,
        mut block: Block,
        now: Moment,
        settle: impl FnOnce(&Receipt, Adjustment) -> StoreFuture<Settlement>,
    ) {
        if let Some(change) = block.refund(now)
            && settle(block.receipt(), change).await.is_err()
        {
            self.metrics.count_dropped(block.unspent());
        }
    }
}

/// The background task of a hot key: takes the next block when the present one is half used, and returns what hits left.
pub(super) struct RefillTask {
    /// Gone with the last clone of the limiter.
    pub(super) limiter: Weak<LimiterInner>,
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: AgeClock,
    pub(super) warned: Arc<WarnedPolicies>,
    pub(super) key: Arc<HotKey>,
}

impl RefillTask {
    /// Runs until the key has no block left.
    pub(super) async fn run(self) {
        let key = &self.key;
        loop {
            // A planned end waits for a call that is under way, and finds every block that is not returned yet.
            let calling = key.calling.lock().await;
            let step = {
                let mut blocks = lock(&key.blocks);
                if self.limiter.strong_count() == 0 {
                    let unused = blocks.end();
                    blocks.unused = unused;
                }
                let now = self.clock.now();
                key.metrics.set_units(blocks.left(now));
                blocks.next_step(now)
            };
            match step {
                NextStep::Take => self.take().await,
                NextStep::Return => {
                    let unused = lock(&key.blocks).unused.pop();
                    if let Some(block) = unused {
                        key.metrics.count_expired(block.unspent());
                        self.return_block(block).await;
                    }
                }
                NextStep::Wait(micros) => {
                    drop(calling);
                    self.wait(Duration::from_micros(micros)).await;
                }
                NextStep::End => return,
            }
        }
    }

    /// Charges a block by an ordinary hit. Without a reply its units are never spent.
    async fn take(&self) {
        let Some(shared) = self.limiter.upgrade() else {
            return;
        };
        let limiter = Limiter { shared };
        let (key, hit) = (&self.key, self.key.hit.as_hit());
        let sent = self.clock.now();
        let in_flight = limiter.count_in_flight(hit);
        let reply = limiter.send(hit).await;
        if let Ok(decision) = &reply {
            limiter.record_reply(&hit, decision, Instant::now());
        }
        drop(in_flight);
        let mut block = reply.ok().and_then(|reply| Block::new(hit, reply, sent));
        key.metrics.count_call(block.is_some());
        if let Some(block) = &mut block
            && block.left(self.clock.now()) == 0
        {
            self.warned.warn_once(
                hit.policy,
                "nothing is prefetched: the round trip to the store is longer than the share lasts",
            );
        }
        let refused = lock(&key.blocks).add(block);
        if let Some(block) = refused {
            self.return_block(block).await;
        }
    }

    async fn return_block(&self, block: Block) {
        let settle = |receipt: &Receipt, change| match self.limiter.upgrade() {
            Some(shared) => Limiter { shared }.adjust(receipt, change),
            None => self.store.settle(receipt, change),
        };
        self.key.return_block(block, self.clock.now(), settle).await;
    }

    /// Waits for `span`, or until the task is woken.
    async fn wait(&self, span: Duration) {
        let timer = self.store.virtual_timer(span);
        let mut timer = timer.unwrap_or_else(|| Box::pin(tokio::time::sleep(span)));
        let mut woken = pin!(self.key.wake.notified());
        poll_fn(|cx| {
            let is_ready = woken.as_mut().poll(cx).is_ready() || timer.as_mut().poll(cx).is_ready();
            if is_ready {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}
