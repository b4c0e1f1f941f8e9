//! The process-wide defaults of layers and attributes.

use std::{
    error, fmt,
    sync::{Arc, Once, OnceLock},
};

use crate::{
    framework::Framework,
    key::{ClientAddress, KeyError},
    middleware::{
        config::{ClientAddressOf, Config, KeyOf, ResponseTo},
        rejection::Rejection,
    },
    response::HeaderStyle,
};
use ratelimit_core::{FailureMode, Key, Limiter};

/// Settings for all limits of a process that do not make them themselves.
///
/// - An adapter wraps it in its own `Defaults`, by the macro `defaults_type!`.
/// - [`Config::with_defaults`](crate::middleware::Config::with_defaults) fills the settings that a layer or
///   an attribute did not make.
/// - Each setting is optional. One that is not made here has its built-in value.
///
/// | setting | applies to |
/// |---|---|
/// | limiter | attributes whose requests carry no limiter |
/// | client | limits without a key; the address of limits `by ip` and of rules, whatever the key |
/// | headers, responses | limits that do not set them |
/// | failure mode | policies without one, under limiters without one |
pub struct DefaultSettings<F: Framework> {
    pub(crate) limiter: Option<Limiter>,
    pub(crate) client: Option<DefaultClient<F>>,
    pub(crate) headers: Option<HeaderStyle>,
    pub(crate) on_denied: Option<Arc<ResponseTo<F>>>,
    pub(crate) on_error: Option<Arc<ResponseTo<F>>>,
    pub(crate) failure_mode: Option<FailureMode>,
}

/// How the clients of all limits are identified: their key, and their address for limits `by ip`.
pub(crate) struct DefaultClient<F: Framework> {
    pub(crate) key: Arc<KeyOf<F>>,
    pub(crate) address: Arc<ClientAddressOf<F>>,
}

impl<F: Framework> DefaultSettings<F> {
    /// Sets the limiter of attributes, for requests that carry no other.
    ///
    /// Layers are given a limiter when they are made, so this one does not apply to them.
    pub fn limiter(&mut self, limiter: Limiter) {
        self.limiter = Some(limiter);
    }

    /// Sets the functions that find a client's key and its address.
    ///
    /// An extractor that a layer or an attribute chose keeps its key. Its address, for limits `by ip` and for
    /// rules, is the one that `address` finds, unless the extractor identifies clients itself.
    pub fn client_by(
        &mut self,
        key: impl Fn(&F::Request) -> Result<Key, KeyError> + Send + Sync + 'static,
        address: impl Fn(&F::Request) -> Result<ClientAddress, KeyError> + Send + Sync + 'static,
    ) {
        self.client = Some(DefaultClient {
            key: Arc::new(key),
            address: Arc::new(address),
        });
    }

    /// Sets the header fields that report the remaining budget.
    pub fn headers(&mut self, style: HeaderStyle) {
        self.headers = Some(style);
    }

    /// Sets the function that makes the response to a request that is denied or blocked.
    pub fn on_denied(
        &mut self,
        response: impl Fn(&Rejection<'_, F>) -> F::Response + Send + Sync + 'static,
    ) {
        self.on_denied = Some(Arc::new(response));
    }

    /// Sets the function that makes the response to a request that could not be decided.
    pub fn on_error(
        &mut self,
        response: impl Fn(&Rejection<'_, F>) -> F::Response + Send + Sync + 'static,
    ) {
        self.on_error = Some(Arc::new(response));
    }

    /// Sets the failure mode of policies and limiters that have none.
    ///
    /// A policy that a registry changes later gets it as well.
    pub fn failure_mode(&mut self, mode: FailureMode) {
        self.failure_mode = Some(mode);
    }
}

impl<F: Framework> Default for DefaultSettings<F> {
    /// Defaults that set nothing.
    fn default() -> DefaultSettings<F> {
        DefaultSettings {
            limiter: None,
            client: None,
            headers: None,
            on_denied: None,
            on_error: None,
            failure_mode: None,
        }
    }
}

impl<F: Framework> fmt::Debug for DefaultSettings<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DefaultSettings")
            .field("limiter", &self.limiter)
            .field("headers", &self.headers)
            .field("failure_mode", &self.failure_mode)
            .finish_non_exhaustive()
    }
}

/// The place of a framework's [`DefaultSettings`]: a `static` of its adapter.
///
/// The first limit that reads it fixes what it contains, so that no limit is built with other defaults
/// than the rest.
#[derive(Debug)]
pub struct GlobalDefaults<F: Framework>(OnceLock<Option<DefaultSettings<F>>>);

impl<F: Framework> GlobalDefaults<F> {
    /// A place in which nothing is set.
    #[expect(clippy::new_without_default, reason = "it is made in a static only")]
    pub const fn new() -> GlobalDefaults<F> {
        GlobalDefaults(OnceLock::new())
    }

    /// Sets the defaults. They stay for as long as the process runs.
    ///
    /// # Errors
    ///
    /// [`SetDefaultsError`] if they were set before, or if a limit already uses the built-in settings.
    pub fn set(&self, defaults: DefaultSettings<F>) -> Result<(), SetDefaultsError> {
        match self.0.set(Some(defaults)) {
            Ok(()) => Ok(()),
            Err(_) if self.get().is_some() => Err(SetDefaultsError::Already),
            Err(_) => Err(SetDefaultsError::InUse),
        }
    }

    /// The defaults, or `None` if none were set. They cannot be set afterwards.
    pub(crate) fn get(&self) -> Option<&DefaultSettings<F>> {
        self.0.get_or_init(|| None).as_ref()
    }
}

/// A framework whose limits share defaults: the adapter has a `static` for them.
///
/// ```text
/// impl HasDefaults for MyFramework {
///     fn defaults() -> &'static GlobalDefaults<Self> {
///         static DEFAULTS: GlobalDefaults<MyFramework> = GlobalDefaults::new();
///         &DEFAULTS
///     }
/// }
/// ```
pub trait HasDefaults: Framework {
    /// The place of the defaults.
    fn defaults() -> &'static GlobalDefaults<Self>;
}

impl<F: HasDefaults> Config<F> {
    /// The settings with the process's defaults in place of those that were not made.
    ///
    /// The defaults cannot be set afterwards, so that all limits of a process use the same.
    pub fn with_defaults(self: &Arc<Self>) -> Arc<Config<F>> {
        let Some(defaults) = F::defaults().get() else {
            return Arc::clone(self);
        };
        let mut config = Config::clone(self);
        if let Some(client) = &defaults.client {
            if config.has_default_key {
                config.key = Arc::clone(&client.key);
            }
            let address = Arc::clone(&client.address);
            config.client_address = match config.own_address.clone() {
                Some(own) => {
                    Arc::new(move |request| own(request).unwrap_or_else(|| address(request)))
                }
                None => address,
            };
        }
        if let (Some(style), true) = (defaults.headers, config.has_default_headers) {
            config.headers(style);
        }
        config.on_denied = config.on_denied.or_else(|| defaults.on_denied.clone());
        config.on_error = config.on_error.or_else(|| defaults.on_error.clone());
        if !config.limiter.has_failure_mode() {
            config.default_failure_mode = defaults.failure_mode;
        }
        config.policy = config.completed(config.policy.clone());
        Arc::new(config)
    }
}

/// The limiter of attributes. If none was set, it is a limiter in memory, and the first call logs a
/// warning.
pub fn global_limiter<F: HasDefaults>() -> Limiter {
    static IN_MEMORY: OnceLock<Limiter> = OnceLock::new();
    static WARNING: Once = Once::new();
    let defaults = F::defaults().get();
    if let Some(limiter) = defaults.and_then(|defaults| defaults.limiter.as_ref()) {
        return limiter.clone();
    }
    WARNING.call_once(|| {
        tracing::warn!(
            "no global limiter is set: handlers count in the memory of this process; \
             call set_global_defaults(Defaults::new().limiter(limiter)) at the start of main"
        );
    });
    IN_MEMORY.get_or_init(Limiter::in_memory).clone()
}

/// The error of `set_global_defaults`.
///
/// Nothing changes in either case: the limits of a process never disagree about their defaults.
///
/// ```
/// use ratelimit_http::middleware::SetDefaultsError;
///
/// // An error that `main` returns is printed by `Debug`, which is the message as well.
/// for error in [SetDefaultsError::Already, SetDefaultsError::InUse] {
///     assert!(error.to_string().contains("at the start of main"));
///     assert_eq!(format!("{error:?}"), error.to_string());
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetDefaultsError {
    /// Defaults were set before.
    Already,
    /// A layer was put over a service, or a handler served a request, with the built-in settings.
    InUse,
}

impl fmt::Display for SetDefaultsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SetDefaultsError::Already => {
                "the defaults are set already: set them once, at the start of main"
            }
            SetDefaultsError::InUse => {
                "a limit already uses the built-in settings: set the defaults at the start of main, \
                 before the first layer is put over a service"
            }
        })
    }
}

debug_as_display!(SetDefaultsError);

impl error::Error for SetDefaultsError {}

/// Defines an adapter's `Defaults` and `set_global_defaults`, with their docs.
///
/// The doc comment is the example. `$convert` makes a response of the framework from the value that a
/// function for `on_denied` returns, as in `builder_methods!`.
#[doc(hidden)]
#[macro_export]
macro_rules! defaults_type {
    (
        $(#[$example:meta])*
        Defaults<$Framework:ty> for $ClientKey:ident: $Extractor:ident, $Rejection:ident -> $Bound:path as $convert:path
    ) => {
        /// Settings for all limits of a process, layers and attributes, that do not make them themselves.
        ///
        /// Each setting comes from the first of these that makes it:
        ///
        /// 1. the layer, or the limiter and registry that a request carries,
        /// 2. the options of the attribute,
        /// 3. these defaults,
        /// 4. the built-in value.
        ///
        /// A policy that an attribute names keeps its own settings, and so does the failure mode of a limiter
        /// that a request carries.
        ///
        /// A layer takes them when it is put over a service, a handler at its first request.
        ///
        $(#[$example])*
        #[derive(Debug, Default)]
        #[must_use = "pass it to set_global_defaults"]
        pub struct Defaults($crate::middleware::DefaultSettings<$Framework>);

        impl Defaults {
            /// Defaults that set nothing.
            pub fn new() -> Defaults {
                Defaults::default()
            }

            /// Sets the limiter of `#[rate_limit(...)]`, for requests that carry no other. Layers are given
            /// theirs when they are made.
            ///
            /// Without it handlers count in the memory of the process, and the first request logs a warning.
            pub fn limiter(mut self, limiter: ::ratelimit_core::Limiter) -> Defaults {
                self.0.limiter(limiter);
                self
            }

            /// Sets how clients are identified, such as by the proxies that are trusted.
            ///
            /// It is the key of limits without one, and the address for limits `by ip` and rules about
            /// addresses.
            pub fn client_key(mut self, client: $ClientKey) -> Defaults {
                let address = client.clone();
                self.0.client_by(
                    move |request| $Extractor::extract(&client, request),
                    move |request| {
                        let address = $Extractor::client_address(&address, request);
                        address.unwrap_or(Err($crate::key::KeyError::NoClientAddress))
                    },
                );
                self
            }

            /// Sets the header fields that report the remaining budget.
            pub fn headers(mut self, style: $crate::response::HeaderStyle) -> Defaults {
                self.0.headers(style);
                self
            }

            /// Sets the response to a request that is over its limit or blocked by a rule.
            pub fn on_denied<R: $Bound>(
                mut self,
                response: impl Fn(&$Rejection<'_>) -> R + Send + Sync + 'static,
            ) -> Defaults {
                self.0.on_denied(move |rejection| $convert(&response, rejection));
                self
            }

            /// Sets the response to a request that could not be decided: it has no key, or the store failed
            /// and the failure mode is closed.
            pub fn on_error<R: $Bound>(
                mut self,
                response: impl Fn(&$Rejection<'_>) -> R + Send + Sync + 'static,
            ) -> Defaults {
                self.0.on_error(move |rejection| $convert(&response, rejection));
                self
            }

            /// Sets the failure mode of policies that have none, under limiters that have none.
            pub fn failure_mode(mut self, mode: ::ratelimit_core::FailureMode) -> Defaults {
                self.0.failure_mode(mode);
                self
            }
        }

        /// Sets the defaults of all limits of this process. Call it once, at the start of `main`.
        ///
        /// # Errors
        ///
        /// [`SetDefaultsError`]($crate::middleware::SetDefaultsError) if defaults were set before, or if a
        /// limit already uses the built-in settings: a layer was put over a service, or a handler served a
        /// request. Nothing changes then.
        pub fn set_global_defaults(
            defaults: Defaults,
        ) -> Result<(), $crate::middleware::SetDefaultsError> {
            <$Framework as $crate::middleware::HasDefaults>::defaults().set(defaults.0)
        }
    };
}
