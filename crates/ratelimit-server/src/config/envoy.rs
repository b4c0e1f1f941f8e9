//! Settings of the listener for Envoy.

#[cfg(feature = "envoy")]
use std::path::Path;
use std::{net::SocketAddr, path::PathBuf};

#[cfg(feature = "envoy")]
use ratelimit_envoy::{DirectoryOptions, ResponseOptions};

use super::{
    invalid::{ConflictingSettings, InvalidConfig},
    settings::Settings,
};

/// The listener for Envoy, and the directory of its rules.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(feature = "envoy"),
    expect(
        dead_code,
        reason = "a server without the feature has no such listener"
    )
)]
pub(crate) struct EnvoyConfig {
    pub(crate) listen: SocketAddr,
    pub(crate) directory: Option<PathBuf>,
    #[cfg(feature = "envoy")]
    pub(crate) options: DirectoryOptions,
    #[cfg(feature = "envoy")]
    pub(crate) response: ResponseOptions,
}

impl EnvoyConfig {
    /// The listener of the settings, if there is one.
    pub(super) fn of(settings: &Settings) -> Result<Option<EnvoyConfig>, InvalidConfig> {
        let of_directory = [
            (
                "envoy-merge-domains",
                settings.envoy_merge_domains.is_some(),
            ),
            (
                "envoy-ignore-dot-files",
                settings.envoy_ignore_dot_files.is_some(),
            ),
        ];
        let has_rules = settings.has_envoy_rules();
        let others = [
            ("envoy-config", settings.envoy_config.is_some()),
            ("envoy.rule", has_rules),
            (
                "envoy-dynamic-metadata",
                settings.envoy_dynamic_metadata.is_some(),
            ),
        ];
        let set = |settings: &[(&'static str, bool)]| {
            let mut set = settings.iter().filter(|(_, is_set)| *is_set);
            set.next().map(|(setting, _)| *setting)
        };
        let Some(listen) = settings.envoy_listen else {
            return match set(&others).or(set(&of_directory)) {
                Some(setting) => Err(conflict(setting, "has no effect without envoy-listen")),
                None => Ok(None),
            };
        };
        let directory = settings.envoy_config.clone();
        if let Some(setting) = set(&of_directory).filter(|_| directory.is_none()) {
            return Err(conflict(setting, "has no effect without envoy-config"));
        }
        if directory.is_none() && !has_rules {
            let why = "needs envoy-config or rules in the file, [[envoy.rule]] or [[envoy.bucket]], as well";
            return Err(conflict("envoy-listen", why));
        }
        if cfg!(not(feature = "envoy")) {
            return Err(conflict(
                "envoy-listen",
                "needs a server with the feature envoy",
            ));
        }
        Ok(Some(EnvoyConfig {
            listen,
            directory,
            #[cfg(feature = "envoy")]
            options: settings.envoy_directory_options(),
            #[cfg(feature = "envoy")]
            response: ResponseOptions::default()
                .with_dynamic_metadata(settings.envoy_dynamic_metadata == Some(true)),
        }))
    }
}

impl Settings {
    /// Whether the file has rules for Envoy.
    fn has_envoy_rules(&self) -> bool {
        #[cfg(feature = "envoy")]
        let has_rules = self.envoy_rules.is_some();
        #[cfg(not(feature = "envoy"))]
        let has_rules = false;
        has_rules
    }
}

#[cfg(feature = "envoy")]
impl Settings {
    /// Sets the file that the Envoy rules are in.
    pub(super) fn with_envoy_file(mut self, path: &Path) -> Settings {
        if let Some(rules) = &mut self.envoy_rules {
            path.clone_into(&mut rules.path);
        }
        self
    }

    /// The directory of Envoy rules.
    pub(crate) fn envoy_directory(&self) -> Option<&Path> {
        self.envoy_config.as_deref()
    }

    /// How the directory of Envoy rules is read.
    pub(crate) fn envoy_directory_options(&self) -> DirectoryOptions {
        let mut options = DirectoryOptions::default();
        options.merge_domains = self.envoy_merge_domains == Some(true);
        options.ignore_dot_files = self.envoy_ignore_dot_files == Some(true);
        options
    }
}

fn conflict(setting: &'static str, why: &'static str) -> InvalidConfig {
    InvalidConfig::Conflict(ConflictingSettings { setting, why })
}
