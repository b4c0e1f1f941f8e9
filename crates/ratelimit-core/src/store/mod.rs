//! Where budgets live.

mod contract;
mod hit;
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
    memory::{MemoryStats, MemoryStore},
    receipt::{InvalidReceipt, Receipt},
};
pub(crate) use self::{hit::OwnedHit, memory::LockedEntry, receipt::ChargedBy};
