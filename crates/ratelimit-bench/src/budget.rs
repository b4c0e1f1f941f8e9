//! How much each counted work may cost.

use std::{collections::BTreeMap, fmt, fmt::Write as _};

/// Headroom of instructions when a budget is written, in percent.
const HEADROOM: f64 = 5.0;

/// How the names of counts end that do not vary from run to run.
const EXACT: &str = ".allocations";

/// A count this much below its budget, in percent, means that the budget can be lowered.
const SLACK: f64 = 15.0;

const HEAD: &str = "\
# What each work may cost at most: instructions, or allocations where the name says so.
# `cargo xtask gate` compares, and `cargo xtask gate --write` writes what it counts, and 5 % more where
# it is instructions.
# A number that is raised on purpose is explained in its commit.
";

/// The most that each work may cost, by its name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budget(BTreeMap<String, f64>);

impl Budget {
    /// Reads `name = number` lines; `#` begins a comment.
    ///
    /// # Errors
    ///
    /// When a line is anything else, or names what was named before.
    pub fn parse(text: &str) -> Result<Budget, InvalidBudget> {
        let mut most = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let pair = line.split_once('=').and_then(|(name, value)| {
                let value: f64 = value.trim().parse().ok()?;
                Some((name.trim().to_owned(), value))
            });
            let (name, value) = pair.ok_or(InvalidBudget(number))?;
            if most.insert(name, value).is_some() {
                return Err(InvalidBudget(number));
            }
        }
        Ok(Budget(most))
    }

    /// A budget with some headroom over counted instructions, and none over allocations.
    pub fn above(counted: &[(String, f64)]) -> Budget {
        let most = counted.iter().map(|(name, count)| {
            let most = if name.ends_with(EXACT) {
                *count
            } else {
                (count * (1.0 + HEADROOM / 100.0)).ceil()
            };
            (name.clone(), most)
        });
        Budget(most.collect())
    }

    /// The finding for each work, in the order of the counts.
    pub fn compare(&self, counted: &[(String, f64)]) -> Vec<Finding> {
        let judged = counted.iter().map(|(name, count)| Finding {
            name: name.clone(),
            count: Some(*count),
            most: self.0.get(name).copied(),
        });
        let gone = self
            .0
            .iter()
            .filter(|(name, _)| counted.iter().all(|(counted, _)| counted != *name))
            .map(|(name, most)| Finding {
                name: name.clone(),
                count: None,
                most: Some(*most),
            });
        judged.chain(gone).collect()
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEAD)?;
        let mut group = "";
        for (name, most) in &self.0 {
            let first = name.split('.').next().unwrap_or_default();
            if group != first {
                f.write_char('\n')?;
                group = first;
            }
            writeln!(f, "{name} = {most}")?;
        }
        Ok(())
    }
}

/// A work, what it cost, and what it may cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The work.
    pub name: String,
    /// The counted cost; `None` if it was not measured.
    pub count: Option<f64>,
    /// The budget; `None` if there is none.
    pub most: Option<f64>,
}

impl Finding {
    /// Whether the gate stays shut for it.
    pub fn fails(&self) -> bool {
        match (self.count, self.most) {
            (Some(count), Some(most)) => count > most,
            _ => true,
        }
    }

    /// Whether its budget is far above what it costs.
    pub fn is_slack(&self) -> bool {
        match (self.count, self.most) {
            (Some(count), Some(most)) => count < most * (1.0 - SLACK / 100.0),
            _ => false,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match (self.count, self.most) {
            (Some(count), Some(most)) => {
                write!(f, "{name:<50} {count:>10.1} of {most:>8}")?;
                if most > 0.0 {
                    write!(f, " {:>+6.1} %", (count / most - 1.0) * 100.0)?;
                }
                if self.fails() {
                    f.write_str("  too much")
                } else if self.is_slack() {
                    f.write_str("  the budget can be lowered")
                } else {
                    Ok(())
                }
            }
            (Some(count), None) => write!(f, "{name:<50} {count:>10.1}  has no budget"),
            (None, _) => write!(f, "{name:<50} has a budget, and is not measured"),
        }
    }
}

/// A line of a budget that is not `name = number`, or names what was named before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidBudget(usize);

impl fmt::Display for InvalidBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {} is not `name = number`, or repeats a name",
            self.0
        )
    }
}

impl std::error::Error for InvalidBudget {}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(counts: &[(&str, f64)]) -> Vec<(String, f64)> {
        let owned = |(name, count): &(&str, f64)| ((*name).to_owned(), *count);
        counts.iter().map(owned).collect()
    }

    fn findings(budget: &str, counts: &[(&str, f64)]) -> Vec<Finding> {
        Budget::parse(budget).unwrap().compare(&counted(counts))
    }

    #[test]
    fn a_count_above_its_budget_fails_and_one_at_it_passes() {
        let found = findings("a = 100 # why\nb = 100\n", &[("a", 100.0), ("b", 100.1)]);

        assert!(!found[0].fails());
        assert!(found[1].fails());
        assert!(found[1].to_string().contains("too much"));
    }

    #[test]
    fn one_allocation_more_in_a_thousand_times_fails() {
        let budget = Budget::above(&counted(&[("a.allocations", 3.0)]));

        assert!(!budget.compare(&counted(&[("a.allocations", 3.0)]))[0].fails());
        assert!(budget.compare(&counted(&[("a.allocations", 3.001)]))[0].fails());
    }

    #[test]
    fn a_budget_far_above_the_count_is_reported() {
        let found = findings("a = 100\nb = 100\n", &[("a", 84.0), ("b", 86.0)]);

        assert!(found[0].is_slack() && !found[0].fails());
        assert!(!found[1].is_slack());
    }

    #[test]
    fn a_work_without_a_budget_and_a_budget_without_a_work_fail() {
        let found = findings("gone = 1\n", &[("new", 1.0)]);

        assert!(found.iter().all(Finding::fails));
        assert!(found[0].to_string().contains("has no budget"));
        assert!(found[1].to_string().contains("is not measured"));
    }

    #[test]
    fn what_is_written_can_be_read() {
        let budget = Budget::above(&counted(&[("a.b", 100.0), ("c.d", 0.0), ("a.a", 10.5)]));

        assert_eq!(Budget::parse(&budget.to_string()), Ok(budget.clone()));
        assert_eq!(
            Budget::parse("a.a = 12\na.b = 105\nc.d = 0").unwrap(),
            budget
        );
    }

    #[test]
    fn a_line_that_is_not_understood_is_named() {
        assert_eq!(Budget::parse("a = 1\nb 2"), Err(InvalidBudget(2)));
        assert_eq!(Budget::parse("a = 1\na = 2"), Err(InvalidBudget(2)));
    }
}
