//! Certificates: those of the server, and those for connections to Redis.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use ratelimit_core::RedisConfig;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};

use super::{invalid::InvalidConfig, settings::Settings, values::RedisUrl};

/// The files of `--tls-cert`, `--tls-key` and `--tls-client-ca`.
#[derive(Clone, Debug)]
pub(crate) struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

/// The contents of [`TlsFiles`].
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TlsContents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// The TLS settings of the two listeners.
pub(crate) struct TlsConfigs {
    /// Asks for client certificates if there is a `--tls-client-ca`.
    pub(crate) main: Arc<ServerConfig>,
    /// Asks for no client certificate: probes and Prometheus have none.
    pub(crate) admin: Arc<ServerConfig>,
}

impl TlsFiles {
    /// The files of the settings, if the server has TLS. They were read successfully.
    pub(super) fn of(settings: &Settings) -> Result<Option<TlsFiles>, InvalidConfig> {
        let client_ca = settings.tls_client_ca.clone();
        let files = match (&settings.tls_cert, &settings.tls_key) {
            (None, None) if client_ca.is_some() => {
                return Err(tls_error("tls-client-ca has no effect without tls-cert"));
            }
            (None, None) => return Ok(None),
            (Some(_), None) => return Err(tls_error("tls-cert needs tls-key as well")),
            (None, Some(_)) => return Err(tls_error("tls-key has no effect without tls-cert")),
            (Some(certificate), Some(key)) => TlsFiles {
                certificate: certificate.clone(),
                key: key.clone(),
                client_ca,
            },
        };
        files.read()?.configs()?;
        Ok(Some(files))
    }

    pub(crate) fn read(&self) -> Result<TlsContents, InvalidConfig> {
        Ok(TlsContents {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
            client_ca: self.client_ca.as_deref().map(read).transpose()?,
        })
    }
}

impl TlsContents {
    /// Makes the settings of the listeners. A key that does not belong to the certificate is an error.
    pub(crate) fn configs(&self) -> Result<TlsConfigs, InvalidConfig> {
        // Named explicitly: without a default provider of the process rustls would panic.
        let provider = Arc::new(ring::default_provider());
        let chain = certificates("tls-cert", &self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key);
        let key = key.map_err(|why| tls_error(format!("tls-key holds no private key: {why}")))?;
        let admin = server_config(&provider, None, &chain, &key)?;
        let main = match &self.client_ca {
            Some(ca) => server_config(&provider, Some(ca), &chain, &key)?,
            None => Arc::clone(&admin),
        };
        Ok(TlsConfigs { main, admin })
    }
}

fn server_config(
    provider: &Arc<CryptoProvider>,
    client_ca: Option<&[u8]>,
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, InvalidConfig> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(|why| tls_error(why.to_string()))?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let roots = Arc::new(roots("tls-client-ca", ca)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
            let verifier = verifier.build();
            let verifier = verifier.map_err(|why| tls_error(format!("tls-client-ca: {why}")))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder.with_single_cert(chain.to_vec(), key.clone_key());
    let mut config = config.map_err(|why| tls_error(format!("tls-cert and tls-key: {why}")))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Applies `--redis-ca`, `--redis-cert` and `--redis-key`.
pub(super) fn with_redis_certificates(
    settings: &Settings,
    url: &RedisUrl,
    mut redis: RedisConfig,
) -> Result<RedisConfig, InvalidConfig> {
    let names = redis_settings(settings);
    if !names.is_empty() && !url.0.starts_with("rediss") {
        let message = format!("{} has no effect without a rediss:// address", names[0]);
        return Err(tls_error(message));
    }
    if let Some(path) = &settings.redis_ca {
        redis = redis
            .tls_root_certificate(&read(path)?)
            .map_err(InvalidConfig::Redis)?;
    }
    match (&settings.redis_cert, &settings.redis_key) {
        (None, None) => Ok(redis),
        (Some(certificate), Some(key)) => redis
            .tls_client_certificate(&read(certificate)?, &read(key)?)
            .map_err(InvalidConfig::Redis),
        _ => Err(tls_error("redis-cert and redis-key need each other")),
    }
}

/// The names of the settings about certificates for Redis that are set.
pub(super) fn redis_settings(settings: &Settings) -> Vec<&'static str> {
    let all = [
        ("redis-ca", &settings.redis_ca),
        ("redis-cert", &settings.redis_cert),
        ("redis-key", &settings.redis_key),
    ];
    let set = all.into_iter().filter(|(_, path)| path.is_some());
    set.map(|(name, _)| name).collect()
}

pub(super) fn roots(setting: &str, pem: &[u8]) -> Result<RootCertStore, InvalidConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(setting, pem)? {
        let added = roots.add(certificate);
        added.map_err(|why| tls_error(format!("{setting}: {why}")))?;
    }
    Ok(roots)
}

pub(super) fn certificates(
    setting: &str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, InvalidConfig> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|why| tls_error(format!("{setting}: {why}")))?;
    if read.is_empty() {
        return Err(tls_error(format!("{setting} holds no certificate")));
    }
    Ok(read)
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, InvalidConfig> {
    fs::read(path).map_err(|source| InvalidConfig::Unreadable {
        path: path.to_owned(),
        source,
    })
}

pub(super) fn tls_error(message: impl Into<String>) -> InvalidConfig {
    InvalidConfig::Tls {
        message: message.into(),
    }
}
