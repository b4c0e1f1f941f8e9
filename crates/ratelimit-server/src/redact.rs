//! Configuration texts without their secrets.
//!
//! The secrets of a configuration are the user information and the query of URLs, as in `redis://:PASSWORD@host`, and the
//! values of `secret:KIND:VALUE` in rules and tenants. Tokens and private keys are in files of their own.

use std::fmt::Write as _;

use ratelimit_http::policy_file::{Diagnostics, Format, Node, Value, parse};

/// The text in place of a secret.
const HIDDEN: &str = "***";
const SECRET: &str = "secret:";
/// Settings whose value is a URL with a password. A password may contain spaces and quotes.
const URL_SETTINGS: [&str; 2] = ["redis", "envoy-xds-server"];

/// The text of a file without its secrets; `None` if one may be left.
///
/// 1. Secrets are replaced in the text, also in comments.
/// 2. Both texts are read as files. Every secret value of the first must be exactly its replacement in the second, and
///    every other value must be the same. Anything else was written in a way that step 1 does not know, such as with
///    escapes.
///
/// A file that cannot be read is shown without the lines that can contain a part of a secret.
pub(crate) fn redact_file(text: &str, format: Format) -> Option<String> {
    let redacted = redact_text(text);
    let Some(original) = read(text, format) else {
        let lines = redacted.split('\n').map(without_suspicious);
        return Some(lines.collect::<Vec<_>>().join("\n"));
    };
    let shown = read(&redacted, format)?;
    is_redacted_node(&original, &shown).then_some(redacted)
}

/// Whether a value or a name of the file is a rule whose secret is hidden.
pub(crate) fn has_hidden_rule(text: &str, format: Format) -> bool {
    read(text, format).is_some_and(|root| has_hidden(&root))
}

fn read(text: &str, format: Format) -> Option<Node> {
    parse(text, format, &mut Diagnostics::new())
}

fn without_suspicious(line: &str) -> &str {
    let is_suspicious = line.contains("//") || line.contains('@') || line.contains("ecret");
    if is_suspicious { HIDDEN } else { line }
}

/// The text with [`HIDDEN`] in place of secrets. Those of rules are numbered, so that different ones stay different.
///
/// The time is linear in the length of the text, which can be hostile.
pub(crate) fn redact_text(text: &str) -> String {
    let mut number = 0;
    let lines = text.split('\n').map(|line| {
        let line = redact_urls(line);
        redact_rule_secrets(&line, &mut number)
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn redact_urls(line: &str) -> String {
    let mut redacted = String::with_capacity(line.len());
    // A setting is one URL.
    let mut is_setting = is_url_setting(line);
    let mut left = line;
    while let Some((start, rest)) = left.split_once("://") {
        let before = start.trim_end_matches(|char: char| char.is_ascii_alphanumeric());
        let end = match opening_quote(before) {
            Some(quote) => quoted_length(rest, quote),
            None if is_setting => setting_length(rest),
            None => token_length(rest),
        };
        let (url, after) = rest.split_at(end);
        redacted.push_str(start);
        redacted.push_str("://");
        redacted.push_str(&redact_authority(url));
        (left, is_setting) = (after, false);
    }
    redacted + left
}

/// The quote that the text ends with.
fn opening_quote(text: &str) -> Option<char> {
    let last = text.chars().next_back();
    last.filter(|char| "'\"`".contains(*char))
}

/// The length of the text before the closing quote, or of all of it.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut chars = text.char_indices().peekable();
    while let Some((index, char)) = chars.next() {
        if char == quote {
            // Two single quotes are one in YAML.
            if quote != '\'' || chars.next_if(|(_, next)| *next == quote).is_none() {
                return index;
            }
        } else if char == '\\' && quote == '"' {
            let _escaped = chars.next();
        }
    }
    text.len()
}

/// The length of an unquoted URL whose password may contain spaces and quotes: its host begins after the last `@` before a
/// comment.
fn setting_length(text: &str) -> usize {
    let value = text.split_once(" #").map_or(text, |(value, _)| value);
    let host = value.rfind('@').unwrap_or(0);
    host + token_length(&value[host..])
}

fn token_length(text: &str) -> usize {
    let end = text.find(|char: char| char.is_whitespace() || "'\"`<>".contains(char));
    end.unwrap_or(text.len())
}

/// The part of a URL after `://` without its secrets.
fn redact_authority(url: &str) -> String {
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
    format!("{user}{host}")
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
    let mut redacted = String::with_capacity(line.len());
    let mut left = line;
    while let Some((start, rest)) = left.split_once(SECRET) {
        // Only the first rule of a line can be a YAML value without quotes, which may contain commas.
        let is_alone = redacted.is_empty() && start.trim_matches([' ', '\t', '-', '?']).is_empty();
        let end = match opening_quote(start) {
            Some(quote) => quoted_length(rest, quote),
            None if is_alone => plain_length(rest, rest.find(" #")),
            None => plain_length(rest, rest.find([',', ']', '}', '\t', '"', '\'', '`'])),
        };
        let (secret, after) = rest.split_at(end);
        redacted.push_str(start);
        redacted.push_str(SECRET);
        match secret.split_once(':') {
            Some((kind, value)) if has_value(value) => {
                *number += 1;
                // Writing to a text cannot fail.
                let _ = write!(redacted, "{kind}:{HIDDEN}{number}");
            }
            _ => redacted.push_str(secret),
        }
        left = after;
    }
    redacted + left
}

/// The length of a text without quotes that ends at `end` or at `: `, which ends the name of an entry.
fn plain_length(text: &str, end: Option<usize>) -> usize {
    let end = end.unwrap_or(text.len());
    text[..end].find(": ").unwrap_or(end)
}

/// Whether a text after `secret:KIND:` is a value. Messages speak of `secret:KIND:VALUE`, and write `secret:api-key:...`.
fn has_value(text: &str) -> bool {
    let word = text.split([' ', ')']).next().unwrap_or_default();
    !text.trim().is_empty() && !["VALUE", "..."].contains(&word)
}

/// Whether the second tree is the first one without its secrets.
fn is_redacted_node(original: &Node, shown: &Node) -> bool {
    match (&original.value, &shown.value) {
        (Value::Text(original), Value::Text(shown)) => is_redacted_text(original, shown),
        (Value::List(original), Value::List(shown)) => {
            let mut pairs = original.iter().zip(shown);
            original.len() == shown.len() && pairs.all(|(one, other)| is_redacted_node(one, other))
        }
        (Value::Table(original), Value::Table(shown)) => {
            let mut pairs = original.iter().zip(shown);
            original.len() == shown.len()
                && pairs.all(|(one, other)| {
                    is_redacted_text(&one.name, &other.name)
                        && is_redacted_node(&one.node, &other.node)
                })
        }
        (original, shown) => original == shown,
    }
}

fn is_redacted_text(original: &str, shown: &str) -> bool {
    let Some(rule) = original.trim().strip_prefix(SECRET) else {
        return shown == redact_whole_url(original);
    };
    match rule.split_once(':') {
        Some((kind, value)) if !value.trim().is_empty() && value != "..." => {
            hidden_kind(shown) == Some(kind)
        }
        _ => shown == original,
    }
}

/// The kind of a rule that is exactly `secret:KIND:***N`.
fn hidden_kind(text: &str) -> Option<&str> {
    let (kind, value) = text.trim().strip_prefix(SECRET)?.split_once(':')?;
    let number = value.strip_prefix(HIDDEN)?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(kind)
}

fn has_hidden(node: &Node) -> bool {
    match &node.value {
        Value::Text(text) => hidden_kind(text).is_some(),
        Value::List(nodes) => nodes.iter().any(has_hidden),
        Value::Table(entries) => entries
            .iter()
            .any(|entry| hidden_kind(&entry.name).is_some() || has_hidden(&entry.node)),
        _ => false,
    }
}

/// The URL without its secrets, whatever characters they contain. Other texts stay as they are.
pub(crate) fn redact_whole_url(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{}", redact_authority(rest)),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

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
    fn a_secret_is_shown_in_no_part_however_it_is_quoted() {
        for (text, format) in [
            ("a:\n  - secret:api-key:s3,cr3t\n", Format::Yaml),
            ("a:\n  - secret:api-key:ab'cr3t\n", Format::Yaml),
            ("a:\n  - 'secret:api-key:it''s cr3t'\n", Format::Yaml),
            ("a:\n  - secret:api-key:ab\n    cr3t\n", Format::Yaml),
            ("a: [secret:api-key:ab cr3t, x]\n", Format::Yaml),
            ("a = [\"secret:api-key:ab\\\"cr3t\"]", Format::Toml),
            ("a = ['''secret:api-key:ab'cr3t''']", Format::Toml),
            ("a = [\"secret:api-key:VALUE cr3t\"]", Format::Toml),
        ] {
            let shown = redact_file(text, format).unwrap_or_default();
            assert!(!shown.contains("cr3t"), "{text}: {shown}");
        }
        let commas = "a:\n  - secret:api-key:s3,cr3t # old\n";
        let shown = redact_file(commas, Format::Yaml).unwrap();
        assert_eq!(shown, "a:\n  - secret:api-key:***1 # old\n");
        let broken = "a: [\n  - secret:api-key:ab: cr3t\nlisten: x";
        let shown = redact_file(broken, Format::Yaml).unwrap();
        assert_eq!(shown, "a: [\n***\nlisten: x");
    }

    #[test]
    fn an_at_sign_in_a_comment_is_not_part_of_a_url() {
        for (text, format) in [
            (
                "redis = \"redis://cache:6379\" # ask ops@corp",
                Format::Toml,
            ),
            ("redis: redis://cache:6379 # ask ops@corp", Format::Yaml),
        ] {
            assert_eq!(redact_file(text, format).as_deref(), Some(text));
        }
    }

    #[test]
    fn a_long_hostile_text_takes_linear_time_and_no_stack() {
        for part in ["a:// ", "secret:k:v,", "secret:", "'secret:k:v", "://@"] {
            let line = part.repeat((1 << 20) / part.len());
            let setting = format!("redis = {line}");
            for text in [&line, &setting] {
                let begin = Instant::now();
                let shown = redact_file(text, Format::Toml).unwrap();
                assert!(!shown.is_empty());
                assert!(begin.elapsed() < Duration::from_secs(20), "{part}");
            }
        }
    }

    #[test]
    fn a_rule_is_hidden_by_its_value_and_not_by_a_comment() {
        let hidden = |text| has_hidden_rule(text, Format::Toml);

        assert!(hidden("a = ['secret:api-key:***1']"));
        assert!(hidden("'secret:api-key:***1' = 'pro'"));
        assert!(!hidden("# *** limits ***\na = '***'"));
        assert!(!hidden("a = ['secret:api-key:***x']"));
    }

    #[test]
    fn a_broken_file_is_shown_without_lines_that_may_have_a_secret() {
        let broken = "redis = \"redis:\\\n//:s3cr3t\n@cache\nlisten = ";

        let shown = redact_file(broken, Format::Toml).unwrap();

        assert!(!shown.contains("s3cr3t"), "{shown}");
        assert!(shown.contains("listen"));
    }

    fn has_text(node: &Node, wanted: &str) -> bool {
        match &node.value {
            Value::Text(text) => text == wanted,
            Value::List(nodes) => nodes.iter().any(|node| has_text(node, wanted)),
            Value::Table(entries) => entries
                .iter()
                .any(|entry| entry.name == wanted || has_text(&entry.node, wanted)),
            _ => false,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_password_is_ever_shown(
            before in "[a-zA-Z0-9 ,@:/?#'\"%&=\\[\\]{}\\\\*.-]{0,6}",
            after in "[a-zA-Z0-9 ,@:/?#'\"%&=\\[\\]{}\\\\*.-]{0,6}",
            user in "[a-z]{0,3}",
            indent in " {0,4}",
        ) {
            let password = format!("{before}S3CR3T{after}");
            let url = format!("redis://{user}:{password}@cache:1/2");
            let rule = format!("secret:api-key:{password}");
            let mut texts = Vec::new();
            for (setting, value) in [("redis", url), ("a", rule)] {
                let double = format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""));
                let single = format!("'{}'", value.replace('\'', "''"));
                for yaml in [&double, &single, &value] {
                    texts.push((value.clone(), format!("{setting}: {yaml}\n"), Format::Yaml));
                    texts.push((value.clone(), format!("a:\n{indent}- {yaml}\n"), Format::Yaml));
                    texts.push((value.clone(), format!("a: [x, {yaml}, y]\n"), Format::Yaml));
                    texts.push((value.clone(), format!("a:\n  {yaml}: pro\n"), Format::Yaml));
                }
                for toml in [double, format!("'{value}'"), format!("'''{value}'''")] {
                    texts.push((value.clone(), format!("{setting} = {toml} # see a@b\n"), Format::Toml));
                    texts.push((value.clone(), format!("a = [{toml}]\n"), Format::Toml));
                }
            }
            for (value, text, format) in texts {
                // Without quotes a part of some values is a name or a comment.
                if read(&text, format).is_some_and(|root| !has_text(&root, &value)) {
                    continue;
                }
                let shown = redact_file(&text, format).unwrap_or_default();
                prop_assert!(!shown.contains("S3CR3T"), "{} {}", text, shown);
            }
        }
    }
}
