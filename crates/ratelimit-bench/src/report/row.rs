//! One number of ours, beside a peer's or a goal.

use std::borrow::Cow;

use super::Spread;

/// One number of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The measurement.
    pub what: String,
    /// The unit.
    pub unit: Cow<'static, str>,
    /// Our number.
    pub ours: Spread,
    /// The compared limiter.
    pub peer: Option<Peer>,
    /// The goal.
    pub goal: Option<Goal>,
}

/// A compared limiter and its number.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: Spread,
}

/// The goal of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// Our number is at most this.
    AtMost(f64),
    /// Our number is at least this.
    AtLeast(f64),
    /// Our number is at most this multiple of the peer's.
    RatioAtMost(f64),
    /// Our number is at least this multiple of the peer's.
    RatioAtLeast(f64),
}

impl Row {
    /// A number without company.
    pub fn new(what: impl Into<String>, unit: impl Into<Cow<'static, str>>, ours: Spread) -> Row {
        Row {
            what: what.into(),
            unit: unit.into(),
            ours,
            peer: None,
            goal: None,
        }
    }

    /// The same row with a peer's number.
    #[must_use]
    pub fn beside(mut self, name: impl Into<String>, number: Spread) -> Row {
        let name = name.into();
        self.peer = Some(Peer { name, number });
        self
    }

    /// The same row with a goal.
    #[must_use]
    pub const fn goal(mut self, goal: Goal) -> Row {
        self.goal = Some(goal);
        self
    }

    /// Our number in terms of the peer's.
    pub fn ratio(&self) -> Option<f64> {
        let peer = self.peer.as_ref()?;
        Some(self.ours.median / peer.number.median)
    }

    /// Whether the goal is met, where there is one.
    pub fn is_met(&self) -> Option<bool> {
        let ours = self.ours.median;
        Some(match self.goal? {
            Goal::AtMost(most) => ours <= most,
            Goal::AtLeast(least) => ours >= least,
            Goal::RatioAtMost(most) => self.ratio()? <= most,
            Goal::RatioAtLeast(least) => self.ratio()? >= least,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(goal: Goal) -> Row {
        Row::new("what", "ns", Spread::exactly(30.0))
            .beside("peer", Spread::exactly(60.0))
            .goal(goal)
    }

    #[test]
    fn goals_are_met_at_their_edge() {
        assert_eq!(row(Goal::AtMost(30.0)).is_met(), Some(true));
        assert_eq!(row(Goal::AtMost(29.9)).is_met(), Some(false));
        assert_eq!(row(Goal::AtLeast(30.0)).is_met(), Some(true));
        assert_eq!(row(Goal::AtLeast(30.1)).is_met(), Some(false));
        assert_eq!(row(Goal::RatioAtMost(0.5)).is_met(), Some(true));
        assert_eq!(row(Goal::RatioAtMost(0.4)).is_met(), Some(false));
        assert_eq!(row(Goal::RatioAtLeast(0.5)).is_met(), Some(true));
        assert_eq!(row(Goal::RatioAtLeast(0.6)).is_met(), Some(false));
    }

    #[test]
    fn without_a_peer_there_is_no_ratio() {
        let alone = Row::new("what", "ns", Spread::exactly(1.0));

        assert_eq!(alone.ratio(), None);
        assert_eq!(alone.clone().is_met(), None);
        assert_eq!(alone.goal(Goal::RatioAtLeast(1.0)).is_met(), None);
    }
}
