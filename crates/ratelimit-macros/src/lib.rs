//! The attribute `#[rate_limit(...)]` for handlers of axum and actix-web.
//!
//! Use it through `ratelimit_axum::rate_limit` or `ratelimit_actix::rate_limit`: what it expands to
//! names those crates.
//!
//! | written | meaning |
//! |---|---|
//! | `"5/min; 20/h"` | the limits, checked when the program is compiled |
//! | `policy = "login"` | in place of limits: a policy by name, from a registry; one that is not there is an error when the registry is installed |
//! | `key = "ip"` | each client has its budget; this is so unless set |
//! | `key = "header:x-api-key"` | each value of the header has its budget |
//! | `key = path::to::function` | what the function finds: `fn(&Parts) -> Result<Key, KeyError>` for axum, `fn(&HttpRequest) -> ...` for actix-web |
//! | `cost = 3`, `cost = function` | what a request costs, 1 unless set |
//! | `cost = "header:x-tokens"`, `cost = "body"` | the same, told by a header of the request or by its length |
//! | `charge_on = [401, "5xx"]` | what is charged is given back unless the response has one of these statuses |
//! | `settle = "header:x-tokens-used"`, `settle = "response-bytes"` | the actual cost, told by the response |
//! | `marks` | `X-RateLimit-Over` and `X-RateLimit-Shadow` on responses |
//! | `scope = "name"` | handlers with the same scope and limits share one budget; else each has its own, known by its module and name |
//! | `exempt_when = function` | requests that pass uncounted, `fn(&Parts) -> bool` |
//! | `shadow` | decides and counts, but denies nothing |

mod expand;
mod handler;
mod options;

use proc_macro::TokenStream;

use crate::{
    expand::{actix, axum},
    handler::Handler,
    options::Options,
};

/// Limits the requests to a handler of axum.
///
/// The check comes before the handler's extractors, so that a request with a bad body counts as well,
/// and its answer tells what is left. For free functions only; `#[debug_handler]` goes below it. The
/// options are in the [crate's documentation](crate).
#[proc_macro_attribute]
pub fn rate_limit_axum(options: TokenStream, item: TokenStream) -> TokenStream {
    expanded(options, item, axum::expand)
}

/// Limits the requests to a handler of actix-web.
///
/// The check comes before the handler's extractors, so that a request with a bad body counts as well.
/// `#[get("/")]` and its like go above it. The options are in the [crate's documentation](crate).
#[proc_macro_attribute]
pub fn rate_limit_actix(options: TokenStream, item: TokenStream) -> TokenStream {
    expanded(options, item, actix::expand)
}

fn expanded(
    options: TokenStream,
    item: TokenStream,
    expand: fn(&Options, &Handler) -> syn::Result<proc_macro2::TokenStream>,
) -> TokenStream {
    let expansion = Options::parse(options.into()).and_then(|options| {
        let handler = Handler::parse(item.into())?;
        expand(&options, &handler)
    });
    expansion
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}
