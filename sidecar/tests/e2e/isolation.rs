//! The isolation report against what a guest sees, and the first look around.

use agentvm_sdk::{AgentOs, AgentOsConfig};

use crate::support::{out, sh, vm, vm_with};

#[tokio::test]
async fn every_claim_of_the_report_is_what_a_guest_sees() {
    compare(&vm().await).await;
}

#[tokio::test]
async fn every_claim_of_the_report_holds_for_a_guest_that_is_root() {
    compare(&vm_with(AgentOsConfig::new().root(true).hostname("rooted").pids(200).open_files(500)).await)
        .await;
}

async fn compare(vm: &AgentOs) {
    let report = vm.isolation_report();
    let namespaces = report.namespaces.as_ref().expect("a sandbox has its own");
    for (name, inode) in [
        ("user", &namespaces.user),
        ("pid", &namespaces.pid),
        ("mnt", &namespaces.mnt),
        ("net", &namespaces.net),
        ("ipc", &namespaces.ipc),
        ("cgroup", &namespaces.cgroup),
    ] {
        assert_eq!(out(vm, &format!("readlink /proc/self/ns/{name}")).await, format!("{name}:[{inode}]\n"));
        let host = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        assert_ne!(host.to_string_lossy(), format!("{name}:[{inode}]"), "shared with the host");
    }
    // Each started process has a UTS namespace of its own: the mark of its tree.
    let uts = out(vm, "readlink /proc/self/ns/uts").await;
    assert_ne!(uts, format!("uts:[{}]\n", namespaces.uts));
    assert_eq!(out(vm, "hostname").await.trim(), report.hostname);

    let status = out(vm, "cat /proc/self/status").await;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.unwrap_or_else(|| panic!("no {name}")).trim().to_owned()
    };
    assert_eq!(field("NoNewPrivs"), u8::from(report.no_new_privs).to_string());
    assert!(report.no_new_privs);
    assert_eq!(field("Seccomp"), report.seccomp.mode.to_string());
    assert_eq!(report.seccomp.mode, 2);
    if let Some(filters) = report.seccomp.filters {
        assert_eq!(field("Seccomp_filters"), filters.to_string());
    }
    assert_eq!(capabilities(&field("CapEff")), report.guest.capabilities);
    assert_eq!(capabilities(&field("CapBnd")), report.guest.capabilities);
    assert_eq!(field("Uid").split_whitespace().next(), Some(report.guest.uid.to_string().as_str()));
    assert_eq!(out(vm, "id -u; id -g").await, format!("{}\n{}\n", report.guest.uid, report.guest.gid));
    assert_eq!(out(vm, "cd; pwd").await.trim(), report.guest.home);

    // From inside, the outside column is told by the reader's own namespace: only inside and count compare.
    let map = out(vm, "cat /proc/self/uid_map").await;
    let inside: Vec<(u32, u32)> = map
        .lines()
        .map(|line| {
            let numbers: Vec<u32> = line.split_whitespace().map(|text| text.parse().unwrap()).collect();
            (numbers[0], numbers[2])
        })
        .collect();
    let reported: Vec<(u32, u32)> = report.uid_map.iter().map(|map| (map.inside, map.count)).collect();
    assert_eq!(inside, reported);

    for limit in &report.limits {
        let Some(effective) = limit.effective else {
            assert_eq!(limit.enforced_by, "none", "{}", limit.name);
            continue;
        };
        let seen = match limit.name.as_str() {
            "pids" => out(vm, "sed -n 's/^Max processes *\\([0-9]*\\) .*/\\1/p' /proc/self/limits").await,
            "open_files" => out(vm, "ulimit -Hn").await,
            "core" => {
                out(vm, "sed -n 's/^Max core file size *\\([0-9]*\\) .*/\\1/p' /proc/self/limits").await
            }
            "pid_max" => out(vm, "cat /proc/sys/kernel/pid_max").await,
            "disk_bytes" => {
                out(vm, "echo $(( $(stat -f -c %b /workspace) * $(stat -f -c %S /workspace) ))").await
            }
            "disk_inodes" => out(vm, "stat -f -c %c /workspace").await,
            _ => continue,
        };
        assert_eq!(seen.trim(), effective.to_string(), "{}", limit.name);
    }
}

/// Names of a capability mask, capabilities(7).
fn capabilities(mask: &str) -> Vec<String> {
    const NAMES: [&str; 9] = [
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "SETGID",
        "SETUID",
        "SETPCAP",
        "NET_BIND_SERVICE",
    ];
    const BITS: [u64; 9] = [0, 1, 3, 4, 5, 6, 7, 8, 10];
    let mask = u64::from_str_radix(mask, 16).unwrap();
    assert_eq!(mask & !BITS.iter().map(|bit| 1 << bit).sum::<u64>(), 0, "more than the nine: {mask:x}");
    BITS.iter()
        .zip(NAMES)
        .filter(|(bit, _)| mask & (1 << **bit) != 0)
        .map(|(_, name)| name.to_owned())
        .collect()
}

#[tokio::test]
async fn nothing_of_the_hosts_private_folders_is_there() {
    let vm = vm().await;
    assert_eq!(out(&vm, "ls -A /root /home/agentos 2>/dev/null | grep -v : | tr -d '\\n'").await, "");
    assert_eq!(out(&vm, "ls /home").await, "agentos\n");
    assert_ne!(sh(&vm, "cat /etc/shadow").await.exit_code, 0);
    let host_passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let marker = "/work";
    assert!(!out(&vm, "ls /").await.lines().any(|line| format!("/{line}") == marker), "{host_passwd}");
    assert_eq!(out(&vm, "tr '\\0' '\\n' < /proc/1/cmdline").await, "agentvm-init\n");
    assert_eq!(sh(&vm, "ls /sys").await.stdout, "");
}

#[tokio::test]
async fn the_tools_people_use_just_work() {
    let vm = vm().await;
    assert_eq!(out(&vm, "python3 -c 'print(6 * 7)'").await, "42\n");
    assert_eq!(out(&vm, "perl -e 'print 6 * 7'").await, "42");
    let program =
        "printf '#include <stdio.h>\\nint main(void){puts(\"built\");return 0;}' > a.c && cc a.c -o a && ./a";
    assert_eq!(out(&vm, program).await, "built\n");
    assert_eq!(out(&vm, "git init -q r && cd r && git rev-parse --is-inside-work-tree").await, "true\n");
    assert_eq!(out(&vm, "cd && echo x > f && cat f && echo y > /tmp/f && cat /tmp/f").await, "x\ny\n");
}
