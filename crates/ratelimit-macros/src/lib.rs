//! The attribute `#[rate_limit(...)]` for handlers of axum and actix-web.
//!
//! Use it through `ratelimit_axum::rate_limit` or `ratelimit_actix::rate_limit`: its expansion names those
//! crates. Limits, statuses and cost sources are parsed at compile time.
//!
//! | option | meaning |
//! |---|---|
//! | `"5/min; 20/h"` | the limits, checked when the program is compiled |
//! | `policy = "login"` | in place of limits: the policy of that name in a registry; a missing one is an error when the global registry is set |
//! | `key = "ip"` | count by the client's address; this is the default |
//! | `key = "header:x-api-key"` | count by the value of the header |
//! | `key = path::to::function` | count by the key that the function returns: `fn(&Parts) -> Result<Key, KeyError>` for axum, `fn(&HttpRequest) -> ...` for actix-web |
//! | `cost = 3`, `cost = function` | the cost of a request; the default is 1, and a number that exceeds a limit of the attribute is an error |
//! | `cost = "header:x-tokens"`, `cost = "body"` | the cost is in a header of the request, or its content length |
//! | `charge_on = [401, "5xx"]` | the request is refunded unless the response has one of these statuses |
//! | `settle = "header:x-tokens-used"`, `settle = "response-bytes"` | the actual cost is in a header of the response, or its length |
//! | `marks` | `X-RateLimit-Over` and `X-RateLimit-Shadow` on responses |
//! | `scope = "name"` | handlers with the same scope and limits share budgets; by default each handler has its own, under its module and name |
//! | `exempt_when = function` | exempts the requests for which the function returns true, `fn(&Parts) -> bool` |
//! | `tier = function` | the tier of a request, `fn(&Parts) -> Option<String>` |
//! | `headers = "ietf"` | the header fields: `x-ratelimit`, `x-ratelimit-delta`, `ratelimit`, `ietf` or `none` |
//! | `on_failure = "closed"` | the failure mode: `local`, `open` or `closed` |
//! | `on_denied = function` | the response to denied and blocked requests, `fn(&Rejection<'_>) -> R` |
//! | `unlimited = name` | a second function `name` that runs the handler without its limit, for unit tests |
//! | `shadow` | decides and counts, and denies nothing |

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
/// - The check precedes the handler's extractors, so a request with an invalid body is counted as well, and
///   its response reports the remaining budget.
/// - The handler is an `async fn` without `self`. Put `#[debug_handler]` below the attribute.
/// - The [crate's documentation](crate) lists the options.
#[proc_macro_attribute]
pub fn rate_limit_axum(options: TokenStream, item: TokenStream) -> TokenStream {
    expanded(options, item, axum::expand)
}

/// Limits the requests to a handler of actix-web.
///
/// - The check precedes the handler's extractors, so a request with an invalid body is counted as well.
/// - The handler is an `async fn` without `self`. `#[get("/")]` and other routes go above or below the attribute;
///   with `unlimited` they go below.
/// - The [crate's documentation](crate) lists the options.
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
