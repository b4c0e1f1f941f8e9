//! Warnings about rules without effect.

use std::collections::HashMap;

use ratelimit_core::Key;

use crate::{
    client_ip::Cidr,
    policy::Rule,
    policy_file::{code::DiagnosticCode, diagnostic::Diagnostics, values::LocatedRule},
};

/// The wider paths that a path is compared with. A path can have any number of slashes.
const MAX_SEGMENTS: usize = 64;

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
    let (exempt_index, blocked_index) = (RuleIndex::new(exempt), RuleIndex::new(blocked));
    report_covered(exempt, &exempt_index, diagnostics);
    report_covered(blocked, &blocked_index, diagnostics);
    for one in exempt {
        if let Some(wider) = blocked_index.first_that_covers(&one.rule, |_, _| true) {
            let (text, other) = (&one.text, &blocked[wider].text);
            let message = format!("{text} is never exempt: {other} is blocked, which goes first");
            diagnostics.add(DiagnosticCode::OverlappingRule, one.line, message);
        }
    }
}

/// Reports each rule that another rule of the same list covers.
fn report_covered(rules: &[LocatedRule], all: &RuleIndex<'_>, diagnostics: &mut Diagnostics) {
    for (index, one) in rules.iter().enumerate() {
        // Of equal rules all but the first are reported.
        let wider = all.first_that_covers(&one.rule, |other, is_equal| !is_equal || other < index);
        if let Some(wider) = wider {
            let message = format!(
                "{} lies in {} of the same list",
                one.text, rules[wider].text
            );
            diagnostics.add(DiagnosticCode::OverlappingRule, one.line, message);
        }
    }
}

/// The first place of each rule in a list.
///
/// A lookup does not depend on the length of the list: a list with 100,000 entries
/// is checked while a caller waits.
struct RuleIndex<'a>(HashMap<RuleId<'a>, usize>);

/// The content of a rule: equal rules have equal ids.
#[derive(PartialEq, Eq, Hash)]
enum RuleId<'a> {
    Address(Cidr),
    Key(&'a Key),
    Header(&'a str, Option<&'a str>),
    Path(&'a str),
    /// The part of a path before its star.
    PathPrefix(&'a str),
}

impl<'a> RuleIndex<'a> {
    fn new(rules: &'a [LocatedRule]) -> RuleIndex<'a> {
        let mut places = HashMap::with_capacity(rules.len());
        for (place, one) in rules.iter().enumerate() {
            places.entry(RuleId::of(&one.rule)).or_insert(place);
        }
        RuleIndex(places)
    }

    /// The first rule that covers `rule` and that is accepted by its place and by whether it is equal.
    fn first_that_covers(
        &self,
        rule: &Rule,
        is_accepted: impl Fn(usize, bool) -> bool,
    ) -> Option<usize> {
        let find = |id: RuleId<'_>, is_equal| {
            let place = self.0.get(&id).copied();
            place.filter(|place| is_accepted(*place, is_equal))
        };
        let wider = wider_ids(rule).into_iter();
        let wider = wider.filter_map(|id| find(id, false));
        wider.chain(find(RuleId::of(rule), true)).min()
    }
}

impl RuleId<'_> {
    fn of(rule: &Rule) -> RuleId<'_> {
        match rule {
            Rule::Address(network) => RuleId::Address(*network),
            Rule::Key(key) => RuleId::Key(key.key()),
            Rule::Header { name, value } => RuleId::Header(name, value.as_deref()),
            Rule::Path(path) => match path.strip_suffix('*') {
                Some(begin) => RuleId::PathPrefix(begin),
                None => RuleId::Path(path),
            },
        }
    }
}

/// The rules that cover `rule` and are not equal to it.
///
/// - An address: the networks with a shorter prefix that contain it.
/// - A header with a value: the same header with any value.
/// - A path: the paths with a star that end at one of its slashes.
/// - A key: none.
fn wider_ids(rule: &Rule) -> Vec<RuleId<'_>> {
    match rule {
        Rule::Address(network) => network.supernets().map(RuleId::Address).collect(),
        Rule::Header {
            name,
            value: Some(_),
        } => vec![RuleId::Header(name, None)],
        Rule::Path(path) => {
            let own = path.strip_suffix('*');
            let slashes = path.match_indices('/').map(|(index, _)| &path[..=index]);
            let wider = slashes.filter(|begin| Some(*begin) != own);
            wider.take(MAX_SEGMENTS).map(RuleId::PathPrefix).collect()
        }
        Rule::Key(_) | Rule::Header { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn located(texts: &[String]) -> Vec<LocatedRule> {
        let rules = texts.iter().enumerate().map(|(index, text)| LocatedRule {
            line: index + 1,
            text: text.clone(),
            rule: text.parse().unwrap(),
        });
        rules.collect()
    }

    #[test]
    fn the_index_finds_what_a_comparison_of_all_pairs_finds() {
        let texts = "10.0.0.0/8 10.1.0.0/16 10.1.2.3 128.0.0.0/1 192.0.2.7 fd00::/8 fd00::1 ::1 10.1.2.3 key:a printed:key:a \
            key:b header:x header:x=1 header:y=1 header:y=1 path:/* path:/a path:/a/* path:/a/b path:/a/ path:/a/* path:/ab/*";
        let texts: Vec<String> = texts.split(' ').map(str::to_owned).collect();
        let rules = located(&texts);
        let index = RuleIndex::new(&rules);
        for (place, one) in rules.iter().enumerate() {
            let mut others = rules.iter().enumerate();
            let expected = others.find(|(other, wider)| {
                *other != place
                    && wider.rule.covers(&one.rule)
                    && (*other < place || !one.rule.covers(&wider.rule))
            });
            let found =
                index.first_that_covers(&one.rule, |other, is_equal| !is_equal || other < place);
            assert_eq!(found, expected.map(|(other, _)| other), "{}", one.text);
        }
    }

    #[test]
    fn a_hundred_thousand_rules_are_compared_in_a_moment() {
        let address = |number: u32| std::net::Ipv4Addr::from_bits(number * 2).to_string();
        let exempt: Vec<String> = (1..100_000).map(address).collect();
        let key = |number: u32| format!("key:{number}");
        let blocked: Vec<String> = (1..100_000).map(key).collect();
        let (exempt, blocked) = (located(&exempt), located(&blocked));
        let begin = std::time::Instant::now();

        let mut found = Diagnostics::new();
        report_overlapping(&exempt, &blocked, &mut found);

        assert!(begin.elapsed().as_secs() < 10, "{:?}", begin.elapsed());
    }
}
