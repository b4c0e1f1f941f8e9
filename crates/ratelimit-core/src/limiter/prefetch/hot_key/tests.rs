//! A hot key over a far link, on a clock that the test moves.

use super::*;
use crate::{
    key::Key,
    store::{Hit, MemoryStore, PrefetchGrant, Store as _},
    time::Clock,
};

/// Hits in a millisecond, half of the limit.
const RATE: u64 = 50;
const WARM_UP: u64 = 1_000;
const END: u64 = 3_000;

/// A link whose tenth call takes longer than the others, in milliseconds.
struct Link {
    round_trip: u64,
    late: u64,
}

impl Link {
    /// Hits that have to be sent to the store, after a second, if `share` percent of `100000/s` are prefetched.
    fn unpaid(&self, share: u32) -> u64 {
        let clock = Clock::manual(Timestamp::from_secs(600));
        let store = MemoryStore::new().clock(clock.clone());
        let policy = Policy::parse("api", "100000/s").unwrap();
        let policy = policy.with_prefetch(share).unwrap();
        let name = Key::new("alice").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.unwrap();
        let moment = || Moment::at(clock.now().as_micros());
        let since = moment();
        clock.advance(Duration::from_millis(1));
        let mut key = HotKey::new(&policy, RATE, since, moment());
        let mut under_way: Option<(Moment, PrefetchGrant, u64)> = None;
        let (mut wakes_at, mut calls, mut unpaid) = (0, 0, 0);
        for millisecond in 0..END {
            clock.advance(Duration::from_millis(1));
            let now = moment();
            if let Some((sent, grant, _)) = under_way.take_if(|(_, _, due)| *due <= millisecond) {
                key.apply(&policy, &grant, sent, now);
                wakes_at = millisecond;
            }
            for _ in 0..RATE {
                let (answer, wakes) = key.check(&policy, 1, now);
                let is_unpaid = matches!(answer, HotAnswer::Ask);
                unpaid += u64::from(is_unpaid && millisecond >= WARM_UP);
                wakes_at = if wakes { millisecond } else { wakes_at };
            }
            while under_way.is_none() && wakes_at <= millisecond {
                match key.next_step(now) {
                    KeeperStep::Call(request) => {
                        let hit = Hit::new(&policy, &name).cost(0);
                        let grant = runtime.block_on(store.prefetch(hit, request)).unwrap();
                        calls += 1;
                        let late = if calls % 10 == 0 { self.late } else { 0 };
                        under_way = Some((now, grant, millisecond + self.round_trip + late));
                    }
                    KeeperStep::Wait(micros) => wakes_at = millisecond + micros.div_ceil(1_000),
                    KeeperStep::End => panic!("the key is hot"),
                }
            }
        }
        unpaid
    }
}

#[test]
fn over_a_far_link_the_next_slice_arrives_before_the_last_one_lapses() {
    let link = Link {
        round_trip: 20,
        late: 5,
    };
    assert_eq!(link.unpaid(5), 0);
    let link = Link {
        round_trip: 80,
        late: 40,
    };
    assert_eq!(link.unpaid(25), 0);
}
