//! A program of our own to be observed, `fixture/fixture.c`. It is written in C because a program of this workspace cannot be
//! linked statically, as some of those are that agents run; whoever can build the workspace has a linker with a C compiler.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Stdio},
    sync::LazyLock,
};

use agentvm_sdk::{AgentOs, SpawnOptions};

use crate::support::within;

const SOURCE: &[u8] = include_bytes!("fixture/fixture.c");

/// Where it lies in a VM.
pub(crate) const FIXTURE: &str = "/workspace/fixture";

/// It, on the host; gone when dropped.
pub(crate) struct OnHost(pub(crate) PathBuf);

impl OnHost {
    /// A copy for one test.
    pub(crate) fn new(test: &str) -> Self {
        let copy = Self(std::env::temp_dir().join(format!("agentvm-fixture-{test}-{}", std::process::id())));
        fs::write(&copy.0, &*PROGRAM).unwrap();
        fs::set_permissions(&copy.0, fs::Permissions::from_mode(0o700)).unwrap();
        copy
    }
}

impl Drop for OnHost {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Compiled once.
static PROGRAM: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let built = OnHost(std::env::temp_dir().join(format!("agentvm-fixture-{}", std::process::id())));
    let mut compiler = Command::new("cc")
        .args(["-x", "c", "-static", "-pthread", "-Wall", "-Wextra", "-Werror", "-", "-o"])
        .arg(&built.0)
        .stdin(Stdio::piped())
        .spawn()
        .expect("there is a C compiler");
    compiler.stdin.take().unwrap().write_all(SOURCE).unwrap();
    assert!(compiler.wait().unwrap().success());
    fs::read(&built.0).unwrap()
});

/// Copies it into a VM.
pub(crate) async fn let_in(vm: &AgentOs) {
    let receive = format!("cat > {FIXTURE} && chmod +x {FIXTURE}");
    let receiving = vm.spawn("sh", ["-c", &receive], SpawnOptions::new()).unwrap();
    within(receiving.write_stdin_all(PROGRAM.clone())).await.unwrap();
    receiving.close_stdin();
    assert!(within(receiving.wait()).await.unwrap().success());
}
