//! Rules of a configuration file: which budgets their descriptors spend.

use ratelimit_envoy::{
    Charge, Role, Rules, RulesBuilder,
    proto::envoy::{
        extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
        service::ratelimit::v3::RateLimitRequest,
    },
    read_rules,
};
use ratelimit_http::policy_file::{Diagnostics, Format, parse};

/// The rules of a YAML list.
fn rules(list: &str) -> Rules {
    let mut diagnostics = Diagnostics::new();
    let text = format!("rule:\n{list}");
    let node = parse(&text, Format::Yaml, &mut diagnostics).unwrap();
    let configs = read_rules(&node, &mut diagnostics);
    assert_eq!(diagnostics.sorted(), []);
    let mut builder = RulesBuilder::new();
    assert_eq!(builder.add_rules(&configs.rules, |_| None), []);
    builder.build()
}

fn request(entries: &[(&str, &[u8])]) -> RateLimitRequest {
    let entries = entries.iter().map(|(key, value)| Entry {
        key: (*key).to_owned().into(),
        value: value.to_vec().into(),
    });
    RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: entries.collect(),
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 0,
    }
}

/// The primary key of a descriptor, and the key of `by address`.
fn keys(rules: &Rules, entries: &[(&str, &[u8])]) -> (String, String) {
    let request = request(entries);
    let resolved = rules.resolve(&request).unwrap();
    let keys = &resolved.members()[0].keys;
    (keys.primary().to_string(), keys.get("address").to_string())
}

#[test]
fn the_key_is_made_of_the_entries_that_no_limit_counts_by() {
    let rules = rules(
        "- { domain: edge, match: [user], limits: 1/s }
- { domain: edge, match: [site=a, user], limits: 1/s }
- { domain: edge, match: [site=b, user, address], limits: 1/s; 2/s by address }
- { domain: edge, match: [site=c, user, address], limits: 1/s }
- { domain: edge, match: [address], limits: 1/s; 2/s by address }
- { domain: edge, match: [site=d], limits: 1/s }
- { domain: edge, match: [site=e, path=/login*], limits: 1/s }",
    );
    let keys = |entries: &[(&str, &[u8])]| keys(&rules, entries);
    let (user, address) = (("user", &b"al/ice"[..]), ("address", &b"192.0.2.1"[..]));

    assert_eq!(keys(&[user]).0, "key:al%2Fice");
    assert_eq!(keys(&[("site", b"a"), user]).0, "key:al%2Fice");
    assert_eq!(
        keys(&[("site", b"b"), user, address]),
        ("key:al%2Fice".to_owned(), "address:192.0.2.1".to_owned())
    );
    assert_eq!(
        keys(&[("site", b"c"), user, address]).0,
        "k:user/v:al%2Fice/k:address/v:192.0.2.1"
    );
    assert_eq!(
        keys(&[address]),
        ("key:192.0.2.1".to_owned(), "address:192.0.2.1".to_owned())
    );
    assert_eq!(keys(&[("site", b"d")]).0, "key:d");
    assert_eq!(
        keys(&[("site", b"e"), ("path", b"/login/x")]).0,
        "key:%2Flogin%2Fx"
    );
}

#[test]
fn any_bytes_have_a_key_of_their_own() {
    let rules = rules(
        "- { domain: edge, match: [user], limits: 1/s }
- { domain: edge, match: [user, address], limits: 1/s; 2/s by address }",
    );
    let values: [&[u8]; 5] = [b"", b"value", b"\xff", b"%FF", b"empty:value"];
    let own: Vec<String> = values
        .map(|value| keys(&rules, &[("user", value)]).0)
        .into();
    let by_address = values.map(|value| keys(&rules, &[("user", b"a"), ("address", value)]).1);
    for all in [own, by_address.into()] {
        for (index, key) in all.iter().enumerate() {
            assert!(!all[..index].contains(key), "{key}");
        }
    }
}

#[test]
fn rules_below_one_entry_are_separate_rules() {
    let rules = rules(
        "- { domain: edge, match: ['path=/a*', user], limits: 1/s, name: one }
- { domain: edge, match: ['path=/a*', address], limits: 2/s }
- { domain: edge, match: ['path=/a*'], limits: 3/s }
- { domain: web, match: ['path=/a*'], limits: 4/s }",
    );
    for (entries, name) in [
        (&[("path", &b"/ab"[..]), ("user", b"a")][..], "user"),
        (&[("path", b"/ab"), ("address", b"a")], "address"),
        (&[("path", b"/ab")], ""),
    ] {
        let request = request(entries);
        let resolved = rules.resolve(&request).unwrap();
        let policy = &resolved.members()[0].policy;
        let path = format!("rls:edge:path@_2fa_2a:{name}");
        assert_eq!(policy.name(), path.trim_end_matches(':'));
    }
    let unmatched = request(&[("path", b"/ab"), ("site", b"a")]);
    assert!(rules.resolve(&unmatched).unwrap().members().is_empty());
}

#[test]
fn a_descriptor_costs_its_addend_that_of_the_request_or_the_cost_of_the_policy() {
    let rules = rules("- { domain: edge, match: [user], limits: 10/s burst 50, cost: 3 }");
    for (own, of_request, charge) in [
        (None, 0, Charge::Request(3)),
        (None, 7, Charge::Request(7)),
        (Some(9), 7, Charge::Reading(9)),
        (Some(0), 7, Charge::Look),
        // 100 times the limit.
        (Some(u64::MAX), 0, Charge::Reading(5_000)),
    ] {
        let mut request = request(&[("user", b"a")]);
        request.hits_addend = of_request;
        request.descriptors[0].hits_addend = own;
        let resolved = rules.resolve(&request).unwrap();
        assert_eq!(resolved.members()[0].charge, charge);
    }
}

#[test]
fn a_policy_that_is_not_enforced_watches() {
    let rules = rules(
        "- { domain: edge, match: [a], limits: 1/s, shadow: true }
- { domain: edge, match: [b], limits: 1/s, enforced: 0 }
- { domain: edge, match: [c], limits: 1/s, enforced: 100 }",
    );
    for (key, role) in [("a", Role::Watch), ("b", Role::Watch), ("c", Role::Must)] {
        let request = request(&[(key, b"x")]);
        assert_eq!(rules.resolve(&request).unwrap().members()[0].role, role);
    }
}
