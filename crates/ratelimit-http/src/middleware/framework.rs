//! What an adapter tells of its framework's types.

use std::{fmt, net::IpAddr};

use crate::{client_ip::HeaderLines, response::Digits};
use ratelimit_core::{Decision, Key};

/// The head of a request, whatever crate keeps it.
pub trait RequestHead: HeaderLines {
    /// The method, as it was sent.
    fn method(&self) -> &str;

    /// The path, as it was sent.
    fn path(&self) -> &str;

    /// What stands behind the question mark; empty where there is none.
    fn query(&self) -> &str;

    /// The address at the other end of the connection.
    fn peer(&self) -> Option<IpAddr>;

    /// The key that the application put into the request's extensions.
    fn explicit_key(&self) -> Option<Key>;

    /// Logs a warning about a peer, under the adapter's own name.
    fn warn(&self, peer: IpAddr, warning: fmt::Arguments<'_>);

    /// Whether there is a line of the field `name`, which is in lower case.
    fn has_header(&self, name: &str) -> bool {
        self.lines(name).next().is_some()
    }
}

/// The header fields of a response, with names and values that can be made ahead.
///
/// It is implemented by the type that names a framework, because the map is of another crate.
pub trait HeaderFields: Copy + fmt::Debug + Send + Sync + 'static {
    /// All fields of a message.
    type Map;
    /// A field's name.
    type Name: Clone + fmt::Debug + Send + Sync;
    /// A field's value.
    type Value: Clone + fmt::Debug + Send + Sync;

    /// `Retry-After`.
    const RETRY_AFTER: Self::Name;
    /// `Content-Type`.
    const CONTENT_TYPE: Self::Name;
    /// `Cache-Control`.
    const CACHE_CONTROL: Self::Name;
    /// The content type of a [`ProblemDetails`](crate::response::ProblemDetails).
    const PROBLEM_JSON: Self::Value;
    /// `no-store`.
    const NO_STORE: Self::Value;

    /// The name that is written so, in lower case.
    fn name(name: &'static str) -> Self::Name;

    /// A value of visible ASCII that is always the same.
    fn constant(value: &'static str) -> Self::Value;

    /// A value of visible ASCII.
    fn value(value: &[u8]) -> Self::Value;

    /// What a value holds.
    fn bytes(value: &Self::Value) -> &[u8];

    /// The values of all lines of a field.
    fn lines<'a>(map: &'a Self::Map, name: &Self::Name) -> impl Iterator<Item = &'a [u8]>;

    /// The values of all lines of a field whose name is known at run time, in lower case.
    fn lines_of<'a>(map: &'a Self::Map, name: &str) -> impl Iterator<Item = &'a [u8]>;

    /// Whether there is a line of a field.
    fn contains(map: &Self::Map, name: &Self::Name) -> bool;

    /// A moment in seconds of Unix time: one of few values that come again and again.
    fn moment(seconds: u64) -> Self::Value {
        Self::value(Digits::of(seconds).as_bytes())
    }

    /// Sets a field that is not there yet.
    ///
    /// # Errors
    ///
    /// The value, where the field is there.
    fn insert_new(
        map: &mut Self::Map,
        name: &Self::Name,
        value: Self::Value,
    ) -> Result<(), Self::Value> {
        if Self::contains(map, name) {
            return Err(value);
        }
        Self::insert(map, name, value);
        Ok(())
    }

    /// Sets a field to one line.
    fn insert(map: &mut Self::Map, name: &Self::Name, value: Self::Value);

    /// Adds a line to a field.
    fn append(map: &mut Self::Map, name: &Self::Name, value: Self::Value);
}

/// The types of one HTTP framework.
pub trait Framework: HeaderFields {
    /// A request, as functions of users get it.
    type Request: fmt::Debug;
    /// A response that we make.
    type Response;
    /// The settings that only this adapter has.
    type Options: Clone + Default + Send + Sync;

    /// What to do where no request has a client address.
    const MISSING_CLIENT_HELP: &'static str;

    /// The head of a request.
    fn head(request: &Self::Request) -> impl RequestHead;

    /// An answer without header fields.
    fn response(status: u16, body: Vec<u8>) -> Self::Response;

    /// The header fields of an answer.
    fn headers_mut(response: &mut Self::Response) -> &mut Self::Map;

    /// Logs that a policy cannot be applied, under the adapter's own name.
    fn error(policy: &str, error: fmt::Arguments<'_>);

    /// The answer to HEAD: as long as the answer to GET, and not sent.
    ///
    /// As it is where the framework's server sees to that.
    fn without_body(response: Self::Response) -> Self::Response {
        response
    }

    /// Leaves the decision that denied a request in its answer, for layers further out.
    fn insert_into_response(
        _options: &Self::Options,
        _decision: &Decision,
        _answer: &mut Self::Response,
    ) {
    }
}
