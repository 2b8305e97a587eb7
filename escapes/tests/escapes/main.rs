//! What hostile guests try, against VMs of a sidecar of the test's own. The gate runs this as root and as an ordinary user.

#![expect(clippy::unwrap_used, reason = "in a test a failed step is a failed test")]

mod attempts;
mod storms;

use std::path::PathBuf;

/// Where the programs of this workspace are: the gate says so, else two folders up from this test.
fn program(name: &str) -> PathBuf {
    let folder = std::env::var_os("AGENTVM_TEST_BIN_DIR").map_or_else(
        || {
            let test = std::env::current_exe().expect("this test has a path");
            test.ancestors().nth(2).expect("target/debug/deps/test").to_owned()
        },
        PathBuf::from,
    );
    folder.join(name)
}
