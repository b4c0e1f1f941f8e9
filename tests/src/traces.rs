//! Hits at random, aimed at the edges where limiters err.

use std::{mem, time::Duration};

use ratelimit_core::{
    FixedWindow, LeakyBucket, Limit, Policy, SlidingWindowCounter, SlidingWindowLog, TokenBucket,
};

use crate::{
    model::{Answer, ModelDecision, Spec},
    random::Random,
};

const DAY_US: u64 = 86_400_000_000;
const PERIODS_US: [u64; 10] = [
    1_000,
    1_001,
    7_777,
    500_000,
    1_000_000,
    1_900_000,
    60_000_000,
    3_600_000_000,
    DAY_US,
    366 * DAY_US,
];

/// Which algorithm: the places of [`Spec`]'s variants.
pub const ALGORITHMS: [&str; 5] = [
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_window_log",
    "sliding_window_counter",
];

/// One hit of a trace.
#[derive(Clone, Debug)]
pub struct TracedHit {
    /// The policy's limits at that moment.
    pub limits: Vec<Spec>,
    /// When.
    pub now_us: u64,
    /// How much.
    pub cost: u64,
}

/// What a trace may contain.
#[derive(Clone, Copy, Debug)]
pub struct Aim {
    /// How many limits a policy has, at the least and at the most.
    pub limits: (u64, u64),
    /// Only this algorithm.
    pub only: Option<usize>,
    /// Whether limits change under way.
    pub changes: bool,
    /// Whether the clock steps back.
    pub steps_back: bool,
}

impl Aim {
    /// Policies of one to four limits, everything allowed.
    pub const ANYTHING: Aim = Aim {
        limits: (1, 4),
        only: None,
        changes: true,
        steps_back: true,
    };

    /// One limit of one algorithm.
    pub const fn at(algorithm: usize) -> Aim {
        Aim {
            limits: (1, 1),
            only: Some(algorithm),
            ..Aim::ANYTHING
        }
    }
}

/// A trace that goes on for ever, and learns from each decision where the next edge is.
#[derive(Debug)]
pub struct Trace {
    random: Random,
    aim: Aim,
    /// Small limits share this period's magnitude, so that their edges fall close together.
    scale_us: u64,
    hit: TracedHit,
    last: Option<ModelDecision>,
}

impl Trace {
    /// The trace that follows from `seed`.
    pub fn new(seed: u64, aim: Aim) -> Trace {
        let mut random = Random::new(seed);
        let scale_us = random.one_of(&PERIODS_US);
        let now_us = match random.range(0, 3) {
            0 => 0,
            _ => random.range(0, 1 << 51),
        };
        let mut trace = Trace {
            random,
            aim,
            scale_us,
            hit: TracedHit {
                limits: Vec::new(),
                now_us,
                cost: 0,
            },
            last: None,
        };
        trace.hit.limits = trace.policy();
        trace
    }

    /// The next hit.
    pub fn next_hit(&mut self) -> TracedHit {
        if self.aim.changes {
            match self.random.range(1, 16) {
                1 => self.hit.limits = self.policy(),
                2 => self.change_numbers(),
                _ => {}
            }
        }
        self.hit.now_us = self.moment().min((1 << 52) - 1);
        self.hit.cost = self.cost();
        self.hit.clone()
    }

    /// Tells what became of the last hit.
    pub fn learn(&mut self, decision: ModelDecision) {
        self.last = Some(decision);
    }

    fn policy(&mut self) -> Vec<Spec> {
        let (least, most) = self.aim.limits;
        let count = self.random.range(least, most);
        (0..count).map(|_| self.limit()).collect()
    }

    fn limit(&mut self) -> Spec {
        loop {
            let algorithm = self
                .aim
                .only
                .unwrap_or_else(|| self.random.one_of(&[0, 1, 2, 3, 4]));
            let spec = self.numbers(algorithm);
            if to_limit(&spec).is_some() {
                return spec;
            }
        }
    }

    fn numbers(&mut self, algorithm: usize) -> Spec {
        let random = &mut self.random;
        let period_us = match random.range(1, 4) {
            1 => random.one_of(&PERIODS_US),
            _ => (self.scale_us * random.range(1, 4)).min(366 * DAY_US),
        };
        let limit = match random.range(1, 8) {
            1 => random.one_of(&[
                99,
                100,
                10_000,
                1_000_000,
                1 << 32,
                (1 << 53) / period_us,
                (1 << 53) / (period_us / 1_000),
            ]),
            _ => random.range(1, 10),
        };
        let refill = match random.range(1, 3) {
            1 => limit.max(1),
            _ => random.range(1, limit.clamp(1, 1 << 30) * 2),
        };
        match algorithm {
            0 => Spec::TokenBucket {
                capacity: limit,
                refill,
                period_us,
            },
            1 => Spec::LeakyBucket {
                capacity: limit,
                refill,
                period_us,
                police: random.one_in(3),
            },
            2 => Spec::FixedWindow { limit, period_us },
            // Long logs are slow to compare and hold no edge of their own.
            3 => Spec::SlidingWindowLog {
                limit: limit.min(300),
                period_us,
                count_denied: random.one_in(3),
            },
            _ => Spec::SlidingWindowCounter { limit, period_us },
        }
    }

    /// Another limit of the same algorithm, somewhere in the policy.
    fn change_numbers(&mut self) {
        let places: Vec<usize> = (0..self.hit.limits.len()).collect();
        let place = self.random.one_of(&places);
        let same_algorithm = loop {
            let other = self.limit();
            if mem::discriminant(&other) == mem::discriminant(&self.hit.limits[place]) {
                break other;
            }
        };
        self.hit.limits[place] = same_algorithm;
    }

    fn moment(&mut self) -> u64 {
        let now_us = self.hit.now_us;
        if self.random.one_in(3)
            && let Some(edge_us) = self.edge_us()
        {
            let shy = u64::from(self.random.one_in(2));
            return now_us.saturating_add((edge_us - shy).min(1 << 51));
        }
        let choices: Vec<u64> = self.hit.limits.iter().map(Spec::period_us).collect();
        let period_us = self.random.one_of(&choices);
        let random = &mut self.random;
        match random.range(1, 14) {
            1..=4 => now_us,
            5..=8 => now_us + random.range(0, period_us / 2 + 1),
            9 => now_us + random.range(0, 3 * period_us),
            10 => now_us - now_us % period_us + period_us - u64::from(random.one_in(2)),
            11 if self.aim.steps_back => now_us.saturating_sub(random.range(0, period_us)),
            12 if self.aim.steps_back => now_us.saturating_sub(random.range(0, 4 * period_us)),
            13 => now_us + random.one_of(&[period_us, 2 * period_us, 366 * DAY_US]),
            _ => now_us + 1,
        }
    }

    /// A moment that the last decision named, as a wait of at least 1.
    fn edge_us(&mut self) -> Option<u64> {
        let last = self.last.as_ref()?;
        let mut edges = Vec::new();
        for limit in &last.limits {
            edges.push(limit.reset_after_us);
            match limit.answer {
                Answer::Denied { retry_after_us } => edges.push(retry_after_us),
                Answer::Allowed { delay_us } => edges.push(delay_us),
                Answer::Impossible => {}
            }
        }
        edges.retain(|&edge_us| edge_us > 0);
        (!edges.is_empty()).then(|| self.random.one_of(&edges))
    }

    fn cost(&mut self) -> u64 {
        let least = self.hit.limits.iter().map(Spec::limit).min().unwrap_or(1);
        let left = self.last.as_ref().map_or(least, |last| {
            let remaining = last.limits.iter().map(|limit| limit.remaining);
            remaining.min().unwrap_or(least)
        });
        let random = &mut self.random;
        match random.range(1, 12) {
            1 => 0,
            2 => least,
            3 => least.saturating_add(1),
            4 => least - 1,
            5 | 6 => left,
            7 => left.saturating_add(1),
            8 => random.one_of(&[u64::MAX, 1 << 53, (1 << 53) - 1, 10_001]),
            9 => random.range(0, least),
            _ => 1,
        }
    }
}

/// The limit that a specification describes, if it can be built.
pub fn to_limit(spec: &Spec) -> Option<Limit> {
    let period = Duration::from_micros(spec.period_us());
    match *spec {
        Spec::TokenBucket {
            capacity, refill, ..
        } => TokenBucket::new(capacity, refill, period)
            .map(Limit::from)
            .ok(),
        Spec::LeakyBucket {
            capacity,
            refill,
            police,
            ..
        } => LeakyBucket::new(capacity, refill, period)
            .map(|bucket| if police { bucket.police() } else { bucket }.into())
            .ok(),
        Spec::FixedWindow { limit, .. } => FixedWindow::new(limit, period).map(Limit::from).ok(),
        Spec::SlidingWindowLog {
            limit,
            count_denied,
            ..
        } => SlidingWindowLog::new(limit, period)
            .map(|log| {
                if count_denied {
                    log.count_denied()
                } else {
                    log
                }
                .into()
            })
            .ok(),
        Spec::SlidingWindowCounter { limit, .. } => SlidingWindowCounter::new(limit, period)
            .map(Limit::from)
            .ok(),
    }
}

/// The policy of some limits.
///
/// # Panics
///
/// When a limit cannot be built.
pub fn to_policy(name: &str, limits: &[Spec]) -> Policy {
    let built = limits
        .iter()
        .map(|spec| to_limit(spec).expect("a valid limit"));
    Policy::of(name, built).expect("a valid policy")
}
