//! Variables of the environment that look like settings and are none.

use std::{env, fmt};

use clap::{Args as _, Command};
use ratelimit_http::policy_file::nearest;

use super::settings::Settings;

const PREFIX: &str = "RATELIMIT_";

/// A variable `RATELIMIT_...` that no setting reads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnknownVariable {
    name: String,
    meant: Option<String>,
}

/// The unknown variables of this process, ordered by name.
pub(crate) fn unknown_variables() -> Vec<UnknownVariable> {
    let names = env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let mut unknown = find_unknown(names);
    unknown.sort_by(|one, other| one.name.cmp(&other.name));
    unknown
}

fn find_unknown(names: impl Iterator<Item = String>) -> Vec<UnknownVariable> {
    let settings = Settings::augment_args(Command::new("settings"));
    let known = settings.get_arguments().filter_map(clap::Arg::get_env);
    let known: Vec<&str> = known.filter_map(std::ffi::OsStr::to_str).collect();
    let unknown = names.filter(|name| {
        name.starts_with(PREFIX) && !known.contains(&name.as_str()) && !is_of_kubernetes(name)
    });
    unknown
        .map(|name| UnknownVariable {
            meant: nearest_setting(&name, &known),
            name,
        })
        .collect()
}

/// The nearest setting by the names without their prefix, which all have in common.
fn nearest_setting(name: &str, known: &[&str]) -> Option<String> {
    let known = known.iter().filter_map(|known| known.strip_prefix(PREFIX));
    let name = name.strip_prefix(PREFIX)?;
    // REDIS_URL is far from REDIS by its letters, and begins with it.
    let begins = |known: &&str| {
        let rest = name.strip_prefix(known);
        rest.is_some_and(|rest| rest.starts_with('_'))
    };
    let by_start = known.clone().filter(begins).max_by_key(|known| known.len());
    let meant = nearest(name, known).or(by_start)?;
    Some(format!("{PREFIX}{meant}"))
}

/// Whether Kubernetes makes variables of this name for a Service that is called `ratelimit...`.
fn is_of_kubernetes(name: &str) -> bool {
    let ends = ["_SERVICE_HOST", "_PORT"];
    let parts = ["_SERVICE_PORT", "_PORT_"];
    ends.iter().any(|end| name.ends_with(end)) || parts.iter().any(|part| name.contains(part))
}

impl fmt::Display for UnknownVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the variable {} is not a setting", self.name)?;
        match &self.meant {
            Some(meant) => write!(f, "; did you mean {meant}?"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_variable_is_reported_with_the_nearest_name() {
        let names = [
            "RATELIMIT_LISEN",
            "RATELIMIT_REDIS_URL",
            "RATELIMIT_XYZ",
            "RATELIMIT_LOG",
            "PATH",
        ];

        let unknown = find_unknown(names.into_iter().map(str::to_owned));

        let texts: Vec<String> = unknown.iter().map(UnknownVariable::to_string).collect();
        assert_eq!(
            texts,
            [
                "the variable RATELIMIT_LISEN is not a setting; did you mean RATELIMIT_LISTEN?",
                "the variable RATELIMIT_REDIS_URL is not a setting; did you mean RATELIMIT_REDIS?",
                "the variable RATELIMIT_XYZ is not a setting",
            ]
        );
    }

    #[test]
    fn the_variables_of_a_kubernetes_service_are_ignored() {
        let names = [
            "RATELIMIT_SERVICE_HOST",
            "RATELIMIT_SERVER_SERVICE_HOST",
            "RATELIMIT_SERVICE_PORT",
            "RATELIMIT_SERVER_SERVICE_PORT_HTTP",
            "RATELIMIT_PORT",
            "RATELIMIT_PORT_8080_TCP",
            "RATELIMIT_SERVER_PORT_8080_TCP_ADDR",
        ];

        let unknown = find_unknown(names.into_iter().map(str::to_owned));

        assert_eq!(unknown, []);
    }
}
