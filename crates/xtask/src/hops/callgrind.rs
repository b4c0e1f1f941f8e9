//! The functions in a dump of callgrind.

use std::collections::{BTreeMap, BTreeSet};

/// The program that serves the request.
const PROGRAM: &str = "ratelimit_bench";

/// A function of one of our crates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OurFunction {
    /// From the folder `crates` on.
    pub(super) file: String,
    /// Without type arguments and closures.
    pub(super) name: String,
}

/// The functions of our crates that a dump contains.
///
/// A dump names a file or function at its first mention, `fn=(7) name`, and later by its number, `fn=(7)`. The file
/// of a function stands before it, `fl=(3) path`.
pub(super) fn our_functions(dump: &str) -> BTreeSet<OurFunction> {
    let mut files = BTreeMap::new();
    let mut names = BTreeMap::new();
    let mut file = "";
    let mut executed = BTreeSet::new();
    for line in dump.lines() {
        let Some((kind, value)) = line.split_once('=') else {
            continue;
        };
        match kind {
            "fl" => file = resolve(value, &mut files),
            "fi" | "fe" | "cfi" | "cfl" => drop(resolve(value, &mut files)),
            "fn" => drop(executed.insert((file, resolve(value, &mut names)))),
            "cfn" => drop(resolve(value, &mut names)),
            _ => {}
        }
    }
    let ours = executed.into_iter().filter(|(_, name)| is_ours(name));
    // A closure is listed under the file of its function. An item that a macro of another crate makes is not in ours.
    let ours = ours.filter_map(|(file, name)| {
        let (_, file) = file.split_once("crates/")?;
        let (file, name) = (format!("crates/{file}"), base_name(name));
        Some(OurFunction { file, name })
    });
    ours.collect()
}

/// The text behind a number, which its first mention defines.
fn resolve<'a>(value: &'a str, known: &mut BTreeMap<&'a str, &'a str>) -> &'a str {
    match value.split_once(' ') {
        Some((number, text)) => {
            known.insert(number, text);
            text
        }
        None => known.get(value).copied().unwrap_or_default(),
    }
}

/// Whether the type, the trait or the path of a function is of one of our crates.
fn is_ours(name: &str) -> bool {
    let is_ours = |path: &str| path.starts_with("ratelimit_") && !path.starts_with(PROGRAM);
    let type_or_path = name.trim_start_matches('<').trim_start_matches('&');
    let trait_ = match name
        .strip_prefix('<')
        .and_then(|name| name.split_once(" as "))
    {
        Some((_, trait_)) => trait_,
        None => "",
    };
    is_ours(type_or_path) || (is_ours(trait_) && !type_or_path.starts_with(PROGRAM))
}

/// A name without type arguments and without the closures in it.
fn base_name(name: &str) -> String {
    let name = name.split("::{").next().unwrap_or(name);
    let mut base = String::new();
    // Open brackets that are left out.
    let mut depth = 0_usize;
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let is_argument = !(base.is_empty() || base.ends_with('<') || rest.starts_with("<impl "));
        match c {
            '<' if depth > 0 || is_argument => depth += 1,
            '>' if depth > 0 => depth -= 1,
            '-' if rest.starts_with("->") => {
                rest = &rest[2..];
                continue;
            }
            _ if depth == 0 => base.push(c),
            _ => {}
        }
        rest = &rest[c.len_utf8()..];
    }
    base
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_arguments_and_closures_are_cut() {
        let cases = [
            ("ratelimit_a::B<F>::c", "ratelimit_a::B::c"),
            ("ratelimit_a::b::{{closure}}::{{closure}}", "ratelimit_a::b"),
            (
                "<ratelimit_a::B<fn() -> u8> as x::C<D>>::e",
                "<ratelimit_a::B as x::C>::e",
            ),
            (
                "ratelimit_a::b::<impl ratelimit_a::C>::d",
                "ratelimit_a::b::<impl ratelimit_a::C>::d",
            ),
            (
                "<<F as x::A>::B as ratelimit_a::C>::d",
                "<<F as x::A>::B as ratelimit_a::C>::d",
            ),
        ];

        for (name, base) in cases {
            assert_eq!(base_name(name), base);
        }
    }

    #[test]
    fn functions_of_ours_are_found_by_type_or_trait() {
        assert!(is_ours("ratelimit_a::b"));
        assert!(is_ours("<T as ratelimit_a::B>::c"));
        assert!(!is_ours("core::ptr::drop_in_place<ratelimit_a::B>"));
        assert!(!is_ours("ratelimit_bench::main"));
    }

    #[test]
    fn a_dump_is_read_by_its_numbers() {
        let dump = "\
fl=(1) /home/x/crates/ratelimit-a/src/b.rs
fn=(1) ratelimit_a::b
12 5
cfi=(2) crates/ratelimit-a/src/c.rs
cfn=(2) ratelimit_a::C<T>::d
calls=1 7
fl=(2)
fn=(2)
7 1
fn=(3) ratelimit_a::C<T>::d::{{closure}}
8 1
fl=(3) alloc.rs
fn=(4) alloc::e
";

        let found: Vec<(String, String)> = our_functions(dump)
            .into_iter()
            .map(|each| (each.file, each.name))
            .collect();

        let expected = [
            ("crates/ratelimit-a/src/b.rs", "ratelimit_a::b"),
            ("crates/ratelimit-a/src/c.rs", "ratelimit_a::C::d"),
        ];
        assert_eq!(
            found,
            expected.map(|(file, name)| (file.to_owned(), name.to_owned()))
        );
    }
}
