//! Probes: script calls on a reserved key, which prove that the server executes our scripts and
//! lets them write.
//!
//! | fault that a PING would miss | the probe fails with |
//! |---|---|
//! | a demoted master | `READONLY` |
//! | full memory | `OOM` |
//! | a failed snapshot, too few replicas | `MISCONF`, `NOREPLICAS` |
//! | a user without the right to run scripts | `NOPERM` |
//! | a server that answers too slowly | the timeout of the caller |
//!
//! - The handshake runs [`run_every_script`] once, and then [`probe`] once, within the timeout of a
//!   hit.
//! - The heartbeat runs [`probe`] on an idle connection every 500 ms.
//! - The reserved key expires after about a second. It belongs to no policy.

use std::time::Instant;

use redis::{Cmd, Value, aio::MultiplexedConnection};

use crate::store::redis::{
    command::{
        Eval, Reply, ScriptCommand,
        check::{CheckCommand, Scope},
        check_batch::BatchCommand,
        reply::InvalidReply,
        reset::ResetCommand,
        settle::SettleCommand,
    },
    connection::{
        clock_offset::ClockOffset,
        error::{CallError, HandshakeError},
    },
};
use crate::{
    budget::Adjustment,
    decision::RefundMark,
    key::Key,
    policy::{HitMode, HitParams, Overdraft, Policy},
    store::{hit::Hit, receipt::Receipt},
    time::Timestamp,
};

/// A hit under a policy that only probes use. It costs 1 of a million, so it is never denied.
fn command(limits: &str) -> CheckCommand {
    CheckCommand {
        policy: Policy::parse("probe", limits).expect("a valid policy"),
        scope: Scope::Policy,
        params: HitParams {
            cost: 1,
            slot: 0,
            overdraft: Overdraft::Allowed,
            mode: HitMode::Charge,
        },
        is_denied: false,
        now: None,
    }
}

/// Runs every script that writes once, in one pipeline and one round trip.
///
/// The access rules (ACL) of a server apply to the commands inside a script, so a script that works
/// does not prove that another one does.
///
/// # Errors
///
/// - [`HandshakeError::Redis`]: the connection broke, or the server refused one of the scripts.
/// - [`HandshakeError::Invalid`]: a script replied with something else than bytes.
pub(in crate::store::redis) async fn run_every_script(
    connection: &mut MultiplexedConnection,
    probe: &str,
) -> Result<(), HandshakeError> {
    let commands = every_script(probe);
    let mut pipeline = redis::pipe();
    for command in &commands {
        pipeline.add_command(command.clone());
    }
    // `send_packed_commands` returns error replies as values, so each script has its own result.
    let replies = connection.send_packed_commands(&pipeline, 0, commands.len());
    for reply in replies.await? {
        match reply.extract_error() {
            Ok(Value::BulkString(_)) => {}
            Ok(_) => return Err(InvalidReply::Malformed.into()),
            // The hash slot of the probe key was moved to another node. This node answers, and serves other slots.
            Err(error) if is_redirection(&CallError::classify(&error)) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The calls of all scripts: one bucket, one window and several limits, each by the unrolled script
/// and by the general one, a settlement and a reset.
///
/// The scripts of other algorithms use the same Redis commands, so the access rules treat them the
/// same.
fn every_script(probe: &str) -> Vec<Cmd> {
    let bucket = command("1000000/s");
    let window = command("fixed_window 1000000/s");
    let several = command("1000000/s; fixed_window 1000000/s");
    let key = Key::new("probe").expect("a valid key");
    let hit = Hit::new(&bucket.policy, &key);
    let mark = std::iter::once(RefundMark::new(1));
    let receipt = Receipt::from_marks(hit, Timestamp::default(), mark);
    let receipt = receipt.expect("a hit that costs something");
    let settlement = SettleCommand {
        receipt: &receipt,
        scope: Scope::Policy,
        change: Adjustment::Charge { units: 1 },
        now: None,
    };
    let unrolled = |command| call(&BatchCommand::new(command, [1]), probe);
    // The reset comes last: it also clears what the others have written.
    vec![
        unrolled(&bucket),
        call(&bucket, probe),
        call(&settlement, probe),
        unrolled(&window),
        call(&window, probe),
        unrolled(&several),
        call(&several, probe),
        call(&ResetCommand { now: None }, probe),
    ]
}

/// A call on the reserved key, with the source of its script and without a deadline.
///
/// The source loads the script into the cache of the server, so that the first hits do not fail
/// with NOSCRIPT. A deadline is not possible yet: the offset of the server's clock is unknown.
fn call(command: &impl ScriptCommand, probe: &str) -> Cmd {
    command.to_cmd(Eval::Source, std::iter::once(probe), None)
}

/// Decides a hit on the probe key, and records the time of the server's clock.
///
/// The caller sets the time limit. A redirection passes: the node works, and only the hash slot of
/// the probe key has moved since the connection was made.
///
/// # Errors
///
/// - [`HandshakeError::Redis`]: the connection broke, or the server replied with an error.
/// - [`HandshakeError::Invalid`]: the reply is not a decision.
pub(in crate::store::redis) async fn probe(
    connection: &mut MultiplexedConnection,
    probe: &str,
    clock: &ClockOffset,
) -> Result<(), HandshakeError> {
    let check = command("1000000/s");
    let sent = Instant::now();
    let reply = connection.send_packed_command(&call(&check, probe)).await?;
    match reply.extract_error() {
        Ok(Value::BulkString(reply)) => {
            let Ok(Reply::Done(_, now)) = check.decode(&reply) else {
                return Err(InvalidReply::Malformed.into());
            };
            clock.record(now, sent, Instant::now());
            Ok(())
        }
        Ok(_) => Err(InvalidReply::Malformed.into()),
        // The hash slot of the probe key was moved. Calls that are redirected here need the clock offset as well.
        Err(error) if is_redirection(&CallError::classify(&error)) => {
            fetch_time(connection, clock).await
        }
        Err(error) => Err(error.into()),
    }
}

/// Records the time of the server's clock without using a key.
///
/// # Errors
///
/// - [`HandshakeError::Redis`]: the connection broke, or the server refused TIME.
/// - [`HandshakeError::Invalid`]: the reply is not a time.
async fn fetch_time(
    connection: &mut MultiplexedConnection,
    clock: &ClockOffset,
) -> Result<(), HandshakeError> {
    let sent = Instant::now();
    let reply = connection.send_packed_command(&redis::cmd("TIME")).await?;
    let now = server_time(&reply.extract_error()?).ok_or(InvalidReply::Malformed)?;
    clock.record(now, sent, Instant::now());
    Ok(())
}

/// Reads a reply to TIME: seconds and microseconds, as strings. `None` for any other reply.
pub(in crate::store::redis) fn server_time(reply: &Value) -> Option<Timestamp> {
    let (seconds, micros): (u64, u64) = redis::from_redis_value_ref(reply).ok()?;
    let micros = seconds.checked_mul(1_000_000)?.checked_add(micros)?;
    Some(Timestamp::from_micros(micros))
}

/// Whether a cluster node answered that another one serves the key.
const fn is_redirection(trouble: &CallError) -> bool {
    matches!(trouble, CallError::Moved(_) | CallError::Ask(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_to_time_is_read_in_microseconds() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let reply = Value::Array(vec![text("1700000000"), text("42")]);

        assert_eq!(
            server_time(&reply),
            Some(Timestamp::from_micros(1_700_000_000_000_042))
        );
        assert_eq!(server_time(&Value::Okay), None);
    }
}
