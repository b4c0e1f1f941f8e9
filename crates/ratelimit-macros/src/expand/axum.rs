//! The expansion for axum: the last argument is an extractor that checks, and then extracts all arguments.

use std::sync::atomic::{AtomicU32, Ordering};

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, Result};

use crate::{
    expand::{limit, path},
    handler::Handler,
    options::Options,
};

const MAX_ARGUMENTS: usize = 16;

/// Distinguishes the copies of one handler that `#[debug_handler]` above the attribute makes.
static EXPANSIONS: AtomicU32 = AtomicU32::new(0);

pub(crate) fn expand(options: &Options, handler: &Handler) -> Result<TokenStream> {
    if handler.arguments.len() > MAX_ARGUMENTS {
        let problem = "a handler takes up to 16 arguments: \
            write `(a, b): (A, B)` to make one of two";
        return Err(Error::new(handler.name().span(), problem));
    }
    let private = quote!(::ratelimit_axum::private);
    let limit = limit(options, handler, &private, &quote!(#private::Parts));
    let Handler {
        inner,
        outer_attributes,
        arguments,
        types,
    } = handler;
    let (visibility, name) = (&inner.vis, handler.name());
    let before = types
        .iter()
        .skip(1)
        .map(|_| quote!(_: #private::Placeholder));
    let (all, taken) = match types.as_slice() {
        [] => (quote!(#private::DebugHandlerGoesBelowRateLimit), quote!(_)),
        types => (quote!((#(#types,)*)), quote!((#(#arguments,)*))),
    };
    let path = path(handler);
    let expansion = EXPANSIONS.fetch_add(1, Ordering::Relaxed);
    let id = quote!(#private::HandlerId<{
        #private::handler_id(#path, ::core::line!(), #expansion)
    }>);
    let (generics, _, conditions) = inner.sig.generics.split_for_impl();
    let unlimited = options.unlimited.as_ref();
    let (inside, beside) = handler.inner_function(unlimited);
    let inner_path = handler.inner_path(unlimited);
    Ok(quote! {
        #beside

        #(#outer_attributes)*
        #[allow(clippy::too_many_arguments)]
        #visibility async fn #name #generics (
            #(#before,)*
            __ratelimit_limited: #private::Limited<#id, #all>
        ) -> #private::Response #conditions {
            /// Local, so that the trait can be implemented for a type of another crate.
            #[allow(unreachable_pub)]
            pub struct __RatelimitMarker;

            #[allow(non_local_definitions)]
            impl #private::LimitOf<__RatelimitMarker> for #id {
                fn limit() -> &'static #private::HandlerLimit {
                    #limit
                    &__RATELIMIT_LIMIT
                }
            }

            #inside
            __ratelimit_limited.call(|#taken| #inner_path(#(#arguments),*)).await
        }
    })
}
