//! The expansion for actix-web: the outer function takes the request, checks, and then extracts the arguments.

use proc_macro2::TokenStream;
use quote::quote;
use syn::Result;

use crate::{expand::limit, handler::Handler, options::Options};

#[expect(clippy::unnecessary_wraps, reason = "as the other expansion")]
pub(crate) fn expand(options: &Options, handler: &Handler) -> Result<TokenStream> {
    let private = quote!(::ratelimit_actix::private);
    let limit = limit(options, handler, &private, &quote!(#private::HttpRequest));
    let Handler {
        inner,
        outer_attributes,
        arguments,
        types,
    } = handler;
    let (visibility, name) = (&inner.vis, handler.name());
    let (generics, _, conditions) = inner.sig.generics.split_for_impl();
    let unlimited = options.unlimited.as_ref();
    let (inside, beside) = handler.inner_function(unlimited);
    let inner_path = handler.inner_path(unlimited);
    Ok(quote! {
        #beside

        #(#outer_attributes)*
        #visibility async fn #name #generics (
            request: #private::HttpRequest,
            payload: #private::Payload,
        ) -> #private::HttpResponse #conditions {
            #limit
            #inside
            let handler = |(#(#arguments,)*): (#(#types,)*)| #inner_path(#(#arguments),*);
            #private::run(&LIMIT, request, payload, handler).await
        }
    })
}
