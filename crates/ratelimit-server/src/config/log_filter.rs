//! The log filter.

use std::str::FromStr;

use ratelimit_http::policy_file::nearest;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// The targets of this workspace: its crates that log here, their modules, and two names for kinds of lines.
const OWN_TARGETS: [&str; 65] = [
    "ratelimit_core",
    "ratelimit_core::limiter",
    "ratelimit_core::limiter::denial",
    "ratelimit_core::limiter::fallback",
    "ratelimit_core::limiter::fallback::charge",
    "ratelimit_core::limiter::policy_names",
    "ratelimit_core::limiter::prefetch",
    "ratelimit_core::limiter::reservation",
    "ratelimit_core::limiter::unchecked",
    "ratelimit_core::load_signal",
    "ratelimit_core::load_signal::cpu",
    "ratelimit_core::offenders",
    "ratelimit_core::offenders::log",
    "ratelimit_core::policy::throttle",
    "ratelimit_core::policy::tiers",
    "ratelimit_core::store::memory",
    "ratelimit_core::store::memory::stats_reporter",
    "ratelimit_core::store::redis",
    "ratelimit_core::store::redis::config",
    "ratelimit_core::store::redis::connection",
    "ratelimit_core::store::redis::connection::outage_log",
    "ratelimit_envoy",
    "ratelimit_envoy::decide",
    "ratelimit_http",
    "ratelimit_http::middleware",
    "ratelimit_http::middleware::body_cost",
    "ratelimit_http::middleware::body_guard",
    "ratelimit_http::middleware::check",
    "ratelimit_http::middleware::config",
    "ratelimit_http::middleware::defaults",
    "ratelimit_http::middleware::key_warnings",
    "ratelimit_http::middleware::memory_warning",
    "ratelimit_http::middleware::tier_resolver",
    "ratelimit_http::policy_file::file",
    "ratelimit_http::registry::reordered",
    "ratelimit_http::registry::watch",
    "ratelimit_server",
    "ratelimit_server::accept_backoff",
    "ratelimit_server::access",
    "ratelimit_server::audit",
    "ratelimit_server::browser_guard",
    "ratelimit_server::client",
    "ratelimit_server::console::live::sampling",
    "ratelimit_server::envoy::quota::pass",
    "ratelimit_server::envoy::quota::service",
    "ratelimit_server::envoy::quota::stream",
    "ratelimit_server::envoy::resources",
    "ratelimit_server::envoy::rules",
    "ratelimit_server::envoy::service",
    "ratelimit_server::envoy::xds",
    "ratelimit_server::envoy::xds::outage_log",
    "ratelimit_server::file_read",
    "ratelimit_server::listener",
    "ratelimit_server::logging",
    "ratelimit_server::memory_budget",
    "ratelimit_server::missing_files",
    "ratelimit_server::open_files",
    "ratelimit_server::refusal_log",
    "ratelimit_server::reload",
    "ratelimit_server::room",
    "ratelimit_server::routes::forward_auth",
    "ratelimit_server::routes::receipt",
    "ratelimit_server::serve",
    "ratelimit_server::socket",
    "ratelimit_server::tls",
];

/// A log filter: a level, `TARGET=LEVEL`, or several of both, joined by commas.
///
/// `Targets` alone reads a misspelled level as a target, and then nothing else is logged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LogFilter(pub(crate) Targets);

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<LogFilter, String> {
        let directives: Vec<&str> = text.split(',').map(str::trim).collect();
        for directive in &directives {
            check_directive(directive)?;
        }
        // `Targets` takes a level with a blank beside it as a target.
        let targets = directives.join(",").parse();
        targets
            .map(LogFilter)
            .map_err(|why| format!("the log filter {text:?} cannot be read: {why}"))
    }
}

fn check_directive(directive: &str) -> Result<(), String> {
    let Some((target, level)) = directive.split_once('=') else {
        return check_level(directive);
    };
    check_level(level)?;
    check_target(target)
}

/// Refuses a target of this workspace that never logs, and a crate that is almost one of this workspace.
fn check_target(target: &str) -> Result<(), String> {
    let root = target.split("::").next().unwrap_or(target);
    let roots = || {
        OWN_TARGETS
            .iter()
            .filter(|known| !known.contains("::"))
            .copied()
    };
    let is_own = root.starts_with("ratelimit") || nearest(root, roots()).is_some();
    let is_known = |known: &str| {
        let rest = known.strip_prefix(target);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    if !is_own || OWN_TARGETS.iter().any(|known| is_known(known)) {
        return Ok(());
    }
    let hint = match nearest(target, OWN_TARGETS) {
        Some(known) => format!("did you mean {known}?"),
        None => format!(
            "expected a module of {}",
            roots().collect::<Vec<_>>().join(", ")
        ),
    };
    Err(format!(
        "the log filter names {target:?}, which never logs; {hint}"
    ))
}

fn check_level(level: &str) -> Result<(), String> {
    // A number would be a level too, and nothing says which.
    let is_word = level.starts_with(|first: char| first.is_ascii_alphabetic());
    if is_word && level.parse::<LevelFilter>().is_ok() {
        return Ok(());
    }
    let hint = match level.to_ascii_lowercase().as_str() {
        "warning" | "wrn" => "; did you mean warn?".to_owned(),
        "err" | "fatal" | "critical" => "; did you mean error?".to_owned(),
        "verbose" | "all" => "; did you mean trace?".to_owned(),
        "none" | "silent" => "; did you mean off?".to_owned(),
        other if other.contains(['_', ':']) => format!("; did you mean {level}=trace?"),
        _ => String::new(),
    };
    Err(format!(
        "{level:?} is not a log level: expected error, warn, info, debug, trace or off, or TARGET=LEVEL{hint}"
    ))
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn levels_and_targets_with_levels_are_filters() {
        for text in [
            "info",
            "WARN",
            "off",
            "warn,ratelimit_core=debug",
            "info, ratelimit_server::access=debug",
            "ratelimit_core::store::redis=trace",
            "hyper=trace",
        ] {
            assert!(text.parse::<LogFilter>().is_ok(), "{text}");
        }
    }

    #[test]
    fn blanks_around_a_directive_change_nothing() {
        for (text, target, level) in [
            (" info", "ratelimit_server", Level::INFO),
            ("info ,hyper=warn", "ratelimit_server", Level::INFO),
            ("info , hyper=debug ", "hyper", Level::DEBUG),
            ("off, ratelimit_core=debug", "ratelimit_core", Level::DEBUG),
        ] {
            let LogFilter(targets) = text.parse().unwrap();
            assert!(targets.would_enable(target, &level), "{text:?}");
        }
    }

    #[test]
    fn other_words_are_refused_with_a_hint() {
        for (text, expected) in [
            ("warning", "did you mean warn?"),
            ("info,WARNING", "did you mean warn?"),
            ("ratelimit_core", "did you mean ratelimit_core=trace?"),
            ("ratelimit_core=loud", "\"loud\" is not a log level"),
            ("3", "\"3\" is not a log level"),
            ("ratelimit_core=3", "\"3\" is not a log level"),
            ("ratelimit_cor=debug", "did you mean ratelimit_core?"),
            ("ratelmit_core=debug", "did you mean ratelimit_core?"),
            (
                "ratelimit_server::acess=debug",
                "did you mean ratelimit_server::access?",
            ),
            ("ratelimit_core::limit=debug", "which never logs"),
            ("ratelimit_meter=debug", "which never logs"),
            ("", "is not a log level"),
            ("info,", "is not a log level"),
            ("ratelimit_core=", "is not a log level"),
            ("a=b=c", "is not a log level"),
        ] {
            let why = text.parse::<LogFilter>().unwrap_err();
            assert!(why.contains(expected), "{text}: {why}");
        }
    }

    /// Every module with a log line is a target.
    #[test]
    fn all_modules_that_log_are_targets() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for name in ["core", "server"] {
            let root = crates.join(format!("ratelimit-{name}/src"));
            let mut folders = vec![(root, format!("ratelimit_{name}"))];
            while let Some((folder, module)) = folders.pop() {
                for entry in std::fs::read_dir(folder).unwrap() {
                    let path = entry.unwrap().path();
                    let stem = path.file_stem().unwrap().to_str().unwrap();
                    let module = match stem {
                        "mod" | "lib" | "main" => module.clone(),
                        stem => format!("{module}::{stem}"),
                    };
                    if path.is_dir() {
                        folders.push((path, module));
                        continue;
                    }
                    let text = std::fs::read_to_string(&path).unwrap();
                    let levels = ["error", "warn", "info", "debug", "trace"];
                    let logs = levels.iter().any(|level| {
                        let start = format!("tracing::{level}!(");
                        let mut lines = text.split(&start).skip(1);
                        lines.any(|rest| !rest.trim_start().starts_with("target:"))
                    });
                    assert!(!logs || check_target(&module).is_ok(), "{module}");
                }
            }
        }
    }
}
