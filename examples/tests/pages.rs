//! The shell lines of the pages that start examples, typed into a shell.

use ratelimit_tests::page::{Programs, type_pages};

#[test]
fn every_shell_line_of_the_pages_with_examples_is_typed() {
    let programs = Programs::beside(env!("CARGO_BIN_EXE_axum_basic"));

    let steps = type_pages(&programs, |commands| {
        commands.contains("ratelimit-examples")
    });

    assert!(
        steps >= 60 || std::env::var("RATELIMIT_PAGE").is_ok(),
        "{steps} steps"
    );
}
