//! Keys that tell what is asked for.

use crate::{key::error::KeyError, middleware::RequestHead, syntax::PercentDecoded};
use ratelimit_core::Key;

/// The request's method; all that HTTP does not define share one key.
#[derive(Clone, Copy, Debug, Default)]
pub struct MethodKey;

impl MethodKey {
    /// The key of a request.
    ///
    /// # Errors
    ///
    /// Never; all requests have a method.
    pub fn extract_key(self, request: &impl RequestHead) -> Result<Key, KeyError> {
        let name = match request.method() {
            defined @ ("GET" | "POST" | "PUT" | "DELETE" | "HEAD" | "OPTIONS" | "CONNECT"
            | "PATCH" | "TRACE") => defined,
            // A client can invent methods, and would have a budget for each.
            _ => "other",
        };
        Ok(Key::tagged("method", name)?)
    }
}

/// One segment of the path, by a template.
///
/// The template is matched against the path that the layer sees, which routers may have shortened.
/// Segments are percent-decoded, so that one thing in any spelling is one key. A path of another
/// shape is missing.
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

    /// The key of a request.
    ///
    /// # Errors
    ///
    /// When its path has another shape, or the segment is empty.
    pub fn extract_key(&self, request: &impl RequestHead) -> Result<Key, KeyError> {
        let value = self.value(request.path()).ok_or(KeyError::Missing)?;
        if value.is_empty() {
            return Err(KeyError::Missing);
        }
        let mut named = [self.parameter.as_bytes(), b":"].concat();
        named.extend(PercentDecoded::lossy(value.as_bytes()));
        Ok(Key::tagged("path", named)?)
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

fn name_of(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}
