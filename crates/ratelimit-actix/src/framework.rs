//! The types of actix-web, described for `ratelimit_http`.

use std::{fmt, net::IpAddr};

use actix_web::{
    HttpMessage as _, HttpRequest, HttpResponse,
    http::{
        StatusCode, Version,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
};
use ratelimit_core::Decision;
use ratelimit_http::{
    client_ip::HeaderLines,
    middleware::{self, Framework, RequestHead},
    response::ProblemDetails,
};

/// The framework of actix-web's requests and responses.
#[derive(Clone, Copy, Debug)]
pub struct ActixFramework;

/// The settings of a middleware, shared by all its services.
pub(crate) type Config = middleware::Config<ActixFramework>;

/// The admission of a request that passed.
pub(crate) type HttpAdmission = middleware::AdmittedRequest<ActixFramework>;

/// The head of a request.
pub(crate) struct Head<'a>(pub(crate) &'a HttpRequest);

impl HeaderLines for Head<'_> {
    fn lines<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        self.0.headers().get_all(name).map(HeaderValue::as_bytes)
    }
}

impl RequestHead for Head<'_> {
    fn method(&self) -> &str {
        self.0.method().as_str()
    }

    fn path(&self) -> &str {
        self.0.path()
    }

    fn query(&self) -> &str {
        self.0.query_string()
    }

    fn is_http1(&self) -> bool {
        self.0.version() < Version::HTTP_2
    }

    fn peer(&self) -> Option<IpAddr> {
        self.0.peer_addr().map(|peer| peer.ip())
    }

    fn extension<T: Send + Sync + 'static, R>(&self, read: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.extensions().get().map(read)
    }

    fn warn(&self, peer: IpAddr, warning: fmt::Arguments<'_>) {
        tracing::warn!(%peer, "{warning}");
    }
}

impl Framework for ActixFramework {
    type Request = HttpRequest;
    type Response = HttpResponse;
    type Map = HeaderMap;
    type Name = HeaderName;
    type Value = HeaderValue;

    const MISSING_CLIENT_HELP: &'static str = "listen on TCP, add TestRequest::peer_addr in a test, or \
        ClientIpResolver::trust_unix_sockets behind a proxy on a unix socket";
    const RETRY_AFTER: HeaderName = header::RETRY_AFTER;
    const CONTENT_TYPE: HeaderName = header::CONTENT_TYPE;
    const CACHE_CONTROL: HeaderName = header::CACHE_CONTROL;
    const PROBLEM_JSON: HeaderValue = HeaderValue::from_static(ProblemDetails::CONTENT_TYPE);
    const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

    fn head(request: &HttpRequest) -> impl RequestHead {
        Head(request)
    }

    fn response(status: u16, body: Vec<u8>) -> HttpResponse {
        let status = StatusCode::from_u16(status);
        let response = HttpResponse::new(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
        response.set_body(body).map_into_boxed_body()
    }

    fn headers_mut(response: &mut HttpResponse) -> &mut HeaderMap {
        response.headers_mut()
    }

    fn insert_into_response(decision: &Decision, response: &mut HttpResponse) {
        response.extensions_mut().insert(decision.clone());
    }

    fn error(policy: &str, error: fmt::Arguments<'_>) {
        tracing::error!(policy, "{error}");
    }

    fn name(name: &'static str) -> HeaderName {
        HeaderName::from_static(name)
    }

    fn constant(value: &'static str) -> HeaderValue {
        HeaderValue::from_static(value)
    }

    fn value(value: &[u8]) -> HeaderValue {
        HeaderValue::from_bytes(value).expect("fields are visible ASCII")
    }

    fn bytes(value: &HeaderValue) -> &[u8] {
        value.as_bytes()
    }

    fn lines<'a>(map: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
        map.get_all(name).map(HeaderValue::as_bytes)
    }

    fn lines_of<'a>(map: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a [u8]> {
        map.get_all(name).map(HeaderValue::as_bytes)
    }

    fn contains(map: &HeaderMap, name: &HeaderName) -> bool {
        map.contains_key(name)
    }

    fn insert(map: &mut HeaderMap, name: &HeaderName, value: HeaderValue) {
        map.insert(name.clone(), value);
    }

    fn append(map: &mut HeaderMap, name: &HeaderName, value: HeaderValue) {
        map.append(name.clone(), value);
    }
}
