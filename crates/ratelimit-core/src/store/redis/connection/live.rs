//! An established connection, and what is known about its replies.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use redis::{ConnectionInfo, aio::MultiplexedConnection};
use tokio::{runtime::Handle, sync::Notify};

use crate::store::redis::connection::{
    breaker::TimeoutBreaker, clock_offset::ClockOffset, handshake::Handshake, work_queue::WorkQueue,
};

/// An established connection whose handshake succeeded.
#[derive(Debug)]
pub(in crate::store::redis) struct LiveConnection {
    /// Unique in the process.
    pub(in crate::store::redis) id: u64,
    /// The address of the server, for a probe on a new connection.
    pub(super) address: ConnectionInfo,
    /// The sockets, at least one (`RedisConfig::connections`).
    connections: Vec<MultiplexedConnection>,
    /// Index of the connection for the next call, before the modulo.
    turn: AtomicUsize,
    /// The offset of the server's clock; the handshake has recorded its first sample.
    pub(in crate::store::redis) clock: ClockOffset,
    /// Bounds the work in flight.
    pub(in crate::store::redis) work: Arc<WorkQueue>,
    /// Counts the calls in a row without a reply in time.
    pub(super) breaker: TimeoutBreaker,
    /// Wakes the background task when the breaker demands a probe.
    pub(super) suspected: Notify,
    /// The runtime that drives the sockets. Replies arrive only while it is driven.
    pub(in crate::store::redis) runtime: Handle,
    /// Number of replies, so that a heartbeat sees whether there were any since the last.
    pub(super) replies: AtomicUsize,
    /// Calls that were slower than the timeout and are not in the log yet.
    pub(super) slow_calls: AtomicU64,
    /// Why the connection was taken out of use; the first cause stays.
    pub(super) fault: OnceLock<String>,
}

impl LiveConnection {
    /// For sockets that live on the current runtime.
    pub(super) fn new(handshake: Handshake) -> LiveConnection {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        LiveConnection {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            address: handshake.address,
            connections: handshake.connections,
            turn: AtomicUsize::new(0),
            clock: handshake.clock,
            work: WorkQueue::new(Some(Handle::current())),
            breaker: TimeoutBreaker::default(),
            suspected: Notify::new(),
            runtime: Handle::current(),
            replies: AtomicUsize::new(0),
            slow_calls: AtomicU64::new(0),
            fault: OnceLock::new(),
        }
    }

    /// One of the sockets, in turn.
    pub(in crate::store::redis) fn connection(&self) -> MultiplexedConnection {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.connections[turn % self.connections.len()].clone()
    }

    /// Records a reply in time, which resets the breaker.
    pub(in crate::store::redis) fn record_reply(&self) {
        self.replies.fetch_add(1, Ordering::Relaxed);
        self.breaker.reset();
    }
}
