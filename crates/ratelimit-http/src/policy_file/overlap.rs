//! Warnings about rules without effect.

use crate::policy_file::{code::DiagnosticCode, diagnostic::Diagnostics, values::LocatedRule};

/// Reports each rule that another rule makes ineffective.
///
/// - A rule that a wider rule of the same list covers.
/// - An exempt rule that a blocked rule covers, because blocking has precedence.
///
/// A blocked rule inside an exempt one is an exception and not reported.
pub(crate) fn report_overlapping(
    exempt: &[LocatedRule],
    blocked: &[LocatedRule],
    diagnostics: &mut Diagnostics,
) {
    report_covered(exempt, diagnostics);
    report_covered(blocked, diagnostics);
    for one in exempt {
        let wider = blocked.iter().find(|other| other.rule.covers(&one.rule));
        if let Some(wider) = wider {
            let (text, other) = (&one.text, &wider.text);
            let message = format!("{text} is never exempt: {other} is blocked, which goes first");
            diagnostics.add(DiagnosticCode::OverlappingRule, one.line, message);
        }
    }
}

/// Reports each rule that another rule of the same list covers.
fn report_covered(rules: &[LocatedRule], diagnostics: &mut Diagnostics) {
    for (index, one) in rules.iter().enumerate() {
        let mut others = rules.iter().enumerate();
        let wider = others.find(|(other_index, other)| {
            *other_index != index
                && other.rule.covers(&one.rule)
                && (*other_index < index || !one.rule.covers(&other.rule))
        });
        if let Some((_, wider)) = wider {
            let message = format!("{} lies in {} of the same list", one.text, wider.text);
            diagnostics.add(DiagnosticCode::OverlappingRule, one.line, message);
        }
    }
}
