//! Resources of the discovery service: the rules of a file in another form.

use std::time::{Duration, Instant};

use prost::Message as _;
use prost_types::{Any, Struct, Value, value::Kind};
use ratelimit_envoy::{
    RESOURCE_TYPE, RulesBuilder, RulesResponse,
    proto::{
        envoy::service::discovery::v3::DiscoveryResponse,
        ratelimit::config::ratelimit::v3::{
            RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitReplace, RateLimitUnit,
        },
    },
};

use crate::descriptors::{Service, descriptor, request};

/// A descriptor from a text such as `user=alice` or `user`.
fn node(entry: &str) -> RateLimitDescriptor {
    let (key, value) = entry.split_once('=').unwrap_or((entry, ""));
    RateLimitDescriptor {
        key: key.to_owned(),
        value: value.to_owned(),
        ..RateLimitDescriptor::default()
    }
}

fn limited(entry: &str, unit: i32, requests_per_unit: u32) -> RateLimitDescriptor {
    RateLimitDescriptor {
        rate_limit: Some(RateLimitPolicy {
            unit,
            requests_per_unit,
            ..RateLimitPolicy::default()
        }),
        ..node(entry)
    }
}

fn below(mut parent: RateLimitDescriptor, child: RateLimitDescriptor) -> RateLimitDescriptor {
    parent.descriptors.push(child);
    parent
}

fn resource(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitConfig {
    RateLimitConfig {
        name: "resource".to_owned(),
        domain: domain.to_owned(),
        descriptors,
    }
}

/// The diagnostics of a domain with these descriptors, as `PATH: severity[code]`.
fn findings(descriptors: Vec<RateLimitDescriptor>) -> Vec<String> {
    let found = RulesBuilder::new().add_resource(&resource("edge", descriptors));
    let shown = found
        .iter()
        .map(|one| format!("{}: {}[{}]", one.path, one.severity(), one.code));
    shown.collect()
}

const DAY: i32 = RateLimitUnit::Day as i32;

#[test]
fn every_mistake_is_found_at_its_path() {
    let with_policy = |policy: RateLimitPolicy| RateLimitDescriptor {
        rate_limit: Some(policy),
        ..node("user")
    };
    let named = |name: &str, replaces: &str| RateLimitPolicy {
        unit: DAY,
        name: name.to_owned(),
        replaces: vec![RateLimitReplace {
            name: replaces.to_owned(),
        }],
        ..RateLimitPolicy::default()
    };
    for (descriptors, expected) in [
        (vec![node("=v")], "=v: error[missing-field]"),
        (
            vec![node("a"), below(node("path=/x"), limited("user", 0, 5))],
            "path=/x / user: error[missing-field]",
        ),
        (vec![limited("user", 9, 5)], "user: error[bad-value]"),
        (
            vec![limited("user", RateLimitUnit::Year as i32, u32::MAX)],
            "user: error[bad-limit]",
        ),
        (
            vec![with_policy(RateLimitPolicy {
                unit: DAY,
                unlimited: true,
                ..RateLimitPolicy::default()
            })],
            "user: error[conflicting-fields]",
        ),
        (
            vec![with_policy(named("n", "n"))],
            "user: error[conflicting-fields]",
        ),
        (vec![with_policy(named("n", ""))], "user: error[bad-value]"),
        (
            vec![below(
                below(node("a"), limited("b", DAY, 1)),
                limited("b", DAY, 2),
            )],
            "a / b: error[duplicate-name]",
        ),
        (
            vec![RateLimitDescriptor {
                shadow_mode: true,
                ..node("user")
            }],
            "user: warning[ignored-field]",
        ),
        (
            vec![
                node("a"),
                RateLimitDescriptor {
                    detailed_metric: true,
                    ..limited("user=alice", DAY, 5)
                },
            ],
            "user=alice: warning[ignored-field]",
        ),
    ] {
        assert_eq!(findings(descriptors), [expected]);
    }
}

#[test]
fn a_domain_without_a_name_or_twice_is_an_error() {
    let mut builder = RulesBuilder::new();
    let first = builder.add_resource(&resource("edge", vec![limited("user", DAY, 5)]));
    let again = builder.add_resource(&resource("edge", vec![limited("path", DAY, 5)]));
    let empty = builder.add_resource(&resource("", vec![]));

    assert_eq!(first, []);
    let shown: Vec<String> = [again, empty]
        .concat()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        shown,
        [
            "domain \"edge\": error[duplicate-name]: the domain \"edge\" has rules already, of another file or \
             resource or of [[envoy.rule]]",
            "domain \"\": error[missing-field]: expected the field domain with a name in the resource \"resource\"",
        ]
    );
    let mut merged = RulesBuilder::new().merge_domains(true);
    for entry in ["user", "path"] {
        let found = merged.add_resource(&resource("edge", vec![limited(entry, DAY, 5)]));
        assert_eq!(found, []);
    }
}

#[test]
fn texts_of_more_than_four_kibibytes_are_refused() {
    let (long, longer) = ("x".repeat(4_096), "y".repeat(4_097));
    let good = resource(&long, vec![limited(&format!("{long}={long}"), DAY, 5)]);
    assert_eq!(RulesBuilder::new().add_resource(&good), []);

    for (domain, entry, expected) in [
        (&*longer, "user", "expected a domain of at most 4096 bytes"),
        ("edge", &*longer, "expected a key of at most 4096 bytes"),
        (
            "edge",
            &format!("user={longer}"),
            "expected a value of at most 4096 bytes, not 4097",
        ),
    ] {
        let mut builder = RulesBuilder::new();
        let below = below(node("path"), limited(entry, DAY, 5));
        let found = builder.add_resource(&resource(domain, vec![node("a"), below]));
        let [found] = &*found else {
            panic!("{found:?}")
        };
        assert!(found.is_error() && found.message.starts_with(expected));
        assert!(found.to_string().len() < 600, "{found}");
        assert_eq!(found.path.starts_with("path / "), domain == "edge");
        assert_eq!(builder.build().domains().count(), 0);
    }
}

#[test]
fn descriptors_of_all_resources_have_a_bound() {
    let half = |domain: &str, more: usize| {
        let below = vec![limited("user", DAY, 5); 1_000];
        let parents = (0..100).map(|number| RateLimitDescriptor {
            descriptors: (0..999)
                .map(|number| node(&format!("user={number}")))
                .collect(),
            ..node(&format!("path={number}"))
        });
        resource(
            domain,
            parents.chain(below.into_iter().take(more)).collect(),
        )
    };
    let mut builder = RulesBuilder::new();
    assert_eq!(builder.add_resource(&half("a", 0)), []);
    let found = builder.add_resource(&half("b", 1));
    let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
    let expected =
        "domain \"b\": error[too-large]: expected at most 200000 descriptors in all resources";
    assert_eq!(shown, [expected]);
    assert_eq!(builder.build().domains().collect::<Vec<_>>(), ["a"]);

    let error = |resources: &[RateLimitConfig]| {
        let response = RulesResponse::decode(&response(resources)).unwrap();
        assert_eq!((&*response.version, &*response.nonce), ("v", "n"));
        response.resources.err().map(|why| why.to_string())
    };
    assert_eq!(error(&[half("a", 0), half("b", 0)]), None);
    assert_eq!(
        error(&[half("a", 0), half("b", 1)]).as_deref(),
        Some("expected at most 200000 descriptors in all resources")
    );
}

/// The bytes of a response.
fn response(resources: &[RateLimitConfig]) -> Vec<u8> {
    let resources = resources.iter().map(|resource| Any {
        type_url: RESOURCE_TYPE.to_owned(),
        value: resource.encode_to_vec(),
    });
    let response = DiscoveryResponse {
        version_info: "v".to_owned(),
        resources: resources.collect(),
        type_url: RESOURCE_TYPE.to_owned(),
        nonce: "n".to_owned(),
    };
    response.encode_to_vec()
}

#[test]
fn a_response_is_decoded_with_its_resources() {
    let resources = vec![same_resource(), resource("b", vec![node("a")])];
    let decoded = RulesResponse::decode(&response(&resources)).unwrap();
    assert_eq!(decoded.resources, Ok(resources));
    assert_eq!((&*decoded.version, &*decoded.nonce), ("v", "n"));
    assert_eq!(decoded.type_url, RESOURCE_TYPE);
    assert!(RulesResponse::decode(&[0xff; 9]).is_err());

    // Empty resources take two bytes each.
    let many = [response(&[]), [0x12, 0].repeat(100_001)].concat();
    let decoded = RulesResponse::decode(&many).unwrap();
    assert_eq!((&*decoded.version, &*decoded.nonce), ("v", "n"));
    let why = decoded.resources.unwrap_err().to_string();
    assert_eq!(why, "expected at most 100000 resources, not 100001");
}

#[test]
fn many_patterns_and_many_mistakes_take_little_time() {
    let before = Instant::now();
    let patterns = (0..100_000).map(|number| limited(&format!("path=/{number}/*"), DAY, 5));
    let patterns = resource("edge", patterns.collect());
    assert_eq!(RulesBuilder::new().add_resource(&patterns), []);

    let keys = (0..100_000).map(|number| RateLimitDescriptor {
        shadow_mode: true,
        ..node(&format!("path-{number}*"))
    });
    let keys = resource("edge", keys.collect());
    let found = RulesBuilder::new().add_resource(&keys);
    assert_eq!(found[0].path, "path-0*");
    // A debug build takes about two seconds, and a search for each pattern takes minutes.
    let elapsed = before.elapsed();
    assert!(elapsed < Duration::from_secs(20), "{elapsed:?}");
}

const FILE: &str = "
domain: edge
descriptors:
- {key: user, rate_limit: {unit: hour, requests_per_unit: 2, name: all}}
- key: user
  value: bob*
  metadata: {team: red}
  rate_limit: {unit: week, requests_per_unit: 1, replaces: [{name: all}]}
- {key: free, rate_limit: {unlimited: true}}
- {key: watched, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: quota, quota_mode: true, rate_limit: {unit: month, requests_per_unit: 1}}
- {key: none, rate_limit: {unit: second}}
- {key: path, value: /a, descriptors: [{key: ip, rate_limit: {unit: minute, requests_per_unit: 1}}]}
";

/// The rules of [`FILE`].
fn same_resource() -> RateLimitConfig {
    let unit = |unit: RateLimitUnit| unit as i32;
    let mut user = limited("user", unit(RateLimitUnit::Hour), 2);
    "all".clone_into(&mut user.rate_limit.as_mut().unwrap().name);
    let mut bob = limited("user=bob*", unit(RateLimitUnit::Week), 1);
    let replaced = RateLimitReplace {
        name: "all".to_owned(),
    };
    bob.rate_limit.as_mut().unwrap().replaces.push(replaced);
    let kind = Some(Kind::StringValue("red".to_owned()));
    bob.metadata = Some(Struct {
        fields: [("team".to_owned(), Value { kind })].into(),
    });
    let mut free = limited("free", 0, 0);
    free.rate_limit.as_mut().unwrap().unlimited = true;
    let mut watched = limited("watched", DAY, 1);
    watched.shadow_mode = true;
    let mut quota = limited("quota", unit(RateLimitUnit::Month), 1);
    quota.quota_mode = true;
    let none = limited("none", unit(RateLimitUnit::Second), 0);
    let path = below(
        node("path=/a"),
        limited("ip", unit(RateLimitUnit::Minute), 1),
    );
    resource("edge", vec![user, bob, free, watched, quota, none, path])
}

#[tokio::test]
async fn a_resource_decides_as_the_file_with_the_same_rules() {
    let mut builder = RulesBuilder::new();
    assert_eq!(builder.add_resource(&same_resource()), []);
    let file = Service::new(FILE);
    let resource = Service::with_rules(builder.build());
    let mut nested = request(&[]);
    nested.descriptors = vec![descriptor(&["path=/a", "ip=192.0.2.1"])];
    let requests = [
        request(&["user=alice"]),
        request(&["user=bobby"]),
        request(&["user=bobby", "user=alice"]),
        request(&["free=1"]),
        request(&["watched=1"]),
        request(&["quota=1"]),
        request(&["none=1"]),
        nested,
    ];
    let mut codes = Vec::new();
    for number in 0..3 {
        for one in &requests {
            let expected = file.response(one).await;
            let response = resource.response(one).await;
            assert_eq!(response, expected, "{number}");
            codes.push(expected.overall_code);
        }
    }
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), 2, "both outcomes occur");
}
