//! The xDS server that Envoy rules come from, and its certificates.

use std::{path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{PrivateKeyDer, ServerName, pem::PemObject as _},
    version::TLS13,
};

use super::{
    invalid::{ConflictingSettings, InvalidConfig},
    tls::{certificates, read, roots, tls_error},
    xds_settings::{XdsSettings, XdsUrl},
};

/// The node that Envoy Gateway has rules for.
const DEFAULT_NODE_ID: &str = "envoy-ratelimit";

/// The xDS server that Envoy rules come from.
#[derive(Clone, Debug)]
pub(crate) struct XdsConfig {
    pub(crate) server: XdsUrl,
    pub(crate) node_id: String,
    /// The certificates, if the address is `https`.
    pub(crate) tls: Option<XdsTls>,
}

/// The certificate files for an xDS server. They are read for each connection, so a renewed certificate is used.
#[derive(Clone, Debug)]
pub(crate) struct XdsTls {
    pub(crate) server_name: ServerName<'static>,
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
}

impl XdsConfig {
    /// The server of the settings, if there is one. Its files are not read: a reload of other settings needs none.
    pub(super) fn of(settings: &XdsSettings) -> Result<Option<XdsConfig>, InvalidConfig> {
        let Some(server) = &settings.envoy_xds_server else {
            return Ok(None);
        };
        let server = server
            .url()
            .map_err(|why| InvalidConfig::XdsServer { why })?;
        let node_id = settings.envoy_xds_node_id.as_deref();
        let node_id = node_id.unwrap_or(DEFAULT_NODE_ID).to_owned();
        if node_id.is_empty() {
            return Err(conflict("envoy-xds-node-id", "is an empty text"));
        }
        if !server.is_tls()
            && let Some(setting) = settings.first_of_tls()
        {
            let why = "has no effect without an https:// address in envoy-xds-server";
            return Err(conflict(setting, why));
        }
        let tls = server.is_tls().then(|| XdsTls::of(settings, &server));
        let tls = tls.transpose()?;
        Ok(Some(XdsConfig {
            server,
            node_id,
            tls,
        }))
    }

    /// Reads the certificate files, at the start.
    pub(crate) fn check_files(&self) -> Result<(), InvalidConfig> {
        match &self.tls {
            Some(tls) => tls.client_config().map(drop),
            None => Ok(()),
        }
    }
}

impl XdsTls {
    fn of(settings: &XdsSettings, server: &XdsUrl) -> Result<XdsTls, InvalidConfig> {
        let name = settings.envoy_xds_server_name.as_deref();
        let name = name.unwrap_or(server.host()).to_owned();
        let server_name = ServerName::try_from(name)
            .map_err(|why| tls_error(format!("the name of the xDS server: {why}")))?;
        let identity = match (&settings.envoy_xds_cert, &settings.envoy_xds_key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            _ => {
                let message = "envoy-xds-cert and envoy-xds-key need each other";
                return Err(tls_error(message));
            }
        };
        Ok(XdsTls {
            server_name,
            ca: settings.envoy_xds_ca.clone(),
            identity,
        })
    }

    /// Reads the files. The connection has TLS 1.3 and HTTP/2.
    pub(crate) fn client_config(&self) -> Result<Arc<ClientConfig>, InvalidConfig> {
        let roots = match &self.ca {
            Some(ca) => roots("envoy-xds-ca", &read(ca)?)?,
            None => system_roots()?,
        };
        // Named explicitly: without a default provider of the process rustls would panic.
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(|why| tls_error(why.to_string()))?
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates("envoy-xds-cert", &read(certificate)?)?;
                let key = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|why| {
                    tls_error(format!("envoy-xds-key holds no private key: {why}"))
                })?;
                let config = builder.with_client_auth_cert(chain, key);
                config
                    .map_err(|why| tls_error(format!("envoy-xds-cert and envoy-xds-key: {why}")))?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }
}

fn system_roots() -> Result<RootCertStore, InvalidConfig> {
    let mut roots = RootCertStore::empty();
    let (added, _) =
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match added {
        0 => Err(tls_error(
            "the system has no root certificates: set envoy-xds-ca",
        )),
        _ => Ok(roots),
    }
}

fn conflict(setting: &'static str, why: &'static str) -> InvalidConfig {
    InvalidConfig::Conflict(ConflictingSettings { setting, why })
}

#[cfg(test)]
impl XdsConfig {
    /// The configuration of an address without TLS.
    pub(crate) fn without_tls(url: &str) -> XdsConfig {
        let settings = XdsSettings {
            envoy_xds_server: Some(url.parse().expect("an address")),
            ..XdsSettings::default()
        };
        let config = XdsConfig::of(&settings).expect("a valid configuration");
        config.expect("an address")
    }
}
