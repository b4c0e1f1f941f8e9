//! Receipts that were kept elsewhere: redeemed once among all that share a store, and never for more
//! than what their own charge still counts.

use std::{sync::Arc, time::Duration};

use ratelimit_core::{
    Key, KeySet, Limiter, Policy, SettleError,
    store::{self, Adjustment, Hit, Receipt, Settlement, Store, StoreFuture},
};
use ratelimit_tests::{random::Random, redis::TestRedis};

use crate::stores::{TestStore, key, policy};

const TEXTS: [&str; 10] = [
    "token_bucket 3/s burst 9",
    "token_bucket 1/10s burst 5",
    "leaky_bucket 2/s queue 6",
    "leaky_bucket 3/2s queue 6 police",
    "fixed_window 6/4s",
    "sliding_window_log 6/3s",
    "sliding_window_counter 7/2s",
    "concurrency 3 lease 2s; fixed_window 9/5s",
    "concurrency 2 lease 900ms",
    "5/s; fixed_window 20/9s; sliding_window_counter 9/3s",
];
const TRACES: u64 = 150;
const STEPS: u64 = 40;

/// A store that several limiters share.
#[derive(Clone, Debug)]
struct Shared(Arc<dyn Store>);

impl Store for Shared {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<store::Charged> {
        self.0.hit(hit)
    }

    fn settle(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
        self.0.settle(receipt, change)
    }

    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
        self.0.reset(policy, keys)
    }
}

/// Two keys with the same past: what one redeems as bytes, the other settles once and directly.
struct Twins<'a> {
    subject: &'a TestStore,
    limiters: [Limiter; 2],
    policy: Policy,
    charges: Vec<Charged>,
    redeemed: u64,
    refused: u64,
}

struct Charged {
    bytes: Vec<u8>,
    twin: Receipt,
    is_redeemed: bool,
}

impl Twins<'_> {
    async fn charge(&mut self, cost: u64) {
        let limiter = &self.limiters[0];
        let charge = async |key: &Key| {
            let hit = Hit::new(&self.policy, key).cost(cost);
            let (_, charge) = limiter.reserve(hit).await;
            charge.map(ratelimit_core::Reservation::into_receipt)
        };
        let (redeemed, twin) = (charge(&key("bytes")).await, charge(&key("twin")).await);
        assert_eq!(redeemed.is_some(), twin.is_some());
        self.charges
            .extend(redeemed.zip(twin).map(|(redeemed, twin)| Charged {
                bytes: redeemed.to_bytes(),
                twin,
                is_redeemed: false,
            }));
    }

    async fn redeem(&mut self, random: &mut Random) {
        let Some(last) = self.charges.len().checked_sub(1) else {
            return;
        };
        let place = usize::try_from(random.range(0, last as u64)).unwrap();
        let actual = random.range(0, 6);
        let limiter = random.one_of(&[0, 1]);
        let charged = &mut self.charges[place];
        let found = |name: &str| (name == "p").then(|| self.policy.clone());
        let receipt = Receipt::from_bytes(&charged.bytes, found).unwrap();

        let settled = self.limiters[limiter].settle(&receipt, actual).await;

        let is_first = !std::mem::replace(&mut charged.is_redeemed, true);
        let twin = charged.twin.clone();
        match settled {
            Ok(_) => {
                assert!(is_first, "a receipt was redeemed twice");
                self.settle(&twin, actual).await;
                self.redeemed += 1;
            }
            Err(SettleError::AlreadySettled) => {
                assert!(!is_first);
                self.refused += 1;
            }
            Err(SettleError::Expired) => {
                if actual < twin.cost() {
                    let nothing = self.settle(&twin, actual).await;
                    assert_eq!(nothing, Settlement::Unchanged, "some of it was left");
                }
                self.refused += 1;
            }
            Err(why) => panic!("{why}"),
        }
    }

    async fn settle(&self, twin: &Receipt, actual: u64) -> Settlement {
        let change = match actual.checked_sub(twin.cost()) {
            None => Adjustment::Refund {
                units: twin.cost() - actual,
            },
            Some(units) => Adjustment::Charge { units },
        };
        let settled = match change {
            Adjustment::Charge { units: 0 } => Settlement::Unchanged,
            change => self.subject.store.settle(twin, change).await.unwrap(),
        };
        let released = self.subject.store.settle(twin, Adjustment::Release).await;
        released.unwrap();
        settled
    }

    async fn assert_alike(&self, place: &str) {
        let look = async |name: &str| {
            let key = key(name);
            let look = self.subject.store.hit(Hit::new(&self.policy, &key).cost(0));
            look.await.unwrap()
        };
        let (redeemed, twin) = (look("bytes").await, look("twin").await);
        assert_eq!(redeemed.decision, twin.decision, "{place}");
    }
}

async fn run(seed: u64, subject: &TestStore) -> (u64, u64) {
    let mut random = Random::new(seed);
    let store = Shared(Arc::clone(&subject.store));
    let mut twins = Twins {
        subject,
        // Twins are settled behind the limiters' backs.
        limiters: [store.clone(), store].map(|store| Limiter::new(store).without_deny_cache()),
        policy: policy("p", random.one_of(&TEXTS)),
        charges: Vec::new(),
        redeemed: 0,
        refused: 0,
    };
    for step in 0..STEPS {
        if random.one_in(3) {
            let most = random.one_of(&[1, 1_000, 400_000, 3_000_000, 40_000_000]);
            let pause = Duration::from_micros(random.range(0, most));
            subject.clock.advance(pause);
        }
        if random.one_in(2) {
            twins.charge(random.range(1, 4)).await;
        } else {
            twins.redeem(&mut random).await;
        }
        let place = format!("{} at step {step} of seed {seed}", subject.name);
        twins.assert_alike(&place).await;
    }
    (twins.redeemed, twins.refused)
}

#[tokio::test]
async fn a_receipt_is_redeemed_once_and_only_for_its_own_charge() {
    redeemed_once(&TestRedis::start().await, TRACES).await;
}

/// Redeems receipts on twins, in so many traces.
pub(crate) async fn redeemed_once(redis: &TestRedis, traces: u64) {
    let (mut redeemed, mut refused) = (0, 0);
    for seed in 0..traces {
        for subject in TestStore::all(redis).await {
            let counts = run(seed, &subject).await;
            redeemed += counts.0;
            refused += counts.1;
        }
    }
    redis.assert_every_key_expires();
    println!("{redeemed} receipts redeemed, {refused} times refused");
    assert!(redeemed > traces * 3 && refused > traces * 3);
}

#[tokio::test]
async fn a_receipt_that_was_never_redeemed_ends_with_its_charge() {
    let subject = TestStore::memory();
    let limiter = Limiter::new(Shared(Arc::clone(&subject.store)));
    let policy = policy("p", "fixed_window 5/min");
    let (_, charge) = limiter.reserve(Hit::new(&policy, &key("k"))).await;
    let receipt = charge.unwrap().into_receipt();

    subject.clock.set(receipt.expires_at());

    let late = limiter.settle(&receipt, 0).await.unwrap_err();
    assert!(matches!(late, SettleError::Expired), "{late}");
}

#[tokio::test]
async fn no_policy_can_be_named_as_the_memory_of_receipts() {
    let refused = Policy::parse("receipt~", "1/s").unwrap_err();

    assert!(refused.to_string().contains("receipt~"), "{refused}");
}
