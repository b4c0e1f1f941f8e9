//! The examples of docs/reference/limit-text.md: each text parses to what stands beside it, each mistake has its message.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use ratelimit_core::{Policy, Throttle};

const PAGE: &str = include_str!("../../../docs/reference/limit-text.md");

/// The code in the cells of the table rows below a header whose first cell is `name`.
fn rows(name: &str) -> Vec<Vec<&'static str>> {
    let mut rows = Vec::new();
    let mut is_wanted = false;
    for line in PAGE.lines() {
        if !line.starts_with('|') {
            is_wanted = false;
        } else if line.starts_with(&format!("| {name} |")) {
            is_wanted = true;
        } else if is_wanted && !line.starts_with("|-") {
            let code = line.split('`').skip(1).step_by(2);
            rows.push(code.collect());
        }
    }
    rows
}

/// The canonical text of a policy.
fn in_full(policy: &Policy) -> String {
    let limits = policy.limits().iter().enumerate();
    let texts = limits.map(|(index, limit)| match policy.key_name(index) {
        Some(name) => format!("{limit} by {name}"),
        None => limit.to_string(),
    });
    texts.collect::<Vec<_>>().join("; ")
}

#[test]
fn limit_text_every_text_of_the_page_is_read_as_it_says() {
    let rows = rows("text");
    for row in &rows {
        let [text, full, ..] = row.as_slice() else {
            panic!("a row without its text in full: {row:?}");
        };
        let policy = Policy::parse("page", text).unwrap_or_else(|why| panic!("{text}: {why}"));
        assert_eq!(in_full(&policy), *full, "{text}");
        assert_eq!(Policy::parse("page", full).as_ref(), Ok(&policy), "{full}");
    }
    assert!(rows.len() > 25, "{} texts", rows.len());
}

#[test]
fn limit_text_every_throttle_of_the_page_is_read_as_its_mode() {
    let rows = rows("throttle");
    for row in &rows {
        let throttle: Throttle = row[0].parse().unwrap();
        // `Display` leaves the mark of a load signal out.
        assert!(row[0].starts_with(&throttle.to_string()), "{throttle}");
    }
    assert_eq!(rows.len(), 5);
}

#[test]
fn limit_text_every_mistake_of_the_page_has_its_message() {
    let (_, messages) = PAGE.split_once("## Messages").unwrap();
    let block = messages.split("```").nth(1).unwrap();
    let mut lines = block.lines().skip(1);
    let mut mistakes = 0;
    while let (Some(text), Some(message)) = (lines.next(), lines.next()) {
        let message = message.strip_prefix("    ").unwrap();
        let refused = Policy::parse("page", text).expect_err(text);
        assert_eq!(refused.to_string(), message);
        mistakes += 1;
    }
    assert!(mistakes > 15, "{mistakes} mistakes");
}
