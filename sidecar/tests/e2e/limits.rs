//! Limits: those the sidecar itself lives under, and those of its VMs.

use agentvm_sdk::{AgentOs, AgentOsConfig, ClientError, ExecOptions};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::support::{out, sidecar, tree, within};

#[tokio::test]
async fn a_sidecar_that_may_write_no_file_says_so_and_lives() {
    let sidecar = sidecar().await;
    let sidecar_and_zygote = tree(sidecar.pid().unwrap());
    let config = || AgentOsConfig::new().connection(sidecar.clone());
    let vm = within(AgentOs::create(config())).await.unwrap();
    for pid in sidecar_and_zygote {
        let pid = Pid::from_raw(pid.cast_signed()).unwrap();
        let Rlimit { maximum, .. } = getrlimit(Resource::Fsize);
        prlimit(Some(pid), Resource::Fsize, Rlimit { current: Some(0), maximum }).unwrap();
    }
    // Long arguments go through a file of memory.
    let long = within(vm.exec_argv("true", ["x".repeat(100_000)], ExecOptions::new())).await.unwrap_err();
    assert!(
        matches!(&long, ClientError::SpawnFailed { code, step, .. } if code.as_str() == "EFBIG" && step == "request"),
        "{long:?}"
    );
    let refused = within(AgentOs::create(config())).await.unwrap_err();
    let ClientError::Rejected(rejection) = &refused else { panic!("{refused:?}") };
    assert_eq!(rejection.details.step.as_deref(), Some("etc"));
    assert!(rejection.message.contains("ulimit -f"), "{}", rejection.message);
    assert_eq!(out(&vm, "echo x > f && cat f").await, "x\n");
}
