//! Certificates: those of the server, and those for connections to Redis.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use ratelimit_core::RedisConfig;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

use super::{
    client_name::NamedClientVerifier, envoy_settings::SubjectName, invalid::InvalidConfig,
    settings::Settings, values::RedisUrl,
};
use crate::file_read::read_file;

/// The files of `--tls-cert`, `--tls-key` and `--tls-client-ca`, or of the same settings with `--envoy-` in front.
#[derive(Clone, Debug)]
pub(crate) struct TlsFiles {
    /// The beginning of the names of the settings: empty or `envoy-`.
    prefix: &'static str,
    /// The name that certificates of clients must have.
    client_name: Option<SubjectName>,
    certificate: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

/// The contents of [`TlsFiles`].
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TlsContents {
    prefix: &'static str,
    client_name: Option<SubjectName>,
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
        TlsFiles::checked(
            "",
            (settings.tls_cert.clone(), settings.tls_key.clone()),
            client_ca,
            None,
        )
    }

    /// The files of Envoy's listener, if it has its own.
    pub(super) fn of_envoy(settings: &Settings) -> Result<Option<TlsFiles>, InvalidConfig> {
        let own = settings.envoy.clone();
        if own.envoy_tls_client_san.is_some() && own.envoy_tls_client_ca.is_none() {
            let message = "envoy-tls-client-san has no effect without envoy-tls-client-ca";
            return Err(tls_error(message));
        }
        TlsFiles::checked(
            "envoy-",
            (own.envoy_tls_cert, own.envoy_tls_key),
            own.envoy_tls_client_ca,
            own.envoy_tls_client_san,
        )
    }

    fn checked(
        prefix: &'static str,
        pair: (Option<PathBuf>, Option<PathBuf>),
        client_ca: Option<PathBuf>,
        client_name: Option<SubjectName>,
    ) -> Result<Option<TlsFiles>, InvalidConfig> {
        let refuse = |setting: &str, why: &str| Err(tls_error(format!("{prefix}{setting} {why}")));
        let without_cert = format!("has no effect without {prefix}tls-cert");
        let files = match pair {
            (None, None) if client_ca.is_some() => return refuse("tls-client-ca", &without_cert),
            (None, None) => return Ok(None),
            (Some(_), None) => {
                return refuse("tls-cert", &format!("needs {prefix}tls-key as well"));
            }
            (None, Some(_)) => return refuse("tls-key", &without_cert),
            (Some(certificate), Some(key)) => TlsFiles {
                prefix,
                client_name,
                certificate,
                key,
                client_ca,
            },
        };
        files.read()?.configs()?;
        Ok(Some(files))
    }

    /// The files in metrics and in the log.
    pub(crate) fn label(&self) -> &'static str {
        if self.prefix.is_empty() {
            "certificates"
        } else {
            "envoy_certificates"
        }
    }

    pub(crate) fn read(&self) -> Result<TlsContents, InvalidConfig> {
        Ok(TlsContents {
            prefix: self.prefix,
            client_name: self.client_name.clone(),
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
        let chain = certificates(&self.setting("tls-cert"), &self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key);
        let key = key.map_err(|why| {
            let setting = self.setting("tls-key");
            tls_error(format!("{setting} holds no private key: {why}"))
        })?;
        let admin = self.server_config(&provider, None, &chain, &key)?;
        let main = match &self.client_ca {
            Some(ca) => self.server_config(&provider, Some(ca), &chain, &key)?,
            None => Arc::clone(&admin),
        };
        Ok(TlsConfigs { main, admin })
    }

    /// The name of a setting, for messages.
    fn setting(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn server_config(
        &self,
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
            Some(ca) => builder.with_client_cert_verifier(self.verifier(provider, ca)?),
        };
        let config = builder.with_single_cert(chain.to_vec(), key.clone_key());
        let mut config = config.map_err(|why| {
            let (cert, key) = (self.setting("tls-cert"), self.setting("tls-key"));
            tls_error(format!("{cert} and {key}: {why}"))
        })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// The verifier of client certificates.
    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
        ca: &[u8],
    ) -> Result<Arc<dyn ClientCertVerifier>, InvalidConfig> {
        let setting = self.setting("tls-client-ca");
        let roots = Arc::new(roots(&setting, ca)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
        let signed = verifier
            .build()
            .map_err(|why| tls_error(format!("{setting}: {why}")))?;
        Ok(match &self.client_name {
            Some(name) => Arc::new(NamedClientVerifier::new(signed, name.0.clone())),
            None => signed,
        })
    }
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
    read_file(path).map_err(|source| InvalidConfig::Unreadable {
        path: path.to_owned(),
        source,
    })
}

pub(super) fn tls_error(message: impl Into<String>) -> InvalidConfig {
    InvalidConfig::Tls {
        message: message.into(),
    }
}
