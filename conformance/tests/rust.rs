//! Every scenario holds on agentvm's own SDK.

use std::{env, path::PathBuf, process::Command};

/// Where the programs of this workspace are: the gate says so, else two folders up from this test.
fn program(name: &str) -> PathBuf {
    let folder = env::var_os("AGENTVM_TEST_BIN_DIR").map_or_else(
        || {
            let test = env::current_exe().expect("this test has a path");
            test.ancestors().nth(2).expect("target/debug/deps/test").to_owned()
        },
        PathBuf::from,
    );
    folder.join(name)
}

#[test]
fn every_scenario_holds_on_rust() {
    let package = env::var_os("CARGO_MANIFEST_DIR").expect("cargo and the gate say where the package is");
    let run = Command::new(program("conformance"))
        .args(["--driver", "rust", "--complete", "--folder"])
        .arg(package)
        .output()
        .expect("the runner starts");
    let table = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{table}{}", String::from_utf8_lossy(&run.stderr));
}
