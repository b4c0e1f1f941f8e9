//! Where budgets live.

mod contract;
mod memory;

pub use self::{
    contract::{Hit, Store, StoreError, StoreFuture},
    memory::{MemoryStats, MemoryStore},
};
