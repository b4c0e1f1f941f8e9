//! The expansion of a limited handler.

pub(crate) mod actix;
pub(crate) mod axum;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Expr, ExprLit, Lit};

use crate::{
    handler::Handler,
    options::{Cost, Key, Options},
};

/// The items of a handler: the static `LIMIT` and, for a named policy, its declaration.
///
/// `private` is the adapter's private module, `request` its request type.
fn limit(
    options: &Options,
    handler: &Handler,
    private: &TokenStream,
    request: &TokenStream,
) -> TokenStream {
    let value = value(options, handler, private, request);
    let limit = quote!(static LIMIT: #private::HandlerLimit = #value;);
    let Some(policy) = &options.policy else {
        return limit;
    };
    let path = path(handler);
    quote! {
        const DECLARED: #private::DeclaredPolicy = #private::DeclaredPolicy {
            file: ::core::file!(),
            line: ::core::line!(),
            handler: #path,
            policy: #policy,
        };
        #private::inventory::submit! { DECLARED }
        #limit
    }
}

/// The expression of the handler's `HandlerLimit`.
fn value(
    options: &Options,
    handler: &Handler,
    private: &TokenStream,
    request: &TokenStream,
) -> TokenStream {
    let mut limit = match (&options.limits, &options.scope) {
        (Some(limits), Some(scope)) => quote!(#private::HandlerLimit::text(#scope, #limits)),
        (Some(limits), ..) => {
            let path = path(handler);
            quote!(#private::HandlerLimit::text(#path, #limits))
        }
        (None, ..) => quote!(#private::HandlerLimit::named(DECLARED)),
    };
    match &options.key {
        None | Some(Key::Client) => {}
        Some(Key::Header(name)) => limit.extend(quote!(.key(#private::HandlerKey::Header(#name)))),
        Some(Key::Function(path)) => {
            limit.extend(quote!(.key(#private::HandlerKey::Function(#path))));
        }
    }
    match &options.cost {
        None => {}
        Some(Cost::Source(source)) => limit.extend(quote!(.cost_source(#source))),
        Some(Cost::Computed(cost)) => {
            let cost = cost_of(cost);
            limit.extend(quote!(.cost({
                fn cost(request: &#request) -> u64 {
                    #private::CostOf::cost_of(&(#cost), request)
                }
                cost
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
        limit.extend(quote!(.on_denied({
            fn denied(rejection: &#private::HandlerRejection<'_>) -> #private::HandlerResponse {
                #private::respond_to_rejection(#response, rejection)
            }
            denied
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
        }) if number.suffix().is_empty() => quote!(#number as u64),
        other => quote!(#other),
    }
}
