//! The Redis that tests use.

use std::{env, fmt};

use crate::{
    command::answers,
    failure::Failure,
    install::{self, Program},
};

const SERVERS: [&str; 2] = ["redis-server", "valkey-server"];

const PACKAGE: Program = Program {
    apt: "redis-server",
    dnf: "redis",
    brew: "redis",
};

/// Where the tests get their Redis from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Redis {
    /// A running server, at the address in `RATELIMIT_TEST_REDIS_URL`.
    Running,
    /// A binary that each test process starts.
    Spawned(String),
}

impl Redis {
    /// The server that tests use; installs one if there is none.
    pub(crate) fn ensure() -> Result<Redis, Failure> {
        if setting("RATELIMIT_TEST_REDIS_URL").is_some() {
            return Ok(Redis::Running);
        }
        Redis::ensure_binary().map(Redis::Spawned)
    }

    /// A server binary to start; installs one if there is none.
    pub(crate) fn ensure_binary() -> Result<String, Failure> {
        if let Some(found) = Redis::find(setting("REDIS_SERVER_BIN"), answers)? {
            return Ok(found);
        }
        install::install(&PACKAGE)?;
        install::stop_service("redis-server");
        Redis::find(None, answers)?
            .ok_or_else(|| Failure::new("the package has no redis-server", "set REDIS_SERVER_BIN"))
    }

    fn find(
        chosen: Option<String>,
        answers: impl Fn(&str) -> bool,
    ) -> Result<Option<String>, Failure> {
        if let Some(binary) = chosen {
            if answers(&binary) {
                return Ok(Some(binary));
            }
            return Err(Failure::new(
                format!("REDIS_SERVER_BIN={binary} does not run"),
                "name a redis-server or valkey-server binary, or unset it",
            ));
        }
        let found = SERVERS.into_iter().find(|server| answers(server));
        Ok(found.map(str::to_owned))
    }
}

impl fmt::Display for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // An address may hold a password, so it is not shown.
            Redis::Running => f.write_str("Redis: the server of RATELIMIT_TEST_REDIS_URL"),
            Redis::Spawned(binary) => write!(f, "Redis: {binary}, started by the tests"),
        }
    }
}

fn setting(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(chosen: Option<&str>, binaries: &[&str]) -> Result<Option<String>, Failure> {
        Redis::find(chosen.map(str::to_owned), |binary| {
            binaries.contains(&binary)
        })
    }

    #[test]
    fn a_named_binary_must_run() {
        assert!(find(Some("redis-six"), &["redis-server"]).is_err());
        let found = find(Some("redis-six"), &["redis-server", "redis-six"]);
        assert_eq!(found.unwrap().as_deref(), Some("redis-six"));
    }

    #[test]
    fn valkey_is_used_if_there_is_no_redis() {
        let found = find(None, &["valkey-server"]).unwrap();

        assert_eq!(found.as_deref(), Some("valkey-server"));
        assert_eq!(find(None, &[]).unwrap(), None);
    }
}
