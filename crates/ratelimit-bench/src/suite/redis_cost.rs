//! Instructions of redis-server for a decision.

use std::{future::Future, time::Duration};

use ratelimit_core::{
    Key, Policy, RedisStore,
    store::{Hit, JointHit, Store as _},
};
use redis::{Script, aio::MultiplexedConnection};

use super::{
    Plan,
    duration::exact,
    load::{TIMEOUT, config},
};
use crate::{
    callgrind::{CountedServer, SCRIPTS_A_COLLECTION},
    peer::naive::{self, Naive},
    report::{Goal, Report, Row, Spread},
};

const PLENTY: &str = "token_bucket 1000000/s burst 100000000";
const LITTLE: &str = "token_bucket 1/h";
const WINDOW: &str = "fixed_window 1000000000/h";
const COUNTER: &str = "sliding_window_counter 1000000000/h";
const LOG: &str = "sliding_window_log 100/d";
const TWO: &str = "token_bucket 1000000/s burst 100000000; fixed_window 1000000000/h";
const THREE: &str = "token_bucket 1000000/s burst 100000000; fixed_window 1000000000/h; \
                     sliding_window_counter 1000000000/d";
/// Units that each log holds before the measurement, which adds six.
const LOGGED: u64 = 94;
/// Keys of the first of these logs.
const LOGS: usize = 4_000;
/// Members of a joint hit.
const MEMBERS: usize = 4;

/// The least that a script does which decides by the server's clock and writes: the same key and value sizes,
/// without arithmetic.
const FLOOR: &str = "
redis.call('TIME')
redis.call('GET', KEYS[1])
redis.call('PSETEX', KEYS[1], '1000', ARGV[1])
return 'an answer of this size'
";

/// The same for as many keys as share a call.
const SHARED_FLOOR: &str = "
redis.call('TIME')
for number = 1, #KEYS do
  redis.pcall('GET', KEYS[number])
  redis.pcall('PSETEX', KEYS[number], '1000', ARGV[1])
end
return 'an answer of this size'
";
const KEYS_OF_A_CALL: usize = 64;

/// How often each of many tasks asks, before all begin anew.
const IN_A_ROW: usize = 4;

pub(super) fn run(plan: Plan, report: &mut Report) {
    let mut server = CountedServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime
        .expect("a runtime")
        .block_on(rows(plan, &mut server, report));
}

async fn rows(plan: Plan, server: &mut CountedServer, report: &mut Report) {
    let url = server.server().url();
    let mut connected = connection(&url).await;
    let (script, nothing) = (Naive::new(), Script::new("return 1"));
    let naive = server
        .of_a_script(async || script.ask(&mut connected.clone(), "naive").await)
        .await;
    let empty = server
        .of_a_script(async || {
            let _: i64 = nothing
                .invoke_async(&mut connected)
                .await
                .expect("it answers");
        })
        .await;
    let floor = Script::new(FLOOR);
    let mut bare = floor.prepare_invoke();
    bare.key("rate_limiter:v1:bench:{key:user:00000000}")
        .arg([7_u8; 40].as_slice());
    let floor = server
        .of_a_script(async || {
            let _: String = bare.invoke_async(&mut connected).await.expect("it answers");
        })
        .await;
    let shared = Script::new(SHARED_FLOOR);
    let mut bare = shared.prepare_invoke();
    for key in 0..KEYS_OF_A_CALL {
        bare.key(format!("rate_limiter:v1:bench:{{key:user:{key:08}}}"));
    }
    bare.arg([7_u8; 40].as_slice());
    let shared_floor = server
        .of_a_script(async || {
            let _: String = bare.invoke_async(&mut connected).await.expect("it answers");
        })
        .await
        / exact(KEYS_OF_A_CALL);
    let pool = naive::pool(&url).await;
    let pooled = server
        .of_a_script(async || {
            let mut connection = pool.get().await.expect("a connection is free");
            script.ask(&mut *connection, "naive").await;
        })
        .await;

    let store = RedisStore::new(config(&url));
    assert!(store.wait_connected(TIMEOUT).await, "Redis does not answer");
    let allowed = server
        .of_a_script(async || hit(&store, PLENTY, 0).await)
        .await;
    let denied = server
        .of_a_script(async || hit(&store, LITTLE, 0).await)
        .await;

    let beside = |row: Row, name: &str, count| row.beside(name, Spread::exactly(count));
    report.rows.extend([
        beside(row("token bucket allowed", allowed), "naive script", naive)
            .goal(Goal::AtMost(50_000.0)),
        beside(
            row("token bucket allowed", allowed),
            "naive script through bb8",
            pooled,
        ),
        beside(row("token bucket denied", denied), "allowed", allowed)
            .goal(Goal::RatioAtMost(0.75)),
        beside(
            row("token bucket allowed", allowed),
            "a script that does nothing",
            empty,
        ),
        beside(
            row("token bucket allowed", allowed),
            "TIME, GET and PSETEX in a script",
            floor,
        ),
    ]);
    let window = server
        .of_a_script(async || hit(&store, WINDOW, 0).await)
        .await;
    let counter = server
        .of_a_script(async || hit(&store, COUNTER, 1).await)
        .await;
    let two = server.of_a_script(async || hit(&store, TWO, 2).await).await;
    let three = server
        .of_a_script(async || hit(&store, THREE, 3).await)
        .await;
    let log = logs(server, &store).await;
    report.rows.extend([
        row("fixed window allowed", window).goal(Goal::AtMost(55_000.0)),
        row("sliding window counter allowed", counter).goal(Goal::AtMost(60_000.0)),
        row("sliding window log of 100 allowed", log).goal(Goal::AtMost(65_000.0)),
        beside(row("a policy of two limits", two), "one bucket", allowed)
            .goal(Goal::AtMost(75_000.0)),
        row("each further limit", three - two).goal(Goal::AtMost(15_000.0)),
    ]);
    let joint = server
        .of_a_script(async || joint_hit(&store, WINDOW).await)
        .await;
    let what = format!("joint hit of {MEMBERS} fixed windows");
    let joint = beside(row(&what, joint), "one fixed window", window);
    report.rows.push(joint.goal(Goal::RatioAtMost(2.2)));
    for tasks in [64, 256] {
        let each = concurrent(plan, server, &store, (tasks, PLENTY), |task| task).await;
        let what = format!("a decision of {tasks} tasks at once");
        let each = row(&what, each);
        let one_by_one = beside(each.clone(), "one by one", allowed);
        if tasks == 256 {
            let floor = "GET and PSETEX for each of 64 keys in a script";
            report.rows.push(one_by_one.goal(Goal::AtMost(26_000.0)));
            report.rows.push(beside(each, floor, shared_floor));
        } else {
            report.rows.push(one_by_one);
        }
    }
    for (what, limits, goal) in [
        (
            "a decision of 256 tasks at once, fixed window",
            WINDOW,
            26_000.0,
        ),
        (
            "a decision of 256 tasks at once, counter",
            COUNTER,
            26_000.0,
        ),
        ("a decision of 256 tasks at once, two limits", TWO, 35_000.0),
    ] {
        let each = concurrent(plan, server, &store, (256, limits), |task| 1_000 + task).await;
        report.rows.push(row(what, each).goal(Goal::AtMost(goal)));
    }
    let hot = concurrent(plan, server, &store, (256, PLENTY), |_| 0).await;
    let what = "a decision of 256 tasks on one key";
    report
        .rows
        .push(beside(row(what, hot), "one by one", allowed));
}

fn row(what: &str, count: f64) -> Row {
    let what = format!("redis-server, {what}");
    Row::new(what, "instructions", Spread::exactly(count))
}

/// The server's instructions for a hit on a log that is nearly full. Each call has its own log: one has not enough room.
async fn logs(server: &mut CountedServer, store: &RedisStore) -> f64 {
    let calls = SCRIPTS_A_COLLECTION as usize;
    for key in LOGS..LOGS + calls {
        hit_of_cost(store, LOG, key, LOGGED).await;
    }
    let mut keys = (LOGS..LOGS + calls).cycle();
    server
        .of_a_script(async || {
            let key = keys.next().expect("there is always a next key");
            hit(store, LOG, key).await;
        })
        .await
}

/// The server's instructions for one decision of `tasks` concurrent tasks.
async fn concurrent(
    plan: Plan,
    server: &mut CountedServer,
    store: &RedisStore,
    (tasks, limits): (usize, &'static str),
    key_of: fn(usize) -> usize,
) -> f64 {
    let all_ask = async || {
        let asking = (0..tasks).map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                for _ in 0..IN_A_ROW {
                    hit(&store, limits, key_of(task)).await;
                }
            })
        });
        for task in asking.collect::<Vec<_>>() {
            task.await.expect("no task panics");
        }
    };
    let decisions = tasks * IN_A_ROW;
    server.of_each(plan.bursts(), all_ask).await / exact(decisions)
}

/// Asks the store itself, beneath what a limiter answers from its own memory.
fn hit(store: &RedisStore, limits: &str, key: usize) -> impl Future<Output = ()> + use<> {
    hit_of_cost(store, limits, key, 1)
}

fn hit_of_cost(
    store: &RedisStore,
    limits: &str,
    key: usize,
    cost: u64,
) -> impl Future<Output = ()> + use<> {
    let policy = Policy::parse("bench", limits).expect("limits that are well formed");
    let key = Key::new(format!("user:{key:08}")).expect("a key that is not empty");
    let store = store.clone();
    async move {
        let answer = store.hit(Hit::new(&policy, &key).cost(cost)).await;
        answer.expect("the server decides");
    }
}

/// Asks the store for several policies at once, each with a key of its own.
async fn joint_hit(store: &RedisStore, limits: &str) {
    let members = (0..MEMBERS).map(|member| {
        let policy = Policy::parse(&format!("bench{member}"), limits);
        let key = Key::new(format!("user:{member:08}"));
        (
            policy.expect("limits that are well formed"),
            key.expect("a key that is not empty"),
        )
    });
    let members: Vec<(Policy, Key)> = members.collect();
    let hits = members.iter();
    let hits: Vec<JointHit<'_>> = hits
        .map(|(policy, key)| JointHit::new(Hit::new(policy, key)))
        .collect();
    let answer = store.hit_joint(&hits).await;
    answer.expect("the server decides");
}

async fn connection(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).expect("an address of Redis");
    let settings =
        redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(60)));
    let connection = client
        .get_multiplexed_async_connection_with_config(&settings)
        .await;
    connection.expect("a server that answers")
}
