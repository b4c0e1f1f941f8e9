//! Stores: the trait, the hit and the receipt that they share, the memory store and the Redis store.
//!
//! - `contract.rs`: [`Store`], [`StoreFuture`], [`StoreError`] and [`Settlement`].
//! - `hit.rs`: [`Hit`], the request to a store; `slot.rs` numbers its slot.
//! - `joint.rs`: [`JointHit`], hits under several policies that are decided together.
//! - `receipt.rs`: [`Receipt`], which identifies a charge later; `receipt/codec.rs` is its form in bytes.
//! - `memory/` and `redis/`: the two stores. Both run the same steps, so they return equal decisions.

mod contract;
mod hit;
mod joint;
mod memory;
mod receipt;
#[cfg(feature = "redis")]
mod redis;
mod slot;

#[cfg(feature = "redis")]
pub use self::redis::{InvalidRedisConfig, RedisConfig, RedisStore};
pub use self::{
    contract::{Settlement, Store, StoreError, StoreFuture},
    hit::Hit,
    joint::{InvalidJointHit, JointHit, JointRole, MAX_JOINT_ENTRIES, MAX_JOINT_HITS},
    memory::{MemoryStats, MemoryStore},
    receipt::{InvalidReceipt, Receipt},
};
pub(crate) use self::{
    hit::OwnedHit,
    joint::{passes, unread},
    memory::Redemption,
    receipt::{ChargedBy, life},
};
pub use crate::{
    budget::Adjustment,
    decision::Charged,
    policy::{HitMode, Overdraft},
};
