//! Several hits in one call: how they are asked, and what the answer means for each.

use std::time::Instant;

use ahash::RandomState;
use redis::Cmd;
use tokio::sync::oneshot;

use super::{
    call::Ask,
    packed::{NUMBER, number, push},
    question::{ANSWER_LIMIT, Nonsense, Question, Seen, Told, head, push_limits},
    script::Script,
    server_clock::ServerClock,
};
use crate::{
    decision::Decision,
    store::contract::StoreError,
    time::{MAX_EXACT, Timestamp},
};

/// No more hits than this share a call: one that is not in it waits for all that are.
pub(super) const MOST_HITS: usize = 64;

const TOO_LATE: u8 = 254;
const ALONE: u8 = 255;

/// What hits have in common that can share a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    limits: Box<[u8]>,
    now: Option<Timestamp>,
    /// The slot of their keys, in a cluster.
    slot: Option<u16>,
}

impl Kind {
    pub(super) fn of(question: &Question, slot: Option<u16>) -> Kind {
        let mut limits = Vec::new();
        push_limits(&mut limits, question.groups(), question.asked);
        Kind {
            limits: limits.into(),
            now: question.now,
            slot,
        }
    }
}

/// A hit that waits for its answer.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) question: Question,
    /// The name of its key, the only one.
    pub(super) names: Vec<String>,
    pub(super) deadline: Instant,
    pub(super) answer: oneshot::Sender<Outcome>,
}

/// What became of a hit that went with others.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "moved once, and nearly always decided"
)]
pub(super) enum Outcome {
    Decided(Result<Decision, StoreError>),
    /// Nothing was done, and it has to be asked by itself.
    Alone(Question, Vec<String>),
}

impl Waiting {
    fn goes_alone(self) {
        // Nobody may be there any more to be told, here and below.
        let _ = self.answer.send(Outcome::Alone(self.question, self.names));
    }

    fn decided(self, decision: Result<Decision, StoreError>) {
        let _ = self.answer.send(Outcome::Decided(decision));
    }
}

/// Hits that share a call.
#[derive(Debug)]
pub(super) struct Batch {
    keys: Vec<Key>,
    runs: Vec<Run>,
}

#[derive(Debug)]
struct Key {
    hash: u64,
    name: String,
    last_run: usize,
}

/// Equal hits on one key, none of another kind between them.
#[derive(Debug)]
struct Run {
    key: usize,
    hits: Vec<Waiting>,
}

/// What the script said of a run.
#[derive(Clone, Copy)]
enum Said<'a> {
    /// How many fit, and what they and the others saw.
    Decided {
        fitting: usize,
        expires: &'a [u8],
        words: &'a [u8],
        words_of_rest: &'a [u8],
    },
    Alone,
}

impl Batch {
    /// The call of these hits, of which there is at least one, all of one kind.
    pub(super) fn new(hits: impl IntoIterator<Item = Waiting>) -> Batch {
        let hasher = RandomState::new();
        let mut batch = Batch {
            keys: Vec::new(),
            runs: Vec::new(),
        };
        for hit in hits {
            let name = &hit.names[0];
            let hash = hasher.hash_one(name);
            let same = |key: &Key| key.hash == hash && key.name == *name;
            if let Some(key) = batch.keys.iter().position(same) {
                batch.add(key, hit);
                continue;
            }
            batch.keys.push(Key {
                hash,
                name: name.clone(),
                last_run: batch.runs.len(),
            });
            batch.begin_run(batch.keys.len() - 1, hit);
        }
        batch
    }

    fn add(&mut self, key: usize, hit: Waiting) {
        let last = &mut self.runs[self.keys[key].last_run];
        if hit.question.equals(&last.hits[0].question) {
            last.hits.push(hit);
        } else {
            self.begin_run(key, hit);
        }
    }

    fn begin_run(&mut self, key: usize, hit: Waiting) {
        self.keys[key].last_run = self.runs.len();
        self.runs.push(Run {
            key,
            hits: vec![hit],
        });
    }

    fn hits(&self) -> impl Iterator<Item = &Waiting> {
        self.runs.iter().flat_map(|run| &run.hits)
    }

    fn any(&self) -> &Question {
        &self.runs[0].hits[0].question
    }

    /// When nobody waits for an answer any more.
    pub(super) fn last_deadline(&self) -> Option<Instant> {
        self.hits().map(|hit| hit.deadline).max()
    }

    /// Whether the clock is the server's.
    pub(super) fn learns_time(&self) -> bool {
        self.any().now.is_none()
    }

    pub(super) fn command(&self, ask: Ask, clock: &ServerClock) -> Cmd {
        let script = Script::batching(self.any().groups());
        let mut cmd = ask.command(script);
        cmd.arg(self.keys.len());
        for key in &self.keys {
            cmd.arg(&key.name);
        }
        cmd.arg(self.limits()).arg(self.asked(clock));
        cmd
    }

    /// The first argument, which all hits have in common.
    fn limits(&self) -> Vec<u8> {
        let question = self.any();
        let mut bytes = head(question.time_flag(), question.now, None, 0);
        push_limits(&mut bytes, question.groups(), question.asked);
        bytes
    }

    /// The second argument; `lua/policy_batch.lua` describes it.
    fn asked(&self, clock: &ServerClock) -> Vec<u8> {
        let byte = |count: usize| u8::try_from(count).expect("no more than `MOST_HITS`");
        let mut bytes = Vec::with_capacity(self.runs.len() * (3 + 2 * NUMBER));
        for run in &self.runs {
            let question = &run.hits[0].question;
            let earliest = run.hits.iter().map(|hit| hit.deadline).min();
            let deadline = match earliest {
                Some(earliest) if self.learns_time() => clock.at(earliest),
                _ => None,
            };
            bytes.extend([byte(run.key), byte(run.hits.len()), question.write_flag()]);
            push(&mut bytes, question.asked.cost.min(MAX_EXACT - 1));
            push(&mut bytes, deadline.unwrap_or_default().as_micros());
        }
        bytes
    }

    /// Tells everybody what the script answered, and what its clock showed; nothing when that is no
    /// answer, and everybody was told so.
    pub(super) fn answered(self, answer: &[u8]) -> Result<Timestamp, Nonsense> {
        match self.read(answer) {
            Ok((now, said)) => {
                let told = self.runs.into_iter().zip(said);
                told.for_each(|(run, said)| run.told(now, said));
                Ok(now)
            }
            Err(nonsense) => {
                self.failed(&StoreError::refused(nonsense));
                Err(nonsense)
            }
        }
    }

    fn read<'a>(&self, answer: &'a [u8]) -> Result<(Timestamp, Vec<Said<'a>>), Nonsense> {
        let words = self.any().groups()[0].bounds.len() * ANSWER_LIMIT;
        let (now, mut rest) = answer.split_at_checked(NUMBER).ok_or(Nonsense)?;
        let mut take = |length: usize| {
            let (taken, left) = rest.split_at_checked(length).ok_or(Nonsense)?;
            rest = left;
            Ok(taken)
        };
        let mut said = Vec::with_capacity(self.runs.len());
        for run in &self.runs {
            let fitting = match take(1)?[0] {
                TOO_LATE | ALONE => {
                    said.push(Said::Alone);
                    continue;
                }
                fitting => usize::from(fitting),
            };
            let (expires, words_of_some) = (take(NUMBER)?, take(words)?);
            let only_some = (1..run.hits.len()).contains(&fitting);
            said.push(Said::Decided {
                fitting,
                expires,
                words: words_of_some,
                words_of_rest: if only_some {
                    take(words)?
                } else {
                    words_of_some
                },
            });
        }
        if !rest.is_empty() {
            return Err(Nonsense);
        }
        Ok((Timestamp::from_micros(number(now, 0)), said))
    }

    /// Tells everybody that there is no answer.
    pub(super) fn failed(self, error: &StoreError) {
        let hits = self.runs.into_iter().flat_map(|run| run.hits);
        hits.for_each(|hit| hit.decided(Err(error.clone())));
    }

    /// Lets everybody ask by itself: nothing was done.
    pub(super) fn dissolve(self) {
        let hits = self.runs.into_iter().flat_map(|run| run.hits);
        hits.for_each(Waiting::goes_alone);
    }
}

impl Run {
    fn told(self, now: Timestamp, said: Said<'_>) {
        let Said::Decided {
            fitting,
            expires,
            words,
            words_of_rest,
        } = said
        else {
            self.hits.into_iter().for_each(Waiting::goes_alone);
            return;
        };
        let mut before = 0;
        for (place, hit) in self.hits.into_iter().enumerate() {
            let fits = place < fitting;
            let told = hit.question.told(Seen {
                fits,
                now,
                expires,
                words: if fits { words } else { words_of_rest },
                before: if fits { before } else { 0 },
            });
            if hit.question.spends() {
                before += hit.question.asked.cost;
            }
            let decision = told.map(Told::decision);
            hit.decided(decision.map_err(StoreError::refused));
        }
    }
}
