//! Servers that answer checks over REST, and the instructions of one check.

mod client;
mod server;

#[cfg(feature = "peers")]
pub(crate) use self::client::is_whole;
pub(crate) use self::{
    client::RestConnection,
    server::{RestProgram, RestServer},
};
use crate::callgrind::exact;

/// Connections that stay open, each with one request at a time.
pub(crate) const CONNECTIONS: usize = 64;
/// Number of keys that are checked in turn.
pub(crate) const KEYS: u32 = 10_000;

/// Requests of one count, a few on each connection.
const COUNTED: u32 = 640;
const COUNTS: u32 = 3;

/// The instructions of a server for one check: the least of several counts.
///
/// The connections take turns, so each request wakes the task of its connection, as under load.
pub(crate) fn instructions(program: &RestProgram) -> f64 {
    let mut server = RestServer::start_counted(program);
    let open = |_| RestConnection::open(&server);
    let mut connections: Vec<RestConnection> = (0..CONNECTIONS).map(open).collect();
    let mut check_all = || {
        let turns = (0..CONNECTIONS).cycle();
        for (number, connection) in (0..COUNTED).zip(turns) {
            connections[connection].check(number);
        }
    };
    check_all();
    server.instructions();
    let counts = (0..COUNTS).map(|_| {
        check_all();
        exact(server.instructions()) / f64::from(COUNTED)
    });
    counts.fold(f64::INFINITY, f64::min)
}
