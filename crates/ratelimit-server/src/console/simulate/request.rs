//! The body of a simulation.

use serde::Deserialize;

use crate::{json_object::Object, simulate::Traffic};

/// Policies and the traffic that they are tried on.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SimulateRequest {
    pub(super) policies: Vec<Object<PolicyText>>,
    pub(super) traffic: Object<TrafficSource>,
}

/// The limits of a policy, and its throttle.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyText {
    pub(super) limits: String,
    pub(super) throttle: Option<String>,
}

/// Generated traffic, for the first policy, or a trace.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrafficSource {
    pub(super) kind: Option<Traffic>,
    pub(super) hits: Option<u64>,
    pub(super) seed: Option<u64>,
    pub(super) trace: Option<String>,
}
