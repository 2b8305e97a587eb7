//! `agentvm-sidecar doctor` on this host, and on hosts that lack something.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use rustix::process::geteuid;
use serde_json::Value;

use crate::support::{DEADLINE, apart, is_alive, program, tree, until};

fn doctor(arguments: &[&str]) -> Command {
    let mut command = Command::new(program("agentvm-sidecar"));
    command.arg("doctor").args(arguments);
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn level<'a>(diagnosis: &'a Value, isolation: &str) -> &'a Value {
    let levels = diagnosis["levels"].as_array().unwrap();
    levels.iter().find(|level| level["isolation"] == isolation).unwrap()
}

#[test]
fn a_host_that_can_have_sandboxes_is_told_so() {
    let output = doctor(&["--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let diagnosis: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(diagnosis["uid"], geteuid().as_raw());
    let sandbox = level(&diagnosis, "sandbox");
    assert!(sandbox["report"]["namespaces"]["user"].is_string(), "{sandbox}");
    assert!(sandbox.get("failure").is_none());
    let lacks_groups =
        sandbox["report"]["limits"].as_array().unwrap().iter().any(|limit| limit["missing"].is_string());
    assert_eq!(sandbox["remedies"].as_array().unwrap().len(), usize::from(lacks_groups));
    assert!(level(&diagnosis, "confined")["report"]["landlock"]["abi"].is_u64());
    assert_eq!(level(&diagnosis, "none")["report"]["no_new_privs"], false);
    let [tree, host] = &diagnosis["observer"].as_array().unwrap()[..] else { panic!("{diagnosis}") };
    assert_eq!((&tree["scope"], &host["scope"]), (&"launched-process-tree".into(), &"system-wide".into()));
    assert_eq!(tree["categories"][0]["category"], "lifecycle");
    assert_eq!(tree["categories"][0]["support"], "supported");
}

/// As root of a pod or a container has: no ids but its own few.
#[test]
fn root_of_a_user_namespace_has_sandboxes_as_an_ordinary_user_has() {
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user"])
        .arg(program("agentvm-sidecar"))
        .args(["doctor", "--json"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let diagnosis: Value = serde_json::from_slice(&output.stdout).unwrap();
    let map = &level(&diagnosis, "sandbox")["report"]["uid_map"][0];
    assert_eq!((&map["inside"], &map["outside"], &map["count"]), (&1000.into(), &0.into(), &1.into()));
    let host = &diagnosis["observer"][1]["categories"][3];
    assert_eq!((&host["category"], &host["support"]), (&"process".into(), &"unavailable".into()));
    assert!(
        host["reason"].as_str().is_some_and(|reason| reason.contains("user and pid namespaces")),
        "{host}"
    );
    let confined = level(&diagnosis, "confined");
    assert_eq!(confined["failure"]["step"], "uid_range", "guests are never root: {confined}");
}

#[test]
fn people_get_text_with_colours_on_a_terminal_only() {
    let plain = doctor(&[]).output().unwrap();
    let said = text(&plain);
    assert_eq!(plain.status.code(), Some(0), "{said}");
    for part in ["sandbox: yes", "confined: in part", "none: in part", "This host can have sandboxes."] {
        let partly = part.replace("yes", "in part");
        assert!(said.contains(part) || said.contains(&partly), "{part}: {said}");
    }
    let matrix = "\nobserver capabilities (scope=launched-process-tree):\n  lifecycle  supported ";
    assert!(said.contains(matrix), "{said}");
    assert!(!said.contains('\u{1b}'), "{said}");
    // What a terminal is told by its user.
    let coloured = doctor(&[]).env("CLICOLOR_FORCE", "1").output().unwrap();
    assert!(text(&coloured).contains("\u{1b}[32m"), "{}", text(&coloured));
}

/// A host that lacks something, made of namespaces around the doctor.
struct Host {
    lacks: &'static str,
    unshare: &'static [&'static str],
    /// What is done to it; the doctor then takes the place of the shell.
    script: &'static str,
    step: &'static str,
    errno: &'static str,
    remedy: &'static str,
    /// Root of the host is needed to make it.
    as_root: bool,
}

const HOSTS: [Host; 4] = [
    Host {
        lacks: "user namespaces",
        unshare: &["--user", "--map-root-user"],
        script: "echo 0 > /proc/sys/user/max_user_namespaces",
        step: "user_namespace",
        errno: "ENOSPC",
        remedy: "user.max_user_namespaces",
        as_root: false,
    },
    Host {
        lacks: "network namespaces",
        unshare: &["--user", "--map-root-user"],
        script: "echo 0 > /proc/sys/user/max_net_namespaces",
        step: "namespaces",
        errno: "ENOSPC",
        remedy: "user.max_net_namespaces",
        as_root: false,
    },
    Host {
        lacks: "an uncovered /proc, in a user namespace",
        unshare: &["--user", "--map-root-user", "--mount"],
        script: "mount --bind /dev/null /proc/uptime",
        step: "proc",
        errno: "EPERM",
        remedy: "systempaths=unconfined",
        as_root: false,
    },
    Host {
        lacks: "an uncovered /proc",
        unshare: &["--mount"],
        script: "mount --bind /dev/null /proc/uptime",
        step: "proc",
        errno: "EPERM",
        remedy: "procMount: Unmasked",
        as_root: true,
    },
];

#[tokio::test]
async fn a_host_that_lacks_something_is_told_what_to_change_and_nothing_is_left() {
    if !apart("doctor::a_host_that_lacks_something_is_told_what_to_change_and_nothing_is_left", DEADLINE)
        .await
    {
        return;
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let own = std::process::id();
    let state = std::env::temp_dir().join(format!("agentvm-doctor-{own}"));
    std::fs::create_dir(&state).unwrap();
    for host in HOSTS.iter().filter(|host| !host.as_root || geteuid().is_root()) {
        let diagnosis = examine(host, &state);
        let sandbox = level(&diagnosis, "sandbox");
        let failure = &sandbox["failure"];
        assert_eq!(
            (&failure["step"], &failure["errno"]),
            (&host.step.into(), &host.errno.into()),
            "{}: {sandbox}",
            host.lacks
        );
        assert!(sandbox["remedies"][0].as_str().unwrap().contains(host.remedy), "{}: {sandbox}", host.lacks);
        assert!(level(&diagnosis, "none")["report"].is_object(), "{}: the weakest can be had", host.lacks);
        let row = |line: &&str| {
            line.contains(&format!("`{}`", host.step)) && line.contains(&format!("`{}`", host.errno))
        };
        let told =
            include_str!("../../../docs/INSTALL.md").lines().any(|line| line.starts_with('|') && row(&line));
        assert!(told, "{}: docs/INSTALL.md tells of it", host.lacks);
        until("every process is gone", DEADLINE, || async {
            tree(own).into_iter().all(|pid| pid == own || !is_alive(pid))
        })
        .await;
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0, "{}: a folder is left", host.lacks);
    }
    std::fs::remove_dir(state).unwrap();
}

fn examine(host: &Host, state: &PathBuf) -> Value {
    let script = format!("{} && exec \"$0\" doctor --json", host.script);
    let output = Command::new("unshare")
        .args(host.unshare)
        .args(["sh", "-c", &script])
        .arg(program("agentvm-sidecar"))
        .env("AGENTVM_STATE_DIR", state)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}: {}", host.lacks, text(&output));
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{}: {error}: {}", host.lacks, text(&output)))
}
