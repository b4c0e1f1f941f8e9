//! Slots: streams, and connections that are upgraded.

use tokio::sync::Mutex;

use super::{
    connection::{Open, eventually},
    site::{Site, With, policy},
};
use crate::{
    client::{ask, get},
    server::BOTH,
};

const FIVE: &str = "concurrency 5 lease 1h";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_streams_hold_five_slots_until_a_client_hangs_up() {
    for framework in BOTH {
        let server = Site::of(FIVE).serve(framework).await;

        let mut streams = Vec::new();
        for _ in 0..5 {
            streams.push(Open::ask(server, "/ticks", &[]).await);
        }
        let sixth = get(server, "/").await;
        assert_eq!(sixth.status, 429, "{framework:?}");
        assert_eq!(sixth.field("x-ratelimit-remaining"), Some("0"));

        streams.pop();
        let is_free = eventually(|| async { get(server, "/").await.status == 200 });
        assert!(
            is_free.await,
            "{framework:?}: the slot of a client that left"
        );
        // The answer that passed gave its slot back with its last byte.
        for _ in 0..10 {
            assert_eq!(get(server, "/").await.status, 200, "{framework:?}");
        }
        assert!(streams.iter().all(|stream| stream.status == 200));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_is_free_after_every_kind_of_answer() {
    for framework in BOTH {
        let server = Site::of("concurrency 1 lease 1h").serve(framework).await;

        for request in [
            "GET /",
            "HEAD /",
            "GET /status/204",
            "HEAD /bytes/9",
            "GET /parts/5",
            "GET /parts/0",
            "GET /guarded",
            "GET /missing",
        ] {
            let status = ask(server, request, &[]).await.status;
            assert_ne!(status, 429, "{framework:?}: {request}");
            let is_free = eventually(|| async { get(server, "/").await.status == 200 });
            assert!(is_free.await, "{framework:?}: after {request}");
        }
        Open::fail(server, "/broken").await;
        let is_free = eventually(|| async { get(server, "/").await.status == 200 });
        assert!(is_free.await, "{framework:?}: after a body that failed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_before_its_answer_frees_its_slot() {
    for framework in BOTH {
        let server = Site::of("concurrency 1 lease 1h").serve(framework).await;

        let waiting = Mutex::new(None);
        let is_held = eventually(|| async {
            // A request that comes after the one that looks whether it has come finds no slot.
            let mut waiting = waiting.lock().await;
            drop(waiting.take());
            *waiting = Some(Open::send(server, "/never", &[]).await);
            get(server, "/").await.status == 429
        });
        assert!(is_held.await, "{framework:?}");
        drop(waiting);

        let is_free = eventually(|| async { get(server, "/").await.status == 200 });
        assert!(is_free.await, "{framework:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websocket_sessions_per_user() {
    for framework in BOTH {
        let site = Site::of("concurrency 2 lease 1h").with(With::KeyByUser);
        let server = site.serve(framework).await;
        let connect = async |user: &str| {
            let user = format!("x-user: {user}");
            Open::upgrade(server, "/socket", &[&user]).await
        };

        let first = connect("alice").await;
        let second = connect("alice").await;
        assert_eq!((first.status, second.status), (101, 101), "{framework:?}");
        assert_eq!(connect("alice").await.status, 429, "{framework:?}");
        assert_eq!(connect("bob").await.status, 101, "{framework:?}");

        first.close().await;
        let is_free = eventually(|| async { connect("alice").await.status == 101 });
        assert!(is_free.await, "{framework:?}");
        assert_eq!(second.status, 101);
    }
}

/// A refund waits for the slot, and both come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_and_a_refund_go_together() {
    for framework in BOTH {
        let policy = policy("2/min; concurrency 1 lease 1h");
        let policy = policy.with_charge_on("401".parse().expect("statuses"));
        let server = Site::new(policy).serve(framework).await;

        for path in [
            "/",
            "/status/204",
            "/parts/3",
            "/",
            "/status/401",
            "/status/401",
        ] {
            let passes = eventually(|| async { get(server, path).await.status != 429 });
            assert!(passes.await, "{framework:?}: {path}");
        }

        assert_eq!(get(server, "/").await.status, 429, "{framework:?}");
    }
}
