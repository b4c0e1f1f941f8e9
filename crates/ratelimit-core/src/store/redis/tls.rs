//! Certificates of TLS connections to Redis.

use std::{fmt, sync::Arc};

use redis::{ConnectionInfo, RedisResult};

/// Certificates in PEM. `Debug` omits them.
#[derive(Clone, Default)]
pub(super) struct TlsPem {
    /// The only trusted root; without one, the roots of the system.
    pub(super) root: Option<Arc<[u8]>>,
    /// The certificate of this client, if it has one.
    pub(super) client: Option<ClientPem>,
}

/// The certificate of this client with its chain, and its private key, in PEM.
#[derive(Clone)]
#[cfg_attr(
    not(feature = "redis-tls"),
    expect(dead_code, reason = "without the feature a certificate is an error")
)]
/// The certificate of the client and its key, in PEM.
pub(super) struct ClientPem {
    pub(super) certificate: Arc<[u8]>,
    pub(super) key: Arc<[u8]>,
}

impl fmt::Debug for TlsPem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsPem")
    }
}

/// The same settings with these certificates.
///
/// # Errors
///
/// The error of the redis crate if a certificate cannot be read, or the address is not one of TLS.
#[cfg(feature = "redis-tls")]
pub(super) fn apply(info: ConnectionInfo, tls: &TlsPem) -> RedisResult<ConnectionInfo> {
    use rustls::pki_types::{CertificateDer, pem::PemObject as _};

    // The redis crate accepts a text without a certificate, and then trusts no server.
    let has_certificate = |pem: &[u8]| CertificateDer::pem_slice_iter(pem).next().is_some();
    if tls.root.as_deref().is_some_and(|pem| !has_certificate(pem)) {
        let message = "the root certificate is not in PEM";
        return Err((redis::ErrorKind::InvalidClientConfig, message).into());
    }
    let certificates = redis::TlsCertificates {
        client_tls: tls.client.as_ref().map(|client| redis::ClientTlsConfig {
            client_cert: client.certificate.to_vec(),
            client_key: client.key.to_vec(),
        }),
        root_cert: tls.root.as_ref().map(|pem| pem.to_vec()),
    };
    let client = redis::Client::build_with_tls(info, certificates)?;
    Ok(client.get_connection_info().clone())
}

/// An error: without the feature `redis-tls` no connection can use a certificate.
///
/// # Errors
///
/// Always.
#[cfg(not(feature = "redis-tls"))]
pub(super) fn apply(_info: ConnectionInfo, _tls: &TlsPem) -> RedisResult<ConnectionInfo> {
    let message = "a certificate needs the feature redis-tls";
    Err((redis::ErrorKind::InvalidClientConfig, message).into())
}
