//! The traits that an adapter implements for the types of its framework.

use std::{fmt, net::IpAddr};

use crate::client_ip::HeaderLines;
use ratelimit_core::{Decision, Key};

/// Read access to the head of a request.
///
/// The key extractors and the rules of a policy read requests through this trait. An adapter implements
/// it for a type that borrows the framework's own request.
pub trait RequestHead: HeaderLines {
    /// The method as it was sent, in upper case for the methods of HTTP.
    fn method(&self) -> &str;

    /// The path as it was sent, without the query.
    fn path(&self) -> &str;

    /// The query without its question mark; empty if there is none.
    fn query(&self) -> &str;

    /// The address at the other end of the connection, or `None` if the adapter does not know it.
    fn peer(&self) -> Option<IpAddr>;

    /// Whether the request came over HTTP/1, where a body without a length has a `Transfer-Encoding`.
    fn is_http1(&self) -> bool;

    /// Reads the value of type `T` in the request's extensions.
    fn extension<T: Send + Sync + 'static, R>(&self, read: impl FnOnce(&T) -> R) -> Option<R>;

    /// The key that the application put into the request's extensions.
    fn explicit_key(&self) -> Option<Key> {
        self.extension(Key::clone)
    }

    /// Logs a warning about `peer`, with the adapter's crate as the log target.
    fn warn(&self, peer: IpAddr, warning: fmt::Arguments<'_>);

    /// Whether the request has the header `name`, which is in lower case.
    fn has_header(&self, name: &str) -> bool {
        self.lines(name).next().is_some()
    }
}

/// The types of one HTTP framework and the operations on its headers.
///
/// An adapter implements this trait once, for a unit struct: the framework's own types belong to other
/// crates. All functions are cheap accessors; every rule about requests and responses is in
/// [`Config`](crate::middleware::Config).
pub trait Framework: Copy + fmt::Debug + Send + Sync + 'static {
    /// A request as the functions of users receive it.
    type Request: fmt::Debug;
    /// A response with a body that the middleware makes itself.
    type Response;
    /// All header fields of a message.
    type Map;
    /// The name of a header field, made once per layer.
    type Name: Clone + fmt::Debug + Send + Sync;
    /// The value of a header field.
    type Value: Clone + fmt::Debug + Send + Sync;

    /// The instruction for services that do not know the peer's address. It ends the log line about it.
    const MISSING_CLIENT_HELP: &'static str;
    /// The instruction for requests whose body nothing counts. It ends the log line about it.
    ///
    /// The default is for frameworks whose layer and attribute count, and whose check by hand sees no body.
    const UNCOUNTED_BODY_HELP: &'static str =
        "use the layer or the attribute, which count it, or require a length in front of the limit";
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

    /// Borrows the head of a request.
    fn head(request: &Self::Request) -> impl RequestHead;

    /// Makes a response without header fields.
    fn response(status: u16, body: Vec<u8>) -> Self::Response;

    /// The header fields of a response.
    fn headers_mut(response: &mut Self::Response) -> &mut Self::Map;

    /// Logs that a policy cannot be applied, with the adapter's crate as the log target.
    fn error(policy: &str, error: fmt::Arguments<'_>);

    /// Removes the body of a response to HEAD and keeps its length in `Content-Length`.
    ///
    /// The default returns the response as it is, for frameworks whose server removes the body.
    fn without_body(response: Self::Response) -> Self::Response {
        response
    }

    /// Inserts the decision that denied a request into the extensions of its response.
    ///
    /// It is called if the layer shares decisions with outer layers. The default does nothing.
    fn insert_into_response(_decision: &Decision, _response: &mut Self::Response) {}

    /// The header name `name`, which is in lower case.
    fn name(name: &'static str) -> Self::Name;

    /// A constant header value of visible ASCII.
    fn constant(value: &'static str) -> Self::Value;

    /// A header value of visible ASCII.
    fn value(value: &[u8]) -> Self::Value;

    /// The bytes of a header value.
    fn bytes(value: &Self::Value) -> &[u8];

    /// The values of all lines of a field.
    fn lines<'a>(map: &'a Self::Map, name: &Self::Name) -> impl Iterator<Item = &'a [u8]>;

    /// The values of all lines of the field `name`, which is known at run time and in lower case.
    fn lines_of<'a>(map: &'a Self::Map, name: &str) -> impl Iterator<Item = &'a [u8]>;

    /// Whether the map has a field.
    fn contains(map: &Self::Map, name: &Self::Name) -> bool;

    /// The value for a point in time, in seconds of Unix time.
    ///
    /// An adapter can cache these values: the clients of one limit are reset within seconds of each other.
    fn moment(seconds: u64) -> Self::Value {
        Self::value(itoa::Buffer::new().format(seconds).as_bytes())
    }

    /// Sets a field that is not present.
    ///
    /// # Errors
    ///
    /// Returns `value` if the field is present.
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

    /// Replaces all lines of a field by one.
    fn insert(map: &mut Self::Map, name: &Self::Name, value: Self::Value);

    /// Appends a line to a field.
    fn append(map: &mut Self::Map, name: &Self::Name, value: Self::Value);
}
