//! The languages that a policy file can be written in.

use std::path::Path;

/// The language of a policy file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// [TOML](https://toml.io).
    #[cfg(feature = "toml")]
    Toml,
    /// The plain part of [YAML 1.2](https://yaml.org): no aliases, no tags, one document.
    #[cfg(feature = "yaml")]
    Yaml,
}

impl Format {
    #[cfg(all(feature = "toml", feature = "yaml"))]
    pub(crate) const ENDINGS: &str = ".toml, .yaml or .yml";
    #[cfg(not(feature = "yaml"))]
    pub(crate) const ENDINGS: &str = ".toml";
    #[cfg(not(feature = "toml"))]
    pub(crate) const ENDINGS: &str = ".yaml or .yml";

    /// The format of a file by its name: `.toml`, `.yaml` or `.yml`.
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
