//! `POST /console/api/simulate`, held to the command of the same name.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    server::{HttpResponse, Server, binary},
    simulate,
};

const SIMULATE: &str = "/console/api/simulate";
const OUTCOMES: [&str; 5] = ["allowed", "delayed", "over", "denied", "impossible"];

async fn ask(server: &Server, body: &Value) -> HttpResponse {
    server.post(SIMULATE, body.to_string()).await
}

async fn simulated(server: &Server, body: &Value) -> Value {
    let answer = ask(server, body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn numbers(value: &Value) -> Vec<u64> {
    let numbers = value.as_array().unwrap().iter();
    numbers.map(|number| number.as_u64().unwrap()).collect()
}

fn counts(run: &Value) -> [u64; 5] {
    OUTCOMES.map(|outcome| run[outcome].as_u64().unwrap())
}

/// The counts of a run by the lines that the command prints.
fn counts_of_lines(lines: &[Value]) -> [u64; 5] {
    let mut counts = [0; 5];
    for line in lines {
        let place = if line["impossible"] == true {
            4
        } else if line["allowed"] == false {
            3
        } else if line["over"] == true {
            2
        } else {
            usize::from(line["delayMicros"] != 0)
        };
        counts[place] += 1;
    }
    counts
}

#[tokio::test]
async fn the_counts_are_those_of_the_command() {
    let server = Server::start_admin(&[]);
    for (limits, throttle) in [
        ("token_bucket 10/s burst 20", "hard"),
        ("leaky_bucket 10/s queue 20", "soft 20%"),
        ("fixed_window 20/2s", "soft 50%"),
        ("sliding_window_log 20/2s", "hard"),
        ("sliding_window_counter 20/2s; token_bucket 9/s", "hard"),
        ("concurrency 3 lease 1s", "hard"),
    ] {
        for kind in ["burst", "steady", "poisson", "boundary"] {
            let args = ["--limit", limits, "--throttle", throttle];
            let made = ["--traffic", kind, "--hits", "300", "--seed", "7"];
            let command = binary().arg("simulate").args(args).args(made).output();
            let lines = simulate::lines(&command.unwrap());
            let traffic = json!({"kind": kind, "hits": 300, "seed": 7});
            let policies = json!([{"limits": limits, "throttle": throttle}]);

            let answer =
                simulated(&server, &json!({"policies": policies, "traffic": traffic})).await;

            let context = format!("{limits} {throttle} {kind}");
            let run = &answer["runs"][0];
            assert_eq!(counts(run), counts_of_lines(&lines), "{context}");
            assert_eq!(counts(run).iter().sum::<u64>(), 300, "{context}");
            let bins = run["bins"].as_array().unwrap();
            let mut in_bins = [0; 4];
            for bin in bins {
                for (sum, count) in in_bins.iter_mut().zip(numbers(bin)) {
                    *sum += count;
                }
            }
            let [allowed, delayed, over, denied, impossible] = counts(run);
            assert_eq!(bins.len(), 90);
            assert_eq!(in_bins, [allowed, delayed, over, denied + impossible]);
            let waits = lines.iter().map(|line| {
                let wait = line["retryAfterMicros"].as_u64();
                wait.unwrap_or(0).max(line["delayMicros"].as_u64().unwrap())
            });
            assert_eq!(run["longestWaitMicros"].as_u64(), waits.max(), "{context}");
        }
    }
}

#[tokio::test]
async fn two_policies_are_compared_hit_by_hit() {
    let server = Server::start_admin(&[]);
    let policies = json!([{"limits": "fixed_window 2/10s"}, {"limits": "fixed_window 1/s"}]);
    let trace = "{\"t\":0}\n{\"t\":0}\n{\"t\":0}\n{\"t\":1}\n{\"t\":2,\"key\":\"b\"}\n";

    let answer = simulated(
        &server,
        &json!({"policies": policies, "traffic": {"trace": trace}}),
    )
    .await;

    // A: the first two and b. B: the first, the fourth and b.
    assert_eq!(counts(&answer["runs"][0]), [3, 0, 0, 2, 0]);
    assert_eq!(counts(&answer["runs"][1]), [3, 0, 0, 2, 0]);
    assert_eq!((&answer["onlyA"], &answer["onlyB"]), (&json!(1), &json!(1)));
    let keys = &answer["runs"][0]["keys"];
    assert_eq!(
        *keys,
        json!([
            {"key": "default", "allowed": 2, "denied": 2},
            {"key": "b", "allowed": 1, "denied": 0},
        ])
    );
    assert_eq!(answer["runs"][0]["keysDenied"], 1);
    assert_eq!(answer["runs"][1]["edges"], json!([1_000_000, 2_000_000]));
    assert_eq!(answer["runs"][0]["edges"], json!([]));
    assert_eq!(answer["runs"][0]["limits"], "fixed_window 2/10s");
}

#[tokio::test]
async fn a_budget_is_seen_to_refill_between_hits() {
    let server = Server::start_admin(&[]);
    let policies = json!([{"limits": "token_bucket 1/s burst 5"}]);
    let trace = "{\"t\":0,\"cost\":5}\n{\"t\":9,\"cost\":5}\n";

    let body = json!({"policies": policies, "traffic": {"trace": trace}});
    let answer = simulated(&server, &body).await;

    let budget = &answer["runs"][0]["budgets"][0];
    assert_eq!(
        (&budget["name"], &budget["limit"]),
        (&json!("default"), &json!(5))
    );
    let points = budget["points"].as_array().unwrap();
    let points: Vec<(i64, u64)> = points
        .iter()
        .map(|point| (point[0].as_i64().unwrap(), point[1].as_u64().unwrap()))
        .collect();
    let (start, end) = (
        answer["scene"]["start"].as_i64().unwrap(),
        answer["scene"]["end"].as_i64().unwrap(),
    );
    assert_eq!(points[0], (start, 5), "full before the first hit");
    assert!(start < 0 && points.is_sorted_by_key(|point| point.0));
    assert_eq!(points.last().unwrap().0, end);
    for units in 1..=5 {
        let second = 1_000_000 * i64::try_from(units).unwrap();
        let mut risen = points
            .iter()
            .filter(|point| point.0 > 0 && point.1 == units);
        let seen = risen.next().unwrap().0;
        assert!(
            (second..second + 50_000).contains(&seen),
            "{units} at {seen}"
        );
    }
    for (at, remaining) in points {
        let expected = match at {
            ..0 => 5,
            0 | 9_000_000 => continue,
            1..9_000_000 => (at / 1_000_000).min(5),
            _ => ((at - 9_000_000) / 1_000_000).min(5),
        };
        assert_eq!(i64::try_from(remaining).unwrap(), expected, "at {at}");
    }
}

#[tokio::test]
async fn hits_leave_a_leaky_bucket_one_by_one() {
    let server = Server::start_admin(&[]);
    let policies = json!([{"limits": "leaky_bucket 10/s queue 5"}]);
    let trace = "{\"t\":1}\n".repeat(7);

    let body = json!({"policies": policies, "traffic": {"trace": trace}});
    let answer = simulated(&server, &body).await;

    let run = &answer["runs"][0];
    assert_eq!(counts(run), [1, 4, 0, 2, 0]);
    assert_eq!(
        numbers(&run["leaves"]),
        [1_000_000, 1_100_000, 1_200_000, 1_300_000, 1_400_000]
    );
}

#[tokio::test]
async fn an_access_log_can_be_pasted() {
    let server = Server::start_admin(&[]);
    let line = "203.0.113.9 - - [16/Nov/2026:14:55:02 +0000] \"GET / HTTP/1.1\" 200 1\n";
    let policies = json!([{"limits": "fixed_window 3/min"}]);

    let body = json!({"policies": policies, "traffic": {"trace": line.repeat(5)}});
    let answer = simulated(&server, &body).await;

    let keys = &answer["runs"][0]["keys"];
    assert_eq!(
        *keys,
        json!([{"key": "ip:203.0.113.9", "allowed": 3, "denied": 2}])
    );
    let broken = format!("{line}{line}no line\n");
    let body = json!({"policies": policies, "traffic": {"trace": broken}});
    let why = ask(&server, &body).await.problem(400);
    assert!(why.starts_with("line 3 of the trace: expected "), "{why}");
}

#[tokio::test]
async fn a_wrong_policy_is_named_with_the_message_of_the_engine() {
    let server = Server::start_admin(&[]);
    let traffic = json!({"kind": "burst"});
    for (wrong, message) in [
        (json!({"limits": "5/fortnight"}), "at column 3"),
        (
            json!({"limits": "5/s", "throttle": "elastic 5% in_flight 2"}),
            "elastic",
        ),
        (json!({"limits": "5/s", "throttle": "soft"}), "soft 10%"),
        (json!({"limits": ""}), "expected"),
    ] {
        let policies = json!([{"limits": "5/s"}, wrong]);
        let answer = ask(&server, &json!({"policies": policies, "traffic": traffic})).await;

        let why = answer.problem(400);
        assert!(why.contains(message), "{wrong}: {why}");
        assert_eq!(answer.json()["policy"], 1, "{answer:?}");
    }
}

#[tokio::test]
async fn a_request_beyond_the_bounds_is_refused() {
    let server = Server::start_admin(&[]);
    let one = json!([{"limits": "5/s"}]);
    let line = "{\"t\":0}\n";
    for (policies, traffic, message) in [
        (json!([]), json!({"kind": "burst"}), "1 or 2 entries"),
        (
            json!([one[0], one[0], one[0]]),
            json!({"kind": "burst"}),
            "not 3",
        ),
        (one.clone(), json!({}), "either kind"),
        (
            one.clone(),
            json!({"kind": "burst", "trace": line}),
            "either kind",
        ),
        (
            one.clone(),
            json!({"trace": line, "seed": 1}),
            "either kind",
        ),
        (one.clone(), json!({"trace": "\n"}), "no hits"),
        (
            one.clone(),
            json!({"kind": "burst", "hits": 0}),
            "from 1 to",
        ),
        (
            one.clone(),
            json!({"kind": "burst", "hits": 100_001}),
            "from 1 to 100000",
        ),
        (
            json!([{"limits": "1/366d"}]),
            json!({"kind": "steady", "hits": 100_000}),
            "285 years",
        ),
        (
            one.clone(),
            json!({"trace": line.repeat(100_001)}),
            "line 100001 of the trace: a trace has at most 100000 hits",
        ),
        (
            one.clone(),
            json!({"trace": format!("{}\n", "x".repeat(1 << 20))}),
            "at most 1048576 bytes",
        ),
    ] {
        let answer = ask(&server, &json!({"policies": policies, "traffic": traffic})).await;

        let why = answer.problem(400);
        assert!(why.contains(message), "{message}: {why}");
        assert_eq!(answer.json()["policy"], Value::Null);
    }
    let huge = "x".repeat(3 << 20);
    ask(
        &server,
        &json!({"policies": one, "traffic": {"trace": huge}}),
    )
    .await
    .problem(413);
}

/// The caller of a long simulation leaves. Without an end of its work, the next one would wait for the whole of it.
#[tokio::test]
async fn a_caller_that_leaves_makes_room_for_the_next() {
    let server = Server::start_admin(&[]);
    let limits = "token_bucket 10/s burst 20; leaky_bucket 20/s queue 9; 30/min; 7000/h; \
                  sliding_window_counter 90000/d; fixed_window 8/s; 100000/366d";
    let long = json!({
        "policies": [{"limits": limits}, {"limits": limits}],
        "traffic": {"kind": "steady", "hits": 100_000},
    });
    let quick = json!({"policies": [{"limits": "5/s"}], "traffic": {"kind": "burst", "hits": 1}});
    let started = Instant::now();
    let whole = ask(&server, &long).await;
    let whole = (whole.status, started.elapsed());

    // The quickest of some, because a busy machine can delay each of them.
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let left = tokio::time::timeout(Duration::from_millis(60), ask(&server, &long)).await;
        let started = Instant::now();
        simulated(&server, &quick).await;
        if left.is_err() {
            quickest = quickest.min(started.elapsed());
        }
    }

    println!("{whole:?}, then {quickest:?}");
    assert!(quickest < whole.1 / 2, "{quickest:?} {whole:?}");
}

#[tokio::test]
async fn callers_take_turns_and_all_are_answered() {
    let server = Server::start_admin(&[]);
    let body =
        json!({"policies": [{"limits": "5/s"}], "traffic": {"kind": "poisson", "hits": 2_000}});

    let answers = (0..8).map(|_| simulated(&server, &body));
    let answers = futures_util::future::join_all(answers).await;

    assert!(answers.iter().all(|answer| *answer == answers[0]));
}

#[tokio::test]
async fn a_limit_by_name_is_refused() {
    let server = Server::start_admin(&[]);
    let traffic = json!({"kind": "steady", "hits": 3});
    for limits in ["5/min by ip", "5/min; 9/h by tenant"] {
        let body = json!({"policies": [{"limits": limits}], "traffic": traffic});

        let detail = ask(&server, &body).await.problem(400);

        assert!(detail.contains("is not simulated"), "{detail}");
    }
}
