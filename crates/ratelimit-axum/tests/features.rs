//! The features that the adapter turns on in the crates of its users.

use std::process::Command;

/// A server that refused HTTP/2 without TLS (h2c) would accept it with axum's `http2`.
#[test]
fn the_adapter_turns_on_no_protocol_of_a_server() {
    for features in ["--no-default-features", "--all-features"] {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["tree", "--offline", "--edges", "features,no-dev", features]);
        let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output();
        let output = output.expect("cargo runs");
        let tree = String::from_utf8_lossy(&output.stdout);

        assert!(output.status.success(), "{output:?}");
        assert!(tree.contains("axum feature \"matched-path\""), "{tree}");
        for protocol in ["http1", "http2", "ws"] {
            let feature = format!("axum feature \"{protocol}\"");
            assert!(!tree.contains(&feature), "{features}: {feature}");
        }
        assert!(!tree.contains("hyper feature \"http2\""), "{features}");
        assert!(!tree.contains("hyper-util feature \"http2\""), "{features}");
    }
}
