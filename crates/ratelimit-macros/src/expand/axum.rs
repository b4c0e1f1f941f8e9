//! The expansion for axum: the last argument is an extractor that checks, and then extracts all arguments.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Error, Result};

use crate::{expand::limit, handler::Handler, options::Options};

const MAX_ARGUMENTS: usize = 16;

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
    let marker = format_ident!("__rate_limit_{}", handler.plain_name());
    let (generics, _, conditions) = inner.sig.generics.split_for_impl();
    let inner_function = handler.inner_function();
    let inner_path = handler.inner_path();
    Ok(quote! {
        #[doc(hidden)]
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug)]
        #visibility struct #marker;

        impl #private::Marker for #marker {
            fn limit() -> &'static #private::HandlerLimit {
                #limit
                &LIMIT
            }
        }

        #(#outer_attributes)*
        #[allow(clippy::too_many_arguments)]
        #visibility async fn #name #generics (
            #(#before,)*
            limited: #private::Limited<#marker, #all>
        ) -> #private::Response #conditions {
            #inner_function
            limited.call(|#taken| #inner_path(#(#arguments),*)).await
        }
    })
}
