//! Which budget a bucket spends, and which policies grants cannot carry.

use ratelimit_envoy::{
    Rules, RulesBuilder, UnmatchedBuckets,
    proto::envoy::service::rate_limit_quota::v3::{BucketId, bucket_id::BucketEntry},
    read_rules,
};
use ratelimit_http::policy_file::{Diagnostics, Format, parse};

fn build(text: &str) -> (Rules, Vec<String>) {
    let mut diagnostics = Diagnostics::new();
    let node = parse(text, Format::Yaml, &mut diagnostics).unwrap();
    let config = read_rules(&node, &mut diagnostics);
    let mut findings = diagnostics.sorted();
    let mut builder = RulesBuilder::new();
    findings.extend(builder.add_buckets(&config.buckets, config.unmatched, |_| None));
    let codes = findings.iter().map(|finding| finding.code.to_string());
    (builder.build(), codes.collect())
}

fn id(entries: &[(&str, &[u8])]) -> BucketId {
    let entries = entries.iter().map(|(key, value)| BucketEntry {
        key: (*key).to_owned().into(),
        value: value.to_vec().into(),
    });
    BucketId {
        bucket: entries.collect(),
    }
}

#[test]
fn a_bucket_is_found_by_its_entries_in_any_order() {
    let (rules, codes) = build(
        "unmatched: deny
bucket:
- { domain: edge, match: [user, limit=per-user], limits: fixed_window 60/min }
- { domain: edge, match: [limit=rest], limits: 100/min }
- { domain: edge, match: [path=/a*], limits: 100/min }",
    );
    assert_eq!(codes, [""; 0]);
    assert_eq!(rules.unmatched_buckets(), UnmatchedBuckets::Deny);
    let name = |domain: &str, entries: &[(&str, &[u8])]| {
        let target = rules.quota_target(domain, &id(entries))?;
        Some(target.policy_name().to_owned())
    };
    let per_user = Some("rlqs:edge:limit@per-user:user".to_owned());
    let (limit, user) = (("limit", &b"per-user"[..]), ("user", &b"a\xff"[..]));
    assert_eq!(name("edge", &[limit, user]), per_user);
    assert_eq!(name("edge", &[user, limit]), per_user);
    assert_eq!(name("edge", &[limit]), None);
    assert_eq!(name("other", &[limit, user]), None);
    assert_eq!(name("edge", &[]), None);
    assert!(name("edge", &[("path", b"/abc")]).is_some());
    assert_eq!(name("edge", &[("path", b"/b")]), None);

    let other = rules.quota_target("edge", &id(&[limit, ("user", b"b")]));
    let own = rules.quota_target("edge", &id(&[limit, user])).unwrap();
    assert!(!own.is_same(&other.unwrap()), "each user has a budget");
    assert!(own.is_same(&rules.quota_target("edge", &id(&[user, limit])).unwrap()));
}

#[test]
fn policies_that_grants_cannot_carry_are_refused() {
    let codes = |rule: &str| {
        build(&format!(
            "bucket: [{{ domain: edge, match: [user], {rule} }}]"
        ))
        .1
    };
    for (rule, expected) in [
        ("limits: 20/s burst 119", "rlqs-too-fine"),
        ("limits: fixed_window 5/9s", "rlqs-too-fine"),
        (
            "limits: 100/min, tiers: { pro: 1000/s }, tenants: { a: pro }",
            "rlqs-too-fine",
        ),
        ("limits: concurrency 5", "bad-limit"),
        ("limits: 100/min; penalty_box 10/h for 1h", "bad-limit"),
        ("limits: leaky_bucket 100/min", "bad-limit"),
        (
            "limits: sliding_window_log 100/min count-denied",
            "bad-limit",
        ),
        ("limits: 100/min, name: x", "ignored-field"),
        ("limits: 100/min, on_failure: open", "ignored-field"),
        ("limits: 100/min, throttle: soft 10%", "ignored-field"),
        ("policy: missing", "unknown-policy"),
    ] {
        let found = codes(rule);
        assert!(found.contains(&expected.to_owned()), "{rule}: {found:?}");
    }
    assert_eq!(
        codes("limits: 20/s burst 120; fixed_window 300/10s"),
        [""; 0]
    );

    for (text, expected) in [
        (
            "unmatched: deny\nrule: [{ domain: a, match: [b], limits: 1/s }]",
            "conflicting-fields",
        ),
        (
            "unmatched: maybe\nbucket: [{ domain: a, match: [b], limits: 1/min }]",
            "bad-value",
        ),
        (
            "bucket: [{ domain: a, match: [b, b=c], limits: 1/min }]",
            "bad-value",
        ),
        ("bucket: []", "missing-field"),
    ] {
        let found = build(text).1;
        assert!(found.contains(&expected.to_owned()), "{text}: {found:?}");
    }
}
