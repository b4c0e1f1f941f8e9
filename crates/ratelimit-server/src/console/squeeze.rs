//! Files of the page as they are served: without comments, indentation and needless spaces.

/// Writes `text` without indentation, comment lines, empty lines, and line ends and spaces that separate nothing. Returns its
/// length, of which as much is written as `out` has room for.
///
/// A comment is a line that begins with `//` or `/*`. A line end separates nothing after a byte that cannot end a
/// statement, or before one that cannot begin one. Spaces go from scripts only, and there up to the first byte of a line
/// that may begin a template, a text of double quotes or a regular expression.
pub(super) const fn squeeze(text: &[u8], out: &mut [u8]) -> usize {
    let (mut from, mut length, mut last) = (0, 0, b';');
    // Scripts begin with a comment that says what they are.
    let is_script = is_comment(text, 0);
    while from < text.len() {
        let mut start = from;
        while start < text.len() && text[start] == b' ' {
            start += 1;
        }
        let mut end = start;
        while end < text.len() && text[end] != b'\n' {
            end += 1;
        }
        from = end + 1;
        if start == end || is_comment(text, start) {
            continue;
        }
        if !continues_after(last) && !continues_before(text[start]) {
            put(out, length, b'\n');
            length += 1;
        }
        let (mut is_plain, mut is_quoted) = (is_script, false);
        while start < end {
            let byte = text[start];
            start += 1;
            is_quoted ^= byte == b'\'';
            is_plain &= byte != b'\\' && (is_quoted || !matches!(byte, b'`' | b'"' | b'/'));
            let is_space = byte == b' ' && is_plain && !is_quoted && start < end;
            if is_space
                && (separates(last)
                    || separates(text[start])
                    || matches!(text[start], b'\'' | b'`'))
            {
                continue;
            }
            last = byte;
            put(out, length, last);
            length += 1;
        }
    }
    length
}

const fn is_comment(text: &[u8], at: usize) -> bool {
    at + 1 < text.len() && text[at] == b'/' && matches!(text[at + 1], b'/' | b'*')
}

/// Whether a byte of a script needs no space beside it.
const fn separates(byte: u8) -> bool {
    matches!(
        byte,
        b',' | b';'
            | b':'
            | b'?'
            | b'='
            | b'<'
            | b'>'
            | b'&'
            | b'|'
            | b'!'
            | b'*'
            | b'+'
            | b'-'
            | b'('
            | b')'
            | b'['
            | b']'
            | b'{'
            | b'}'
    )
}

const fn continues_after(byte: u8) -> bool {
    matches!(
        byte,
        b',' | b'(' | b'{' | b'[' | b';' | b'=' | b'>' | b'&' | b'|'
    )
}

const fn continues_before(byte: u8) -> bool {
    matches!(byte, b')' | b'}' | b']' | b'.' | b'?' | b':')
}

const fn put(out: &mut [u8], at: usize, byte: u8) {
    if at < out.len() {
        out[at] = byte;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn squeezed(text: &str) -> String {
        let mut out = vec![0; squeeze(text.as_bytes(), &mut [])];
        squeeze(text.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn comments_indentation_and_needless_line_ends_go() {
        let text = "// a\n/** b */\nconst x = [\n  1,\n  2\n];\n\nx\n  .y()\nf(1)\ng(2);\n";

        assert_eq!(squeezed(text), "const x=[1,2];x.y()\nf(1)\ng(2);");
    }

    #[test]
    fn a_text_of_one_line_that_is_no_script_stays() {
        for text in ["", "a", "a // b", "/", "a{b:c}", "a :b, c {d: var(--e) 8%}"] {
            assert_eq!(squeezed(text), text);
        }
    }

    #[test]
    fn spaces_of_a_script_go_where_they_separate_nothing() {
        for (text, expected) in [
            (
                "const f = (a, b) => ({a, b: a ? b : 'c : d'});",
                "const f=(a,b)=>({a,b:a?b:'c : d'});",
            ),
            ("if (a && b) return 'c' + d - 1;", "if(a&&b)return'c'+d-1;"),
            ("a = b ? `c, d` : e", "a=b?`c, d` : e"),
            ("return `a, b`;", "return`a, b`;"),
            ("a = \"b, c\"", "a=\"b, c\""),
            ("a = b.replace(/ c, d/, e)", "a=b.replace(/ c, d/, e)"),
            ("a = 'b\\'c, d', e", "a='b\\'c, d', e"),
        ] {
            assert_eq!(squeezed(&format!("// a\n{text}")), expected);
        }
    }

    /// A comment behind code, or a text over several lines, would change its meaning.
    #[test]
    fn no_file_of_the_page_loses_its_meaning() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/console");
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let is_script = path.extension().is_some_and(|extension| extension == "js");
            assert_eq!(text.starts_with("//"), is_script, "{}", path.display());
            for line in text.lines() {
                let code = line.trim_start();
                let is_comment = code.starts_with("//") || code.starts_with("/*");
                let is_closed = !code.starts_with("/*") || code.ends_with("*/");
                let is_text_closed = is_comment || code.matches('`').count() % 2 == 0;
                let is_text_closed =
                    is_text_closed && (is_comment || code.matches('\'').count() % 2 == 0);
                // Without the space they were other operators.
                assert!(!code.contains("+ +") && !code.contains("- -"), "{line}");
                let has_comment_behind = !is_comment && code.contains(" // ");
                assert!(
                    is_closed && is_text_closed && !has_comment_behind,
                    "{}: {line}",
                    path.display()
                );
            }
        }
    }
}
