//! Rust source, as far as the checks must understand it.

/// The code alone: comments and literals become spaces, line breaks stay.
pub(super) fn code(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut rest = chars.as_slice();
    while let [next, after @ ..] = rest {
        let Some(length) = opaque_length(rest) else {
            code.push(*next);
            rest = after;
            continue;
        };
        let (opaque, after) = rest.split_at(length.min(rest.len()));
        code.extend(opaque.iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
        rest = after;
    }
    code
}

/// For each line of code, whether it belongs to an item under `#[cfg(test)]`.
///
/// An item ends with the braces that it opens, or with a semicolon.
pub(super) fn test_lines(code: &str) -> Vec<bool> {
    let lines: Vec<&str> = code.lines().collect();
    let mut tests = vec![false; lines.len()];
    let mut at = 0;
    while at < lines.len() {
        let attribute = lines[at].trim_start();
        if !attribute.starts_with("#[cfg(test)]") && !attribute.starts_with("#[cfg(all(test") {
            at += 1;
            continue;
        }
        let end = at + item_lines(&lines[at..]);
        tests[at..end].fill(true);
        at = end;
    }
    tests
}

/// How many lines the item takes that begins with an attribute.
fn item_lines(lines: &[&str]) -> usize {
    let (mut round, mut curly) = (0_i32, 0_i32);
    for (number, line) in (1..).zip(lines) {
        for c in line.chars() {
            match c {
                '(' | '[' => round += 1,
                ')' | ']' => round -= 1,
                '{' => curly += 1,
                '}' => curly -= 1,
                _ => {}
            }
            let is_end = (c == '}' && curly <= 0) || (c == ';' && round == 0 && curly == 0);
            if is_end {
                return number;
            }
        }
    }
    lines.len()
}

/// How many characters the comment or literal takes that begins here, if one does.
fn opaque_length(rest: &[char]) -> Option<usize> {
    match rest {
        ['/', '/', ..] => Some(rest.iter().position(|c| *c == '\n').unwrap_or(rest.len())),
        ['/', '*', ..] => Some(block_comment_length(rest)),
        ['"', ..] => Some(string_length(rest)),
        ['r', '"' | '#', ..] => raw_string_length(rest),
        ['\'', '\\', _, after @ ..] => Some(4 + after.iter().position(|c| *c == '\'')?),
        ['\'', _, '\'', ..] => Some(3),
        _ => None,
    }
}

fn block_comment_length(rest: &[char]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        match &rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] if depth == 1 => return at + 2,
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    at
}

fn string_length(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '"' => return at + 1,
            '\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}

fn raw_string_length(rest: &[char]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
    let body = rest[1 + hashes..].strip_prefix(&['"'])?;
    let closing: Vec<char> = ['"'].into_iter().chain(vec!['#'; hashes]).collect();
    let end = body
        .windows(closing.len())
        .position(|window| window == closing)?;
    Some(1 + hashes + 1 + end + closing.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_not_code() {
        let text = "a /* b /* c */ d */ e // f\n'g' \"h\\\" i\" r#\"j\" k\"# '\\'' l";

        let words: Vec<String> = code(text).split_whitespace().map(str::to_owned).collect();

        assert_eq!(words, ["a", "e", "l"]);
        assert_eq!(code(text).lines().count(), 2);
    }

    #[test]
    fn lifetimes_and_raw_names_are_code() {
        let text = "fn a<'b>(c: &'b str, r#type: u8)";

        assert_eq!(code(text), text);
    }

    #[test]
    fn items_for_tests_are_found_wherever_they_are() {
        let code = "a\n#[cfg(test)]\nuse b;\nc\n#[cfg(test)]\nfn d(x: [u8; 2]) {\n {}\n}\ne";

        let is_test: Vec<usize> = (0..)
            .zip(test_lines(code))
            .filter_map(|(line, is_test)| is_test.then_some(line))
            .collect();

        assert_eq!(is_test, [1, 2, 4, 5, 6, 7]);
    }
}
