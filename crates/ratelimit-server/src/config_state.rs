//! The configuration beyond the rules: where it came from, and how it is read again.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

use ratelimit_core::FailureMode;
#[cfg(feature = "envoy")]
use ratelimit_envoy::Rules as EnvoyRules;
use tokio::sync::Semaphore;
#[cfg(feature = "envoy")]
use tokio::sync::watch;

use crate::{
    config::{Config, Settings},
    hangup::HangupSender,
    reload_channel::ReloadHandle,
};

/// The settings that the server was started with, and handles of the tasks that read files again.
#[derive(Debug)]
pub(crate) struct ConfigState {
    /// The settings of flags and environment, which go before the file.
    pub(crate) given: Settings,
    /// The merged settings of the start.
    pub(crate) running: Settings,
    /// The failure mode of policies without one of their own.
    pub(crate) failure_mode: FailureMode,
    /// Whether every request of Envoy passes.
    #[cfg(feature = "envoy")]
    pub(crate) is_envoy_shadow: bool,
    pub(crate) hangups: HangupSender,
    /// Room for one check of a configuration text at a time.
    pub(crate) check_room: Arc<Semaphore>,
    /// Room for one read of the configuration file for the console at a time.
    pub(crate) read_room: Arc<Semaphore>,
    reload: OnceLock<ReloadHandle>,
    #[cfg(feature = "envoy")]
    envoy_rules: OnceLock<watch::Receiver<Arc<EnvoyRules>>>,
}

impl ConfigState {
    pub(crate) fn new(config: &Config) -> ConfigState {
        ConfigState {
            given: config.given.clone(),
            running: config.settings.clone(),
            failure_mode: config.store.failure_mode(),
            #[cfg(feature = "envoy")]
            is_envoy_shadow: config.envoy.as_ref().is_some_and(|envoy| envoy.is_shadow),
            hangups: HangupSender::default(),
            check_room: Arc::new(Semaphore::new(1)),
            read_room: Arc::new(Semaphore::new(1)),
            reload: OnceLock::new(),
            #[cfg(feature = "envoy")]
            envoy_rules: OnceLock::new(),
        }
    }

    /// The configuration file.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.given.file()
    }

    /// Sets the handle of the task that reloads the configuration. The first one stays.
    pub(crate) fn set_reload(&self, handle: ReloadHandle) {
        let _ = self.reload.set(handle);
    }

    /// The handle of the task that reloads the configuration, if it runs.
    pub(crate) fn reload(&self) -> Option<&ReloadHandle> {
        self.reload.get()
    }

    /// Sets where the current Envoy rules are found. The first ones stay.
    #[cfg(feature = "envoy")]
    pub(crate) fn set_envoy_rules(&self, rules: watch::Receiver<Arc<EnvoyRules>>) {
        let _ = self.envoy_rules.set(rules);
    }

    /// The Envoy rules of this moment, if there is a listener for Envoy.
    #[cfg(feature = "envoy")]
    pub(crate) fn envoy_rules(&self) -> Option<Arc<EnvoyRules>> {
        let rules = self.envoy_rules.get()?;
        Some(Arc::clone(&rules.borrow()))
    }
}
