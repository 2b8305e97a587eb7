//! Failures of building a VM: which step, which errno, about which path, and what would help.

use std::fmt;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// A step of building the zygote or a VM, in the order they happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Step {
    /// Reading the request: a field cannot be meant so.
    Config,
    /// Executing the zygote and talking to it.
    Zygote,
    /// Looking whether this kernel is new enough.
    Kernel,
    /// Dropping the sidecar's supplementary groups.
    Groups,
    /// The outer user namespace an ordinary user needs.
    UserNamespace,
    /// The zygote's private mount tree.
    MountNamespace,
    /// The read-only base all VMs share.
    Base,
    /// Taking a range of uids.
    UidRange,
    /// The groups that limit the VM as a whole.
    Limits,
    /// Making the VM's namespaces.
    Namespaces,
    /// Mapping the VM's user and group ids.
    IdMaps,
    /// Becoming the VM's own user, in its own session.
    Identity,
    /// Closing what was inherited.
    Descriptors,
    /// The tmpfs that is the VM's root and writable layer.
    RootTmpfs,
    /// The host's tools, read-only.
    HostTools,
    /// Folders and links of the root.
    Folders,
    /// The generated `/etc`.
    Etc,
    /// The private `/dev`.
    Devices,
    /// The VM's own `/proc`.
    Proc,
    /// Kernel settings of the VM's namespaces.
    Sysctls,
    /// Covering what `/proc` would tell about the host.
    Masks,
    /// Leaving the host's file system.
    PivotRoot,
    /// The working directory.
    Cwd,
    /// The host name.
    Hostname,
    /// The loopback interface.
    Loopback,
    /// Resource limits of everything in the VM.
    Rlimits,
    /// Giving up privileges for good.
    Capabilities,
    /// Installing the seccomp program.
    Seccomp,
    /// Executing the supervisor of a VM without namespaces, and talking to it.
    Supervisor,
    /// The folder of the host that such a VM has for itself.
    PrivateFolder,
    /// Landlock around such a VM.
    Landlock,
    /// Reading back what was built.
    Report,
}

impl Step {
    /// Stable name, as it crosses the wire: snake case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Zygote => "zygote",
            Self::Kernel => "kernel",
            Self::Groups => "groups",
            Self::UserNamespace => "user_namespace",
            Self::MountNamespace => "mount_namespace",
            Self::Base => "base",
            Self::UidRange => "uid_range",
            Self::Limits => "limits",
            Self::Namespaces => "namespaces",
            Self::IdMaps => "id_maps",
            Self::Identity => "identity",
            Self::Descriptors => "descriptors",
            Self::RootTmpfs => "root_tmpfs",
            Self::HostTools => "host_tools",
            Self::Folders => "folders",
            Self::Etc => "etc",
            Self::Devices => "devices",
            Self::Proc => "proc",
            Self::Sysctls => "sysctls",
            Self::Masks => "masks",
            Self::PivotRoot => "pivot_root",
            Self::Cwd => "cwd",
            Self::Hostname => "hostname",
            Self::Loopback => "loopback",
            Self::Rlimits => "rlimits",
            Self::Capabilities => "capabilities",
            Self::Seccomp => "seccomp",
            Self::Supervisor => "supervisor",
            Self::PrivateFolder => "private_folder",
            Self::Landlock => "landlock",
            Self::Report => "report",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One failed step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    /// Which.
    pub step: Step,
    /// Why, as a Linux errno.
    pub errno: i32,
    /// What it was about: a path or a field.
    pub path: Option<String>,
}

impl Fault {
    /// A failure about nothing in particular.
    pub(crate) fn new(step: Step, errno: Errno) -> Self {
        Self { step, errno: errno.raw_os_error(), path: None }
    }

    /// A failure about a path or a field.
    pub(crate) fn about(step: Step, errno: Errno, path: impl Into<String>) -> Self {
        Self { path: Some(path.into()), ..Self::new(step, errno) }
    }

    /// What would make this step succeed, where that is known.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        let denied = [libc::EPERM, libc::EACCES].contains(&self.errno);
        let none_left = [libc::ENOSPC, libc::EUSERS].contains(&self.errno);
        match self.step {
            Step::UserNamespace | Step::Namespaces if none_left => {
                Some("raise the sysctls user.max_user_namespaces, user.max_net_namespaces and their siblings")
            }
            Step::UserNamespace | Step::MountNamespace | Step::Namespaces | Step::IdMaps if denied => Some(
                "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1, on Ubuntu 24.04 and later an \
                 AppArmor profile for this program or kernel.apparmor_restrict_unprivileged_userns=0, in Docker \
                 --security-opt seccomp=unconfined --security-opt apparmor=unconfined",
            ),
            Step::Proc if denied => Some(
                "the /proc this program sees is covered in places, so the kernel refuses a new one: in Docker \
                 --security-opt systempaths=unconfined, in Kubernetes procMount: Unmasked with hostUsers: false",
            ),
            Step::Limits if self.errno == libc::EOPNOTSUPP => Some(
                "nothing here can enforce it: run the sidecar as root, or in a cgroup that is delegated to its user \
                 (systemd-run --user --scope -p Delegate=yes PROGRAM); `agentvm-sidecar doctor` says what is missing",
            ),
            Step::Config if self.errno == libc::EOPNOTSUPP => Some("only a sandbox has it"),
            Step::UidRange => Some(
                "as root, /run/agentvm must be writable, and the ids from 2^30 on be this user namespace's to give; \
                 an ordinary user needs neither",
            ),
            Step::PrivateFolder => Some("AGENTVM_STATE_DIR names another place than /var/tmp/agentvm-UID"),
            Step::Landlock => Some(
                "Linux 5.13 or later is needed, built with Landlock, and landlock among the security modules \
                 (kernel parameter lsm=)",
            ),
            _ if self.errno == libc::EFBIG => {
                Some("the file size limit of this process (ulimit -f) is too small")
            }
            _ if self.errno == libc::ENOSYS => Some("Linux 5.14 or later is needed"),
            _ => None,
        }
    }
}

/// Test builds: the step of the zygote that shall fail, and how: `step:errno`.
#[cfg(test)]
pub(crate) const TEST_FAIL_ENV: &str = "AGENTVM_TEST_FAIL";

/// Fails in tests where that says so.
pub(crate) fn reach(step: Step) -> Result<(), Fault> {
    match failing() {
        Some((name, errno)) if name == step.name() => Err(Fault { step, errno, path: None }),
        _ => Ok(()),
    }
}

#[cfg(test)]
fn failing() -> Option<(String, i32)> {
    let failing = std::env::var(TEST_FAIL_ENV).ok()?;
    let (name, errno) = failing.split_once(':')?;
    Some((name.to_owned(), errno.parse().ok()?))
}

#[cfg(not(test))]
fn failing() -> Option<(&'static str, i32)> {
    None
}

/// Names the step and the path of a failed call.
pub(crate) trait At<T> {
    /// The step, without a path.
    fn at(self, step: Step) -> Result<T, Fault>;
    /// The step and the path.
    fn at_path(self, step: Step, path: impl AsRef<[u8]>) -> Result<T, Fault>;
}

impl<T> At<T> for rustix::io::Result<T> {
    fn at(self, step: Step) -> Result<T, Fault> {
        self.map_err(|errno| Fault::new(step, errno))
    }

    fn at_path(self, step: Step, path: impl AsRef<[u8]>) -> Result<T, Fault> {
        self.map_err(|errno| Fault::about(step, errno, String::from_utf8_lossy(path.as_ref())))
    }
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, step: Step) -> Result<T, Fault> {
        self.map_err(|error| Fault::new(step, errno_of(&error)))
    }

    fn at_path(self, step: Step, path: impl AsRef<[u8]>) -> Result<T, Fault> {
        self.map_err(|error| Fault::about(step, errno_of(&error), String::from_utf8_lossy(path.as_ref())))
    }
}

/// The errno of a standard error; EIO where it has none.
pub(crate) fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
