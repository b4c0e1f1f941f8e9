//! Tiers that are looked up asynchronously.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{HeaderName, Request, Response, StatusCode};
use ratelimit_core::{Key, Limiter, Policy};
use ratelimit_tower::{HeaderKey, RateLimitLayer, TierResolver};
use tokio::{sync::Semaphore, task::yield_now, time};
use tower::{Layer as _, ServiceExt as _, service_fn};

fn layer(resolver: TierResolver) -> RateLimitLayer {
    let policy = Policy::parse("api", "1/h").expect("valid");
    let policy = policy.with_tier("pro", "3/h").expect("valid");
    let policy = policy.with_tier("team", "2/h").expect("valid");
    let members = [(key("member"), "team")];
    RateLimitLayer::new(Limiter::in_memory(), policy.with_tier_members(members))
        .key_by(HeaderKey::new(HeaderName::from_static("x-user")))
        .tier_async(resolver)
}

fn key(user: &str) -> Key {
    Key::tagged("header", format!("x-user:{user}")).expect("valid")
}

async fn send(layer: &RateLimitLayer, user: &str) -> StatusCode {
    let service = layer.layer(service_fn(async |_: Request<()>| {
        Ok::<_, std::io::Error>(Response::new("hello"))
    }));
    let request = Request::builder()
        .header("x-user", user)
        .body(())
        .expect("valid");
    service.oneshot(request).await.expect("valid").status()
}

async fn passing(layer: &RateLimitLayer, user: &str) -> usize {
    let mut passed = 0;
    while send(layer, user).await == 200 {
        passed += 1;
    }
    passed
}

/// A resolver that finds `pro` for all users but `free`, and the number of its lookups.
fn counting() -> (TierResolver, Arc<AtomicUsize>) {
    let lookups = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lookups);
    let resolver = TierResolver::new(move |key: Key| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            yield_now().await;
            let is_free = key.as_str().ends_with("free");
            Ok::<_, String>((!is_free).then(|| "pro".to_owned()))
        }
    });
    (resolver, lookups)
}

#[tokio::test(start_paused = true)]
async fn a_tier_is_looked_up_once_until_it_expires() {
    let (resolver, lookups) = counting();
    let layer = layer(resolver.ttl(Duration::from_secs(60)));

    assert_eq!(passing(&layer, "alice").await, 3);
    assert_eq!(passing(&layer, "free").await, 1);
    assert_eq!(lookups.load(Ordering::Relaxed), 2);

    time::advance(Duration::from_secs(61)).await;
    send(&layer, "alice").await;
    assert_eq!(lookups.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn a_full_cache_drops_the_oldest() {
    let (resolver, lookups) = counting();
    let layer = layer(resolver.capacity(2));
    for user in ["a", "b", "c", "c", "b", "a"] {
        send(&layer, user).await;
    }
    assert_eq!(lookups.load(Ordering::Relaxed), 4, "only `a` was dropped");
}

#[tokio::test(start_paused = true)]
async fn requests_share_a_lookup_that_a_dropped_request_started() {
    let (gate, lookups) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let (waiting, counted) = (Arc::clone(&gate), Arc::clone(&lookups));
    let layer = layer(TierResolver::new(move |_| {
        let gate = Arc::clone(&waiting);
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            let _permit = gate.acquire().await.map_err(|error| error.to_string())?;
            Ok::<_, String>(Some("pro".to_owned()))
        }
    }));
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let layer = layer.clone();
            tokio::spawn(async move { send(&layer, "alice").await })
        })
        .collect();
    for _ in 0..20 {
        yield_now().await;
    }
    tasks[0].abort();
    gate.add_permits(1);

    let mut passed = 0;
    for task in tasks.into_iter().skip(1) {
        passed += usize::from(task.await.expect("valid") == 200);
    }
    assert_eq!(passed, 3, "in the tier `pro`");
    assert_eq!(lookups.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn the_policy_chooses_the_tier_if_the_lookup_fails_or_takes_too_long() {
    let failing = TierResolver::new(async |_| Err::<Option<String>, _>("the database is away"));
    let hanging = TierResolver::new(async |_| {
        std::future::pending::<()>().await;
        Ok::<_, String>(None)
    });
    let panicking = TierResolver::new(async |key: Key| match key.as_str().len() {
        0 => Ok::<_, String>(None),
        _ => panic!("a bug of the application"),
    });
    for resolver in [failing, hanging, panicking] {
        let layer = layer(resolver);
        assert_eq!(passing(&layer, "member").await, 2);
        assert_eq!(passing(&layer, "alice").await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_longest_durations_are_those_of_a_year() {
    let (resolver, lookups) = counting();
    let layer = layer(resolver.ttl(Duration::MAX).timeout(Duration::MAX));

    assert_eq!(passing(&layer, "alice").await, 3);
    assert_eq!(lookups.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_panics_is_not_repeated_for_a_second() {
    let lookups = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lookups);
    let layer = layer(TierResolver::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { panic!("a mistake in the lookup") as Result<Option<String>, String> }
    }));

    assert_eq!(passing(&layer, "alice").await, 1);
    assert_eq!(send(&layer, "alice").await, 429);
    assert_eq!(lookups.load(Ordering::Relaxed), 1);
    time::advance(Duration::from_secs(2)).await;
    send(&layer, "alice").await;
    assert_eq!(lookups.load(Ordering::Relaxed), 2);
}
