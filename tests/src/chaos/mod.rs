//! What breaks servers and networks on purpose, and measures what callers see of it.
//!
//! ```text
//! Load -> Layer (ours, or a plain one) -> Proxy -> redis-server
//!   \__ Ledger: what callers were told    \__ faults   \__ Audit: what was counted
//!          \______________________ Report ____________________/
//! ```

mod alone;
mod bench;
mod cluster;
mod layer;
mod ledger;
mod load;
mod plain;
mod proxy;
mod report;
pub mod scenario;
mod sentinel;
mod story;
mod tls;

pub use self::{
    alone::{Alone, alone},
    bench::{Bench, Kind, PATIENCE, eventually, ours},
    cluster::TestCluster,
    layer::{Audit, Later, Layer, Ours, Told},
    ledger::{Entry, Ledger},
    load::{COMMON_LIMIT, Load, common, endless},
    proxy::{Loss, Proxy},
    report::{Expected, Report},
    sentinel::TestSentinel,
    story::Story,
    tls::Certificates,
};
