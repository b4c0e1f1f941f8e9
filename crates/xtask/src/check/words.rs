//! Words that pages, comments and identifiers avoid.

use std::path::Path;

use crate::{
    check::{
        exceptions::{Exceptions, Finding, Findings},
        pages,
        prose::{self, Word},
        rust_file::{self, RustFile},
        token::{Token, tokens},
        tree,
    },
    failure::Failure,
    workspace::Workspace,
};

const LIST: &str = "crates/xtask/exceptions/words.txt";
const ADVICE: &str = "\
    name the actor and say what it does; for a name, take the word that other crates use";

/// Phrases that no prose contains, in lower case.
const PHRASES: [&str; 14] = [
    "told",
    "said",
    "whoever",
    "nobody",
    "whereabouts",
    "nonsense",
    "lent",
    "so many",
    "so few",
    "so long is",
    "what is no",
    "is no",
    "are no",
    "makes no sense",
];

/// `there is no key` and `is no longer` are plain English.
const ALLOWED_BEFORE: &str = "there";
const ALLOWED_AFTER: [&str; 2] = ["longer", "more"];

/// How no sentence begins.
const OPENINGS: [&str; 5] = ["What", "Who", "Whoever", "Nobody", "So many"];

/// Words that no identifier contains.
const NAMES: [&str; 12] = [
    "told",
    "said",
    "asked",
    "whoever",
    "nobody",
    "whose",
    "lent",
    "whereabouts",
    "nonsense",
    "odd",
    "apart",
    "together",
];

/// Words that no identifier begins with: `max_` says it.
const NAME_OPENINGS: [&str; 2] = ["most", "longest"];

/// Pages that keep the words of their time.
const EXEMPT: [&str; 2] = ["docs/CHANGELOG.md", "docs/decisions/"];

pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    Exceptions::check(&workspace.root, LIST, &find(&workspace.root)?, ADVICE)
}

pub(super) fn write(workspace: &Workspace) -> Result<(), Failure> {
    Exceptions::write(&workspace.root, LIST, &find(&workspace.root)?)
}

fn find(root: &Path) -> Result<Findings, Failure> {
    let mut findings = Findings::new();
    for file in rust_file::load(root)? {
        let mut finding = prose_finding(&prose::rust_words(&file));
        name_problems(&file, &mut finding);
        findings.insert(file.path, finding);
    }
    for (extension, words) in [
        ("md", prose::page_words as fn(&str) -> Vec<Word>),
        ("lua", prose::lua_words),
    ] {
        for file in tree::files(root, extension)? {
            let path = file.strip_prefix(root).unwrap_or(&file).to_string_lossy();
            let is_exempt = EXEMPT.iter().any(|exempt| path.starts_with(exempt));
            if !is_exempt && !pages::is_copy(&path) {
                let finding = prose_finding(&words(&tree::read(&file)?));
                findings.insert(path.into_owned(), finding);
            }
        }
    }
    findings.retain(|_, finding| finding.count > 0);
    Ok(findings)
}

fn prose_finding(words: &[Word]) -> Finding {
    let mut finding = Finding::default();
    for at in 0..words.len() {
        let line = words[at].line;
        if let Some(phrase) = PHRASES.iter().find(|phrase| has_phrase(words, at, phrase)) {
            finding.push(format!("line {line}: \"{phrase}\""));
        }
        let opening = OPENINGS.iter().find(|opening| {
            let mut parts = opening.split(' ');
            let mut found = words[at..].iter();
            words[at].starts_sentence
                && parts.all(|part| found.next().is_some_and(|w| w.text == part))
        });
        if let Some(opening) = opening {
            finding.push(format!("line {line}: a sentence begins with \"{opening}\""));
        }
    }
    finding
}

fn has_phrase(words: &[Word], at: usize, phrase: &str) -> bool {
    let mut end = at;
    for part in phrase.split(' ') {
        let is_equal = |word: &Word| word.text.eq_ignore_ascii_case(part);
        if !words.get(end).is_some_and(is_equal) {
            return false;
        }
        end += 1;
    }
    if !phrase.ends_with(" no") {
        return true;
    }
    let before = at
        .checked_sub(1)
        .map(|before| words[before].text.to_lowercase());
    let is_plain_before = before.is_some_and(|word| word == ALLOWED_BEFORE);
    let is_plain_after = words
        .get(end)
        .is_some_and(|word| ALLOWED_AFTER.contains(&word.text.as_str()));
    !is_plain_before && !is_plain_after
}

fn name_problems(file: &RustFile, finding: &mut Finding) {
    for token in tokens(&file.code).into_iter().filter(Token::is_word) {
        let parts = name_parts(token.text);
        let is_avoided = parts.iter().any(|part| NAMES.contains(&part.as_str()))
            || (parts.len() > 1 && NAME_OPENINGS.contains(&parts[0].as_str()));
        if is_avoided {
            finding.push(format!("line {}: `{}`", token.line, token.text));
        }
    }
}

/// The words of an identifier, in lower case: `HitMode` and `hit_mode` are `["hit", "mode"]`.
fn name_parts(name: &str) -> Vec<String> {
    let is_constant = !name.contains(char::is_lowercase);
    let mut parts = vec![String::new()];
    for c in name.chars() {
        let starts_part = c == '_' || (c.is_uppercase() && !is_constant);
        if starts_part && parts.last().is_some_and(|part| !part.is_empty()) {
            parts.push(String::new());
        }
        if c != '_'
            && let Some(part) = parts.last_mut()
        {
            part.extend(c.to_lowercase());
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Vec<String> {
        prose_finding(&prose::page_words(text)).details
    }

    fn names(code: &str) -> Vec<String> {
        let mut finding = Finding::default();
        name_problems(&RustFile::new("crates/a/src/b.rs", code), &mut finding);
        finding.details
    }

    #[test]
    fn riddles_are_found_across_lines() {
        assert_eq!(
            page("It is told\nso\nmany times."),
            ["line 1: \"told\"", "line 2: \"so many\"",]
        );
        assert_eq!(page("A field that is no number."), ["line 1: \"is no\""]);
    }

    #[test]
    fn plain_english_passes() {
        assert_eq!(
            page("There is no key. It is no longer there. `told` holds."),
            [""; 0]
        );
    }

    #[test]
    fn a_sentence_begins_with_its_subject() {
        assert_eq!(
            page("Redis answers. What it says is final."),
            ["line 1: a sentence begins with \"What\"",]
        );
        assert_eq!(page("The layer decides what happens."), [""; 0]);
    }

    #[test]
    fn identifiers_are_split_into_words() {
        assert_eq!(
            names("let told_by = ODD_KEY; struct WasAsked; most_keys"),
            [
                "line 1: `told_by`",
                "line 1: `ODD_KEY`",
                "line 1: `WasAsked`",
                "line 1: `most_keys`",
            ]
        );
        assert_eq!(names("let modded = almost; // odd\n\"odd\""), [""; 0]);
    }
}
