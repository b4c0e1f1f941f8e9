//! The shell lines of the pages that need the server alone, typed into a shell.

use std::path::Path;

use ratelimit_tests::page::{Programs, type_pages};

#[test]
fn every_shell_line_of_the_pages_is_typed() {
    let server = Path::new(env!("CARGO_BIN_EXE_ratelimit-server"));
    let programs = Programs {
        server: server.to_owned(),
        examples: server.with_file_name("no_examples"),
    };

    let steps = type_pages(&programs, |commands| {
        !commands.contains("ratelimit-examples")
    });

    assert!(
        steps >= 30 || std::env::var("RATELIMIT_PAGE").is_ok(),
        "{steps} steps"
    );
}
