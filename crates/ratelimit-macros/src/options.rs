//! The options of the attribute.

use std::num::NonZeroU64;

use proc_macro2::{Span, TokenStream};
use ratelimit_core::{InvalidPolicy, Policy};
use ratelimit_http::{
    policy::{CostSource, SettleSource, StatusSet},
    private::is_token,
};
use syn::{
    Error, Expr, ExprArray, ExprLit, Ident, Lit, LitStr, Result, Token,
    parse::{ParseStream, Parser as _},
    spanned::Spanned as _,
};

const HOW: &str = "write the limits or a policy's name: #[rate_limit(\"5/min\")] or \
    #[rate_limit(policy = \"login\")]";
const KNOWN: &str = "policy, key, cost, charge_on, settle, scope, tier, headers, on_failure, on_denied, \
    exempt_when, unlimited, marks and shadow";
/// The options with a value.
const NAMED: [&str; 12] = [
    "policy",
    "key",
    "cost",
    "charge_on",
    "settle",
    "scope",
    "tier",
    "headers",
    "on_failure",
    "on_denied",
    "exempt_when",
    "unlimited",
];
/// The header styles, by the names that the server has for them.
const HEADERS: [(&str, &str); 5] = [
    ("x-ratelimit", "XRateLimit"),
    ("x-ratelimit-delta", "XRateLimitDelta"),
    ("ratelimit", "RateLimit"),
    ("ietf", "Ietf"),
    ("none", "None"),
];
/// The failure modes that need no number of instances, by their names in a policy file.
const FAILURE_MODES: [(&str, &str); 3] =
    [("local", "Local"), ("open", "Open"), ("closed", "Closed")];

/// The options of one attribute. Texts are valid once [`Options::parse`] returns.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) limits: Option<LitStr>,
    pub(crate) policy: Option<LitStr>,
    pub(crate) key: Option<Key>,
    pub(crate) cost: Option<Cost>,
    pub(crate) charge_on: Option<String>,
    pub(crate) settle: Option<LitStr>,
    pub(crate) marks: Option<Ident>,
    pub(crate) scope: Option<LitStr>,
    pub(crate) tier: Option<Expr>,
    /// A variant of `HeaderStyle`.
    pub(crate) headers: Option<Ident>,
    /// A variant of `FailureMode`.
    pub(crate) on_failure: Option<Ident>,
    pub(crate) on_denied: Option<Expr>,
    pub(crate) exempt_when: Option<Expr>,
    /// The name of a function that runs the handler without its limit.
    pub(crate) unlimited: Option<Ident>,
    pub(crate) shadow: Option<Ident>,
}

/// The cost of a request.
pub(crate) enum Cost {
    /// A source such as `header:x-tokens`, as in a policy file.
    Source(LitStr),
    /// A number, or a function of the request.
    Computed(Box<Expr>),
}

/// The key by which requests are counted.
pub(crate) enum Key {
    Client,
    Api,
    Header(String),
    /// The path of a function or of an extractor such as `ApiKey`.
    Extractor(Expr),
    Closure(Expr),
}

impl Options {
    pub(crate) fn parse(tokens: TokenStream) -> Result<Options> {
        if tokens.is_empty() {
            return Err(Error::new(Span::call_site(), HOW));
        }
        let options = Options::read.parse2(tokens)?;
        options.check()?;
        Ok(options)
    }

    fn read(input: ParseStream<'_>) -> Result<Options> {
        let mut options = Options::default();
        while !input.is_empty() {
            if input.peek(LitStr) {
                let limits: LitStr = input.parse()?;
                set(&mut options.limits, limits.clone(), &limits, "the limits")?;
            } else {
                options.read_named(input)?;
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }

    fn read_named(&mut self, input: ParseStream<'_>) -> Result<()> {
        let name: Ident = input
            .parse()
            .map_err(|error| Error::new(error.span(), HOW))?;
        let text = name.to_string();
        if text == "shadow" {
            return set(&mut self.shadow, name.clone(), &name, "`shadow`");
        }
        if text == "marks" {
            return set(&mut self.marks, name.clone(), &name, "`marks`");
        }
        if !NAMED.contains(&text.as_str()) {
            let problem = format!("there is no option `{text}`: the options are {KNOWN}");
            return Err(Error::new(name.span(), problem));
        }
        if !input.peek(Token![=]) {
            let problem = format!("write a value: `{text} = ...`");
            return Err(Error::new(name.span(), problem));
        }
        input.parse::<Token![=]>()?;
        let what = format!("`{text}`");
        match text.as_str() {
            "policy" => set(&mut self.policy, string(input, &text)?, &name, &what),
            "scope" => set(&mut self.scope, string(input, &text)?, &name, &what),
            "key" => set(&mut self.key, Key::of(input.parse()?)?, &name, &what),
            "cost" => set(&mut self.cost, Cost::of(input)?, &name, &what),
            "charge_on" => set(&mut self.charge_on, statuses(input)?, &name, &what),
            "settle" => set(&mut self.settle, settle(input)?, &name, &what),
            "tier" => set(&mut self.tier, input.parse()?, &name, &what),
            "headers" => {
                let style = variant(input, &text, &HEADERS)?;
                set(&mut self.headers, style, &name, &what)
            }
            "on_failure" => {
                let mode = variant(input, &text, &FAILURE_MODES)?;
                set(&mut self.on_failure, mode, &name, &what)
            }
            "on_denied" => set(&mut self.on_denied, input.parse()?, &name, &what),
            "unlimited" => set(&mut self.unlimited, input.parse()?, &name, &what),
            _ => set(&mut self.exempt_when, input.parse()?, &name, &what),
        }
    }

    fn check(&self) -> Result<()> {
        match (&self.limits, &self.policy) {
            (None, None) => Err(Error::new(Span::call_site(), HOW)),
            (Some(_), Some(policy)) => {
                let problem = "write the limits or a policy's name, not both";
                Err(Error::new(policy.span(), problem))
            }
            (Some(limits), None) => self.check_limits(limits),
            (None, Some(policy)) => self.check_policy(policy),
        }
    }

    fn check_limits(&self, limits: &LitStr) -> Result<()> {
        if let Some(tier) = &self.tier {
            let problem = "limits in an attribute have no tiers: `tier` goes with `policy`";
            return Err(Error::new_spanned(tier, problem));
        }
        let scope = self.scope.as_ref().map(LitStr::value);
        let name = scope.as_deref().unwrap_or("handler");
        match Policy::parse(name, &limits.value()) {
            Ok(policy) => {
                check_key_names(&policy, limits)?;
                self.check_cost(&policy)
            }
            Err(InvalidPolicy::Text(error)) => {
                let mut problem = error.to_string();
                let looks_like_a_name = !limits.value().contains(['/', ' ']);
                if looks_like_a_name {
                    let name = limits.value();
                    problem = format!("{problem}; a policy's name is written policy = {name:?}");
                }
                Err(Error::new(limits.span(), problem))
            }
            Err(error) => {
                let span = self.scope.as_ref().unwrap_or(limits).span();
                Err(Error::new(span, error))
            }
        }
    }

    /// Rejects a number that no request could ever pay.
    fn check_cost(&self, policy: &Policy) -> Result<()> {
        let Some(Cost::Computed(cost)) = &self.cost else {
            return Ok(());
        };
        let Expr::Lit(ExprLit {
            lit: Lit::Int(number),
            ..
        }) = &**cost
        else {
            return Ok(());
        };
        // A cost of 0 is valid: such a request reads the budget and spends nothing.
        if let Some(cost) = NonZeroU64::new(number.base10_parse()?) {
            let checked = policy.with_cost(cost);
            checked.map_err(|error| Error::new(number.span(), error))?;
        }
        Ok(())
    }

    fn check_policy(&self, policy: &LitStr) -> Result<()> {
        if let Some(scope) = &self.scope {
            let problem = "a policy has a name of its own: `scope` goes with limits";
            return Err(Error::new(scope.span(), problem));
        }
        let checked = Policy::parse(&policy.value(), "1/s");
        checked.map_err(|error| Error::new(policy.span(), error))?;
        Ok(())
    }
}

/// Rejects limits that count by other than the built-in names, because an attribute cannot define keys.
fn check_key_names(policy: &Policy, limits: &LitStr) -> Result<()> {
    let is_known = |name: &str| {
        matches!(name, "ip" | "route" | "global")
            || name.strip_prefix("header:").is_some_and(is_token)
    };
    match policy.key_names().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(unknown) => {
            let problem = format!(
                "nobody names a key {unknown:?} here: a limit counts by ip, route, global or \
                 header:NAME, and a layer names others with .named_key({unknown:?}, ...)"
            );
            Err(Error::new(limits.span(), problem))
        }
    }
}

impl Cost {
    fn of(input: ParseStream<'_>) -> Result<Cost> {
        if !input.peek(LitStr) {
            return Ok(Cost::Computed(input.parse()?));
        }
        let source: LitStr = input.parse()?;
        let parsed: std::result::Result<CostSource, _> = source.value().parse();
        parsed.map_err(|error| Error::new(source.span(), error))?;
        Ok(Cost::Source(source))
    }
}

/// Reads a list of statuses as the text of a `StatusSet`, such as `401, 4xx`.
fn statuses(input: ParseStream<'_>) -> Result<String> {
    let list: ExprArray = input.parse().map_err(|error| {
        let problem = "write a list of statuses: `charge_on = [401, \"5xx\"]`";
        Error::new(error.span(), problem)
    })?;
    let mut texts = Vec::new();
    for status in &list.elems {
        let text = match status {
            Expr::Lit(ExprLit {
                lit: Lit::Int(number),
                ..
            }) => number.base10_digits().to_owned(),
            Expr::Lit(ExprLit {
                lit: Lit::Str(text),
                ..
            }) => text.value(),
            other => {
                let problem = "a status is a number such as 401, or a class such as \"4xx\"";
                return Err(Error::new(other.span(), problem));
            }
        };
        let parsed: std::result::Result<StatusSet, _> = text.parse();
        parsed.map_err(|error| Error::new(status.span(), error))?;
        texts.push(text);
    }
    if texts.is_empty() {
        let problem = "write at least one status: `charge_on = [401]`";
        return Err(Error::new(list.span(), problem));
    }
    Ok(texts.join(", "))
}

/// Reads the source of the actual cost.
fn settle(input: ParseStream<'_>) -> Result<LitStr> {
    let source = string(input, "settle")?;
    let parsed: std::result::Result<SettleSource, _> = source.value().parse();
    parsed.map_err(|error| Error::new(source.span(), error))?;
    Ok(source)
}

impl Key {
    fn of(value: Expr) -> Result<Key> {
        let text = match &value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(text),
                ..
            }) => text.value(),
            Expr::Path(_) => return Ok(Key::Extractor(value)),
            Expr::Closure(_) => return Ok(Key::Closure(value)),
            other => return Err(Error::new(other.span(), Key::HOW)),
        };
        let header = text.strip_prefix("header:").map(str::trim);
        match header {
            _ if text == "ip" => Ok(Key::Client),
            _ if text == "api-key" => Ok(Key::Api),
            Some(name) if is_token(name) => Ok(Key::Header(name.to_ascii_lowercase())),
            _ => Err(Error::new(value.span(), Key::HOW)),
        }
    }

    const HOW: &str = "a key is \"ip\", \"api-key\", \"header:x-tenant\", an extractor such as ApiKey, or the path of \
        a function";
}

/// Reads a text as the variant that has this name.
fn variant(input: ParseStream<'_>, option: &str, known: &[(&str, &str)]) -> Result<Ident> {
    let text = string(input, option)?;
    let found = known.iter().find(|(name, _)| *name == text.value());
    let Some((_, variant)) = found else {
        let names: Vec<String> = known.iter().map(|(name, _)| format!("{name:?}")).collect();
        let problem = format!("`{option}` is one of {}", names.join(", "));
        return Err(Error::new(text.span(), problem));
    };
    Ok(Ident::new(variant, text.span()))
}

fn string(input: ParseStream<'_>, option: &str) -> Result<LitStr> {
    input.parse().map_err(|error| {
        let problem = format!("write a text: `{option} = \"...\"`");
        Error::new(error.span(), problem)
    })
}

/// Sets an option, or reports that it is there twice.
fn set<T>(option: &mut Option<T>, value: T, at: &impl SpanOf, what: &str) -> Result<()> {
    if option.replace(value).is_some() {
        let problem = format!("{what} can be written once");
        return Err(Error::new(at.span_of(), problem));
    }
    Ok(())
}

/// A token whose position an error can point at.
trait SpanOf {
    fn span_of(&self) -> Span;
}

impl SpanOf for Ident {
    fn span_of(&self) -> Span {
        self.span()
    }
}

impl SpanOf for LitStr {
    fn span_of(&self) -> Span {
        self.span()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_documented() {
        let page = include_str!("../docs/reference/attribute.md");
        let options = NAMED.map(|name| format!("`{name} = "));
        let flags = ["shadow", "marks"].map(|name| format!("`{name}`"));

        for option in options.iter().chain(&flags) {
            let has_row = page
                .lines()
                .any(|line| line.starts_with(&format!("| {option}")));
            assert!(has_row, "docs/reference/attribute.md has no row {option}");
        }
    }
}
