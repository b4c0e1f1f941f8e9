//! Rules that change nothing, because another says the same or more.

use crate::policy_file::{code::Code, finding::Findings, policy_values::Written};

/// Adds a finding for each rule that could be left out.
///
/// A blocked rule inside an exempt one is not among them: it makes an exception.
pub(super) fn find_overlapping(exempt: &[Written], blocked: &[Written], findings: &mut Findings) {
    find_within(exempt, findings);
    find_within(blocked, findings);
    for one in exempt {
        let wider = blocked.iter().find(|other| other.rule.covers(&one.rule));
        if let Some(wider) = wider {
            let (text, other) = (&one.text, &wider.text);
            let told = format!("{text} is never exempt: {other} is blocked, which goes first");
            findings.add(Code::OverlappingRule, one.line, told);
        }
    }
}

fn find_within(rules: &[Written], findings: &mut Findings) {
    for (place, one) in rules.iter().enumerate() {
        let mut others = rules.iter().enumerate();
        let wider = others.find(|(other_place, other)| {
            *other_place != place
                && other.rule.covers(&one.rule)
                && (*other_place < place || !one.rule.covers(&other.rule))
        });
        if let Some((_, wider)) = wider {
            let told = format!("{} lies in {} of the same list", one.text, wider.text);
            findings.add(Code::OverlappingRule, one.line, told);
        }
    }
}
