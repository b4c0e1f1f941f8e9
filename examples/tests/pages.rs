//! The shell lines of the pages that start examples, typed into a shell.

use std::path::Path;

use ratelimit_tests::page::{Programs, type_pages};

#[test]
fn every_shell_line_of_the_pages_with_examples_is_typed() {
    let example = Path::new(env!("CARGO_BIN_EXE_axum_basic"));
    let programs = Programs {
        // Cargo puts all programs of the workspace into one folder.
        server: example.with_file_name("ratelimit-server"),
        examples: example.with_file_name(""),
    };
    assert!(
        programs.server.exists(),
        "`cargo build -p ratelimit-server` builds the server that the pages start"
    );

    type_pages(&programs, |commands| {
        commands.contains("ratelimit-examples")
    });
}
