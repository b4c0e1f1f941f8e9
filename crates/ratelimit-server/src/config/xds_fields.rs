//! The settings of the xDS server in the configuration file.

use std::path::PathBuf;

use ratelimit_http::policy_file::Field;

use super::settings::Settings;

/// The fields of the file about the xDS server.
pub(super) const XDS_FIELDS: &[Field<Settings>] = &[
    Field::new("envoy-xds-server", |to, node, found| {
        to.xds.envoy_xds_server = node.parsed(found);
    }),
    Field::new("envoy-xds-node-id", |to, node, found| {
        to.xds.envoy_xds_node_id = node.text(found).map(str::to_owned);
    }),
    Field::new("envoy-xds-ca", |to, node, found| {
        to.xds.envoy_xds_ca = node.text(found).map(PathBuf::from);
    }),
    Field::new("envoy-xds-cert", |to, node, found| {
        to.xds.envoy_xds_cert = node.text(found).map(PathBuf::from);
    }),
    Field::new("envoy-xds-key", |to, node, found| {
        to.xds.envoy_xds_key = node.text(found).map(PathBuf::from);
    }),
    Field::new("envoy-xds-server-name", |to, node, found| {
        to.xds.envoy_xds_server_name = node.text(found).map(str::to_owned);
    }),
];
