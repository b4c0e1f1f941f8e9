//! The types of the `http` crate, as the engine reads and writes them.

use std::{fmt, net::IpAddr};

use bytes::Bytes;
use http::{
    Extensions, HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{self, Entry},
    request::Parts,
};
use ratelimit_core::{
    Decision, HeaderLines, Key, Problem,
    adapter::{self, Framework, HeaderFields, RequestHead, Slot, is_refusal},
};

use crate::{body::ResponseBody, key::PeerAddr, lent, moment};

/// As many as an answer of ours has, with what servers add; they take one allocation.
const FIELDS: usize = 8;

/// Requests and responses of the `http` crate.
#[derive(Clone, Copy, Debug)]
pub struct Http;

/// What a layer decides by, shared by all its services.
pub(crate) type Settings = adapter::Settings<Http>;

/// A request that passed.
pub(crate) type Passage = adapter::Passage<Http>;

/// The settings that only this adapter has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Own {
    pub(crate) sharing: Sharing,
}

/// How handlers and outer layers get the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sharing {
    #[default]
    Off,
    /// Handlers only, while they are polled.
    Lent,
    /// In the extensions of the request and the response.
    Inserted,
}

impl Own {
    /// Leaves for the handler what it may want: the slot, and the decision where that is asked for.
    #[inline]
    pub(crate) fn share_inwards(self, passage: &Passage, extensions: &mut Extensions) {
        if let Some(slot) = passage.slot() {
            share_slot(slot, extensions);
        }
        if self.sharing == Sharing::Inserted {
            share_decision(passage, extensions);
        }
    }

    /// The same for a handler that no future of ours polls, to which nothing can be lent.
    pub(crate) fn share_by_hand(self, passage: &Passage, extensions: &mut Extensions) {
        self.share_inwards(passage, extensions);
        if self.sharing != Sharing::Off {
            share_decision(passage, extensions);
            lent::withdraw();
        }
    }
}

/// Leaves the decision for outer layers.
fn share_outwards<B>(decision: Option<Decision>, response: &mut Response<B>) {
    // An inner layer that refused has the last word here as well.
    let decided = response.extensions().get::<Decision>().is_some();
    if let Some(decision) = decision
        && !(decided && is_refusal::<Http>(response.headers()))
    {
        response.extensions_mut().insert(decision);
    }
}

fn share_decision(passage: &Passage, extensions: &mut Extensions) {
    if let Some(decision) = passage.decision() {
        extensions.insert(decision.clone());
    }
}

fn share_slot(slot: Slot, extensions: &mut Extensions) {
    let outer = extensions.remove();
    extensions.insert(slot.inside(outer));
}

/// Tells in a response that the service gave what was decided.
pub(crate) fn tell<B>(settings: &Settings, passage: &Passage, response: &mut Response<B>) {
    settings.tell(passage, response.headers_mut());
    if settings.own.sharing == Sharing::Inserted {
        share_outwards(passage.decision().cloned(), response);
    }
}

/// Settles and tells, and leaves the body with what is held until it ends.
#[inline]
pub(crate) fn finish<B>(
    settings: &Settings,
    passage: Option<&mut Passage>,
    mut response: Response<B>,
) -> Response<ResponseBody<B>> {
    let held = passage.and_then(|passage| {
        if settings.own.sharing == Sharing::Inserted {
            share_outwards(passage.decision().cloned(), &mut response);
        }
        let status = response.status().as_u16();
        settings.finish(passage, status, response.headers_mut())
    });
    response.map(|body| ResponseBody::inner(body, held))
}

/// The head of a request.
pub(crate) struct Head<'a>(pub(crate) &'a Parts);

impl HeaderLines for Head<'_> {
    #[inline]
    fn lines<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        let headers = &self.0.headers;
        // Most requests have none of them, which is seen faster than it is looked up.
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
        self.0.uri.path()
    }

    #[inline]
    fn query(&self) -> &str {
        self.0.uri.query().unwrap_or_default()
    }

    #[inline]
    fn peer(&self) -> Option<IpAddr> {
        PeerAddr::of(&self.0.extensions).map(|peer| peer.0.ip())
    }

    #[inline]
    fn explicit_key(&self) -> Option<Key> {
        self.0.extensions.get().cloned()
    }

    fn warn(&self, peer: IpAddr, warning: fmt::Arguments<'_>) {
        tracing::warn!(%peer, "{warning}");
    }
}

impl HeaderFields for Http {
    type Map = HeaderMap;
    type Name = HeaderName;
    type Value = HeaderValue;

    const RETRY_AFTER: HeaderName = header::RETRY_AFTER;
    const CONTENT_TYPE: HeaderName = header::CONTENT_TYPE;
    const CACHE_CONTROL: HeaderName = header::CACHE_CONTROL;
    const PROBLEM_JSON: HeaderValue = HeaderValue::from_static(Problem::CONTENT_TYPE);
    const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

    fn name(name: &'static str) -> HeaderName {
        HeaderName::from_static(name)
    }

    fn constant(value: &'static str) -> HeaderValue {
        HeaderValue::from_static(value)
    }

    fn value(value: &[u8]) -> HeaderValue {
        HeaderValue::from_bytes(value).expect("fields are visible ASCII")
    }

    fn moment(seconds: u64) -> HeaderValue {
        moment::value(seconds)
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

    fn insert_new(
        map: &mut HeaderMap,
        name: &HeaderName,
        value: HeaderValue,
    ) -> Result<(), HeaderValue> {
        match map.entry(name) {
            Entry::Vacant(place) => {
                place.insert(value);
                Ok(())
            }
            Entry::Occupied(_) => Err(value),
        }
    }

    fn insert(map: &mut HeaderMap, name: &HeaderName, value: HeaderValue) {
        map.insert(name, value);
    }

    fn append(map: &mut HeaderMap, name: &HeaderName, value: HeaderValue) {
        map.append(name, value);
    }
}

impl Framework for Http {
    type Request = Parts;
    type Answer = Response<Bytes>;
    type Own = Own;

    const ADVICE: &'static str =
        "serve each connection with WithPeer::new(service, peer), or set ClientKey::peer_by";

    fn head(request: &Parts) -> impl RequestHead {
        Head(request)
    }

    fn answer(status: u16, body: Vec<u8>) -> Response<Bytes> {
        let mut answer = Response::new(Bytes::from(body));
        answer.headers_mut().reserve(FIELDS);
        let status = StatusCode::from_u16(status);
        *answer.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        answer
    }

    fn fields(answer: &mut Response<Bytes>) -> &mut HeaderMap {
        answer.headers_mut()
    }

    fn error(policy: &str, error: fmt::Arguments<'_>) {
        tracing::error!(policy, "{error}");
    }

    fn without_body(answer: Response<Bytes>) -> Response<Bytes> {
        let (mut head, body) = answer.into_parts();
        let length = HeaderValue::from(body.len());
        head.headers.entry(header::CONTENT_LENGTH).or_insert(length);
        Response::from_parts(head, Bytes::new())
    }

    fn share(own: &Own, decision: &Decision, answer: &mut Response<Bytes>) {
        if own.sharing == Sharing::Inserted {
            share_outwards(Some(decision.clone()), answer);
        }
    }
}
