//! The types of the `http` crate, described for `ratelimit_http`.

use std::{fmt, net::IpAddr};

#[cfg(feature = "axum")]
use axum::extract::OriginalUri;
use bytes::Bytes;
use http::{
    Extensions, HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version,
    header::{self, Entry},
    request::Parts,
};
use ratelimit_core::Decision;
use ratelimit_http::{client_ip::HeaderLines, response::ProblemDetails};
use ratelimit_http::{
    middleware::{self, BodyGuard, DecisionSharing, Framework, RequestHead},
    response::is_refusal,
};

use crate::{peer_addr::PeerAddr, reset_value::cached_reset_value};

/// The number of header fields of a rejection, with those that servers add. They take one allocation.
const FIELDS: usize = 8;

/// The framework of the `http` crate's requests and responses.
#[derive(Clone, Copy, Debug)]
pub struct HttpFramework;

/// The settings of a layer, shared by all its services.
pub(crate) type Config = middleware::Config<HttpFramework>;

/// The admission of a request that passed.
pub(crate) type HttpAdmission = middleware::AdmittedRequest<HttpFramework>;

/// Inserts the slot into the request's extensions, and the decision if the layer shares it.
#[inline]
pub(crate) fn insert_into_request(
    config: &Config,
    admission: &HttpAdmission,
    extensions: &mut Extensions,
) {
    if let Some(slot) = admission.slot() {
        let outer = extensions.remove();
        extensions.insert(slot.inside(outer));
    }
    // A layer without a decision leaves that of an outer layer in place.
    if config.sharing != DecisionSharing::Off
        && let Some(decision) = admission.decision()
    {
        extensions.insert(decision.clone());
    }
}

/// Inserts the decision into the response's extensions, for outer layers.
fn insert_into_extensions<B>(decision: Option<Decision>, response: &mut Response<B>) {
    // The decision of an inner layer that rejected the request stays.
    let has_decision = response.extensions().get::<Decision>().is_some();
    if let Some(decision) = decision
        && !(has_decision && is_refusal::<HttpFramework>(response.headers()))
    {
        response.extensions_mut().insert(decision);
    }
}

/// Writes the header fields of the service's response.
pub(crate) fn write_headers<B>(
    config: &Config,
    admission: &HttpAdmission,
    response: &mut Response<B>,
) {
    config.write_headers(admission, response.headers_mut());
    if config.sharing == DecisionSharing::RequestAndResponse {
        insert_into_extensions(admission.decision().cloned(), response);
    }
}

/// Settles the charge and writes the header fields. Returns the guard that belongs to the body.
#[inline]
pub(crate) fn finish<B>(
    config: &Config,
    admission: Option<&mut HttpAdmission>,
    response: &mut Response<B>,
) -> Option<Box<BodyGuard>> {
    let admission = admission?;
    if config.sharing == DecisionSharing::RequestAndResponse {
        insert_into_extensions(admission.decision().cloned(), response);
    }
    let status = response.status().as_u16();
    config.finish(admission, status, response.headers_mut())
}

/// The head of a request.
pub(crate) struct Head<'a>(pub(crate) &'a Parts);

impl HeaderLines for Head<'_> {
    #[inline]
    fn lines<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        let headers = &self.0.headers;
        // A scan is faster than a hash lookup here: most requests have few headers, and not this one.
        let name = headers.keys().find(|key| key.as_str() == name);
        let lines = name.map(|name| headers.get_all(name));
        lines.into_iter().flatten().map(HeaderValue::as_bytes)
    }
}

impl RequestHead for Head<'_> {
    #[inline]
    fn method(&self) -> &str {
        self.0.method.as_str()
    }

    #[inline]
    fn path(&self) -> &str {
        // A nested router of axum removes its prefix from the URI.
        #[cfg(feature = "axum")]
        if let Some(OriginalUri(uri)) = self.0.extensions.get() {
            return uri.path();
        }
        self.0.uri.path()
    }

    #[inline]
    fn query(&self) -> &str {
        self.0.uri.query().unwrap_or_default()
    }

    #[inline]
    fn is_http1(&self) -> bool {
        self.0.version < Version::HTTP_2
    }

    #[inline]
    fn peer(&self) -> Option<IpAddr> {
        PeerAddr::of(&self.0.extensions).map(|peer| peer.0.ip())
    }

    #[inline]
    fn extension<T: Send + Sync + 'static, R>(&self, read: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.extensions.get().map(read)
    }

    fn warn(&self, peer: IpAddr, warning: fmt::Arguments<'_>) {
        tracing::warn!(%peer, "{warning}");
    }
}

impl Framework for HttpFramework {
    type Request = Parts;
    type Response = Response<Bytes>;
    type Map = HeaderMap;
    type Name = HeaderName;
    type Value = HeaderValue;

    const MISSING_CLIENT_HELP: &'static str =
        "serve each connection with AddPeerAddr::new(service, peer), or set ClientKey::peer_by";
    const UNCOUNTED_BODY_HELP: &'static str =
        "put CountBodyLayer over the limit, or require a length in front of it";
    const RETRY_AFTER: HeaderName = header::RETRY_AFTER;
    const CONTENT_TYPE: HeaderName = header::CONTENT_TYPE;
    const CACHE_CONTROL: HeaderName = header::CACHE_CONTROL;
    const PROBLEM_JSON: HeaderValue = HeaderValue::from_static(ProblemDetails::CONTENT_TYPE);
    const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

    fn head(request: &Parts) -> impl RequestHead {
        Head(request)
    }

    fn response(status: u16, body: Vec<u8>) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(body));
        response.headers_mut().reserve(FIELDS);
        let status = StatusCode::from_u16(status);
        *response.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response
    }

    fn headers_mut(response: &mut Response<Bytes>) -> &mut HeaderMap {
        response.headers_mut()
    }

    fn error(policy: &str, error: fmt::Arguments<'_>) {
        tracing::error!(policy, "{error}");
    }

    fn without_body(response: Response<Bytes>) -> Response<Bytes> {
        let (mut head, body) = response.into_parts();
        let length = HeaderValue::from(body.len());
        head.headers.entry(header::CONTENT_LENGTH).or_insert(length);
        Response::from_parts(head, Bytes::new())
    }

    fn insert_into_response(decision: &Decision, response: &mut Response<Bytes>) {
        insert_into_extensions(Some(decision.clone()), response);
    }

    fn name(name: &'static str) -> HeaderName {
        HeaderName::from_static(name)
    }

    #[inline]
    fn constant(value: &'static str) -> HeaderValue {
        HeaderValue::from_static(value)
    }

    #[inline]
    fn value(value: &[u8]) -> HeaderValue {
        HeaderValue::from_bytes(value).expect("fields are visible ASCII")
    }

    #[inline]
    fn moment(seconds: u64) -> HeaderValue {
        cached_reset_value(seconds)
    }

    fn bytes(value: &HeaderValue) -> &[u8] {
        value.as_bytes()
    }

    fn lines<'a>(map: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
        map.get_all(name).into_iter().map(HeaderValue::as_bytes)
    }

    fn lines_of<'a>(map: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a [u8]> {
        map.get_all(name).into_iter().map(HeaderValue::as_bytes)
    }

    fn contains(map: &HeaderMap, name: &HeaderName) -> bool {
        map.contains_key(name)
    }

    #[inline]
    fn insert_new(
        map: &mut HeaderMap,
        name: &HeaderName,
        value: HeaderValue,
    ) -> Result<(), HeaderValue> {
        match map.entry(name) {
            Entry::Vacant(entry) => {
                entry.insert(value);
                Ok(())
            }
            Entry::Occupied(_) => Err(value),
        }
    }

    #[inline]
    fn insert(map: &mut HeaderMap, name: &HeaderName, value: HeaderValue) {
        map.insert(name, value);
    }

    fn append(map: &mut HeaderMap, name: &HeaderName, value: HeaderValue) {
        map.append(name, value);
    }
}
