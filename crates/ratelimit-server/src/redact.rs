//! Configuration texts without their secrets.
//!
//! The secrets of a configuration are the user information and the query of URLs, as in `redis://:PASSWORD@host`, and the
//! values of `secret:KIND:VALUE` in rules and tenants. Tokens and private keys are in files of their own.

use ratelimit_http::policy_file::{Diagnostics, Format, Node, Value, parse};

/// The text in place of a secret.
const HIDDEN: &str = "***";
const SECRET: &str = "secret:";
/// Settings whose value is a URL with a password. A password may contain spaces and quotes.
const URL_SETTINGS: [&str; 2] = ["redis", "envoy-xds-server"];

/// The text of a file without its secrets; `None` if one may be left.
///
/// 1. Secrets are replaced in the text, comments included.
/// 2. The result is read as a file. A secret that is still there was written in a way that step 1 does not know, such as
///    with escapes.
pub(crate) fn redact_file(text: &str, format: Format) -> Option<String> {
    let redacted = redact_text(text);
    let mut unread = Diagnostics::new();
    match parse(&redacted, format, &mut unread) {
        Some(root) => (!has_secret(&root)).then_some(redacted),
        // A file that cannot be read: without the lines that can contain a part of a secret.
        None => {
            let lines = redacted.split('\n').map(without_suspicious);
            Some(lines.collect::<Vec<_>>().join("\n"))
        }
    }
}

fn without_suspicious(line: &str) -> &str {
    let is_suspicious = line.contains("//") || line.contains('@') || line.contains("ecret");
    if is_suspicious && !line.contains(HIDDEN) {
        HIDDEN
    } else {
        line
    }
}

/// The text with [`HIDDEN`] in place of secrets. Those of rules are numbered, so that different ones stay different.
pub(crate) fn redact_text(text: &str) -> String {
    let mut number = 0;
    let lines = text.split('\n').map(|line| {
        let line = redact_urls(line);
        redact_rule_secrets(&line, &mut number)
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn redact_urls(line: &str) -> String {
    let is_setting = is_url_setting(line);
    let Some((start, rest)) = line.split_once("://") else {
        return line.to_owned();
    };
    // A setting is one URL, which the last `@` of the line belongs to.
    let end = if is_setting && rest.contains('@') {
        rest.rfind('@').unwrap_or(0)
    } else {
        0
    };
    let token = rest[end..].find(|char: char| char.is_whitespace() || "'\"`<>".contains(char));
    let end = token.map_or(rest.len(), |length| end + length);
    let (url, after) = rest.split_at(end);
    let (user, host) = match url.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, url),
    };
    let user = user.map_or(String::new(), |user| match user.split_once(':') {
        Some((name, _)) => format!("{name}:{HIDDEN}@"),
        None => format!("{HIDDEN}@"),
    });
    let host = match host.split_once('?') {
        Some((host, _)) => format!("{host}?{HIDDEN}"),
        None => host.to_owned(),
    };
    format!("{start}://{user}{host}{}", redact_urls(after))
}

/// Whether the line sets one of [`URL_SETTINGS`], also in a comment.
fn is_url_setting(line: &str) -> bool {
    let is_before_name = |char: char| char.is_whitespace() || "#'\"{".contains(char);
    let line = line.trim_start_matches(is_before_name);
    URL_SETTINGS.iter().any(|name| {
        let rest = line.strip_prefix(name);
        let rest = rest.map(|rest| rest.trim_start_matches(['\'', '"', ' ', '\t']));
        rest.is_some_and(|rest| rest.starts_with(['=', ':']))
    })
}

fn redact_rule_secrets(line: &str, number: &mut usize) -> String {
    let Some((start, rest)) = line.split_once(SECRET) else {
        return line.to_owned();
    };
    let quote = start
        .chars()
        .next_back()
        .filter(|char| "'\"".contains(*char));
    let end = match quote {
        Some(quote) => rest.find(quote),
        None => {
            let of_list = rest.find([',', ']', '}', '\t', '"', '\'']);
            let of_key = rest.find(": ");
            of_list.into_iter().chain(of_key).min()
        }
    };
    let (secret, after) = rest.split_at(end.unwrap_or(rest.len()));
    let secret = match secret.split_once(':') {
        Some((kind, value)) if has_value(value) => {
            *number += 1;
            format!("{kind}:{HIDDEN}{number}")
        }
        _ => secret.to_owned(),
    };
    let after = redact_rule_secrets(after, number);
    format!("{start}{SECRET}{secret}{after}")
}

/// Whether a text after `secret:KIND:` is a value. Messages speak of `secret:KIND:VALUE`, and write `secret:api-key:...`.
fn has_value(text: &str) -> bool {
    let is_placeholder = text.starts_with("VALUE") || text.starts_with("...");
    !text.trim().is_empty() && !is_placeholder
}

/// Whether a value or a name of the tree contains a secret.
fn has_secret(node: &Node) -> bool {
    match &node.value {
        Value::Text(text) => is_secret(text),
        Value::List(nodes) => nodes.iter().any(has_secret),
        Value::Table(entries) => entries
            .iter()
            .any(|entry| is_secret(&entry.name) || has_secret(&entry.node)),
        _ => false,
    }
}

fn is_secret(text: &str) -> bool {
    let is_url = text.contains("://") && redact_whole_url(text) != text;
    let rule = text.trim().strip_prefix(SECRET);
    let is_rule = rule.is_some_and(|rule| {
        let value = rule.split_once(':').map_or("", |(_, value)| value);
        has_value(value) && !value.starts_with(HIDDEN)
    });
    is_url || is_rule
}

/// The URL without its secrets, whatever characters they contain.
pub(crate) fn redact_whole_url(url: &str) -> String {
    let line = redact_urls(&format!("redis = {url}"));
    line.strip_prefix("redis = ").unwrap_or(HIDDEN).to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn passwords_and_secrets_are_hidden_and_the_rest_stays() {
        for (text, shown) in [
            (
                "redis = \"redis://cache:6379\"",
                "redis = \"redis://cache:6379\"",
            ),
            (
                "redis = \"redis://user:s3cr3t@cache:6379/2\"",
                "redis = \"redis://user:***@cache:6379/2\"",
            ),
            ("redis: redis://:a@b'c d@cache", "redis: redis://:***@cache"),
            (
                "# redis = 'redis://t0ken@cache' # old",
                "# redis = 'redis://***@cache' # old",
            ),
            (
                "redis = 'redis://cache?password=a&x=b' # see",
                "redis = 'redis://cache?***' # see",
            ),
            (
                "a = ['redis://u:a@x', \"redis://:b@y\"]",
                "a = ['redis://u:***@x', \"redis://:***@y\"]",
            ),
            (
                "# see http://example.org/a or ask a@b",
                "# see http://example.org/a or ask a@b",
            ),
            (
                "exempt = [\"secret:api-key:s3, cr3t\", 'secret:cookie:sid:x']",
                "exempt = [\"secret:api-key:***1\", 'secret:cookie:***2']",
            ),
            ("  secret:api-key:abc: pro", "  secret:api-key:***1: pro"),
            ("  - secret:api-key:abc", "  - secret:api-key:***1"),
            (
                "# secret:KIND names a secret",
                "# secret:KIND names a secret",
            ),
            (
                "the rule secret:api-key:... never matches: write secret:KIND:VALUE",
                "the rule secret:api-key:... never matches: write secret:KIND:VALUE",
            ),
        ] {
            assert_eq!(redact_text(text), shown);
        }
    }

    #[test]
    fn a_text_whose_secret_is_written_with_escapes_is_hidden() {
        let escaped = "redis = \"redis:\\u002f\\u002f:s3cr3t@cache\"";

        assert_eq!(redact_file(escaped, Format::Toml), None);
        let rule = "[policy.a]\nlimits='1/s'\nexempt = [\"\\u0073ecret:api-key:s3cr3t\"]";
        assert_eq!(redact_file(rule, Format::Toml), None);
        let plain = "redis = \"redis://:s3cr3t@cache\"";
        let shown = redact_file(plain, Format::Toml);
        assert_eq!(shown.as_deref(), Some("redis = \"redis://:***@cache\""));
    }

    #[test]
    fn a_broken_file_is_shown_without_lines_that_may_have_a_secret() {
        let broken = "redis = \"redis:\\\n//:s3cr3t\n@cache\nlisten = ";

        let shown = redact_file(broken, Format::Toml).unwrap();

        assert!(!shown.contains("s3cr3t"), "{shown}");
        assert!(shown.contains("listen"));
    }

    proptest! {
        #[test]
        fn no_password_is_ever_shown(
            password in "[a-zA-Z0-9 ,@:/?#'%&=\\[\\]{}-]{0,6}S3CR3T[a-zA-Z0-9 ,@:/?#%&=\\[\\]{}-]{0,6}",
            user in "[a-z]{0,3}",
            indent in " {0,4}",
        ) {
            let toml = format!("listen = \"127.0.0.1:1\"\nredis = \"redis://{user}:{password}@cache:1/2\"\n");
            let yaml = format!("redis: \"redis://{user}:{password}@cache:1/2\"\n");
            let listed = format!("a:\n{indent}- \"secret:api-key:{password}\"\n");
            for (text, format) in [(toml, Format::Toml), (yaml, Format::Yaml), (listed, Format::Yaml)] {
                let shown = redact_file(&text, format).unwrap_or_default();
                prop_assert!(!shown.contains("S3CR3T"), "{}", shown);
            }
        }
    }
}
