//! The log filter.

use std::str::FromStr;

use tracing_subscriber::filter::{LevelFilter, Targets};

/// The crates of this workspace that log.
const OWN_TARGETS: [&str; 3] = ["ratelimit_core", "ratelimit_http", "ratelimit_server"];

/// A log filter: a level, `TARGET=LEVEL`, or several of both, joined by commas.
///
/// `Targets` alone reads a misspelled level as a target, and then nothing else is logged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LogFilter(pub(crate) Targets);

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<LogFilter, String> {
        for directive in text.split(',').map(str::trim) {
            check_directive(directive)?;
        }
        let targets = text.parse();
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
    let root = target.split("::").next().unwrap_or(target);
    if root.starts_with("ratelimit") && !OWN_TARGETS.contains(&root) {
        let known = OWN_TARGETS.join(", ");
        return Err(format!(
            "the log filter names {root:?}, which never logs; expected one of {known}"
        ));
    }
    Ok(())
}

fn check_level(level: &str) -> Result<(), String> {
    if !level.is_empty() && level.parse::<LevelFilter>().is_ok() {
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
    use super::*;

    #[test]
    fn levels_and_targets_with_levels_are_filters() {
        for text in [
            "info",
            "WARN",
            "off",
            "warn,ratelimit_core=debug",
            "info, ratelimit_server::access=debug",
            "hyper=trace",
        ] {
            assert!(text.parse::<LogFilter>().is_ok(), "{text}");
        }
    }

    #[test]
    fn other_words_are_refused_with_a_hint() {
        for (text, expected) in [
            ("warning", "did you mean warn?"),
            ("info,WARNING", "did you mean warn?"),
            ("ratelimit_core", "did you mean ratelimit_core=trace?"),
            ("ratelimit_core=loud", "\"loud\" is not a log level"),
            ("ratelimit_cor=debug", "expected one of ratelimit_core"),
            ("", "is not a log level"),
            ("info,", "is not a log level"),
            ("ratelimit_core=", "is not a log level"),
            ("a=b=c", "is not a log level"),
        ] {
            let why = text.parse::<LogFilter>().unwrap_err();
            assert!(why.contains(expected), "{text}: {why}");
        }
    }
}
