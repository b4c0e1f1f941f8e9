//! The metrics of Envoy's own rate limit server, under its names.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use metrics::{Counter, Histogram, Label, counter, describe_counter, histogram};
use ratelimit_core::Verdict;
use ratelimit_envoy::{DescriptorUsage, HitCounts, NearLimitRatio, ResolvedRequest};
use regex_lite::Regex;

use crate::metrics::RESPONSE_TIME;

const TOTAL_HITS: &str = "ratelimit_service_rate_limit_total_hits";
const OVER_LIMIT: &str = "ratelimit_service_rate_limit_over_limit";
const NEAR_LIMIT: &str = "ratelimit_service_rate_limit_near_limit";
const WITHIN_LIMIT: &str = "ratelimit_service_rate_limit_within_limit";
const SHADOW_MODE: &str = "ratelimit_service_rate_limit_shadow_mode";
const ERRORS: &str = "ratelimit_service_should_rate_limit_error";
const TOTAL_REQUESTS: &str = "ratelimit_service_total_requests";
const CONFIG_LOAD_SUCCESS: &str = "ratelimit_service_config_load_success";
const CONFIG_LOAD_ERROR: &str = "ratelimit_service_config_load_error";

/// The most series with values of requests. Further values are counted under the key `other`.
const MAX_VALUED_SERIES: usize = 10_000;
const OTHER: &str = "other";

/// The metrics of Envoy's own rate limit server.
///
/// Series are by rule. Values of requests are in labels only under `detailed_metric` and `value_to_metric`.
pub(super) struct RatelimitMetrics {
    ratio: NearLimitRatio,
    requests: Counter,
    response_time: Histogram,
    redis_errors: Counter,
    service_errors: Counter,
    series: Mutex<SeriesByRule>,
}

impl RatelimitMetrics {
    pub(super) fn new(ratio: NearLimitRatio) -> RatelimitMetrics {
        describe();
        let errors = |kind: &'static str| counter!(ERRORS, "err_type" => kind);
        RatelimitMetrics {
            ratio,
            requests: counter!(TOTAL_REQUESTS, "grpc_method" => "ShouldRateLimit"),
            response_time: histogram!(RESPONSE_TIME, "grpc_method" => "ShouldRateLimit"),
            redis_errors: errors("redis_error"),
            service_errors: errors("service_error"),
            series: Mutex::default(),
        }
    }

    /// Counts a request without domain or descriptors.
    pub(super) fn count_invalid(&self) {
        self.requests.increment(1);
        self.service_errors.increment(1);
    }

    /// Counts a request that was answered.
    pub(super) fn count(
        &self,
        domain: &str,
        resolved: &ResolvedRequest<'_>,
        verdicts: &[Verdict],
        elapsed: Duration,
    ) {
        self.requests.increment(1);
        self.response_time.record(elapsed);
        let is_unchecked = |verdict: &Verdict| matches!(verdict, Verdict::Unchecked { .. });
        if verdicts.iter().any(is_unchecked) {
            self.redis_errors.increment(1);
        }
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        for usage in resolved.usages(verdicts, self.ratio) {
            series.counters(domain, &usage).add(&usage.counts);
        }
    }
}

/// Counts rules that were read.
pub(super) fn count_config_load(is_accepted: bool, times: u64) {
    let name = if is_accepted {
        CONFIG_LOAD_SUCCESS
    } else {
        CONFIG_LOAD_ERROR
    };
    counter!(name).increment(times);
}

/// The labels of a series: the domain, and the first two levels of a rule.
type SeriesLabels = (String, String, Option<String>);

/// The counters of all series.
#[derive(Default)]
struct SeriesByRule {
    counters: HashMap<SeriesLabels, SeriesCounters>,
    /// The number of series with values of requests.
    valued: usize,
}

impl SeriesByRule {
    fn counters(&mut self, domain: &str, usage: &DescriptorUsage<'_>) -> &SeriesCounters {
        let key2 = usage.key2.as_ref().map(ToString::to_string);
        let mut labels = (domain.to_owned(), usage.key1.to_string(), key2);
        if usage.has_values && !self.counters.contains_key(&labels) {
            if self.valued < MAX_VALUED_SERIES {
                self.valued += 1;
            } else {
                labels = (domain.to_owned(), OTHER.to_owned(), None);
            }
        }
        self.counters
            .entry(labels)
            .or_insert_with_key(SeriesCounters::new)
    }
}

/// The counters of one series.
struct SeriesCounters {
    total: Counter,
    over_limit: Counter,
    near_limit: Counter,
    within_limit: Counter,
    shadow_mode: Counter,
}

impl SeriesCounters {
    fn new((domain, key1, key2): &SeriesLabels) -> SeriesCounters {
        let label =
            |name: &'static str, value: &str| Label::new(name, sanitized(value).into_owned());
        let mut labels = vec![label("domain", domain), label("key1", key1)];
        labels.extend(key2.as_ref().map(|key| label("key2", key)));
        SeriesCounters {
            total: counter!(TOTAL_HITS, labels.clone()),
            over_limit: counter!(OVER_LIMIT, labels.clone()),
            near_limit: counter!(NEAR_LIMIT, labels.clone()),
            within_limit: counter!(WITHIN_LIMIT, labels.clone()),
            shadow_mode: counter!(SHADOW_MODE, labels),
        }
    }

    fn add(&self, counts: &HitCounts) {
        self.total.increment(counts.total);
        self.over_limit.increment(counts.over_limit);
        self.near_limit.increment(counts.near_limit);
        self.within_limit.increment(counts.within_limit);
        self.shadow_mode.increment(counts.shadow_mode);
    }
}

/// A label as Envoy's server writes it: `_` in place of `:`, `|` and the dots of IPv4 addresses.
fn sanitized(label: &str) -> Cow<'_, str> {
    static IPV4: OnceLock<Regex> = OnceLock::new();
    let ipv4 = IPV4.get_or_init(|| Regex::new(r"\d{1,3}(?:\.\d{1,3}){3}").expect("it is valid"));
    if !label.contains([':', '|', '.']) {
        return Cow::Borrowed(label);
    }
    let label = label.replace([':', '|'], "_");
    let dotless = ipv4.replace_all(&label, |found: &regex_lite::Captures<'_>| {
        found[0].replace('.', "_")
    });
    Cow::Owned(dotless.into_owned())
}

fn describe() {
    describe_counter!(TOTAL_HITS, "Hits of requests of Envoy, by rule.");
    describe_counter!(OVER_LIMIT, "Hits beyond the limit, by rule.");
    describe_counter!(NEAR_LIMIT, "Hits near the limit, by rule.");
    describe_counter!(
        WITHIN_LIMIT,
        "Hits of descriptors within the limit, by rule."
    );
    describe_counter!(
        SHADOW_MODE,
        "Hits beyond the limit in shadow mode, by rule."
    );
    describe_counter!(ERRORS, "Requests of Envoy that failed, by err_type.");
    describe_counter!(TOTAL_REQUESTS, "Requests of Envoy, by grpc_method.");
    describe_counter!(CONFIG_LOAD_SUCCESS, "Envoy rules that were read.");
    describe_counter!(CONFIG_LOAD_ERROR, "Envoy rules that were refused.");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_no_colon_and_no_dotted_address() {
        for (label, expected) in [
            ("user", "user"),
            ("path_/a.b", "path_/a.b"),
            ("a:b|c", "a_b_c"),
            ("remote_address_10.0.0.1", "remote_address_10_0_0_1"),
        ] {
            assert_eq!(sanitized(label), expected);
        }
    }
}
