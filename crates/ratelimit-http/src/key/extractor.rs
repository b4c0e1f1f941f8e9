//! The trait `KeyExtractor`, written once for all adapters.

/// Defines the trait `KeyExtractor` for the requests of one framework, and implements it for functions, for
/// the sources that are listed, and for the combinators.
///
/// Each adapter has a trait of its own, because a trait of this crate could not be implemented for both
/// functions and foreign request types. The doc comment is the trait's example.
#[doc(hidden)]
#[macro_export]
macro_rules! key_extractor {
    (
        $(#[$example:meta])*
        trait $KeyExtractor:ident($Request:ty as $Head:ident) for $($Source:ty),+
    ) => {
        /// Finds the key of a request. A function of the request is an extractor:
        ///
        $(#[$example])*
        ///
        /// If a request does not have the source of its key, the next combinator decides:
        ///
        /// - [`or`](Self::or) uses another source,
        /// - [`or_shared`](Self::or_shared) counts all such requests in one budget,
        /// - without either the response is 400.
        ///
        /// An empty value is a missing one.
        pub trait $KeyExtractor: Send + Sync + 'static {
            /// The key of `request`.
            ///
            /// # Errors
            ///
            /// [`KeyError`](crate::KeyError) if the request has no key. Such a request is rejected; it is
            /// never unlimited.
            fn extract(&self, request: &$Request) -> Result<::ratelimit_core::Key, $crate::key::KeyError>;

            /// The client's address, for limits `by ip` and for rules about addresses.
            ///
            /// The default returns `None`: this extractor does not identify clients by their address.
            fn client_address(&self, _request: &$Request) -> Option<Result<$crate::key::ClientAddress, $crate::key::KeyError>> {
                None
            }

            /// The kinds of keys that this extractor makes.
            ///
            /// The layer warns about rules and tenants whose key is of another kind. The default is any kind, as
            /// for functions and for [`ClientKey`](crate::ClientKey), which takes any key that the application
            /// puts into the request's extensions.
            fn key_kinds(&self) -> $crate::key::KeyKinds {
                $crate::key::KeyKinds::unknown()
            }

            /// Combines two keys, such as address and route, or tenant and user.
            ///
            /// Different pairs never produce the same key, whatever bytes they contain.
            fn and<K: $KeyExtractor>(self, other: K) -> $crate::key::And<Self, K>
            where
                Self: Sized,
            {
                $crate::key::And::new(self, other)
            }

            /// Uses the key of `next` if this one is missing.
            #[doc(alias = "fallback")]
            fn or<K: $KeyExtractor>(self, next: K) -> $crate::key::Or<Self, K>
            where
                Self: Sized,
            {
                $crate::key::Or::new(self, next)
            }

            /// Counts all requests without this key in one budget called `name`.
            ///
            /// # Panics
            ///
            /// If `name` is empty.
            fn or_shared(self, name: &str) -> $crate::key::OrShared<Self>
            where
                Self: Sized,
            {
                $crate::key::OrShared::new(self, name)
            }
        }

        impl<F> $KeyExtractor for F
        where
            F: Fn(&$Request) -> Result<::ratelimit_core::Key, $crate::key::KeyError> + Send + Sync + 'static,
        {
            fn extract(&self, request: &$Request) -> Result<::ratelimit_core::Key, $crate::key::KeyError> {
                self(request)
            }
        }

        $(
            impl $KeyExtractor for $Source {
                fn extract(&self, request: &$Request) -> Result<::ratelimit_core::Key, $crate::key::KeyError> {
                    self.extract_key(&$Head(request))
                }

                fn key_kinds(&self) -> $crate::key::KeyKinds {
                    self.kinds()
                }
            }
        )+

        impl<T, F> $KeyExtractor for $crate::key::ExtensionKey<T, F>
        where
            T: Send + Sync + 'static,
            F: Fn(&T) -> Result<::ratelimit_core::Key, $crate::key::KeyError> + Send + Sync + 'static,
        {
            fn extract(&self, request: &$Request) -> Result<::ratelimit_core::Key, $crate::key::KeyError> {
                self.extract_key(&$Head(request))
            }
        }

        impl<A: $KeyExtractor, B: $KeyExtractor> $KeyExtractor for $crate::key::And<A, B> {
            fn extract(&self, request: &$Request) -> Result<::ratelimit_core::Key, $crate::key::KeyError> {
                self.combine(|a| a.extract(request), |b| b.extract(request))
            }

            fn client_address(&self, request: &$Request) -> Option<Result<$crate::key::ClientAddress, $crate::key::KeyError>> {
                let (a, b) = self.parts();
                a.client_address(request).or_else(|| b.client_address(request))
            }

            fn key_kinds(&self) -> $crate::key::KeyKinds {
                let (a, b) = self.parts();
                a.key_kinds().join(&b.key_kinds())
            }
        }

        impl<A: $KeyExtractor, B: $KeyExtractor> $KeyExtractor for $crate::key::Or<A, B> {
            fn extract(&self, request: &$Request) -> Result<::ratelimit_core::Key, $crate::key::KeyError> {
                self.combine(|a| a.extract(request), |b| b.extract(request))
            }

            fn client_address(&self, request: &$Request) -> Option<Result<$crate::key::ClientAddress, $crate::key::KeyError>> {
                let (a, b) = self.parts();
                a.client_address(request).or_else(|| b.client_address(request))
            }

            fn key_kinds(&self) -> $crate::key::KeyKinds {
                let (a, b) = self.parts();
                a.key_kinds().or(b.key_kinds())
            }
        }

        impl<A: $KeyExtractor> $KeyExtractor for $crate::key::OrShared<A> {
            fn extract(&self, request: &$Request) -> Result<::ratelimit_core::Key, $crate::key::KeyError> {
                self.combine(|a| a.extract(request))
            }

            fn client_address(&self, request: &$Request) -> Option<Result<$crate::key::ClientAddress, $crate::key::KeyError>> {
                self.part().client_address(request)
            }

            fn key_kinds(&self) -> $crate::key::KeyKinds {
                self.kinds(self.part().key_kinds())
            }
        }
    };
}
