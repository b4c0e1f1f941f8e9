//! Keys that tell what is asked for, and by whom the application thinks.

use std::{fmt, marker::PhantomData, sync::Arc};

use http::{Method, request::Parts};
use ratelimit_core::{InvalidKey, Key};

use super::{KeyExtractor, NoKey};

/// The pattern of the route that a request matched, in the request's extensions.
///
/// Routers and adapters put it there: `/users/{id}`, never the path itself, which a client can
/// vary at will.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RouteName(pub Arc<str>);

/// The route that a request matched, by its [`RouteName`]; missing where there is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteKey;

impl KeyExtractor for RouteKey {
    fn extract(&self, request: &Parts) -> Result<Key, NoKey> {
        let route = request
            .extensions
            .get::<RouteName>()
            .ok_or(NoKey::Missing)?;
        Ok(Key::tagged("route", route.0.as_bytes())?)
    }
}

/// The request's method; all that HTTP does not define share one key.
#[derive(Clone, Copy, Debug, Default)]
pub struct MethodKey;

impl KeyExtractor for MethodKey {
    fn extract(&self, request: &Parts) -> Result<Key, NoKey> {
        let name = match request.method {
            Method::GET
            | Method::POST
            | Method::PUT
            | Method::DELETE
            | Method::HEAD
            | Method::OPTIONS
            | Method::CONNECT
            | Method::PATCH
            | Method::TRACE => request.method.as_str(),
            // A client can invent methods, and would have a budget for each.
            _ => "other",
        };
        Ok(Key::tagged("method", name)?)
    }
}

/// A key made of what the application put into the request's extensions, such as its user.
///
/// ```
/// use ratelimit_core::Key;
/// use ratelimit_tower::{ExtensionKey, KeyExtractor};
///
/// #[derive(Clone)]
/// struct User(u64);
///
/// let by_user = ExtensionKey::new(|user: &User| Key::tagged("user", user.0.to_string()));
/// let (request, ()) = http::Request::builder().extension(User(7)).body(())?.into_parts();
/// assert_eq!(by_user.extract(&request)?.as_str(), "user:7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ExtensionKey<T, F> {
    key: F,
    _extension: PhantomData<fn(&T)>,
}

impl<T, F> ExtensionKey<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> Result<Key, InvalidKey> + Send + Sync + 'static,
{
    /// The key that `key` makes of the extension of type `T`; missing where there is none.
    pub const fn new(key: F) -> ExtensionKey<T, F> {
        ExtensionKey {
            key,
            _extension: PhantomData,
        }
    }
}

impl<T, F> KeyExtractor for ExtensionKey<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> Result<Key, InvalidKey> + Send + Sync + 'static,
{
    fn extract(&self, request: &Parts) -> Result<Key, NoKey> {
        let extension = request.extensions.get::<T>().ok_or(NoKey::Missing)?;
        Ok((self.key)(extension)?)
    }
}

impl<T, F> fmt::Debug for ExtensionKey<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExtensionKey<{}>", std::any::type_name::<T>())
    }
}

/// One segment of the path, by a template.
///
/// The template is matched against the path that the layer sees, which routers may have shortened.
/// Segments are percent-decoded, so that one thing in any spelling is one key. A path of another
/// shape is missing.
///
/// ```
/// use ratelimit_tower::{KeyExtractor, NoKey, PathKey};
///
/// let by_team = PathKey::new("/teams/{team}/members/{member}", "team");
/// let key_of = |path: &str| {
///     let request = http::Request::builder().uri(path).body(()).expect("a good path");
///     by_team.extract(&request.into_parts().0)
/// };
/// assert_eq!(key_of("/teams/r%65d/members/7")?.as_str(), "path:team:red");
/// assert_eq!(key_of("/teams"), Err(NoKey::Missing));
/// # Ok::<(), NoKey>(())
/// ```
#[derive(Clone, Debug)]
pub struct PathKey {
    template: Box<str>,
    parameter: Box<str>,
}

impl PathKey {
    /// The value of `parameter` in `template`, where it stands in braces.
    ///
    /// # Panics
    ///
    /// When `template` has no such segment.
    pub fn new(template: &str, parameter: &str) -> PathKey {
        let stands = template
            .split('/')
            .any(|segment| name_of(segment) == Some(parameter));
        assert!(stands, "the template has no segment {{{parameter}}}");
        PathKey {
            template: template.into(),
            parameter: parameter.into(),
        }
    }

    fn value<'a>(&self, path: &'a str) -> Option<&'a str> {
        let mut segments = path.split('/');
        let mut value = None;
        for expected in self.template.split('/') {
            let segment = segments.next()?;
            match name_of(expected) {
                Some(name) if name == &*self.parameter => value = Some(segment),
                Some(_) => {}
                None if expected == segment => {}
                None => return None,
            }
        }
        match segments.next() {
            Some(_) => None,
            None => value,
        }
    }
}

impl KeyExtractor for PathKey {
    fn extract(&self, request: &Parts) -> Result<Key, NoKey> {
        let value = self.value(request.uri.path()).ok_or(NoKey::Missing)?;
        if value.is_empty() {
            return Err(NoKey::Missing);
        }
        let mut named = [self.parameter.as_bytes(), b":"].concat();
        percent_decode_into(&mut named, value.as_bytes());
        Ok(Key::tagged("path", named)?)
    }
}

fn name_of(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

/// Decodes what is an escape, and leaves the rest as it stands.
fn percent_decode_into(decoded: &mut Vec<u8>, mut text: &[u8]) {
    while let [byte, rest @ ..] = text {
        let escaped = match rest {
            [high, low, ..] if *byte == b'%' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        let (byte, length) = escaped.map_or((*byte, 1), |(high, low)| (high << 4 | low, 3));
        decoded.push(byte);
        text = &text[length..];
    }
}

fn hex(digit: u8) -> Option<u8> {
    u8::try_from(char::from(digit).to_digit(16)?).ok()
}
