//! Random requests against a small model: codes are equal, and so is what is charged.

use std::collections::HashMap;

use proptest::{prelude::*, sample::subsequence};
use ratelimit_envoy::proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus,
};

use crate::descriptors::{Service, own_addend, request};

const RULES: &str = "
domain: edge
descriptors:
  - { key: small, rate_limit: { unit: day, requests_per_unit: 4, name: small } }
  - { key: middle, rate_limit: { unit: day, requests_per_unit: 7 } }
  - { key: large, rate_limit: { unit: day, requests_per_unit: 20, replaces: [{ name: small }] } }
  - { key: pool, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 4 } }
  - { key: spare, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 9 } }
  - { key: watched, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 5 } }
";

/// The key, limit and role of each rule.
const MODEL: [(&str, u32, Role); 6] = [
    ("small", 4, Role::Must),
    ("middle", 7, Role::Must),
    ("large", 20, Role::Must),
    ("pool", 4, Role::Any),
    ("spare", 9, Role::Any),
    ("watched", 5, Role::Watch),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Must,
    Any,
    Watch,
}

/// A request of the entries `KEY=VALUE` and a cost.
#[derive(Clone, Debug)]
struct Question {
    /// Indices into `MODEL`, with the addend of the descriptor itself.
    rules: Vec<(usize, Option<u32>)>,
    value: u8,
    addend: u32,
}

/// The units spent of each rule and value.
#[derive(Default)]
struct Model(HashMap<(usize, u8), u32>);

/// A rule of a request, and whether it has budget for its cost.
struct Asked {
    rule: usize,
    role: Role,
    own: Option<u32>,
    cost: u32,
    fits: bool,
}

impl Asked {
    fn is_reading(&self) -> bool {
        self.own.is_some_and(|own| own > 0)
    }
}

/// Whether all rules that must fit do, and one of those of which any must fit.
fn passes(asked: &[Asked], fits: impl Fn(&Asked) -> bool) -> bool {
    let of = |role: Role| asked.iter().filter(move |asked| asked.role == role);
    of(Role::Must).all(&fits) && (of(Role::Any).count() == 0 || of(Role::Any).any(&fits))
}

impl Model {
    /// Decides a request, charges it, and returns its code and those of its descriptors.
    fn decide(&mut self, question: &Question) -> (Code, Vec<Code>) {
        let replaces = question.rules.iter().any(|(rule, _)| *rule == 2);
        let asked = question.rules.iter().map(|(rule, own)| {
            let (_, limit, role) = MODEL[*rule];
            let spent = self.0.get(&(*rule, question.value)).copied();
            let cost = own.unwrap_or(question.addend.max(1));
            Asked {
                rule: *rule,
                role,
                own: *own,
                cost,
                fits: spent.unwrap_or_default() + cost <= limit,
            }
        });
        let asked: Vec<Asked> = asked.collect();
        let codes = asked.iter().map(|asked| {
            let is_replaced = replaces && asked.rule == 0;
            match asked.role {
                Role::Watch => Code::Ok,
                _ if asked.fits || is_replaced => Code::Ok,
                _ => Code::OverLimit,
            }
        });
        let codes = codes.collect();
        let is_replaced = |asked: &Asked| replaces && asked.rule == 0;
        let asked: Vec<Asked> = asked.into_iter().filter(|one| !is_replaced(one)).collect();
        let is_allowed = passes(&asked, |asked| asked.fits);
        // Readings are recorded unless something else denies.
        let records = passes(&asked, |asked| asked.fits || asked.is_reading());
        for asked in asked {
            let is_charged = if asked.is_reading() {
                records
            } else {
                is_allowed && asked.fits
            };
            if is_charged {
                *self.0.entry((asked.rule, question.value)).or_default() += asked.cost;
            }
        }
        let code = if is_allowed {
            Code::Ok
        } else {
            Code::OverLimit
        };
        (code, codes)
    }
}

fn questions() -> impl Strategy<Value = Vec<Question>> {
    let rules = subsequence((0..MODEL.len()).collect::<Vec<_>>(), 1..=4).prop_shuffle();
    let own = proptest::collection::vec(proptest::option::weighted(0.3, 0..=5_u32), 4);
    let question =
        (rules, own, 0..2_u8, 0..=5_u32).prop_map(|(rules, own, value, addend)| Question {
            rules: rules.into_iter().zip(own).collect(),
            value,
            addend,
        });
    proptest::collection::vec(question, 1..80)
}

proptest! {
    #[test]
    fn random_requests_are_decided_as_the_model_says(questions in questions()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let (service, mut model) = (Service::new(RULES), Model::default());
            for question in &questions {
                let entries: Vec<String> = question
                    .rules
                    .iter()
                    .map(|(rule, _)| format!("{}={}", MODEL[*rule].0, question.value))
                    .collect();
                let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
                let mut asked = request(&entries);
                asked.hits_addend = question.addend;
                for (descriptor, (_, own)) in asked.descriptors.iter_mut().zip(&question.rules) {
                    descriptor.hits_addend = own.map(u64::from);
                }

                let response = service.response(&asked).await;

                let codes: Vec<Code> = response.statuses.iter().map(DescriptorStatus::code).collect();
                prop_assert_eq!((response.overall_code(), codes), model.decide(question));
            }
            for ((rule, value), spent) in &model.0 {
                let (key, limit, _) = MODEL[*rule];
                let look = own_addend(&format!("{key}={value}"), 0);
                let response = service.response(&look).await;
                prop_assert_eq!(response.statuses[0].limit_remaining, limit.saturating_sub(*spent));
            }
            Ok::<(), TestCaseError>(())
        })?;
    }
}
