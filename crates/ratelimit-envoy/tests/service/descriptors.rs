//! Requests and answers in a short form.

use ratelimit_core::{Clock, Limiter, MemoryStore, Timestamp};
use ratelimit_envoy::{
    ResponseOptions, Rules, RulesBuilder, decide, give_back,
    proto::envoy::{
        extensions::common::ratelimit::v3::{
            RateLimitDescriptor,
            rate_limit_descriptor::{Entry, RateLimitOverride},
        },
        service::ratelimit::v3::{
            RateLimitRequest, RateLimitResponse,
            rate_limit_response::{Code, DescriptorStatus, rate_limit::Unit},
        },
    },
};

/// 1,758 seconds before the end of an hour.
pub(crate) const NOW: Timestamp = Timestamp::from_secs(1_000 * 3_600 - 1_758);

/// A descriptor from texts such as `user=alice`.
pub(crate) fn descriptor(entries: &[&str]) -> RateLimitDescriptor {
    let entries = entries.iter().map(|entry| {
        let (key, value) = entry.split_once('=').expect("key=value");
        Entry {
            key: key.to_owned().into(),
            value: value.to_owned().into(),
        }
    });
    RateLimitDescriptor {
        entries: entries.collect(),
        ..RateLimitDescriptor::default()
    }
}

/// A request of descriptors with one entry each.
pub(crate) fn request(descriptors: &[&str]) -> RateLimitRequest {
    RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: descriptors.iter().map(|one| descriptor(&[one])).collect(),
        hits_addend: 0,
    }
}

/// A request whose only descriptor has an addend of its own.
pub(crate) fn own_addend(entry: &str, units: u64) -> RateLimitRequest {
    let mut request = request(&[entry]);
    request.descriptors[0].hits_addend = Some(units);
    request
}

/// A request whose only descriptor has a limit of its own.
pub(crate) fn with_limit(entry: &str, requests_per_unit: u32, unit: Unit) -> RateLimitRequest {
    let mut request = request(&[entry]);
    request.descriptors[0].limit = Some(RateLimitOverride {
        requests_per_unit,
        unit: unit.into(),
        unit_multiplier: None,
    });
    request
}

/// Rules over a memory store whose clock stands still.
pub(crate) struct Service {
    pub(crate) rules: Rules,
    limiter: Limiter,
    pub(crate) clock: Clock,
}

impl Service {
    pub(crate) fn new(yaml: &str) -> Service {
        let mut builder = RulesBuilder::new();
        let errors = builder.add_yaml(yaml);
        assert!(
            errors
                .iter()
                .all(|finding| finding.severity().to_string() == "warning"),
            "{errors:?}"
        );
        Service::with_rules(builder.build())
    }

    pub(crate) fn with_rules(rules: Rules) -> Service {
        let clock = Clock::manual(NOW);
        Service {
            rules,
            limiter: Limiter::new(MemoryStore::new().clock(clock.clone())),
            clock,
        }
    }

    pub(crate) async fn response(&self, request: &RateLimitRequest) -> RateLimitResponse {
        let resolved = self.rules.resolve(request).expect("a valid request");
        if let Some(credits) = give_back(&self.limiter, &resolved) {
            credits.await.expect("a memory store always answers");
        }
        let verdicts = decide(&self.limiter, &resolved, None).await;
        let options = ResponseOptions::default().with_dynamic_metadata(true);
        let response = resolved.response(&verdicts, self.clock.now(), options);
        assert_eq!(response.statuses.len(), request.descriptors.len());
        assert!(response.response_headers_to_add.is_empty() && response.raw_body.is_empty());
        response
    }

    /// The answer as `OK [OK 10/h rem=2 reset=1758]`.
    pub(crate) async fn ask(&self, request: &RateLimitRequest) -> String {
        shown(&self.response(request).await)
    }
}

pub(crate) fn shown(response: &RateLimitResponse) -> String {
    let statuses: Vec<String> = response.statuses.iter().map(shown_status).collect();
    let code = shown_code(response.overall_code());
    format!("{code} [{}]", statuses.join("; "))
}

fn shown_status(status: &DescriptorStatus) -> String {
    let mut parts = vec![shown_code(status.code()).to_owned()];
    match &status.current_limit {
        Some(limit) => {
            let unit = limit.unit().as_str_name().to_lowercase();
            let times = limit.unit_multiplier.map(|times| format!("x{times}"));
            let times = times.unwrap_or_default();
            parts.push(format!("{}/{}{times}", limit.requests_per_unit, &unit[..1]));
            parts.extend(Some(limit.name.clone()).filter(|name| !name.is_empty()));
        }
        None => parts.push("no-limit".to_owned()),
    }
    parts.push(format!("rem={}", status.limit_remaining));
    if let Some(reset) = &status.duration_until_reset {
        assert_eq!(reset.nanos, 0, "Envoy cuts fractions off");
        parts.push(format!("reset={}", reset.seconds));
    }
    parts.join(" ")
}

fn shown_code(code: Code) -> &'static str {
    match code {
        Code::Unknown => "UNKNOWN",
        Code::Ok => "OK",
        Code::OverLimit => "OVER",
    }
}
