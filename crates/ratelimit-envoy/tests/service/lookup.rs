//! Bytes of clients, and requests that are invalid.

use proptest::prelude::*;
use ratelimit_envoy::{
    InvalidRequest, RulesBuilder,
    proto::envoy::{
        extensions::common::ratelimit::v3::rate_limit_descriptor::Entry,
        service::ratelimit::v3::{RateLimitRequest, RateLimitResponse, rate_limit_response::Code},
    },
};

use crate::descriptors::{Service, descriptor, request};

const RULES: &str = "
domain: edge
descriptors:
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 3 } }
  - { key: 'x-*', value: v, rate_limit: { unit: hour, requests_per_unit: 4 } }
  - { key: x-b, value: 'v*', rate_limit: { unit: hour, requests_per_unit: 5 } }
";

fn user(value: &[u8]) -> RateLimitRequest {
    let mut request = request(&["user=x"]);
    request.descriptors[0].entries[0].value = value.to_vec().into();
    request
}

#[tokio::test]
async fn every_byte_of_a_value_is_limited_and_none_is_echoed() {
    let long = vec![b'x'; 60_000];
    for value in [
        &b"a\xff"[..],
        b"\xff\xfe",
        b"a\r\nset-cookie: x",
        b"\0",
        b"\"; drop",
        &long,
        b"",
    ] {
        let service = Service::new(RULES);
        let mut codes = Vec::new();
        for _ in 0..4 {
            let response = service.response(&user(value)).await;
            codes.push(response.overall_code());
            let rest = RateLimitResponse {
                dynamic_metadata: None,
                ..response
            };
            let rest = format!("{rest:?}");
            assert!(!rest.contains("cookie") && !rest.contains("drop"), "{rest}");
        }
        assert_eq!(
            codes,
            [Code::Ok, Code::Ok, Code::Ok, Code::OverLimit],
            "{value:?}"
        );
    }
}

#[tokio::test]
async fn a_key_with_a_star_matches_keys_of_its_form() {
    let service = Service::new(RULES);

    let limit = async |entry: &str| {
        let response = service.response(&request(&[entry])).await;
        let limit = response.statuses[0].current_limit.clone();
        limit.map(|limit| limit.requests_per_unit)
    };
    assert_eq!(limit("x-a=v").await, Some(4));
    assert_eq!(limit("x-a=w").await, None);
    assert_eq!(
        limit("x-b=v").await,
        Some(4),
        "the first pattern of the file"
    );
    assert_eq!(limit("x-b=vv").await, Some(5));
}

#[test]
fn a_request_without_domain_or_descriptors_is_invalid() {
    let rules = RulesBuilder::new().build();
    let mut nameless = request(&["user=x"]);
    nameless.domain.clear();

    let error = |request: &RateLimitRequest| rules.resolve(request).err();
    assert_eq!(error(&nameless), Some(InvalidRequest::NoDomain));
    assert_eq!(error(&request(&[])), Some(InvalidRequest::NoDescriptors));
    assert_eq!(error(&request(&["user=x"])), None);
}

#[test]
fn at_most_64_budgets_are_charged_at_once() {
    let mut builder = RulesBuilder::new();
    builder.add_yaml(RULES);
    let rules = builder.build();
    let mut many = request(&[]);
    many.descriptors = vec![descriptor(&["user=x"]); 64];
    assert_eq!(rules.resolve(&many).unwrap().members().len(), 64);

    many.descriptors.push(descriptor(&["user=x"]));

    let error = rules.resolve(&many).err();
    assert_eq!(error, Some(InvalidRequest::TooManyDescriptors));
}

proptest! {
    #[test]
    fn different_entries_spend_different_budgets(
        one in entries(),
        other in entries(),
    ) {
        let yaml = "domain: edge\ndescriptors: [{ key: '*', rate_limit: { unit: day, requests_per_unit: 1 }, \
            descriptors: [{ key: '*', rate_limit: { unit: day, requests_per_unit: 1 } }] }]";
        let mut builder = RulesBuilder::new();
        builder.add_yaml(yaml);
        let rules = builder.build();
        let key = |entries: &[Entry]| {
            let mut request = request(&["x=y"]);
            request.descriptors[0].entries = entries.to_vec();
            let resolved = rules.resolve(&request).expect("a valid request");
            let member = resolved.members()[0].clone();
            (member.policy.name().to_owned(), member.keys.primary().clone())
        };
        prop_assert_eq!(key(&one) == key(&other), one == other);
    }
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let text = || proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'/'), Just(0xff)], 0..3);
    let entry = (text(), text()).prop_map(|(key, value)| Entry {
        key: key.into(),
        value: value.into(),
    });
    proptest::collection::vec(entry, 1..3)
}
