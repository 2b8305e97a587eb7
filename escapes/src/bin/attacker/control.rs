//! Where positive controls run: user, mount, pid, network, IPC and UTS namespaces made for one trial, all capabilities
//! over them, no filter, and a tmpfs for a root, so that nothing of the host is in reach.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::symlink;

use crate::attempts::{Attempt, Control};
use crate::facts::facts;
use crate::sys::{path, syscall};
use crate::trial::{in_child, outcome};

const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

const FOLDERS: [&str; 12] = [
    "boot",
    "dev/pts",
    "etc/static",
    "home/agentos",
    "old",
    "proc",
    "root",
    "sys/fs/cgroup",
    "tmp",
    "usr/bin",
    "var/log",
    "workspace",
];
const FILES: [&str; 2] = ["etc/shadow", "usr/bin/env"];

/// What comes of an attempt's control.
pub(crate) fn of(attempt: &Attempt) -> String {
    let run = match attempt.control {
        Control::None => return "-".to_owned(),
        Control::OnHost => return outcome(attempt.run),
        Control::Same => attempt.run,
        Control::Instead(run) => run,
    };
    in_child(|| match unshare() {
        Ok(()) => in_child(|| match furnish() {
            Ok(()) => outcome(run),
            Err(error) => format!("no control: {error}"),
        }),
        Err(error) => format!("no namespaces for a control: {error}"),
    })
}

fn unshare() -> io::Result<()> {
    // SAFETY: neither has a precondition.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    syscall!(libc::SYS_unshare, NAMESPACES)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// Makes process 1 of the new namespaces an init to be attacked, in a root of its own.
fn furnish() -> io::Result<()> {
    syscall!(libc::SYS_prctl, libc::PR_SET_DUMPABLE, 1, 0, 0, 0)?;
    syscall!(libc::SYS_setsid)?;
    mount("none", "/", "", libc::MS_REC | libc::MS_PRIVATE)?;
    mount("tmpfs", "/tmp", "tmpfs", 0)?;
    for folder in FOLDERS {
        fs::create_dir_all(format!("/tmp/{folder}"))?;
    }
    for file in FILES {
        fs::write(format!("/tmp/{file}"), "of the control")?;
    }
    mount("proc", "/tmp/proc", "proc", 0)?;
    mount("devpts", "/tmp/dev/pts", "devpts", 0)?;
    symlink("pts/ptmx", "/tmp/dev/ptmx")?;
    syscall!(libc::SYS_pivot_root, path("/tmp").as_c_str(), path("/tmp/old").as_c_str())?;
    std::env::set_current_dir("/")?;
    syscall!(libc::SYS_umount2, path("/old").as_c_str(), libc::MNT_DETACH)?;
    mount("tmpfs", "/tmp", "tmpfs", 0)?;
    give_address("lo", Ipv4Addr::LOCALHOST)?;
    give_address("lo:1", Ipv4Addr::new(169, 254, 169, 254))?;
    if let Some(IpAddr::V4(lan)) = facts().lan {
        give_address("lo:2", lan)?;
    }
    Ok(())
}

fn mount(what: &str, place: &str, kind: &str, flags: u64) -> io::Result<()> {
    let [what, place, kind] = [what, place, kind].map(path);
    let flags = flags.cast_signed();
    syscall!(libc::SYS_mount, what.as_c_str(), place.as_c_str(), kind.as_c_str(), flags, 0).map(drop)
}

/// Gives the loopback device an address (`netdevice(7)`) and brings it up.
fn give_address(device: &str, address: Ipv4Addr) -> io::Result<()> {
    let socket = syscall!(libc::SYS_socket, libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    // `struct ifreq`: the name, then a `sockaddr_in` or flags.
    let mut request = [0u8; 40];
    request[..device.len()].copy_from_slice(device.as_bytes());
    request[16..18].copy_from_slice(&2u16.to_ne_bytes());
    request[20..24].copy_from_slice(&address.octets());
    syscall!(libc::SYS_ioctl, socket, 0x8916 /* SIOCSIFADDR */, &mut request)?;
    request[16..24].fill(0);
    request[16..18].copy_from_slice(&1u16.to_ne_bytes() /* IFF_UP */);
    syscall!(libc::SYS_ioctl, socket, 0x8914 /* SIOCSIFFLAGS */, &mut request).map(drop)
}
