//! One call of a script: sent, redirected where needed, and its answer read.

use std::time::{Duration, Instant};

use redis::{Cmd, RedisError, Value};

use super::{
    access::{Access, Way},
    answer::{Answer, InvalidReply, Told, answer_head},
    bucket::OneBucket,
    question::Question,
    script::Script,
    settlement,
    trouble::Trouble,
};
use crate::{
    decision::Decision,
    meter,
    policy::Change,
    store::{
        contract::{Settled, StoreError},
        receipt::Receipt,
    },
    time::Timestamp,
};

/// A call, and twice once more where the server said that nothing ran.
pub(super) const MOST_CALLS: usize = 3;
/// How long a call waits before it is sent again, while the slot of its keys moves from node to node.
const SHORTEST_RETRY: Duration = Duration::from_millis(1);
const LONGEST_RETRY: Duration = Duration::from_millis(8);

/// Whether a script is named by its hash or sent as text.
#[derive(Clone, Copy)]
pub(super) enum Ask {
    Hash,
    Text,
}

impl Ask {
    /// A call of the script, without its keys and arguments.
    pub(super) fn command(self, script: &Script) -> Cmd {
        let (name, script) = match self {
            Ask::Hash => ("EVALSHA", &script.hash),
            Ask::Text => ("EVAL", &script.text),
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
    asked: &'a A,
    /// Whether the store's clock is the server's.
    learns_time: bool,
}

/// What a script is asked, and how its answer is read.
pub(super) trait Asked {
    type Answer;

    fn arguments(&self, deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>>;
    fn read(&self, answer: &[u8]) -> Result<Reply<Self::Answer>, InvalidReply>;
}

/// What a script replied.
pub(super) enum Reply<T> {
    Done(T, Timestamp),
    /// The deadline had passed, and nothing was done.
    TooLate(Timestamp),
}

impl Asked for Question {
    type Answer = Told;

    fn arguments(&self, deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        let slot = self.slot().map(Vec::from);
        [self.argument(deadline)].into_iter().chain(slot)
    }

    fn read(&self, answer: &[u8]) -> Result<Reply<Told>, InvalidReply> {
        Ok(match self.answer(answer)? {
            Answer::Decided(told) => {
                let now = told.now;
                Reply::Done(told, now)
            }
            Answer::TooLate { now } => Reply::TooLate(now),
        })
    }
}

impl Asked for OneBucket<'_> {
    /// Nothing when the script has found something odd, and done nothing.
    type Answer = Option<Decision>;

    fn arguments(&self, deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        [self.argument(deadline)]
    }

    fn read(&self, answer: &[u8]) -> Result<Reply<Option<Decision>>, InvalidReply> {
        OneBucket::read(self, answer)
    }
}

impl<'a> Call<'a, OneBucket<'a>> {
    pub(super) fn hit_bucket(
        bucket: &'a OneBucket<'a>,
        names: &'a [String],
    ) -> Call<'a, OneBucket<'a>> {
        Call {
            script: Script::of_bucket(),
            names,
            learns_time: bucket.question.now.is_none(),
            asked: bucket,
        }
    }
}

/// A change to a charge.
pub(super) struct Settlement<'a> {
    pub(super) receipt: &'a Receipt,
    pub(super) part: super::question::Part,
    pub(super) change: Change,
    pub(super) now: Option<Timestamp>,
}

impl Asked for Settlement<'_> {
    type Answer = Settled;

    /// Without a deadline: what is given back late is given back all the same.
    fn arguments(&self, _deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        settlement::arguments(self.receipt, self.part, self.change, self.now)
    }

    fn read(&self, answer: &[u8]) -> Result<Reply<Settled>, InvalidReply> {
        let (settled, now) = settlement::answer(answer)?;
        Ok(Reply::Done(settled, now))
    }
}

/// Forgetting what keys have spent.
pub(super) struct Reset {
    pub(super) now: Option<Timestamp>,
}

impl Asked for Reset {
    type Answer = ();

    /// Without a deadline: what is forgotten late is forgotten all the same.
    fn arguments(&self, _deadline: Option<Timestamp>) -> impl IntoIterator<Item = Vec<u8>> {
        [settlement::reset_argument(self.now)]
    }

    fn read(&self, answer: &[u8]) -> Result<Reply<()>, InvalidReply> {
        let (_, now, rest) = answer_head(answer)?;
        if rest.is_empty() {
            Ok(Reply::Done((), now))
        } else {
            Err(InvalidReply::Malformed)
        }
    }
}

impl<'a> Call<'a, Reset> {
    pub(super) fn reset(reset: &'a Reset, names: &'a [String]) -> Call<'a, Reset> {
        Call {
            script: Script::resetting(),
            names,
            learns_time: reset.now.is_none(),
            asked: reset,
        }
    }
}

impl<'a> Call<'a, Question> {
    pub(super) fn hit(question: &'a Question, names: &'a [String]) -> Call<'a, Question> {
        Call {
            script: Script::of(question.groups()),
            names,
            learns_time: question.now.is_none(),
            asked: question,
        }
    }
}

impl<'a> Call<'a, Settlement<'a>> {
    pub(super) fn settle(
        settlement: &'a Settlement<'a>,
        names: &'a [String],
    ) -> Call<'a, Settlement<'a>> {
        let groups = settlement.part.groups(settlement.receipt.policy());
        Call {
            script: Script::settling(groups),
            names,
            learns_time: settlement.now.is_none(),
            asked: settlement,
        }
    }
}

impl<A: Asked> Call<'_, A> {
    pub(super) fn command(&self, ask: Ask, deadline: Option<Timestamp>) -> Cmd {
        let mut cmd = ask.command(self.script);
        cmd.arg(self.names.len());
        self.names.iter().for_each(|name| {
            cmd.arg(name);
        });
        for argument in self.asked.arguments(deadline) {
            cmd.arg(argument);
        }
        cmd
    }

    /// Sends the call, and again where the server proved that nothing ran.
    pub(super) async fn send(
        &self,
        access: &Access,
        mut way: Way,
        deadline: Instant,
    ) -> Result<A::Answer, StoreError> {
        let mut ask = Ask::Hash;
        let mut asking = false;
        let mut retry = SHORTEST_RETRY;
        let mut calls = 0;
        if self.learns_time {
            way.learn_time().await;
        }
        while calls < MOST_CALLS {
            calls += 1;
            let sent = Instant::now();
            let server_deadline = if self.learns_time {
                way.clock().at(deadline)
            } else {
                None
            };
            let cmd = self.command(ask, server_deadline);
            let answer = if asking {
                way.call_asking(cmd).await
            } else {
                way.call(cmd).await
            };
            let error = match answer {
                Ok(answer) => match self.read(&way, &answer, sent)? {
                    Reply::Done(answer, _) => return Ok(answer),
                    // The server's clock was set forward, or the call was late: nothing ran.
                    Reply::TooLate(_) => continue,
                },
                Err(error) => error,
            };
            match Trouble::of(&error) {
                Trouble::MissingScript => ask = Ask::Text,
                Trouble::Moved(address) => {
                    access.map_is_stale();
                    way = redirected(access, &address)?;
                }
                Trouble::Ask(address) => {
                    way = redirected(access, &address)?;
                    (ask, asking) = (Ask::Text, true);
                }
                // Until the slot has moved, or the caller's time is over.
                Trouble::TryAgain => {
                    calls -= 1;
                    tokio::time::sleep(retry).await;
                    retry = (retry * 2).min(LONGEST_RETRY);
                }
                trouble => {
                    // An error about one key says nothing of who serves it.
                    if matches!(trouble, Trouble::Lost | Trouble::Down) {
                        access.map_is_stale();
                    }
                    return Err(failure(&way, &trouble, error));
                }
            }
        }
        Err(StoreError::TimedOut)
    }

    /// Reads an answer, and learns from it how the server is and what its clock shows.
    fn read(
        &self,
        way: &Way,
        answer: &Value,
        sent: Instant,
    ) -> Result<Reply<A::Answer>, StoreError> {
        let received = Instant::now();
        let answer = match answer {
            Value::BulkString(bytes) => self.asked.read(bytes),
            _ => Err(InvalidReply::Malformed),
        };
        let reply = answer.map_err(|invalid| {
            match invalid {
                InvalidReply::Malformed => way.broken(invalid.to_string()),
                InvalidReply::CorruptState => way.answered(),
            }
            way.log().log_refused(&invalid);
            StoreError::refused(invalid)
        })?;
        way.answered();
        meter::round_trip(received - sent);
        let (Reply::Done(_, now) | Reply::TooLate(now)) = &reply;
        if self.learns_time {
            way.clock().learn(*now, sent, received);
        }
        Ok(reply)
    }
}

pub(super) fn redirected(access: &Access, address: &str) -> Result<Way, StoreError> {
    let way = access.way_at(address);
    if way.is_none() {
        access.map_is_stale();
    }
    way.ok_or(StoreError::Unavailable { source: None })
}

pub(super) fn failure(way: &Way, trouble: &Trouble, error: RedisError) -> StoreError {
    match trouble {
        Trouble::Lost => {
            way.broken(error.to_string());
            meter::ambiguous();
            StoreError::unavailable(error)
        }
        Trouble::Down => {
            way.broken(error.to_string());
            StoreError::unavailable(error)
        }
        _ => {
            way.log().log_refused(&error);
            StoreError::refused(error)
        }
    }
}
