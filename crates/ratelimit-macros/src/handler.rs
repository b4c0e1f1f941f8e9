//! The function below the attribute.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::{
    Attribute, Error, FnArg, GenericParam, Ident, ItemFn, PathSegment, Result, Type, Visibility,
    ext::IdentExt as _, parse2, spanned::Spanned as _,
};

/// The route attributes of actix-web, which belong to the outer function.
const ROUTES: [&str; 11] = [
    "get", "post", "put", "delete", "head", "options", "connect", "trace", "patch", "route",
    "routes",
];

/// A handler in two versions, with and without a parameter that has `#[cfg(condition)]`.
///
/// The compiler evaluates the conditions of parameters after attribute macros, and an expansion cannot repeat them at
/// all places where it names the argument.
pub(crate) struct ConditionalHandler {
    pub(crate) condition: TokenStream,
    pub(crate) with: ItemFn,
    pub(crate) without: ItemFn,
}

impl ConditionalHandler {
    /// The versions by the first parameter with a condition; `None` if no parameter has one.
    pub(crate) fn parse(item: TokenStream) -> Option<ConditionalHandler> {
        let mut with: ItemFn = parse2(item).ok()?;
        let attributes_of = |argument: &mut FnArg| match argument {
            FnArg::Typed(argument) => std::mem::take(&mut argument.attrs),
            FnArg::Receiver(_) => Vec::new(),
        };
        for index in 0..with.sig.inputs.len() {
            let (conditions, others): (Vec<_>, Vec<_>) = attributes_of(&mut with.sig.inputs[index])
                .into_iter()
                .partition(|attribute| attribute.path().is_ident("cfg"));
            if let FnArg::Typed(argument) = &mut with.sig.inputs[index] {
                argument.attrs = others;
            }
            if conditions.is_empty() {
                continue;
            }
            let conditions = conditions.iter().map(|cfg| &cfg.meta);
            let conditions = conditions.filter_map(|meta| Some(&meta.require_list().ok()?.tokens));
            let condition = quote!(all(#(#conditions),*));
            let mut without = with.clone();
            let inputs = std::mem::take(&mut without.sig.inputs).into_iter();
            let kept = inputs.enumerate().filter(|(other, _)| *other != index);
            without.sig.inputs = kept.map(|(_, argument)| argument).collect();
            return Some(ConditionalHandler {
                condition,
                with,
                without,
            });
        }
        None
    }
}

/// The parts of a handler function.
pub(crate) struct Handler {
    /// The function as it was written, without [`outer_attributes`](Self::outer_attributes).
    pub(crate) inner: ItemFn,
    /// The attributes that belong to the outer function: `doc`, `deprecated`, `must_use`, routes.
    pub(crate) outer_attributes: Vec<Attribute>,
    /// A fresh name for each argument.
    pub(crate) arguments: Vec<Ident>,
    pub(crate) types: Vec<Type>,
}

impl Handler {
    pub(crate) fn parse(item: TokenStream) -> Result<Handler> {
        let function: ItemFn = parse2(item).map_err(|_| {
            let problem = "#[rate_limit] goes on a handler, an `async fn`; \
                a whole router is limited by a layer, an app by wrap";
            Error::new(Span::call_site(), problem)
        })?;
        check(&function)?;
        let mut types = Vec::new();
        for argument in &function.sig.inputs {
            match argument {
                FnArg::Typed(argument) => types.push((*argument.ty).clone()),
                FnArg::Receiver(receiver) => {
                    let problem = "#[rate_limit] goes on a function without `self`: \
                        a handler is called without a value";
                    return Err(Error::new(receiver.span(), problem));
                }
            }
        }
        let arguments = (0..types.len()).map(|index| format_ident!("__ratelimit_argument_{index}"));
        let arguments = arguments.collect();
        let mut inner = function;
        let (outer_attributes, inner_attributes) = std::mem::take(&mut inner.attrs)
            .into_iter()
            .partition(belongs_outside);
        inner.attrs = inner_attributes;
        Ok(Handler {
            inner,
            outer_attributes,
            arguments,
            types,
        })
    }

    pub(crate) const fn name(&self) -> &Ident {
        &self.inner.sig.ident
    }

    /// The name without `r#`.
    pub(crate) fn plain_name(&self) -> String {
        self.name().unraw().to_string()
    }

    /// The original function: an item inside the outer one, or beside it under the name `unlimited`.
    pub(crate) fn inner_function(
        &self,
        unlimited: Option<&Ident>,
    ) -> (Option<TokenStream>, Option<TokenStream>) {
        let mut inner = self.inner.clone();
        let doc = match unlimited {
            None => {
                inner.vis = Visibility::Inherited;
                None
            }
            Some(name) => {
                inner.sig.ident = name.clone();
                let doc = format!("`{}` without its limit.", self.name());
                Some(quote!(#[doc = #doc]))
            }
        };
        // Frameworks require `async`. The inner function is called like any other, so the lint applies.
        let function = quote!(#doc #[allow(clippy::unused_async)] #inner);
        match unlimited {
            None => (Some(function), None),
            Some(_) => (None, Some(function)),
        }
    }

    /// The path of the inner function with its generic arguments.
    pub(crate) fn inner_path(&self, unlimited: Option<&Ident>) -> TokenStream {
        let name = unlimited.unwrap_or(self.name());
        let parameters = self.inner.sig.generics.params.iter();
        let arguments: Vec<&Ident> = parameters
            .filter_map(|parameter| match parameter {
                GenericParam::Type(parameter) => Some(&parameter.ident),
                GenericParam::Const(parameter) => Some(&parameter.ident),
                GenericParam::Lifetime(_) => None,
            })
            .collect();
        if arguments.is_empty() {
            return quote!(#name);
        }
        quote!(#name::<#(#arguments),*>)
    }
}

/// Rejects functions that are not `async` or have two limits.
fn check(function: &ItemFn) -> Result<()> {
    for attribute in &function.attrs {
        let Some(last) = attribute.path().segments.last() else {
            continue;
        };
        if last.ident == "rate_limit" {
            let problem = "a handler has one #[rate_limit]: join limits as in \"5/min; 20/h\"";
            return Err(Error::new(last.ident.span(), problem));
        }
    }
    if function.sig.asyncness.is_none() {
        let problem = "#[rate_limit] goes on an `async fn`";
        return Err(Error::new(function.sig.fn_token.span(), problem));
    }
    Ok(())
}

/// Whether an attribute belongs to the outer function.
fn belongs_outside(attribute: &Attribute) -> bool {
    let path = attribute.path();
    let is_route = |last: &PathSegment| ROUTES.iter().any(|route| last.ident == route);
    path.segments.last().is_some_and(is_route)
        || ["doc", "deprecated", "must_use"]
            .iter()
            .any(|name| path.is_ident(name))
}
