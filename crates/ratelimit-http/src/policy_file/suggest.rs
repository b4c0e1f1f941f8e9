//! The name that was probably meant.

/// The known name nearest to `located_rule`, if it is near enough to be meant.
pub(crate) fn nearest<'a>(
    located_rule: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let located_rule = plain(located_rule);
    let known = known.into_iter();
    let by_distance = known.map(|name| (distance(&located_rule, &plain(name)), name));
    let (distance, name) = by_distance.min()?;
    (distance <= 1 + name.len() / 5).then_some(name)
}

/// Without what is confused most: case, and the sign between words.
fn plain(name: &str) -> Vec<char> {
    let longest = 64;
    let letters = name.chars().take(longest);
    letters
        .map(|letter| match letter {
            '-' => '_',
            other => other.to_ascii_lowercase(),
        })
        .collect()
}

/// How many letters must be added, left out or changed to get from one name to the other.
fn distance(from: &[char], to: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (place, letter) in from.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = place + 1;
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
    fn a_slip_finds_the_name_that_was_meant() {
        let known = ["limits", "on_failure", "instances"];

        assert_eq!(nearest("limit", known), Some("limits"));
        assert_eq!(nearest("on-failure", known), Some("on_failure"));
        assert_eq!(nearest("OnFailure", known), Some("on_failure"));
        assert_eq!(nearest("intances", known), Some("instances"));
    }

    #[test]
    fn another_word_finds_nothing() {
        assert_eq!(nearest("tarif", ["limits", "cost"]), None);
        assert_eq!(nearest("", ["limits"]), None);
        assert_eq!(nearest("limits", []), None);
    }
}
