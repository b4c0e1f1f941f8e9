//! Output of a program, compared with what a page shows.

use regex_lite::Regex;

/// Whether the output is what the page shows. `...` in a line is any text, and alone any number of lines.
///
/// Times that depend on the moment are the same whatever they are: dates, and seconds until something happens.
pub(super) fn matches(shown: &str, printed: &str) -> bool {
    let (shown, printed) = (timeless(shown), timeless(printed));
    let shown: Vec<&str> = shown.trim().lines().map(str::trim_end).collect();
    let printed: Vec<&str> = printed.trim().lines().map(str::trim_end).collect();
    lines_match(&shown, &printed)
}

fn lines_match(shown: &[&str], printed: &[&str]) -> bool {
    match shown {
        [] => printed.is_empty(),
        [first, rest @ ..] if first.trim() == "..." => {
            (0..=printed.len()).any(|skipped| lines_match(rest, &printed[skipped..]))
        }
        [first, rest @ ..] => {
            let [line, after @ ..] = printed else {
                return false;
            };
            line_matches(first, line) && lines_match(rest, after)
        }
    }
}

fn line_matches(shown: &str, printed: &str) -> bool {
    let Some((start, rest)) = shown.split_once("...") else {
        return shown == printed;
    };
    let Some(printed) = printed.strip_prefix(start) else {
        return false;
    };
    let mut starts = (0..=printed.len()).filter(|at| printed.is_char_boundary(*at));
    starts.any(|at| line_matches(rest, &printed[at..]))
}

fn timeless(text: &str) -> String {
    let times = [
        r#"(AfterSeconds":)[1-9][0-9]*"#,
        r#"(durationUntilReset":")[0-9]+s"#,
        r"(?i)((?:^|\n)(?:x-ratelimit-reset|retry-after): )[1-9][0-9]*",
        r"(?i)((?:^|\n)date: )[^\r\n]*",
    ];
    times.iter().fold(text.to_owned(), |text, time| {
        let time = Regex::new(time).expect("an expression");
        time.replace_all(&text, "${1}N").into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_any_text_and_any_lines() {
        assert!(matches("a\n...\nd\n", "a\nb\nc\nd"));
        assert!(matches("...", ""));
        assert!(matches("a ... c", "a b c"));
        assert!(matches("...c", "abc"));
        assert!(!matches("a\n...\nd", "a\nb"));
        assert!(!matches("a ... c", "a b"));
        assert!(!matches("a", "a\nb"));
        assert!(!matches("a", "b"));
    }

    #[test]
    fn only_times_may_differ() {
        assert!(matches(
            r#"{"resetAfterSeconds":12}"#,
            r#"{"resetAfterSeconds":7}"#
        ));
        assert!(!matches(
            r#"{"resetAfterSeconds":12}"#,
            r#"{"resetAfterSeconds":0}"#
        ));
        assert!(matches("a: 1\nretry-after: 6", "a: 1\r\nretry-after: 5\r"));
        assert!(!matches("a: 1", "a: 2"));
    }
}
