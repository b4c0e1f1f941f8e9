//! One script call: sending it, following redirections, reading the reply.
//!
//! A call is executed at most once. It is sent again only after a reply that proves that nothing was executed. A call
//! whose reply is lost is not sent again, because a second execution would charge the hit twice.

use std::time::{Duration, Instant};

use redis::{RedisError, Value};

use crate::store::redis::{
    command::{Eval, Reply, ScriptCommand, reply::InvalidReply},
    connection::{
        error::CallError,
        router::{Route, Router},
    },
};
use crate::{metrics, store::contract::StoreError, time::Timestamp};

/// A call is sent at most three times, and again only after Redis replied that nothing was executed.
pub(super) const MAX_ATTEMPTS: usize = 3;
/// First pause between attempts while Redis moves the hash slot of the keys from node to node (TRYAGAIN). It doubles.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(1);
/// Longest pause between such attempts.
const MAX_RETRY_DELAY: Duration = Duration::from_millis(8);

/// The time that Redis takes for a call, without its hits after the first, and the entries of logs and slots.
const CALL_WORK: Duration = Duration::from_micros(50);
/// The time that Redis takes for a hit of a batch.
const BATCHED_HIT_WORK: Duration = Duration::from_micros(6);
/// The time that Redis takes for an entry of a log or a slot.
const ENTRY_WORK: Duration = Duration::from_nanos(100);

/// Estimates the time that Redis takes for a call that reads up to so many entries of logs and slots.
pub(super) fn call_work(entries: u64) -> Duration {
    CALL_WORK.saturating_add(ENTRY_WORK.saturating_mul(u32::try_from(entries).unwrap_or(u32::MAX)))
}

/// Estimates the time that Redis takes for a batch.
pub(super) fn batch_work(hits: usize, entries: u64) -> Duration {
    let hits = u32::try_from(hits).unwrap_or(u32::MAX);
    call_work(entries).saturating_add(BATCHED_HIT_WORK.saturating_mul(hits))
}

/// Sends a command for the Redis keys `names` over `route`.
///
/// | reply | next attempt |
/// |---|---|
/// | NOSCRIPT | the same node, with the source of the script |
/// | MOVED | the node that it names; the slot map is fetched again |
/// | ASK | the node that it names, behind ASKING and with the source, which that node may not have |
/// | TRYAGAIN | the same node, after 1, 2, 4, then 8 ms; it does not count as an attempt |
/// | `REPLY_TOO_LATE` | the same node, with a deadline by the clock offset of this reply: the clock was set forward |
/// | any other error | none |
///
/// - `deadline` travels with the call. The caller also stops waiting by itself, with a timeout, which bounds the number
///   of TRYAGAIN. This function has no timeout of its own.
/// - With a manual clock the call carries no deadline, so a late call is charged.
/// - Dropping the future does not recall a command that is on its way. The script still runs, unless its deadline has
///   passed by then.
/// - A call on a connection of the application sends TIME first while the offset of the server's clock is unknown.
///
/// # Errors
///
/// - [`StoreError::Unavailable`] if the connection broke or the server refuses all calls at the moment. The
///   connection is then replaced. Also if a redirection names a node without a connection; the slot map is then
///   fetched again.
/// - [`StoreError::Refused`] if the server rejects this call, such as WRONGTYPE for the key, or its reply cannot be
///   read.
/// - [`StoreError::TooLate`] if [`MAX_ATTEMPTS`] attempts executed nothing, mostly because the script came too late.
pub(super) async fn send<C: ScriptCommand>(
    command: &C,
    names: &[String],
    router: &Router,
    mut route: Route,
    deadline: Instant,
) -> Result<C::Output, StoreError> {
    let mut eval = Eval::Sha;
    let mut is_asking = false;
    let mut retry_delay = MIN_RETRY_DELAY;
    let (mut attempts, mut is_repeated) = (0, false);
    if command.uses_server_clock() {
        route.fetch_time().await;
    }
    while attempts < MAX_ATTEMPTS {
        attempts += 1;
        if std::mem::replace(&mut is_repeated, true) {
            ensure_in_time(deadline)?;
        }
        // Taken before the command is built: the clock offset needs a time that is not after the sending.
        let sent = Instant::now();
        let names = names.iter().map(String::as_str);
        let cmd = command.to_cmd(eval, names, server_deadline(command, &route, deadline));
        let reply = if is_asking {
            route.send_asking(cmd).await
        } else {
            route.send(cmd).await
        };
        let error = match reply {
            Ok(reply) => match read_reply(command, &route, &reply, sent, deadline)? {
                Reply::Done(output, _) => return Ok(output),
                // `read_reply` has recorded the server's time, so the next deadline is converted anew.
                Reply::TooLate(_) => continue,
            },
            Err(error) => error,
        };
        match CallError::classify(&error) {
            CallError::NoScript => eval = Eval::Source,
            CallError::Moved(address) => {
                router.refresh_topology();
                route = redirect(router, &address)?;
            }
            CallError::Ask(address) => {
                route = redirect(router, &address)?;
                (eval, is_asking) = (Eval::Source, true);
            }
            // Not an attempt: it ends when the slot has moved, or with the caller's timeout.
            CallError::TryAgain => {
                attempts -= 1;
                tokio::time::sleep(retry_delay).await;
                retry_delay = (retry_delay * 2).min(MAX_RETRY_DELAY);
            }
            call_error => {
                return Err(store_error(router, &route, &call_error, error, deadline));
            }
        }
    }
    Err(StoreError::TooLate)
}

/// Checks that a further call may be sent. A reply may be awaited for longer than its caller waits, but a call that is sent
/// then would charge a hit that is answered already.
///
/// # Errors
///
/// [`StoreError::TooLate`] after `deadline`.
pub(super) fn ensure_in_time(deadline: Instant) -> Result<(), StoreError> {
    if Instant::now() < deadline {
        Ok(())
    } else {
        Err(StoreError::TooLate)
    }
}

/// The deadline on the server's clock, if the script reads that clock and its offset is known.
///
/// The offset is a lower bound, so the result is never later than `deadline`: a hit is not charged after its caller got
/// the answer of the failure mode.
pub(super) fn server_deadline<C: ScriptCommand>(
    command: &C,
    route: &Route,
    deadline: Instant,
) -> Option<Timestamp> {
    if command.uses_server_clock() {
        route.clock().server_time(deadline)
    } else {
        None
    }
}

/// Reads a reply, and records the facts about the server: that it answers, how fast, and its clock.
///
/// | reply | circuit breaker | connection | result |
/// |---|---|---|---|
/// | readable, also too late | reset | kept | `Ok` |
/// | impossible numbers | reset | kept | [`StoreError::Refused`], logged |
/// | another type or shape | unchanged | taken out of use | [`StoreError::Refused`], logged |
///
/// - `sent` is the time before the command was sent.
/// - A reply after `deadline` leaves the circuit breaker as it is: its call has counted as a timeout.
pub(super) fn read_reply<C: ScriptCommand>(
    command: &C,
    route: &Route,
    reply: &Value,
    sent: Instant,
    deadline: Instant,
) -> Result<Reply<C::Output>, StoreError> {
    // Before decoding: the offset is a bound by the time of receipt, and decoding is not part of the round trip.
    let received = Instant::now();
    let reply = match reply {
        Value::BulkString(bytes) => command.decode(bytes),
        _ => Err(InvalidReply::Malformed),
    };
    let reply = reply.map_err(|invalid| {
        match invalid {
            // Replies are matched to calls by their order. One that fits no call puts all later ones in doubt.
            InvalidReply::Malformed => route.mark_broken(invalid.to_string()),
            InvalidReply::CorruptState if received <= deadline => route.record_reply(),
            InvalidReply::CorruptState => {}
        }
        route.log().log_refused(&invalid);
        StoreError::refused(invalid)
    })?;
    // A late one has counted as a timeout, in the histogram too.
    if received <= deadline {
        route.record_reply();
        metrics::round_trip(received - sent);
    }
    if command.uses_server_clock() {
        route.clock().record(reply.now(), sent, received);
    }
    Ok(reply)
}

/// The route to the node that a redirection names.
///
/// A node that the slot map does not have yet has no connection. The call fails then instead of waiting for one, and
/// the background task fetches the map.
fn redirect(router: &Router, address: &str) -> Result<Route, StoreError> {
    let route = router.route_to_address(address);
    if route.is_none() {
        router.refresh_topology();
    }
    route.ok_or(StoreError::Unavailable { source: None })
}

/// The error of a call that is not sent again. A broken connection is taken out of use.
///
/// - A lost connection leaves open whether the call was executed, which the metric for ambiguous calls counts, unless
///   the call has counted as a timeout at `deadline`. Connections to other nodes stay.
/// - A server that refuses all calls (LOADING, READONLY, OOM and the like) executed nothing. Its connection is replaced
///   as well, and the handshake keeps the server out of use until its scripts can write again.
pub(super) fn store_error(
    router: &Router,
    route: &Route,
    call_error: &CallError,
    error: RedisError,
    deadline: Instant,
) -> StoreError {
    match call_error {
        CallError::ConnectionLost | CallError::ServerUnavailable => {
            router.refresh_topology();
            // Logs the error.
            route.mark_broken(error.to_string());
            let is_lost = matches!(call_error, CallError::ConnectionLost);
            if is_lost && Instant::now() <= deadline {
                metrics::ambiguous();
            }
            // A client of the application may have sent the call before, and lost the reply.
            if is_lost || route.connection_id().is_none() {
                StoreError::unavailable(error)
            } else {
                StoreError::Unavailable { source: None }
            }
        }
        // An error about one key is not a fault of the node, so the connection stays.
        _ => {
            route.log().log_refused(&error);
            StoreError::refused(error)
        }
    }
}
