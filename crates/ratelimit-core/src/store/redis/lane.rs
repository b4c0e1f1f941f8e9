//! Which hits can share a call, and those of them that are under way.

use std::{
    collections::VecDeque,
    hash::{Hash, Hasher},
};

use super::{
    batch::{MOST_HITS, Waiting},
    question::Question,
};
use crate::{
    policy::{Group, Overdraft, Policy, Purpose},
    time::Timestamp,
};

/// So many shared calls of one kind are under way at once; what comes meanwhile fills the next.
const MOST_BATCHES: usize = 4;
/// So few hits leave a server time in which it waits.
const FEW: usize = 16;

/// What hits have in common that can share a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    limits: SameLimits,
    cost: u64,
    overdraft: Overdraft,
    purpose: Purpose,
    now: Option<Timestamp>,
    /// The slot of their keys, in a cluster.
    slot: Option<u16>,
}

impl Kind {
    pub(super) fn of(question: &Question, slot: Option<u16>) -> Kind {
        Kind {
            limits: SameLimits(question.policy.clone()),
            cost: question.asked.cost,
            overdraft: question.asked.overdraft,
            purpose: question.asked.purpose,
            now: question.now,
            slot,
        }
    }
}

/// A policy of one key, as far as a script knows it: by its limits, and not by its name.
#[derive(Clone, Debug)]
struct SameLimits(Policy);

impl SameLimits {
    fn group(&self) -> &Group {
        &self.0.groups()[0]
    }
}

impl PartialEq for SameLimits {
    fn eq(&self, other: &SameLimits) -> bool {
        let (ours, theirs) = (self.group(), other.group());
        std::ptr::eq(ours, theirs) || ours.bounds == theirs.bounds
    }
}

impl Eq for SameLimits {}

impl Hash for SameLimits {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let bounds = &self.group().bounds;
        (bounds.len(), bounds[0].limit.limit()).hash(state);
    }
}

/// The hits of one kind that are under way, and those that wait to share a call.
#[derive(Debug, Default)]
pub(super) struct Lane {
    alone: usize,
    /// Shared calls, with the one that is being filled.
    batches: usize,
    is_filling: bool,
    waiting: VecDeque<Waiting>,
    /// Calls that came back, and after which nobody has looked yet at who waits.
    came_back: usize,
    is_looked_after: bool,
}

/// What a call is to the hits of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// One hit's own.
    Alone,
    /// Shared, and still being filled.
    Filling,
    /// Shared, and sent.
    Sent,
}

impl Lane {
    /// Takes a place for a hit by itself: there is one as long as few are under way, and none waits.
    pub(super) fn go_alone(&mut self, most: usize) -> bool {
        let may_go = self.batches == 0 && self.waiting.is_empty() && self.alone < most;
        self.alone += usize::from(may_go);
        may_go
    }

    /// Lets a hit wait for the call that is being filled, or that takes the place of another; where
    /// one can begin at once, that is told.
    pub(super) fn wait(&mut self, hit: Waiting) -> Option<Waiting> {
        self.waiting.push_back(hit);
        self.begin()
    }

    /// The first hit of a call that is to be filled, if there is room for one.
    pub(super) fn begin(&mut self) -> Option<Waiting> {
        if self.is_filling || self.batches >= MOST_BATCHES {
            return None;
        }
        let first = self.next()?;
        self.is_filling = true;
        self.batches += 1;
        Some(first)
    }

    /// Fills a call with what waits: when that is much, with as much as it holds, and else with the share
    /// of one of the calls that may be under way, so that the server need not wait for us in between.
    pub(super) fn fill(&mut self, first: Waiting) -> Vec<Waiting> {
        self.is_filling = false;
        let all = 1 + self.waiting.len();
        let calls = MOST_BATCHES - self.batches + 1;
        let share = if all > FEW { all } else { all.div_ceil(calls) };
        let share = share.min(MOST_HITS);
        let mut hits = Vec::with_capacity(share);
        hits.push(first);
        while hits.len() < share
            && let Some(hit) = self.next()
        {
            hits.push(hit);
        }
        hits
    }

    /// The longest waiting hit whose caller is still there.
    fn next(&mut self) -> Option<Waiting> {
        while let Some(hit) = self.waiting.pop_front() {
            if !hit.answer.is_closed() {
                return Some(hit);
            }
        }
        None
    }

    /// Gives back the place of a call; true when it is on the caller to look after those who wait.
    pub(super) fn come_back(&mut self, sharing: Sharing) -> bool {
        match sharing {
            Sharing::Alone => self.alone -= 1,
            Sharing::Sent => self.batches -= 1,
            Sharing::Filling => {
                self.batches -= 1;
                self.is_filling = false;
            }
        }
        self.came_back += 1;
        !std::mem::replace(&mut self.is_looked_after, true)
    }

    /// The first hit of a call that takes the place of one that came back; when there is none,
    /// nobody looks after the lane any more.
    pub(super) fn begin_next(&mut self) -> Option<Waiting> {
        while self.came_back > 0 {
            self.came_back -= 1;
            let first = self.begin();
            if first.is_some() {
                return first;
            }
        }
        self.is_looked_after = false;
        None
    }

    /// Whether nothing is under way, and nobody waits.
    pub(super) fn is_idle(&self) -> bool {
        self.alone == 0 && self.batches == 0 && self.waiting.is_empty() && !self.is_looked_after
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Instant};

    use smallvec::smallvec;
    use tokio::sync::oneshot;

    use super::*;
    use crate::{
        policy::Asked,
        store::redis::{
            batch::{Asking, Outcome},
            question::Part,
        },
    };

    fn question(limits: &str, cost: u64) -> Question {
        Question {
            policy: Policy::parse("p", limits).unwrap(),
            part: Part::All,
            asked: Asked {
                cost,
                slot: 0,
                overdraft: Overdraft::Allowed,
                purpose: Purpose::Spend,
            },
            is_denied: false,
            now: None,
        }
    }

    fn hit() -> (Waiting, oneshot::Receiver<Outcome>) {
        let (answer, told) = oneshot::channel();
        let asking = Asking {
            question: question("5/s", 1),
            names: smallvec!["k".to_owned()],
        };
        let hit = Waiting {
            asking: Arc::new(asking),
            deadline: Instant::now(),
            answer,
        };
        (hit, told)
    }

    #[test]
    fn the_first_go_alone_and_the_rest_fill_one_call() {
        let mut lane = Lane::default();
        assert!(lane.go_alone(2) && lane.go_alone(2) && !lane.go_alone(2));
        let (hits, _told): (Vec<_>, Vec<_>) = (0..70).map(|_| hit()).unzip();

        let begun: Vec<Waiting> = hits.into_iter().filter_map(|hit| lane.wait(hit)).collect();

        let [first] = <[Waiting; 1]>::try_from(begun).unwrap();
        assert_eq!(lane.fill(first).len(), MOST_HITS);
        assert!(lane.begin().is_some(), "some are left");
        assert!(!lane.go_alone(2), "calls are shared while some are");
    }

    #[test]
    fn a_few_are_spread_over_all_calls() {
        let mut lane = Lane::default();
        let (hits, _told): (Vec<_>, Vec<_>) = (0..10).map(|_| hit()).unzip();
        let mut begun = None;
        for hit in hits {
            begun = begun.or(lane.wait(hit));
        }

        let mut sizes = Vec::new();
        while let Some(first) = begun {
            sizes.push(lane.fill(first).len());
            begun = lane.begin();
        }

        assert_eq!(sizes, [3, 3, 2, 2]);
    }

    #[test]
    fn no_more_than_so_many_calls_are_shared_at_once() {
        let mut lane = Lane::default();
        let mut told = Vec::new();
        let mut wait = |lane: &mut Lane| {
            let (hit, receiver) = hit();
            told.push(receiver);
            lane.wait(hit)
        };
        for _ in 0..MOST_BATCHES {
            let first = wait(&mut lane).expect("there is room for a call");
            lane.fill(first);
        }
        assert!(wait(&mut lane).is_none());

        assert!(lane.come_back(Sharing::Sent));
        assert!(!lane.come_back(Sharing::Sent), "it is looked after already");
        let next = lane.begin_next().expect("one waits");
        assert_eq!(lane.fill(next).len(), 1);
        assert!(lane.begin_next().is_none());

        for _ in 1..MOST_BATCHES {
            assert!(lane.come_back(Sharing::Sent));
            assert!(!lane.is_idle() && lane.begin_next().is_none());
        }
        assert!(lane.is_idle());
    }

    #[test]
    fn a_call_that_is_given_up_while_it_is_filled_makes_room() {
        let mut lane = Lane::default();
        let (first, _told) = hit();
        assert!(lane.wait(first).is_some());
        let (second, _told) = hit();
        assert!(lane.wait(second).is_none());

        assert!(lane.come_back(Sharing::Filling));

        assert!(lane.begin_next().is_some());
    }

    #[test]
    fn who_has_left_is_not_sent() {
        let mut lane = Lane::default();
        let (hits, told): (Vec<_>, Vec<_>) = (0..9).map(|_| hit()).unzip();
        let begun: Vec<Waiting> = hits.into_iter().filter_map(|hit| lane.wait(hit)).collect();
        drop(told);

        let first = begun.into_iter().next().unwrap();

        assert_eq!(lane.fill(first).len(), 1);
        assert!(lane.begin().is_none());
    }

    #[test]
    fn kinds_are_alike_by_their_limits_and_costs() {
        let kind = |limits, cost| Kind::of(&question(limits, cost), None);

        assert_eq!(kind("5/s", 1), kind("5/s", 1));
        assert_ne!(kind("5/s", 1), kind("5/s", 2));
        assert_ne!(kind("5/s", 1), kind("5/min", 1));
        assert_ne!(kind("5/s", 1), kind("leaky_bucket 5/s", 1));
        assert_ne!(kind("5/s", 1), kind("5/s; 9/min", 1));
        assert_ne!(
            kind("5/s", 1),
            Kind::of(&question("5/s", 1), Some(7)),
            "slots of a cluster are apart"
        );
    }
}
