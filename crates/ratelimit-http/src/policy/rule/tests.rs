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
    let could_match = rule.could_match(&facts, &PathReadings::new(path));
    (rule.matches_exactly(&facts), could_match)
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
        assert!(rule(matching).matches_exactly(&facts), "{matching}");
        for other in ["printed:user:10", "key:user:10", "secret:cookie:s3cr3t"] {
            assert!(!rule(other).matches_exactly(&facts), "{other}");
        }
    }
    assert!(!rule("key:user:1").matches_exactly(&RuleRequest::new(&tagged, "/", headers)));
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

/// Each path with: is it exempt under `/internal/*`, blocked under `/internal/*`, blocked under `/admin`?
#[test]
fn an_ambiguous_path_is_never_exempt_and_is_blocked_if_a_service_could_read_it_so() {
    const EXEMPT: (bool, bool, bool) = (true, true, false);
    const INTERNAL: (bool, bool, bool) = (false, true, false);
    const ADMIN: (bool, bool, bool) = (false, false, true);
    const BOTH: (bool, bool, bool) = (false, true, true);
    const NEITHER: (bool, bool, bool) = (false, false, false);
    let (internal, admin) = (rule("path:/internal/*"), rule("path:/admin"));

    for (path, expected) in [
        ("/internal/", EXEMPT),
        ("/internal/a/b.c", EXEMPT),
        ("/internal/a%20b", EXEMPT),
        ("/internal/%C3%BC", EXEMPT),
        // All services read these as paths below /internal/.
        ("/internal/a%2fb", EXEMPT),
        ("/internal//a", EXEMPT),
        ("/internal/...", EXEMPT),
        // Path parameters.
        ("/internal/..;/admin", BOTH),
        ("/internal/..;x=1/admin", BOTH),
        ("/internal/..%3b/admin", BOTH),
        ("/internal/a;b", INTERNAL),
        ("/internal/a%3Bb", INTERNAL),
        ("/internal;x/a", INTERNAL),
        ("/;x/internal/a", INTERNAL),
        ("/admin;x", ADMIN),
        ("/admin;x/", NEITHER),
        ("/;/admin", ADMIN),
        // Dot segments.
        ("/internal/../admin", BOTH),
        ("/internal/%2e%2E/admin", BOTH),
        ("/internal/..%2fadmin", BOTH),
        ("/internal/.", INTERNAL),
        ("/x/../internal/a", INTERNAL),
        ("/./internal/a", INTERNAL),
        ("/./admin", ADMIN),
        ("/admin/.", ADMIN),
        // Which of them a dot segment removes depends on the service.
        ("/x/../internal/..%2fa", INTERNAL),
        ("/x/../internal//../a", INTERNAL),
        ("/x/../internal/..\\a", INTERNAL),
        ("/x/../internal", NEITHER),
        ("/..", NEITHER),
        // Escapes, once and twice.
        ("/%69nternal/a", INTERNAL),
        ("/internal%2Fa", INTERNAL),
        ("/internal/%2561", INTERNAL),
        ("/internal/%252e%252e/admin", BOTH),
        ("/%61dmin", ADMIN),
        ("/%2561dmin", ADMIN),
        ("/%%361dmin", ADMIN),
        ("/internal/%", INTERNAL),
        ("/internal/%zz", INTERNAL),
        ("/internal/%u002e", INTERNAL),
        ("/%zz/internal/", NEITHER),
        ("/internal%2", NEITHER),
        ("/%", NEITHER),
        // Bytes that end a path for some services.
        ("/internal/a%00", INTERNAL),
        ("/internal/a\u{7}", INTERNAL),
        ("/internal/a%0d%0a", INTERNAL),
        ("/internal/a%7f", INTERNAL),
        ("/admin%00", ADMIN),
        ("/admin%00/x", ADMIN),
        ("/admin%3fx", ADMIN),
        ("/admin%23x", ADMIN),
        ("/admin%3f/../x", ADMIN),
        ("/x/../admin%00", ADMIN),
        ("/x/..;/admin%23", ADMIN),
        ("/admin#x", ADMIN),
        ("/admin\u{0}x", ADMIN),
        // Not UTF-8. The server replaces such bytes of a header by U+FFFD.
        ("/internal/%ff", INTERNAL),
        ("/internal/%c0%ae%c0%ae/", INTERNAL),
        ("/internal/\u{fffd}", INTERNAL),
        ("/%ff", NEITHER),
        // Slashes and backslashes.
        ("//internal/a", INTERNAL),
        ("//admin", ADMIN),
        ("/%2fadmin", ADMIN),
        ("\\internal\\a", INTERNAL),
        ("/internal%5ca", INTERNAL),
        ("/internal/a\\b", INTERNAL),
        ("/internal/..\\admin", BOTH),
        ("/internal/..%5cadmin", BOTH),
        ("\\admin", ADMIN),
        // Case.
        ("/Internal/a", INTERNAL),
        ("/ADMIN", ADMIN),
        ("/%41dmin", ADMIN),
        // Other paths.
        ("/internal", NEITHER),
        ("/internals/a", NEITHER),
        ("/admin/", NEITHER),
        ("/admin/x", NEITHER),
        ("/administrator", NEITHER),
        ("/x/admin", NEITHER),
        ("/x;y/admin", NEITHER),
        ("/", NEITHER),
        ("*", NEITHER),
        ("", NEITHER),
    ] {
        let (is_exempt, is_blocked) = at_path(&internal, path);
        let found = (is_exempt, is_blocked, at_path(&admin, path).1);
        assert_eq!(found, expected, "{path:?}");
    }
}

#[test]
fn a_rule_can_name_what_makes_a_path_ambiguous() {
    for (text, sent, expected) in [
        ("path:/a;b", "/a;b", (true, true)),
        ("path:/a;b", "/a", (false, false)),
        ("path:/a;b", "/a;b;c", (false, false)),
        ("path:/a;b/*", "/a;b/c", (true, true)),
        ("path:/a;b/*", "/a;b/c;d", (false, true)),
        ("path:/100%25", "/100%25", (true, true)),
        ("path:/100%25", "/x/../100%25", (false, true)),
        ("path:/Admin", "/Admin", (true, true)),
        ("path:/Admin", "/admin", (false, true)),
        ("path://a", "//a", (true, true)),
        ("path://a", "/a", (false, false)),
        ("path:/*", "/a;b", (false, true)),
    ] {
        assert_eq!(at_path(&rule(text), sent), expected, "{text} {sent}");
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
