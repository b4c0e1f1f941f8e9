//! Where budgets live.

mod contract;
mod memory;
#[cfg(feature = "redis")]
mod redis;

#[cfg(feature = "redis")]
pub use self::redis::{InvalidRedisConfig, RedisConfig, RedisStore};
pub use self::{
    contract::{Hit, Store, StoreError, StoreFuture},
    memory::{MemoryStats, MemoryStore},
};
