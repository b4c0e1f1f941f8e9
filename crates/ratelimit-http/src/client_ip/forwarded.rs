//! The `Forwarded` header of RFC 7239.

use std::{borrow::Cow, net::IpAddr};

use crate::{
    client_ip::parse,
    syntax::{is_space, is_token_byte},
};

/// Splits a line at the commas outside quotes, last element first.
///
/// It scans from the right, so that the element that a proxy appended is found whatever precedes
/// it: a quote that the client opens and never closes affects only the client's own element.
pub(crate) fn elements_from_the_right(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let line = rest?;
        let comma = last_comma(line);
        rest = comma.map(|at| &line[..at]);
        Some(&line[comma.map_or(0, |at| at + 1)..])
    })
}

/// The address in the `for` parameter of one well-formed element.
///
/// It is `None` for `unknown`, for obfuscated names, and for an element with two `for` parameters.
pub(crate) fn client(element: &[u8]) -> Option<IpAddr> {
    let mut node = None;
    let mut rest = skip_spaces(element);
    while !rest.is_empty() {
        if rest[0] != b';' {
            let (name, value, after) = pair(rest)?;
            if name.eq_ignore_ascii_case(b"for") && node.replace(value).is_some() {
                return None;
            }
            rest = skip_spaces(after);
        }
        rest = match rest {
            [] => rest,
            [b';', rest @ ..] => skip_spaces(rest),
            _ => return None,
        };
    }
    // RFC 7239 requires brackets around IPv6: without them the last group could be a port.
    parse::with_port(&node?, |port| parse::is_port(port) || is_obfuscated(port))
}

/// The last comma of `line` that is outside quotes.
fn last_comma(line: &[u8]) -> Option<usize> {
    let mut end = line.len();
    loop {
        let at = line[..end]
            .iter()
            .rposition(|byte| matches!(byte, b',' | b'"'))?;
        if line[at] == b',' {
            return Some(at);
        }
        end = opening_quote(&line[..at])?;
    }
}

/// The opening quote of the string that a quote right after `line` closes.
fn opening_quote(line: &[u8]) -> Option<usize> {
    let mut end = line.len();
    loop {
        let at = line[..end].iter().rposition(|byte| *byte == b'"')?;
        let backslashes = line[..at]
            .iter()
            .rev()
            .take_while(|byte| **byte == b'\\')
            .count();
        if backslashes % 2 == 0 {
            return Some(at);
        }
        end = at - backslashes;
    }
}

/// A name, its value, and the rest of the text.
type Pair<'a> = (&'a [u8], Cow<'a, [u8]>, &'a [u8]);

/// Reads `token=token` or `token="string"`. The third part is the rest of the text.
fn pair(text: &[u8]) -> Option<Pair<'_>> {
    let (name, rest) = token(text)?;
    let rest = rest.strip_prefix(b"=")?;
    let (value, rest) = match rest.strip_prefix(b"\"") {
        Some(rest) => quoted(rest)?,
        None => token(rest).map(|(value, rest)| (Cow::Borrowed(value), rest))?,
    };
    Some((name, value, rest))
}

/// Splits off a token at the start of `text`.
fn token(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text
        .iter()
        .position(|byte| !is_token_byte(*byte))
        .unwrap_or(text.len());
    if end == 0 {
        None
    } else {
        Some(text.split_at(end))
    }
}

/// Reads a quoted string whose opening quote is consumed. The second part follows the closing quote.
fn quoted(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let end = text.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    if text[end] == b'"' {
        return Some((Cow::Borrowed(&text[..end]), &text[end + 1..]));
    }
    let mut value = text[..end].to_vec();
    let mut bytes = text[end..].iter();
    loop {
        match bytes.next()? {
            b'"' => return Some((Cow::Owned(value), bytes.as_slice())),
            b'\\' => value.push(*bytes.next()?),
            byte => value.push(*byte),
        }
    }
}

fn skip_spaces(text: &[u8]) -> &[u8] {
    let start = text
        .iter()
        .position(|byte| !is_space(*byte))
        .unwrap_or(text.len());
    &text[start..]
}

/// Whether `port` is an obfuscated port of RFC 7239, such as `_x`.
fn is_obfuscated(port: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    matches!(port, [b'_', name @ ..] if !name.is_empty() && name.iter().all(allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(line: &str) -> Vec<&str> {
        let text = |element| std::str::from_utf8(element).expect("split at ASCII");
        elements_from_the_right(line.as_bytes()).map(text).collect()
    }

    #[test]
    fn a_comma_inside_quotes_does_not_split() {
        assert_eq!(elements(r#"a,b="x,y",c"#), ["c", r#"b="x,y""#, "a"]);
        assert_eq!(elements(r#"a="\",\\",b"#), ["b", r#"a="\",\\""#]);
        assert_eq!(
            elements(r#"a="\\",b="\\\",""#),
            [r#"b="\\\",""#, r#"a="\\""#]
        );
    }

    #[test]
    fn an_open_quote_does_not_reach_to_its_right() {
        assert_eq!(
            elements(r#"for="1.1.1.1, for=2.2.2.2"#),
            [" for=2.2.2.2", r#"for="1.1.1.1"#]
        );
        assert_eq!(elements(r#"a", b="c,d""#), [r#" b="c,d""#, r#"a""#]);
    }

    #[test]
    fn a_malformed_element_has_no_client() {
        for bad in [
            "",
            ";",
            "for",
            "for=",
            "for=\"\"",
            "for =1.2.3.4",
            "for= 1.2.3.4",
            "=1.2.3.4",
            "for=1.2.3.4;for=1.2.3.4",
            "for=1.2.3.4;x",
            "for=1.2.3.4;x=",
            "for=1.2.3.4 x=y",
            "for=\"1.2.3.4\"x",
            "for=\"1.2.3.4",
            "for=\"1.2.3.4\\",
            "for=1.2.3.4:80",
            "for=[2001:db8::1]",
            "for='1.2.3.4'",
            "for=\" 1.2.3.4\"",
            "for=\"1.2.3.4:_\"",
            "for=\"_x\"",
            "for=\"unknown\"",
            "for=\"[1.2.3.4]\"",
            "xfor=1.2.3.4",
            "by=1.2.3.4",
        ] {
            assert_eq!(client(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn the_client_of_a_well_formed_element_is_its_for_parameter() {
        for good in [
            "for=1.2.3.4",
            "FoR=1.2.3.4",
            "for=\"1.2.3.4\"",
            "for=\"1.2.3.4:80\"",
            "by=_x;for=1.2.3.4",
            "; ;for=1.2.3.4; ",
            "host=\"a;for=b\";for=1.2.3.4\t;\tx=y",
            "for=\"\\1.2.3.4:_p.o-r_t\"",
            "for=\"[::ffff:1.2.3.4]:_x\"",
            "for=\"[::ffff:1.2.3.4%eth0]\"",
        ] {
            assert_eq!(client(good.as_bytes()), "1.2.3.4".parse().ok(), "{good}");
        }
    }
}
