//! Files of the host, devices, and what `/proc` tells.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::path::Path;

use super::{Attempt, Got, done};
use crate::sys::{path, syscall};

/// `struct vfs_cap_data` with `CAP_SYS_ADMIN` permitted and effective.
const SYS_ADMIN_FILE: [u32; 5] = [0x0200_0001, 1 << 21, 0, 0, 0];

pub(super) fn all() -> Vec<Attempt> {
    vec![
        Attempt::new("E17 mem", || node(libc::S_IFCHR, 1, 1)).instead(whiteout),
        Attempt::new("E17 disk", || node(libc::S_IFBLK, 254, 0)).instead(whiteout),
        Attempt::new("E17 whiteout", || {
            whiteout()?;
            done(File::open("/tmp/node"))
        })
        .alone(),
        Attempt::new("E19 shadow", || done(File::open("/etc/shadow"))),
        Attempt::new("E19 var", || list("/var/log")),
        Attempt::new("E19 boot", || list("/boot")),
        Attempt::new("E19 root", || list("/root")).alone(),
        Attempt::new("E19 home", || list("/home")).alone(),
        Attempt::new("E28 usr", || done(File::create("/usr/made"))),
        Attempt::new("E28 dev", || done(File::create("/dev/made"))),
        Attempt::new("E28 etc", || done(File::create("/etc/static/made"))),
        Attempt::new("E29", || write_only("/usr/bin/env")),
        Attempt::new("E29 chmod", || {
            done(syscall!(libc::SYS_fchmodat, libc::AT_FDCWD, path("/usr/bin/env").as_c_str(), 0o777))
        }),
        Attempt::new("E29 unlink", || done(fs::remove_file("/usr/bin/env"))),
        Attempt::new("E31", || above(0)).instead(|| {
            let folder = syscall!(libc::SYS_openat, libc::AT_FDCWD, path("/usr").as_c_str(), 0)?;
            above(folder)
        }),
        Attempt::new("E31 streams", streams).alone(),
        Attempt::new("E32", || done(fs::hard_link("/usr/bin/env", "/workspace/link")))
            .instead(|| done(fs::hard_link("/usr/bin/env", "/usr/link"))),
        Attempt::new("E37", || own_xattr("security.capability", &SYS_ADMIN_FILE)),
        Attempt::new("E37 trusted", || own_xattr("trusted.x", &[0])).alone(),
        Attempt::new("E97 core_pattern", || overwrite("/proc/sys/kernel/core_pattern")).alone(),
        Attempt::new("E97 modprobe", || overwrite("/proc/sys/kernel/modprobe")).alone(),
        Attempt::new("E97 shmmax", || overwrite("/proc/sys/kernel/shmmax")),
        Attempt::new("E98 user", || overwrite("/proc/sys/user/max_user_namespaces")),
        Attempt::new("E98 ns_last_pid", || overwrite("/proc/sys/kernel/ns_last_pid")),
        Attempt::new("E98 pid_max", || overwrite("/proc/sys/kernel/pid_max")).alone(),
        Attempt::new("E100 keys", || size("/proc/keys")).alone(),
        Attempt::new("E100 key-users", || size("/proc/key-users")).alone(),
        Attempt::new("E100 kallsyms", || size("/proc/kallsyms")),
        Attempt::new("E100 cmdline", || size("/proc/cmdline")),
        Attempt::new("E100 interrupts", || size("/proc/interrupts")),
        Attempt::new("E100 iomem", || size("/proc/iomem")).alone(),
        Attempt::new("E100 config.gz", || size("/proc/config.gz")).alone(),
        Attempt::new("E100 kcore", || size("/proc/kcore")).alone(),
        Attempt::new("E100 kmsg", || size("/proc/kmsg")).alone(),
        Attempt::new("E100 timer_list", || size("/proc/timer_list")).alone(),
        Attempt::new("E100 sysrq", || {
            write_only("/proc/sysrq-trigger").and_then(|_| size("/proc/sysrq-trigger"))
        })
        .alone(),
        Attempt::new("E100 fs", || list("/proc/fs")).alone(),
        Attempt::new("E100 irq", || list("/proc/irq")).alone(),
        Attempt::new("E101 sys", || list("/sys")),
        Attempt::new("E101 cgroup", || list("/sys/fs/cgroup")),
    ]
}

fn node(kind: u32, major: u32, minor: u32) -> Got {
    let device = u32::try_from(libc::makedev(major, minor)).expect("small numbers");
    done(syscall!(libc::SYS_mknodat, libc::AT_FDCWD, path("/tmp/node").as_c_str(), kind | 0o666, device))
}

/// Character device 0:0, which overlay file systems use to say that a file is gone: anybody may make one.
fn whiteout() -> Got {
    node(libc::S_IFCHR, 0, 0)
}

fn list(folder: &str) -> Got {
    let names: io::Result<Vec<_>> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect();
    names.map(|mut names| {
        names.sort();
        names.join(" ")
    })
}

fn write_only(file: &str) -> Got {
    done(OpenOptions::new().write(true).open(file))
}

/// Opens it so that the kernel asks first whether its mount may be written, then who asks. Nothing is written.
fn overwrite(file: &str) -> Got {
    done(OpenOptions::new().write(true).truncate(true).open(file))
}

/// How much there is to read, up to 64 KiB.
fn size(file: impl AsRef<Path>) -> Got {
    let mut buffer = Vec::new();
    let bytes = File::open(file)?.take(64 << 10).read_to_end(&mut buffer)?;
    Ok(format!("{bytes} bytes"))
}

fn above(folder: i64) -> Got {
    done(syscall!(libc::SYS_openat, folder, path("..").as_c_str(), 0))
}

/// What the standard streams are, and every other descriptor that was open when the program began.
fn streams() -> Got {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let number = entry.file_name().to_string_lossy().into_owned();
        // Gone already: the descriptor of the listing. The attacker's own pipe is close-on-exec, so made by it.
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let target = target.to_string_lossy().into_owned();
        let target = target.split(':').next().unwrap_or_default().to_owned();
        if matches!(number.as_str(), "0" | "1" | "2") {
            all.push(target);
        }
    }
    all.sort();
    Ok(all.join(" "))
}

fn own_xattr<const N: usize>(name: &str, value: &[u32; N]) -> Got {
    File::create("/workspace/own")?;
    let [file, name] = ["/workspace/own", name].map(path);
    let (file, name) = (file.as_c_str(), name.as_c_str());
    done(syscall!(libc::SYS_setxattr, file, name, value, i64::try_from(size_of_val(value)).unwrap_or(0), 0))
}
