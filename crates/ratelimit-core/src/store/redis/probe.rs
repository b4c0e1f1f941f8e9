//! Calls on a reserved key, which prove that a server runs our scripts and lets them write.

use std::time::Instant;

use redis::{Cmd, Value, aio::MultiplexedConnection};

use super::{
    answer::{Answer, InvalidReply},
    batch::Batch,
    call::{Ask, Call, Reset, Settlement},
    connect::Useless,
    question::{Part, Question},
    server_clock::ServerClock,
    trouble::Trouble,
};
use crate::{
    decision::Mark,
    key::Key,
    policy::{Asked, Change, Overdraft, Policy, Purpose},
    store::{hit::Hit, receipt::Receipt},
    time::Timestamp,
};

/// A hit of a policy that nobody has.
fn question(limits: &str) -> Question {
    Question {
        policy: Policy::parse("probe", limits).expect("a valid policy"),
        part: Part::All,
        asked: Asked {
            cost: 1,
            slot: 0,
            overdraft: Overdraft::Allowed,
            purpose: Purpose::Spend,
        },
        is_denied: false,
        now: None,
    }
}

/// Runs every script that writes once: each kind of script is its own command to a server's access rules.
pub(super) async fn try_every_script(
    connection: &mut MultiplexedConnection,
    probe: &str,
) -> Result<(), Useless> {
    let commands = every_script(probe);
    let mut pipeline = redis::pipe();
    for command in &commands {
        pipeline.add_command(command.clone());
    }
    let replies = connection.send_packed_commands(&pipeline, 0, commands.len());
    for reply in replies.await? {
        match reply.extract_error() {
            Ok(Value::BulkString(_)) => {}
            Ok(_) => return Err(InvalidReply::Malformed.into()),
            // The reserved key's slot has moved on: this node serves others, and answers.
            Err(error) if is_redirection(&Trouble::of(&error)) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn every_script(probe: &str) -> Vec<Cmd> {
    let names = [probe.to_owned()];
    let bucket = question("1000000/s");
    let window = question("fixed_window 1000000/s");
    let several = question("1000000/s; fixed_window 1000000/s");
    let key = Key::explicit("probe").expect("a valid key");
    let hit = Hit::new(&bucket.policy, &key);
    let mark = std::iter::once(Mark::new(1));
    let receipt = Receipt::of_marks(hit, Timestamp::default(), mark);
    let receipt = receipt.expect("a hit that costs something");
    let settlement = Settlement {
        receipt: &receipt,
        part: Part::All,
        change: Change::Charge { units: 1 },
        now: None,
    };
    let one_bucket = bucket.bucket().expect("the policy is one bucket");
    vec![
        Call::hit_bucket(&one_bucket, &names).command(Ask::Text, None),
        Batch::probe(question("1000000/s"), probe).command(Ask::Text, &ServerClock::new()),
        Call::hit(&bucket, &names).command(Ask::Text, None),
        Call::settle(&settlement, &names).command(Ask::Text, None),
        Call::hit(&window, &names).command(Ask::Text, None),
        Call::hit(&several, &names).command(Ask::Text, None),
        Batch::probe(several, probe).command(Ask::Text, &ServerClock::new()),
        Call::reset(&Reset { now: None }, &names).command(Ask::Text, None),
    ]
}

/// Decides a hit on a reserved key, and learns from it what the server's clock shows.
pub(super) async fn try_script(
    connection: &mut MultiplexedConnection,
    probe: &str,
    clock: &ServerClock,
) -> Result<(), Useless> {
    let question = question("1000000/s");
    let names = [probe.to_owned()];
    let sent = Instant::now();
    let command = Call::hit(&question, &names).command(Ask::Text, None);
    let reply = connection.send_packed_command(&command).await?;
    match reply.extract_error() {
        Ok(Value::BulkString(reply)) => {
            let Ok(Answer::Decided(told)) = question.answer(&reply) else {
                return Err(InvalidReply::Malformed.into());
            };
            clock.learn(told.now, sent, Instant::now());
            Ok(())
        }
        Ok(_) => Err(InvalidReply::Malformed.into()),
        // The reserved key's slot has moved on. Calls that are redirected here carry deadlines as well.
        Err(error) if is_redirection(&Trouble::of(&error)) => ask_time(connection, clock).await,
        Err(error) => Err(error.into()),
    }
}

/// Learns what the server's clock shows without touching a key.
async fn ask_time(
    connection: &mut MultiplexedConnection,
    clock: &ServerClock,
) -> Result<(), Useless> {
    let sent = Instant::now();
    let reply = connection.send_packed_command(&redis::cmd("TIME")).await?;
    let now = server_time(&reply.extract_error()?).ok_or(InvalidReply::Malformed)?;
    clock.learn(now, sent, Instant::now());
    Ok(())
}

/// The moment that the reply to TIME tells: seconds and microseconds, as texts.
pub(super) fn server_time(reply: &Value) -> Option<Timestamp> {
    let (seconds, micros): (u64, u64) = redis::from_redis_value_ref(reply).ok()?;
    let micros = seconds.checked_mul(1_000_000)?.checked_add(micros)?;
    Some(Timestamp::from_micros(micros))
}

const fn is_redirection(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::Moved(_) | Trouble::Ask(_))
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
