//! Licence expressions.

use std::{fmt, iter::Peekable, vec};

/// Whether an SPDX expression can be met with licences that `allowed` accepts.
///
/// Takes the form `MIT/Apache-2.0` of old manifests for `MIT OR Apache-2.0`.
pub(super) fn is_met(expression: &str, allowed: &[&str]) -> Result<bool, InvalidExpression> {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut tokens = Tokens {
        rest: spaced
            .split_whitespace()
            .collect::<Vec<_>>()
            .into_iter()
            .peekable(),
        allowed,
    };
    let is_met = tokens.either()?;
    match tokens.rest.next() {
        Some(token) => Err(InvalidExpression(format!("`{token}` is one too many"))),
        None => Ok(is_met),
    }
}

/// An invalid expression.
#[derive(Debug)]
pub(super) struct InvalidExpression(String);

impl fmt::Display for InvalidExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

struct Tokens<'a> {
    rest: Peekable<vec::IntoIter<&'a str>>,
    allowed: &'a [&'a str],
}

impl Tokens<'_> {
    fn either(&mut self) -> Result<bool, InvalidExpression> {
        let mut is_met = self.both()?;
        while self.rest.next_if_eq(&"OR").is_some() {
            is_met |= self.both()?;
        }
        Ok(is_met)
    }

    fn both(&mut self) -> Result<bool, InvalidExpression> {
        let mut is_met = self.licence()?;
        while self.rest.next_if_eq(&"AND").is_some() {
            is_met &= self.licence()?;
        }
        Ok(is_met)
    }

    fn licence(&mut self) -> Result<bool, InvalidExpression> {
        let name = match self.rest.next() {
            Some("(") => {
                let is_met = self.either()?;
                let Some(")") = self.rest.next() else {
                    return Err(InvalidExpression("a parenthesis is not closed".to_owned()));
                };
                return Ok(is_met);
            }
            None | Some(")" | "AND" | "OR" | "WITH") => {
                return Err(InvalidExpression("a licence is missing".to_owned()));
            }
            Some(name) => name.trim_end_matches('+'),
        };
        // An exception only adds to what a licence permits.
        if self.rest.next_if_eq(&"WITH").is_some() && self.rest.next().is_none() {
            return Err(InvalidExpression("an exception is missing".to_owned()));
        }
        Ok(self.allowed.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: [&str; 3] = ["MIT", "Apache-2.0", "ISC"];

    fn met(expression: &str) -> bool {
        is_met(expression, &ALLOWED).unwrap()
    }

    #[test]
    fn one_of_an_or_and_all_of_an_and_must_be_allowed() {
        assert!(met("MIT"));
        assert!(met("GPL-3.0-only OR MIT"));
        assert!(met("ISC AND MIT"));
        assert!(!met("GPL-3.0-only AND MIT"));
        assert!(!met("LGPL-2.1-or-later"));
    }

    #[test]
    fn and_binds_closer_than_or() {
        assert!(met("MIT OR ISC AND GPL-3.0-only"));
        assert!(!met("(MIT OR ISC) AND GPL-3.0-only"));
        assert!(met("ISC AND (GPL-3.0-only OR Apache-2.0)"));
    }

    #[test]
    fn old_forms_and_exceptions_are_read() {
        assert!(met("MIT/Apache-2.0"));
        assert!(met("GPL-2.0 / MIT"));
        assert!(met("Apache-2.0 WITH LLVM-exception"));
        assert!(met("Apache-2.0 WITH LLVM-exception OR GPL-3.0-only"));
        assert!(met("Apache-2.0+"));
    }

    #[test]
    fn malformed_text_is_an_error() {
        for expression in [
            "", "MIT OR", "(MIT", "MIT)", "MIT ISC", "AND MIT", "MIT WITH",
        ] {
            assert!(is_met(expression, &ALLOWED).is_err(), "{expression}");
        }
    }
}
