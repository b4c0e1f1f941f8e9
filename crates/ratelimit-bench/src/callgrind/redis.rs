//! A redis-server under callgrind.

use super::{
    dump::{Dumps, LAUNCHER},
    exact,
};
use crate::server::RedisServer;

const COUNTS: u32 = 5;

/// The server collects garbage of Lua every 50 scripts; counts are comparable if each contains one collection.
pub(crate) const SCRIPTS_A_COLLECTION: u32 = 50;

/// A redis-server whose instructions are counted; about fifty times slower than it would be.
#[derive(Debug)]
pub struct CountedServer {
    server: RedisServer,
    dumps: Dumps,
}

impl CountedServer {
    /// Starts one.
    ///
    /// # Panics
    ///
    /// When there is no valgrind or no redis-server.
    pub fn start() -> CountedServer {
        let launcher = LAUNCHER.map(str::to_owned);
        // Its housekeeping goes by the clock, which runs far ahead of its work here.
        let server = RedisServer::start_under(&launcher, &["--hz", "1", "--dynamic-hz", "no"]);
        CountedServer {
            server,
            dumps: Dumps::default(),
        }
    }

    /// The server.
    pub const fn server(&self) -> &RedisServer {
        &self.server
    }

    /// The instructions for one script call, one after the other.
    pub async fn of_a_script(&mut self, call: impl AsyncFnMut()) -> f64 {
        self.of_each(SCRIPTS_A_COLLECTION, call).await
    }

    /// The instructions for one of `calls` calls, one after the other.
    ///
    /// The least of several counts: what the server does by the clock falls into some and not into
    /// all, and into more the busier the machine is.
    pub async fn of_each(&mut self, calls: u32, mut call: impl AsyncFnMut()) -> f64 {
        for _ in 0..calls {
            call().await;
        }
        self.instructions();
        let mut least = f64::INFINITY;
        for _ in 0..COUNTS {
            for _ in 0..calls {
                call().await;
            }
            least = least.min(exact(self.instructions()) / f64::from(calls));
        }
        least
    }

    /// The instructions since it was last asked.
    ///
    /// # Panics
    ///
    /// When the server is gone.
    pub fn instructions(&mut self) -> u64 {
        self.dumps.take(self.server.pid(), self.server.dir())
    }
}
