//! What happens beyond a limit.

use std::{error, fmt, str::FromStr};

use crate::load_signal::LoadSignal;
use crate::policy::{InvalidPolicy, Policy, group::Overdraft};

/// The most that a throttle mode may add to a limit, in percent of it.
pub(super) const MAX_PERCENT: u32 = 10_000;

/// What happens beyond a limit.
///
/// ```
/// use ratelimit_core::{Policy, LoadSignal, Throttle};
///
/// let soft = Policy::parse("api", "100/min")?.with_throttle(Throttle::Soft { percent: 10 })?;
///
/// let few_in_flight = LoadSignal::in_flight(200);
/// let elastic = Throttle::Elastic { percent: 50, signal: few_in_flight };
/// let elastic = Policy::parse("search", "100/min")?.with_throttle(elastic)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Throttle {
    /// Nothing passes.
    #[default]
    Hard,
    /// So many percent of the limit more pass, and are marked as over.
    Soft {
        /// How many percent, rounded down to whole units.
        percent: u32,
    },
    /// So many percent more pass while a signal says that there is room.
    Elastic {
        /// How many percent, rounded down to whole units.
        percent: u32,
        /// Says whether there is room.
        signal: LoadSignal,
    },
}

impl Throttle {
    pub(super) const fn percent(&self) -> u32 {
        match self {
            Throttle::Hard => 0,
            Throttle::Soft { percent } | Throttle::Elastic { percent, .. } => *percent,
        }
    }

    /// Whether a hit may go beyond the limit now.
    pub(crate) fn overdraft(&self) -> Overdraft {
        match self {
            Throttle::Elastic { signal, .. } if !signal.has_capacity() => Overdraft::Refused,
            _ => Overdraft::Allowed,
        }
    }

    /// The load signal, where there is one.
    pub const fn signal(&self) -> Option<&LoadSignal> {
        match self {
            Throttle::Elastic { signal, .. } => Some(signal),
            _ => None,
        }
    }
}

impl Policy {
    /// The same policy with another throttle mode.
    ///
    /// # Errors
    ///
    /// When a limit with what the mode adds to it cannot be counted exactly.
    pub fn with_throttle(&self, throttle: Throttle) -> Result<Policy, InvalidPolicy> {
        let mut settings = self.0.settings.clone();
        for tier in settings.tiers.policies() {
            *tier = tier.with_throttle(throttle.clone())?;
        }
        settings.throttle = throttle;
        Policy::from_settings(settings)
    }

    /// What happens beyond its limits.
    pub fn throttle(&self) -> &Throttle {
        &self.0.settings.throttle
    }
}

/// Reads `hard`, `soft 10%`, or `elastic 50%` with `in_flight 200`, `process_cpu 70` or `machine_cpu 70`;
/// an elastic mode gets a signal of its own.
impl FromStr for Throttle {
    type Err = InvalidThrottle;

    fn from_str(text: &str) -> Result<Throttle, InvalidThrottle> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let read = match words.as_slice() {
            ["hard"] => Some(Throttle::Hard),
            ["soft", share] => percent(share).map(|percent| Throttle::Soft { percent }),
            ["elastic", share, name, mark] => elastic(share, name, mark),
            _ => None,
        };
        read.ok_or_else(|| InvalidThrottle {
            text: text.to_owned(),
        })
    }
}

const EXPECTED: &str = "hard, soft PERCENT%, or elastic PERCENT% with in_flight COUNT, process_cpu \
                        PERCENT or machine_cpu PERCENT";

fn elastic(share: &str, name: &str, mark: &str) -> Option<Throttle> {
    let mark = number(mark).filter(|mark| *mark > 0)?;
    let signal = match name {
        "in_flight" => LoadSignal::in_flight(usize::try_from(mark).ok()?),
        "process_cpu" if mark <= 100 => LoadSignal::process_cpu(mark.into()),
        "machine_cpu" if mark <= 100 => LoadSignal::machine_cpu(mark.into()),
        _ => return None,
    };
    let percent = percent(share)?;
    Some(Throttle::Elastic { percent, signal })
}

fn percent(text: &str) -> Option<u32> {
    number(text.strip_suffix('%')?)
}

fn number(digits: &str) -> Option<u32> {
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| digits.parse().ok()).flatten()
}

impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Throttle::Hard => f.write_str("hard"),
            Throttle::Soft { percent } => write!(f, "soft {percent}%"),
            Throttle::Elastic { percent, signal } => write!(f, "elastic {percent}% {signal}"),
        }
    }
}

/// A text that is not a throttle mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidThrottle {
    text: String,
}

impl fmt::Display for InvalidThrottle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {EXPECTED}, not {:?}", self.text)
    }
}

impl error::Error for InvalidThrottle {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_read_and_written() {
        for (text, written) in [
            ("hard", "hard"),
            ("soft 10%", "soft 10%"),
            (" elastic  50% in_flight 200 ", "elastic 50% in_flight"),
            ("elastic 50% process_cpu 70", "elastic 50% process_cpu"),
            ("elastic 50% machine_cpu 100", "elastic 50% machine_cpu"),
        ] {
            assert_eq!(text.parse::<Throttle>().unwrap().to_string(), written);
        }
    }

    #[test]
    fn what_is_no_mode_is_refused() {
        for text in [
            "",
            "soft",
            "soft 10",
            "soft -1%",
            "soft 1.5%",
            "Hard",
            "hard 5%",
            "elastic 50%",
            "elastic 50% in_flight",
            "elastic 50% in_flight 0",
            "elastic 50% process_cpu 101",
            "elastic 50% load 5",
            "elastic 50 in_flight 200",
        ] {
            let message = text.parse::<Throttle>().expect_err(text).to_string();
            assert!(
                message.starts_with("expected hard, soft PERCENT%"),
                "{message}"
            );
        }
    }
}
