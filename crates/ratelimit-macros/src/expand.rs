//! The expansion of a limited handler.
//!
//! Items of an expansion are visible to the handler and to the expressions of the attribute. All names that an
//! expansion introduces therefore begin with `__ratelimit`, in one of the three cases of Rust.

pub(crate) mod actix;
pub(crate) mod axum;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Expr, ExprLit, Lit};

use crate::{
    handler::Handler,
    options::{Cost, Key, Options},
};

/// The items of a handler: the static `__RATELIMIT_LIMIT` and, unless it has a scope, its declaration.
///
/// `private` is the adapter's private module, `request` its request type.
fn limit(
    options: &Options,
    handler: &Handler,
    private: &TokenStream,
    request: &TokenStream,
) -> TokenStream {
    let value = value(options, private, request);
    let limit = quote!(static __RATELIMIT_LIMIT: #private::HandlerLimit = #value;);
    let path = path(handler);
    let declared = match (&options.policy, &options.scope) {
        (Some(policy), _) => quote! {
            const __RATELIMIT_DECLARED: #private::DeclaredPolicy = #private::DeclaredPolicy {
                file: ::core::file!(),
                line: ::core::line!(),
                handler: #path,
                policy: #policy,
            };
        },
        (None, Some(_)) => return limit,
        (None, None) => quote! {
            const __RATELIMIT_DECLARED: #private::DeclaredHandler = #private::DeclaredHandler {
                path: #path,
                file: ::core::file!(),
                line: ::core::line!(),
                column: ::core::column!(),
            };
        },
    };
    quote! {
        #declared
        #private::inventory::submit! { __RATELIMIT_DECLARED }
        #limit
    }
}

/// The expression of the handler's `HandlerLimit`.
fn value(options: &Options, private: &TokenStream, request: &TokenStream) -> TokenStream {
    let mut limit = match (&options.limits, &options.scope) {
        (Some(limits), Some(scope)) => quote!(#private::HandlerLimit::text(#scope, #limits)),
        (Some(limits), ..) => {
            quote!(#private::HandlerLimit::of_handler(__RATELIMIT_DECLARED, #limits))
        }
        (None, ..) => quote!(#private::HandlerLimit::named(__RATELIMIT_DECLARED)),
    };
    match &options.key {
        None | Some(Key::Client) => {}
        Some(Key::Header(name)) => limit.extend(quote!(.key(#private::HandlerKey::Header(#name)))),
        Some(Key::Api) => limit.extend(quote!(.key(#private::HandlerKey::ApiKey))),
        // A function or an extractor: the trait has both.
        Some(Key::Extractor(path)) => limit.extend(quote!(.key(#private::HandlerKey::Function({
            fn __ratelimit_key(
                __ratelimit_request: &#request,
            ) -> ::core::result::Result<#private::Key, #private::KeyError> {
                #private::KeyExtractor::extract(&#path, __ratelimit_request)
            }
            __ratelimit_key
        })))),
        Some(Key::Closure(closure)) => {
            limit.extend(quote!(.key(#private::HandlerKey::Function(#closure))));
        }
    }
    match &options.cost {
        None => {}
        Some(Cost::Source(source)) => limit.extend(quote!(.cost_source(#source))),
        Some(Cost::Computed(cost)) => {
            let cost = cost_of(cost);
            limit.extend(quote!(.cost({
                fn __ratelimit_cost(__ratelimit_request: &#request) -> ::core::primitive::u64 {
                    #private::CostOf::cost_of(&(#cost), __ratelimit_request)
                }
                __ratelimit_cost
            })));
        }
    }
    if let Some(statuses) = &options.charge_on {
        limit.extend(quote!(.charge_on(#statuses)));
    }
    if let Some(source) = &options.settle {
        limit.extend(quote!(.settle_source(#source)));
    }
    if let Some(tier) = &options.tier {
        limit.extend(quote!(.tier(#tier)));
    }
    if let Some(style) = &options.headers {
        limit.extend(quote!(.headers(#private::HeaderStyle::#style)));
    }
    if let Some(mode) = &options.on_failure {
        limit.extend(quote!(.failure_mode(#private::FailureMode::#mode)));
    }
    if let Some(response) = &options.on_denied {
        // The closure around a path makes one type of all responses: that of `-> impl IntoResponse` has lifetimes.
        let response = match response {
            Expr::Path(path) => quote!(
                |__ratelimit_rejection: &#private::Rejection<'_>| #private::into_response(
                    #path(__ratelimit_rejection),
                    __ratelimit_rejection,
                )
            ),
            other => quote!(#other),
        };
        limit.extend(quote!(.on_denied({
            fn __ratelimit_denied(
                __ratelimit_rejection: &#private::HandlerRejection<'_>,
            ) -> #private::HandlerResponse {
                #private::respond_to_rejection(#response, __ratelimit_rejection)
            }
            __ratelimit_denied
        })));
    }
    if options.marks.is_some() {
        limit.extend(quote!(.mark_responses()));
    }
    if let Some(exempt) = &options.exempt_when {
        limit.extend(quote!(.exempt_when(#exempt)));
    }
    if options.shadow.is_some() {
        limit.extend(quote!(.shadow()));
    }
    limit
}

/// The handler's module and name.
fn path(handler: &Handler) -> TokenStream {
    let name = handler.plain_name();
    quote!(::core::concat!(::core::module_path!(), "::", #name))
}

/// The cost expression. An integer literal is cast to `u64`, because inference would choose `i32`.
fn cost_of(cost: &Expr) -> TokenStream {
    match cost {
        Expr::Lit(ExprLit {
            lit: Lit::Int(number),
            ..
        }) if number.suffix().is_empty() => quote!(#number as ::core::primitive::u64),
        other => quote!(#other),
    }
}

#[cfg(test)]
mod tests {
    use proc_macro2::TokenTree;

    use super::*;

    /// Collects the names that `tokens` declare: after a keyword, or before the type of an argument.
    fn collect_declared(tokens: TokenStream, names: &mut Vec<String>) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is_colon = |index: usize| matches!(tokens.get(index), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
        let keywords = [
            "fn", "static", "const", "struct", "type", "mod", "let", "use",
        ];
        for (index, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => collect_declared(group.stream(), names),
                TokenTree::Ident(ident) => {
                    let follows_keyword = index > 0
                        && matches!(&tokens[index - 1], TokenTree::Ident(before) if keywords.iter().any(|word| before == word));
                    let is_typed = is_colon(index + 1) && !is_colon(index + 2);
                    if follows_keyword || is_typed {
                        names.push(ident.to_string());
                    }
                }
                _ => {}
            }
        }
    }

    #[test]
    fn every_name_that_an_expansion_declares_is_reserved() {
        let handler = quote!(
            async fn handler(_: A, _: B) {}
        );
        for source in [quote!("5/min"), quote!(policy = "login")] {
            let options =
                quote!(#source, key = by, cost = price, exempt_when = free, on_denied = words);
            let options = Options::parse(options).expect("options");
            let handler = Handler::parse(handler.clone()).expect("a handler");
            let expansions = [
                axum::expand(&options, &handler),
                actix::expand(&options, &handler),
            ];
            for expansion in expansions {
                let mut names: Vec<String> =
                    handler.arguments.iter().map(ToString::to_string).collect();
                collect_declared(expansion.expect("an expansion"), &mut names);
                assert!(names.len() > 10, "{names:?}");

                // The handler itself, a method of a trait, and the fields of `DeclaredPolicy`.
                let known = ["handler", "limit", "file", "line", "policy", "_"];
                names.retain(|name| !known.contains(&name.as_str()));
                names.retain(|name| !name.to_lowercase().starts_with("__ratelimit"));
                assert!(names.is_empty(), "{names:?}");
            }
        }
    }
}
