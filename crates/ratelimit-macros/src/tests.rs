//! Mistakes in the attribute: each is an error at the text that is wrong, and says what to write.

use proc_macro2::TokenStream;

use crate::{
    expand::{actix, axum},
    handler::Handler,
    options::Options,
};

type Expand = fn(&Options, &Handler) -> syn::Result<TokenStream>;

const HANDLER: &str = "async fn login() -> &'static str { \"hello\" }";

/// The options, the text that the error points at, and the error. The text is empty where the error is at the attribute.
const WRONG_OPTIONS: [(&str, &str, &str); 16] = [
    (
        r#""5/min", on_failure = "shut""#,
        r#""shut""#,
        r#"`on_failure` is one of "local", "open", "closed""#,
    ),
    (
        r#""5/min", headers = "x""#,
        r#""x""#,
        r#"`headers` is one of "x-ratelimit", "x-ratelimit-delta", "ratelimit", "ietf", "none""#,
    ),
    (
        r#""5/min", key = "user""#,
        r#""user""#,
        r#"a key is "ip", "api-key", "header:x-tenant", an extractor such as ApiKey, or the path of a function"#,
    ),
    (
        r#""5/fortnight""#,
        r#""5/fortnight""#,
        r#"expected a period such as s, 15min or 1h (units: ms, s, min, h, d) at column 3 of "5/fortnight""#,
    ),
    (
        r#""5/min", charge_on = [401, "6xx"]"#,
        r#""6xx""#,
        r#"expected a status from 100 to 599, or a class such as 4xx, not "6xx""#,
    ),
    (
        r#""100/h; 2/min", cost = 3"#,
        "3",
        "a hit of cost 3 never passes token_bucket 2/min, which holds 2 at most",
    ),
    (
        r#""5/min", policy = "login""#,
        r#""login""#,
        "write the limits or a policy's name, not both",
    ),
    (r#""5/min", cost"#, "cost", "write a value: `cost = ...`"),
    (
        "",
        "",
        r#"write the limits or a policy's name: #[rate_limit("5/min")] or #[rate_limit(policy = "login")]"#,
    ),
    (
        r#""login""#,
        r#""login""#,
        "expected an algorithm (token_bucket, leaky_bucket, fixed_window, sliding_window_log, \
         sliding_window_counter, concurrency, penalty_box) or a rate such as 10/s at column 1 of \"login\"; \
         a policy's name is written policy = \"login\"",
    ),
    (
        "policy = login",
        "login",
        r#"write a text: `policy = "..."`"#,
    ),
    (
        r#"policy = "login", scope = "shared""#,
        r#""shared""#,
        "a policy has a name of its own: `scope` goes with limits",
    ),
    (
        r#""5/min", tier = plan"#,
        "plan",
        "limits in an attribute have no tiers: `tier` goes with `policy`",
    ),
    (
        r#""5/min; 10/min by user""#,
        r#""5/min; 10/min by user""#,
        "nobody names a key \"user\" here: a limit counts by ip, route, global or header:NAME, \
         and a layer names others with .named_key(\"user\", ...)",
    ),
    (
        r#""5/min", burst = 10"#,
        "burst",
        "there is no option `burst`: the options are policy, key, cost, charge_on, settle, scope, tier, headers, \
         on_failure, on_denied, exempt_when, unlimited, marks and shadow",
    ),
    (
        r#""5/min", cost = 2, cost = 3"#,
        "cost",
        "`cost` can be written once",
    ),
];

/// The item below the attribute, the text that the error points at, and the error.
const WRONG_ITEMS: [(&str, &str, &str); 4] = [
    (
        "async fn login(&self) -> &'static str { \"hello\" }",
        "&self",
        "#[rate_limit] goes on a function without `self`: a handler is called without a value",
    ),
    (
        "struct Login;",
        "",
        "#[rate_limit] goes on a handler, an `async fn`; a whole router is limited by a layer, an app by wrap",
    ),
    (
        "fn login() -> &'static str { \"hello\" }",
        "fn",
        "#[rate_limit] goes on an `async fn`",
    ),
    (
        "#[rate_limit(\"20/h\")] async fn login() {}",
        "rate_limit",
        "a handler has one #[rate_limit]: join limits as in \"5/min; 20/h\"",
    ),
];

fn expanded(options: &str, item: &str, expand: Expand) -> syn::Result<TokenStream> {
    let options = Options::parse(options.parse().unwrap())?;
    let handler = Handler::parse(item.parse().unwrap())?;
    expand(&options, &handler)
}

/// The text that an error points at, and its message.
fn error(options: &str, item: &str, expand: Expand) -> (String, String) {
    let error = expanded(options, item, expand).unwrap_err();
    let text = error.span().source_text().unwrap_or_default();
    (text, error.to_string())
}

#[test]
fn a_wrong_option_is_an_error_that_says_what_to_write() {
    for (options, place, message) in WRONG_OPTIONS {
        for expand in [axum::expand, actix::expand] {
            let expected = (place.to_owned(), message.to_owned());
            assert_eq!(error(options, HANDLER, expand), expected);
        }
    }
}

#[test]
fn the_attribute_goes_on_handlers_only() {
    for (item, place, message) in WRONG_ITEMS {
        for expand in [axum::expand, actix::expand] {
            let expected = (place.to_owned(), message.to_owned());
            assert_eq!(error("\"5/min\"", item, expand), expected);
        }
    }
}

#[test]
fn a_handler_of_axum_takes_up_to_16_arguments() {
    let with = |count| format!("async fn login({}) {{}}", "_: Method, ".repeat(count));

    let (place, message) = error("\"5/min\"", &with(17), axum::expand);

    assert_eq!(place, "login");
    assert_eq!(
        message,
        "a handler takes up to 16 arguments: write `(a, b): (A, B)` to make one of two"
    );
    assert!(expanded("\"5/min\"", &with(16), axum::expand).is_ok());
    assert!(expanded("\"5/min\"", &with(17), actix::expand).is_ok());
}

#[test]
fn a_function_without_a_limit_below_a_route_is_an_error_that_says_where_to_write_it() {
    let expansion = expanded("\"5/min\", unlimited = free", HANDLER, actix::expand).unwrap();

    // The route attribute moves the handler into a struct, in which this name is not found.
    let name = "__ratelimit_write_rate_limit_above_the_route_attribute_to_call_free";
    assert!(expansion.to_string().contains(name));
}
