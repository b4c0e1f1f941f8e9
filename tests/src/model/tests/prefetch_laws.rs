//! The laws of prefetching, on random worlds of one store and several instances.

use crate::model::{
    Model, Spec,
    prefetch::{Mistake, ModelBlock, Speed, left, plain},
};
use crate::random::Random;

/// Several instances over one store, all on one key.
struct World {
    limits: Vec<Spec>,
    store: Model,
    /// The exact model, charged when hits pass.
    exact: Model,
    /// Each hit that passed: the date of its decision, and its cost.
    passed: Vec<(u64, u64)>,
    instances: Vec<Vec<ModelBlock>>,
    /// Blocks of crashed instances and lost replies.
    lost: Vec<ModelBlock>,
    now_us: u64,
    random: Random,
    clock_speed: Speed,
    mistake: Mistake,
}

impl World {
    fn new(seed: u64, mistake: Mistake) -> World {
        let mut random = Random::new(seed);
        let limits = limits(&mut random);
        let instances = random.range(1, 4);
        let clock_speed = if random.one_in(2) {
            Speed::Fast
        } else {
            Speed::Slow
        };
        World {
            clock_speed,
            store: Model::new(),
            exact: Model::new(),
            passed: Vec::new(),
            instances: (0..instances).map(|_| Vec::new()).collect(),
            lost: Vec::new(),
            now_us: 1_000_000_000 + random.range(0, 10_000_000),
            limits,
            random,
            mistake,
        }
    }

    /// Lets a hit pass. Law 1: the exact model lets it pass at the same moment.
    fn pass(&mut self, dated_us: u64, cost: u64) -> Result<(), String> {
        self.passed.push((dated_us, cost));
        let exact = self.exact.hit_with(&self.limits, self.now_us, plain(cost));
        if exact.overall.answer.is_allowed() {
            Ok(())
        } else {
            Err(format!("law 1: {cost} units pass beyond the limit"))
        }
    }

    fn step(&mut self) -> Result<(), String> {
        let place = self.random.range(0, self.instances.len() as u64 - 1);
        let place = usize::try_from(place).unwrap();
        let left = left(&mut self.store, &self.limits, self.now_us);
        match self.random.range(0, 9) {
            0..=2 => self.wait(place),
            3..=4 if left > 0 && self.instances[place].len() < 2 => self.take(place, left),
            5 if left > 0 => return self.hit(left),
            6..=7 => return self.spend(place),
            8 if self.random.one_in(3) => {
                let blocks = std::mem::take(&mut self.instances[place]);
                for block in blocks {
                    block.return_to(&mut self.store, self.now_us, self.mistake);
                }
            }
            9 if self.random.one_in(8) => {
                let crashed = std::mem::take(&mut self.instances[place]);
                self.lost.extend(crashed);
            }
            _ => {}
        }
        Ok(())
    }

    /// Time passes: a little, or up to the edge of a block.
    fn wait(&mut self, place: usize) {
        let period_us = self.limits[0].period_us();
        let edge = self.instances[place].first().map(ModelBlock::edge_us);
        let by = match edge {
            Some(edge_us) if edge_us > self.now_us && self.random.one_in(2) => {
                let aimed_us = edge_us + self.random.range(0, 4);
                aimed_us.saturating_sub(self.now_us + 2)
            }
            _ if self.random.one_in(4) => self.random.range(0, period_us),
            _ => self.random.range(0, period_us / 20),
        };
        self.now_us += by;
    }

    fn take(&mut self, place: usize, left: u64) {
        let period_us = self.limits[0].period_us();
        let headroom = if self.mistake == Mistake::Headroom {
            left / 5 + 2
        } else {
            0
        };
        let units = self.random.range(1, left + headroom);
        // A call in no time leaves nothing but the margin between the instance's clock and the store's.
        let longest_us = if self.random.one_in(2) {
            0
        } else {
            period_us / 8
        };
        let trip_us = [0; 2].map(|_: u64| self.random.range(0, longest_us));
        let block = ModelBlock::take(
            &mut self.store,
            &self.limits,
            units,
            self.now_us,
            trip_us,
            (self.clock_speed, self.mistake),
        );
        if self.random.one_in(20) {
            self.lost.extend(block);
        } else {
            self.instances[place].extend(block);
        }
    }

    /// An exact hit, often one that takes all that is left.
    fn hit(&mut self, left: u64) -> Result<(), String> {
        let cost = if self.random.one_in(2) {
            left
        } else {
            self.random.range(1, left)
        };
        let asked = self.store.hit_with(&self.limits, self.now_us, plain(cost));
        assert!(asked.overall.answer.is_allowed());
        self.pass(self.now_us, cost)
    }

    fn spend(&mut self, place: usize) -> Result<(), String> {
        let (now_us, mistake) = (self.now_us, self.mistake);
        let Some(block) = self.instances[place].first_mut() else {
            return Ok(());
        };
        let usable = block.usable(now_us, mistake);
        if usable == 0 {
            self.instances[place].remove(0);
            return Ok(());
        }
        let cost = if self.random.one_in(2) {
            usable
        } else {
            self.random.range(1, usable)
        };
        assert!(block.spend(cost, now_us, mistake));
        let dated_us = block.dated_us(now_us, mistake);
        self.pass(dated_us, cost)
    }

    /// Law 2: the store's rest and all units that it backs are never more than the limit. In a single window the
    /// ledger is exact: passed, prefetched and left are the limit.
    fn check_ledger(&mut self) -> Result<(), String> {
        let left = left(&mut self.store, &self.limits, self.now_us);
        let blocks = self.instances.iter().flatten().chain(&self.lost);
        let backed: u64 = blocks.map(|block| block.backed(self.now_us)).sum();
        let limit = self.limits.iter().map(Spec::limit).min().unwrap();
        if self.limits.len() == 1 && left + backed > limit {
            return Err(format!(
                "law 2: {left} left and {backed} prefetched of {limit}"
            ));
        }
        Ok(())
    }

    /// Law 1 once more, with each hit at the date of its decision.
    fn replay(mut self) -> Result<(), String> {
        let mut exact = Model::new();
        self.passed.sort_by_key(|(dated_us, _)| *dated_us);
        for (dated_us, cost) in self.passed {
            let seen = exact.hit_with(&self.limits, dated_us, plain(cost));
            if !seen.overall.answer.is_allowed() {
                return Err(format!("law 1 at the dates of the decisions: {cost} units"));
            }
        }
        Ok(())
    }
}

fn limits(random: &mut Random) -> Vec<Spec> {
    let count = random.one_of(&[1, 1, 1, 2]);
    (0..count).map(|_| limit(random)).collect()
}

fn limit(random: &mut Random) -> Spec {
    // Limits whose product with the period needs ticks of 1 us and of 1 ms.
    let (limit, period_us) = match random.range(0, 5) {
        0 => (300_000_000, 3_600_000_000),
        _ => (
            random.range(8, 200),
            random.one_of(&[1_000, 5_000, 60_000, 1_000_000, 60_000_000]),
        ),
    };
    let refill = random.one_of(&[limit, limit / 3 + 1, 3 * limit]);
    match random.range(0, 3) {
        0 | 1 => Spec::TokenBucket {
            capacity: limit,
            refill,
            period_us,
        },
        2 => Spec::FixedWindow { limit, period_us },
        _ => Spec::SlidingWindowCounter { limit, period_us },
    }
}

/// Runs a world, and says which law it breaks.
fn run(seed: u64, mistake: Mistake) -> Result<(), String> {
    let mut world = World::new(seed, mistake);
    for _ in 0..120 {
        world.step()?;
        world.check_ledger()?;
    }
    world.replay()
}

#[test]
fn what_passes_from_blocks_passes_the_exact_model_at_the_same_moments() {
    for seed in 0..6_000 {
        if let Err(broken) = run(seed, Mistake::None) {
            panic!("world {seed}: {broken}");
        }
    }
}

#[test]
fn each_rule_that_is_broken_on_purpose_is_noticed() {
    for mistake in Mistake::ALL {
        let broken = (0..20_000).find_map(|seed| Some((seed, run(seed, mistake).err()?)));
        let (seed, law) = broken.unwrap_or_else(|| panic!("{mistake:?} is not noticed"));
        println!("{mistake:?}: world {seed}, {law}");
    }
}

#[test]
fn of_a_window_that_all_drive_dry_exactly_the_limit_passes() {
    for seed in 0..500 {
        let mut world = World::new(seed, Mistake::None);
        world.limits = vec![Spec::FixedWindow {
            limit: 1_000,
            period_us: 60_000_000,
        }];
        world.now_us = 60_000_000_000;
        loop {
            let rest = left(&mut world.store, &world.limits, world.now_us);
            let places = 0..world.instances.len();
            let held = |place: usize| {
                world.instances[place]
                    .iter()
                    .map(|block| block.backed(world.now_us))
                    .sum::<u64>()
            };
            let held: u64 = places.map(held).sum();
            if rest == 0 && held == 0 {
                break;
            }
            for place in 0..world.instances.len() {
                let rest = left(&mut world.store, &world.limits, world.now_us);
                if rest > 0 && world.instances[place].len() < 2 {
                    let units = world.random.range(1, rest.min(60));
                    let block = ModelBlock::take(
                        &mut world.store,
                        &world.limits,
                        units,
                        world.now_us,
                        [0, 0],
                        (Speed::Fast, Mistake::None),
                    );
                    world.instances[place].extend(block);
                }
                world.spend(place).unwrap();
            }
        }
        let passed: u64 = world.passed.iter().map(|(_, cost)| cost).sum();
        assert_eq!(passed, 1_000);
    }
}
