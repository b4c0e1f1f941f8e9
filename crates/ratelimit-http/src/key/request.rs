//! Keys from the method and the path.

use crate::{
    framework::RequestHead,
    key::{credential::key_of_named, error::KeyError, kinds::KeyKinds},
    syntax::PercentDecoded,
};
use ratelimit_core::Key;

/// The method of a request. All methods that HTTP does not define share one key.
#[derive(Clone, Copy, Debug, Default)]
pub struct MethodKey;

impl MethodKey {
    /// The kinds of keys that it makes.
    pub fn kinds(self) -> KeyKinds {
        KeyKinds::tagged("method")
    }

    /// The key of a request.
    ///
    /// # Errors
    ///
    /// It never fails, because every request has a method.
    pub fn extract_key(self, request: &impl RequestHead) -> Result<Key, KeyError> {
        let name = match request.method() {
            defined @ ("GET" | "POST" | "PUT" | "DELETE" | "HEAD" | "OPTIONS" | "CONNECT"
            | "PATCH" | "TRACE") => defined,
            // Clients can invent methods, and would get a budget for each.
            _ => "other",
        };
        Ok(Key::tagged("method", name)?)
    }
}

/// One segment of the path, chosen by a template such as `/teams/{team}/members`.
///
/// - The template is matched against the path as the client sent it, also in a nested router.
/// - The segment is percent-decoded, so that all spellings of a value are one key.
/// - A path of another shape is [`KeyError::Missing`].
/// - The key contains only a digest of the segment if the parameter has the name of a
///   [credential](crate::key::is_credential), such as `token`.
#[derive(Clone, Debug)]
pub struct PathKey {
    template: Box<str>,
    parameter: Box<str>,
}

impl PathKey {
    /// Counts by the segment `{parameter}` of `template`.
    ///
    /// # Panics
    ///
    /// If `template` has no such segment.
    pub fn new(template: &str, parameter: &str) -> PathKey {
        let has_parameter = template
            .split('/')
            .any(|segment| name_of(segment) == Some(parameter));
        assert!(has_parameter, "the template has no segment {{{parameter}}}");
        PathKey {
            template: template.into(),
            parameter: parameter.into(),
        }
    }

    /// The kinds of keys that it makes.
    pub fn kinds(&self) -> KeyKinds {
        KeyKinds::of_named("path", &self.parameter)
    }

    /// The key of a request.
    ///
    /// # Errors
    ///
    /// [`KeyError::Missing`] if the path has another shape or the segment is empty.
    pub fn extract_key(&self, request: &impl RequestHead) -> Result<Key, KeyError> {
        let value = self.value(request.path()).ok_or(KeyError::Missing)?;
        if value.is_empty() {
            return Err(KeyError::Missing);
        }
        let value: Vec<u8> = PercentDecoded::lossy(value.as_bytes()).collect();
        Ok(key_of_named("path", &self.parameter, &value)?)
    }

    /// The segment of `path` at the position of the parameter, if the path has the template's shape.
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

/// The name of a parameter segment: `team` for `{team}`.
fn name_of(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}
