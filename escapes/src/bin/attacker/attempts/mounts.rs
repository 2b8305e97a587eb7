//! The mount tree.

use super::{Attempt, Got, done, tries};
use crate::sys::{path, syscall};

pub(super) fn all() -> Vec<Attempt> {
    vec![
        Attempt::new("E8 tmpfs", || mount("tmpfs", "/tmp", "tmpfs", 0)),
        Attempt::new("E8 proc", || mount("proc", "/tmp", "proc", 0)),
        Attempt::new("E8 overlay", || {
            let [overlay, place, layers] = ["overlay", "/tmp", "lowerdir=/usr:/etc"].map(path);
            let overlay = overlay.as_c_str();
            done(syscall!(libc::SYS_mount, overlay, place.as_c_str(), overlay, 0, layers.as_c_str()))
        }),
        Attempt::new("E8 cgroup", || mount("cgroup2", "/tmp", "cgroup2", 0)).alone(),
        Attempt::new("E8 bind", || mount("/proc", "/tmp", "", libc::MS_BIND | libc::MS_REC)),
        Attempt::new("E8 remount", || mount("", "/tmp", "", libc::MS_BIND | libc::MS_REMOUNT)),
        Attempt::new("E10 proc", || unmount("/proc")),
        Attempt::new("E10 root", || unmount("/")),
        Attempt::new("E10 mask", || unmount("/proc/cmdline")).instead(|| {
            let cover = mount("/etc/shadow", "/proc/cmdline", "", libc::MS_BIND);
            cover.and_then(|_| unmount("/proc/cmdline"))
        }),
        tries!("E11 fsopen", SYS_fsopen, path("tmpfs").as_c_str(), 0),
        tries!("E11 fsmount", SYS_fsmount, -1, 0, 0),
        tries!("E11 fspick", SYS_fspick, libc::AT_FDCWD, path("/").as_c_str(), 0),
        tries!("E11 fsconfig", SYS_fsconfig, -1, 0, 0, 0, 0),
        tries!("E11 open_tree", SYS_open_tree, libc::AT_FDCWD, path("/").as_c_str(), 1),
        tries!("E11 move_mount", SYS_move_mount, -1, path("").as_c_str(), -1, path("").as_c_str(), 0),
        Attempt::new("E13", || set_writable("/usr")).instead(|| set_writable("/")),
        tries!("E14", SYS_pivot_root, path("/tmp").as_c_str(), path("/tmp").as_c_str()),
        tries!("E14 chroot", SYS_chroot, path("/tmp").as_c_str()),
        Attempt::new("E16", open_by_handle).alone(),
        Attempt::new("E16 empty", || done(syscall!(libc::SYS_open_by_handle_at, -1, &[0u32; 4], 0))),
    ]
}

fn mount(what: &str, place: &str, kind: &str, flags: u64) -> Got {
    let [what, place, kind] = [what, place, kind].map(path);
    let flags = flags.cast_signed();
    done(syscall!(libc::SYS_mount, what.as_c_str(), place.as_c_str(), kind.as_c_str(), flags, 0))
}

fn unmount(place: &str) -> Got {
    done(syscall!(libc::SYS_umount2, path(place).as_c_str(), libc::MNT_DETACH))
}

/// `struct mount_attr` that clears `MOUNT_ATTR_RDONLY`.
fn set_writable(place: &str) -> Got {
    let attributes = [0u64, 1, 0, 0];
    done(syscall!(libc::SYS_mount_setattr, libc::AT_FDCWD, path(place).as_c_str(), 0, &attributes, 32))
}

/// The root's inode, by its handle.
fn open_by_handle() -> Got {
    let mut handle = [128u32; 34];
    let mut mount = [0i32];
    let root = path("/");
    syscall!(libc::SYS_name_to_handle_at, libc::AT_FDCWD, root.as_c_str(), &mut handle, &mut mount, 0)?;
    let folder = syscall!(libc::SYS_openat, libc::AT_FDCWD, root.as_c_str(), libc::O_DIRECTORY)?;
    done(syscall!(libc::SYS_open_by_handle_at, folder, &handle, libc::O_RDONLY))
}
