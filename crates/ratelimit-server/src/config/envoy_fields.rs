//! The fields of the file for the settings of Envoy's listener.

use std::path::PathBuf;

use ratelimit_http::policy_file::{DiagnosticCode, Field};

use super::{envoy_settings::ratio, listen_addr::tcp_addr, settings::Settings};

/// The fields; each has the name of its flag.
pub(super) const ENVOY_FIELDS: &[Field<Settings>] = &[
    Field::new("envoy-reflection", |to, node, found| {
        to.envoy.envoy_reflection = node.boolean(found);
    }),
    Field::new("envoy-ratelimit-metrics", |to, node, found| {
        to.envoy.envoy_ratelimit_metrics = node.boolean(found);
    }),
    Field::new("envoy-near-limit-ratio", |to, node, found| {
        to.envoy.envoy_near_limit_ratio = node.parse_with(DiagnosticCode::BadValue, ratio, found);
    }),
    Field::new("envoy-metrics-listen", |to, node, found| {
        to.envoy.envoy_metrics_listen = node.parse_with(DiagnosticCode::BadValue, tcp_addr, found);
    }),
    Field::new("envoy-metrics-path", |to, node, found| {
        to.envoy.envoy_metrics_path = node.parsed(found);
    }),
    Field::new("envoy-response-headers", |to, node, found| {
        to.envoy.envoy_response_headers = node.parsed(found);
    }),
    Field::new("envoy-shadow", |to, node, found| {
        to.envoy.envoy_shadow = node.boolean(found);
    }),
    Field::new("envoy-quota", |to, node, found| {
        to.envoy.envoy_quota = node.boolean(found);
    }),
    Field::new("envoy-tls-cert", |to, node, found| {
        to.envoy.envoy_tls_cert = node.text(found).map(PathBuf::from);
    }),
    Field::new("envoy-tls-key", |to, node, found| {
        to.envoy.envoy_tls_key = node.text(found).map(PathBuf::from);
    }),
    Field::new("envoy-tls-client-ca", |to, node, found| {
        to.envoy.envoy_tls_client_ca = node.text(found).map(PathBuf::from);
    }),
    Field::new("envoy-tls-client-san", |to, node, found| {
        to.envoy.envoy_tls_client_san = node.parsed(found);
    }),
    Field::new("envoy-ratelimit-env", |to, node, found| {
        to.envoy.envoy_ratelimit_env = node.boolean(found);
    }),
];
