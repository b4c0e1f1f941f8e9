//! Throttle modes: hard, soft and elastic.

use std::{error, fmt, str::FromStr};

use crate::load_signal::LoadSignal;
use crate::policy::{EffectiveLimit, InvalidPolicy, Policy, group::Overdraft};

/// The behaviour beyond a limit: deny, or admit a bounded overdraft.
///
/// - The headroom applies to every limit of the policy but penalty boxes, and is rounded down to
///   whole units.
/// - `limit` and `remaining` of a decision are those of the plain limit. A hit that used the
///   headroom has [`Decision::is_over`](crate::Decision::is_over) set.
/// - A change of the mode keeps what was spent.
///
/// ```
/// use ratelimit_core::{Key, Limiter, LoadSignal, Policy, Throttle};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let soft = Policy::parse("api", "10/min")?.with_throttle(Throttle::Soft { percent: 10 })?;
/// let (limiter, alice) = (Limiter::in_memory(), Key::new("alice")?);
/// assert!(limiter.check_cost(&soft, &alice, 10).await.is_allowed());
/// let eleventh = limiter.check(&soft, &alice).await;
/// assert!(eleventh.decision().unwrap().is_over);
/// assert!(!limiter.check(&soft, &alice).await.is_allowed());
///
/// let signal = LoadSignal::in_flight(200);
/// let elastic = Throttle::Elastic { percent: 50, signal };
/// let elastic = Policy::parse("search", "100/min")?.with_throttle(elastic)?;
/// assert_eq!(elastic.throttle().to_string(), "elastic 50% in_flight");
/// # Ok(())
/// # }
/// ```
#[doc(alias = "overdraft")]
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Throttle {
    /// Denies every hit beyond the limit.
    #[default]
    Hard,
    /// Admits `percent` of the limit more, and marks these hits as over.
    Soft {
        /// The headroom in percent of the limit, at most 10,000.
        percent: u32,
    },
    /// Admits `percent` of the limit more while the load signal has capacity.
    Elastic {
        /// The headroom in percent of the limit, at most 10,000.
        percent: u32,
        /// The load that decides whether the headroom may be used.
        signal: LoadSignal,
    },
}

impl Throttle {
    /// The headroom in percent; 0 for a hard throttle.
    pub(super) const fn percent(&self) -> u32 {
        match self {
            Throttle::Hard => 0,
            Throttle::Soft { percent } | Throttle::Elastic { percent, .. } => *percent,
        }
    }

    /// Whether a hit may use the headroom now. It reads the load signal of an elastic throttle.
    pub(crate) fn overdraft(&self) -> Overdraft {
        match self {
            Throttle::Elastic { signal, .. } if !signal.has_capacity() => Overdraft::Refused,
            _ => Overdraft::Allowed,
        }
    }

    /// The load signal of an elastic throttle.
    pub const fn signal(&self) -> Option<&LoadSignal> {
        match self {
            Throttle::Elastic { signal, .. } => Some(signal),
            _ => None,
        }
    }
}

impl Policy {
    /// Sets the throttle of this policy and of its tiers.
    ///
    /// A headroom of less than one unit of every limit has no effect, and is logged as a warning.
    ///
    /// # Errors
    ///
    /// - [`InvalidPolicy::Percent`] when the headroom is above 10,000 percent
    /// - [`InvalidPolicy::Ceiling`] when a limit with its headroom cannot be counted exactly
    pub fn with_throttle(&self, throttle: Throttle) -> Result<Policy, InvalidPolicy> {
        let mut settings = self.0.settings.clone();
        for tier in settings.tiers.policies() {
            *tier = tier.with_throttle(throttle.clone())?;
        }
        settings.throttle = throttle;
        let policy = Policy::from_settings(settings)?;
        if *policy.throttle() != Throttle::Hard && !policy.has_headroom() {
            let (throttle, limits) = (policy.throttle(), &policy);
            tracing::warn!(
                policy = policy.name(),
                %limits,
                "the throttle {throttle} has no effect: the headroom is less than one unit of each limit"
            );
        }
        Ok(policy)
    }

    /// Whether the throttle raises a limit.
    fn has_headroom(&self) -> bool {
        let mut limits = self.groups().iter().flat_map(|group| &group.limits);
        limits.any(EffectiveLimit::has_headroom)
    }

    /// The throttle; [`Throttle::Hard`] unless set.
    pub fn throttle(&self) -> &Throttle {
        &self.0.settings.throttle
    }
}

/// Parses `hard`, `soft 10%`, or `elastic 50%` followed by `in_flight 200`, `process_cpu 70` or
/// `machine_cpu 70`.
///
/// Each parsed elastic throttle has a load signal of its own.
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

/// The grammar, as error messages show it.
const EXPECTED: &str = "hard, soft PERCENT%, or elastic PERCENT% with in_flight COUNT, process_cpu \
                        PERCENT or machine_cpu PERCENT";

/// `elastic SHARE NAME MARK`. A mark of 0 would never have capacity, and a CPU mark above 100
/// always.
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

/// A whole number with `%` behind it.
fn percent(text: &str) -> Option<u32> {
    number(text.strip_suffix('%')?)
}

/// Digits only: `parse` alone would accept a plus sign.
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

/// A text is not a throttle mode. The message shows the text and the grammar.
///
/// ```
/// use ratelimit_core::Throttle;
///
/// let error = "soft".parse::<Throttle>().unwrap_err();
/// assert!(error.to_string().ends_with(r#"not "soft""#));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct InvalidThrottle {
    text: String,
}

impl fmt::Display for InvalidThrottle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {EXPECTED}, not {:?}", self.text)
    }
}

debug_as_display!(InvalidThrottle);

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
    fn a_headroom_of_less_than_one_unit_is_none() {
        for (limits, percent, has_headroom) in [
            ("5/min", 10, false),
            ("10/min", 10, true),
            ("5/min; 100/h", 10, true),
            ("100/h", 0, false),
        ] {
            let policy = Policy::parse("api", limits).unwrap();
            let soft = policy.with_throttle(Throttle::Soft { percent }).unwrap();
            assert_eq!(soft.has_headroom(), has_headroom, "{limits} {percent}%");
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
