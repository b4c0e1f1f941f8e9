//! One script call: sending it, following redirections, reading the reply.

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
/// Pauses between attempts while Redis moves the hash slot of the keys from node to node (TRYAGAIN).
const MIN_RETRY_DELAY: Duration = Duration::from_millis(1);
const MAX_RETRY_DELAY: Duration = Duration::from_millis(8);

/// Sends a command for the Redis keys `names` over `route`.
///
/// - NOSCRIPT sends the source of the script, MOVED and ASK follow the redirection, TRYAGAIN waits a moment.
/// - A script that replies that it came too late is called again: the server's clock may have been set forward.
/// - `deadline` travels with the call. The caller also stops waiting by itself, with a timeout.
///
/// # Errors
///
/// - [`StoreError::Unavailable`] if the connection broke or the server serves nobody at the moment. The
///   connection is then replaced.
/// - [`StoreError::Refused`] if the server rejects this call, or its reply cannot be read.
/// - [`StoreError::TimedOut`] if the script came too late [`MAX_ATTEMPTS`] times.
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
    let mut attempts = 0;
    if command.uses_server_clock() {
        route.fetch_time().await;
    }
    while attempts < MAX_ATTEMPTS {
        attempts += 1;
        let sent = Instant::now();
        let names = names.iter().map(String::as_str);
        let cmd = command.to_cmd(eval, names, server_deadline(command, &route, deadline));
        let reply = if is_asking {
            route.send_asking(cmd).await
        } else {
            route.send(cmd).await
        };
        let error = match reply {
            Ok(reply) => match read_reply(command, &route, &reply, sent)? {
                Reply::Done(output, _) => return Ok(output),
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
            // Not an attempt: it ends when the slot has moved, or with the caller's time.
            CallError::TryAgain => {
                attempts -= 1;
                tokio::time::sleep(retry_delay).await;
                retry_delay = (retry_delay * 2).min(MAX_RETRY_DELAY);
            }
            call_error => return Err(store_error(router, &route, &call_error, error)),
        }
    }
    Err(StoreError::TimedOut)
}

/// The deadline on the server's clock, if the script reads that clock and its offset is known.
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

/// Reads a reply, and records what it shows of the server: that it answers, how fast, and its clock.
pub(super) fn read_reply<C: ScriptCommand>(
    command: &C,
    route: &Route,
    reply: &Value,
    sent: Instant,
) -> Result<Reply<C::Output>, StoreError> {
    let received = Instant::now();
    let reply = match reply {
        Value::BulkString(bytes) => command.decode(bytes),
        _ => Err(InvalidReply::Malformed),
    };
    let reply = reply.map_err(|invalid| {
        match invalid {
            InvalidReply::Malformed => route.mark_broken(invalid.to_string()),
            InvalidReply::CorruptState => route.record_reply(),
        }
        route.log().log_refused(&invalid);
        StoreError::refused(invalid)
    })?;
    route.record_reply();
    metrics::round_trip(received - sent);
    if command.uses_server_clock() {
        route.clock().record(reply.now(), sent, received);
    }
    Ok(reply)
}

/// The route to the node that a redirection names.
fn redirect(router: &Router, address: &str) -> Result<Route, StoreError> {
    let route = router.route_to_address(address);
    if route.is_none() {
        router.refresh_topology();
    }
    route.ok_or(StoreError::Unavailable { source: None })
}

/// The error of a call that is not sent again. A broken connection is taken out of use.
pub(super) fn store_error(
    router: &Router,
    route: &Route,
    call_error: &CallError,
    error: RedisError,
) -> StoreError {
    match call_error {
        CallError::ConnectionLost | CallError::ServerUnavailable => {
            router.refresh_topology();
            route.mark_broken(error.to_string());
            if matches!(call_error, CallError::ConnectionLost) {
                metrics::ambiguous();
            }
            StoreError::unavailable(error)
        }
        // An error about one key says nothing about the node.
        _ => {
            route.log().log_refused(&error);
            StoreError::refused(error)
        }
    }
}
