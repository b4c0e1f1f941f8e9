//! Rules that change nothing, because another says the same or more.

use crate::policy_file::{code::DiagnosticCode, diagnostic::Diagnostics, values::LocatedRule};

/// Adds a finding for each rule that could be left out.
///
/// A blocked rule inside an exempt one is not among them: it makes an exception.
pub(crate) fn find_overlapping(
    exempt: &[LocatedRule],
    blocked: &[LocatedRule],
    diagnostics: &mut Diagnostics,
) {
    find_within(exempt, diagnostics);
    find_within(blocked, diagnostics);
    for one in exempt {
        let wider = blocked.iter().find(|other| other.rule.covers(&one.rule));
        if let Some(wider) = wider {
            let (text, other) = (&one.text, &wider.text);
            let message = format!("{text} is never exempt: {other} is blocked, which goes first");
            diagnostics.add(DiagnosticCode::OverlappingRule, one.line, message);
        }
    }
}

fn find_within(rules: &[LocatedRule], diagnostics: &mut Diagnostics) {
    for (place, one) in rules.iter().enumerate() {
        let mut others = rules.iter().enumerate();
        let wider = others.find(|(other_place, other)| {
            *other_place != place
                && other.rule.covers(&one.rule)
                && (*other_place < place || !one.rule.covers(&other.rule))
        });
        if let Some((_, wider)) = wider {
            let message = format!("{} lies in {} of the same list", one.text, wider.text);
            diagnostics.add(DiagnosticCode::OverlappingRule, one.line, message);
        }
    }
}
