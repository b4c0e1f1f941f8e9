//! The setters of a layer, written once for all adapters.

/// Defines the setters of an adapter's layer over [`Config`](crate::middleware::Config), with their docs.
///
/// The layer has a method `map_config(self, impl FnOnce(&mut Config<_>)) -> Self`. The first argument is a
/// doc comment with the example of `named_key` in the adapter's own types. `$convert` calls a function for
/// `on_denied` or `on_error` and converts its value, of a type with the trait `$Bound`, into a response.
#[doc(hidden)]
#[macro_export]
macro_rules! builder_methods {
    (
        $(#[$named_key_example:meta])*
        impl $Layer:ident for $Extractor:ident($Request:ty), $Rejection:ident -> $Bound:path as $convert:path
    ) => {
        impl $Layer {
            /// Sets the key by which requests are counted. The default is the client's address, as
            /// [`ClientKey`](crate::ClientKey) finds it.
            #[must_use]
            pub fn key_by(self, key: impl $Extractor) -> $Layer {
                let key = ::std::sync::Arc::new(key);
                let client = ::std::sync::Arc::clone(&key);
                let kinds = key.key_kinds();
                self.map_config(|config| {
                    config.key_by(move |request| key.extract(request));
                    config.key_kinds(kinds);
                    config.client_address_by(move |request| client.client_address(request));
                })
            }

            /// Names a key for limits that count by it, as in `100/min by user`.
            ///
            /// - A request without this key is counted by its main key instead.
            /// - The names `ip` (the address that the main key's [`ClientKey`](crate::ClientKey) finds),
            ///   `route`, `global` and `header:NAME` are built in. Only axum and actix-web find the `route`; elsewhere it
            ///   is missing unless this method names it.
            /// - A limit that counts by an unknown name is an error when the layer is put over a service.
            ///
            $(#[$named_key_example])*
            #[must_use]
            pub fn named_key(self, name: &str, key: impl $Extractor) -> $Layer {
                self.map_config(|config| config.named_key(name, move |request| key.extract(request)))
            }

            /// Sets the tier of a request. If `tier` returns `None`, the policy chooses it by the key.
            #[doc(alias = "plan")]
            #[must_use]
            pub fn tier(
                self,
                tier: impl Fn(&$Request) -> Option<String> + Send + Sync + 'static,
            ) -> $Layer {
                self.map_config(|config| config.tier(tier))
            }

            /// Looks the tier of a request up by its key, for requests whose tier [`tier`](Self::tier) does
            /// not name. The lookup may wait, as for a database.
            ///
            /// If it fails or finds none, the policy chooses the tier by the key.
            #[must_use]
            pub fn tier_async(self, resolver: $crate::middleware::TierResolver) -> $Layer {
                self.map_config(|config| config.tier_async(resolver))
            }

            /// Sets the cost of a request, in place of the policy's cost. A cost of 0 reads the budget and
            /// spends nothing.
            #[doc(alias = "weight")]
            #[must_use]
            pub fn cost(self, cost: impl Fn(&$Request) -> u64 + Send + Sync + 'static) -> $Layer {
                self.map_config(|config| config.cost(cost))
            }

            /// Sets the header fields that report the remaining budget. The default is
            /// [`HeaderStyle::XRateLimit`](ratelimit_http::response::HeaderStyle::XRateLimit).
            #[must_use]
            pub fn headers(self, style: $crate::response::HeaderStyle) -> $Layer {
                self.map_config(|config| config.headers(style))
            }

            /// Lets scripts of other origins read the header fields, by `Access-Control-Expose-Headers`.
            #[doc(alias = "cors")]
            #[must_use]
            pub fn expose_headers(self) -> $Layer {
                self.map_config(|config| config.expose_headers())
            }

            /// Marks responses with two further header fields:
            ///
            /// - `X-RateLimit-Over: true` if the request exceeded a soft limit and passed,
            /// - `X-RateLimit-Shadow: denied` if a policy in shadow mode would have denied it.
            #[must_use]
            pub fn mark_responses(self) -> $Layer {
                self.map_config(|config| config.mark_responses())
            }

            /// Sets the response to a request that is over its limit or blocked by a rule.
            ///
            /// The layer adds its header fields and `Retry-After`, unless the response has stricter ones.
            #[must_use]
            pub fn on_denied<R: $Bound>(
                self,
                response: impl Fn(&$Rejection<'_>) -> R + Send + Sync + 'static,
            ) -> $Layer {
                self.map_config(|config| {
                    config.on_denied(move |rejection| $convert(&response, rejection));
                })
            }

            /// Sets the response to a request that could not be decided: it has no key, or the store
            /// failed and the failure mode is closed.
            #[must_use]
            pub fn on_error<R: $Bound>(
                self,
                response: impl Fn(&$Rejection<'_>) -> R + Send + Sync + 'static,
            ) -> $Layer {
                self.map_config(|config| {
                    config.on_error(move |rejection| $convert(&response, rejection));
                })
            }

            /// Counts the preflight requests of CORS. By default they pass uncounted.
            #[must_use]
            pub fn count_preflight(self) -> $Layer {
                self.map_config(|config| config.count_preflight())
            }

            /// Exempts the requests for which `is_exempt` returns true: they pass, are not counted, and
            /// their responses get no header fields.
            #[doc(alias = "allowlist")]
            #[doc(alias = "skip")]
            #[must_use]
            #[doc(alias = "whitelist")]
            pub fn exempt_when(
                self,
                is_exempt: impl Fn(&$Request) -> bool + Send + Sync + 'static,
            ) -> $Layer {
                self.map_config(|config| config.exempt_when(is_exempt))
            }

            /// Puts the layer into shadow mode: it decides and counts, and every request passes.
            ///
            /// Responses get no header fields except those of [`mark_responses`](Self::mark_responses). The
            /// metric `rate_limiter_requests_total{allowed="false",shadow="true"}` counts the requests that
            /// the limit would deny. It is [`Policy::shadow`](ratelimit_core::Policy::shadow) for any policy.
            #[doc(alias = "dry run")]
            #[must_use]
            pub fn shadow(self) -> $Layer {
                self.map_config(|config| config.shadow())
            }

            /// Sets into which extensions the [`Decision`](ratelimit_core::Decision) about a request is inserted.
            ///
            /// axum and actix-web insert it into those of the request unless this is called, and plain tower into none.
            #[must_use]
            pub fn share_decision(self, sharing: $crate::middleware::DecisionSharing) -> $Layer {
                self.map_config(|config| config.sharing = sharing)
            }
        }
    };
}
