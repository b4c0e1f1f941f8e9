//! The formats of policy files.

use std::path::Path;

/// The format of a policy file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// [TOML](https://toml.io).
    #[cfg(feature = "toml")]
    Toml,
    /// The plain part of [YAML 1.2](https://yaml.org): one document without aliases and tags.
    #[cfg(feature = "yaml")]
    Yaml,
}

impl Format {
    /// The endings of file names, for messages.
    #[cfg(all(feature = "toml", feature = "yaml"))]
    pub(crate) const ENDINGS: &str = ".toml, .yaml or .yml";
    #[cfg(not(feature = "yaml"))]
    pub(crate) const ENDINGS: &str = ".toml";
    #[cfg(not(feature = "toml"))]
    pub(crate) const ENDINGS: &str = ".yaml or .yml";

    /// The format of a file by the end of its name: `.toml`, `.yaml` or `.yml`.
    ///
    /// ```
    /// # #[cfg(feature = "yaml")] {
    /// use ratelimit_http::policy_file::Format;
    ///
    /// assert_eq!(Format::of("policies.yml".as_ref()), Some(Format::Yaml));
    /// assert_eq!(Format::of("policies.json".as_ref()), None);
    /// # }
    /// ```
    pub fn of(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()? {
            #[cfg(feature = "toml")]
            "toml" => Some(Format::Toml),
            #[cfg(feature = "yaml")]
            "yaml" | "yml" => Some(Format::Yaml),
            _ => None,
        }
    }
}
