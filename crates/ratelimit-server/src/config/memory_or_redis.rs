//! Checks of settings that only one kind of store has.

use super::{
    invalid::{ConflictingSettings, InvalidConfig},
    settings::Settings,
    tls,
};

/// Checks that nothing about Redis is set without a Redis. The memory store never fails, so a failure mode has no effect.
pub(super) fn check_without_redis(settings: &Settings) -> Result<(), InvalidConfig> {
    let others = [
        ("redis-prefix", settings.redis_prefix.is_some()),
        ("time-budget", settings.time_budget.is_some()),
        ("no-deny-cache", settings.no_deny_cache == Some(true)),
        ("on-failure", settings.on_failure.is_some()),
        ("readiness-grace", settings.readiness_grace.is_some()),
        ("local-keys", settings.local_keys.is_some()),
    ];
    let others = others.into_iter().filter(|(_, is_set)| *is_set);
    let mut names = tls::redis_settings(settings)
        .into_iter()
        .chain(others.map(|(name, _)| name));
    match names.next() {
        Some(setting) => Err(InvalidConfig::Conflict(ConflictingSettings {
            setting,
            why: "has no effect without redis",
        })),
        None => Ok(()),
    }
}

/// Rejects settings of the memory store: with Redis there is none.
pub(super) fn check_with_redis(settings: &Settings) -> Result<(), InvalidConfig> {
    let memory = [
        ("memory-keys", settings.memory_keys.is_some()),
        ("memory-bytes", settings.memory_bytes.is_some()),
    ];
    match memory.into_iter().find(|(_, is_set)| *is_set) {
        Some((setting, _)) => Err(InvalidConfig::Conflict(ConflictingSettings {
            setting,
            why: "has no effect with redis; local-keys bounds the local fallback",
        })),
        None => Ok(()),
    }
}
