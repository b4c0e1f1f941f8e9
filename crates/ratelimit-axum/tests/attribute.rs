//! Mistakes in `#[rate_limit(...)]` are compile errors that say what to write.

#[test]
fn mistakes_are_compile_errors() {
    trybuild::TestCases::new().compile_fail("tests/wrong/*.rs");
}
