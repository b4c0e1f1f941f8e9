//! The answers that Envoy's own rate limit server gives to the same questions, and where ours differ on purpose.

use std::time::Duration;

use prost_types::{Struct, Value, value::Kind};
use ratelimit_envoy::{
    InvalidRequest,
    proto::envoy::service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse, rate_limit_response::rate_limit::Unit,
    },
};

use crate::descriptors::{Service, descriptor, own_addend, request, shown, with_limit};

const RULES: &str = "
domain: edge
descriptors:
  - { key: ten, rate_limit: { unit: hour, requests_per_unit: 10 } }
  - { key: zero, rate_limit: { unit: hour, requests_per_unit: 0 } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: shadowed, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 2 } }
  - { key: named, rate_limit: { unit: hour, requests_per_unit: 2, name: base } }
  - key: replacing
    rate_limit: { unit: hour, requests_per_unit: 3, name: better, replaces: [{ name: base }] }
  - key: q1
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
    metadata: { pool: { name: one, first: 1 } }
  - key: q2
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 2 }
    metadata: { pool: { name: two, second: yes } }
  - { key: path, value: /a/*, share_threshold: true, rate_limit: { unit: hour, requests_per_unit: 2 } }
  - { key: path, value: /b/*, rate_limit: { unit: hour, requests_per_unit: 2 } }
  - { key: path, value: /b/exact, rate_limit: { unit: hour, requests_per_unit: 7 } }
  - { key: path, value: /*/mid/*, rate_limit: { unit: hour, requests_per_unit: 5 } }
  - { key: path, rate_limit: { unit: hour, requests_per_unit: 9 } }
  - { key: allow, value: listed }
  - key: deep
    rate_limit: { unit: hour, requests_per_unit: 4 }
    descriptors: [{ key: leaf, rate_limit: { unit: hour, requests_per_unit: 6 } }]
  - { key: a, value: b_c, rate_limit: { unit: hour, requests_per_unit: 11 } }
  - { key: a, rate_limit: { unit: hour, requests_per_unit: 12 } }
  - { key: month, rate_limit: { unit: month, requests_per_unit: 100 } }
  - { key: year, rate_limit: { unit: year, requests_per_unit: 200000000 } }
  - { key: week, rate_limit: { unit: week, requests_per_unit: 100 } }
";

fn addend(entry: &str, hits_addend: u32) -> RateLimitRequest {
    RateLimitRequest {
        hits_addend,
        ..request(&[entry])
    }
}

#[tokio::test]
async fn a_request_that_asks_too_much_is_denied_and_costs_nothing() {
    let service = Service::new(RULES);

    assert_eq!(
        service.ask(&addend("ten=1", 8)).await,
        "OK [OK 10/h rem=2 reset=1758]"
    );
    assert_eq!(
        service.ask(&addend("ten=1", 5)).await,
        "OVER [OVER 10/h rem=0 reset=1758]"
    );
    // Their server charges the 5 and denies everything for the rest of the hour.
    assert_eq!(
        service.ask(&addend("ten=1", 0)).await,
        "OK [OK 10/h rem=1 reset=1758]"
    );
}

#[tokio::test]
async fn a_look_charges_nothing_and_a_reading_is_recorded_beyond_the_limit() {
    let service = Service::new(RULES);
    for (units, expected) in [
        (0, "OK [OK 10/h rem=10 reset=1758]"),
        (10, "OK [OK 10/h rem=0 reset=1758]"),
        (0, "OK [OK 10/h rem=0 reset=1758]"),
        (1, "OVER [OVER 10/h rem=0 reset=1758]"),
        (0, "OVER [OVER 10/h rem=0 reset=1758]"),
    ] {
        assert_eq!(service.ask(&own_addend("ten=2", units)).await, expected);
    }
    service.clock.advance(Duration::from_secs(1758));
    assert_eq!(
        service.ask(&own_addend("ten=2", 0)).await,
        "OK [OK 10/h rem=10 reset=3600]"
    );
}

#[tokio::test]
async fn a_reading_of_any_size_exceeds_the_limit() {
    let service = Service::new(RULES);
    for (key, units) in [("ten=3", 2_000_000), ("ten=4", u64::MAX)] {
        assert_eq!(
            service.ask(&own_addend(key, 9)).await,
            "OK [OK 10/h rem=1 reset=1758]"
        );
        for units in [units, 0, 1, 0] {
            assert_eq!(
                service.ask(&own_addend(key, units)).await,
                "OVER [OVER 10/h rem=0 reset=1758]"
            );
        }
    }
}

#[tokio::test]
async fn the_addend_of_a_descriptor_beats_that_of_the_request() {
    let service = Service::new(RULES);
    let mut both = own_addend("ten=5", 3);
    both.hits_addend = 7;
    let mut negative = own_addend("ten=5", 2);
    negative.descriptors[0].is_negative_hits = true;

    assert_eq!(service.ask(&both).await, "OK [OK 10/h rem=7 reset=1758]");
    // Their server charges the 2 as well.
    assert_eq!(
        service.ask(&negative).await,
        "OK [OK 10/h rem=9 reset=1758]"
    );
    negative.descriptors[0].hits_addend = Some(u64::MAX);
    assert_eq!(
        service.ask(&negative).await,
        "OK [OK 10/h rem=10 reset=1758]"
    );
}

#[tokio::test]
async fn a_reading_that_is_too_much_is_recorded_and_denies_the_plain_rules_beside_it() {
    let service = Service::new(RULES);
    let mut mixed = request(&["ten=20", "named=20"]);
    mixed.descriptors[1].hits_addend = Some(2);
    assert_eq!(
        service.ask(&mixed).await,
        "OK [OK 10/h rem=9 reset=1758; OK 2/h base rem=0 reset=1758]"
    );
    for _ in 0..2 {
        assert_eq!(
            service.ask(&mixed).await,
            "OVER [OK 10/h rem=9 reset=1758; OVER 2/h base rem=0 reset=1758]"
        );
    }
    // 6 of 2 are recorded now.
    let mut credit = own_addend("named=20", 3);
    credit.descriptors[0].is_negative_hits = true;
    service.ask(&credit).await;
    let look = own_addend("named=20", 0);
    assert!(service.ask(&look).await.starts_with("OVER"));
    credit.descriptors[0].hits_addend = Some(1);
    service.ask(&credit).await;
    assert!(service.ask(&look).await.starts_with("OK"));
}

#[tokio::test]
async fn a_plain_rule_that_denies_leaves_the_reading_beside_it_unrecorded() {
    let service = Service::new(RULES);
    let mut mixed = request(&["named=21", "ten=21"]);
    mixed.descriptors[1].hits_addend = Some(4);
    for remaining in [6, 2] {
        let shown = service.ask(&mixed).await;
        assert!(shown.contains(&format!("10/h rem={remaining} ")), "{shown}");
    }
    assert!(service.ask(&mixed).await.starts_with("OVER [OVER"));
    let look = own_addend("ten=21", 0);
    assert_eq!(service.ask(&look).await, "OK [OK 10/h rem=2 reset=1758]");
}

#[tokio::test]
async fn readings_of_one_request_are_recorded_whatever_the_others_have_left() {
    let service = Service::new(RULES);
    let mut readings = request(&["named=22", "ten=22"]);
    for descriptor in &mut readings.descriptors {
        descriptor.hits_addend = Some(1_000_000);
    }
    for _ in 0..2 {
        assert!(service.ask(&readings).await.starts_with("OVER [OVER"));
    }
    readings.descriptors[1] = own_addend("ten=23", 4).descriptors.remove(0);

    service.ask(&readings).await;

    let look = own_addend("ten=23", 0);
    assert_eq!(service.ask(&look).await, "OK [OK 10/h rem=6 reset=1758]");
}

#[tokio::test]
async fn a_request_of_more_than_64_budgets_is_invalid() {
    let service = Service::new(RULES);
    let mut many = request(&["ten=24"; 64]);
    many.descriptors[0] = own_addend("named=24", 1).descriptors.remove(0);
    let error = service.rules.resolve(&many).unwrap_err();
    assert_eq!(error, InvalidRequest::TooManyDescriptors);
    many.descriptors.pop();
    assert!(service.rules.resolve(&many).is_ok());
    let too_many = request(&["ten=24"; 65]);
    let error = service.rules.resolve(&too_many).unwrap_err();
    assert_eq!(error, InvalidRequest::TooManyDescriptors);
    let mut readings = request(&["ten=24"; 64]);
    for descriptor in &mut readings.descriptors {
        descriptor.hits_addend = Some(1);
    }
    assert!(service.ask(&readings).await.starts_with("OVER"));
}

#[tokio::test]
async fn a_limit_of_0_denies_all_but_looks() {
    let service = Service::new(RULES);

    assert_eq!(
        service.ask(&request(&["zero=1"])).await,
        "OVER [OVER 0/h rem=0 reset=1758]"
    );
    assert_eq!(
        service.ask(&own_addend("zero=1", 0)).await,
        "OK [OK 0/h rem=0 reset=1758]"
    );
    assert_eq!(
        service.ask(&request(&["ten=6", "zero=1"])).await,
        "OVER [OK 10/h rem=10 reset=1758; OVER 0/h rem=0 reset=1758]"
    );
}

#[tokio::test]
async fn a_descriptor_without_a_limit_passes() {
    let service = Service::new(RULES);
    for (entry, expected) in [
        ("free=1", "OK [OK no-limit rem=4294967295]"),
        ("nobody=1", "OK [OK no-limit rem=0]"),
        ("allow=listed", "OK [OK no-limit rem=0]"),
        ("allow=other", "OK [OK no-limit rem=0]"),
    ] {
        assert_eq!(service.ask(&request(&[entry])).await, expected);
    }
    let mut elsewhere = request(&["ten=7"]);
    elsewhere.domain = "nowhere".to_owned();
    assert_eq!(service.ask(&elsewhere).await, "OK [OK no-limit rem=0]");
}

#[tokio::test]
async fn a_rule_in_shadow_mode_counts_and_never_denies() {
    let service = Service::new(RULES);
    for remaining in [1, 0, 0, 0] {
        assert_eq!(
            service.ask(&request(&["shadowed=1"])).await,
            format!("OK [OK 2/h rem={remaining} reset=1758]")
        );
    }
}

#[tokio::test]
async fn a_replaced_rule_is_not_charged() {
    let service = Service::new(RULES);

    assert_eq!(
        service.ask(&request(&["named=1"])).await,
        "OK [OK 2/h base rem=1 reset=1758]"
    );
    assert_eq!(
        service.ask(&request(&["named=1", "replacing=1"])).await,
        "OK [OK no-limit rem=0; OK 3/h better rem=2 reset=1758]"
    );
    assert_eq!(
        service.ask(&request(&["named=1"])).await,
        "OK [OK 2/h base rem=0 reset=1758]"
    );
}

#[tokio::test]
async fn quota_mode_passes_while_any_rule_has_budget() {
    let service = Service::new(RULES);
    let both = request(&["q1=1", "q2=1"]);
    for (expected, pool) in [
        (
            "OK [OK 1/h rem=0 reset=1758; OK 2/h rem=1 reset=1758]",
            Some("one"),
        ),
        (
            "OK [OVER 1/h rem=0 reset=1758; OK 2/h rem=0 reset=1758]",
            Some("two"),
        ),
        (
            "OVER [OVER 1/h rem=0 reset=1758; OVER 2/h rem=0 reset=1758]",
            None,
        ),
        (
            "OVER [OVER 1/h rem=0 reset=1758; OVER 2/h rem=0 reset=1758]",
            None,
        ),
    ] {
        let response = service.response(&both).await;
        assert_eq!(shown(&response), expected);
        let metadata = field(metadata(&response), "metadata");
        let name = metadata
            .and_then(|metadata| field(fields(metadata), "pool"))
            .and_then(|pool| field(fields(pool), "name"));
        let name = name.map(|name| match &name.kind {
            Some(Kind::StringValue(text)) => text.as_str(),
            other => panic!("{other:?}"),
        });
        assert_eq!(name, pool);
    }
}

#[tokio::test]
async fn metadata_of_several_rules_is_merged() {
    let service = Service::new(RULES);
    let mut request = request(&["q1=2", "q2=2"]);
    request.hits_addend = 1;

    let response = service.response(&request).await;

    let all = metadata(&response);
    let names: Vec<&str> = all.fields.keys().map(String::as_str).collect();
    assert_eq!(names, ["descriptors", "domain", "hitsAddend", "metadata"]);
    let pool = field(fields(field(all, "metadata").unwrap()), "pool").unwrap();
    let names: Vec<&str> = fields(pool).fields.keys().map(String::as_str).collect();
    assert_eq!(names, ["first", "name", "second"]);
}

fn metadata(response: &RateLimitResponse) -> &Struct {
    response.dynamic_metadata.as_ref().expect("it is asked for")
}

fn field<'a>(all: &'a Struct, name: &str) -> Option<&'a Value> {
    all.fields.get(name)
}

fn fields(value: &Value) -> &Struct {
    match &value.kind {
        Some(Kind::StructValue(fields)) => fields,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_exact_value_goes_before_patterns_and_patterns_before_the_key() {
    let service = Service::new(RULES);
    for (entry, expected) in [
        ("path=/a/1", "OK [OK 2/h rem=1 reset=1758]"),
        ("path=/a/2", "OK [OK 2/h rem=0 reset=1758]"),
        ("path=/a/3", "OVER [OVER 2/h rem=0 reset=1758]"),
        ("path=/b/x", "OK [OK 2/h rem=1 reset=1758]"),
        ("path=/b/y", "OK [OK 2/h rem=1 reset=1758]"),
        ("path=/b/exact", "OK [OK 7/h rem=6 reset=1758]"),
        ("path=/z/mid/q", "OK [OK 5/h rem=4 reset=1758]"),
        ("path=/other", "OK [OK 9/h rem=8 reset=1758]"),
        ("path=", "OK [OK 9/h rem=8 reset=1758]"),
    ] {
        assert_eq!(service.ask(&request(&[entry])).await, expected, "{entry}");
    }
}

#[tokio::test]
async fn all_entries_of_a_descriptor_must_match() {
    let service = Service::new(RULES);
    for (entries, expected) in [
        (&["deep=1"][..], "OK [OK 4/h rem=3 reset=1758]"),
        (&["deep=1", "leaf=1"], "OK [OK 6/h rem=5 reset=1758]"),
        (&["deep=1", "zzz=1"], "OK [OK no-limit rem=0]"),
        (&["deep=1", "leaf=1", "more=1"], "OK [OK no-limit rem=0]"),
        (&["leaf=1"], "OK [OK no-limit rem=0]"),
    ] {
        let mut asked = request(&[]);
        asked.descriptors = vec![descriptor(entries)];
        assert_eq!(service.ask(&asked).await, expected, "{entries:?}");
    }
}

#[tokio::test]
async fn keys_and_values_do_not_run_into_each_other() {
    let service = Service::new(RULES);

    assert_eq!(
        service.ask(&request(&["a=b_c"])).await,
        "OK [OK 11/h rem=10 reset=1758]"
    );
    // Their server limits it by the rule `a: b_c`.
    assert_eq!(
        service.ask(&request(&["a_b=c"])).await,
        "OK [OK no-limit rem=0]"
    );
}

#[tokio::test]
async fn a_denied_request_charges_no_other_rule() {
    let service = Service::new(RULES);
    let both = request(&["ten=8", "named=8"]);
    for remaining in [(9, 1), (8, 0)] {
        assert_eq!(
            service.ask(&both).await,
            format!(
                "OK [OK 10/h rem={} reset=1758; OK 2/h base rem={} reset=1758]",
                remaining.0, remaining.1
            )
        );
    }
    for _ in 0..3 {
        assert_eq!(
            service.ask(&both).await,
            "OVER [OK 10/h rem=8 reset=1758; OVER 2/h base rem=0 reset=1758]"
        );
    }
}

#[tokio::test]
async fn a_limit_of_the_descriptor_replaces_that_of_the_rule() {
    let service = Service::new(RULES);

    assert_eq!(
        service.ask(&request(&["ten=9"])).await,
        "OK [OK 10/h rem=9 reset=1758]"
    );
    // The same unit spends the same count.
    assert_eq!(
        service.ask(&with_limit("ten=9", 7, Unit::Hour)).await,
        "OK [OK 7/h rem=5 reset=1758]"
    );
    // Another unit has a count of its own, and leaves that of the rule as it is.
    assert_eq!(
        service.ask(&with_limit("ten=9", 3, Unit::Minute)).await,
        "OK [OK 3/m rem=2 reset=18]"
    );
    assert_eq!(
        service.ask(&request(&["ten=9"])).await,
        "OK [OK 10/h rem=7 reset=1758]"
    );
    // Too large to be counted exactly.
    assert_eq!(
        service
            .ask(&with_limit("ten=19", u32::MAX, Unit::Year))
            .await,
        "OK [OK 10/h rem=9 reset=1758]"
    );
    // Their server dies of a unit of 0.
    assert_eq!(
        service.ask(&with_limit("ten=9", 1, Unit::Unknown)).await,
        "OK [OK 10/h rem=6 reset=1758]"
    );
    assert_eq!(
        service.ask(&with_limit("ten=9", 0, Unit::Hour)).await,
        "OVER [OVER 0/h rem=0 reset=1758]"
    );
    assert_eq!(
        service.ask(&with_limit("unknown=1", 2, Unit::Hour)).await,
        "OK [OK 2/h rem=1 reset=1758]"
    );
    assert_eq!(
        service.ask(&with_limit("shadowed=9", 0, Unit::Hour)).await,
        "OVER [OVER 0/h rem=0 reset=1758]",
        "the shadow mode of the rule does not apply"
    );
}

#[tokio::test]
async fn a_multiplier_makes_the_period_of_a_descriptors_limit_longer() {
    let service = Service::new(RULES);
    let mut quarter = with_limit("ten=10", 5, Unit::Minute);
    quarter.descriptors[0]
        .limit
        .as_mut()
        .unwrap()
        .unit_multiplier = Some(15);

    assert_eq!(
        service.ask(&quarter).await,
        "OK [OK 5/mx15 rem=4 reset=858]"
    );
    for multiplier in [0, 1_000_000] {
        let mut bad = quarter.clone();
        bad.descriptors[0].limit.as_mut().unwrap().unit_multiplier = Some(multiplier);
        let shown = service.ask(&bad).await;
        assert!(shown.starts_with("OK [OK 10/h "), "{shown}");
    }
}

#[tokio::test]
async fn long_periods_and_large_limits_are_counted() {
    let service = Service::new(RULES);
    for (entry, expected) in [
        ("week=1", "OK [OK 100/w rem=99 "),
        ("month=1", "OK [OK 100/m rem=99 "),
        ("year=1", "OK [OK 200000000/y rem=199999999 "),
    ] {
        let shown = service.ask(&request(&[entry])).await;
        assert!(shown.starts_with(expected), "{shown}");
    }
}

#[tokio::test]
async fn a_credit_is_no_quota_with_budget() {
    let service = Service::new(RULES);
    assert!(service.ask(&request(&["q1=9"])).await.starts_with("OK"));
    for other in ["q2=9", "zero=9"] {
        let mut beside_credit = request(&["q1=9", other]);
        beside_credit.descriptors[1].is_negative_hits = true;

        assert!(service.ask(&beside_credit).await.starts_with("OVER"));
    }
}
