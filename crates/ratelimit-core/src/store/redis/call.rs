//! One call of a script: sent, redirected where needed, and its answer read.

use std::time::{Duration, Instant};

use redis::{Cmd, RedisError, Value};

use crate::store::redis::{
    command::{
        check::CheckCommand,
        check_bucket::BucketCommand,
        reply::{CheckAnswer, CheckReply, InvalidReply, read_header},
        settle,
    },
    connection::{
        error::CallError,
        router::{Route, Router},
    },
    script::Script,
};
use crate::{
    budget::Adjustment,
    decision::Decision,
    metrics,
    store::{
        contract::{Settlement, StoreError},
        receipt::Receipt,
    },
    time::Timestamp,
};

/// A call, and twice once more where the server said that nothing ran.
pub(super) const MAX_ATTEMPTS: usize = 3;
/// How long a call waits before it is sent again, while the slot of its keys moves from node to node.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(1);
const MAX_RETRY_DELAY: Duration = Duration::from_millis(8);

/// Whether a script is named by its hash or sent as text.
#[derive(Clone, Copy)]
pub(super) enum Eval {
    Sha,
    Source,
}

impl Eval {
    /// A call of the script, without its keys and arguments.
    pub(super) fn command(self, script: &Script) -> Cmd {
        let (name, script) = match self {
            Eval::Sha => ("EVALSHA", &script.hash),
            Eval::Source => ("EVAL", &script.text),
        };
        let mut cmd = redis::cmd(name);
        cmd.arg(script);
        cmd
    }
}

/// A script, the keys that it reads, and what it is asked.
pub(super) struct Call<'a, A> {
    script: &'static Script,
    names: &'a [String],
    params: &'a A,
    /// Whether the store's clock is the server's.
    learns_time: bool,
}

/// What a script is asked, and how its answer is read.
pub(super) trait ScriptCommand {
    type Output;

    fn encode(&self, deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>>;
    fn decode(&self, answer: &[u8]) -> Result<Reply<Self::Output>, InvalidReply>;
}

/// What a script replied.
pub(super) enum Reply<T> {
    Done(T, Timestamp),
    /// The deadline had passed, and nothing was done.
    TooLate(Timestamp),
}

impl ScriptCommand for CheckCommand {
    type Output = CheckReply;

    fn encode(&self, deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        let slot = self.slot().map(Vec::from);
        [self.encode(deadline)].into_iter().chain(slot)
    }

    fn decode(&self, answer: &[u8]) -> Result<Reply<CheckReply>, InvalidReply> {
        Ok(match self.decode(answer)? {
            CheckAnswer::Decided(reply) => {
                let now = reply.now;
                Reply::Done(reply, now)
            }
            CheckAnswer::TooLate { now } => Reply::TooLate(now),
        })
    }
}

impl ScriptCommand for BucketCommand<'_> {
    /// Nothing when the script has found something odd, and done nothing.
    type Output = Option<Decision>;

    fn encode(&self, deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        [self.encode(deadline)]
    }

    fn decode(&self, answer: &[u8]) -> Result<Reply<Option<Decision>>, InvalidReply> {
        BucketCommand::decode(self, answer)
    }
}

impl<'a> Call<'a, BucketCommand<'a>> {
    pub(super) fn check_bucket(
        bucket: &'a BucketCommand<'a>,
        names: &'a [String],
    ) -> Call<'a, BucketCommand<'a>> {
        Call {
            script: Script::check_bucket(),
            names,
            learns_time: bucket.command.now.is_none(),
            params: bucket,
        }
    }
}

/// A change to a charge.
pub(super) struct SettleCommand<'a> {
    pub(super) receipt: &'a Receipt,
    pub(super) scope: crate::store::redis::command::check::Scope,
    pub(super) change: Adjustment,
    pub(super) now: Option<Timestamp>,
}

impl ScriptCommand for SettleCommand<'_> {
    type Output = Settlement;

    /// Without a deadline: what is given back late is given back all the same.
    fn encode(&self, _deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        settle::encode(self.receipt, self.scope, self.change, self.now)
    }

    fn decode(&self, answer: &[u8]) -> Result<Reply<Settlement>, InvalidReply> {
        let (settled, now) = settle::decode(answer)?;
        Ok(Reply::Done(settled, now))
    }
}

/// Forgetting what keys have spent.
pub(super) struct ResetCommand {
    pub(super) now: Option<Timestamp>,
}

impl ScriptCommand for ResetCommand {
    type Output = ();

    /// Without a deadline: what is forgotten late is forgotten all the same.
    fn encode(&self, _deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        [settle::encode_reset(self.now)]
    }

    fn decode(&self, answer: &[u8]) -> Result<Reply<()>, InvalidReply> {
        let (_, now, rest) = read_header(answer)?;
        if rest.is_empty() {
            Ok(Reply::Done((), now))
        } else {
            Err(InvalidReply::Malformed)
        }
    }
}

impl<'a> Call<'a, ResetCommand> {
    pub(super) fn reset(reset: &'a ResetCommand, names: &'a [String]) -> Call<'a, ResetCommand> {
        Call {
            script: Script::reset(),
            names,
            learns_time: reset.now.is_none(),
            params: reset,
        }
    }
}

impl<'a> Call<'a, CheckCommand> {
    pub(super) fn check(command: &'a CheckCommand, names: &'a [String]) -> Call<'a, CheckCommand> {
        Call {
            script: Script::check(command.groups()),
            names,
            learns_time: command.now.is_none(),
            params: command,
        }
    }
}

impl<'a> Call<'a, SettleCommand<'a>> {
    pub(super) fn settle(
        settlement: &'a SettleCommand<'a>,
        names: &'a [String],
    ) -> Call<'a, SettleCommand<'a>> {
        let groups = settlement.scope.groups(settlement.receipt.policy());
        Call {
            script: Script::settle(groups),
            names,
            learns_time: settlement.now.is_none(),
            params: settlement,
        }
    }
}

impl<A: ScriptCommand> Call<'_, A> {
    pub(super) fn command(&self, ask: Eval, deadline: Option<Timestamp>) -> Cmd {
        let mut cmd = ask.command(self.script);
        cmd.arg(self.names.len());
        self.names.iter().for_each(|name| {
            cmd.arg(name);
        });
        for argument in self.params.encode(deadline) {
            cmd.arg(argument);
        }
        cmd
    }

    /// Sends the call, and again where the server proved that nothing ran.
    pub(super) async fn send(
        &self,
        router: &Router,
        mut route: Route,
        deadline: Instant,
    ) -> Result<A::Output, StoreError> {
        let mut ask = Eval::Sha;
        let mut pending = false;
        let mut retry = MIN_RETRY_DELAY;
        let mut calls = 0;
        if self.learns_time {
            route.fetch_time().await;
        }
        while calls < MAX_ATTEMPTS {
            calls += 1;
            let sent = Instant::now();
            let server_deadline = if self.learns_time {
                route.clock().server_time(deadline)
            } else {
                None
            };
            let cmd = self.command(ask, server_deadline);
            let answer = if pending {
                route.send_asking(cmd).await
            } else {
                route.send(cmd).await
            };
            let error = match answer {
                Ok(answer) => match self.decode(&route, &answer, sent)? {
                    Reply::Done(answer, _) => return Ok(answer),
                    // The server's clock was set forward, or the call was late: nothing ran.
                    Reply::TooLate(_) => continue,
                },
                Err(error) => error,
            };
            match CallError::classify(&error) {
                CallError::NoScript => ask = Eval::Source,
                CallError::Moved(address) => {
                    router.refresh_topology();
                    route = redirect(router, &address)?;
                }
                CallError::Ask(address) => {
                    route = redirect(router, &address)?;
                    (ask, pending) = (Eval::Source, true);
                }
                // Until the slot has moved, or the caller's time is over.
                CallError::TryAgain => {
                    calls -= 1;
                    tokio::time::sleep(retry).await;
                    retry = (retry * 2).min(MAX_RETRY_DELAY);
                }
                trouble => {
                    // An error about one key says nothing of who serves it.
                    if matches!(
                        trouble,
                        CallError::ConnectionLost | CallError::ServerUnavailable
                    ) {
                        router.refresh_topology();
                    }
                    return Err(store_error(&route, &trouble, error));
                }
            }
        }
        Err(StoreError::TimedOut)
    }

    /// Reads an answer, and learns from it how the server is and what its clock shows.
    fn decode(
        &self,
        route: &Route,
        answer: &Value,
        sent: Instant,
    ) -> Result<Reply<A::Output>, StoreError> {
        let received = Instant::now();
        let answer = match answer {
            Value::BulkString(bytes) => self.params.decode(bytes),
            _ => Err(InvalidReply::Malformed),
        };
        let reply = answer.map_err(|invalid| {
            match invalid {
                InvalidReply::Malformed => route.mark_broken(invalid.to_string()),
                InvalidReply::CorruptState => route.record_reply(),
            }
            route.log().log_refused(&invalid);
            StoreError::refused(invalid)
        })?;
        route.record_reply();
        metrics::round_trip(received - sent);
        let (Reply::Done(_, now) | Reply::TooLate(now)) = &reply;
        if self.learns_time {
            route.clock().record(*now, sent, received);
        }
        Ok(reply)
    }
}

pub(super) fn redirect(router: &Router, address: &str) -> Result<Route, StoreError> {
    let route = router.route_to_address(address);
    if route.is_none() {
        router.refresh_topology();
    }
    route.ok_or(StoreError::Unavailable { source: None })
}

pub(super) fn store_error(route: &Route, trouble: &CallError, error: RedisError) -> StoreError {
    match trouble {
        CallError::ConnectionLost => {
            route.mark_broken(error.to_string());
            metrics::ambiguous();
            StoreError::unavailable(error)
        }
        CallError::ServerUnavailable => {
            route.mark_broken(error.to_string());
            StoreError::unavailable(error)
        }
        _ => {
            route.log().log_refused(&error);
            StoreError::refused(error)
        }
    }
}
