//! From verdicts to the response.

use std::{collections::BTreeMap, time::Duration};

use prost_types::{ListValue, Struct, Value, value::Kind};
use ratelimit_core::{Algorithm, Decision, Limit, Outcome, Timestamp, Verdict};

use crate::{
    charge::Charge,
    member::Member,
    proto::envoy::{
        extensions::common::ratelimit::v3::RateLimitDescriptor,
        service::ratelimit::v3::{
            RateLimitResponse,
            rate_limit_response::{Code, DescriptorStatus, RateLimit},
        },
    },
    request::{Resolution, ResolvedRequest},
    rule::{Rate, Role, Rule, Unit},
};

/// The wait that a denial without a decision reports: the failure mode `closed`.
const UNDECIDED_WAIT: Duration = Duration::from_secs(1);

/// The parts of a response that are not always there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResponseOptions {
    /// Whether `dynamic_metadata` describes the request, with the metadata of the rules that are not over.
    pub dynamic_metadata: bool,
}

impl ResponseOptions {
    /// Sets [`dynamic_metadata`](Self::dynamic_metadata).
    #[must_use]
    pub const fn with_dynamic_metadata(mut self, is_set: bool) -> ResponseOptions {
        self.dynamic_metadata = is_set;
        self
    }
}

impl ResolvedRequest<'_> {
    /// Whether the request passes by the verdicts of the [members](ResolvedRequest::members), in their order.
    pub fn is_allowed(&self, verdicts: &[Verdict]) -> bool {
        self.passes(|index| {
            let verdict = verdicts.get(index);
            verdict.is_none_or(|verdict| self.members()[index].is_over(verdict))
        })
    }

    /// The response for the verdicts of the [members](ResolvedRequest::members), in their order.
    ///
    /// - There is one status for each descriptor, in their order.
    /// - `now` is the time for limits that no store was asked about.
    /// - No header and no body contains text of the request.
    pub fn response(
        &self,
        verdicts: &[Verdict],
        now: Timestamp,
        options: ResponseOptions,
    ) -> RateLimitResponse {
        let code = if self.is_allowed(verdicts) {
            Code::Ok
        } else {
            Code::OverLimit
        };
        let statuses: Vec<DescriptorStatus> = self
            .resolutions
            .iter()
            .map(|resolution| self.status(resolution, verdicts, now))
            .collect();
        let dynamic_metadata = options
            .dynamic_metadata
            .then(|| self.dynamic_metadata(&statuses));
        RateLimitResponse {
            overall_code: code.into(),
            statuses,
            dynamic_metadata,
            ..RateLimitResponse::default()
        }
    }

    /// The status of one descriptor.
    fn status(
        &self,
        resolution: &Resolution<'_>,
        verdicts: &[Verdict],
        now: Timestamp,
    ) -> DescriptorStatus {
        match *resolution {
            Resolution::Unmatched => DescriptorStatus {
                code: Code::Ok.into(),
                ..DescriptorStatus::default()
            },
            Resolution::Unlimited(_) => DescriptorStatus {
                code: Code::Ok.into(),
                limit_remaining: u32::MAX,
                ..DescriptorStatus::default()
            },
            Resolution::Blocked {
                rule,
                rate,
                is_over,
                role,
            } => DescriptorStatus {
                code: code(is_over, role).into(),
                current_limit: Some(current_limit(rate, rule)),
                limit_remaining: 0,
                duration_until_reset: Some(whole_seconds(window_end(rate.period(), now))),
            },
            Resolution::Limited { rule, rate, member } => {
                let (member, verdict) = (&self.members()[member], verdicts.get(member));
                verdict.map_or_else(DescriptorStatus::default, |verdict| {
                    limited_status(member, verdict, current_limit(rate, rule), rate.period())
                })
            }
            Resolution::Policy { rule, member } => {
                let (member, verdict) = (&self.members()[member], verdicts.get(member));
                verdict.map_or_else(DescriptorStatus::default, |verdict| {
                    let binding = verdict.decision().map_or(0, |decision| decision.binding);
                    let limit = &member.tier().limits()[binding];
                    limited_status(member, verdict, policy_limit(limit, rule), limit.period())
                })
            }
        }
    }

    /// The metadata of the request and of the rules that are not over, as Envoy's rate limit server writes it.
    fn dynamic_metadata(&self, statuses: &[DescriptorStatus]) -> Struct {
        let descriptors = self.request.descriptors.iter().map(descriptor_metadata);
        let mut fields = BTreeMap::from([
            ("domain".to_owned(), text(&self.request.domain)),
            ("descriptors".to_owned(), list(descriptors.collect())),
        ]);
        if self.request.hits_addend > 0 {
            let addend = Kind::NumberValue(self.request.hits_addend.into());
            fields.insert("hitsAddend".to_owned(), value(addend));
        }
        let mut merged = Struct::default();
        for (resolution, status) in self.resolutions.iter().zip(statuses) {
            let rule = match resolution {
                Resolution::Limited { rule, .. } | Resolution::Blocked { rule, .. } => *rule,
                Resolution::Unlimited(rule) | Resolution::Policy { rule, .. } => Some(*rule),
                Resolution::Unmatched => None,
            };
            if let Some(metadata) = rule.and_then(|rule| rule.metadata.as_ref())
                && status.code() == Code::Ok
            {
                merge(&mut merged, metadata);
            }
        }
        if !merged.fields.is_empty() {
            let merged = value(Kind::StructValue(merged));
            fields.insert("metadata".to_owned(), merged);
        }
        Struct { fields }
    }
}

/// The status of a member.
fn limited_status(
    member: &Member,
    verdict: &Verdict,
    limit: RateLimit,
    period: Duration,
) -> DescriptorStatus {
    let is_over = member.is_over(verdict);
    let code = code(is_over, member.role).into();
    let Some(decision) = verdict.decision() else {
        // The failure mode decided without a count: `closed` denies, `open` applies no limit.
        return DescriptorStatus {
            code,
            current_limit: is_over.then_some(limit),
            limit_remaining: 0,
            duration_until_reset: is_over.then(|| whole_seconds(UNDECIDED_WAIT)),
        };
    };
    if !decision.is_read() && !is_over {
        return DescriptorStatus {
            code,
            ..DescriptorStatus::default()
        };
    }
    let reset = match decision.outcome {
        Outcome::Denied { retry_after } => retry_after,
        _ => reset_after(member, decision, period),
    };
    let remaining = match member.charge {
        _ if is_over => 0,
        // The policy of a look at a window has one unit more than the rule.
        Charge::Look if member.is_window => decision.remaining.saturating_sub(1),
        _ => decision.remaining,
    };
    DescriptorStatus {
        code,
        current_limit: Some(limit),
        limit_remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
        duration_until_reset: Some(whole_seconds(reset)),
    }
}

/// The time until the limit resets. A fixed window ends also when nothing is spent.
fn reset_after(member: &Member, decision: &Decision, period: Duration) -> Duration {
    match member.tier().limits() {
        [limit] if limit.algorithm() == Algorithm::FixedWindow => window_end(period, decision.now),
        _ => decision.reset_after,
    }
}

/// The time until the window of `now` ends.
fn window_end(period: Duration, now: Timestamp) -> Duration {
    let period = u64::try_from(period.as_micros()).unwrap_or(u64::MAX).max(1);
    Duration::from_micros(period - now.as_micros() % period)
}

fn code(is_over: bool, role: Role) -> Code {
    if is_over && role != Role::Watch {
        Code::OverLimit
    } else {
        Code::Ok
    }
}

/// The limit as Envoy shows it to clients.
fn current_limit(rate: Rate, rule: Option<&Rule>) -> RateLimit {
    RateLimit {
        name: quotable_name(rule),
        requests_per_unit: rate.requests,
        unit: rate.unit.number(),
        unit_multiplier: (rate.multiplier > 1).then_some(rate.multiplier),
    }
}

/// A limit of a policy as Envoy shows it: its capacity, and the time in which that is gained if it is a unit. Envoy
/// writes no window for the unit 0.
fn policy_limit(limit: &Limit, rule: &Rule) -> RateLimit {
    let capacity = limit.capacity();
    let gained = limit.period().as_nanos() * u128::from(capacity);
    let gained = gained / u128::from(limit.per_period().max(1));
    RateLimit {
        name: quotable_name(Some(rule)),
        requests_per_unit: u32::try_from(capacity).unwrap_or(u32::MAX),
        unit: Unit::of_nanos(gained).map_or(0, Unit::number),
        unit_multiplier: None,
    }
}

/// The name of a rule. Envoy writes it in quotes into a header, and escapes nothing.
fn quotable_name(rule: Option<&Rule>) -> String {
    let name = rule.map_or("", |rule| &rule.name);
    name.chars().filter(|letter| is_quotable(*letter)).collect()
}

fn is_quotable(letter: char) -> bool {
    (letter.is_ascii_graphic() || letter == ' ') && letter != '"' && letter != '\\'
}

/// A duration rounded up to whole seconds: Envoy cuts fractions off.
fn whole_seconds(duration: Duration) -> prost_types::Duration {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    prost_types::Duration {
        seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
        nanos: 0,
    }
}

/// A descriptor as metadata: its entries as `key=value`, and its own addend.
fn descriptor_metadata(descriptor: &RateLimitDescriptor) -> Value {
    let entries = descriptor.entries.iter().map(|entry| {
        let key = String::from_utf8_lossy(&entry.key);
        text(&format!("{key}={}", String::from_utf8_lossy(&entry.value)))
    });
    let mut fields = BTreeMap::from([("entries".to_owned(), list(entries.collect()))]);
    if let Some(addend) = descriptor.hits_addend {
        #[expect(
            clippy::cast_precision_loss,
            reason = "numbers of a Struct are floating point"
        )]
        let addend = Kind::NumberValue(addend as f64);
        fields.insert("hitsAddend".to_owned(), value(addend));
    }
    value(Kind::StructValue(Struct { fields }))
}

/// Adds fields that are not there yet. Maps of the same name are merged.
fn merge(target: &mut Struct, source: &Struct) {
    for (name, added) in &source.fields {
        let Some(known) = target.fields.get_mut(name) else {
            target.fields.insert(name.clone(), added.clone());
            continue;
        };
        if let (Some(Kind::StructValue(known)), Some(Kind::StructValue(added))) =
            (&mut known.kind, &added.kind)
        {
            merge(known, added);
        }
    }
}

fn text(text: &str) -> Value {
    value(Kind::StringValue(text.to_owned()))
}

fn list(values: Vec<Value>) -> Value {
    value(Kind::ListValue(ListValue { values }))
}

fn value(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}
