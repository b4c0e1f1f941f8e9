//! The layer that limits requests.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{Response, request::Parts};
use ratelimit_core::{Key, Limiter};
use ratelimit_http::{
    builder_methods,
    policy::HttpPolicy,
    registry::{Registry, UnknownPolicy},
};
use tower_layer::Layer;

use crate::{
    check::Admission,
    framework::Config,
    key::{ClientKey, KeyError, KeyExtractor},
    rejection::{Rejection, respond},
    service::RateLimit,
};

/// Limits the requests to a service.
///
/// - Each client address has its own budget; [`key_by`](Self::key_by) counts by something else.
/// - A request over its limit gets 429 with a problem body and `Retry-After`. The service is not called.
/// - Other responses carry `X-RateLimit-Limit`, `-Remaining` and `-Reset`; [`headers`](Self::headers)
///   chooses other fields.
/// - All services that one layer makes, and all its clones, share the budgets of its [`Limiter`].
/// - Settings that are not made are those of [`set_global_defaults`](crate::set_global_defaults) when the
///   layer is put over its first service.
#[doc(alias = "throttle")]
#[derive(Clone, Debug)]
#[doc(alias("GovernorLayer", "tower_governor", "429"))]
pub struct RateLimitLayer {
    config: Arc<Config>,
    /// The settings with the process's defaults, from the first use on.
    completed: OnceLock<Arc<Config>>,
}

impl RateLimitLayer {
    /// Limits the requests of each client by `policy`.
    pub fn new(limiter: Limiter, policy: impl Into<HttpPolicy>) -> RateLimitLayer {
        RateLimitLayer::from_config(Config::new(limiter, policy.into(), client_key()))
    }

    /// Limits the requests of each client by the policy called `name`, in the registry's latest version.
    ///
    /// The policy cannot be removed from the registry while the layer exists.
    ///
    /// # Errors
    ///
    /// [`UnknownPolicy`] if the registry has no policy of that name.
    pub fn named(
        limiter: Limiter,
        registry: &Registry,
        name: &str,
    ) -> Result<RateLimitLayer, UnknownPolicy> {
        let config = Config::by_name(limiter, registry, name, client_key())?;
        Ok(RateLimitLayer::from_config(config))
    }

    fn from_config(config: Config) -> RateLimitLayer {
        RateLimitLayer {
            config: Arc::new(config),
            completed: OnceLock::new(),
        }
    }

    /// The settings with the process's defaults.
    fn completed(&self) -> &Arc<Config> {
        self.completed.get_or_init(|| self.config.with_defaults())
    }

    /// Changes the settings. It is for adapters of frameworks.
    #[doc(hidden)]
    #[must_use]
    pub fn map_config(mut self, change: impl FnOnce(&mut Config)) -> RateLimitLayer {
        change(Arc::make_mut(&mut self.config));
        self.completed = OnceLock::new();
        self
    }

    /// The settings without the process's defaults. It is for adapters of frameworks.
    #[doc(hidden)]
    pub const fn config(&self) -> &Arc<Config> {
        &self.config
    }
}

builder_methods! {
    /// ```
    /// use http::HeaderName;
    /// use ratelimit_core::{Limiter, Policy};
    /// use ratelimit_tower::{HeaderKey, RateLimitLayer};
    ///
    /// let policy = Policy::parse("api", "100/min by user; 1000/min by ip")?;
    /// let user = HeaderKey::new(HeaderName::from_static("x-user"));
    /// let layer = RateLimitLayer::new(Limiter::in_memory(), policy).named_key("user", user);
    /// # Ok::<(), ratelimit_core::InvalidPolicy>(())
    /// ```
    impl RateLimitLayer for KeyExtractor(Parts), Rejection -> Into<Response<Bytes>> as respond
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    /// # Panics
    ///
    /// If the policy counts by a key name that the layer does not know.
    fn layer(&self, inner: S) -> RateLimit<S> {
        if let Err(unknown) = self.config.check_key_names() {
            panic!("{unknown}");
        }
        self.config.log_policy_warnings();
        RateLimit::new(inner, Arc::clone(self.completed()))
    }
}

fn client_key() -> impl Fn(&Parts) -> Result<Key, KeyError> + Send + Sync + 'static {
    let client = ClientKey::new();
    move |request| client.extract(request)
}

impl RateLimitLayer {
    /// Decides a request without a service: for handlers, and for adapters of frameworks.
    ///
    /// It does what the layer does before it calls its service, including the delay of a shaping limit.
    /// [`Admission::finish`] does what the layer does with the response.
    ///
    /// # Errors
    ///
    /// The response to a request that does not pass.
    pub async fn check(&self, request: &mut Parts) -> Result<Admission, Response<Bytes>> {
        let config = self.completed();
        Admission::check(config.current(), &config.limiter, request).await
    }
}
