//! The Redis that tests will find.

use std::{env, fmt, process::Command};

use crate::{
    command::{answers, succeeds},
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
    /// One that runs already, named by `RATELIMIT_TEST_REDIS_URL`.
    Running(String),
    /// A binary that each test process starts for itself.
    Spawned(String),
    /// Containers, through testcontainers.
    Docker,
}

impl Redis {
    /// Finds a Redis in the order of the tests, and installs one when there is none.
    pub(crate) fn ensure() -> Result<Redis, Failure> {
        if let Some(found) = Redis::find(setting, answers)? {
            return Ok(found);
        }
        let refused = match install::install(&PACKAGE) {
            Ok(()) => {
                install::stop_service("redis-server");
                Failure::new(
                    "no redis-server came with the package",
                    "set REDIS_SERVER_BIN",
                )
            }
            Err(failure) => failure,
        };
        if let Some(found) = Redis::find(setting, answers)? {
            return Ok(found);
        }
        if succeeds(Command::new("docker").args(["version", "--format", "{{.Server.Version}}"])) {
            return Ok(Redis::Docker);
        }
        eprintln!(
            "the tests need Redis: a `redis-server` or `valkey-server` in PATH, REDIS_SERVER_BIN=<binary>,\n\
             RATELIMIT_TEST_REDIS_URL=<url>, or a Docker engine and RATELIMIT_TEST_REDIS=docker"
        );
        Err(refused)
    }

    /// A server binary to start, installed when there is none.
    pub(crate) fn ensure_binary() -> Result<String, Failure> {
        let binary = |name: &str| setting(name).filter(|_| name == "REDIS_SERVER_BIN");
        if let Some(Redis::Spawned(found)) = Redis::find(binary, answers)? {
            return Ok(found);
        }
        install::install(&PACKAGE)?;
        install::stop_service("redis-server");
        match Redis::find(binary, answers)? {
            Some(Redis::Spawned(found)) => Ok(found),
            _ => Err(Failure::new(
                "no redis-server came with the package",
                "set REDIS_SERVER_BIN",
            )),
        }
    }

    fn find(
        setting: impl Fn(&str) -> Option<String>,
        answers: impl Fn(&str) -> bool,
    ) -> Result<Option<Redis>, Failure> {
        if let Some(url) = setting("RATELIMIT_TEST_REDIS_URL") {
            return Ok(Some(Redis::Running(url)));
        }
        if setting("RATELIMIT_TEST_REDIS").is_some_and(|choice| choice == "docker") {
            return Ok(Some(Redis::Docker));
        }
        if let Some(binary) = setting("REDIS_SERVER_BIN") {
            if answers(&binary) {
                return Ok(Some(Redis::Spawned(binary)));
            }
            return Err(Failure::new(
                format!("REDIS_SERVER_BIN={binary} does not run"),
                "name a redis-server or valkey-server binary, or unset it",
            ));
        }
        let server = SERVERS.into_iter().find(|server| answers(server));
        Ok(server.map(|server| Redis::Spawned(server.to_owned())))
    }
}

impl fmt::Display for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // An address may hold a password, so it is not shown.
            Redis::Running(_) => f.write_str("Redis: the server of RATELIMIT_TEST_REDIS_URL"),
            Redis::Spawned(binary) => write!(f, "Redis: {binary}, started by the tests"),
            Redis::Docker => f.write_str("Redis: containers, started by the tests"),
        }
    }
}

fn setting(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(settings: &[(&str, &str)], binaries: &[&str]) -> Result<Option<Redis>, Failure> {
        let setting = |name: &str| {
            let found = settings.iter().find(|(key, _)| *key == name)?;
            Some(found.1.to_owned())
        };
        Redis::find(setting, |binary| binaries.contains(&binary))
    }

    #[test]
    fn a_running_server_is_preferred_to_a_binary() {
        let found = find(
            &[("RATELIMIT_TEST_REDIS_URL", "redis://there")],
            &["redis-server"],
        );

        assert_eq!(
            found.unwrap(),
            Some(Redis::Running("redis://there".to_owned()))
        );
    }

    #[test]
    fn docker_is_taken_by_choice() {
        let found = find(&[("RATELIMIT_TEST_REDIS", "docker")], &["redis-server"]);

        assert_eq!(found.unwrap(), Some(Redis::Docker));
    }

    #[test]
    fn a_named_binary_must_run() {
        let settings = [("REDIS_SERVER_BIN", "redis-six")];

        assert!(find(&settings, &["redis-server"]).is_err());
        let found = find(&settings, &["redis-six"]).unwrap();
        assert_eq!(found, Some(Redis::Spawned("redis-six".to_owned())));
    }

    #[test]
    fn valkey_will_do_and_nothing_is_nothing() {
        let valkey = find(&[], &["valkey-server"]).unwrap();

        assert_eq!(valkey, Some(Redis::Spawned("valkey-server".to_owned())));
        assert_eq!(find(&[], &[]).unwrap(), None);
    }
}
