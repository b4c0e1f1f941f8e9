//! `health`: a probe for containers without an HTTP client.

use std::{io::Write, net::IpAddr, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{Request, Response, Uri, header::HOST, uri::Scheme},
};
use clap::{Args, Command, FromArgMatches as _};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::{
    cli_error::CliError,
    config::{Config, Settings},
};

const TIMEOUT: Duration = Duration::from_secs(4);
const LIVENESS: &str = "/actuator/health/liveness";

/// Asks a server whether it is alive, and ends with 0 if it is, else with 1.
///
/// Without a URL the address comes from the environment and the file that `RATELIMIT_CONFIG` names, as for the server:
/// that of --admin-listen if it is set, else of --listen. A certificate is not verified, because the address is
/// seldom a name of it, and the request carries no secret.
#[derive(Args, Clone, Debug)]
pub struct Health {
    /// The address, with a path to ask for more than liveness: `http://127.0.0.1:8080/actuator/health/readiness`
    url: Option<Uri>,
}

impl Health {
    /// Writes the body of the answer.
    ///
    /// # Errors
    ///
    /// Fails if the server does not answer within 4 seconds, or with another status than 200.
    pub async fn run(&self, out: &mut impl Write) -> Result<(), CliError> {
        let url = match &self.url {
            Some(url) => url.clone(),
            None => own_url()?,
        };
        let answered = tokio::time::timeout(TIMEOUT, ask(&url)).await;
        let response = answered.map_err(|_| format!("{url} does not answer"))??;
        let status = response.status();
        let body = axum::body::to_bytes(Body::new(response.into_body()), 64 * 1024).await?;
        writeln!(out, "{}", String::from_utf8_lossy(&body))?;
        if !status.is_success() {
            return Err(format!("{url} answers {status}").into());
        }
        Ok(())
    }
}

/// The URL of the server that has the environment of this process.
fn own_url() -> Result<Uri, CliError> {
    let command = Settings::augment_args(Command::new("health"));
    let settings = Settings::from_arg_matches(&command.get_matches_from(["health"]))?;
    let config = Config::load(&settings)?;
    let mut addr = config.admin_listen.unwrap_or(config.listen);
    match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => addr.set_ip([127, 0, 0, 1].into()),
        IpAddr::V6(ip) if ip.is_unspecified() => addr.set_ip(std::net::Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    let scheme = if config.tls.is_some() {
        "https"
    } else {
        "http"
    };
    Ok(format!("{scheme}://{addr}").parse()?)
}

async fn ask(url: &Uri) -> Result<Response<Incoming>, CliError> {
    let host = url.host().ok_or("expected a URL with a host")?;
    let is_tls = url.scheme() == Some(&Scheme::HTTPS);
    let port = url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let name = host.trim_matches(['[', ']']).to_owned();
    let stream = TcpStream::connect((name.as_str(), port)).await;
    let stream = stream.map_err(|why| format!("{url}: {why}"))?;
    if !is_tls {
        return send(url, stream).await;
    }
    let connector = TlsConnector::from(Arc::new(unverified_tls()?));
    let stream = connector.connect(ServerName::try_from(name)?, stream).await;
    send(url, stream.map_err(|why| format!("{url}: {why}"))?).await
}

async fn send(
    url: &Uri,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Response<Incoming>, CliError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The sender sees every error of the connection.
    tokio::spawn(connection);
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let path = if path == "/" { LIVENESS } else { path };
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let request = Request::get(path)
        .header(HOST, authority)
        .body(Body::empty())?;
    let response = sender.send_request(request).await;
    response.map_err(|why| CliError::from(format!("{url}: {}", CliError::from(why))))
}

fn unverified_tls() -> Result<ClientConfig, CliError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(AnyCertificate(Arc::clone(&provider)));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    Ok(config.with_no_client_auth())
}

/// Accepts every certificate.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
