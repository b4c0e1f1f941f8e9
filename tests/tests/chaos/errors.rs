//! Redis that answers with errors.

use std::time::{Duration, Instant};

use ratelimit_core::FailureMode;
use ratelimit_tests::chaos::{
    Bench, Expected, Kind, Ours, endless, ours,
    scenario::{self, Trial},
};
use tempfile::TempDir;

use crate::instance::{AT_ONCE, calls, heals, is_checked, key, policy, remaining};

const OUTAGE: Duration = Duration::from_secs(2);
/// The goal, for each second of an outage.
const MOST_ATTEMPTS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_14_a_demoted_master_is_left_for_the_new_one() {
    scenario::demoted(Kind::Ours).await.assert_survived();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_14_a_master_that_is_promoted_again_is_asked_again() {
    let report = refusing("READONLY, then promoted again", 14, async |trial| {
        trial.bench.command("REPLICAOF 127.0.0.1 1");
        Box::new(|trial: &Trial| trial.bench.command("REPLICAOF NO ONE"))
    })
    .await;

    report.assert_survived();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_15_a_server_that_cannot_answer_now_is_not_stormed() {
    for error in [
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
        "-BUSY Redis is busy running a script. You can only call SCRIPT KILL.\r\n",
        "-CLUSTERDOWN The cluster is down\r\n",
        "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
    ] {
        let bench = Bench::start(&[]).await;
        let ours = ours(bench.config(), FailureMode::Local).await;

        bench.proxy.answer(error.as_bytes());
        let broken = Instant::now();
        let (checked, unchecked) = calls(&ours.limiter, &endless(), OUTAGE).await;
        let attempts = bench.proxy.attempts_since(broken);
        bench.proxy.behave();
        let healed = heals(&ours).await;

        let code = error.split(' ').next().unwrap();
        println!("row 15 {code}: {unchecked} decisions without the store, {attempts} attempts in 2 s, healed in {healed:?}");
        assert_eq!(checked, 0, "{code}");
        assert!(attempts <= 2 * MOST_ATTEMPTS, "{code}: {attempts}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_15_a_server_busy_with_a_script_counts_nothing_afterwards() {
    let report = refusing("BUSY running a script", 15, async |trial| {
        trial.bench.command("CONFIG SET lua-time-limit 50");
        let url = trial.bench.server.url();
        std::thread::spawn(move || {
            let mut connection = redis::Client::open(url)?.get_connection()?;
            let endless = redis::cmd("EVAL").arg("while true do end").arg(0).to_owned();
            endless.query::<()>(&mut connection)
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        Box::new(|trial: &Trial| trial.bench.command("SCRIPT KILL"))
    })
    .await;

    report.assert_survived();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_16_a_server_out_of_memory_leaves_no_half_written_state() {
    let report = refusing("OOM under noeviction", 16, async |trial| {
        trial.bench.command("CONFIG SET maxmemory 1");
        Box::new(|trial: &Trial| trial.bench.command("CONFIG SET maxmemory 0"))
    })
    .await;

    report.assert_survived();
    assert_eq!(report.forgotten, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_16_a_server_without_enough_replicas_is_not_counted_on() {
    let report = refusing("NOREPLICAS", 16, async |trial| {
        trial.bench.command("CONFIG SET min-replicas-to-write 1");
        Box::new(|trial: &Trial| trial.bench.command("CONFIG SET min-replicas-to-write 0"))
    })
    .await;

    report.assert_survived();
    assert_eq!(report.forgotten, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_16_a_server_that_cannot_save_is_not_counted_on() {
    let report = refusing("MISCONF, cannot save", 16, async |trial| {
        let doomed = TempDir::new().expect("a directory");
        let dir = doomed.path().display().to_string();
        trial.bench.command(&format!("CONFIG SET dir {dir}"));
        drop(doomed);
        let _: redis::RedisResult<()> = trial
            .bench
            .server
            .command(&["CONFIG", "SET", "save", "3600 1000000"]);
        trial.bench.command("BGSAVE");
        Box::new(|trial: &Trial| {
            trial.bench.command("CONFIG SET stop-writes-on-bgsave-error no");
        })
    })
    .await;

    report.assert_survived();
    assert_eq!(report.forgotten, 0);
}

type Mend = Box<dyn Fn(&Trial)>;

/// Makes the server refuse writes for a while, under load.
async fn refusing(
    fault: &'static str,
    row: u32,
    broken: impl AsyncFnOnce(&Trial) -> Mend,
) -> ratelimit_tests::chaos::Report {
    let trial = Trial::start(Kind::Ours).await;

    let mend = broken(&trial).await;
    let dead = trial.load.phase().await;
    trial.load.run(OUTAGE).await;
    trial.load.phase().await;
    mend(&trial);
    let healed = trial.healed(Instant::now()).await;

    let expected = Expected {
        row,
        fault,
        healed,
        dead_phases: vec![dead],
        budgets: 2,
    };
    trial.report(expected).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_32_a_poisoned_key_fails_alone() {
    let bench = Bench::start(&[]).await;
    let ours = ours(bench.config().time_budget(AT_ONCE), FailureMode::Closed).await;
    let limit = policy("poison", "fixed_window 10/366d");
    for poison in ["LPUSH {} a", "SET {} x", "SET {} 12345678901234567890"] {
        let bad = key("bad");
        let _ = ours.limiter.check(&limit, &bad).await;
        bench.command(&format!("DEL {}", name_of(&bench, "bad")));
        bench.command(&poison.replace("{}", &name_of(&bench, "bad")));

        for round in 0..100 {
            let poisoned = ours.limiter.check(&limit, &bad).await;
            let other = ours.limiter.look(&limit, &key("good")).await;

            assert!(is_checked(&other), "{poison}, round {round}: {poisoned:?}");
        }
        ours.limiter.reset(&limit, &bad).await.unwrap();
        assert_eq!(remaining(&ours.limiter.look(&limit, &bad).await), 10);
    }
    assert_eq!(remaining(&ours.limiter.check(&limit, &key("good")).await), 9);
    println!("row 32 a poisoned key: 300 calls on it, none elsewhere left the store");
}

/// The name of a key of the poisoned policy in Redis.
fn name_of(bench: &Bench, key: &str) -> String {
    format!("{}:v1:poison:{{key:{key}}}", bench.prefix())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_limiter_that_is_closed_admits_nothing_while_redis_errs() {
    let bench = Bench::start(&[]).await;
    let closed = ours(bench.config(), FailureMode::Closed).await;
    let open = Ours {
        limiter: closed.limiter.clone().on_failure(FailureMode::Open),
        store: closed.store.clone(),
    };

    bench.proxy.answer(b"-LOADING\r\n");
    for _ in 0..50 {
        assert!(!closed.limiter.check(&endless(), &key("a")).await.is_allowed());
        assert!(open.limiter.check(&endless(), &key("a")).await.is_allowed());
    }
}
