//! Settings that are accepted and have no effect, or another one than meant, are logged.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use ratelimit_core::{Key, Limiter, MemoryStore, Policy, Throttle};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    span,
};

/// The messages of the warnings of this thread.
#[derive(Clone, Debug, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Message<'a>(&'a mut String);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            *self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, about: &tracing::Metadata<'_>) -> bool {
        *about.level() == Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = String::new();
        event.record(&mut Message(&mut text));
        self.0.lock().expect("no test panicked").push(text);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

impl Warnings {
    /// The warnings of `action`.
    fn of(action: impl FnOnce()) -> Vec<String> {
        let warnings = Warnings::default();
        tracing::subscriber::with_default(warnings.clone(), action);
        let lines = warnings.0.lock().expect("no test panicked");
        lines.clone()
    }
}

#[test]
fn a_throttle_without_headroom_is_logged() {
    let policy = Policy::parse("api", "5/min").unwrap();
    let soft = |percent| {
        let throttle = Throttle::Soft { percent };
        Warnings::of(|| assert!(policy.with_throttle(throttle).is_ok()))
    };

    assert!(soft(20).is_empty());
    let lines = soft(10);
    assert!(
        lines.len() == 1 && lines[0].contains("soft 10% has no effect"),
        "{lines:?}"
    );
}

#[tokio::test]
async fn a_setter_of_a_memory_store_that_is_in_use_is_logged() {
    let store = MemoryStore::new();
    assert!(Warnings::of(|| drop(store.clone().capacity(10))).is_empty());

    let policy = Policy::parse("api", "5/min").unwrap();
    let verdict = Limiter::new(store.clone()).check(&policy, &Key::new("alice").unwrap());
    assert!(verdict.await.is_allowed());
    let lines = Warnings::of(|| drop(store.capacity(10)));
    assert!(
        lines.len() == 1 && lines[0].contains("after the first hit"),
        "{lines:?}"
    );
}

#[cfg(feature = "redis")]
#[test]
fn doubtful_settings_of_a_redis_store_are_logged() {
    use ratelimit_core::{InvalidRedisConfig, RedisConfig, RedisStore};
    use std::time::Duration;

    let config = || RedisConfig::new("redis://127.0.0.1:1").unwrap();
    // Outside of a runtime the store does not connect.
    let made = |config: Result<RedisConfig, InvalidRedisConfig>| {
        Warnings::of(|| drop(RedisStore::new(config.unwrap())))
    };

    assert!(made(config().prefix("shop")).is_empty());
    let lines = made(config().prefix("shop:eu"));
    assert!(
        lines.len() == 1 && lines[0].contains("the prefix of the Redis keys contains a colon"),
        "{lines:?}"
    );
    let lines = made(config().version("v1:eu"));
    assert!(
        lines.len() == 1 && lines[0].contains("the version of the Redis keys contains a colon"),
        "{lines:?}"
    );
    let lines = made(Ok(config().timeout(Duration::ZERO)));
    assert!(
        lines.len() == 1 && lines[0].contains("timeout of Redis is zero"),
        "{lines:?}"
    );
}
