//! What breaks servers and networks on purpose, and measures what callers see of it.
//!
//! ```text
//! Load -> Layer (ours, or a plain one) -> Proxy -> redis-server
//!   \__ Ledger: what callers were told    \__ faults   \__ Audit: what was counted
//!          \______________________ Report ____________________/
//! ```

mod baseline;
mod cluster;
mod fixture;
mod layer;
mod ledger;
mod load;
mod observed;
mod proxy;
mod report;
pub mod scenario;
mod sentinel;
mod serial;
mod tls;

pub use self::{
    cluster::TestCluster,
    fixture::{Fixture, Kind, PATIENCE, TIME_OUT, eventually, ours},
    layer::{Audit, CallOutcome, Later, Layer, Ours},
    ledger::{Entry, Ledger},
    load::{COMMON_LIMIT, Load, common, endless},
    observed::Observations,
    proxy::{Loss, Proxy},
    report::{Expected, Report},
    sentinel::TestSentinel,
    serial::{SerialGuard, serial},
    tls::Certificates,
};
