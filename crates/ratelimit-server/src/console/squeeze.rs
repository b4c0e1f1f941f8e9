//! Files of the page as they are served: without comments, indentation and needless spaces.

/// Writes `text` without indentation, comment lines, empty lines, and line ends and spaces that separate nothing. Returns its
/// length, of which as much is written as `out` has room for.
///
/// A comment is a line that begins with `//` or `/*`. A line end separates nothing after a byte that cannot end a
/// statement, or before one that cannot begin one. Spaces are kept in texts of single quotes, and in lines that contain a
/// byte of another quote, of a regular expression or of a tag.
pub(super) const fn squeeze(text: &[u8], out: &mut [u8]) -> usize {
    let (mut from, mut length, mut last) = (0, 0, b';');
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
        let is_plain = is_plain(text, start, end);
        let mut is_quoted = false;
        while start < end {
            let byte = text[start];
            start += 1;
            if byte == b'\'' {
                is_quoted = !is_quoted;
            }
            if is_plain && !is_quoted && byte == b' ' && is_needless(last, text, start) {
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
    text[at] == b'/' && at + 1 < text.len() && matches!(text[at + 1], b'/' | b'*')
}

/// Whether a line has quotes of one kind only, and neither regular expressions nor tags.
const fn is_plain(text: &[u8], mut at: usize, end: usize) -> bool {
    while at < end {
        if matches!(text[at], b'`' | b'"' | b'\\' | b'/' | b'<') {
            return false;
        }
        at += 1;
    }
    true
}

/// Whether a space between `last` and the byte at `next` separates nothing. A selector may begin with the colon behind a
/// space; one of a condition has a space behind it as well.
const fn is_needless(last: u8, text: &[u8], next: usize) -> bool {
    let is_colon = next + 1 < text.len() && text[next] == b':' && text[next + 1] == b' ';
    is_colon
        || matches!(
            last,
            b',' | b';' | b'=' | b'>' | b'&' | b'|' | b'?' | b':' | b'{' | b'}'
        )
        || (next < text.len()
            && matches!(text[next], b'=' | b'{' | b'}' | b'?' | b'&' | b'|' | b'>'))
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
    fn a_text_of_one_line_stays() {
        for text in [
            "",
            "a",
            "a // b",
            "/",
            "a{b:c}",
            "a - b",
            "a :b c",
            "'a = b, c'",
        ] {
            assert_eq!(squeezed(text), text);
        }
    }

    #[test]
    fn spaces_go_where_they_separate_nothing() {
        for (text, expected) in [
            (
                "const f = (a, b) => ({a, b: a ? b : 'c : d'});",
                "const f=(a,b)=>({a,b:a?b:'c : d'});",
            ),
            ("a && b || c === d", "a&&b||c===d"),
            (
                "@media (a:b) {.c {d:calc(1px - 2px)}}",
                "@media (a:b){.c{d:calc(1px - 2px)}}",
            ),
        ] {
            assert_eq!(squeezed(text), expected);
        }
        for text in ["`a, b`", "\"a, b\"", "/a, b/", "<b>c</b> d, e"] {
            assert_eq!(squeezed(text), text);
        }
    }

    /// A comment behind code, or a text over several lines, would change its meaning.
    #[test]
    fn no_file_of_the_page_loses_its_meaning() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/console");
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                let code = line.trim_start();
                let is_comment = code.starts_with("//") || code.starts_with("/*");
                let is_closed = !code.starts_with("/*") || code.ends_with("*/");
                let is_text_closed = is_comment || code.matches('`').count() % 2 == 0;
                let is_text_closed =
                    is_text_closed && (is_comment || code.matches('\'').count() % 2 == 0);
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
