use super::*;

type HeaderList<'a> = [(&'a str, &'a str)];

fn rule(text: &str) -> Rule {
    text.parse().expect(text)
}

fn user() -> Key {
    Key::new("user:1").unwrap()
}

fn at_path(rule: &Rule, path: &str) -> (bool, bool) {
    let (key, headers): (Key, &HeaderList<'_>) = (user(), &[]);
    let facts = RuleRequest::new(&key, path, headers);
    (rule.matches_exactly(&facts), rule.could_match(&facts))
}

#[test]
fn an_address_rule_matches_the_clients_address() {
    let (key, headers): (Key, &HeaderList<'_>) = (user(), &[]);
    let unknown = RuleRequest::new(&key, "/", headers);
    let inside = RuleRequest::new(&key, "/", headers).address("10.1.2.3".parse().unwrap());
    let outside = RuleRequest::new(&key, "/", headers).address("192.0.2.1".parse().unwrap());

    for text in ["10.0.0.0/8", "ip:10.0.0.0/8", "10.1.2.3"] {
        assert!(rule(text).matches_exactly(&inside), "{text}");
        assert!(!rule(text).matches_exactly(&outside), "{text}");
        assert!(!rule(text).matches_exactly(&unknown), "{text}");
    }
    assert_eq!(rule("::1"), rule("ip:::1"));
    assert_eq!(rule("fd00::/8"), rule("ip:fd00::/8"));
}

#[test]
fn a_key_rule_matches_the_explicit_key() {
    let (key, headers): (Key, &HeaderList<'_>) = (user(), &[]);
    let facts = RuleRequest::new(&key, "/", headers);

    assert!(rule("key:user:1").matches_exactly(&facts));
    assert!(!rule("key:user:10").matches_exactly(&facts));
}

#[test]
fn a_rule_about_a_printed_or_secret_key_matches_the_keys_of_extractors() {
    let headers: &HeaderList<'_> = &[];
    let tagged = Key::tagged("user", "1").unwrap();
    let secret = Key::hashed("api-key", "s3cr3t").unwrap();

    for (key, matching) in [
        (&tagged, "printed:user:1"),
        (&secret, "secret:api-key:s3cr3t"),
        (&user(), "printed:key:user:1"),
    ] {
        let facts = RuleRequest::new(key, "/", headers);
        assert!(rule(matching).could_match(&facts), "{matching}");
        for other in ["printed:user:10", "key:user:10", "secret:cookie:s3cr3t"] {
            assert!(!rule(other).could_match(&facts), "{other}");
        }
    }
    assert!(!rule("key:user:1").could_match(&RuleRequest::new(&tagged, "/", headers)));
}

#[test]
fn a_header_rule_matches_the_name_or_one_line() {
    let key = user();
    let headers: &HeaderList<'_> = &[
        ("X-Internal", "no"),
        ("x-internal", " yes "),
        ("x-none", ""),
    ];
    let facts = RuleRequest::new(&key, "/", headers);

    assert!(rule("header:X-Internal").matches_exactly(&facts));
    assert!(rule("header:x-internal=yes").matches_exactly(&facts));
    assert!(rule("header:x-none").matches_exactly(&facts));
    assert!(!rule("header:x-internal=YES").matches_exactly(&facts));
    assert!(!rule("header:x-other").matches_exactly(&facts));
}

#[test]
fn a_path_rule_matches_the_whole_path_or_a_prefix() {
    let (health, inner) = (rule("path:/health"), rule("path:/internal/*"));

    assert_eq!(at_path(&health, "/health"), (true, true));
    assert_eq!(at_path(&health, "/health/"), (false, false));
    assert_eq!(at_path(&health, "/healthy"), (false, false));
    assert_eq!(at_path(&inner, "/internal/a/b"), (true, true));
    assert_eq!(at_path(&inner, "/internal"), (false, false));
}

#[test]
fn an_ambiguous_path_is_never_exempt_and_may_be_blocked() {
    let inner = rule("path:/internal/*");

    for both in [
        "/internal/../login",
        "/internal/%2e%2E/login",
        "/internal/..%2flogin",
    ] {
        assert_eq!(at_path(&inner, both), (false, true), "{both}");
        assert_eq!(at_path(&rule("path:/login"), both), (false, true), "{both}");
    }
    for hidden in [
        "/x/../internal/a",
        "//internal/a",
        "/./internal/a",
        "/%69nternal/a",
        "/internal%2Fa",
        "\\internal\\a",
    ] {
        assert_eq!(at_path(&inner, hidden), (false, true), "{hidden}");
    }
    for other in ["/internal%2", "/%", "/%zz/internal/", "", "/..", "/%ff"] {
        assert_eq!(at_path(&inner, other), (false, false), "{other}");
    }
}

#[test]
fn a_block_rule_with_escapes_matches_every_spelling_of_its_path() {
    for (text, sent) in [
        ("path:/%C3%BCber", "/%c3%bcber"),
        ("path:/%C3%BCber", "/über"),
        ("path:/a%62c", "/abc"),
        ("path:/a%62c", "/x/../%61bc"),
        ("path:/caf%c3%a9/*", "/caf%C3%A9/menu"),
        ("path:/caf%c3%a9/*", "/café/menu"),
        ("path:/a%2fb", "/a/b"),
    ] {
        assert_eq!(at_path(&rule(text), sent), (false, true), "{text} {sent}");
    }
    for (text, sent) in [
        ("path:/%C3%BCber", "/%C3%BCber"),
        ("path:/caf%c3%a9/*", "/caf%c3%a9/menu"),
    ] {
        assert_eq!(at_path(&rule(text), sent), (true, true), "{text} {sent}");
    }
    for (text, other) in [
        ("path:/a%62c", "/abcd"),
        ("path:/caf%c3%a9/*", "/café"),
        // An escaped star is not a wildcard.
        ("path:/a/%2a", "/a/b"),
        ("path:/%2f/*", "/a"),
    ] {
        let expected = (false, false);
        assert_eq!(at_path(&rule(text), other), expected, "{text} {other}");
    }
}

#[test]
fn the_error_for_an_invalid_rule_says_what_was_expected() {
    for (text, expected) in [
        ("", "key:, printed:, secret:, header: or path:"),
        ("office", "key:, printed:, secret:, header: or path:"),
        ("/health", "expected path:/health, a rule about a path"),
        (
            "10.0.0.5/8",
            "the network 10.0.0.0/8 or the address 10.0.0.5",
        ),
        ("ip:office", "an address such as 10.0.0.1"),
        ("10.0.0.0/33", "a prefix from 1 to 32"),
        ("0.0.0.0/0", "smaller than the whole internet"),
        ("key:", "a key such as key:user:1"),
        ("printed:acme", "printed:header:x-tenant:acme"),
        ("secret:api-key", "secret:api-key:VALUE"),
        ("header:", "header:x-internal"),
        ("header:a b", "header:x-internal"),
        ("header:x=", "header:x-internal"),
        ("header:x= yes", "header:x-internal"),
        ("path:health", "path:/health"),
        ("path:/a*", "path:/health"),
        ("path:/a/*/b", "path:/health"),
        ("path:/a?b=1", "path:/health"),
        ("path:/a/../b", "path:/health"),
        ("path:/über", "write it percent-encoded"),
    ] {
        let message = text.parse::<Rule>().expect_err(text).to_string();
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn a_rule_covers_narrower_rules() {
    for (wide, narrow) in [
        ("10.0.0.0/8", "ip:10.1.0.0/16"),
        ("key:a", "printed:key:a"),
        ("header:x", "header:X=yes"),
        ("path:/a/*", "path:/a/b"),
        ("path:/a/*", "path:/a/b/*"),
    ] {
        assert!(rule(wide).covers(&rule(narrow)), "{wide} {narrow}");
        assert!(rule(wide).covers(&rule(wide)), "{wide}");
    }
    for (one, other) in [
        ("10.1.0.0/16", "10.0.0.0/8"),
        ("key:a", "key:b"),
        ("header:x=yes", "header:x"),
        ("header:x", "header:y"),
        ("path:/a/b", "path:/a/*"),
        ("path:/a/*", "path:/ab"),
        ("key:a", "path:/a"),
    ] {
        assert!(!rule(one).covers(&rule(other)), "{one} {other}");
    }
}

#[test]
fn a_rule_is_written_as_it_is_read_and_a_secret_without_its_value() {
    for text in [
        "10.0.0.0/8",
        "key:user:1",
        "printed:user:1",
        "header:x-internal",
        "header:x-internal=yes",
        "path:/internal/*",
    ] {
        assert_eq!(rule(text).to_string(), text);
    }
    assert_eq!(
        rule("secret:api-key:s3cr3t").to_string(),
        "secret:api-key:..."
    );
}
