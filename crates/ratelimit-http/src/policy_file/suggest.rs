//! Suggestions for misspelled names.

/// The known name that is nearest to `name`, if it is close enough to be a misspelling of it.
///
/// Up to one edit per five letters, and one more, is close enough. Case, `-` or `_`, and a plural `ies` do not count.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = singular(normalize(name));
    let known = known.into_iter();
    let by_distance = known.map(|known| (distance(&name, &singular(normalize(known))), known));
    let (distance, known) = by_distance.min()?;
    (distance <= 1 + known.len() / 5).then_some(known)
}

/// The first letters of a name, in lower case and with `_` between words.
fn normalize(name: &str) -> Vec<char> {
    const MAX_LETTERS: usize = 64;
    let letters = name.chars().take(MAX_LETTERS);
    letters
        .map(|letter| match letter {
            '-' => '_',
            other => other.to_ascii_lowercase(),
        })
        .collect()
}

/// `policy` for `policies`: other plurals are one edit away.
fn singular(mut name: Vec<char>) -> Vec<char> {
    if name.ends_with(&['i', 'e', 's']) {
        name.truncate(name.len() - 3);
        name.push('y');
    }
    name
}

/// The Levenshtein distance: letters to insert, delete or replace.
fn distance(from: &[char], to: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, letter) in from.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other) in to.iter().enumerate() {
            let changed = diagonal + usize::from(letter != other);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelling_finds_the_intended_name() {
        let known = ["limits", "on_failure", "instances"];

        assert_eq!(nearest("limit", known), Some("limits"));
        assert_eq!(nearest("on-failure", known), Some("on_failure"));
        assert_eq!(nearest("OnFailure", known), Some("on_failure"));
        assert_eq!(nearest("intances", known), Some("instances"));
        assert_eq!(nearest("policies", ["listen", "policy"]), Some("policy"));
    }

    #[test]
    fn another_word_finds_nothing() {
        assert_eq!(nearest("tarif", ["limits", "cost"]), None);
        assert_eq!(nearest("", ["limits"]), None);
        assert_eq!(nearest("limits", []), None);
    }
}
