//! A server of hyper on a free port, and clients of either version.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use ratelimit_core::{Clock, Limiter, MemoryStore, Policy, Timestamp, store::Store};
use ratelimit_tower::{AddPeerAddr, RateLimitLayer};
use tokio::net::TcpListener;
use tower::{Layer as _, Service};

pub(crate) type Answer = Response<Full<Bytes>>;

/// Which protocol a client speaks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Version {
    Http1,
    Http2,
}

pub(crate) const BOTH: [Version; 2] = [Version::Http1, Version::Http2];

/// A moment in the middle of a second.
pub(crate) fn clock() -> Clock {
    Clock::manual(Timestamp::from_micros(1_000_500_000))
}

pub(crate) fn layer(clock: &Clock, limits: &str) -> RateLimitLayer {
    layer_over(MemoryStore::new().clock(clock.clone()), limits)
}

pub(crate) fn layer_over(store: impl Store, limits: &str) -> RateLimitLayer {
    let policy = Policy::parse("login", limits).expect("the limits of a test");
    RateLimitLayer::new(Limiter::new(store), policy)
}

pub(crate) async fn hello(_: Request<Incoming>) -> Result<Answer, Infallible> {
    Ok(Response::new(Full::from("hello")))
}

/// Serves `layer` over a service that says hello, on a free port of `host`.
pub(crate) async fn serve(host: &str, layer: RateLimitLayer) -> SocketAddr {
    serve_with(host, layer, tower::service_fn(hello)).await
}

/// Serves `layer` over `inner`, which is layered anew for each connection.
pub(crate) async fn serve_with<S>(host: &str, layer: RateLimitLayer, inner: S) -> SocketAddr
where
    S: Service<Request<Incoming>, Response = Answer, Error = Infallible, Future: Send>,
    S: Clone + Send + 'static,
{
    let listener = TcpListener::bind((host, 0)).await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let service = AddPeerAddr::new(layer.layer(inner.clone()), peer);
            let builder = auto::Builder::new(TokioExecutor::new());
            tokio::spawn(async move {
                let service = TowerToHyperService::new(service);
                // A client that goes away is no failure of the server.
                let _ = builder
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    address
}

/// A client that connects from `source`, or from where the system likes.
pub(crate) struct Asker {
    client: Client<HttpConnector, Full<Bytes>>,
    target: SocketAddr,
}

impl Asker {
    pub(crate) fn new(version: Version, target: SocketAddr) -> Asker {
        Asker::at(version, target, None)
    }

    pub(crate) fn from(source: &str, target: SocketAddr) -> Asker {
        let source = source.parse().expect("an address");
        Asker::at(Version::Http1, target, Some(source))
    }

    fn at(version: Version, target: SocketAddr, source: Option<IpAddr>) -> Asker {
        let mut connector = HttpConnector::new();
        connector.set_local_address(source);
        let http2 = matches!(version, Version::Http2);
        let client = Client::builder(TokioExecutor::new())
            .http2_only(http2)
            .build(connector);
        Asker { client, target }
    }

    pub(crate) fn uri(&self, path: &str) -> Uri {
        let uri = format!("http://{}{path}", self.target);
        uri.parse().expect("an address and a path")
    }

    pub(crate) async fn get(&self, path: &str) -> Response<Bytes> {
        self.ask(Request::get(self.uri(path))).await
    }

    pub(crate) async fn ask(&self, request: http::request::Builder) -> Response<Bytes> {
        let request = request.body(Full::default()).expect("a request");
        let response = self.client.request(request).await.expect("an answer");
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes();
        Response::from_parts(parts, body)
    }
}

pub(crate) fn header<'a, B>(response: &'a Response<B>, name: &str) -> Option<&'a str> {
    let mut lines = response.headers().get_all(name).iter();
    let value = lines.next()?;
    assert_eq!(lines.next(), None, "{name} stands twice");
    Some(value.to_str().expect("visible ASCII"))
}

pub(crate) fn number<B>(response: &Response<B>, name: &str) -> Option<u64> {
    header(response, name).map(|value| value.parse().expect("a number"))
}
