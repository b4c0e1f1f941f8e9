//! The expansion for actix-web: the outer function takes the request, checks, and then extracts the arguments.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Ident, Result, ext::IdentExt as _};

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
    let (declared, used) = unlimited.map(module_check).unzip();
    Ok(quote! {
        #beside
        #declared

        #(#outer_attributes)*
        #visibility async fn #name #generics (
            __ratelimit_request: #private::HttpRequest,
            __ratelimit_payload: #private::Payload,
        ) -> #private::HttpResponse #conditions {
            #used
            #limit
            #inside
            #private::run(
                &__RATELIMIT_LIMIT,
                __ratelimit_request,
                __ratelimit_payload,
                |(#(#arguments,)*): (#(#types,)*)| #inner_path(#(#arguments),*),
            )
            .await
        }
    })
}

/// An item beside the function `unlimited`, and an item of the handler that finds it in the module.
///
/// A route attribute above `#[rate_limit]` puts the handler and the function `unlimited` into a function of its
/// own, where no test can call it. The compiler then does not find the first item in the module, and its error
/// shows the name, which says what to write.
fn module_check(unlimited: &Ident) -> (TokenStream, TokenStream) {
    let name = format_ident!(
        "__ratelimit_write_rate_limit_above_the_route_attribute_to_call_{}",
        unlimited.unraw(),
        span = unlimited.span()
    );
    let declared = quote! {
        #[doc(hidden)]
        #[allow(non_upper_case_globals)]
        const #name: () = ();
    };
    (declared, quote!(const _: () = self::#name;))
}
