//! The attribute `#[rate_limit(...)]` for handlers of axum and actix-web.
//!
//! - [Use it](#use-it)
//! - [Options](#options-and-features)
//!
//! # Use it
//!
//! Use it through `ratelimit_axum::rate_limit` or `ratelimit_actix::rate_limit`: its expansion names those
//! crates. Limits, statuses and cost sources are parsed at compile time.
//!
//! # Options and features
//!
//! [`rate_limit_axum`](macro@rate_limit_axum) and [`rate_limit_actix`](macro@rate_limit_actix) list the options. The crate has
//! no features: `ratelimit-axum` and `ratelimit-actix` re-export the attribute as `rate_limit` under their feature `macros`, a
//! default. Their features `toml` and `yaml` add policy files, whose policies `policy = "name"` takes.

mod expand;
mod handler;
mod options;

use proc_macro::TokenStream;
use quote::quote;

use crate::{
    expand::{actix, axum},
    handler::{ConditionalHandler, Handler},
    options::Options,
};

// The page of the attribute links to other pages, which docs.rs does not have: of two definitions of a link, Markdown takes the
// first.

/// Limits the requests to a handler of axum.
///
/// - The check precedes the handler's extractors, so a request with an invalid body is counted as well, and
///   its response reports the remaining budget.
/// - The handler is an `async fn` without `self`. Put `#[debug_handler]` below the attribute.
///
/// [text]: https://docs.rs/ratelimit-core/latest/ratelimit_core/struct.Limit.html
/// [credential]: https://docs.rs/ratelimit-tower/latest/ratelimit_tower/index.html#credentials
/// [header fields]: https://docs.rs/ratelimit-http/latest/ratelimit_http/response/enum.HeaderStyle.html
/// [failure mode]: https://docs.rs/ratelimit-core/latest/ratelimit_core/enum.FailureMode.html
/// [unit tests]: https://docs.rs/ratelimit-core/latest/ratelimit_core/struct.Clock.html
/// [`set_global_defaults`]: https://docs.rs/ratelimit-axum/latest/ratelimit_axum/fn.set_global_defaults.html
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/reference/attribute.md"))]
#[doc(alias = "attribute")]
#[doc(alias = "decorator")]
#[proc_macro_attribute]
pub fn rate_limit_axum(options: TokenStream, item: TokenStream) -> TokenStream {
    expanded(
        options,
        item,
        &quote!(::ratelimit_axum::rate_limit),
        axum::expand,
    )
}

/// Limits the requests to a handler of actix-web.
///
/// - The check precedes the handler's extractors, so a request with an invalid body is counted as well.
/// - The handler is an `async fn` without `self`. `#[get("/")]` and other routes go above or below the attribute;
///   with `unlimited` they go below.
///
/// [text]: https://docs.rs/ratelimit-core/latest/ratelimit_core/struct.Limit.html
/// [credential]: https://docs.rs/ratelimit-tower/latest/ratelimit_tower/index.html#credentials
/// [header fields]: https://docs.rs/ratelimit-http/latest/ratelimit_http/response/enum.HeaderStyle.html
/// [failure mode]: https://docs.rs/ratelimit-core/latest/ratelimit_core/enum.FailureMode.html
/// [unit tests]: https://docs.rs/ratelimit-core/latest/ratelimit_core/struct.Clock.html
/// [`set_global_defaults`]: https://docs.rs/ratelimit-actix/latest/ratelimit_actix/fn.set_global_defaults.html
///
#[cfg_attr(not(doctest), doc = include_str!("../docs/reference/attribute.md"))]
#[doc(alias = "attribute")]
#[doc(alias = "decorator")]
#[proc_macro_attribute]
pub fn rate_limit_actix(options: TokenStream, item: TokenStream) -> TokenStream {
    expanded(
        options,
        item,
        &quote!(::ratelimit_actix::rate_limit),
        actix::expand,
    )
}

/// The expansion of the attribute, whose path is `attribute`.
fn expanded(
    options: TokenStream,
    item: TokenStream,
    attribute: &proc_macro2::TokenStream,
    expand: fn(&Options, &Handler) -> syn::Result<proc_macro2::TokenStream>,
) -> TokenStream {
    if let Some(handler) = ConditionalHandler::parse(item.clone().into()) {
        let ConditionalHandler {
            condition,
            with,
            without,
        } = handler;
        let options = proc_macro2::TokenStream::from(options);
        let versions = quote! {
            #[cfg(#condition)]
            #[#attribute(#options)]
            #with

            #[cfg(not(#condition))]
            #[#attribute(#options)]
            #without
        };
        return versions.into();
    }
    let expansion = Options::parse(options.into()).and_then(|options| {
        let handler = Handler::parse(item.into())?;
        expand(&options, &handler)
    });
    expansion
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}

#[cfg(test)]
mod tests;
