//! One connection to the xDS server.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::{JoinHandle, spawn_blocking},
};
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tower::Service;

use crate::{cli_error::CliError, config::XdsConfig};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a connection without streams to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The times after which a peer that does not answer is given up.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeepAlive {
    /// Idle time before a ping of HTTP/2.
    ping_interval: Duration,
    /// Time for the answer to a ping.
    ping_timeout: Duration,
    /// Idle time before the first probe of TCP.
    probe_delay: Duration,
    probe_interval: Duration,
    probes: u32,
}

impl KeepAlive {
    /// TCP notices within a minute that the machine of the peer is gone, and HTTP/2 later that its process hangs.
    ///
    /// A server of grpc-go closes connections that ping more often than every five minutes, by default.
    pub(super) const DEFAULT: KeepAlive = KeepAlive {
        ping_interval: Duration::from_secs(330),
        ping_timeout: Duration::from_secs(20),
        probe_delay: Duration::from_secs(30),
        probe_interval: Duration::from_secs(10),
        probes: 3,
    };
}

/// An HTTP/2 connection to the xDS server. Dropping it and its streams closes it.
pub(super) struct XdsConnection(SendRequest<Body>);

/// The task of a connection. It ends with a reason that a stream does not always see, such as the alert of a server that
/// refuses the client certificate.
pub(super) struct ConnectionTask(JoinHandle<hyper::Result<()>>);

impl ConnectionTask {
    /// Waits for the end of a connection whose streams have ended, and returns its error.
    pub(super) async fn error(mut self) -> Option<CliError> {
        let ended = tokio::time::timeout(CLOSE_TIMEOUT, &mut self.0).await;
        self.0.abort();
        let error = ended.ok()?.ok()?.err()?;
        Some(error.into())
    }
}

impl XdsConnection {
    /// Connects, with the certificates that the files have now.
    pub(super) async fn open(
        config: &XdsConfig,
        keep_alive: KeepAlive,
    ) -> Result<(XdsConnection, ConnectionTask), CliError> {
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, connect(config, keep_alive));
        connecting
            .await
            .map_err(|_| format!("no connection within {CONNECT_TIMEOUT:?}"))?
    }
}

async fn connect(
    config: &XdsConfig,
    keep_alive: KeepAlive,
) -> Result<(XdsConnection, ConnectionTask), CliError> {
    let stream = TcpStream::connect((config.server.host(), config.server.port())).await?;
    configure(&stream, keep_alive)?;
    let Some(tls) = &config.tls else {
        return handshake(stream, keep_alive).await;
    };
    let files = tls.clone();
    let client_config = spawn_blocking(move || files.client_config()).await??;
    let connector = TlsConnector::from(client_config);
    let stream = connector.connect(tls.server_name.clone(), stream).await?;
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        return Err("the server does not offer HTTP/2".into());
    }
    handshake(stream, keep_alive).await
}

fn configure(stream: &TcpStream, keep_alive: KeepAlive) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let probes = TcpKeepalive::new()
        .with_time(keep_alive.probe_delay)
        .with_interval(keep_alive.probe_interval)
        .with_retries(keep_alive.probes);
    SockRef::from(stream).set_tcp_keepalive(&probes)
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    keep_alive: KeepAlive,
) -> Result<(XdsConnection, ConnectionTask), CliError> {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(keep_alive.ping_interval)
        .keep_alive_timeout(keep_alive.ping_timeout)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(stream))
        .await?;
    let task = ConnectionTask(tokio::spawn(connection));
    Ok((XdsConnection(sender), task))
}

impl Service<Request<Body>> for XdsConnection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tower::ServiceExt as _;

    use super::*;
    use crate::config::XdsConfig;

    #[tokio::test]
    async fn a_peer_that_answers_no_ping_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let addr = listener.local_addr().expect("an address");
        let config = XdsConfig::without_tls(&format!("http://{addr}"));
        let keep_alive = KeepAlive {
            ping_interval: Duration::from_millis(20),
            ping_timeout: Duration::from_millis(20),
            ..KeepAlive::DEFAULT
        };
        let opened = XdsConnection::open(&config, keep_alive).await;
        let (connection, _task) = opened.expect("a connection");
        let (_silent, _) = listener.accept().await.expect("a connection");

        let request = Request::get(format!("http://{addr}/"));
        let request = request.body(Body::empty()).expect("a request");
        let sent = tokio::time::timeout(CONNECT_TIMEOUT, connection.oneshot(request)).await;

        let sent = sent.expect("an end long before");
        let error = CliError::from(sent.expect_err("the peer is silent"));
        assert!(
            error.to_string().contains("keep-alive timed out"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn the_system_probes_an_idle_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let addr = listener.local_addr().expect("an address");
        let stream = TcpStream::connect(addr).await.expect("a connection");

        configure(&stream, KeepAlive::DEFAULT).expect("options of the system");

        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().expect("an option"));
        let delay = socket.tcp_keepalive_time().expect("an option");
        assert_eq!(delay, Duration::from_secs(30));
    }
}
