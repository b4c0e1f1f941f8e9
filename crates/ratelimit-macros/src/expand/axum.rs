//! A handler of axum: the check is its first extractor.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Error, Result};

use crate::{expand::limit, handler::Handler, options::Options};

/// axum takes 16 arguments, and the check is one of them.
const MOST_ARGUMENTS: usize = 15;

pub(crate) fn expand(options: &Options, handler: &Handler) -> Result<TokenStream> {
    if handler.arguments.len() > MOST_ARGUMENTS {
        let problem = "a limited handler takes up to 15 arguments: \
            axum allows 16, and the limit is one of them";
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
                static LIMIT: #private::HandlerLimit = #limit;
                &LIMIT
            }
        }

        #(#outer_attributes)*
        #visibility async fn #name #generics (
            limited: #private::Limited<#marker>,
            #(#arguments: #types),*
        ) -> #private::Response #conditions {
            #inner_function
            limited.answer(#inner_path(#(#arguments),*).await)
        }
    })
}
