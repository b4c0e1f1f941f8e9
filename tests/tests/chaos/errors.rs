//! Redis that answers with errors.

use std::{
    fs,
    time::{Duration, Instant},
};

use ratelimit_core::FailureMode;
use ratelimit_tests::chaos::{
    Expected, Fixture, Kind, Ours, Report, endless, eventually, ours,
    scenario::{self, ScenarioRun},
};

use crate::harness::{AT_ONCE, calls, heals, is_checked, key, policy, remaining};

const OUTAGE: Duration = Duration::from_secs(2);
/// The goal, for each second of an outage.
const MOST_ATTEMPTS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_14_a_demoted_master_is_left_for_the_new_one() {
    scenario::demoted(Kind::Ours).await.assert_survived();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_14_a_master_that_is_promoted_again_is_asked_again() {
    let breaks = async |fixture: &Fixture| fixture.command("REPLICAOF 127.0.0.1 1");
    let fault = "READONLY, then promoted again";
    let report = refusing(14, fault, breaks, "REPLICAOF NO ONE").await;

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
        let fixture = Fixture::start(&[]).await;
        let ours = ours(fixture.config(), FailureMode::Local).await;

        fixture.proxy.answer(error.as_bytes());
        let broken = Instant::now();
        let (checked, unchecked) = calls(&ours.limiter, &endless(), OUTAGE).await;
        let attempts = fixture.proxy.attempts_since(broken);
        fixture.proxy.behave();
        let healed = heals(&ours).await;

        let code = error.split(' ').next().unwrap();
        println!(
            "row 15 {code}: {unchecked} decisions without the store, {attempts} attempts in 2 s, healed in {healed:?}"
        );
        assert_eq!(checked, 0, "{code}");
        assert!(attempts <= 2 * MOST_ATTEMPTS, "{code}: {attempts}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hit_that_is_refused_like_all_others_is_charged_later() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config().timeout(AT_ONCE), FailureMode::Local).await;
    let (limit, key) = (policy("loading", "fixed_window 10/366d"), key("k"));

    fixture
        .proxy
        .answer(b"-LOADING Redis is loading the dataset in memory\r\n");
    let refused = ours.limiter.check(&limit, &key).await;
    assert!(!is_checked(&refused) && refused.is_allowed(), "{refused:?}");
    fixture.proxy.behave();

    eventually("charged", async || {
        let verdict = ours.limiter.peek(&limit, &key).await;
        is_checked(&verdict) && remaining(&verdict) == 9
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_15_a_server_busy_with_a_script_counts_nothing_afterwards() {
    let breaks = async |fixture: &Fixture| {
        fixture.command("CONFIG SET lua-time-limit 50");
        let url = fixture.server.url();
        std::thread::spawn(move || {
            let mut connection = redis::Client::open(url)?.get_connection()?;
            let mut script = redis::cmd("EVAL");
            script.arg("while true do end").arg(0);
            script.exec(&mut connection)
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let report = refusing(15, "BUSY running a script", breaks, "SCRIPT KILL").await;

    report.assert_survived();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_16_a_server_out_of_memory_leaves_no_half_written_state() {
    let breaks = async |fixture: &Fixture| fixture.command("CONFIG SET maxmemory 1");
    let report = refusing(16, "OOM", breaks, "CONFIG SET maxmemory 0").await;

    report.assert_survived();
    assert_eq!(report.forgotten, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_16_a_server_without_enough_replicas_is_not_counted_on() {
    let breaks = async |fixture: &Fixture| fixture.command("CONFIG SET min-replicas-to-write 1");
    let mended = "CONFIG SET min-replicas-to-write 0";
    let report = refusing(16, "NOREPLICAS", breaks, mended).await;

    report.assert_survived();
    assert_eq!(report.forgotten, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_16_a_server_that_cannot_save_is_not_counted_on() {
    let breaks = async |fixture: &Fixture| {
        // A file cannot take the place of a directory.
        fs::create_dir(fixture.server.dir().join("dump.rdb")).expect("a directory");
        let rarely = ["CONFIG", "SET", "save", "3600 1000000"];
        let () = fixture.server.command(&rarely).expect("a rule for saving");
        fixture.command("BGSAVE");
        eventually("a save that failed", async || {
            let persistence = ["INFO", "persistence"];
            let info: String = fixture
                .server
                .command(&persistence)
                .expect("the server answers");
            info.contains("rdb_last_bgsave_status:err")
        })
        .await;
    };
    let mended = "CONFIG SET stop-writes-on-bgsave-error no";
    let report = refusing(16, "MISCONF", breaks, mended).await;

    report.assert_survived();
    assert_eq!(report.forgotten, 0);
}

/// Makes the server refuse writes for a while, under load.
async fn refusing(
    row: u32,
    fault: &'static str,
    breaks: impl AsyncFnOnce(&Fixture),
    mended: &str,
) -> Report {
    let run = ScenarioRun::start(Kind::Ours).await;

    breaks(&run.fixture).await;
    let dead = run.load.phase().await;
    run.load.run(OUTAGE).await;
    run.load.phase().await;
    run.fixture.command(mended);
    let healed = run.healed(Instant::now()).await;

    let expected = Expected {
        row,
        fault,
        healed,
        dead_phases: vec![dead],
        budgets: 2,
    };
    let report = run.report(expected).await;
    assert!(report.unchecked > 100, "it refused nothing: {report}");
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_32_a_poisoned_key_fails_alone() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config().timeout(AT_ONCE), FailureMode::Closed).await;
    let limit = policy("poison", "fixed_window 10/366d");
    for poison in ["LPUSH {} a", "SET {} x", "SET {} 12345678901234567890"] {
        let bad = key("bad");
        let _ = ours.limiter.check(&limit, &bad).await;
        fixture.command(&format!("DEL {}", name_of(&fixture, "bad")));
        fixture.command(&poison.replace("{}", &name_of(&fixture, "bad")));

        for round in 0..100 {
            let poisoned = ours.limiter.check(&limit, &bad).await;
            let other = ours.limiter.peek(&limit, &key("good")).await;

            assert!(is_checked(&other), "{poison}, round {round}: {poisoned:?}");
        }
        ours.limiter.reset(&limit, &bad).await.unwrap();
        assert_eq!(remaining(&ours.limiter.peek(&limit, &bad).await), 10);
    }
    assert_eq!(
        remaining(&ours.limiter.check(&limit, &key("good")).await),
        9
    );
    println!("row 32 a poisoned key: 300 calls on it, none elsewhere left the store");
}

/// The name of a key of the poisoned policy in Redis.
fn name_of(fixture: &Fixture, key: &str) -> String {
    format!("{}:v1:poison:{{key:{key}}}", fixture.prefix())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_limiter_that_is_closed_admits_nothing_while_redis_errs() {
    let fixture = Fixture::start(&[]).await;
    let closed = ours(fixture.config(), FailureMode::Closed).await;
    let open = Ours {
        limiter: closed.limiter.clone().failure_mode(FailureMode::Open),
        store: closed.store.clone(),
    };

    fixture.proxy.answer(b"-LOADING\r\n");
    for _ in 0..50 {
        assert!(
            !closed
                .limiter
                .check(&endless(), &key("a"))
                .await
                .is_allowed()
        );
        assert!(open.limiter.check(&endless(), &key("a")).await.is_allowed());
    }
}
