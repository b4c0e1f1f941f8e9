//! The languages that a code block may have, each with the test that reads it.

use super::fence::Fence;

/// How a block of a page is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Testing {
    /// A test types the lines into a shell.
    Typed,
    /// A shell block of `cargo nextest` and `cargo xtask` alone, which name existing tests and steps.
    Checked,
    /// A doctest.
    Compiled,
    /// A test reads it as a file of its language.
    Parsed,
    /// A test that names the page takes the block from it.
    TakenByATest,
    /// Output or a figure. Behind a shell block it is compared with the output of that block.
    Shown,
    /// A reason stands above the block.
    Untested,
}

impl Testing {
    pub(super) const ALL: [(Testing, &str); 7] = [
        (Testing::Typed, "typed"),
        (Testing::Checked, "checked commands"),
        (Testing::Compiled, "compiled"),
        (Testing::Parsed, "parsed"),
        (Testing::TakenByATest, "taken by a test of the page"),
        (Testing::Shown, "shown as text"),
        (Testing::Untested, "untested with a reason"),
    ];
}

const LANGUAGES: [(&str, Testing); 21] = [
    ("sh", Testing::Typed),
    ("console", Testing::Typed),
    ("rust", Testing::Compiled),
    ("toml", Testing::Parsed),
    ("yaml", Testing::Parsed),
    ("json", Testing::Parsed),
    ("limit", Testing::Parsed),
    ("promql", Testing::Parsed),
    ("text", Testing::Shown),
    ("caddy", Testing::TakenByATest),
    ("dockerfile", Testing::TakenByATest),
    ("envoy", Testing::TakenByATest),
    ("haproxy", Testing::TakenByATest),
    ("html", Testing::TakenByATest),
    ("imports", Testing::TakenByATest),
    ("ini", Testing::TakenByATest),
    ("js", Testing::TakenByATest),
    ("log", Testing::TakenByATest),
    ("lua", Testing::TakenByATest),
    ("nginx", Testing::TakenByATest),
    ("redis", Testing::TakenByATest),
];

/// How a block is tested, or why its first line is wrong.
pub(super) fn testing(fence: &Fence) -> Result<Testing, String> {
    if fence.language.is_empty() {
        return Err("the block has no language".to_owned());
    }
    let known = LANGUAGES.iter().find(|(name, _)| *name == fence.language);
    let Some((_, testing)) = known else {
        return Err(format!(
            "`{}` is no language that a test reads",
            fence.language
        ));
    };
    let is_left_out = fence.has("untested") || fence.has("ignore");
    match &fence.reason {
        None if is_left_out => Err("`<!-- untested: REASON -->` is missing above it".to_owned()),
        Some(reason) if reason.is_empty() => Err("the reason is empty".to_owned()),
        Some(_) if !is_left_out => Err("it has a reason, and is not `untested`".to_owned()),
        Some(_) => Ok(Testing::Untested),
        None => Ok(*testing),
    }
}
