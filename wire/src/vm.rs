//! VMs: what a client may ask of one, and what the sidecar says it really built.
//!
//! A field exists here only once it has its effect; see `design/sandbox.md` for what comes later.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{error::Rejection, process::validate_env};

use crate::id::VmId;

/// How strongly a VM is separated from its host. Never weakened silently: what cannot be given is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Isolation {
    /// Own user, pid, mount, network, UTS, IPC and cgroup namespaces, own root file system, seccomp, rlimits.
    #[default]
    Sandbox,
    /// Where namespaces cannot be had: Landlock, seccomp and rlimits around processes of the host, with a private home,
    /// temporary and working folder. No root file system, process table, network or host name of its own.
    Confined,
    /// Plain processes of the sidecar's user: nothing is kept from anybody.
    None,
}

/// Body of `create_vm`. Every field may be left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct VmConfig {
    /// Level of isolation; `sandbox` if absent.
    pub isolation: Isolation,
    /// Environment every process starts with, laid over the VM's own (PATH, HOME, USER, LOGNAME, SHELL, LANG, TERM).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Working directory of a process that names none: absolute; `/workspace` if absent, without a sandbox the private
    /// working folder. Created if missing. Refused with `confined`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Host name seen inside, 1 to 64 of `[A-Za-z0-9.-]`; derived from the VM id if absent. Of a sandbox only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Who guest processes run as.
    pub user: VmUser,
    /// The tmpfs that holds everything the guest writes.
    pub writable_layer: WritableLayer,
    /// Bounds on what the guest may use.
    pub limits: VmLimits,
}

/// Longest working directory of a VM: a path and its NUL are at most 4096 bytes, `path_resolution(7)`.
const MAX_CWD_BYTES: usize = 4095;

impl VmConfig {
    /// Refuses what no VM could be built from; the client asks before sending, the sidecar before building.
    pub fn validate(&self) -> Result<(), Rejection> {
        validate_env(&self.env)?;
        self.limits.validate()?;
        // To a tmpfs, zero is no limit.
        at_least("writable_layer.size_bytes", self.writable_layer.size_bytes, 1)?;
        at_least("writable_layer.inodes", self.writable_layer.inodes, 1)?;
        if let Some(name) = self.hostname.as_ref().filter(|name| !is_hostname(name)) {
            let fault = format!("hostname {name:?} is not 1 to 64 of A-Z a-z 0-9 . -");
            return Err(Rejection::invalid("hostname", fault));
        }
        if let Some(cwd) = &self.cwd {
            let fault = match cwd {
                _ if !cwd.starts_with('/') => format!("Path must be absolute: {cwd}"),
                _ if cwd.contains('\0') => "cwd contains NUL".to_owned(),
                _ if cwd.len() > MAX_CWD_BYTES => format!("cwd is longer than {MAX_CWD_BYTES} bytes"),
                _ => return Ok(()),
            };
            return Err(Rejection::invalid("cwd", fault));
        }
        Ok(())
    }
}

/// Who guest processes run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct VmUser {
    /// `false` (default): `agentos`, 1000:1000; without a sandbox an id of the host. `true`: uid 0 of the VM with nine
    /// capabilities over the VM only; of a sandbox only.
    pub root: bool,
}

/// The tmpfs behind `/`, `/tmp`, `/workspace`, `/home` and `/dev/shm`: a disk quota that needs no rights. Of a sandbox
/// only: elsewhere its fields are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct WritableLayer {
    /// Bytes it may hold; 1 GiB if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Inodes it may hold; 262 144 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
}

impl WritableLayer {
    /// 1 GiB.
    pub const DEFAULT_SIZE_BYTES: u64 = 1 << 30;
    /// 262 144 files and folders.
    pub const DEFAULT_INODES: u64 = 1 << 18;
}

/// Bounds on what the guest may use. Absent means the default named at each field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct VmLimits {
    /// Processes and threads of the guest at once; 1024 if absent. Without a sandbox it takes a control group or a uid of
    /// the guest's own, and is refused where there is neither.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Descriptors a guest process may hold; if absent the smallest of 65 536, the sidecar's hard limit and a quarter
    /// of the sidecar's own limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Bytes of memory the guest may use in all, what it has written to its file system included; at least 16 MiB. No
    /// limit if absent. Refused where nothing can enforce it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Thousandths of a processor the guest may use in all; at least 10. No limit if absent. Refused where nothing can
    /// enforce it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_millicores: Option<u64>,
    /// Bytes of the largest file a guest process may write; no limit but the sidecar's own if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_size_bytes: Option<u64>,
    /// Bytes of the largest core a guest process may leave; none if absent. Refused while the host hands cores to a
    /// program of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core_bytes: Option<u64>,
}

impl VmLimits {
    /// 1024 processes and threads.
    pub const DEFAULT_PIDS: u64 = 1024;
    /// 65 536 descriptors, before clamping.
    pub const DEFAULT_OPEN_FILES: u64 = 65_536;
    /// Real pids stay at or below this, so they never meet the synthetic ones, which start at 1 000 000.
    pub const PID_MAX: u64 = 999_999;
    /// 16 MiB of memory: below that no VM is of use.
    pub const MIN_MEMORY_BYTES: u64 = 16 << 20;
    /// A hundredth of a processor: the kernel counts no less.
    pub const MIN_CPU_MILLICORES: u64 = 10;

    fn validate(&self) -> Result<(), Rejection> {
        at_least("limits.pids", self.pids, 1)?;
        at_least("limits.open_files", self.open_files, 1)?;
        at_least("limits.memory_bytes", self.memory_bytes, Self::MIN_MEMORY_BYTES)?;
        at_least("limits.cpu_millicores", self.cpu_millicores, Self::MIN_CPU_MILLICORES)
    }
}

fn at_least(field: &str, value: Option<u64>, least: u64) -> Result<(), Rejection> {
    match value {
        Some(value) if value < least => {
            Err(Rejection::invalid(field, format!("{field} is {value}, the least is {least}")))
        }
        _ => Ok(()),
    }
}

fn is_hostname(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-')
}

/// Body of `vm_created`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VmCreated {
    /// The new VM.
    pub vm: VmId,
    /// What was really built.
    pub isolation: IsolationReport,
    /// Microseconds from the request's receipt until the VM's init said ready.
    pub boot_us: u64,
}

/// What holds a VM in, read back from inside after it was built rather than copied from the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IsolationReport {
    /// The level that holds.
    pub isolation: Isolation,
    /// Host name inside.
    pub hostname: String,
    /// Inodes of the VM's namespaces (as in `readlink /proc/self/ns/pid`), decimal strings; absent where it has none of its
    /// own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Namespaces>,
    /// `/proc/self/uid_map` as the sidecar's own user namespace sees it.
    pub uid_map: Vec<IdMapping>,
    /// The same for groups.
    pub gid_map: Vec<IdMapping>,
    /// Who guest processes run as.
    pub guest: GuestIdentity,
    /// `PR_GET_NO_NEW_PRIVS` of init, inherited by every guest process.
    pub no_new_privs: bool,
    /// Seccomp as `/proc/self/status` shows it in init.
    pub seccomp: SeccompReport,
    /// Landlock, where it is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landlock: Option<LandlockReport>,
    /// Each limit, what it is, and what enforces it.
    pub limits: Vec<LimitReport>,
    /// What holds only in part, and why; empty when everything the level promises holds.
    pub partial: Vec<Partial>,
}

/// Inodes of the seven namespaces, as decimal strings (they may exceed 2^53). Each guest process additionally has a
/// UTS namespace of its own: the mark by which its descendants are found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[expect(missing_docs, reason = "each field is the namespace it names")]
pub struct Namespaces {
    pub user: String,
    pub pid: String,
    pub mnt: String,
    pub net: String,
    pub uts: String,
    pub ipc: String,
    pub cgroup: String,
}

/// One line of a uid or gid map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IdMapping {
    /// First id inside.
    pub inside: u32,
    /// First id outside, in the sidecar's user namespace.
    pub outside: u32,
    /// How many.
    pub count: u32,
}

/// Who guest processes run as, and with what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GuestIdentity {
    /// uid inside.
    pub uid: u32,
    /// gid inside.
    pub gid: u32,
    /// Home directory.
    pub home: String,
    /// Names of the capabilities a guest process holds (`CAP_` prefix left out), in kernel order; empty for `agentos`.
    pub capabilities: Vec<String>,
}

/// Seccomp as `/proc/PID/status` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SeccompReport {
    /// `Seccomp:` — 2 is filter mode.
    pub mode: u32,
    /// `Seccomp_filters:`; filters that were inherited from outside count too. Absent where the kernel does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filters: Option<u32>,
}

/// What Landlock keeps guest processes from (`landlock(7)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LandlockReport {
    /// Version of the kernel's interface that is used: files from 1 on, TCP from 4, signals from 6.
    pub abi: u32,
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitReport {
    /// As the field of the configuration, or `pid_max`, `disk_bytes`, `disk_inodes`, `cpu_share`, `exec_memory_bytes`.
    pub name: String,
    /// What was asked for; absent if nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<u64>,
    /// What holds; absent means unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective: Option<u64>,
    /// `rlimit`, `tmpfs`, `sysctl`, `cgroup`, or `none`.
    pub enforced_by: String,
    /// Why nothing enforces it, where something else could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// Something that holds only in part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Partial {
    /// Stable name, e.g. `pid_max`.
    pub what: String,
    /// Why, and what would enable it.
    pub why: String,
}

/// Body of `dispose_vm`; its scope names the VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct DisposeVm {
    /// How long processes may take to end by themselves after SIGTERM; 0, the default: nothing is sent but SIGKILL.
    #[serde(skip_serializing_if = "is_zero")]
    pub grace_ms: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Body of `vm_disposed`: the VM and everything of it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct VmDisposed {}

/// Body of `list_vms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ListVms {}

/// Body of `vms`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Vms {
    /// This session's VMs that are ready, in the order of their creation.
    pub vms: Vec<VmId>,
}

/// Body of the event `vm_state`: a VM that ends sends this, not one exit per process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VmStateChanged {
    /// The new state.
    pub state: VmState,
    /// Why, for `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A VM's life: `creating → ready → disposing → disposed`, or `failed` from any of the first three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "told in the line above")]
#[non_exhaustive]
pub enum VmState {
    Creating,
    Ready,
    Disposing,
    Disposed,
    Failed,
}
