//! The peer's address in a request's extensions.

use std::{
    net::SocketAddr,
    task::{Context, Poll},
};

use http::{Extensions, Request};
use tower_service::Service;

/// The address at the other end of the connection, in the request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);

impl PeerAddr {
    /// The peer's address in `extensions`: a [`PeerAddr`] or, with the feature `axum`, `ConnectInfo` or else
    /// `MockConnectInfo`.
    #[inline]
    pub fn of(extensions: &Extensions) -> Option<PeerAddr> {
        let peer = extensions.get::<PeerAddr>().copied();
        #[cfg(feature = "axum")]
        let peer = peer.or_else(|| connected(extensions));
        peer
    }
}

#[cfg(feature = "axum")]
#[inline]
fn connected(extensions: &Extensions) -> Option<PeerAddr> {
    use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};

    let real = extensions.get().map(|ConnectInfo(peer)| *peer);
    let mock = || extensions.get().map(|MockConnectInfo(peer)| *peer);
    real.or_else(mock).map(PeerAddr)
}

/// A service for one connection that inserts its [`PeerAddr`] into every request.
///
/// It is for servers that do not provide the peer's address, such as hyper.
#[derive(Clone, Copy, Debug)]
pub struct AddPeerAddr<S> {
    inner: S,
    peer: PeerAddr,
}

impl<S> AddPeerAddr<S> {
    /// Serves the connection from `peer` with `inner`.
    pub const fn new(inner: S, peer: SocketAddr) -> AddPeerAddr<S> {
        AddPeerAddr {
            inner,
            peer: PeerAddr(peer),
        }
    }
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for AddPeerAddr<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        request.extensions_mut().insert(self.peer);
        self.inner.call(request)
    }
}
